//! Shard formats: encoding records as shards and decoding them.
//!
//! Each format implements two small traits, [`ShardWriter`] and [`ShardReader`], in one file. The `match`es in
//! [`writer`] and [`open`] list all formats. `docs/reference/format-records.md` specifies each one byte by byte.
//!
//! Each format is a Cargo feature, enabled by default. Using a format whose feature is disabled returns
//! [`ErrorKind::Unsupported`] with the name of the feature.

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod arrow_schema;
mod check;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod columns;
#[cfg(test)]
mod examples;
#[cfg(any(feature = "msgpack", feature = "protobuf"))]
mod frames;
#[cfg(feature = "msgpack")]
mod msgpack;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
pub mod parquet_footer;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(feature = "parquet")]
mod rows;
#[cfg(any(feature = "msgpack", feature = "protobuf"))]
mod runs;
#[cfg(feature = "parquet")]
pub mod thrift;
#[cfg(feature = "parquet")]
pub mod watched;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::arrow_footer::ARROW_MAGIC;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{Record, Value};
use crate::schema::{Field, Schema};
use crate::storage::{Blob, NewFile};
#[cfg(any(feature = "msgpack", feature = "protobuf"))]
use frames::{FrameCodec, FrameReader, FrameWriter};
#[cfg(feature = "msgpack")]
use msgpack::Msgpack;
#[cfg(feature = "protobuf")]
use protobuf::Protobuf;

pub use crate::arrow_footer::flatbuffer_limits;
#[cfg(any(feature = "arrow", feature = "parquet"))]
pub use arrow_schema::number_of;
pub use check::record as check_record;

/// Bytes read from the start of a shard to find the signature of its format.
const SNIFFED_BYTES: u64 = 64;

/// First and last four bytes of a Parquet file.
pub const PARQUET_MAGIC: &[u8; 4] = b"PAR1";

/// Shard format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Parquet: readable by nearly every data tool.
    #[default]
    Parquet,
    /// Arrow IPC file: memory-mapped and read without decoding.
    Arrow,
    /// Concatenated MessagePack maps.
    Msgpack,
    /// Length-delimited protobuf messages.
    Protobuf,
}

/// How many times as fast a loader reads token ids from Arrow as from Parquet, if all decoded rows are in memory: shuffled
/// records and batches of similar length of English documents, on one thread (`benches/python/formats.py`).
const ARROW_TO_PARQUET: f64 = 1.5;

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::Parquet, Format::Arrow, Format::Msgpack, Format::Protobuf];

    /// Returns the name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
            Format::Msgpack => "msgpack",
            Format::Protobuf => "protobuf",
        }
    }

    /// Returns a format from which a loader reads token ids much faster, and about how many times as fast, or more; `None` if
    /// there is none.
    pub fn faster_for_ids(self) -> Option<(Format, f64)> {
        match self {
            Format::Parquet => Some((Format::Arrow, ARROW_TO_PARQUET)),
            Format::Arrow | Format::Msgpack | Format::Protobuf => None,
        }
    }

    /// Returns the file name extension of a shard, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Protobuf => "pb",
            other => other.name(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == s).ok_or_else(|| {
            Error::usage(format!("unknown format `{s}`"))
                .help("expected one of parquet, arrow, msgpack, protobuf")
        })
    }
}

/// Position and size of a record in its shard, as stored in the record index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// arrow and parquet: `record batch or row group << 32 | row within it`; msgpack and protobuf: byte offset of the
    /// frame.
    pub position: u64,
    /// arrow and parquet: canonical size of the record; msgpack and protobuf: size of the frame including its prefix.
    pub bytes: u64,
}

impl Placed {
    /// Creates the position of `row` in the record batch or row group `group`.
    pub fn in_group(group: u32, row: u32, bytes: u64) -> Self {
        Self { position: u64::from(group) << 32 | u64::from(row), bytes }
    }

    /// Returns the record batch or row group (arrow, parquet).
    pub fn group(self) -> u32 {
        (self.position >> 32) as u32
    }

    /// Returns the row within the record batch or row group (arrow, parquet).
    pub fn row(self) -> u32 {
        self.position as u32
    }
}

/// Appends records to one shard. The bytes written depend only on the schema and the records.
pub trait ShardWriter: Send {
    /// Appends `record` and returns its position in the shard.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the values do not fit the schema.
    fn push(&mut self, record: &Record) -> Result<Placed>;

    /// Writes buffered data and the end of the shard, then returns the file for commit.
    fn finish(self: Box<Self>) -> Result<NewFile>;
}

/// Iterator over all records of a shard in order, with their positions. Ends after the first error.
pub type Scan<'a> = Box<dyn Iterator<Item = Result<(Placed, Record)>> + 'a>;

/// Reads records of one shard. Safe to use from many threads; never panics on corrupt bytes.
///
/// Errors are [`ErrorKind::Corrupt`] with the path; callers add the shard name and row.
pub trait ShardReader: Send + Sync {
    /// Returns the record at `at`. Text, bytes and ids are views into a mapped shard where the format allows it.
    fn get(&self, at: Placed) -> Result<Record>;

    /// Returns the records at `at` in the given order, which may be any order and contain repeats. Decodes each row
    /// group once.
    fn get_many(&self, at: &[Placed]) -> Result<Vec<Record>> {
        at.iter().map(|&at| self.get(at)).collect()
    }

    /// Returns whether values can be borrowed with [`ShardReader::lend`].
    fn can_lend(&self) -> bool {
        false
    }

    /// Appends the values of the records at `at` to `values`, one record after another, borrowed from a shard in
    /// memory. Returns false if they cannot be borrowed for any reason; [`ShardReader::get_many`] then returns the
    /// records or the error.
    ///
    /// This is for callers that only inspect values: an owned view per value would update a reference count that all
    /// threads share.
    fn lend<'a>(&'a self, at: &[Placed], values: &mut Vec<Value<&'a [u8]>>) -> bool {
        let _ = (at, values);
        false
    }

    /// Like [`ShardReader::get_many`], but only the fields `columns` (ascending schema indices) are needed. Formats
    /// that would otherwise have to decode the other fields return them as null.
    fn get_columns(&self, at: &[Placed], columns: &[usize]) -> Result<Vec<Record>> {
        let _ = columns;
        self.get_many(at)
    }

    /// Iterates over all records in order with their positions, without the index.
    fn scan(&self) -> Result<Scan<'_>>;
}

/// Creates a writer of `format` that writes records of `schema` to `file`.
///
/// # Errors
///
/// Fails if the format cannot represent the schema.
pub fn writer(format: Format, schema: Arc<Schema>, file: NewFile) -> Result<Box<dyn ShardWriter>> {
    check_types(format, &schema)?;
    Ok(match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(parquet::Writer::new(schema, file)?),
        #[cfg(feature = "arrow")]
        Format::Arrow => Box::new(arrow::Writer::new(schema, file)?),
        #[cfg(feature = "msgpack")]
        Format::Msgpack => Box::new(FrameWriter::<Msgpack>::new(schema, file)?),
        #[cfg(feature = "protobuf")]
        Format::Protobuf => Box::new(FrameWriter::<Protobuf>::new(schema, file)?),
        #[cfg(not(all(feature = "arrow", feature = "msgpack", feature = "parquet", feature = "protobuf")))]
        left_out => return Err(no_feature(left_out)),
    })
}

/// Opens the shard `blob`, which has `format` and holds records of `schema`.
pub fn open(format: Format, schema: Arc<Schema>, blob: Blob) -> Result<Box<dyn ShardReader>> {
    check_types(format, &schema).map_err(|e| Error::corrupt(e.to_string()).at_path(blob.path()))?;
    Ok(match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(parquet::Reader::new(schema, blob)?),
        #[cfg(feature = "arrow")]
        Format::Arrow => Box::new(arrow::Reader::new(schema, blob)?),
        #[cfg(feature = "msgpack")]
        Format::Msgpack => Box::new(FrameReader::<Msgpack>::new(schema, blob)?),
        #[cfg(feature = "protobuf")]
        Format::Protobuf => Box::new(FrameReader::<Protobuf>::new(schema, blob)?),
        #[cfg(not(all(feature = "arrow", feature = "msgpack", feature = "parquet", feature = "protobuf")))]
        left_out => return Err(no_feature(left_out)),
    })
}

/// Detects the format of a shard from its content. Empty msgpack and protobuf shards cannot be detected.
pub fn sniff(blob: &Blob) -> Option<Format> {
    let head = blob.read(0, blob.len().min(SNIFFED_BYTES)).ok()?;
    // Formats without a signature can be detected only if their feature is enabled.
    if head.starts_with(PARQUET_MAGIC) {
        return Some(Format::Parquet);
    }
    if head.starts_with(ARROW_MAGIC) {
        return Some(Format::Arrow);
    }
    #[cfg(feature = "msgpack")]
    if msgpack::sniff(&head) {
        return Some(Format::Msgpack);
    }
    #[cfg(feature = "protobuf")]
    if protobuf::sniff(blob) {
        return Some(Format::Protobuf);
    }
    None
}

/// Infers the schema from a shard alone. msgpack and protobuf records lack some information: class names and, in
/// msgpack, JSON and images that are not called `image`. `docs/reference/format-records.md` describes what is inferred
/// instead.
pub fn infer_schema(format: Format, blob: &Blob) -> Result<Schema> {
    match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::infer_schema(blob),
        #[cfg(feature = "arrow")]
        Format::Arrow => arrow::infer_schema(blob),
        #[cfg(feature = "msgpack")]
        Format::Msgpack => msgpack::infer_schema(blob),
        #[cfg(feature = "protobuf")]
        Format::Protobuf => protobuf::infer_schema(blob),
        #[cfg(not(all(feature = "arrow", feature = "msgpack", feature = "parquet", feature = "protobuf")))]
        left_out => Err(no_feature(left_out)),
    }
}

/// Checks that this build supports `format`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`], naming the feature to enable.
pub fn check_built(format: Format) -> Result<()> {
    let built = match format {
        Format::Parquet => cfg!(feature = "parquet"),
        Format::Arrow => cfg!(feature = "arrow"),
        Format::Msgpack => cfg!(feature = "msgpack"),
        Format::Protobuf => cfg!(feature = "protobuf"),
    };
    if built { Ok(()) } else { Err(no_feature(format)) }
}

/// Checks that `format` can represent records of `schema`.
///
/// # Errors
///
/// Returns an error if the format reserves the name of a field, or cannot hold its type.
pub fn check_schema(format: Format, schema: &Arc<Schema>) -> Result<()> {
    check_types(format, schema)?;
    match format {
        #[cfg(feature = "msgpack")]
        Format::Msgpack => Msgpack::new(Arc::clone(schema)).map(drop),
        #[cfg(feature = "protobuf")]
        Format::Protobuf => Protobuf::new(Arc::clone(schema)).map(drop),
        // The library represents every schema.
        Format::Parquet | Format::Arrow => Ok(()),
        #[cfg(not(all(feature = "msgpack", feature = "protobuf")))]
        left_out => check_built(left_out),
    }
}

/// Refuses a schema with a type that `format` cannot hold.
fn check_types(format: Format, schema: &Schema) -> Result<()> {
    let has_columns = match format {
        Format::Parquet | Format::Arrow => true,
        Format::Msgpack | Format::Protobuf => false,
    };
    match schema.fields.iter().find(|field| field.ty.is_columnar() && !has_columns) {
        None => Ok(()),
        Some(Field { name, ty, .. }) => {
            let what = format!("{format} records cannot hold field {name:?} of type {}", ty.name());
            Err(Error::usage(what).help("choose the format arrow or parquet"))
        }
    }
}

fn no_feature(format: Format) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this program was built without the `{format}` feature of dsconvert-reader"),
    )
    .help("add the feature to Cargo.toml")
}
