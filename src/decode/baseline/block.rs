//! Coefficients of one block after the other.

use super::NotOurs;
use super::huffman::{Entry, MAX_ENTRY_BITS, Table};
use super::idct::{Block, place};

/// Row and column of each coefficient in its block, in the order in which they are stored.
const ZIGZAG: [(usize, usize); 64] = {
    let mut order = [(0, 0); 64];
    let (mut n, mut sum) = (0, 0);
    while sum < 15 {
        let mut step = 0;
        while step <= sum {
            // Diagonals go up and down in turn.
            let (row, column) = if sum % 2 == 0 { (sum - step, step) } else { (step, sum - step) };
            if row < 8 && column < 8 {
                order[n] = (row, column);
                n += 1;
            }
            step += 1;
        }
        sum += 1;
    }
    order
};

/// For each coefficient as it is stored: its quantisation in the upper bits, its place in the block in the lower eight.
/// Behind the last one, where only damaged files lead, are more.
#[derive(Debug, Clone)]
pub(super) struct Steps([u32; 128]);

impl Steps {
    pub(super) fn new(quant: &[u8; 64]) -> Self {
        let mut steps = [place(7, 7) as u32; 128];
        for ((step, &quant), &(row, column)) in steps.iter_mut().zip(quant).zip(&ZIGZAG) {
            *step = u32::from(quant) << 8 | place(row, column) as u32;
        }
        Self(steps)
    }

    /// Place and quantisation of coefficient `k`.
    #[inline(always)]
    fn at(&self, k: usize) -> (usize, i32) {
        let step = self.0[k & 127];
        ((step & 63) as usize, (step >> 8).cast_signed())
    }
}

/// Coefficients of 8-bit samples are below this, whatever quantisation does.
const MAX_COEFFICIENT: u32 = 1 << 12;

/// Bits that are there after a refill.
const REFILLED: u32 = 56;
/// Codes and numbers that are surely there then.
const PER_REFILL: u32 = REFILLED / MAX_ENTRY_BITS;

/// Zero bytes behind the data, so that eight bytes can be read anywhere.
const PADDING: usize = 16;

/// Which coefficients a block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Only the mean.
    Flat,
    /// More.
    Any,
}

/// Takes the stuffing out of entropy-coded data: a zero byte behind each `ff`. The data must end with the end of the
/// image: no restarts, no other scan.
pub(super) fn unstuff(scan: &[u8], out: &mut Vec<u8>) -> Result<(), NotOurs> {
    out.clear();
    out.reserve(scan.len() + PADDING);
    let mut rest = scan;
    loop {
        let at = find_ff(rest).ok_or(NotOurs)?;
        match rest.get(at + 1) {
            Some(0) => {
                out.extend_from_slice(&rest[..=at]);
                rest = &rest[at + 2..];
            }
            Some(0xd9) => {
                out.extend_from_slice(&rest[..at]);
                out.extend_from_slice(&[0; PADDING]);
                return Ok(());
            }
            _ => return Err(NotOurs),
        }
    }
}

/// The position of the first `ff`, eight bytes at a time.
fn find_ff(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    for word in bytes.as_chunks::<8>().0 {
        // The lowest byte that was ff is zero when inverted, and borrows first.
        let inverted = !u64::from_le_bytes(*word);
        let zeros = inverted.wrapping_sub(LOW) & !inverted & (LOW << 7);
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(|&byte| byte == 0xff).map(|n| at + n)
}

/// Reads bits, first bit at the top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    data: &'a [u8],
    /// The first byte that is not in `bits`, or only partly.
    at: usize,
    bits: u64,
    /// How many of `bits` are to be relied on.
    count: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, bits: 0, count: 0 }
    }

    /// Makes sure of at least [`REFILLED`] bits.
    #[inline(always)]
    fn refill(&mut self) -> Result<(), NotOurs> {
        // There is padding behind the end: who gets here without it has read far too much.
        let word = self.data.get(self.at..).and_then(|rest| rest.first_chunk()).ok_or(NotOurs)?;
        self.bits |= u64::from_be_bytes(*word) >> self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= REFILLED;
        Ok(())
    }

    /// A code and the number behind it. [`MAX_ENTRY_BITS`] must be there. Nothing here is decided by a branch that the
    /// data would make unpredictable.
    #[inline(always)]
    fn next(&mut self, table: &Table) -> Result<(Entry, i32), NotOurs> {
        let mut entry = table.look_up(self.bits);
        if entry.bits() == 0 {
            // A longer one, which may need more bits.
            self.refill()?;
            entry = table.search(self.bits);
            if entry.bits() == 0 {
                return Err(NotOurs);
            }
        }
        let size = entry.size();
        let number = self.bits << (entry.bits() - size);
        self.bits <<= entry.bits();
        self.count -= entry.bits();
        // Numbers with a leading zero are negative (T.81, F.2.2.1); without any bit it is zero.
        let negative = !(number.cast_signed() >> 63) as i32;
        let value = (number >> 1 >> (63 - size)) as i32;
        Ok((entry, value - (negative & ((1 << size) - 1))))
    }

    /// The mean of a block, of which the difference to the block before is stored.
    #[inline(always)]
    fn mean(&mut self, table: &Table, last: &mut i32) -> Result<i32, NotOurs> {
        self.refill()?;
        *last += self.next(table)?.1;
        // Sixteen bits are enough for any mean; more could leave 32 bits when multiplied.
        if last.unsigned_abs() < 1 << 15 { Ok(*last) } else { Err(NotOurs) }
    }

    /// Reads a block, dequantised, in its places. `block` must be zero.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        dc: &Table,
        ac: &Table,
        steps: &Steps,
        last: &mut i32,
        block: &mut Block,
    ) -> Result<Content, NotOurs> {
        let mean = self.mean(dc, last)? * steps.at(0).1;
        block[0] = mean as i16;
        let mut all = mean.unsigned_abs();
        let mut k = 1;
        'block: while k < 64 {
            self.refill()?;
            for _ in 0..PER_REFILL {
                let (entry, value) = self.next(ac)?;
                if entry.size() == 0 && entry.run() < 15 {
                    break 'block;
                }
                k += entry.run();
                // Behind 16 zeros, the last of them is written: nothing changes.
                let (place, quant) = steps.at(k);
                let value = value * quant;
                block[place] = value as i16;
                all |= (value ^ value >> 31).cast_unsigned();
                k += 1;
                if k >= 64 {
                    break 'block;
                }
            }
        }
        // Coefficients behind the last one, or too large: libjpeg-turbo decides what they mean.
        if k > 64 || all >= MAX_COEFFICIENT {
            return Err(NotOurs);
        }
        Ok(if k == 1 { Content::Flat } else { Content::Any })
    }

    /// Steps over a block.
    #[inline(always)]
    pub(super) fn skip(&mut self, dc: &Table, ac: &Table, last: &mut i32) -> Result<(), NotOurs> {
        self.mean(dc, last)?;
        let mut k = 1;
        'block: while k < 64 {
            self.refill()?;
            for _ in 0..PER_REFILL {
                let (entry, _) = self.next(ac)?;
                if entry.size() == 0 && entry.run() < 15 {
                    break 'block;
                }
                k += entry.run() + 1;
                if k >= 64 {
                    break 'block;
                }
            }
        }
        if k > 64 { Err(NotOurs) } else { Ok(()) }
    }

    /// Whether all bits that were read were there and, when that was `all` of the image, no byte is left.
    pub(super) fn check_end(&self, all: bool) -> Result<(), NotOurs> {
        // Whole bytes that were not used, those in `bits` included.
        let unused = self.data.len().saturating_sub(self.at) + (self.count / 8) as usize;
        if unused < PADDING || (all && unused > PADDING) { Err(NotOurs) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_standard() {
        let begin =
            [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (3, 1)];
        assert_eq!(ZIGZAG[..12], begin);
        assert_eq!(ZIGZAG[61..], [(6, 7), (7, 6), (7, 7)]);
    }

    #[test]
    fn stuffing_is_taken_out() {
        let mut out = Vec::new();
        let scan = [1, 2, 0xff, 0, 3, 4, 5, 6, 7, 8, 9, 0xff, 0, 0xff, 0, 0xff, 0xd9, 7];
        assert_eq!(unstuff(&scan, &mut out), Ok(()));
        assert_eq!(out[..12], [1, 2, 0xff, 3, 4, 5, 6, 7, 8, 9, 0xff, 0xff]);
        assert_eq!(out.len(), 12 + PADDING);
        assert_eq!(unstuff(&[1, 0xff, 0xd0, 1, 0xff, 0xd9], &mut out), Err(NotOurs));
        assert_eq!(unstuff(&[1, 2, 3], &mut out), Err(NotOurs));
        for at in 0..20 {
            let mut bytes = vec![0xfe; 20];
            bytes[at] = 0xff;
            assert_eq!(find_ff(&bytes), Some(at));
        }
    }
}
