//! From bits to planes, one row of MCUs after the other: first the coefficients of the row, then their samples. Each half
//! is compiled by itself, so that its variables stay in registers.

use std::num::NonZeroUsize;
use std::ops::Range;

use pulp::NullaryFnOnce;

use super::block_reader::{BlockContent, BlockReader};
use super::declined::Declined;
use super::frame::Frame;
use super::huffman::{Table, TableCache};
use super::planes::{McuSpan, PlaneShape, Planes};
use super::request::BaselineRequest;
use super::scan::{PADDING, ScanData, Segments};
use super::{store, upsample};
use crate::block::{Block, QuantTable};
use crate::idct::Backend;
use crate::pixel_format::PixelFormat;

/// One image to decode.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeJob<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) request: BaselineRequest,
}

impl DecodeJob<'_> {
    /// Decodes `scan` into `out`.
    pub(super) fn run(
        self,
        backend: impl Backend,
        tables: &TableCache,
        scan: &ScanData,
        planes: &mut Planes,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        let Self { frame, request } = self;
        let BaselineRequest { scale, region, format, .. } = request;
        let shapes = PlaneShape::of(frame, scale)?;
        let span = McuSpan::of(&shapes, region);
        planes.reshape(frame.sampling.is_gray, shapes, &span)?;
        let mut components = [None; 3];
        for (n, component) in frame.components.iter().enumerate().take(frame.sampling.components()) {
            let (dc, ac) = tables.pair(component.dc, component.ac).ok_or(Declined)?;
            let quant = frame.quant.get(component.quant).and_then(Option::as_ref).ok_or(Declined)?;
            let (shape, is_needed) = (shapes[n.min(1)], n == 0 || format == PixelFormat::Rgb);
            components[n] = Some(CodedComponent { dc, ac, quant, shape, is_needed });
        }
        let mcu = shapes[0].mcu();
        let (columns, rows) = (shapes[0].width.div_ceil(mcu.0), shapes[0].height.div_ceil(mcu.1));
        let mut reader = McuReader {
            segments: scan.segments(),
            // As if a segment had been read to its end.
            reader: BlockReader::new(&[0; PADDING]),
            last_dc: [0; 3],
            left: 0,
            restart: frame.restart.map_or(usize::MAX, NonZeroUsize::get),
        };
        let mut blocks = std::mem::take(&mut planes.blocks);
        let none = 0..0;
        let end = if request.reads_to_end { rows } else { span.rows.end };
        for row in 0..end {
            let needed = if span.rows.contains(&row) { &span.columns } else { &none };
            backend.run(ReadRow { reader: &mut reader, components, columns, needed, blocks: &mut blocks })?;
            if !needed.is_empty() {
                let row = row - span.rows.start;
                backend.run(WriteRow { backend, components, needed, row, blocks: &mut blocks, planes })?;
            }
        }
        planes.blocks = blocks;
        backend.run(WritePixels { backend, is_gray: frame.sampling.is_gray, planes, request, out });
        reader.check_end(end == rows)
    }
}

/// A component with its tables and the shape of its samples.
#[derive(Debug, Clone, Copy)]
struct CodedComponent<'a> {
    dc: &'a Table,
    ac: &'a Table,
    quant: &'a QuantTable,
    shape: PlaneShape,
    /// Whether the output depends on it.
    is_needed: bool,
}

/// Reads one MCU after the other, across restarts.
struct McuReader<'a> {
    /// Segments that were not started.
    segments: Segments<'a>,
    reader: BlockReader<'a>,
    /// DC coefficient of the last block of each component.
    last_dc: [i32; 3],
    /// MCUs left in the segment.
    left: usize,
    /// Restart interval: MCUs per segment.
    restart: usize,
}

impl McuReader<'_> {
    /// Moves to the next MCU, and to the next segment at the end of one.
    #[inline(always)]
    fn next_mcu(&mut self) -> Result<(), Declined> {
        if self.left == 0 {
            self.reader.check_end(true)?;
            self.reader = BlockReader::new(self.segments.next().ok_or(Declined)?);
            (self.last_dc, self.left) = ([0; 3], self.restart);
        }
        self.left -= 1;
        Ok(())
    }

    /// Fails when more was read than the segment has or, after `all` MCUs of the image, when anything is left.
    fn check_end(mut self, all: bool) -> Result<(), Declined> {
        self.reader.check_end(all)?;
        if all && self.segments.next().is_some() { Err(Declined) } else { Ok(()) }
    }
}

/// Reads the coefficients of a row of MCUs. Blocks that are not needed are skipped; later ones depend on their DC.
struct ReadRow<'a, 'd> {
    reader: &'a mut McuReader<'d>,
    components: [Option<CodedComponent<'a>>; 3],
    /// MCUs in the row.
    columns: usize,
    /// The MCUs that the region needs.
    needed: &'a Range<usize>,
    blocks: &'a mut Vec<(Block, BlockContent)>,
}

impl NullaryFnOnce for ReadRow<'_, '_> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let components = self.components.iter().flatten();
        let per_mcu: usize =
            components.clone().filter(|c| c.is_needed).map(|c| c.shape.columns * c.shape.rows).sum();
        // All blocks are zero: the transform clears what it has read.
        self.blocks.resize(self.needed.len() * per_mcu, ([0; 64], BlockContent::DcOnly));
        let mut blocks = self.blocks.iter_mut();
        for mcu in 0..self.columns {
            self.reader.next_mcu()?;
            let McuReader { reader, last_dc, .. } = self.reader;
            let is_inside = self.needed.contains(&mcu);
            for (component, last_dc) in components.clone().zip(last_dc) {
                for _ in 0..component.shape.columns * component.shape.rows {
                    if !is_inside || !component.is_needed {
                        reader.skip(component.dc, component.ac, last_dc)?;
                        continue;
                    }
                    let (block, content) = blocks.next().ok_or(Declined)?;
                    *content = if component.shape.side > 1 {
                        reader.read(component.dc, component.ac, last_dc, block)?
                    } else {
                        // A single sample is the mean.
                        reader.skip(component.dc, component.ac, last_dc)?;
                        block[0] = *last_dc as i16;
                        BlockContent::DcOnly
                    };
                }
            }
        }
        Ok(())
    }
}

/// Transforms the coefficients of a row of MCUs.
struct WriteRow<'a, B> {
    backend: B,
    components: [Option<CodedComponent<'a>>; 3],
    /// The MCUs that the region needs.
    needed: &'a Range<usize>,
    /// Row of MCUs in the planes.
    row: usize,
    blocks: &'a mut [(Block, BlockContent)],
    planes: &'a mut Planes,
}

impl<B: Backend> NullaryFnOnce for WriteRow<'_, B> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut blocks = self.blocks.iter_mut();
        for mcu in 0..self.needed.len() {
            let components = self.components.iter().flatten().enumerate();
            for (index, component) in components.filter(|(_, c)| c.is_needed) {
                let PlaneShape { columns, rows, side, .. } = component.shape;
                let (plane, stride) = self.planes.plane(index);
                for row in 0..rows {
                    let at = (self.row * rows + row) * side * stride + mcu * columns * side;
                    for column in 0..columns {
                        let (block, content) = blocks.next().ok_or(Declined)?;
                        let plane = plane.get_mut(at + column * side..).ok_or(Declined)?;
                        store::store(self.backend, *content, component.quant, block, side, plane, stride)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Converts the planes to pixels.
struct WritePixels<'a, B> {
    backend: B,
    is_gray: bool,
    planes: &'a mut Planes,
    request: BaselineRequest,
    out: &'a mut [u8],
}

impl<B: Backend> NullaryFnOnce for WritePixels<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        upsample::write(self.backend, self.is_gray, self.planes, self.request, self.out);
    }
}
