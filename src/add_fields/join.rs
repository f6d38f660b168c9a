//! The rows of a table in the order of the records of a dataset: two external sorts, so that memory depends on neither.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dsconvert_writer::SORT_BYTES;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::columns::CommonShape;
use super::rows::TableRows;
use super::{AddOptions, Missing, Pieces, check_stop};
use crate::error::{Error, Result};
use crate::index::sort::{ExternalSort, Sorted};
use crate::numbers::plural;
use crate::pipeline::Stop;
use crate::pipeline::shuffle::record_bytes::{decode_values, encode_values};
use crate::reader::{Dataset, Split};
use crate::sample::Value;
use crate::schema::{Field, KEY};
use crate::storage::unlinked_file;

/// Size of a sort row: hash of the key, whether it is a record, then the split and the ordinal of a record, or the row and the
/// offset of its values. Big-endian, so that the row of a key precedes its records.
const KEY_ROW_BYTES: usize = 16 + 1 + 8 + 8;
/// Size of a sort row: split, ordinal, and the offset of the values.
const RECORD_ROW_BYTES: usize = 8 + 8 + 8;
/// Offset of the values of a record without a row.
const NO_ROW: u64 = u64::MAX;
/// Bytes of the length before the values of a row.
const LENGTH_BYTES: u64 = 8;
/// Rows between two checks for a request to stop.
pub(super) const CHECKED_ROWS: u64 = 4096;
/// Number of keys that a message shows.
const SHOWN_KEYS: usize = 3;

/// The values of all rows, in the order of the table.
struct StoredRows {
    file: BufWriter<File>,
    dir: PathBuf,
    end: u64,
}

impl StoredRows {
    fn create(dir: &Path) -> Result<Self> {
        let file = unlinked_file(dir).map_err(|e| Error::io("create a temporary file in", dir, e))?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), dir: dir.to_owned(), end: 0 })
    }

    /// Appends the bytes of a row, and returns their offset.
    fn push(&mut self, bytes: &[u8]) -> Result<u64> {
        let length = bytes.len() as u64;
        let written = self.file.write_all(&length.to_le_bytes()).and_then(|()| self.file.write_all(bytes));
        written.map_err(|e| Error::io("write to a temporary file in", &self.dir, e))?;
        let offset = self.end;
        self.end += LENGTH_BYTES + length;
        Ok(offset)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| Error::io("write to a temporary file in", &self.dir, e))
    }

    /// Returns the key and the values of the row at `offset`.
    fn get(&self, offset: u64) -> Result<(String, Vec<Value>)> {
        let fail = |e| Error::io("read a temporary file in", &self.dir, e);
        let mut length = [0; LENGTH_BYTES as usize];
        self.file.get_ref().read_exact_at(&mut length, offset).map_err(fail)?;
        let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
        self.file.get_ref().read_exact_at(&mut bytes, offset + LENGTH_BYTES).map_err(fail)?;
        let mut values = decode_values(Bytes::from(bytes)).unwrap_or_default().into_iter();
        match values.next() {
            Some(Value::Text(key)) => Ok((key.as_str().to_owned(), values.collect())),
            _ => Err(Error::internal("a temporary file has changed").at_path(&self.dir)),
        }
    }
}

/// The rows of a table that belong to the records of a dataset.
pub(super) struct Join {
    rows: TableRows,
    /// The fields of the values.
    pub(super) fields: Vec<Field>,
    stored: StoredRows,
    in_order: Sorted<RECORD_ROW_BYTES>,
    pieces: Option<Pieces>,
    /// XXH3-128 of all rows: `xxh3-128:` and 32 hexadecimal digits.
    pub(super) content: String,
    /// Number of rows.
    pub(super) table_rows: u64,
    /// Number of records without a row.
    pub(super) missing: u64,
    /// Number of rows whose key no record has.
    pub(super) surplus: u64,
}

impl Join {
    /// Joins `rows` with the records of `base` by key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if two rows have the same key, or a record has no row and `options` do not
    /// permit that.
    pub(super) fn of(
        base: &Dataset,
        rows: TableRows,
        options: &AddOptions,
        scratch: Option<&Path>,
        stop: &Stop,
    ) -> Result<Self> {
        let scratch = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
        let mut stored = StoredRows::create(&scratch)?;
        let mut keys = ExternalSort::<KEY_ROW_BYTES>::new(&scratch, SORT_BYTES);
        let (mut content, mut table_rows, mut encoded) = (Xxh3::new(), 0, Vec::new());
        let mut fields: Vec<Field> = rows.fields().to_vec();
        let mut has_null = vec![false; fields.len()];
        let mut shapes: Vec<CommonShape> = fields.iter().map(|_| CommonShape::default()).collect();
        rows.for_each(&mut |row, key, values| {
            if row % CHECKED_ROWS == 0 {
                check_stop(stop)?;
            }
            has_null.iter_mut().zip(&values).for_each(|(any, value)| *any |= *value == Value::Null);
            shapes.iter_mut().zip(&values).for_each(|(shape, value)| shape.add(value));
            encoded.clear();
            encode_values(&[Value::Text(key.into())], &mut encoded);
            encode_values(&values, &mut encoded);
            content.update(&encoded);
            table_rows += 1;
            keys.push(key_row(xxh3_128(key.as_bytes()), false, row, stored.push(&encoded)?))
        })?;
        stored.flush()?;
        for (at, split) in base.unverified().splits().enumerate() {
            for (ordinal, key) in (0..).zip(keys_of(&split, 0..split.len())?) {
                if ordinal % CHECKED_ROWS == 0 {
                    check_stop(stop)?;
                }
                let key = key?;
                let hash = xxh3_128(looked_up(options.pieces, &key).as_bytes());
                keys.push(key_row(hash, true, at as u64, ordinal))?;
            }
        }
        let (mut in_order, mut missing, mut surplus) =
            (ExternalSort::<RECORD_ROW_BYTES>::new(&scratch, SORT_BYTES), 0, 0);
        let (mut without, mut unused): (Vec<(u64, u64)>, Vec<u64>) = (Vec::new(), Vec::new());
        // The row of the current key, and whether a record has it.
        let mut current: Option<(u128, u64, u64, bool)> = None;
        let mut end_key = |ended: Option<(u128, u64, u64, bool)>| {
            if let Some((_, _, offset, false)) = ended {
                surplus += 1;
                if unused.len() < SHOWN_KEYS {
                    unused.push(offset);
                }
            }
        };
        for entry in keys.finish()? {
            let (hash, is_record, first, second) = of_key_row(&entry?);
            if current.is_some_and(|(of_row, ..)| of_row != hash) {
                end_key(current.take());
            }
            match (is_record, &mut current) {
                (false, None) => current = Some((hash, first, second, false)),
                (false, Some((_, row, offset, _))) => {
                    let ((key, _), (other, _)) = (stored.get(*offset)?, stored.get(second)?);
                    return Err(repeated(&rows, (&key, *row), (&other, first)));
                }
                (true, None) => {
                    missing += 1;
                    if without.len() < SHOWN_KEYS {
                        without.push((first, second));
                    }
                    in_order.push(record_row(first, second, NO_ROW))?;
                }
                (true, Some((_, _, offset, is_used))) => {
                    *is_used = true;
                    in_order.push(record_row(first, second, *offset))?;
                }
            }
        }
        end_key(current);
        if missing > 0 && options.missing == Missing::Error {
            return Err(without_row(base, &rows, &stored, missing, &without, &unused)?);
        }
        let has_fixed_lists = rows.may_have_fixed_lists();
        for ((field, has_null), shape) in fields.iter_mut().zip(has_null).zip(shapes) {
            field.nullable = has_null || missing > 0;
            let is_per = options.bound.get(&field.name).is_some_and(|bound| bound.per.is_some());
            if has_fixed_lists && !is_per {
                field.ty = shape.fix(field.ty);
            }
        }
        let content = format!("xxh3-128:{:032x}", content.digest128());
        let (in_order, pieces) = (in_order.finish()?, options.pieces);
        Ok(Self { rows, fields, stored, in_order, pieces, content, table_rows, missing, surplus })
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &TableRows {
        &self.rows
    }

    /// Returns the mean size of the values of a row, in bytes.
    pub(super) fn mean_bytes(&self) -> u64 {
        self.stored.end / self.table_rows.max(1)
    }

    /// Skips the next record.
    pub(super) fn skip(&mut self) -> Result<()> {
        self.in_order.next().transpose().map(drop)
    }

    /// Returns the values of the next record, which has `key`.
    pub(super) fn next(&mut self, key: &str) -> Result<Vec<Value>> {
        let entry = self.in_order.next().ok_or_else(|| Error::internal("a record was not joined"))??;
        let offset = number(&entry, 16);
        if offset == NO_ROW {
            return Ok(self.fields.iter().map(|_| Value::Null).collect());
        }
        let (found, values) = self.stored.get(offset)?;
        match found == looked_up(self.pieces, key) {
            true => Ok(values),
            false => Err(Error::internal(format!("the keys {found:?} and {key:?} have the same hash"))),
        }
    }
}

/// Returns the keys of the records of `split` with the ordinals `records`.
pub(super) fn keys_of(
    split: &Split,
    records: std::ops::Range<u64>,
) -> Result<impl Iterator<Item = Result<String>>> {
    let keys = split.select(&[KEY])?.iter_range(records)?;
    let lacks_key = || Error::corrupt("the record has no key");
    Ok(keys.map(move |record| Ok(record?.key().ok_or_else(lacks_key)?.to_owned())))
}

/// Returns the key that the table has for the record with `key`.
fn looked_up(pieces: Option<Pieces>, key: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (pieces, key.rsplit_once('@')) {
        (Some(Pieces::Document), Some((document, start))) if is_number(start) => document,
        _ => key,
    }
}

fn key_row(hash: u128, is_record: bool, first: u64, second: u64) -> [u8; KEY_ROW_BYTES] {
    let mut row = [0; KEY_ROW_BYTES];
    row[..16].copy_from_slice(&hash.to_be_bytes());
    row[16] = u8::from(is_record);
    row[17..25].copy_from_slice(&first.to_be_bytes());
    row[25..].copy_from_slice(&second.to_be_bytes());
    row
}

fn of_key_row(row: &[u8; KEY_ROW_BYTES]) -> (u128, bool, u64, u64) {
    let hash = u128::from_be_bytes(std::array::from_fn(|i| row[i]));
    (hash, row[16] != 0, number(row, 17), number(row, 25))
}

fn record_row(split: u64, ordinal: u64, offset: u64) -> [u8; RECORD_ROW_BYTES] {
    let mut row = [0; RECORD_ROW_BYTES];
    row[..8].copy_from_slice(&split.to_be_bytes());
    row[8..16].copy_from_slice(&ordinal.to_be_bytes());
    row[16..].copy_from_slice(&offset.to_be_bytes());
    row
}

fn number<const N: usize>(row: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| row.get(at + i).copied().unwrap_or_default()))
}

fn repeated(rows: &TableRows, (key, row): (&str, u64), (other, other_row): (&str, u64)) -> Error {
    match key == other {
        true => Error::usage(format!("rows {row} and {other_row} of the table have the same key {key:?}"))
            .at_path(rows.path())
            .of_option("on")
            .help("a key names one record: keep one of these rows"),
        false => Error::internal(format!("the keys {key:?} and {other:?} have the same hash")),
    }
}

/// Returns the error for `missing` records without a row, some of which are `without`, while the rows at `unused` belong to none.
fn without_row(
    base: &Dataset,
    rows: &TableRows,
    stored: &StoredRows,
    missing: u64,
    without: &[(u64, u64)],
    unused: &[u64],
) -> Result<Error> {
    let splits: Vec<Split> = base.unverified().splits().collect();
    let mut keys = Vec::new();
    for &(split, ordinal) in without {
        let Some(split) = splits.get(split as usize) else { continue };
        keys.push(format!("{:?}", split.select(&[KEY])?.get(ordinal)?.key().unwrap_or_default()));
    }
    let have = if missing == 1 { "has" } else { "have" };
    let mut what =
        format!("{} {have} no row in the table, such as {}", plural(missing, "record"), keys.join(", "));
    if !unused.is_empty() {
        let unused = unused.iter().map(|&offset| Ok(format!("{:?}", stored.get(offset)?.0)));
        let unused = unused.collect::<Result<Vec<_>>>()?;
        what.push_str(&format!("; the table has the keys {}, which no record has", unused.join(", ")));
    }
    Ok(Error::usage(what)
        .at_path(rows.path())
        .of_option("missing")
        .help("add the rows; `missing null` makes the fields of these records null; `on` names the column with the keys"))
}
