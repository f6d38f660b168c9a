//! Options of a run, validated and independent of the command line's types.
//!
//! *Semantic* options determine the bytes of the dataset and are part of its fingerprint. *Operational* options
//! (threads, memory, paths, error limits) affect neither.

mod choice;
mod local;
mod split;
mod split_words;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::pipeline::{Existing, ResumeCheck};
pub use crate::storage::check_local;
pub use choice::Choice;
pub use dsconvert_dataset::size::{Decimal, MaxRejects, parse_size};
pub(crate) use local::{check_sources, is_remote};
pub use split::SplitSpec;
pub use split_words::split_named;
pub(crate) use split_words::{Affix, SplitName, split_affixes};

use crate::format::Format;

impl Choice for Format {
    const WORDS: &'static [&'static str] = &["parquet", "arrow", "msgpack", "protobuf"];
}

/// Default of `--shard-bytes`: canonical size of the records in one shard, in bytes.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// Minimum of `--shard-bytes`.
pub const MIN_SHARD_BYTES: u64 = 4096;

/// Minimum of `--unit-bytes`.
pub const MIN_UNIT_BYTES: u64 = 4096;

/// Default of `--memory`: total bytes in flight.
pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Maximum number of threads: each takes memory for its stack and for a task.
pub const MAX_THREADS: usize = 1024;

/// Minimum of `--memory`.
pub const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// Default of `--seed`.
pub const DEFAULT_SEED: u64 = 0;

/// Semantic options shared by both commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputOptions {
    /// Shard format.
    pub format: Format,
    /// A shard is closed before the canonical size of its records exceeds this many bytes.
    pub shard_bytes: u64,
    /// A shard is closed when it holds this many records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_records: Option<u64>,
    /// Source bytes per work unit; `None`: the default for the kind of dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    /// Named splits by hash of the key. `None`: the splits that the sources define, otherwise all records in `train`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// Whether records are reordered by a keyed permutation.
    pub shuffle: bool,
    /// Key of the permutation and of the split hash.
    pub seed: u64,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self {
            format: Format::default(),
            shard_bytes: DEFAULT_SHARD_BYTES,
            shard_records: None,
            unit_bytes: None,
            split: None,
            shuffle: false,
            seed: DEFAULT_SEED,
        }
    }
}

/// One `SRC` argument of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// First part of the origin of every item: the last path component, or the text before `=` in `LABEL=PATH`.
    pub label: String,
    /// File or folder.
    #[serde(with = "crate::stored_path")]
    pub path: PathBuf,
}

/// Operational options, which never change a byte of the dataset.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Output directory, or the URL of a prefix in object storage.
    pub out: PathBuf,
    /// Directory for files waiting to be uploaded to object storage; `None`: the system's temporary directory.
    pub scratch: Option<PathBuf>,
    /// Number of worker threads.
    pub threads: usize,
    /// Memory limit: total bytes in flight.
    pub memory_bytes: u64,
    /// How to treat existing content of the output directory.
    pub existing: Existing,
    /// Limit on rejects; a run that exceeds it commits nothing.
    pub max_rejects: MaxRejects,
}

/// Returns the default number of threads: the cores that this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
