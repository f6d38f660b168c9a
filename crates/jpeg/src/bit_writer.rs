//! The bit writer for entropy-coded segments.

use std::ops::Range;

/// Appends bits, most significant bit first, with byte stuffing.
#[derive(Debug)]
pub(crate) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The last bits, right-aligned.
    bits: u64,
    /// Number of bits that are not in `out` yet, at most 31 between calls.
    count: u32,
}

impl<'a> BitWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, bits: 0, count: 0 }
    }

    /// Appends the lower `count` bits of `value`, at most 32; the upper ones must be zero.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: u32, count: u32) {
        self.bits = self.bits << count | u64::from(value);
        self.count += count;
        if self.count >= 32 {
            self.count -= 32;
            self.append(((self.bits >> self.count) as u32).to_be_bytes());
        }
    }

    /// Appends a range of bits of `segment`, which must be followed by at least eight bytes. Returns `None` if it is not.
    pub(crate) fn copy(&mut self, segment: &[u8], range: Range<usize>) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            let word = segment.get(at / 8..).and_then(|bytes| bytes.first_chunk())?;
            let count = (range.end - at).min(32);
            let bits = u64::from_be_bytes(*word) << (at % 8);
            self.put((bits >> (64 - count)) as u32, count as u32);
            at += count;
        }
        Some(())
    }

    /// Pads the last byte with ones and writes all pending bits.
    pub(crate) fn align(&mut self) {
        let missing = self.count.wrapping_neg() % 8;
        self.put((1 << missing) - 1, missing);
        while self.count > 0 {
            self.count -= 8;
            self.append([(self.bits >> self.count) as u8]);
        }
    }

    /// Appends a marker. The bits before it must be aligned.
    pub(crate) fn marker(&mut self, marker: u8) {
        self.out.extend_from_slice(&[0xff, marker]);
    }

    #[inline(always)]
    fn append<const N: usize>(&mut self, bytes: [u8; N]) {
        if !bytes.contains(&0xff) {
            self.out.extend_from_slice(&bytes);
            return;
        }
        for byte in bytes {
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_stuffed_and_padded_with_ones() {
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        writer.put(0b1_0110, 5);
        // Bits 3 to 45 are copied.
        let segment = [0x1f, 0xff, 0xff, 0xff, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 0];
        writer.copy(&segment, 3..46).unwrap();
        writer.put(0, 0);
        writer.put(1, 1);
        writer.align();
        writer.align();
        writer.marker(0xd3);
        assert_eq!(out, [0xb7, 0xff, 0, 0xff, 0, 0xff, 0, 0xc0, 0, 0xff, 0, 0xff, 0xd3]);
        assert_eq!(BitWriter::new(&mut Vec::new()).copy(&[0; 8], 0..33), None);
    }
}
