//! Coefficients of one block after the other.

use super::NotOurs;
use super::huffman::{END_OF_BLOCK, Entry, MAX_ENTRY_BITS, Table};
use super::idct::{Block, place};
use super::scan::PADDING;

/// Place in the block of each coefficient, in the order in which they are stored.
pub(in crate::decode) static PLACES: [u8; 64] = {
    let mut places = [0; 64];
    let mut n = 0;
    while n < 64 {
        places[n] = place(ZIGZAG[n].0, ZIGZAG[n].1) as u8;
        n += 1;
    }
    places
};

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

/// The quantisation of each coefficient, in the places of a [`Block`].
#[derive(Debug, Clone)]
pub(in crate::decode) struct Quant(pub(in crate::decode) Block);

impl Quant {
    /// From the numbers as they are stored.
    pub(super) fn new(stored: &[u8; 64]) -> Self {
        let mut quant = [0; 64];
        for (&place, &stored) in PLACES.iter().zip(stored) {
            quant[usize::from(place)] = stored.into();
        }
        Self(quant)
    }

    /// From numbers of 16 bits. Where they do not fit, they wrap, as in libjpeg-turbo.
    pub(in crate::decode) fn of_numbers(stored: &[u16; 64]) -> Self {
        let mut quant = [0; 64];
        for (&place, &stored) in PLACES.iter().zip(stored) {
            quant[usize::from(place)] = stored.cast_signed();
        }
        Self(quant)
    }
}

/// Bits that are there after a refill.
const REFILLED: u32 = 56;
/// Codes and numbers that are surely there then.
const PER_REFILL: u32 = REFILLED / MAX_ENTRY_BITS;

/// Which coefficients a block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Only the mean.
    Flat,
    /// More.
    Any,
}

/// Reads bits, first bit at the top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The bytes from the first on that is not in `bits`, or only partly.
    rest: &'a [u8],
    bits: u64,
    /// How many of `bits` are to be relied on.
    count: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data, bits: 0, count: 0 }
    }

    /// Makes sure of at least [`REFILLED`] bits.
    #[inline(always)]
    fn refill(&mut self) -> Result<(), NotOurs> {
        // There is padding behind the end: who gets here without it has read far too much.
        let word = self.rest.first_chunk().ok_or(NotOurs)?;
        self.bits |= u64::from_be_bytes(*word) >> self.count;
        self.rest = &self.rest[((63 - self.count) >> 3 & 7) as usize..];
        self.count |= REFILLED;
        Ok(())
    }

    /// A code and the number behind it. [`MAX_ENTRY_BITS`] must be there.
    #[inline(always)]
    fn next(&mut self, table: &Table) -> Result<(Entry, i32), NotOurs> {
        let mut entry = table.look_up(self.bits);
        if entry.bits() == 0 {
            entry = table.search(self.bits);
            if entry.bits() == 0 {
                return Err(NotOurs);
            }
        }
        let number = entry.number(self.bits);
        self.bits <<= entry.bits() & 63;
        self.count -= entry.bits();
        Ok((entry, number))
    }

    /// The mean of a block, of which the difference to the block before is stored.
    #[inline(always)]
    fn mean(&mut self, table: &Table, last: &mut i32) -> Result<i16, NotOurs> {
        self.refill()?;
        *last += self.next(table)?.1;
        // Sixteen bits are enough for any mean.
        i16::try_from(*last).map_err(|_| NotOurs)
    }

    /// Reads a block into its places, as it is stored. `block` must be zero.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        dc: &Table,
        ac: &Table,
        last: &mut i32,
        block: &mut Block,
    ) -> Result<Content, NotOurs> {
        block[0] = self.mean(dc, last)?;
        self.others(ac, |k, number| block[usize::from(PLACES[k] & 63)] = number)
    }

    /// Steps over a block.
    #[inline(always)]
    pub(super) fn skip(&mut self, dc: &Table, ac: &Table, last: &mut i32) -> Result<(), NotOurs> {
        self.mean(dc, last)?;
        self.others(ac, |_, _| ()).map(drop)
    }

    /// Reads the other coefficients of a block.
    #[inline(always)]
    fn others(&mut self, table: &Table, mut found: impl FnMut(usize, i16)) -> Result<Content, NotOurs> {
        // What is kept in variables of their own is kept in registers.
        let mut reader = *self;
        let mut k = 0;
        'block: loop {
            reader.refill()?;
            for _ in 0..PER_REFILL {
                let (entry, number) = reader.next(table)?;
                k += entry.step();
                if k >= 63 {
                    if k == 63 {
                        found(63, number as i16);
                    }
                    break 'block;
                }
                found(k as usize, number as i16);
            }
        }
        *self = reader;
        match k {
            END_OF_BLOCK => Ok(Content::Flat),
            63 | END_OF_BLOCK.. => Ok(Content::Any),
            // Behind the last one: libjpeg-turbo decides what that means.
            _ => Err(NotOurs),
        }
    }

    /// Whether all bits that were read were there and, when that was `all` of the image, no byte is left.
    pub(super) fn check_end(&self, all: bool) -> Result<(), NotOurs> {
        // Whole bytes that were not used, those in `bits` included.
        let unused = self.rest.len() + (self.count / 8) as usize;
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
}
