//! Huffman tables for symbols. The fast decoder has another kind for baseline scans, whose entries also hold values.

use crate::structure::HuffmanSpec;

/// Bits of a table lookup. Longer codes need a search. Many tables are used for one scan of a progressive file only, so a
/// larger lookup would take longer to fill than it saves.
const LOOKUP_BITS: u32 = 9;

/// A Huffman table for decoding.
#[derive(Debug)]
pub(crate) struct HuffmanTable<'a> {
    /// Length and symbol, indexed by the next bits; a length of 0 means a longer code.
    lookup: [(u8, u8); 1 << LOOKUP_BITS],
    /// For each length: the first code after the codes of this length, left-aligned in 16 bits.
    ends: [u32; 17],
    /// For each length: the offset from a code to the index of its symbol.
    offsets: [i32; 17],
    symbols: &'a [u8],
}

impl<'a> HuffmanTable<'a> {
    /// Creates a table from `spec`, whose code lengths must have been checked.
    pub(crate) fn new(spec: HuffmanSpec<'a>) -> Self {
        let mut table = Self {
            lookup: [(0, 0); 1 << LOOKUP_BITS],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: spec.symbols,
        };
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(spec.counts) {
            table.offsets[length as usize] = index as i32 - code.cast_signed();
            for &symbol in spec.symbols.iter().skip(index).take(count.into()) {
                if let Some(free) = LOOKUP_BITS.checked_sub(length) {
                    let places = (code << free) as usize..((code + 1) << free) as usize;
                    if let Some(places) = table.lookup.get_mut(places) {
                        places.fill((length as u8, symbol));
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

    /// Returns the length and the symbol of the code at the top of 16 `bits`.
    #[inline(always)]
    pub(crate) fn find(&self, bits: u32) -> Option<(u32, u8)> {
        let (length, symbol) = self.lookup[(bits >> (16 - LOOKUP_BITS)) as usize % self.lookup.len()];
        if length > 0 { Some((length.into(), symbol)) } else { self.search(bits) }
    }

    /// Returns the length and the symbol of a code that is too long for the lookup.
    #[cold]
    #[inline(never)]
    fn search(&self, bits: u32) -> Option<(u32, u8)> {
        let length = (LOOKUP_BITS + 1..=16).find(|&length| bits < self.ends[length as usize])?;
        let code = (bits >> (16 - length)).cast_signed();
        let index = usize::try_from(code + self.offsets[length as usize]).ok()?;
        self.symbols.get(index).map(|&symbol| (length, symbol))
    }
}
