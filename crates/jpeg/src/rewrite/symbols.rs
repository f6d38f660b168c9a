//! The symbols of a block in a baseline scan (T.81, F.1.2).

use crate::block::{DctBlock, ZIGZAG_INDEX};
use crate::error::Error;

/// Maximum number of bits of a DC difference and of an AC coefficient (T.81, tables F.1 and F.2, for 8-bit samples).
const MAX_DC_BITS: u32 = 11;
const MAX_AC_BITS: u32 = 10;

/// Sixteen zeros.
const ZRL: Symbol = Symbol { code: 0xf0, value: 0, bits: 0 };
const END_OF_BLOCK: Symbol = Symbol { code: 0, value: 0, bits: 0 };

/// A Huffman-coded symbol and the bits after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Zeros before a coefficient in the upper four bits, the number of its bits in the lower four.
    pub(crate) code: u8,
    pub(crate) value: u32,
    pub(crate) bits: u32,
}

impl Symbol {
    /// Returns the symbol of a DC coefficient after `last_dc`.
    pub(crate) fn of_dc(dc: i32, last_dc: i32) -> Result<Self, Error> {
        Self::new(0, dc - last_dc, MAX_DC_BITS)
    }

    fn new(run: u8, coefficient: i32, max_bits: u32) -> Result<Self, Error> {
        let bits = i32::BITS - coefficient.unsigned_abs().leading_zeros();
        if bits > max_bits {
            return Err(Error::unsupported("a block has larger coefficients than any pixels produce"));
        }
        // A negative value is stored minus one, without its upper bits.
        let value = if coefficient < 0 { coefficient + (1 << bits) - 1 } else { coefficient };
        Ok(Self { code: run << 4 | bits as u8, value: value.unsigned_abs(), bits })
    }
}

/// Calls `emit` for each symbol of a block, with true if the symbol is of the AC table. `last_dc` is the DC coefficient
/// of the previous block of the component.
pub(crate) fn block_symbols(
    block: &DctBlock,
    last_dc: i32,
    mut emit: impl FnMut(bool, Symbol),
) -> Result<(), Error> {
    emit(false, Symbol::of_dc(block[0].into(), last_dc)?);
    let mut run = 0;
    for &index in &ZIGZAG_INDEX[1..] {
        let coefficient = block[usize::from(index)];
        if coefficient == 0 {
            run += 1;
            continue;
        }
        while run > 15 {
            emit(true, ZRL);
            run -= 16;
        }
        emit(true, Symbol::new(run, coefficient.into(), MAX_AC_BITS)?);
        run = 0;
    }
    if run > 0 {
        emit(true, END_OF_BLOCK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(coefficients: &[(usize, i16)], last_dc: i32) -> Result<Vec<(bool, u8, u32, u32)>, Error> {
        let mut block = [0; 64];
        for &(k, value) in coefficients {
            block[usize::from(ZIGZAG_INDEX[k])] = value;
        }
        let mut found = Vec::new();
        block_symbols(&block, last_dc, |is_ac, s| found.push((is_ac, s.code, s.value, s.bits)))?;
        Ok(found)
    }

    #[test]
    fn runs_values_and_ends_match_the_standard() {
        assert_eq!(symbols(&[], 0).unwrap(), [(false, 0, 0, 0), (true, 0, 0, 0)]);
        assert_eq!(symbols(&[(0, 5)], 8).unwrap(), [(false, 2, 0, 2), (true, 0, 0, 0)]);
        assert_eq!(
            symbols(&[(0, -2), (1, -1), (3, 6)], -5).unwrap(),
            [(false, 2, 3, 2), (true, 0x01, 0, 1), (true, 0x13, 6, 3), (true, 0, 0, 0),]
        );
        let far = [
            (false, 0, 0, 0),
            (true, 0xf0, 0, 0),
            (true, 0xf0, 0, 0),
            (true, 0xf0, 0, 0),
            (true, 0xe1, 1, 1),
        ];
        assert_eq!(symbols(&[(63, 1)], 0).unwrap(), far, "no end after the last coefficient");
    }

    #[test]
    fn coefficients_out_of_range_are_rejected() {
        assert!(symbols(&[(0, 1023), (5, -1023)], -1024).is_ok());
        assert!(symbols(&[(5, 1024)], 0).is_err() && symbols(&[(5, i16::MIN)], 0).is_err());
        assert!(symbols(&[(0, 1024)], -1024).is_err());
    }
}
