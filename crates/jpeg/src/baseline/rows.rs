//! From bits to planes, some MCUs after the other: first their coefficients, which stay in the fastest cache, then their
//! samples. Each half is compiled by itself, so that its variables stay in registers.

use std::num::NonZeroUsize;

use pulp::NullaryFnOnce;

use super::block_reader::{BlockContent, BlockReader};
use super::coded_blocks::CodedBlock;
use super::declined::Declined;
use super::frame::Frame;
use super::huffman::{Table, TableCache};
use super::planes::{McuSpan, PlaneShape, Planes};
use super::scan::{PADDING, ScanData, Segments};
use super::store;
use crate::block::QuantTable;
use crate::idct::Backend;
use crate::region::Region;
use crate::scale::Scale;

/// Blocks that are read before they are transformed: few enough for the fastest cache, beside the tables.
const GROUP_BLOCKS: usize = 48;

/// What is needed of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) scale: Scale,
    /// The pixels, at that scale.
    pub(super) region: Region,
    /// Whether the file is read to its end, even below the region.
    pub(super) reads_to_end: bool,
    pub(super) has_chroma: bool,
    /// Whether chroma will be brought to the resolution of luma.
    pub(super) is_upsampled: bool,
}

/// One image to decode.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeJob<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) needs: Needs,
}

impl DecodeJob<'_> {
    /// Decodes `scan` into `planes`.
    pub(super) fn run(
        self,
        backend: impl Backend,
        tables: &TableCache,
        scan: &ScanData,
        planes: &mut Planes,
    ) -> Result<(), Declined> {
        let Self { frame, needs } = self;
        let Needs { scale, region, reads_to_end, has_chroma, is_upsampled } = needs;
        let shapes = PlaneShape::of(frame, scale, is_upsampled)?;
        let span = McuSpan::of(&shapes, region);
        planes.reshape(frame.sampling.is_gray, shapes, &span)?;
        let mut components = [None; 3];
        for (n, component) in frame.components.iter().enumerate().take(frame.sampling.components()) {
            let (dc, ac) = tables.pair(component.dc, component.ac).ok_or(Declined)?;
            let quant = frame.quant.get(component.quant).and_then(Option::as_ref).ok_or(Declined)?;
            let (shape, is_needed) = (shapes[n.min(1)], n == 0 || has_chroma);
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
        let per_mcu =
            components.iter().flatten().filter(|c| c.is_needed).map(|c| c.shape.blocks()).sum::<usize>();
        let group = (GROUP_BLOCKS / per_mcu.max(1)).max(1);
        let mut blocks = std::mem::take(&mut planes.blocks);
        let end = if reads_to_end { rows } else { span.rows.end };
        for row in 0..end {
            let needed = if span.rows.contains(&row) { span.columns.clone() } else { 0..0 };
            backend.run(ReadMcus::skipping(&mut reader, components, needed.start))?;
            for start in needed.clone().step_by(group) {
                let count = group.min(needed.end - start);
                let blocks = blocks.reset(count * per_mcu)?;
                backend.run(ReadMcus { reader: &mut reader, components, count, blocks })?;
                let place = (start - needed.start, row - span.rows.start);
                backend.run(WriteMcus { backend, components, count, place, blocks, planes })?;
            }
            backend.run(ReadMcus::skipping(&mut reader, components, columns - needed.end))?;
        }
        planes.blocks = blocks;
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

/// Reads the coefficients of some MCUs of a row. Blocks that are not needed are skipped; later ones depend on their DC.
struct ReadMcus<'a, 'd> {
    reader: &'a mut McuReader<'d>,
    components: [Option<CodedComponent<'a>>; 3],
    count: usize,
    /// The blocks that are needed, all of zeros; none, if all MCUs are skipped.
    blocks: &'a mut [CodedBlock],
}

impl<'a, 'd> ReadMcus<'a, 'd> {
    /// Skips `count` MCUs.
    fn skipping(
        reader: &'a mut McuReader<'d>,
        components: [Option<CodedComponent<'a>>; 3],
        count: usize,
    ) -> Self {
        Self { reader, components, count, blocks: &mut [] }
    }
}

impl NullaryFnOnce for ReadMcus<'_, '_> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let is_skipped = self.blocks.is_empty();
        let mut blocks = self.blocks.iter_mut();
        for _ in 0..self.count {
            self.reader.next_mcu()?;
            let McuReader { reader, last_dc, .. } = self.reader;
            for (component, last_dc) in self.components.iter().flatten().zip(last_dc) {
                for _ in 0..component.shape.blocks() {
                    if is_skipped || !component.is_needed {
                        reader.skip(component.dc, component.ac, last_dc)?;
                        continue;
                    }
                    let CodedBlock { coefficients, content } = blocks.next().ok_or(Declined)?;
                    *content = if component.shape.side > 1 {
                        reader.read(component.dc, component.ac, last_dc, coefficients)?
                    } else {
                        // A single sample is the mean.
                        reader.skip(component.dc, component.ac, last_dc)?;
                        coefficients[0] = *last_dc as i16;
                        BlockContent::DcOnly
                    };
                }
            }
        }
        Ok(())
    }
}

/// Transforms the coefficients of some MCUs of a row.
struct WriteMcus<'a, B> {
    backend: B,
    components: [Option<CodedComponent<'a>>; 3],
    count: usize,
    /// Column and row of the first MCU in the planes.
    place: (usize, usize),
    blocks: &'a mut [CodedBlock],
    planes: &'a mut Planes,
}

impl<B: Backend> NullaryFnOnce for WriteMcus<'_, B> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut blocks = self.blocks.iter_mut();
        for mcu in self.place.0..self.place.0 + self.count {
            let components = self.components.iter().flatten().enumerate();
            for (index, component) in components.filter(|(_, c)| c.is_needed) {
                let PlaneShape { columns, rows, side, .. } = component.shape;
                let (plane, stride) = self.planes.plane(index);
                for row in 0..rows {
                    let at = (self.place.1 * rows + row) * side * stride + mcu * columns * side;
                    for column in 0..columns {
                        let CodedBlock { coefficients, content } = blocks.next().ok_or(Declined)?;
                        let plane = plane.get_mut(at + column * side..).ok_or(Declined)?;
                        store::store(
                            self.backend,
                            *content,
                            component.quant,
                            coefficients,
                            side,
                            plane,
                            stride,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}
