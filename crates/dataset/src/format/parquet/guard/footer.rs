//! Validation of the footer and page index before the `parquet` crate allocates according to their contents.

use ::parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};
use crate::format::PARQUET_MAGIC as MAGIC;
use crate::format::parquet_footer::is_sound;
use crate::format::thrift::{STRUCT, Thrift};
use crate::storage::Blob;

/// Maximum number of levels of a column. A list has two levels below its column.
const MAX_SCHEMA_DEPTH: usize = 8;

/// Checks the end of the file and the structure of the footer.
pub(in crate::format::parquet) fn check_footer_bytes(blob: &Blob) -> Result<()> {
    let bad = |why: &str| Error::corrupt(why).at_path(blob.path());
    let tail_bytes = 4 + MAGIC.len() as u64;
    let Some(end) = blob.len().checked_sub(tail_bytes).filter(|&end| end >= MAGIC.len() as u64) else {
        return Err(bad("the file is too short for a Parquet file"));
    };
    let tail = blob.read(end, tail_bytes)?;
    let Some((size, magic)) = tail.split_first_chunk::<4>() else { return Err(bad("the file is truncated")) };
    if magic != MAGIC || blob.read(0, MAGIC.len() as u64)? != MAGIC.as_slice() {
        return Err(bad("the file is not a Parquet file, or it is truncated"));
    }
    let size = u64::from(u32::from_le_bytes(*size));
    let start = end.checked_sub(size).filter(|&start| start >= MAGIC.len() as u64);
    let start = start.ok_or_else(|| bad("the Parquet footer is longer than the file"))?;
    match is_sound(&blob.read(start, size)?, MAX_SCHEMA_DEPTH) {
        true => Ok(()),
        false => Err(bad("the Parquet footer is damaged")),
    }
}

/// Checks that every column of `file` has a well-formed offset index inside the file.
pub(in crate::format::parquet) fn check_page_index(blob: &Blob, file: &ParquetMetaData) -> Result<()> {
    for (number, group) in file.row_groups().iter().enumerate() {
        for column in group.columns() {
            let sound = match column.offset_index_range() {
                Some(range) if range.end <= blob.len() && range.start < range.end => {
                    let bytes = blob.read(range.start, range.end - range.start)?;
                    Thrift::new(&bytes).skip(STRUCT).is_some()
                }
                _ => false,
            };
            if !sound {
                let what =
                    format!("row group {number}: the page index of {} is damaged", column.column_path());
                return Err(Error::corrupt(what).at_path(blob.path()));
            }
        }
    }
    Ok(())
}
