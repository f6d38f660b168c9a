//! Reader of token lists: ids and flags, which make up nearly all the bytes of a text dataset.
//!
//! A record holds ids of 16 bits and flags of 8 bits, but Parquet stores both as 32-bit numbers with two levels each. The
//! `parquet` crate decodes all of these, one by one. Here, levels are counted in runs, and a page becomes one buffer of
//! narrow numbers, which its records share.

use std::ops::Range;

use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::page_index::offset_index::PageLocation;
use bytes::Bytes;

use super::guard::{self, PageChecker, levels};
use crate::error::{Error, Result};
use crate::sample::{Ids, Value};
use crate::schema::FieldType;
use crate::storage::Blob;

/// Width of a stored number in bytes.
const STORED_BYTES: usize = 4;

/// Values of one list column in the selected rows of a row group, in order.
pub(super) struct Lists<'a> {
    ty: FieldType,
    checker: PageChecker<'a>,
    locations: &'a [PageLocation],
    /// Rows of the row group.
    total: usize,
    /// Numbers of the pages that are still to be read.
    pages: std::vec::IntoIter<usize>,
    /// Values of the current page.
    values: std::vec::IntoIter<Value>,
    content: guard::Decompressed,
}

impl<'a> Lists<'a> {
    /// Reads the values of `ty` in leaf `leaf` of row group `group`, which has passed [`guard::check_footer`]. `ranges`
    /// (`None` for all rows) are those of [`guard::ranges`]: they do not split pages.
    pub(super) fn new(
        ty: FieldType,
        blob: &'a Blob,
        file: &'a ParquetMetaData,
        (group, leaf): (usize, usize),
        ranges: Option<&[Range<usize>]>,
    ) -> Option<Self> {
        let row_group = file.row_groups().get(group)?;
        let total = usize::try_from(row_group.num_rows()).ok()?;
        let checker = PageChecker { blob, column: row_group.columns().get(leaf)? };
        let locations = file.page_index()?.offset_index(group, leaf)?.page_locations();
        let pages: Vec<usize> = match ranges {
            None => (0..locations.len()).collect(),
            Some(ranges) => ranges.iter().flat_map(|rows| guard::pages_of(locations, rows)).collect(),
        };
        let (pages, values) = (pages.into_iter(), Vec::new().into_iter());
        Some(Self { ty, checker, locations, total, pages, values, content: guard::Decompressed::default() })
    }

    /// Returns the value of the next row.
    pub(super) fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(value) = self.values.next() {
                return Ok(value);
            }
            let Some(page) = self.pages.next() else {
                return Err(Error::corrupt("a list column has fewer rows than others"));
            };
            self.values = self.page(page)?.into_iter();
        }
    }

    /// Returns the values of page `number`.
    fn page(&mut self, number: usize) -> Result<Vec<Value>> {
        let Self { ty, checker, locations, total, content, .. } = self;
        let Some(location) = locations.get(number) else { return Ok(Vec::new()) };
        let rows = guard::rows_of(locations, number, *total).len();
        let header = checker.check_data(location, rows as u64, false)?;
        let mut rest = content.of(checker, location, &header)?;
        let present = u8::try_from(checker.column.column_descr().max_def_level()).unwrap_or_default();
        let values = row_lengths(&mut rest, header.values as usize, rows, present).and_then(|lengths| {
            let width = ty.item_bytes()?;
            let items = match header.encoding {
                guard::PLAIN => narrow_plain(rest, width)?,
                _ => narrow_streams(rest, width)?,
            };
            split(*ty, &Bytes::from(items), width, &lengths)
        });
        values.ok_or_else(|| checker.damaged(location.offset.cast_unsigned()))
    }
}

/// Takes the levels from the start of a page and returns the number of items in each of its `rows` rows, `None` for a null
/// list. `present` is the definition level of an item.
fn row_lengths(page: &mut &[u8], count: usize, rows: usize, present: u8) -> Option<Vec<Option<usize>>> {
    let mut lengths: Vec<Option<usize>> = Vec::with_capacity(rows);
    levels::runs(levels::take(page)?, count as u64, 1, |level, count| {
        match level {
            0 if count <= rows - lengths.len() => lengths.resize(lengths.len() + count, Some(1)),
            1 => *lengths.last_mut()?.as_mut()? += count,
            _ => return None,
        }
        Some(())
    })?;
    if lengths.len() != rows {
        return None;
    }
    // The current row, and how many of its levels were seen.
    let (mut row, mut seen) = (0, 0);
    levels::runs(levels::take(page)?, count as u64, present, |level, mut count| {
        while count > 0 {
            let length = lengths.get_mut(row)?;
            let step = (length.unwrap_or(1) - seen).min(count);
            if level != present {
                // An item cannot be null. Items are declared nullable, so an empty list is two levels below them.
                *length = match (present.checked_sub(level)?, *length) {
                    (2, Some(1)) => Some(0),
                    (3, Some(1)) => None,
                    _ => return None,
                };
            }
            (seen, count) = (seen + step, count - step);
            if seen == length.unwrap_or(1).max(1) {
                (row, seen) = (row + 1, 0);
            }
        }
        Some(())
    })?;
    Some(lengths)
}

/// Returns numbers that are stored one after the other as `width` bytes each; `None` if one does not fit.
fn narrow_plain(stored: &[u8], width: usize) -> Option<Vec<u8>> {
    let (numbers, rest) = stored.as_chunks::<STORED_BYTES>();
    let fits = rest.is_empty() && numbers.iter().all(|number| number[width..].iter().all(|&byte| byte == 0));
    fits.then(|| numbers.iter().flat_map(|number| &number[..width]).copied().collect())
}

/// Returns numbers that are stored as all first bytes, then all second bytes and so on, as `width` bytes each; `None` if one
/// does not fit.
fn narrow_streams(stored: &[u8], width: usize) -> Option<Vec<u8>> {
    let count = stored.len() / STORED_BYTES;
    let (low, high) = stored.split_at_checked(width * count)?;
    // Without a branch per number.
    if !stored.len().is_multiple_of(STORED_BYTES) || high.iter().fold(0, |any, byte| any | byte) != 0 {
        return None;
    }
    let mut items = vec![0; low.len()];
    match width {
        1 => items.copy_from_slice(low),
        2 => {
            let (first, second) = low.split_at(count);
            for ((item, first), second) in items.as_chunks_mut::<2>().0.iter_mut().zip(first).zip(second) {
                *item = [*first, *second];
            }
        }
        _ => {
            let (low, high) = low.split_at(2 * count);
            let ((a, b), (c, d)) = (low.split_at(count), high.split_at(count));
            let low = a.iter().zip(b).map(|(a, b)| u32::from(*a) | u32::from(*b) << 8);
            let high = c.iter().zip(d).map(|(c, d)| u32::from(*c) << 16 | u32::from(*d) << 24);
            for ((item, low), high) in items.as_chunks_mut::<4>().0.iter_mut().zip(low).zip(high) {
                *item = (low | high).to_le_bytes();
            }
        }
    }
    Some(items)
}

/// Splits the items of a page into the values of its rows; `None` if there are more or fewer items.
fn split(ty: FieldType, items: &Bytes, width: usize, lengths: &[Option<usize>]) -> Option<Vec<Value>> {
    let mut at = 0;
    let mut values = Vec::with_capacity(lengths.len());
    for length in lengths {
        let Some(length) = length else {
            values.push(Value::Null);
            continue;
        };
        let end = at + length * width;
        let value = (end <= items.len()).then(|| items.slice(at..end))?;
        at = end;
        values.push(match ty.id_width() {
            Some(width) => Value::Ids(Ids::new(width, value)?),
            None => Value::Bytes(value),
        });
    }
    (at == items.len()).then_some(values)
}
