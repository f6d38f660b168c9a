//! Coefficients of one block after the other.

use super::declined::Declined;
use super::huffman::{END_OF_BLOCK, Entry, MAX_ENTRY_BITS, MAX_PAIR_BITS, Table};
use super::scan::PADDING;
use crate::block::{Block, ZIGZAG_INDEX};

/// Bits guaranteed after a refill.
const REFILLED: u32 = 56;
/// Pairs per refill, so that any coefficient may follow.
const PER_REFILL: u32 = (REFILLED - MAX_ENTRY_BITS) / MAX_PAIR_BITS;

/// The coefficients of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockContent {
    /// DC coefficient only.
    DcOnly,
    /// AC coefficients, too.
    Full,
}

/// Reads blocks from the bits of an entropy-coded segment. The first bit is the most significant one.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockReader<'a> {
    /// The bytes after those that are completely in `bits`.
    rest: &'a [u8],
    bits: u64,
    /// Number of valid bits in `bits`.
    count: u32,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data, bits: 0, count: 0 }
    }

    /// Fills up to at least [`REFILLED`] bits.
    #[inline(always)]
    fn refill(&mut self) -> Result<(), Declined> {
        // Padding follows the data. Where it ends, far too much was read.
        let word = self.rest.first_chunk().ok_or(Declined)?;
        self.bits |= u64::from_be_bytes(*word) >> self.count;
        self.rest = &self.rest[((63 - self.count) >> 3 & 7) as usize..];
        self.count |= REFILLED;
        Ok(())
    }

    /// The next symbol and its value. There must be [`MAX_ENTRY_BITS`] bits.
    #[inline(always)]
    fn next(&mut self, table: &Table) -> Result<(Entry, i32), Declined> {
        let mut entry = table.lookup(self.bits);
        if entry.bits() == 0 {
            entry = table.search(self.bits);
            if entry.bits() == 0 {
                return Err(Declined);
            }
        }
        let value = entry.value(self.bits);
        self.consume(entry.bits());
        Ok((entry, value))
    }

    /// Steps over `bits`.
    #[inline(always)]
    fn consume(&mut self, bits: u32) {
        self.bits <<= bits & 63;
        self.count -= bits;
    }

    /// The DC coefficient of a block, stored as the difference to the block before.
    #[inline(always)]
    fn dc(&mut self, table: &Table, last: &mut i32) -> Result<i16, Declined> {
        self.refill()?;
        *last += self.next(table)?.1;
        // Valid DC coefficients fit in 16 bits.
        i16::try_from(*last).map_err(|_| Declined)
    }

    /// Reads a block as it is stored, not dequantized. `block` must be zero.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        dc: &Table,
        ac: &Table,
        last: &mut i32,
        block: &mut Block,
    ) -> Result<BlockContent, Declined> {
        block[0] = self.dc(dc, last)?;
        self.read_ac(ac, |k, value| block[usize::from(ZIGZAG_INDEX[k & 63] & 63)] = value)
    }

    /// Skips a block.
    #[inline(always)]
    pub(super) fn skip(&mut self, dc: &Table, ac: &Table, last: &mut i32) -> Result<(), Declined> {
        self.dc(dc, last)?;
        self.read_ac(ac, |_, _| ()).map(drop)
    }

    /// Reads the AC coefficients of a block.
    #[inline(always)]
    fn read_ac(
        &mut self,
        table: &Table,
        mut found: impl FnMut(usize, i16),
    ) -> Result<BlockContent, Declined> {
        // A local copy stays in registers.
        let mut reader = *self;
        // The last coefficient.
        let mut k = 0;
        'block: loop {
            reader.refill()?;
            for _ in 0..PER_REFILL {
                let pair = table.pair(reader.bits);
                if pair.bits() == 0 {
                    break;
                }
                let (first, last) = (k + pair.step(), k + pair.last_step());
                if last < 63 {
                    reader.consume(pair.bits());
                    // Where there is no second one, the first takes its place.
                    found(last as usize, pair.second_value());
                    found(first as usize, pair.value());
                    k = last;
                    continue;
                }
                if first >= 63 {
                    // What follows is of the next block.
                    reader.consume(pair.first_bits());
                    if first == 63 {
                        found(63, pair.value());
                    }
                    k = first;
                } else {
                    reader.consume(pair.bits());
                    found(first as usize, pair.value());
                    if last == 63 {
                        found(63, pair.second_value());
                    }
                    // Not the first of the block, even if its end is.
                    k = if last >= END_OF_BLOCK { END_OF_BLOCK + 1 } else { last };
                }
                break 'block;
            }
            if reader.count >= MAX_ENTRY_BITS {
                let (entry, value) = reader.next(table)?;
                k += entry.step();
                if k >= 63 {
                    if k == 63 {
                        found(63, value as i16);
                    }
                    break 'block;
                }
                found(k as usize, value as i16);
            }
        }
        *self = reader;
        match k {
            END_OF_BLOCK => Ok(BlockContent::DcOnly),
            63 | END_OF_BLOCK.. => Ok(BlockContent::Full),
            // After the last one: left to the general decoder.
            _ => Err(Declined),
        }
    }

    /// Fails when more bits were read than the segment has or, after `all` of its blocks, when a byte is left.
    pub(super) fn check_end(&self, all: bool) -> Result<(), Declined> {
        // Whole unused bytes, including those in `bits`.
        let unused = self.rest.len() + (self.count / 8) as usize;
        if unused < PADDING || (all && unused > PADDING) { Err(Declined) } else { Ok(()) }
    }
}
