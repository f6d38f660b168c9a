//! Huffman tables, made for looking up a code at once.

use super::NotOurs;

/// Bits that one look-up takes. Nearly all codes of photographs are shorter.
pub(super) const LOOK_UP_BITS: u32 = 11;

/// Most bits of the difference between two means, and of another coefficient (T.81, tables F.1 and F.2, for samples of
/// eight bits).
const MAX_DC_BITS: u8 = 11;
/// See [`MAX_DC_BITS`].
const MAX_AC_BITS: u8 = 10;

/// Most bits of the code of a coefficient with the number behind it.
pub(super) const MAX_ENTRY_BITS: u32 = 16 + MAX_AC_BITS as u32;

/// Tables of one kind.
const PLACES: usize = 4;

/// What a code means, in the form in which it is used:
///
/// | bits | |
/// |---|---|
/// | 0–7 | bits of the code and of the number behind it; 0: there is no such code |
/// | 8–15 | how many coefficients further the number belongs; [`END_OF_BLOCK`] behind the last one |
/// | 16–23 | 63 less the bits of the number |
/// | 24–31 | bits of the code |
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry(u32);

/// More than any number of coefficients.
pub(super) const END_OF_BLOCK: u32 = 128;

impl Entry {
    /// The meaning of `symbol` behind a code of `length` bits.
    fn new(length: u32, symbol: u8) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        // Sixteen zeros are fifteen and a number without any bit.
        let step = if size == 0 && run < 15 { END_OF_BLOCK } else { run + 1 };
        Self((length + size) | step << 8 | (63 - size) << 16 | length << 24)
    }

    /// Bits of code and number.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// See [`Entry`].
    #[inline(always)]
    pub(super) fn step(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// The number at the top of `bits`, the code included. What stands there with a leading zero is negative (T.81,
    /// F.2.2.1); without any bit it is zero. There is no branch, as the data would make it unpredictable.
    #[inline(always)]
    pub(super) fn number(self, bits: u64) -> i32 {
        let bits = bits << (self.0 >> 24 & 63);
        let drop = self.0 >> 16 & 63;
        let (number, most) = ((bits >> 1 >> drop) as i32, (u64::MAX >> 1 >> drop) as i32);
        if bits.cast_signed() < 0 { number } else { number - most }
    }
}

/// One table.
#[derive(Debug)]
pub(super) struct Table {
    /// The segment it was made from.
    source: Vec<u8>,
    entries: [Entry; 1 << LOOK_UP_BITS],
    /// For each length from 1 to 16: the first code behind those of this length, left-aligned in 16 bits.
    ends: [u32; 17],
    /// For each length: what to add to a code of it to find its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
    /// Whether the image that is read has defined it.
    current: bool,
}

impl Table {
    fn new(source: &[u8], is_ac: bool) -> Result<Self, NotOurs> {
        let (counts, listed) = source.split_at_checked(16).ok_or(NotOurs)?;
        let mut table = Self {
            source: source.to_vec(),
            entries: [Entry::default(); 1 << LOOK_UP_BITS],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: [0; 256],
            current: true,
        };
        table.symbols.get_mut(..listed.len()).ok_or(NotOurs)?.copy_from_slice(listed);
        let (mut code, mut place) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            table.offsets[length as usize] = place as i32 - code as i32;
            for _ in 0..count {
                let symbol = *listed.get(place).ok_or(NotOurs)?;
                // Codes of all ones are forbidden, and longer than their length impossible.
                if code + 1 >= 1 << length {
                    return Err(NotOurs);
                }
                let fits = if is_ac { symbol & 15 <= MAX_AC_BITS } else { symbol <= MAX_DC_BITS };
                if !fits {
                    return Err(NotOurs);
                }
                table.add(code, length, symbol);
                code += 1;
                place += 1;
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if place != listed.len() { Err(NotOurs) } else { Ok(table) }
    }

    /// Enters a code into all places of the look-up that begin with it.
    fn add(&mut self, code: u32, length: u32, symbol: u8) {
        let Some(free) = LOOK_UP_BITS.checked_sub(length) else { return };
        let places = (code << free) as usize..((code + 1) << free) as usize;
        if let Some(entries) = self.entries.get_mut(places) {
            entries.fill(Entry::new(length, symbol));
        }
    }

    /// The entry for the next bits, which stand at the top of `bits`.
    #[inline(always)]
    pub(super) fn look_up(&self, bits: u64) -> Entry {
        self.entries[(bits >> (64 - LOOK_UP_BITS)) as usize]
    }

    /// As [`Table::look_up`], for a code that is longer.
    #[cold]
    pub(super) fn search(&self, bits: u64) -> Entry {
        let top = (bits >> 48) as u32;
        for length in LOOK_UP_BITS + 1..=16 {
            if top < self.ends[length as usize] {
                let code = (top >> (16 - length)).cast_signed();
                let place = usize::try_from(code + self.offsets[length as usize]);
                let symbol = place.ok().and_then(|place| self.symbols.get(place));
                return symbol.map_or(Entry::default(), |&symbol| Entry::new(length, symbol));
            }
        }
        Entry::default()
    }
}

/// The tables of an image, kept for the next: encoders mostly use the same.
#[derive(Debug, Default)]
pub(super) struct Cache {
    dc: [Option<Box<Table>>; PLACES],
    ac: [Option<Box<Table>>; PLACES],
}

impl Cache {
    /// Begins another image: no table is defined.
    pub(super) fn forget(&mut self) {
        for table in self.dc.iter_mut().chain(&mut self.ac).flatten() {
            table.current = false;
        }
    }

    /// Reads a segment of tables.
    pub(super) fn read(&mut self, mut payload: &[u8]) -> Result<(), NotOurs> {
        while let [class, rest @ ..] = payload {
            let symbols: usize = rest.get(..16).ok_or(NotOurs)?.iter().map(|&count| usize::from(count)).sum();
            let (source, rest) = rest.split_at_checked(16 + symbols).ok_or(NotOurs)?;
            let is_ac = match class >> 4 {
                0 => false,
                1 => true,
                _ => return Err(NotOurs),
            };
            let kind = if is_ac { &mut self.ac } else { &mut self.dc };
            let slot = kind.get_mut(usize::from(class & 15)).ok_or(NotOurs)?;
            match slot {
                Some(table) if table.source == source => table.current = true,
                _ => *slot = Some(Box::new(Table::new(source, is_ac)?)),
            }
            payload = rest;
        }
        Ok(())
    }

    /// The tables of a component.
    #[inline(always)]
    pub(super) fn pair(&self, dc: usize, ac: usize) -> Option<(&Table, &Table)> {
        let (dc, ac) = (self.dc.get(dc)?.as_ref()?, self.ac.get(ac)?.as_ref()?);
        (dc.current && ac.current).then_some((dc, ac))
    }
}
