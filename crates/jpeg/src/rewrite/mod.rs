//! Lossless rewriting of a file as a baseline JPEG.

mod code;
mod symbols;
#[cfg(test)]
mod tests;

use std::num::NonZeroU16;

pub(crate) use self::code::HuffmanCode;
pub(crate) use self::symbols::Symbol;
use self::symbols::block_symbols;
use crate::bit_writer::BitWriter;
use crate::block::DctBlock;
use crate::error::Error;
use crate::general::{Coefficients, read_image};
use crate::structure::segments::{self, EOI, entropy_coded, next_marker, payload};
use crate::structure::{ColorModel, JpegLayout, MAX_BLOCKS_PER_MCU};

/// Returns the JPEG file `bytes` as a baseline JPEG with one scan, optimal Huffman codes and, if requested, a restart
/// marker after every `restart_interval` MCUs. An MCU has 16×16 pixels with 4:2:0, 16×8 with 4:2:2, and 8×8 otherwise.
///
/// The coefficients stay the same, and therefore the pixels that every decoder produces; so do all other segments, and
/// the bytes after the end of the image. A progressive file becomes a few percent larger, and can then be decoded in a
/// fraction of the time, region by region ([`FastDecoder`](crate::FastDecoder)).
///
/// ```
/// # fn main() -> Result<(), dsconvert_jpeg::Error> {
/// # let bytes = std::fs::read("examples/photo.jpg").unwrap();
/// use dsconvert_jpeg::{JpegLayout, Process, to_baseline};
///
/// let baseline = to_baseline(&bytes, None)?;
/// let layout = JpegLayout::read_strict(&baseline)?;
/// assert_eq!((layout.process(), layout.scan_count()), (Process::Sequential, 1));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if the file is damaged, or if a baseline JPEG cannot represent it: a lossless, arithmetic-coded,
/// incomplete or 12-bit file, quantization tables of 16 bits, tables that change between scans, more than ten blocks in
/// an MCU, or coefficients that no 8-bit pixels produce.
pub fn to_baseline(bytes: &[u8], restart_interval: Option<NonZeroU16>) -> Result<Vec<u8>, Error> {
    let layout = JpegLayout::read_strict(bytes)?;
    layout.check_support()?;
    layout.check_sound()?;
    layout.check_file_size(bytes)?;
    if layout.blocks_per_mcu() > MAX_BLOCKS_PER_MCU {
        return Err(Error::unsupported(format!(
            "the sampling factors {} give more than {MAX_BLOCKS_PER_MCU} blocks per MCU",
            layout.sampling_text()
        )));
    }
    let image = read_image(&layout, |result| result)?;
    let scan = BaselineScan { layout: &layout, image: &image, restart_interval };

    let mut counts = [[0u32; 256]; TABLES];
    scan.for_each_symbol(|event| {
        if let ScanEvent::Symbol(table, symbol) = event
            && let Some(count) = counts[table].get_mut(usize::from(symbol.code))
        {
            *count += 1;
        }
    })?;
    let codes = counts.map(|counts| HuffmanCode::optimal(&counts));

    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    let (frame, after_end) = copy_segments(bytes, &mut out)?;
    push_segment(0xc0, &[frame], &mut out)?;
    for (table, code) in codes.iter().enumerate().filter(|(_, code)| !code.symbols.is_empty()) {
        push_segment(0xc4, &[&[class_and_slot(table)], &code.counts, &code.symbols], &mut out)?;
    }
    if let Some(interval) = restart_interval {
        push_segment(0xdd, &[&interval.get().to_be_bytes()], &mut out)?;
    }
    let selectors: Vec<u8> = (0..layout.components.len())
        .flat_map(|index| [layout.components[index].id, 0x11 * scan.slot(index)])
        .collect();
    push_segment(0xda, &[&[layout.components.len() as u8], &selectors, &[0, 63, 0]], &mut out)?;

    let mut writer = BitWriter::new(&mut out);
    scan.for_each_symbol(|event| match event {
        ScanEvent::Symbol(table, symbol) => {
            let (code, length) = codes[table].of(symbol.code);
            writer.put(code.into(), length);
            writer.put(symbol.value, symbol.bits);
        }
        ScanEvent::Restart(number) => {
            writer.align();
            writer.marker(0xd0 + number);
        }
    })?;
    writer.align();
    writer.marker(EOI);
    out.extend_from_slice(after_end);
    Ok(out)
}

/// Number of Huffman tables: two slots, each with a table for DC and one for AC coefficients.
const TABLES: usize = 4;

/// Returns the index of the table in a slot.
fn table(slot: u8, is_ac: bool) -> usize {
    2 * usize::from(slot) + usize::from(is_ac)
}

/// Returns the first byte of the DHT segment of a table.
fn class_and_slot(table: usize) -> u8 {
    (16 * (table % 2) + table / 2) as u8
}

/// The content of the new scan, in its order.
struct BaselineScan<'a> {
    layout: &'a JpegLayout<'a>,
    image: &'a [Coefficients],
    restart_interval: Option<NonZeroU16>,
}

enum ScanEvent {
    /// A symbol of the table with this index.
    Symbol(usize, Symbol),
    /// The restart marker with this number.
    Restart(u8),
}

impl BaselineScan<'_> {
    /// Returns the slot of the Huffman tables of a component: 1 for chroma, 0 for everything else.
    fn slot(&self, index: usize) -> u8 {
        let is_chroma =
            matches!(self.layout.color, ColorModel::YCbCr | ColorModel::Ycck) && matches!(index, 1 | 2);
        is_chroma.into()
    }

    fn for_each_symbol(&self, mut each: impl FnMut(ScanEvent)) -> Result<(), Error> {
        let Self { layout, image, restart_interval } = self;
        let (columns, rows) = layout.mcus();
        let in_image: Vec<_> = layout.components.iter().map(|c| layout.blocks_with_pixels(c)).collect();
        let interval = restart_interval.map_or(usize::MAX, |interval| interval.get().into());
        let mut last_dc = vec![0i32; image.len()];
        for mcu in 0..columns * rows {
            if mcu > 0 && mcu % interval == 0 {
                each(ScanEvent::Restart(((mcu / interval - 1) % 8) as u8));
                last_dc.fill(0);
            }
            let (row, column) = (mcu / columns, mcu % columns);
            for (index, component) in layout.components.iter().enumerate() {
                let slot = self.slot(index);
                for n in 0..component.horizontal * component.vertical {
                    let place = (
                        column * component.horizontal + n % component.horizontal,
                        row * component.vertical + n / component.horizontal,
                    );
                    let block = match place.0 < in_image[index].0 && place.1 < in_image[index].1 {
                        true => *image[index]
                            .get(place)
                            .ok_or_else(|| Error::corrupt("a block lies outside its component"))?,
                        false => padding_block(last_dc[index]),
                    };
                    let emit = |is_ac, symbol| each(ScanEvent::Symbol(table(slot, is_ac), symbol));
                    block_symbols(&block, last_dc[index], emit)?;
                    last_dc[index] = block[0].into();
                }
            }
        }
        Ok(())
    }
}

/// Returns a block that only completes an MCU. It has no pixel in the image, and progressive files do not store all of its
/// coefficients: as in libjpeg, it repeats the DC coefficient before it.
fn padding_block(last_dc: i32) -> DctBlock {
    let mut block = [0; 64];
    block[0] = last_dc as i16;
    block
}

/// Copies all segments that stay the same to `out`. Returns the payload of the frame header, and the bytes after the end
/// of the image.
fn copy_segments<'a>(bytes: &'a [u8], out: &mut Vec<u8>) -> Result<(&'a [u8], &'a [u8]), Error> {
    out.extend_from_slice(&[0xff, segments::SOI]);
    let (mut frame, mut has_scan) = (&[][..], false);
    let mut at = 2;
    loop {
        let (marker, after) = next_marker(bytes, at)?;
        at = after;
        match marker {
            EOI => return Ok((frame, bytes.get(at..).unwrap_or_default())),
            // Standalone markers: TEM and RST.
            0x01 | 0xd0..=0xd7 => continue,
            _ => {}
        }
        let payload = payload(bytes, at)?;
        at += 2 + payload.len();
        match marker {
            0xc0..=0xc2 => frame = payload,
            0xda => {
                has_scan = true;
                at += entropy_coded(bytes, at).len();
            }
            // Huffman tables, conditioning of arithmetic coding, number of lines, restart interval.
            0xc4 | 0xcc | 0xdc | 0xdd => {}
            0xdb if has_scan => {
                return Err(Error::unsupported("a quantization table is defined between scans"));
            }
            0xdb if payload.chunks(65).any(|table| table[0] >> 4 != 0) => {
                return Err(Error::unsupported("a baseline JPEG cannot have a 16-bit quantization table"));
            }
            // JFIF and Adobe segments define the colors, but readers have determined them at the first scan.
            0xe0 | 0xee if has_scan => {}
            _ => push_segment(marker, &[payload], out)?,
        }
    }
}

fn push_segment(marker: u8, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Error> {
    let length = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
    let length = u16::try_from(length).map_err(|_| Error::unsupported("a segment is too long"))?;
    out.extend_from_slice(&[0xff, marker]);
    out.extend_from_slice(&length.to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}
