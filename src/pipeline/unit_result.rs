//! Results of finished units: `unit.json`.
//!
//! It lists every file of its unit with size and SHA-256, and ends with a digest of its own content.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::manifest::Counts;
use crate::storage::hex;

/// Name of the file with the [`UnitResult`].
pub(super) const RESULT_NAME: &str = "unit.json";

/// Result of a finished unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitResult {
    pub unit: u32,
    /// Identity of the plan that the unit belongs to.
    pub plan: String,
    pub splits: Vec<UnitSplit>,
    /// All files of the unit except its shards and this result.
    pub files: Vec<UnitFile>,
    pub reject_codes: BTreeMap<String, u64>,
    pub notes: BTreeMap<String, u64>,
    /// Number of files that turned out to be of another kind, by type.
    pub skipped: BTreeMap<String, u64>,
    pub source_bytes: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// XXH3-128 over the content hashes, in hexadecimal.
    pub content: String,
}

/// The part of a unit that belongs to one split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitSplit {
    pub name: String,
    pub counts: Counts,
    pub records: u64,
    /// Number of records by label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u64>,
    pub shards: Vec<UnitShard>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitShard {
    pub name: String,
    pub records: u64,
    pub bytes: u64,
    pub sha256: String,
}

/// A file of a unit other than a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

impl UnitResult {
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.splits.iter().for_each(|s| sum.add(&s.counts));
        sum
    }

    /// Clears the fields that the commit has already added up: the results of all units are in memory at the same time.
    pub(super) fn clear_summed(&mut self) {
        (self.plan, self.content) = (String::new(), String::new());
        (self.reject_codes, self.notes) = (BTreeMap::new(), BTreeMap::new());
        self.skipped = BTreeMap::new();
        self.splits.iter_mut().for_each(|split| split.labels = Vec::new());
    }

    /// Returns whether the unit has a file of this name.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// Returns the bytes of `unit.json`: one line of JSON, and a line with its SHA-256.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec(self).map_err(|e| Error::not_serialized("the result of a unit", e))?;
        let digest = digest(&bytes);
        bytes.extend_from_slice(format!("\n{digest}\n").as_bytes());
        Ok(bytes)
    }

    /// Parses `unit.json`; `None` if the bytes are not what [`UnitResult::to_bytes`] returned.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.strip_suffix(b"\n")?.split(|&byte| byte == b'\n');
        let (json, line) = (lines.next()?, lines.next()?);
        if lines.next().is_some() || line != digest(json).as_bytes() {
            return None;
        }
        serde_json::from_slice(json).ok()
    }
}

/// Adds the counts `more` to `sum`, name by name.
pub(super) fn add_all(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name.clone()).or_default() += count;
    }
}

fn digest(json: &[u8]) -> String {
    hex(&Sha256::digest(json))
}

/// State of a unit after an earlier run.
pub(super) enum UnitState {
    /// The unit has no result.
    Missing,
    Done(Box<UnitResult>),
    /// The result cannot be used, for this reason.
    Damaged(String),
}

impl UnitState {
    /// Returns the state of `unit`, given the bytes of its `unit.json`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if the result belongs to another plan than `plan`.
    pub(super) fn of(bytes: &[u8], unit: u32, plan: &str) -> Result<Self> {
        match UnitResult::from_bytes(bytes) {
            None => Ok(Self::Damaged(format!("{RESULT_NAME} was altered"))),
            Some(result) if result.plan != plan || result.unit != unit => {
                Err(Error::corrupt("the result of a finished unit belongs to another plan")
                    .help("start again with `overwrite`"))
            }
            Some(result) => Ok(Self::Done(Box::new(result))),
        }
    }
}

/// Returns the error for a finished unit at `place` that cannot be committed. A run that continues converts it again.
pub(super) fn unusable_unit(unit: u32, why: &str, place: &Path) -> Error {
    Error::corrupt(format!("unit {unit} cannot be committed: {why}")).at_path(place)
}

/// Returns the path of a shard, relative to the output directory.
pub(super) fn shard_path(split: &str, name: &str) -> String {
    format!("{split}/{name}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A unit of one shard and one other file, whose contents are "abc" and "xy".
    pub(in crate::pipeline) fn result() -> UnitResult {
        let shard = UnitShard {
            name: "train-000003-00.pb".into(),
            records: 1,
            bytes: 3,
            sha256: hex(&Sha256::digest("abc")),
        };
        UnitResult {
            unit: 3,
            plan: "p".into(),
            splits: vec![UnitSplit {
                name: "train".into(),
                labels: vec![0, 1],
                shards: vec![shard],
                ..UnitSplit::default()
            }],
            files: vec![UnitFile { name: "train.rows".into(), bytes: 2, sha256: hex(&Sha256::digest("xy")) }],
            reject_codes: BTreeMap::new(),
            notes: BTreeMap::new(),
            skipped: BTreeMap::new(),
            source_bytes: 0,
            text_bytes: 0,
            content: String::new(),
        }
    }

    #[test]
    fn results_round_trip_and_any_change_is_detected() {
        let bytes = result().to_bytes().unwrap();
        assert_eq!(UnitResult::from_bytes(&bytes), Some(result()));
        for at in 0..bytes.len() {
            assert_eq!(UnitResult::from_bytes(&bytes[..at]), None, "cut at {at}");
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert_eq!(UnitResult::from_bytes(&altered), None, "altered at {at}");
        }
    }
}
