//! Insertion of restart markers into a file without them.
//!
//! Restart markers divide the entropy-coded data into segments that can be read independently (T.81, F.1.2.3). Little
//! else changes: the last byte before a marker is padded with ones, and the first block of each component after a
//! marker stores its DC coefficient instead of the difference from the previous block. All other bits are copied, so
//! the coefficients, and therefore the pixels, stay the same.

use std::num::NonZeroU16;

use super::bit_reader::BitReader;
use super::block_reader::{Skipped, read_block};
use super::decoder::{FastDecoder, headers};
use super::frame::{Component, Frame};
use super::huffman::{MAX_DC_BITS, TableCache};
use super::mcu_reader::{BlockPart, McuReader, SkipMcus};
use super::request::Declined;
use crate::bit_writer::BitWriter;
use crate::idct::{Backend, Portable};
use crate::rewrite::{HuffmanCode, Symbol};
use crate::structure::{Process, segments};

/// Maximum length of a Huffman code.
const MAX_CODE_BITS: usize = 16;

impl FastDecoder {
    /// Returns the file `bytes` with a restart marker after every `interval` MCUs. An MCU has 16×16 pixels with 4:2:0,
    /// 16×8 with 4:2:2, and 8×8 otherwise. Crops of the new file are decoded faster, because only the segments that
    /// they need are read.
    ///
    /// The coefficients and all other segments of the file stay the same, except that Huffman tables for DC
    /// coefficients get the codes they lack.
    ///
    /// # Errors
    ///
    /// [`Declined`] if the file is of a kind that this decoder does not support, is damaged, or has restart markers.
    pub fn with_restarts(&mut self, bytes: &[u8], interval: NonZeroU16) -> Result<Vec<u8>, Declined> {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return self.with_restarts_by(crate::idct::Avx2(v3), bytes, interval);
        }
        self.with_restarts_by(Portable, bytes, interval)
    }

    /// Implements [`Self::with_restarts`] with the code for one kind of processor.
    fn with_restarts_by(
        &mut self,
        backend: impl Backend,
        bytes: &[u8],
        interval: NonZeroU16,
    ) -> Result<Vec<u8>, Declined> {
        let Self { tables, steps, scan, .. } = self;
        let layout = headers(bytes)?;
        let frame = Frame::of(&layout, tables)?;
        if layout.process != Process::Sequential || frame.restart.is_some() {
            return Err(Declined);
        }
        let after_end = scan.read(frame.scan)?;
        // A marker takes two bytes, and the DC coefficients after it take a few more.
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 32 + 64);
        let header = bytes.len() - frame.scan.len();
        write_header(bytes.get(..header).unwrap_or_default(), interval, &mut out).ok_or(Declined)?;

        let codes = dc_codes(&frame, tables)?;
        let segment = scan.segments().next().ok_or(Declined)?;
        let mut mcus = McuReader::new(&frame, [BlockPart::Nothing; 3], tables, steps, scan)?;
        let mut writer = BitWriter::new(&mut out);
        let (columns, rows) = frame.mcus();
        let mut left = columns * rows;
        // Restart markers count from 0 to 7 repeatedly.
        let mut markers = (0xd0..=0xd7).cycle();
        loop {
            write_first_mcu(&mut mcus, segment, &codes, &mut writer)?;
            let more = usize::from(interval.get()).min(left) - 1;
            let start = position(segment, &mcus.reader);
            backend.run(SkipMcus { reader: &mut mcus, count: more })?;
            writer.copy(segment, start..position(segment, &mcus.reader)).ok_or(Declined)?;
            writer.align();
            left -= 1 + more;
            if left == 0 {
                break;
            }
            writer.marker(markers.next().ok_or(Declined)?);
        }
        writer.marker(0xd9);
        mcus.check_end(true)?;
        out.extend_from_slice(after_end);
        Ok(out)
    }
}

/// Returns the number of bits of `segment` that were read.
fn position(segment: &[u8], reader: &BitReader<'_>) -> usize {
    8 * segment.len() - reader.left_bits()
}

/// Copies the next MCU of `mcus`, which reads from `segment`, as the first one after a restart marker.
fn write_first_mcu(
    mcus: &mut McuReader<'_>,
    segment: &[u8],
    codes: &[HuffmanCode],
    writer: &mut BitWriter<'_>,
) -> Result<(), Declined> {
    mcus.next_mcu()?;
    let McuReader { reader, last_dc, pattern, .. } = mcus;
    let mut is_first = [true; 3];
    for kind in pattern.iter().flatten() {
        reader.refill()?;
        let mut start = position(segment, reader);
        if is_first[kind.component] {
            start += kind.tables.dc.entry(reader.bits()).ok_or(Declined)?.bits() as usize;
        }
        let dc = &mut last_dc[kind.component];
        read_block(reader, &kind.tables, dc, &mut Skipped)?;
        if std::mem::take(&mut is_first[kind.component]) {
            let symbol = Symbol::of_dc(*dc, 0).map_err(|_| Declined)?;
            let (code, length) = codes.get(kind.component).ok_or(Declined)?.of(symbol.code);
            writer.put(code.into(), length);
            writer.put(symbol.value, symbol.bits);
        }
        writer.copy(segment, start..position(segment, reader)).ok_or(Declined)?;
    }
    Ok(())
}

/// Copies the segments of `header`, from the start of the file to the scan header, with the new restart interval.
fn write_header(header: &[u8], interval: NonZeroU16, out: &mut Vec<u8>) -> Option<()> {
    let mut at = 2;
    out.extend_from_slice(header.get(..at)?);
    while at < header.len() {
        let (marker, start) = segments::next_marker(header, at).ok()?;
        let payload = match marker {
            // Standalone markers: TEM and RST.
            0x01 | 0xd0..=0xd7 => None,
            _ => Some(segments::payload(header, start).ok()?),
        };
        let end = start + payload.map_or(0, |payload| 2 + payload.len());
        match (marker, payload) {
            // A restart interval of 0.
            (0xdd, _) => {}
            (0xc4, Some(payload)) => write_tables(payload, out).ok()?,
            _ => {
                if marker == 0xda {
                    out.extend_from_slice(&[0xff, 0xdd, 0, 4]);
                    out.extend_from_slice(&interval.get().to_be_bytes());
                }
                out.extend_from_slice(header.get(at..end)?);
            }
        }
        at = end;
    }
    Some(())
}

/// Writes a DHT segment with the tables of `payload`.
fn write_tables(mut payload: &[u8], out: &mut Vec<u8>) -> Result<(), Declined> {
    let mut tables = Vec::new();
    while let [class, rest @ ..] = payload {
        let symbols: usize =
            rest.get(..MAX_CODE_BITS).ok_or(Declined)?.iter().map(|&count| usize::from(count)).sum();
        let (source, rest) = rest.split_at_checked(MAX_CODE_BITS + symbols).ok_or(Declined)?;
        tables.push(*class);
        match class >> 4 {
            0 => tables.extend(with_all_dc_codes(source)?),
            _ => tables.extend_from_slice(source),
        }
        payload = rest;
    }
    let length = u16::try_from(2 + tables.len()).map_err(|_| Declined)?;
    out.extend_from_slice(&[0xff, 0xc4]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&tables);
    Ok(())
}

/// Returns the definition of a DC table with a code for every number of bits. Existing codes stay the same.
///
/// The longest codes never include the one of all ones, so there are 15 unused codes that start with it and are four
/// bits longer.
fn with_all_dc_codes(source: &[u8]) -> Result<Vec<u8>, Declined> {
    let (counts, symbols) = source.split_first_chunk::<MAX_CODE_BITS>().ok_or(Declined)?;
    let missing: Vec<u8> = (0..=MAX_DC_BITS).filter(|bits| !symbols.contains(bits)).collect();
    let mut counts = *counts;
    if !missing.is_empty() {
        let longest = counts.iter().rposition(|&count| count > 0).map_or(0, |index| index + 1);
        *counts.get_mut(longest + 3).ok_or(Declined)? = missing.len() as u8;
    }
    Ok([&counts, symbols, &missing].concat())
}

/// Returns the DC codes of each component in the new file.
fn dc_codes(frame: &Frame<'_>, tables: &TableCache) -> Result<Vec<HuffmanCode>, Declined> {
    let code = |&Component { dc, ac, .. }: &Component| {
        let (table, _) = tables.pair(dc, ac).ok_or(Declined)?;
        code_of(&with_all_dc_codes(&table.source)?)
    };
    frame.components.iter().map(code).collect()
}

/// Returns the code that a DHT segment defines as `source`.
fn code_of(source: &[u8]) -> Result<HuffmanCode, Declined> {
    let (counts, symbols) = source.split_first_chunk().ok_or(Declined)?;
    Ok(HuffmanCode::of_table(*counts, symbols.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_codes_are_added_after_the_existing_ones() {
        // Codes 0, 10 and 110 for differences of 3, 0 and 5 bits.
        let source = [&[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[3, 0, 5]].concat();
        let all = with_all_dc_codes(&source).unwrap();
        assert_eq!(all[..16], [1, 1, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(all[16..], [3, 0, 5, 1, 2, 4, 6, 7, 8, 9, 10, 11]);
        let code = code_of(&all).unwrap();
        assert_eq!((code.of(3), code.of(0), code.of(5)), ((0, 1), (0b10, 2), (0b110, 3)));
        assert_eq!((code.of(1), code.of(11)), ((0b111_0000, 7), (0b111_1000, 7)));
        assert_eq!(with_all_dc_codes(&all).unwrap(), all);
        let too_long = [&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0][..], &[3]].concat();
        assert_eq!(with_all_dc_codes(&too_long), Err(Declined));
    }
}
