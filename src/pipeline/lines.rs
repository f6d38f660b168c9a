//! Lines of the files that list the items without a record, and the reasons: rejects, duplicates and filtered items.

use std::io::Write;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::storage::NewFile;

/// A line of `rejects.jsonl`.
#[derive(Serialize)]
pub(super) struct RejectLine<'a> {
    pub(super) origin: &'a str,
    pub(super) split: &'a str,
    pub(super) code: &'a str,
    pub(super) message: &'a str,
}

/// A line of `duplicates.jsonl`.
#[derive(Serialize)]
pub(super) struct DuplicateLine<'a> {
    pub(super) origin: &'a str,
    pub(super) split: &'a str,
    /// Origin of the item that is kept.
    pub(super) of: &'a str,
}

/// A line of `filtered.jsonl`.
#[derive(Serialize)]
pub(super) struct FilteredLine<'a> {
    pub(super) origin: &'a str,
    pub(super) split: &'a str,
    pub(super) reason: &'a str,
}

/// Appends `line` as a line of JSON.
pub(super) fn json_line(file: &mut NewFile, line: &impl Serialize) -> Result<()> {
    let mut json = serde_json::to_vec(line).map_err(|e| Error::not_serialized("a line", e))?;
    json.push(b'\n');
    append(file, &json)
}

/// Appends `bytes`.
pub(super) fn append(file: &mut NewFile, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|e| Error::io("write", file.path(), e))
}
