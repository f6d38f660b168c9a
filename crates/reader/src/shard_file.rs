//! Opens a single shard without its dataset.

use std::path::Path;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::{self, Format, ShardReader};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Access, Blob};

use super::record::Record;

/// A shard file opened on its own, for inspection, not for training. Its format and schema are inferred from its
/// content. There are no indexes and therefore no checksums, and records can only be read in order.
pub struct ShardFile {
    blob: Blob,
    format: Format,
    schema: Arc<Schema>,
    reader: Box<dyn ShardReader>,
}

impl ShardFile {
    /// Opens the shard at `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when there is no such file, [`ErrorKind::Unsupported`] when it is not a shard,
    /// [`ErrorKind::Corrupt`] when it is damaged.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        let path = path.as_ref();
        let blob = Blob::open(path, access, None)?;
        let format = format::sniff(&blob).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this is not a parquet, arrow, msgpack or protobuf shard")
                .at_path(path)
                .help("pass a shard or the directory of a dataset")
        })?;
        let schema = Arc::new(format::infer_schema(format, &blob)?);
        let reader = format::open(format, Arc::clone(&schema), blob.clone())?;
        Ok(Self { blob, format, schema, reader })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.blob.path()
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.blob.len()
    }

    /// Returns the format of the shard.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the schema, as far as it can be inferred from the content ([`format::infer_schema`]).
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the records in order. The iterator ends after the first error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when the shard cannot be read at all.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record>> + '_> {
        let records = (0..).zip(self.reader.scan()?);
        Ok(records.map(|(row, next)| match next {
            Ok((_, values)) => Ok(Record::new(Arc::clone(&self.schema), row, values.values)),
            Err(e) => Err(e.at_row(row)),
        }))
    }
}

impl std::fmt::Debug for ShardFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardFile")
            .field("path", &self.path())
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
