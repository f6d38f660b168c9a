//! What a run is told: validated, free of the command line's types.
//!
//! *Semantic* options decide the bytes of the dataset and enter its fingerprint; *operational* ones (threads, memory,
//! paths, limits of errors) do not.

mod choice;
mod local;
mod size;
mod split;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use choice::Choice;
pub use local::check_local;
pub(crate) use local::{check_sources, is_remote};
pub use size::{MaxRejects, parse_size};
pub use split::SplitSpec;

use crate::format::Format;

impl Choice for Format {
    const WORDS: &'static [&'static str] = &["parquet", "arrow", "msgpack", "protobuf"];
}

/// Default of `--shard-bytes`: canonical bytes of the records of one shard.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// Smallest `--shard-bytes`.
pub const MIN_SHARD_BYTES: u64 = 4096;

/// Smallest `--unit-bytes`.
pub const MIN_UNIT_BYTES: u64 = 4096;

/// Default of `--memory`: bytes of everything in flight.
pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// Smallest `--memory`.
pub const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// Default of `--seed`.
pub const DEFAULT_SEED: u64 = 0;

/// Semantic options that both commands share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputOptions {
    /// How shards are encoded.
    pub format: Format,
    /// A shard is closed before its records' canonical bytes pass this.
    pub shard_bytes: u64,
    /// A shard is closed when it holds this many records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_records: Option<u64>,
    /// Source bytes of a work unit, where the default of the kind does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    /// Named parts by hash of the key; `None`: as the sources say, otherwise all in `train`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// Whether the order of the records is a keyed permutation.
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

/// One `SRC` of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// First part of the origin of every item: the last component of the path, or what stands before `=` in
    /// `LABEL=PATH`.
    pub label: String,
    /// File or folder.
    #[serde(with = "crate::stored_path")]
    pub path: PathBuf,
}

/// What to do about what is already in the output directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Refuse a directory that is not empty.
    #[default]
    Refuse,
    /// Finish the run that was interrupted there; start one if there is nothing.
    Resume(ResumeCheck),
    /// Remove the dataset that is there, then convert.
    Overwrite,
}

/// How a resumed run checks what is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResumeCheck {
    /// Sizes of all files, and the SHA-256 of all but the shards.
    #[default]
    Sizes,
    /// The SHA-256 of all files.
    Hashes,
    /// The same. Damaged files of a committed dataset are made again.
    Repair,
}

/// Operational options: they never change a byte of the dataset.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Output directory, or the address of a prefix in object storage.
    pub out: PathBuf,
    /// Where files are kept that wait to be sent to object storage; `None`: the system's directory for temporary files.
    pub scratch: Option<PathBuf>,
    /// Worker threads.
    pub threads: usize,
    /// Bytes of everything in flight.
    pub memory_bytes: u64,
    /// What to do about what is already there.
    pub existing: Existing,
    /// Rejects beyond this commit nothing.
    pub max_rejects: MaxRejects,
}

/// Number of threads when none is given: the cores this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
