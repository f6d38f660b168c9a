//! Block coding of the four kinds of progressive scan (T.81, G.1.2).

use super::super::bit_reader::BitReader;
use super::super::coded_blocks::CodedBlock;
use super::super::request::Declined;
use crate::block::ZIGZAG_INDEX;
use crate::huffman_table::HuffmanTable;

/// Maximum bits read after one refill.
const TAKEN_BITS: u32 = 32;

/// Reads the blocks of a scan in order.
pub(super) trait BlockCoding {
    /// Starts a segment.
    fn restart(&mut self);

    /// Reads the part of a component's block that the scan codes. `nonzero` has a bit for each nonzero AC coefficient.
    fn block(
        &mut self,
        reader: &mut BitReader<'_>,
        component: usize,
        block: &mut CodedBlock,
        nonzero: &mut u64,
    ) -> Result<(), Declined>;

    /// Returns whether a segment may end here: no EOB run is in progress.
    fn may_end(&self) -> bool;
}

/// The first scan of DC coefficients.
pub(super) struct DcFirst<'a> {
    tables: [Option<HuffmanTable<'a>>; 3],
    /// Number of bits that later scans add.
    low: u8,
    last_dc: [i32; 3],
}

impl<'a> DcFirst<'a> {
    pub(super) fn new(tables: [Option<HuffmanTable<'a>>; 3], low: u8) -> Self {
        Self { tables, low, last_dc: [0; 3] }
    }
}

impl BlockCoding for DcFirst<'_> {
    fn restart(&mut self) {
        self.last_dc = [0; 3];
    }

    #[inline(always)]
    fn block(
        &mut self,
        reader: &mut BitReader<'_>,
        component: usize,
        block: &mut CodedBlock,
        _: &mut u64,
    ) -> Result<(), Declined> {
        let table = self.tables[component].as_ref().ok_or(Declined)?;
        reader.refill()?;
        let size = take_symbol(reader, table)?;
        // At most 15: the symbols were checked.
        let last_dc = &mut self.last_dc[component];
        *last_dc = last_dc.wrapping_add(take_signed(reader, u32::from(size & 15)));
        block.coefficients[0] = i16::try_from(*last_dc << self.low).map_err(|_| Declined)?;
        Ok(())
    }

    fn may_end(&self) -> bool {
        true
    }
}

/// A refinement scan of DC coefficients: adds one bit to each.
pub(super) struct DcRefined {
    bit: i16,
}

impl DcRefined {
    pub(super) fn new(low: u8) -> Self {
        Self { bit: 1 << low }
    }
}

impl BlockCoding for DcRefined {
    fn restart(&mut self) {}

    #[inline(always)]
    fn block(
        &mut self,
        reader: &mut BitReader<'_>,
        _: usize,
        block: &mut CodedBlock,
        _: &mut u64,
    ) -> Result<(), Declined> {
        reader.refill()?;
        block.coefficients[0] |= self.bit * take(reader, 1) as i16;
        Ok(())
    }

    fn may_end(&self) -> bool {
        true
    }
}

/// The first scan of a band of AC coefficients.
pub(super) struct AcFirst<'a> {
    table: HuffmanTable<'a>,
    band: (usize, usize),
    /// Number of bits that later scans add.
    low: u8,
    /// Blocks without further coefficients in the band, from the next one on.
    eob_run: u32,
}

impl<'a> AcFirst<'a> {
    pub(super) fn new(table: HuffmanTable<'a>, band: (usize, usize), low: u8) -> Self {
        Self { table, band, low, eob_run: 0 }
    }
}

impl BlockCoding for AcFirst<'_> {
    fn restart(&mut self) {
        self.eob_run = 0;
    }

    #[inline(always)]
    fn block(
        &mut self,
        reader: &mut BitReader<'_>,
        _: usize,
        block: &mut CodedBlock,
        nonzero: &mut u64,
    ) -> Result<(), Declined> {
        if self.eob_run > 0 {
            self.eob_run -= 1;
            return Ok(());
        }
        let mut k = self.band.0;
        while k <= self.band.1 {
            reader.refill()?;
            let symbol = take_symbol(reader, &self.table)?;
            let (run, size) = (symbol >> 4, u32::from(symbol & 15));
            if size == 0 && run < 15 {
                self.eob_run = (1 << run) - 1 + take(reader, run.into());
                return Ok(());
            }
            k += usize::from(run);
            if size > 0 {
                if k > self.band.1 {
                    return Err(Declined);
                }
                let value = i16::try_from(take_signed(reader, size) << self.low).map_err(|_| Declined)?;
                block.coefficients[usize::from(ZIGZAG_INDEX[k & 63] & 63)] = value;
                *nonzero |= 1 << (k & 63);
            }
            k += 1;
        }
        Ok(())
    }

    fn may_end(&self) -> bool {
        self.eob_run == 0
    }
}

/// A refinement scan of a band of AC coefficients: adds one bit to each.
///
/// Nonzero coefficients get one bit each, in order; the zeros between them are counted by runs. The bits of `nonzero`
/// locate both without reading the coefficients.
pub(super) struct AcRefined<'a> {
    table: HuffmanTable<'a>,
    /// The coefficients of the band, as bits.
    band: u64,
    bit: i16,
    /// Blocks without new coefficients in the band, from the current one on.
    eob_run: u32,
}

impl<'a> AcRefined<'a> {
    pub(super) fn new(table: HuffmanTable<'a>, (first, last): (usize, usize), low: u8) -> Self {
        Self { table, band: u64::MAX >> (63 - last) & u64::MAX << first, bit: 1 << low, eob_run: 0 }
    }
}

impl BlockCoding for AcRefined<'_> {
    fn restart(&mut self) {
        self.eob_run = 0;
    }

    #[inline(always)]
    fn block(
        &mut self,
        reader: &mut BitReader<'_>,
        _: usize,
        block: &mut CodedBlock,
        nonzero: &mut u64,
    ) -> Result<(), Declined> {
        let mut rest = self.band;
        while self.eob_run == 0 && rest != 0 {
            reader.refill()?;
            let symbol = take_symbol(reader, &self.table)?;
            let (run, size) = (symbol >> 4, symbol & 15);
            let new = match (size, run) {
                (0, 15) => None,
                (0, _) => {
                    self.eob_run = (1 << run) + take(reader, run.into());
                    break;
                }
                (1, _) => Some(if take(reader, 1) == 1 { self.bit } else { -self.bit }),
                _ => return Err(Declined),
            };
            let zeros = after_run(rest & !*nonzero, run);
            // The zero after the run, and all coefficients up to it; without such a zero, all of the band.
            let place = zeros & zeros.wrapping_neg();
            let passed = rest & (place | place.wrapping_sub(1));
            refine(reader, block, passed & *nonzero, self.bit)?;
            rest &= !passed;
            if let Some(value) = new {
                if place == 0 {
                    return Err(Declined);
                }
                let k = place.trailing_zeros() as usize;
                block.coefficients[usize::from(ZIGZAG_INDEX[k & 63] & 63)] = value;
                *nonzero |= place;
            }
        }
        if self.eob_run > 0 {
            refine(reader, block, rest & *nonzero, self.bit)?;
            self.eob_run -= 1;
        }
        Ok(())
    }

    fn may_end(&self) -> bool {
        self.eob_run == 0
    }
}

/// Clears the lowest `run` bits that are set in `zeros`. Short runs, the most common ones, take no branch, because
/// their length is unpredictable.
#[inline(always)]
fn after_run(zeros: u64, run: u8) -> u64 {
    let without_lowest = |bits: u64| bits & bits.wrapping_sub(1);
    let one = without_lowest(zeros);
    let two = without_lowest(one);
    let mut rest = [zeros, one, two, without_lowest(two)][usize::from(run & 3)];
    for _ in 0..run & !3 {
        rest = without_lowest(rest);
    }
    rest
}

/// Reads a bit for each of `coefficients`, all of them nonzero. If it is set, the coefficient moves away from zero by
/// `bit`.
#[inline(always)]
fn refine(
    reader: &mut BitReader<'_>,
    block: &mut CodedBlock,
    mut coefficients: u64,
    bit: i16,
) -> Result<(), Declined> {
    while coefficients != 0 {
        reader.refill()?;
        let count = coefficients.count_ones().min(TAKEN_BITS);
        let bits = take(reader, count);
        for n in (0..count).rev() {
            let k = coefficients.trailing_zeros() as usize;
            coefficients &= coefficients - 1;
            let coefficient = &mut block.coefficients[usize::from(ZIGZAG_INDEX[k & 63] & 63)];
            let step = if *coefficient >= 0 { bit } else { -bit };
            *coefficient = coefficient.wrapping_add(step * (bits >> n & 1) as i16);
        }
    }
    Ok(())
}

/// Reads a symbol. `reader` must have at least 16 bits.
#[inline(always)]
fn take_symbol(reader: &mut BitReader<'_>, table: &HuffmanTable<'_>) -> Result<u8, Declined> {
    let (length, symbol) = table.find((reader.bits() >> 48) as u32).ok_or(Declined)?;
    reader.consume(length.into());
    Ok(symbol)
}

/// Reads `count` bits, at most 32. `reader` must have them.
#[inline(always)]
fn take(reader: &mut BitReader<'_>, count: u32) -> u32 {
    let value = (reader.bits() >> 1 >> (63 - count)) as u32;
    reader.consume(count.into());
    value
}

/// Reads a value of `size` bits, at most 16. A leading zero makes it negative (EXTEND of T.81, F.2.2.1).
#[inline(always)]
fn take_signed(reader: &mut BitReader<'_>, size: u32) -> i32 {
    let is_negative = reader.bits().cast_signed() >= 0;
    let value = take(reader, size).cast_signed();
    if is_negative { value - ((1 << size) - 1) } else { value }
}
