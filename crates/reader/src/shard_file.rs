//! One shard by itself, without the dataset it belongs to.

use std::path::Path;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::{self, Format, ShardReader};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Access, Blob};

use super::record::Record;

/// A shard file, opened by itself: for looking at it, not for training. Its format and schema are found out from its
/// content, there are no indexes and so no checksums, and its records come in order only.
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
    /// [`ErrorKind::Io`] when there is none, [`ErrorKind::Unsupported`] when it is none,
    /// [`ErrorKind::Corrupt`] when it is damaged.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        let path = path.as_ref();
        let blob = Blob::open(path, access, None)?;
        let format = format::sniff(&blob).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "this is no shard: not parquet, arrow, msgpack or protobuf")
                .at_path(path)
                .help("name a shard or the directory of a dataset")
        })?;
        let schema = Arc::new(format::infer_schema(format, &blob)?);
        let reader = format::open(format, Arc::clone(&schema), blob.clone())?;
        Ok(Self { blob, format, schema, reader })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.blob.path()
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.blob.len()
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its schema, as far as its content tells ([`format::infer_schema`]).
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Its records in order. An item that is an error is the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when it cannot be read at all.
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
