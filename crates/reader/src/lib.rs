//! Reads dsconvert datasets in training loops.
//!
//! # Quick start
//!
//! ```toml
//! [dependencies]
//! dsconvert-reader = { version = "0.1", default-features = false, features = ["msgpack"] }
//! ```
//!
//! Each format is a feature (`arrow`, `msgpack`, `parquet`, `protobuf`; all on by default), and so is decoding of
//! images (`decode`, off by default). A dataset whose format is disabled is refused when it is opened. [`loader`]
//! provides batches, prefetch threads and exact resume; `examples/training-loop` in the repository is a complete
//! program.
//!
//! # Records
//!
//! A [`Dataset`] is opened once; its [`Split`]s are cheap handles that any number of threads can read from. A record is
//! located by one lookup in the record index, read in place, and compared with its checksum before it is returned. An
//! altered file causes an error that names the shard and the row; it never yields a wrong record.
//!
//! ```
//! # mod testing { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs")); }
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! # testing::write(path, dsconvert_dataset::format::Format::Msgpack, dsconvert_dataset::schema::Kind::Text, &[&[4, 3]])?;
//! use dsconvert_reader::Dataset;
//!
//! let dataset = Dataset::open(path)?;
//! let train = dataset.split("train")?;
//! let first = train.get(0)?;
//! let ids: Vec<u32> = first.input_ids().map(|ids| ids.iter().collect()).unwrap_or_default();
//! println!("{} has {} tokens: {ids:?}", first.key().unwrap_or_default(), train.length(0)?);
//!
//! // Many at once, in any order: each shard and row group is visited once.
//! let batch = train.get_many(&[5, 0, 5])?;
//! assert_eq!(batch[0], batch[2]);
//!
//! // All in order.
//! for record in train.iter() {
//!     let record = record?;
//!     assert!(record.get("origin").is_some());
//! }
//!
//! // The shortest record, and all records of 2 to 5 tokens.
//! let shortest = train.by_length(0)?;
//! for record in train.bucket(2..6)? {
//!     assert!(train.length(record?)? >= train.length(shortest)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/reference/reader.md` in the repository is the reference. This crate needs none of the tokenizer or command
//! line dependencies.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub use dsconvert_dataset::{error, format, index, manifest, packing, sample, schema, storage};

pub mod batch;
mod companions;
mod concatenated;
mod dataset;
mod dataset_state;
#[cfg(feature = "decode")]
pub mod decode;
mod describe;
mod iter;
mod lend;
mod lengths;
pub mod loader;
mod measured;
mod mixture;
mod open_options;
mod range;
mod recent;
mod record;
mod shards;
mod source;
mod split;
mod split_mix;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verify;

pub use companions::{AddedField, bound_split};
pub use concatenated::{ClassNames, Concatenated};
pub use dataset::Dataset;
pub use describe::{
    DatasetDescription, Description, HistogramBucket, MAX_HISTOGRAM_BUCKETS, ShardDescription,
    SplitDescription, TrainedSummary, describe,
};
pub use iter::Records;
pub use measured::Measured;
pub use mixture::{
    Delivered, Exhausted, MAX_SOURCES, Mix, Mixture, MixtureEpoch, MixtureOptions, MixturePrediction,
    MixtureRecords, MixtureUnit, OnChange, SourcePrediction, Weights,
};
pub use open_options::{DEFAULT_MAPPED_SHARDS, DEFAULT_OPEN_SHARDS, DEFAULT_READ_AHEAD_BYTES, OpenOptions};
pub use record::{ReadIds, Record};
pub use shards::ShardFile;
pub use source::{RecordProperties, RecordSource};
pub use split::Split;
pub use verify::{DEFAULT_MAX_PROBLEMS, DecodeFn, VerifyOptions, VerifyProgress, VerifyReport, verify};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
