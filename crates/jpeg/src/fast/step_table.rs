//! Decoding tables whose lookup returns several symbols with their values.

use super::huffman::{END_OF_BLOCK, LookupTable};

/// Index bits of the table for the rest of a block. A larger index would decode more coefficients at once, but the
/// tables share the L1 cache with the coefficients.
const INDEX_BITS: u32 = 10;
/// Index bits of the table for the start of a block.
const START_BITS: u32 = 8;
/// Number of steps in the table for the rest of a block.
const LENGTH: usize = 1 << INDEX_BITS;

/// Added to the position of the last coefficient at the end of a block, so that every position from 63 on needs a
/// second check. It is a multiple of 64: the lower six bits remain those of the coefficient.
const END: u32 = 192;
/// Like [`END`], for an end of block without a coefficient.
const END_ALONE: u32 = 128;
/// Distance that marks an unknown step: larger than all other positions.
const UNKNOWN: u32 = 512;

/// Maximum number of bits of a [`DecodeStep`]; it allows three steps per refill.
pub(super) const MAX_STEP_BITS: u32 = 18;

/// One or two coefficients, optionally followed by the end of their block. The index contains all codes and all values,
/// except that it may contain only the sign of the last value:
///
/// | bits | |
/// |---|---|
/// | 0–5 | bits of all codes and values |
/// | 6–9 | number of bits of the last value that must be added to it; 0 if the index contains the whole value |
/// | 12–19 | distance from the previous coefficient to the first one |
/// | 20–31 | distance from the previous coefficient to the second one; without a second one, as bits 12–19 |
/// | 32–47 | value of the first coefficient |
/// | 48–63 | value of the second coefficient; without a second one, value of the first |
///
/// At the end of a block, [`END`] is added to the second distance. An end without a coefficient stores a zero after the
/// previous coefficient: both distances are 1, both values are zero, and [`END_ALONE`] is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecodeStep(u64);

impl DecodeStep {
    /// The step of an index that does not contain even one symbol.
    const UNKNOWN: Self = Self((UNKNOWN as u64) << 20);

    /// Returns the packed value, whose lower six bits are [`bits`](Self::bits).
    #[inline(always)]
    pub(super) fn raw(self) -> u64 {
        self.0
    }

    /// Returns the bits of all codes and values.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 as u32 & 63
    }

    /// Returns whether there is no step for the index.
    #[inline(always)]
    pub(super) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// Returns both positions after a coefficient at `k`, packed like the distances.
    #[inline(always)]
    fn positions(self, k: u32) -> u32 {
        (self.0 as u32).wrapping_add(k * (1 << 12 | 1 << 20))
    }

    /// Returns the position of the first coefficient, if the previous one is at `k`.
    #[inline(always)]
    pub(super) fn first(self, k: u32) -> u32 {
        self.positions(k) >> 12 & 255
    }

    /// Returns the position of the last coefficient, if the previous one is at `k`. A position of 63 or more means that
    /// the block ends or that the step cannot be used.
    #[inline(always)]
    pub(super) fn last(self, k: u32) -> u32 {
        self.positions(k) >> 20
    }

    /// Returns whether a block ends if `last` is the result of [`last`](Self::last).
    #[inline(always)]
    pub(super) fn ends(last: u32) -> bool {
        // From END_ALONE + 1 to END + 62: position 63 is the last of the block, and no end of block follows it.
        last.wrapping_sub(END_ALONE) < END + 63 - END_ALONE
    }

    /// Returns the value of the DC coefficient.
    #[inline(always)]
    pub(super) fn dc_value(self, bits: u64) -> i16 {
        if self.last(0) & 63 == 0 { self.last_value(bits) } else { self.first_value() }
    }

    /// Returns the value of the first coefficient.
    #[inline(always)]
    pub(super) fn first_value(self) -> i16 {
        (self.0 >> 32) as i16
    }

    /// Returns the value of the last coefficient, with any part that is not in the index taken from `bits`.
    #[inline(always)]
    pub(super) fn last_value(self, bits: u64) -> i16 {
        let more = bits.rotate_left(self.bits()) as u32 & !(u32::MAX << ((self.0 >> 6) & 15));
        ((self.0 >> 48) as i16).wrapping_add(more as i16)
    }
}

/// Packs a [`DecodeStep`] from its parts: total bits, bits to add to the last value, distances, and values.
#[inline(always)]
fn packed(bits: u32, more: u32, distances: [u32; 2], values: [i16; 2]) -> u64 {
    let [first, last] = distances.map(u64::from);
    let [first_value, last_value] = values.map(|value| u64::from(value.cast_unsigned()));
    u64::from(bits) | u64::from(more) << 6 | first << 12 | last << 20 | first_value << 32 | last_value << 48
}

/// The first symbol in an index.
#[derive(Debug, Clone, Copy, Default)]
struct Symbol {
    /// Bits of the code; larger than any index if the index does not contain the whole code.
    code: u32,
    /// Bits of the value.
    size: u32,
    /// Distance from the previous coefficient.
    step: u32,
    /// The value, if the index contains all of it.
    value: i16,
    /// The constant to add to the bits of the value, if the index contains its sign.
    extend: i16,
}

impl Symbol {
    #[inline(always)]
    fn at(table: &LookupTable, index: usize, index_bits: u32) -> Self {
        let bits = (index as u64) << (64 - index_bits);
        let entry = table.lookup(bits);
        let code = entry.code_bits();
        let size = entry.bits() - code;
        let is_negative = (bits << code).cast_signed() >= 0;
        let extend = if is_negative { 1 - (1 << size) } else { 0 };
        let code = if entry.bits() == 0 { u32::MAX >> 1 } else { code };
        Self { code, size, step: entry.step(), value: entry.value(bits) as i16, extend }
    }

    /// Returns the bits of code and value.
    #[inline(always)]
    fn bits(self) -> u32 {
        self.code + self.size
    }

    /// Returns whether `left` bits contain the code and the sign.
    #[inline(always)]
    fn has_sign(self, left: u32) -> bool {
        self.code + self.size.min(1) <= left
    }

    #[inline(always)]
    fn is_end(self) -> bool {
        self.step == END_OF_BLOCK
    }

    /// Returns the step of this symbol and `tail`, if the index contains the whole symbol.
    #[inline(always)]
    fn followed_by(self, tail: StepTail) -> DecodeStep {
        let last_value = if tail.has_coefficient { 0 } else { self.value };
        DecodeStep(tail.packed + packed(self.bits(), 0, [self.step; 2], [self.value, last_value]))
    }

    /// Returns the step of this symbol, if the index contains only its sign.
    #[inline(always)]
    fn incomplete(self) -> DecodeStep {
        DecodeStep(packed(self.bits(), self.size, [self.step; 2], [self.extend; 2]))
    }
}

/// Everything after the first coefficient of a step, packed like a step.
#[derive(Debug, Clone, Copy, Default)]
struct StepTail {
    packed: u64,
    has_coefficient: bool,
}

impl StepTail {
    /// Decodes the upper `left` bits of `index`; all other bits must be zero.
    #[inline(always)]
    fn at(symbols: &[Symbol; LENGTH], index: usize, left: u32) -> Self {
        let symbol = symbols[index];
        let is_complete = symbol.bits() <= left;
        if symbol.is_end() {
            let packed = if is_complete { packed(symbol.bits(), 0, [0, END], [0; 2]) } else { 0 };
            return Self { packed, has_coefficient: false };
        }
        if !symbol.has_sign(left) || INDEX_BITS - left + symbol.bits() > MAX_STEP_BITS {
            return Self::default();
        }
        let packed = if is_complete {
            let end = symbols[index << symbol.bits() & (LENGTH - 1)];
            let ends = end.is_end() && symbol.bits() + end.bits() <= left;
            let (end_bits, end) = if ends { (end.bits(), END) } else { (0, 0) };
            packed(symbol.bits() + end_bits, 0, [0, symbol.step + end], [0, symbol.value])
        } else {
            packed(symbol.bits(), symbol.size, [0, symbol.step], [0, symbol.extend])
        };
        Self { packed, has_coefficient: true }
    }
}

/// A table with one step for each index of `BITS` bits.
#[derive(Debug, Clone)]
pub(super) struct StepTable<const BITS: u32, const LENGTH: usize>([DecodeStep; LENGTH]);

pub(super) type StartTable = StepTable<START_BITS, { 1 << START_BITS }>;
pub(super) type RestTable = StepTable<INDEX_BITS, LENGTH>;

impl<const BITS: u32, const LENGTH: usize> StepTable<BITS, LENGTH> {
    const EMPTY: Self = Self([DecodeStep::UNKNOWN; LENGTH]);

    /// Returns the step for the next bits, at the top of `bits`.
    #[inline(always)]
    pub(super) fn step(&self, bits: u64) -> DecodeStep {
        self.0[(bits >> (64 - BITS)) as usize & (LENGTH - 1)]
    }
}

/// The step tables of a component.
#[derive(Debug)]
pub(super) struct StepTables {
    /// For the start of a block.
    pub(super) start: StartTable,
    /// For the rest of a block, after the DC coefficient.
    pub(super) rest: RestTable,
    /// The definitions of the DC and AC Huffman tables.
    sources: (Vec<u8>, Vec<u8>),
}

impl Default for StepTables {
    fn default() -> Self {
        Self { start: StepTable::EMPTY, rest: StepTable::EMPTY, sources: Default::default() }
    }
}

impl StepTables {
    /// Builds the tables from the Huffman tables `dc` and `ac`, unless they are already built from the same
    /// definitions.
    pub(super) fn define(&mut self, dc: &LookupTable, ac: &LookupTable) {
        if self.sources.0 == dc.source && self.sources.1 == ac.source {
            return;
        }
        self.sources = (dc.source.clone(), ac.source.clone());
        let symbols: [Symbol; LENGTH] = std::array::from_fn(|index| Symbol::at(ac, index, INDEX_BITS));
        // The tail for each number of bits left and each value of those bits; tails of n bits start at index 1 << n. A
        // symbol with a value takes two bits or more; a symbol without a value adds nothing.
        let mut tails = [StepTail::default(); LENGTH / 2];
        for left in 1..INDEX_BITS - 1 {
            let first = 1 << left;
            for (bits, tail) in tails[first..2 * first].iter_mut().enumerate() {
                *tail = StepTail::at(&symbols, bits << (INDEX_BITS - left), left);
            }
        }
        let step = |symbol: Symbol, index: usize, bits: u32| match bits.checked_sub(symbol.bits()) {
            Some(left) => {
                let tail = tails.get(1 << left | index & ((1 << left) - 1));
                symbol.followed_by(tail.copied().unwrap_or_default())
            }
            None if symbol.has_sign(bits) && symbol.bits() <= MAX_STEP_BITS => symbol.incomplete(),
            None => DecodeStep::UNKNOWN,
        };
        for (index, start) in self.start.0.iter_mut().enumerate() {
            *start = step(Symbol { step: 0, ..Symbol::at(dc, index, START_BITS) }, index, START_BITS);
        }
        for (index, (rest, symbol)) in self.rest.0.iter_mut().zip(symbols).enumerate() {
            *rest = if !symbol.is_end() {
                step(symbol, index, INDEX_BITS)
            } else if symbol.bits() <= INDEX_BITS {
                DecodeStep(packed(symbol.bits(), 0, [1, 1 + END_ALONE], [0; 2]))
            } else {
                DecodeStep::UNKNOWN
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Creates a table with at most `counts` codes of each length, for the first of `symbols`.
    fn table(counts: &[u8], symbols: &[u8], is_ac: bool) -> LookupTable {
        let (mut source, mut free, mut used) = (Vec::new(), 1, 0);
        for &count in counts {
            // The all-ones code is not allowed.
            free *= 2;
            let count = usize::from(count).min(free - 1).min(symbols.len() - used);
            (free, used) = (free - count, used + count);
            source.push(count as u8);
        }
        source.extend(&symbols[..used]);
        LookupTable::new(&source, is_ac).unwrap()
    }

    /// Decodes the bits of `step` with single lookups: returns the nonzero coefficients, and whether the block ends.
    fn single_lookups(
        step: DecodeStep,
        first: &LookupTable,
        rest: &LookupTable,
        bits: u64,
        k: u32,
    ) -> (BTreeMap<u32, i16>, bool) {
        let (mut found, mut used, mut k) = (BTreeMap::new(), 0, k);
        while used < step.bits() {
            let is_start = k == 0 && used == 0;
            let entry = if is_start { first } else { rest }.entry(bits << used).unwrap();
            let value = entry.value(bits << used) as i16;
            used += entry.bits();
            if !is_start {
                if entry.step() == END_OF_BLOCK {
                    assert_eq!(used, step.bits(), "nothing follows the end");
                    return (found, true);
                }
                k += entry.step();
            }
            found.insert(k, value);
        }
        assert_eq!(used, step.bits(), "no symbol is split between steps");
        found.retain(|_, value| *value != 0);
        (found, false)
    }

    fn without_zeros(found: impl IntoIterator<Item = (u32, i16)>) -> BTreeMap<u32, i16> {
        found.into_iter().filter(|(_, value)| *value != 0).collect()
    }

    proptest! {
        /// Tests every index, followed by arbitrary bits.
        #[test]
        fn steps_match_single_lookups(
            counts in prop::collection::vec(0u8..6, 16),
            dc_counts in prop::collection::vec(0u8..3, 16),
            symbols in Just((0..=255u8).filter(|symbol| symbol & 15 <= 10).collect::<Vec<_>>()).prop_shuffle(),
            dc_symbols in Just((0..=11u8).collect::<Vec<_>>()).prop_shuffle(),
            noise: u64,
            k in 1u32..20,
        ) {
            let (dc, ac) = (table(&dc_counts, &dc_symbols, false), table(&counts, &symbols, true));
            let mut tables = StepTables::default();
            tables.define(&dc, &ac);
            let mut known = [0, 0];
            for index in 0..LENGTH as u64 {
                let bits = index << (64 - INDEX_BITS) | noise >> INDEX_BITS;
                for (n, k) in [0, k].into_iter().enumerate() {
                    let step = if k == 0 { tables.start.step(bits) } else { tables.rest.step(bits) };
                    if step.is_unknown() {
                        // No code matches, or the symbol is too long.
                        if let Some(entry) = if k == 0 { &dc } else { &ac }.entry(bits) {
                            let index_bits = if k == 0 { START_BITS } else { INDEX_BITS };
                            prop_assert!(entry.code_bits() >= index_bits || entry.bits() > MAX_STEP_BITS);
                        }
                        continue;
                    }
                    known[n] += 1;
                    prop_assert!(step.bits() > 0 && step.bits() <= MAX_STEP_BITS);
                    let (expected, ends) = single_lookups(step, &dc, &ac, bits, k);
                    prop_assert_eq!(DecodeStep::ends(step.last(k)), ends);
                    let positions = [step.first(k) & 63, step.last(k) & 63];
                    let values = [step.first_value(), step.last_value(bits)];
                    let found = without_zeros([(positions[0], values[0]), (positions[1], values[1])]);
                    prop_assert_eq!(&found, &without_zeros(expected));
                    if k == 0 {
                        prop_assert_eq!(step.dc_value(bits), found.get(&0).copied().unwrap_or(0));
                    }
                }
            }
            prop_assert!(counts.iter().take(8).all(|&count| count == 0) || known[1] > 0);
        }
    }
}
