//! Quantization and Huffman tables as stored in a file. As in libjpeg, they are checked when a scan uses them.

use super::component::Process;
use super::scan::HuffmanSpec;
use crate::error::Error;

/// Number of slots for tables of one kind.
const SLOTS: usize = 4;

/// Largest DC symbol: the bit length of the difference between two coefficients, or two samples of a lossless file.
const MAX_DC_SYMBOL: u8 = 15;
const MAX_LOSSLESS_SYMBOL: u8 = 16;

/// The quantization tables defined so far.
#[derive(Debug, Default)]
pub(super) struct QuantSlots([Option<[u16; 64]>; SLOTS]);

impl QuantSlots {
    /// Reads a DQT segment.
    pub(super) fn read(&mut self, mut payload: &[u8]) -> Result<(), Error> {
        let short = || Error::corrupt("a quantization table has the wrong length");
        while let [precision_and_slot, rest @ ..] = payload {
            let slot = precision_and_slot & 15;
            let slot = self.0.get_mut(usize::from(slot)).ok_or_else(|| no_slot("quantization", slot))?;
            let mut table = [0; 64];
            let bytes_per_number = if precision_and_slot >> 4 == 0 { 1 } else { 2 };
            let (numbers, rest) = rest.split_at_checked(64 * bytes_per_number).ok_or_else(short)?;
            for (to, from) in table.iter_mut().zip(numbers.chunks_exact(bytes_per_number)) {
                *to = from.iter().fold(0, |number, byte| number << 8 | u16::from(*byte));
            }
            *slot = Some(table);
            payload = rest;
        }
        Ok(())
    }

    /// Returns the table in `slot`.
    pub(super) fn get(&self, slot: usize) -> Result<[u16; 64], Error> {
        let missing =
            || Error::corrupt(format!("a component needs quantization table {slot}, which is not defined"));
        self.0.get(slot).copied().flatten().ok_or_else(missing)
    }
}

/// The Huffman tables defined so far.
#[derive(Debug, Default)]
pub(super) struct HuffmanSlots<'a> {
    dc: [Option<HuffmanSpec<'a>>; SLOTS],
    ac: [Option<HuffmanSpec<'a>>; SLOTS],
}

impl<'a> HuffmanSlots<'a> {
    /// Reads a DHT segment.
    pub(super) fn read(&mut self, mut payload: &'a [u8]) -> Result<(), Error> {
        let short = || Error::corrupt("a Huffman table has the wrong length");
        while let [class_and_slot, rest @ ..] = payload {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(short)?;
            let count: usize = counts.iter().map(|&count| usize::from(count)).sum();
            if count > 256 {
                return Err(Error::corrupt(format!("a Huffman table has {count} codes")));
            }
            let (symbols, rest) = rest.split_at_checked(count).ok_or_else(short)?;
            let tables = if class_and_slot & 0x10 != 0 { &mut self.ac } else { &mut self.dc };
            let slot = tables.get_mut(usize::from(class_and_slot & !0x10));
            let slot = slot.ok_or_else(|| no_slot("Huffman", *class_and_slot))?;
            *slot = Some(HuffmanSpec { counts, symbols });
            payload = rest;
        }
        Ok(())
    }

    /// Returns the table in `slot` if its code lengths form a prefix code.
    pub(super) fn checked(&self, is_ac: bool, slot: u8, process: Process) -> Result<HuffmanSpec<'a>, Error> {
        let tables = if is_ac { &self.ac } else { &self.dc };
        let missing = || Error::corrupt(format!("a scan needs Huffman table {slot}, which is not defined"));
        let table = tables.get(usize::from(slot)).copied().flatten().ok_or_else(missing)?;
        let mut codes = 0usize;
        for (length, &count) in (1..).zip(table.counts) {
            codes = 2 * codes + usize::from(count);
            // The all-ones code is not allowed.
            if count > 0 && codes >= 1 << length {
                return Err(Error::corrupt(format!(
                    "a Huffman table has too many codes of up to {length} bits"
                )));
            }
        }
        let max_symbol = if process == Process::Lossless { MAX_LOSSLESS_SYMBOL } else { MAX_DC_SYMBOL };
        if !is_ac && table.symbols.iter().any(|symbol| *symbol > max_symbol) {
            return Err(Error::corrupt(format!(
                "a Huffman table for DC coefficients has a symbol above {max_symbol}"
            )));
        }
        Ok(table)
    }
}

fn no_slot(kind: &str, slot: u8) -> Error {
    Error::corrupt(format!("the {kind} table slot {slot} is out of range"))
}
