//! What all units of a run have in common.

use std::sync::Arc;

use super::publish::Remote;
use crate::format::Format;
use crate::schema::Schema;
use crate::storage::Writeback;

/// Options shared by all units of a run.
pub(super) struct UnitOptions {
    /// Identity of the plan.
    pub plan: String,
    pub format: Format,
    pub shard_bytes: u64,
    pub shard_records: Option<u64>,
    pub schema: Arc<Schema>,
    pub splits: Vec<String>,
    pub writeback: Writeback,
    /// Destination of finished units, if it is object storage.
    pub remote: Option<Remote>,
}
