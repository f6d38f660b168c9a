//! Huffman tables whose lookup returns a symbol together with its run length and value size.

use super::request::Declined;
use crate::structure::HuffmanSpec;

/// Bits of a table lookup. Nearly all codes in photographs are shorter.
pub(super) const LOOKUP_BITS: u32 = 11;

/// Maximum number of bits of a DC difference (T.81, table F.1, for 8-bit samples).
pub(super) const MAX_DC_BITS: u8 = 11;
/// Maximum number of bits of an AC coefficient (T.81, table F.2, for 8-bit samples).
const MAX_AC_BITS: u8 = 10;

/// Number of slots for tables of one kind.
const SLOTS: usize = 4;

/// A decoded symbol, packed as the block reader uses it:
///
/// | bits | |
/// |---|---|
/// | 0–7 | bits of the code plus bits of its value; 0 if no code matches |
/// | 8–15 | distance from the previous coefficient to this one; [`END_OF_BLOCK`] at the end of a block |
/// | 16–23 | 63 minus the bits of the value |
/// | 24–31 | bits of the code |
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry(u32);

/// The distance that marks the end of a block: more than the number of coefficients.
pub(super) const END_OF_BLOCK: u32 = 128;

impl Entry {
    /// Creates the entry of `symbol`, whose code has `length` bits.
    fn new(length: u32, symbol: u8) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        // ZRL (sixteen zeros) is a run of fifteen and a value of zero bits.
        let step = if size == 0 && run < 15 { END_OF_BLOCK } else { run + 1 };
        Self((length + size) | step << 8 | (63 - size) << 16 | length << 24)
    }

    /// Returns the bits of code and value.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Returns the bits of the code.
    #[inline(always)]
    pub(super) fn code_bits(self) -> u32 {
        self.0 >> 24
    }

    /// Returns the distance from the previous coefficient, or [`END_OF_BLOCK`].
    #[inline(always)]
    pub(super) fn step(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// Returns the value that follows the code at the top of `bits`. A leading zero makes it negative (EXTEND of T.81,
    /// F.2.2.1); a value of no bits is zero. The code has no branch, because the data would make it unpredictable.
    #[inline(always)]
    pub(super) fn value(self, bits: u64) -> i32 {
        let bits = bits << (self.0 >> 24 & 63);
        let drop = self.0 >> 16 & 63;
        let (value, most) = ((bits >> 1 >> drop) as i32, (u64::MAX >> 1 >> drop) as i32);
        if bits.cast_signed() < 0 { value } else { value - most }
    }
}

/// A Huffman table with a lookup table for short codes.
#[derive(Debug)]
pub(super) struct LookupTable {
    /// The definition of the table in its DHT segment: code counts and symbols.
    pub(super) source: Vec<u8>,
    entries: [Entry; 1 << LOOKUP_BITS],
    /// For each length from 1 to 16: the first code after the codes of this length, left-aligned in 16 bits.
    ends: [u32; 17],
    /// For each length: the offset from a code to the index of its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
}

impl LookupTable {
    pub(super) fn new(source: &[u8], is_ac: bool) -> Result<Self, Declined> {
        let (counts, listed) = source.split_at_checked(16).ok_or(Declined)?;
        let mut table = Self {
            source: source.to_vec(),
            entries: [Entry::default(); 1 << LOOKUP_BITS],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: [0; 256],
        };
        table.symbols.get_mut(..listed.len()).ok_or(Declined)?.copy_from_slice(listed);
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            table.offsets[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                let symbol = *listed.get(index).ok_or(Declined)?;
                // The all-ones code is forbidden; a larger code is impossible.
                if code + 1 >= 1 << length {
                    return Err(Declined);
                }
                let fits = if is_ac { symbol & 15 <= MAX_AC_BITS } else { symbol <= MAX_DC_BITS };
                if !fits {
                    return Err(Declined);
                }
                table.add(code, length, symbol);
                code += 1;
                index += 1;
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if index != listed.len() {
            return Err(Declined);
        }
        Ok(table)
    }

    /// Stores a code at all lookup indexes that start with it.
    fn add(&mut self, code: u32, length: u32, symbol: u8) {
        let Some(free) = LOOKUP_BITS.checked_sub(length) else { return };
        let indexes = (code << free) as usize..((code + 1) << free) as usize;
        if let Some(entries) = self.entries.get_mut(indexes) {
            entries.fill(Entry::new(length, symbol));
        }
    }

    /// Returns the entry for the next bits, at the top of `bits`; `None` if they match no code. Not inlined: few
    /// symbols need this path, and the caller keeps its registers.
    #[cold]
    #[inline(never)]
    pub(super) fn entry(&self, bits: u64) -> Option<Entry> {
        let entry = self.lookup(bits);
        let entry = if entry.bits() > 0 { entry } else { self.search(bits) };
        (entry.bits() > 0).then_some(entry)
    }

    /// Returns the lookup entry for the next bits, at the top of `bits`.
    #[inline(always)]
    pub(super) fn lookup(&self, bits: u64) -> Entry {
        self.entries[(bits >> (64 - LOOKUP_BITS)) as usize]
    }

    /// Returns the entry of a code too long for [`LookupTable::lookup`].
    #[cold]
    fn search(&self, bits: u64) -> Entry {
        let top = (bits >> 48) as u32;
        for length in LOOKUP_BITS + 1..=16 {
            if top < self.ends[length as usize] {
                let code = (top >> (16 - length)).cast_signed();
                let index = usize::try_from(code + self.offsets[length as usize]);
                let symbol = index.ok().and_then(|index| self.symbols.get(index));
                return symbol.map_or(Entry::default(), |&symbol| Entry::new(length, symbol));
            }
        }
        Entry::default()
    }
}

/// The Huffman tables of an image, kept for the next one because encoders usually write the same tables.
#[derive(Debug, Default)]
pub(super) struct TableCache {
    dc: [Option<Box<LookupTable>>; SLOTS],
    ac: [Option<Box<LookupTable>>; SLOTS],
}

impl TableCache {
    /// Defines the table in a slot as `spec`.
    pub(super) fn define(
        &mut self,
        slot: usize,
        is_ac: bool,
        spec: Option<HuffmanSpec<'_>>,
    ) -> Result<(), Declined> {
        let HuffmanSpec { counts, symbols } = spec.ok_or(Declined)?;
        let slot = if is_ac { self.ac.get_mut(slot) } else { self.dc.get_mut(slot) }.ok_or(Declined)?;
        let is_kept = slot.as_ref().is_some_and(|table| {
            table.source.split_first_chunk().is_some_and(|source| source == (counts, symbols))
        });
        if !is_kept {
            *slot = Some(Box::new(LookupTable::new(&[counts, symbols].concat(), is_ac)?));
        }
        Ok(())
    }

    /// Returns the DC and AC tables of a component.
    #[inline(always)]
    pub(super) fn pair(&self, dc: usize, ac: usize) -> Option<(&LookupTable, &LookupTable)> {
        Some((self.dc.get(dc)?.as_ref()?, self.ac.get(ac)?.as_ref()?))
    }
}
