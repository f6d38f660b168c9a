//! Options of a run, validated and independent of the command line's types.
//!
//! *Semantic* options determine the bytes of the dataset and are part of its fingerprint. *Operational* options
//! (threads, memory, paths, error limits) affect neither.

mod definition;
mod split;
mod split_words;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::storage::check_local;
pub use definition::{Choice, Defined, Definition, Extra, Form, Input, OptionValue, Plain, Size};
pub(crate) use definition::{
    as_text, form_of, group_default, is_default, not_a_value, option_values, options, serde_as_text,
    word_choice, word_values,
};
pub use dsconvert_dataset::size::{Decimal, MaxRejects, parse_size};
pub use dsconvert_writer::layout::{Existing, ResumeCheck};
pub use split::SplitSpec;
pub use split_words::split_named;
pub(crate) use split_words::{Affix, SplitName, split_affixes};

use crate::error::{Error, Result};
use crate::format::Format;
use crate::storage::ObjectUrl;

impl Choice for Format {
    const WORDS: &'static [&'static str] = &["parquet", "arrow", "msgpack", "protobuf"];
}

/// Default of `--shard-bytes`: canonical size of the records in one shard, in bytes.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// Minimum of `--shard-bytes`.
pub const MIN_SHARD_BYTES: u64 = 4096;

/// Minimum of `--unit-bytes`.
pub const MIN_UNIT_BYTES: u64 = 4096;

/// Default of `--memory` for up to 32 threads.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Default of `--memory` per thread, for more threads.
const DEFAULT_MEMORY_PER_THREAD: u64 = 32 << 20;
/// Maximum number of threads: each takes memory for its stack and for a task.
pub const MAX_THREADS: usize = 1024;

/// Minimum of `--memory`.
pub const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// Default of `--seed`.
pub const DEFAULT_SEED: u64 = 0;

option_values! { Text: SplitSpec; }

options! {
    /// Semantic options shared by both commands.
    pub struct OutputOptions {
        "Output" {
            /// Format of the shards
            [] format: Format = Format::default(), "FORMAT", short = Some('f');

            /// Maximum size of the records in one shard, before encoding
            [] shard_bytes: u64 as Size<MIN_SHARD_BYTES> = DEFAULT_SHARD_BYTES, "SIZE";

            /// Maximum number of records in one shard
            [serde(skip_serializing_if = "Option::is_none")]
            shard_records: Option<u64> = None, "N";

            /// Source bytes per work unit [default: 2GiB of images, 256MiB of text]
            ///
            /// An interrupted run loses at most the units in progress. Shards never span units.
            [serde(skip_serializing_if = "Option::is_none")]
            unit_bytes: Option<u64> as Size<MIN_UNIT_BYTES> = None, "SIZE";

            /// Divide the records into splits, such as train=0.9,validation=0.1
            ///
            /// The split of a record depends only on the hash of its key, so adding files never moves existing records. As in
            /// names of folders, val is the split validation.
            [serde(skip_serializing_if = "Option::is_none")]
            split: Option<SplitSpec> = None, "SPLITS";

            /// Store the records in a random order that depends on --seed
            [] shuffle: bool = false, "";

            /// Seed for --shuffle and for the hash of --split
            [] seed: u64 = DEFAULT_SEED, "N";
        }
        groups {}
        values {}
    }
}

impl OutputOptions {
    /// Returns the defaults of text. A random read of an Arrow shard decodes nothing, while a read of a compressed format
    /// decodes the documents around it.
    pub(crate) fn of_text() -> Self {
        Self { format: Format::Arrow, ..Self::default() }
    }

    /// Refuses values without a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        match self.shard_records {
            Some(0) => Err(Error::usage("`shard_records 0`: a shard holds at least one record")),
            _ => Ok(()),
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

/// Returns an error if a source is a URL of an unsupported store.
pub(crate) fn check_sources(sources: &[SourceSpec]) -> Result<()> {
    sources
        .iter()
        .try_for_each(|source| ObjectUrl::parse(&source.path).map(drop).map_err(|e| e.of_option("source")))
}

/// Returns whether any source is in object storage.
pub(crate) fn is_remote(sources: &[SourceSpec]) -> bool {
    sources.iter().any(|source| ObjectUrl::is_url(&source.path))
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

#[cfg(test)]
impl RunOptions {
    pub(crate) fn for_test(out: &std::path::Path, threads: usize) -> Self {
        Self {
            out: out.to_owned(),
            scratch: None,
            threads,
            memory_bytes: 1 << 28,
            existing: Existing::Refuse,
            max_rejects: "100%".parse().unwrap(),
        }
    }
}

/// Returns the default of `--memory`, total bytes in flight, for `threads` threads. With less per thread, the buffers of
/// common photographs would not be kept, and threads would wait for memory.
pub fn default_memory_bytes(threads: usize) -> u64 {
    DEFAULT_MEMORY_BYTES.max(DEFAULT_MEMORY_PER_THREAD * threads as u64)
}

/// Returns the default number of threads: the cores that this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
