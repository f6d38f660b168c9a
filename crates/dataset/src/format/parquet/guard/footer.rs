//! Validation of the footer and page index before the `parquet` crate allocates according to their contents.

use ::parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};
use crate::format::PARQUET_MAGIC as MAGIC;
use crate::format::thrift::{LIST, STRUCT, Thrift};
use crate::storage::Blob;

/// Maximum nesting depth of columns, because the crate reads the schema recursively. A list has two levels below its
/// column.
const MAX_SCHEMA_DEPTH: usize = 8;
/// Field number of the schema in the footer.
const SCHEMA: i16 = 2;
/// Field number of the child count in a schema element.
const NUM_CHILDREN: i16 = 5;

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
    walk_footer(&blob.read(start, size)?).ok_or_else(|| bad("the Parquet footer is damaged"))
}

fn walk_footer(bytes: &[u8]) -> Option<()> {
    let mut thrift = Thrift::new(bytes);
    let mut field = 0;
    while let Some(ty) = thrift.field(&mut field)? {
        match (field, ty) {
            (SCHEMA, LIST) => walk_schema(&mut thrift)?,
            (SCHEMA, _) => return None,
            _ => thrift.skip(ty)?,
        }
    }
    Some(())
}

/// Walks the schema elements, which are in depth-first order.
fn walk_schema(thrift: &mut Thrift<'_>) -> Option<()> {
    let (item, elements) = thrift.list()?;
    if item != STRUCT {
        return None;
    }
    // Remaining children of each group that is still open.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..elements {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        let mut field = 0;
        let mut children = 0;
        while let Some(ty) = thrift.field(&mut field)? {
            match field {
                NUM_CHILDREN => children = u64::try_from(thrift.number(ty)?).ok()?,
                _ => thrift.skip(ty)?,
            }
        }
        if children > elements {
            return None;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() > MAX_SCHEMA_DEPTH {
            return None;
        }
    }
    open.iter().all(|&left| left == 0).then_some(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a footer that contains only a schema, with the given child count for each element.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc, children.len() as u8 | 0x80, (children.len() >> 7) as u8];
        for &children in children {
            // The name, then the child count.
            bytes.extend([0x48, 1, b'a', 0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_schema_is_a_tree_of_limited_depth() {
        assert_eq!(walk_footer(&footer(&[2, 0, 1, 0])), Some(()));
        assert_eq!(walk_footer(&footer(&[3, 0, 1, 0])), None, "a child is missing");
        assert_eq!(walk_footer(&footer(&[60])), None);
        let deep = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert_eq!(walk_footer(&footer(&deep(MAX_SCHEMA_DEPTH))), Some(()));
        assert_eq!(walk_footer(&footer(&deep(MAX_SCHEMA_DEPTH + 1))), None);
        assert_eq!(walk_footer(&footer(&deep(3000))), None);
    }
}
