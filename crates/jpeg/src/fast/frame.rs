//! Parser for the segments before the entropy-coded data.

use std::num::NonZeroUsize;

use super::huffman::TableCache;
use super::request::Declined;
use crate::block::QuantTable;
use crate::structure::{ColorModel, JpegLayout, Process};

/// Chroma subsampling: the luma blocks per MCU. Each chroma component, if any, has one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampling {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) is_gray: bool,
}

impl Sampling {
    const GRAY: Self = Self { columns: 1, rows: 1, is_gray: true };
    const S444: Self = Self { columns: 1, rows: 1, is_gray: false };
    const S422: Self = Self { columns: 2, rows: 1, is_gray: false };
    const S420: Self = Self { columns: 2, rows: 2, is_gray: false };

    pub(super) fn components(self) -> usize {
        if self.is_gray { 1 } else { 3 }
    }
}

/// A component: its identifier, sampling factors and table slots.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Component {
    id: u8,
    /// Horizontal and vertical sampling factor, packed in one byte as in the file.
    factors: u8,
    pub(super) quant: usize,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

/// The frame and scan headers, with the tables they use.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) sampling: Sampling,
    pub(super) components: [Component; 3],
    /// Quantization tables.
    pub(super) quant: [Option<QuantTable>; 4],
    /// Restart interval: MCUs between restart markers.
    pub(super) restart: Option<NonZeroUsize>,
    /// The bytes after the scan header.
    pub(super) scan: &'a [u8],
}

/// Minimum length of the payload of a JFIF segment. libjpeg ignores shorter ones.
const JFIF_BYTES: usize = 14;
/// The start of an Adobe segment's payload.
const ADOBE: &[u8] = b"Adobe";
/// Index of the color transform in an Adobe segment; its value 1 is YCbCr.
const ADOBE_TRANSFORM: usize = 11;

/// Maximum width and height. It bounds the size of the buffers.
const MAX_SIDE: usize = 1 << 14;

impl<'a> Frame<'a> {
    pub(super) fn read(bytes: &'a [u8], tables: &mut TableCache) -> Result<Self, Declined> {
        let mut rest = bytes.strip_prefix(&[0xff, 0xd8]).ok_or(Declined)?;
        let mut frame = Frame {
            width: 0,
            height: 0,
            sampling: Sampling::GRAY,
            components: Default::default(),
            quant: Default::default(),
            restart: None,
            scan: &[],
        };
        let (mut count, mut is_jfif, mut adobe) = (0, false, None);
        tables.forget();
        loop {
            let [0xff, marker, high, low, after @ ..] = rest else { return Err(Declined) };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let payload = after.get(..length.checked_sub(2).ok_or(Declined)?).ok_or(Declined)?;
            rest = &after[payload.len()..];
            match marker {
                0xe0 => is_jfif |= payload.len() >= JFIF_BYTES && payload.starts_with(b"JFIF\0"),
                0xee if payload.starts_with(ADOBE) => {
                    adobe = Some(*payload.get(ADOBE_TRANSFORM).ok_or(Declined)?);
                }
                0xdd => {
                    let [high, low] = *payload else { return Err(Declined) };
                    frame.restart = NonZeroUsize::new(u16::from_be_bytes([high, low]).into());
                }
                0xe1..=0xef | 0xfe => {}
                0xdb => frame.read_quant(payload)?,
                0xc4 => tables.read(payload)?,
                0xc0 if count == 0 => count = frame.read_frame(payload)?,
                0xda if count > 0 => {
                    frame.read_scan(payload, count)?;
                    frame.scan = rest;
                    break;
                }
                // Other coding processes, and any other markers.
                _ => return Err(Declined),
            }
        }
        // Only YCbCr is accepted. JFIF has no other color model; without JFIF, the component identifiers decide.
        let is_ycbcr = match adobe {
            Some(transform) => transform == 1,
            None => is_jfif || frame.components.map(|c| c.id) == [1, 2, 3],
        };
        if !frame.sampling.is_gray && !is_ycbcr {
            return Err(Declined);
        }
        Ok(frame)
    }

    /// Returns the frame of a progressive file. It has no Huffman tables, because each scan defines its own.
    pub(super) fn of_progressive(layout: &JpegLayout<'_>) -> Result<Frame<'static>, Declined> {
        let is_sound = layout.process == Process::Progressive
            && !layout.is_arithmetic
            && layout.precision == 8
            && layout.damage.is_none()
            && layout.is_complete();
        if !is_sound || layout.width > MAX_SIDE || layout.height > MAX_SIDE {
            return Err(Declined);
        }
        let factors: Vec<_> = layout.components.iter().map(|c| (c.horizontal, c.vertical)).collect();
        let sampling = match (layout.color, &factors[..]) {
            (ColorModel::Gray, [_]) => Sampling::GRAY,
            (ColorModel::YCbCr, [(1, 1), (1, 1), (1, 1)]) => Sampling::S444,
            (ColorModel::YCbCr, [(2, 1), (1, 1), (1, 1)]) => Sampling::S422,
            (ColorModel::YCbCr, [(2, 2), (1, 1), (1, 1)]) => Sampling::S420,
            _ => return Err(Declined),
        };
        let (mut components, mut quant) = ([Component::default(); 3], <[Option<QuantTable>; 4]>::default());
        for (n, component) in layout.components.iter().enumerate() {
            let values = component.quant.ok_or(Declined)?;
            if values.iter().any(|value| !(1..=255).contains(value)) {
                return Err(Declined);
            }
            (components[n].quant, quant[n]) = (n, Some(QuantTable::new(&values)));
        }
        let (width, height) = (layout.width, layout.height);
        Ok(Frame { width, height, sampling, components, quant, restart: None, scan: &[] })
    }

    /// Returns the number of MCUs per row and of rows of MCUs.
    pub(super) fn mcus(&self) -> (usize, usize) {
        let Sampling { columns, rows, .. } = self.sampling;
        (self.width.div_ceil(8 * columns), self.height.div_ceil(8 * rows))
    }

    fn read_quant(&mut self, mut payload: &[u8]) -> Result<(), Declined> {
        while let [slot, rest @ ..] = payload {
            // The upper four bits are the precision: only 8-bit values are accepted.
            let table = self.quant.get_mut(usize::from(*slot)).ok_or(Declined)?;
            let (values, rest) = rest.split_first_chunk::<64>().ok_or(Declined)?;
            if values.contains(&0) {
                return Err(Declined);
            }
            *table = Some(QuantTable::new(values));
            payload = rest;
        }
        Ok(())
    }

    fn read_frame(&mut self, payload: &[u8]) -> Result<usize, Declined> {
        let [8, h0, h1, w0, w1, count, components @ ..] = payload else { return Err(Declined) };
        self.height = u16::from_be_bytes([*h0, *h1]).into();
        self.width = u16::from_be_bytes([*w0, *w1]).into();
        let count = usize::from(*count);
        if !(1..=MAX_SIDE).contains(&self.width)
            || !(1..=MAX_SIDE).contains(&self.height)
            || !matches!(count, 1 | 3)
            || components.len() != 3 * count
        {
            return Err(Declined);
        }
        for (to, from) in self.components.iter_mut().zip(components.as_chunks::<3>().0) {
            let [id, factors, quant] = *from;
            *to = Component { id, factors, quant: quant.into(), ..Component::default() };
            if quant > 3 {
                return Err(Declined);
            }
        }
        self.sampling = match (count, self.components.map(|c| c.factors)) {
            // The factors of a single component have no meaning.
            (1, [0x11 | 0x21 | 0x22, ..]) => Sampling::GRAY,
            (3, [0x11, 0x11, 0x11]) => Sampling::S444,
            (3, [0x21, 0x11, 0x11]) => Sampling::S422,
            (3, [0x22, 0x11, 0x11]) => Sampling::S420,
            _ => return Err(Declined),
        };
        Ok(count)
    }

    fn read_scan(&mut self, payload: &[u8], count: usize) -> Result<(), Declined> {
        let [components, rest @ ..] = payload else { return Err(Declined) };
        let (selectors, spectral) = rest.split_at_checked(2 * count).ok_or(Declined)?;
        if usize::from(*components) != count || spectral != [0, 63, 0] {
            return Err(Declined);
        }
        for (component, [id, tables]) in self.components.iter_mut().zip(selectors.as_chunks::<2>().0) {
            (component.dc, component.ac) = (usize::from(tables >> 4), usize::from(tables & 15));
            if component.id != *id {
                return Err(Declined);
            }
        }
        Ok(())
    }
}
