//! Bits and Huffman codes of entropy-coded data.

use dsconvert_dataset::sample::Reject;

use super::super::jpeg::layout::HuffmanSpec;
use super::super::reject::corrupt;

/// Bits of a table look-up; longer codes are searched for.
const LOOK_UP_BITS: u32 = 9;

/// A Huffman table for decoding.
#[derive(Debug)]
pub(super) struct HuffmanTable<'a> {
    /// Length and symbol by the next bits; a length of 0 stands for a longer code.
    look_up: [(u8, u8); 1 << LOOK_UP_BITS],
    /// For each length: the first left-aligned code above those of this length.
    ends: [u32; 17],
    /// For each length: what turns a code into the index of its symbol.
    offsets: [i32; 17],
    symbols: &'a [u8],
}

impl<'a> HuffmanTable<'a> {
    /// From a table that the layout has checked.
    pub(super) fn new(spec: HuffmanSpec<'a>) -> Self {
        let mut table = Self {
            look_up: [(0, 0); 1 << LOOK_UP_BITS],
            ends: [0; 17],
            offsets: [0; 17],
            symbols: spec.symbols,
        };
        let (mut code, mut index) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(spec.counts) {
            table.offsets[length as usize] = index as i32 - code.cast_signed();
            for &symbol in spec.symbols.iter().skip(index).take(count.into()) {
                if let Some(free) = LOOK_UP_BITS.checked_sub(length) {
                    let places = (code << free) as usize..((code + 1) << free) as usize;
                    if let Some(places) = table.look_up.get_mut(places) {
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

    /// The length and the symbol of the code at the top of 16 `bits`.
    fn find(&self, bits: u32) -> Option<(u32, u8)> {
        let (length, symbol) = self.look_up[(bits >> (16 - LOOK_UP_BITS)) as usize];
        if length > 0 {
            return Some((length.into(), symbol));
        }
        let length = (LOOK_UP_BITS + 1..=16).find(|&length| bits < self.ends[length as usize])?;
        let code = (bits >> (16 - length)).cast_signed();
        let index = usize::try_from(code + self.offsets[length as usize]).ok()?;
        self.symbols.get(index).map(|&symbol| (length, symbol))
    }
}

/// Reads bits of a scan, first bit at the top.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    data: &'a [u8],
    /// Position after the bytes that are in `bits`.
    at: usize,
    bits: u64,
    /// Number of `bits`, padding included.
    count: u32,
    /// Zero bits that were added because the data ended. Where more bits were read than there are, `count` is smaller.
    padding: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, bits: 0, count: 0, padding: 0 }
    }

    /// Makes sure of 32 bits or more.
    fn refill(&mut self) {
        while self.count <= 56 {
            let byte = match self.data.get(self.at..) {
                Some([0xff, 0, ..]) => {
                    self.at += 2;
                    0xff
                }
                Some([byte, ..]) if *byte != 0xff => {
                    self.at += 1;
                    *byte
                }
                // A marker or the end.
                _ => {
                    self.padding += 8;
                    0
                }
            };
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The next `count` bits, at most 16.
    pub(super) fn take(&mut self, count: u32) -> u32 {
        if self.count < 32 {
            self.refill();
        }
        if count == 0 {
            return 0;
        }
        let value = (self.bits >> (64 - count)) as u32;
        self.bits <<= count;
        self.count -= count;
        value
    }

    /// The next number of `size` bits, a leading zero being that of a negative one (T.81, F.2.2.1).
    pub(super) fn number(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let value = self.take(size).cast_signed();
        if value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
    }

    /// The next symbol.
    pub(super) fn symbol(&mut self, table: &HuffmanTable<'_>) -> Result<u8, Reject> {
        if self.count < 32 {
            self.refill();
        }
        let (length, symbol) = table.find((self.bits >> 48) as u32).ok_or_else(|| {
            if self.is_over() {
                ended()
            } else {
                corrupt("the entropy-coded data has a code that no table has")
            }
        })?;
        self.bits <<= length;
        self.count -= length;
        Ok(symbol)
    }

    fn is_over(&self) -> bool {
        self.count < self.padding
    }

    /// Whether all bits that were read were there.
    pub(super) fn check(&self) -> Result<(), Reject> {
        if self.is_over() { Err(ended()) } else { Ok(()) }
    }

    /// Whether nothing but the rest of a byte and fill bytes is left before the next marker; moves to the marker.
    pub(super) fn finish(&mut self) -> Result<(), Reject> {
        self.refill();
        self.check()?;
        let fill = self.data[self.at..].iter().take_while(|byte| **byte == 0xff).count();
        let is_marker = fill > 0 || self.at == self.data.len();
        if self.count - self.padding >= 8 || !is_marker {
            return Err(corrupt("the entropy-coded data has bytes that belong to no block"));
        }
        self.at += fill;
        (self.bits, self.count, self.padding) = (0, 0, 0);
        Ok(())
    }

    /// Goes over the restart marker with `number`.
    pub(super) fn restart(&mut self, number: u8) -> Result<(), Reject> {
        self.finish()?;
        match self.data.get(self.at) {
            Some(marker) if *marker == 0xd0 + number => {
                self.at += 1;
                Ok(())
            }
            None => Err(ended()),
            Some(_) => Err(corrupt("a restart marker is missing or out of order")),
        }
    }
}

fn ended() -> Reject {
    corrupt("the entropy-coded data ends too early")
}
