//! Huffman tables of progressive scans.

use super::super::bit_reader::BitReader;
use super::super::declined::Declined;
use crate::structure::HuffmanSpec;

/// Bits of a table lookup. The tables are used for one scan each, so a larger one would take longer to fill than it
/// saves.
const LOOKUP_BITS: u32 = 9;

/// A Huffman table for symbols.
#[derive(Debug)]
pub(super) struct SymbolTable {
    /// Symbol and, in the upper byte, the length of its code, by the next bits; 0 for longer codes.
    lookup: [u16; 1 << LOOKUP_BITS],
    /// For each length: the first code after the codes of this length, left-aligned in 16 bits.
    ends: [u32; 17],
    /// For each length: the offset from a code to the index of its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
}

impl SymbolTable {
    /// Creates a table from `spec`, whose code lengths must have been checked.
    pub(super) fn new(spec: HuffmanSpec<'_>) -> Self {
        let mut table =
            Self { lookup: [0; 1 << LOOKUP_BITS], ends: [0; 17], offsets: [0; 17], symbols: [0; 256] };
        for (to, from) in table.symbols.iter_mut().zip(spec.symbols) {
            *to = *from;
        }
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(spec.counts) {
            table.offsets[length as usize] = index as i32 - code.cast_signed();
            for &symbol in spec.symbols.iter().skip(index).take(count.into()) {
                if let Some(free) = LOOKUP_BITS.checked_sub(length) {
                    let places = (code << free) as usize..((code + 1) << free) as usize;
                    if let Some(places) = table.lookup.get_mut(places) {
                        places.fill((length << 8) as u16 | u16::from(symbol));
                    }
                }
                code += 1;
            }
            index += usize::from(count);
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        table
    }

    /// Reads a symbol. `reader` must have at least 16 bits.
    #[inline(always)]
    pub(super) fn read(&self, reader: &mut BitReader<'_>) -> Result<u8, Declined> {
        let entry = self.lookup[(reader.bits() >> (64 - LOOKUP_BITS)) as usize];
        let entry = if entry > 0 { entry } else { self.search(reader.bits()).ok_or(Declined)? };
        reader.consume(u64::from(entry >> 8));
        Ok(entry as u8)
    }

    /// Returns symbol and length of a code that is too long for the lookup.
    #[cold]
    #[inline(never)]
    fn search(&self, bits: u64) -> Option<u16> {
        let top = (bits >> 48) as u32;
        let length = (LOOKUP_BITS + 1..=16).find(|&length| top < self.ends[length as usize])?;
        let code = (top >> (16 - length)).cast_signed();
        let index = usize::try_from(code + self.offsets[length as usize]).ok()?;
        Some((length << 8) as u16 | u16::from(*self.symbols.get(index)?))
    }
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
