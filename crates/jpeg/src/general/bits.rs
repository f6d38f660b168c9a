//! The bit reader of the general decoder.

use crate::error::Error;
use crate::huffman_table::HuffmanTable;

/// Reads the bits of a scan, most significant bit first.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    data: &'a [u8],
    /// Position after the bytes that are in `bits`.
    at: usize,
    bits: u64,
    /// Number of valid bits in `bits`, including padding.
    count: u32,
    /// Number of zero bits added because the data ended. If `count` is smaller, more bits were read than the data has.
    padding: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, bits: 0, count: 0, padding: 0 }
    }

    /// Refills `bits` to at least 57 valid bits.
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
                // A marker or the end of the data.
                _ => {
                    self.padding += 8;
                    0
                }
            };
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// Returns and consumes the next `count` bits, at most 16.
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

    /// Returns and consumes the next value of `size` bits. A leading zero makes it negative (EXTEND of T.81, F.2.2.1).
    pub(super) fn value(&mut self, size: u32) -> i32 {
        if size == 0 {
            return 0;
        }
        let value = self.take(size).cast_signed();
        if value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
    }

    /// Returns and consumes the next symbol.
    pub(super) fn symbol(&mut self, table: &HuffmanTable<'_>) -> Result<u8, Error> {
        if self.count < 32 {
            self.refill();
        }
        let (length, symbol) = table.find((self.bits >> 48) as u32).ok_or_else(|| {
            if self.is_over() {
                ended()
            } else {
                Error::corrupt("the entropy-coded data has an invalid Huffman code")
            }
        })?;
        self.bits <<= length;
        self.count -= length;
        Ok(symbol)
    }

    fn is_over(&self) -> bool {
        self.count < self.padding
    }

    /// Fails if more bits were read than the segment has.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_over() { Err(ended()) } else { Ok(()) }
    }

    /// Moves to the next marker. Fails if more than the rest of a byte and fill bytes precede the marker.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.refill();
        self.check()?;
        let fill = self.data[self.at..].iter().take_while(|byte| **byte == 0xff).count();
        let is_marker = fill > 0 || self.at == self.data.len();
        if self.count - self.padding >= 8 || !is_marker {
            return Err(Error::corrupt("the entropy-coded data has extra bytes before a restart marker"));
        }
        self.at += fill;
        (self.bits, self.count, self.padding) = (0, 0, 0);
        Ok(())
    }

    /// Moves past the restart marker with the given `number`.
    pub(super) fn restart(&mut self, number: u8) -> Result<(), Error> {
        self.finish()?;
        match self.data.get(self.at) {
            Some(marker) if *marker == 0xd0 + number => {
                self.at += 1;
                Ok(())
            }
            None => Err(ended()),
            Some(_) => Err(Error::corrupt("a restart marker is missing or out of order")),
        }
    }
}

fn ended() -> Error {
    Error::corrupt("the entropy-coded data ends too early")
}
