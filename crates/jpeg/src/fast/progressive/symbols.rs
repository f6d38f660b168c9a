//! Symbols and values of progressive scans.

use super::super::bit_reader::BitReader;
use super::super::declined::Declined;
use crate::huffman_table::HuffmanTable;

/// Reads a symbol. `reader` must have at least 16 bits.
#[inline(always)]
pub(super) fn take_symbol(reader: &mut BitReader<'_>, table: &HuffmanTable<'_>) -> Result<u8, Declined> {
    let (length, symbol) = table.find((reader.bits() >> 48) as u32).ok_or(Declined)?;
    reader.consume(length.into());
    Ok(symbol)
}

/// Reads `count` bits, at most 32. `reader` must have them.
#[inline(always)]
pub(super) fn take(reader: &mut BitReader<'_>, count: u32) -> u32 {
    let value = (reader.bits() >> 1 >> (63 - count)) as u32;
    reader.consume(count.into());
    value
}

/// Reads a value of `size` bits, at most 16. A leading zero makes it negative (EXTEND of T.81, F.2.2.1).
#[inline(always)]
pub(super) fn take_signed(reader: &mut BitReader<'_>, size: u32) -> i32 {
    let is_negative = reader.bits().cast_signed() >= 0;
    let value = take(reader, size).cast_signed();
    if is_negative { value - ((1 << size) - 1) } else { value }
}
