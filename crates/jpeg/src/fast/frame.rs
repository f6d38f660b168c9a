//! The headers of a file that this decoder supports.

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
}

/// A component: its quantization table, and the slots of its Huffman tables.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) quant: QuantTable,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

/// The frame header, with the tables it uses, and the scan of a sequential file.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) sampling: Sampling,
    pub(super) components: Vec<Component>,
    /// Restart interval: MCUs between restart markers.
    pub(super) restart: Option<NonZeroUsize>,
    /// The bytes after the scan header. Empty in a progressive file.
    pub(super) scan: &'a [u8],
}

/// Maximum width and height. It bounds the size of the buffers.
const MAX_SIDE: usize = 1 << 14;

impl<'a> Frame<'a> {
    /// Returns the frame of a file with the headers `layout`. Defines its Huffman tables in `tables`, unless the file is
    /// progressive: each of its scans has its own.
    pub(super) fn of(layout: &JpegLayout<'a>, tables: &mut TableCache) -> Result<Self, Declined> {
        let is_sound = layout.process != Process::Lossless
            && !layout.is_arithmetic
            && layout.precision == 8
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
        let mut components = Vec::with_capacity(factors.len());
        for component in &layout.components {
            let values = component.quant.ok_or(Declined)?;
            if values.iter().any(|value| !(1..=255).contains(value)) {
                return Err(Declined);
            }
            components.push(Component { quant: QuantTable::new(&values), dc: 0, ac: 0 });
        }
        let (width, height) = (layout.width, layout.height);
        let mut frame = Frame { width, height, sampling, components, restart: None, scan: &[] };
        if layout.process == Process::Sequential {
            let scan = layout.scans.first().ok_or(Declined)?;
            if !scan.components.iter().map(|member| member.index).eq(0..frame.components.len()) {
                return Err(Declined);
            }
            for (component, member) in frame.components.iter_mut().zip(&scan.components) {
                (component.dc, component.ac) = member.slots;
                tables.define(component.dc, false, member.dc)?;
                tables.define(component.ac, true, member.ac)?;
            }
            (frame.restart, frame.scan) = (NonZeroUsize::new(scan.restart), scan.data);
        }
        Ok(frame)
    }

    /// Returns the number of MCUs per row and of rows of MCUs.
    pub(super) fn mcus(&self) -> (usize, usize) {
        let Sampling { columns, rows, .. } = self.sampling;
        (self.width.div_ceil(8 * columns), self.height.div_ceil(8 * rows))
    }
}
