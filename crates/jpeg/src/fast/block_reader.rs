//! Entropy decoding of single blocks.

use super::bit_reader::{BitReader, REFILLED};
use super::huffman::{END_OF_BLOCK, LookupTable};
use super::request::Declined;
use super::step_table::{DecodeStep, MAX_STEP_BITS, RestTable, StartTable};

/// Steps per refill.
const PER_REFILL: u32 = REFILLED / MAX_STEP_BITS;

/// The decoding tables of a component.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockTables<'a> {
    pub(super) start: &'a StartTable,
    pub(super) rest: &'a RestTable,
    pub(super) dc: &'a LookupTable,
    pub(super) ac: &'a LookupTable,
}

/// Receives the coefficients of a block.
pub(super) trait Coefficients {
    /// Stores a coefficient. Only the lower six bits of `at`, its zigzag index, are used.
    fn put(&mut self, at: u32, value: i16);
}

/// Discards coefficients, for blocks of which at most the DC coefficient is needed.
pub(super) struct Skipped;

impl Coefficients for Skipped {
    #[inline(always)]
    fn put(&mut self, _: u32, _: i16) {}
}

/// Reads the coefficients of a block without dequantizing them. A `CodedBlock` must be zero.
#[inline(always)]
pub(super) fn read_block(
    reader: &mut BitReader<'_>,
    tables: &BlockTables<'_>,
    last_dc: &mut i32,
    block: &mut impl Coefficients,
) -> Result<(), Declined> {
    let mut k = read_start(reader, tables, last_dc, block)?;
    if k >= 63 {
        return Ok(());
    }
    loop {
        for n in 0..PER_REFILL {
            // In the first round, `read_start` has already taken one step since its refill.
            if n == PER_REFILL - 1 {
                reader.refill()?;
            }
            let step = tables.rest.step(reader.bits());
            let last = step.last(k);
            if last < 63 {
                put_both(block, step, k, reader.bits());
                reader.consume(step.raw());
                k = last;
                continue;
            }
            if DecodeStep::ends(last) {
                put_both(block, step, k, reader.bits());
                reader.consume(step.raw());
                return Ok(());
            }
            let (value, distance) = read_symbol(reader, tables.ac)?;
            k += distance;
            if k < 64 {
                block.put(k, value);
            }
            match k {
                0..63 => break,
                63 | END_OF_BLOCK.. => return Ok(()),
                // Past the last coefficient: the general decoder handles such files.
                _ => return Err(Declined),
            }
        }
    }
}

/// Reads the DC coefficient of a block and any further coefficients from the same lookup. Returns the position of the
/// last coefficient, or more than 63 at the end of the block. Two more steps may follow before the next refill.
#[inline(always)]
fn read_start(
    reader: &mut BitReader<'_>,
    tables: &BlockTables<'_>,
    last_dc: &mut i32,
    block: &mut impl Coefficients,
) -> Result<u32, Declined> {
    reader.refill()?;
    let step = tables.start.step(reader.bits());
    let mut last = step.last(0);
    if step.is_unknown() {
        *last_dc += i32::from(read_symbol(reader, tables.dc)?.0);
        last = 0;
    } else {
        block.put(last, step.last_value(reader.bits()));
        *last_dc += i32::from(step.dc_value(reader.bits()));
        reader.consume(step.raw());
    }
    // Valid DC coefficients fit in 16 bits.
    block.put(0, i16::try_from(*last_dc).map_err(|_| Declined)?);
    Ok(last)
}

/// Stores both coefficients of `step` after a coefficient at `k`.
#[inline(always)]
fn put_both(block: &mut impl Coefficients, step: DecodeStep, k: u32, bits: u64) {
    block.put(step.first(k), step.first_value());
    // If there is no second coefficient, this writes the first one again.
    block.put(step.last(k), step.last_value(bits));
}

/// Reads one symbol of any length. Returns its value and its distance from the previous coefficient. Refills before and
/// after.
#[inline(always)]
fn read_symbol(reader: &mut BitReader<'_>, table: &LookupTable) -> Result<(i16, u32), Declined> {
    reader.refill()?;
    let entry = table.entry(reader.bits()).ok_or(Declined)?;
    let value = entry.value(reader.bits()) as i16;
    reader.consume(entry.bits().into());
    reader.refill()?;
    Ok((value, entry.step()))
}
