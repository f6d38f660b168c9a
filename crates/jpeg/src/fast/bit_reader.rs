//! The bit reader of the fast decoder.

use super::request::Declined;
use super::scan::PADDING;

/// Bits guaranteed after a refill.
pub(super) const REFILLED: u32 = 56;

/// Reads the bits of an entropy-coded segment, most significant bit first.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitReader<'a> {
    /// The bytes that are not yet completely in `bits`.
    rest: &'a [u8],
    bits: u64,
    /// Number of valid bits in `bits`. Only the lower six bits are meaningful, because `consume` subtracts whole packed
    /// values from it.
    count: u64,
}

impl<'a> BitReader<'a> {
    /// Creates a reader of `data`, which must end with [`PADDING`] zeros.
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data, bits: 0, count: 0 }
    }

    /// Refills `bits` to at least [`REFILLED`] valid bits.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> Result<(), Declined> {
        // The padding is used up only if far more was read than the segment has.
        let word = self.rest.first_chunk().ok_or(Declined)?;
        self.bits |= u64::from_be_bytes(*word) >> (self.count & 63);
        self.rest = &self.rest[(!self.count >> 3 & 7) as usize..];
        self.count |= u64::from(REFILLED);
        Ok(())
    }

    /// Returns the next bits, left-aligned.
    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// Skips the number of bits in the lower six bits of `raw`.
    #[inline(always)]
    pub(super) fn consume(&mut self, raw: u64) {
        self.bits <<= raw & 63;
        self.count = self.count.wrapping_sub(raw);
    }

    /// Returns the number of unread bits, including the padding.
    pub(super) fn left_bits(&self) -> usize {
        8 * self.rest.len() + (self.count as usize & 63)
    }

    /// Fails if more bits were read than the segment has or, with `all` of its blocks read, if a whole byte is left.
    pub(super) fn check_end(&self, all: bool) -> Result<(), Declined> {
        // Whole unused bytes, including those in `bits`.
        let unused = self.rest.len() + (self.count as usize & 63) / 8;
        if unused < PADDING || (all && unused > PADDING) { Err(Declined) } else { Ok(()) }
    }
}
