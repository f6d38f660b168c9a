//! Decoding of MCU rows to planes, one group of MCUs at a time: first the coefficients of the group, which stay in the
//! L1 cache, then its samples. The two halves are compiled separately, so that their variables stay in registers.

use pulp::NullaryFnOnce;

use super::block_reader::{Coefficients, Skipped, read_block};
use super::coded_blocks::{CodedBlock, GROUP_BLOCKS};
use super::declined::Declined;
use super::frame::Frame;
use super::huffman::TableCache;
use super::mcu_reader::{BlockPart, CodedBlockKind, McuReader, SkipMcus};
use super::planes::{McuSpan, PlaneShape, Planes};
use super::scan::ScanData;
use super::step_table::StepTables;
use super::store;
use crate::block::QuantTable;
use crate::idct::Backend;
use crate::region::Region;
use crate::scale::Scale;

/// The parts of an image that the caller needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) scale: Scale,
    /// The pixels to decode, at that scale.
    pub(super) region: Region,
    /// Whether the file is read to its end, even outside the region.
    pub(super) reads_to_end: bool,
    pub(super) has_chroma: bool,
    /// Whether chroma will be upsampled to the resolution of luma.
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
        steps: &mut [StepTables; 3],
        scan: &ScanData,
        planes: &mut Planes,
    ) -> Result<(), Declined> {
        let Self { frame, needs } = self;
        let Needs { scale, region, reads_to_end, has_chroma, is_upsampled } = needs;
        let shapes = PlaneShape::of(frame, scale, is_upsampled)?;
        let span = McuSpan::of(&shapes, region);
        planes.reshape(frame.sampling.is_gray, shapes, &span)?;
        let mcu = shapes[0].mcu();
        let (columns, rows) = (shapes[0].width.div_ceil(mcu.0), shapes[0].height.div_ceil(mcu.1));
        let mut components = [None; 3];
        for (n, component) in frame.components.iter().enumerate().take(frame.sampling.components()) {
            let quant = frame.quant.get(component.quant).and_then(Option::as_ref).ok_or(Declined)?;
            let (shape, is_needed) = (shapes[n.min(1)], n == 0 || has_chroma);
            components[n] = Some(CodedComponent { quant, shape, is_needed });
        }
        let parts = components.map(|component| match component {
            Some(CodedComponent { is_needed: true, shape: PlaneShape { side: 1, .. }, .. }) => BlockPart::Dc,
            Some(CodedComponent { is_needed: true, .. }) => BlockPart::All,
            _ => BlockPart::Nothing,
        });
        let per_mcu: usize =
            components.iter().flatten().filter(|c| c.is_needed).map(|c| c.shape.blocks()).sum();
        let mut reader = McuReader::new(frame, parts, tables, steps, scan)?;
        reader.reads_all = reads_to_end;
        let is_whole = reader.pattern.iter().flatten().all(|kind| kind.part == BlockPart::All);
        let group = GROUP_BLOCKS / per_mcu;
        let mut blocks = std::mem::take(&mut planes.blocks);
        // MCUs to skip before the next needed one.
        let mut gap = span.rows.start * columns;
        for row in span.rows.clone() {
            let needed = span.columns.clone();
            backend.run(SkipMcus { reader: &mut reader, count: gap + needed.start })?;
            gap = columns - needed.end;
            for start in needed.clone().step_by(group) {
                let count = group.min(needed.end - start);
                let blocks = blocks.reset(count * per_mcu)?;
                if is_whole {
                    backend.run(ReadMcus::<true> { reader: &mut reader, count, blocks })?;
                } else {
                    backend.run(ReadMcus::<false> { reader: &mut reader, count, blocks })?;
                }
                let place = (start - needed.start, row - span.rows.start);
                backend.run(WriteMcus { backend, components, count, place, blocks, planes })?;
            }
        }
        if reads_to_end {
            gap += (rows - span.rows.end) * columns;
            backend.run(SkipMcus { reader: &mut reader, count: gap })?;
            gap = 0;
        }
        planes.blocks = blocks;
        reader.check_end(reads_to_end || (span.rows.end == rows && gap == 0))
    }
}

/// A component and the shape of its samples.
#[derive(Debug, Clone, Copy)]
struct CodedComponent<'a> {
    quant: &'a QuantTable,
    shape: PlaneShape,
    /// Whether the output depends on it.
    is_needed: bool,
}

/// Reads the coefficients of some MCUs of a row. With `WHOLE`, all of every block is needed: without the code that
/// skips, more variables stay in registers.
struct ReadMcus<'a, 'd, const WHOLE: bool> {
    reader: &'a mut McuReader<'d>,
    count: usize,
    /// The needed blocks, filled with zeros.
    blocks: &'a mut [CodedBlock],
}

impl<const WHOLE: bool> NullaryFnOnce for ReadMcus<'_, '_, WHOLE> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut blocks = self.blocks.iter_mut();
        for _ in 0..self.count {
            self.reader.next_mcu()?;
            let McuReader { reader: source, last_dc, pattern, .. } = self.reader;
            let mut reader = *source;
            for CodedBlockKind { component, tables, part } in pattern.iter().flatten() {
                let last_dc = &mut last_dc[*component];
                if WHOLE || *part == BlockPart::All {
                    read_block(&mut reader, tables, last_dc, blocks.next().ok_or(Declined)?)?;
                    continue;
                }
                read_block(&mut reader, tables, last_dc, &mut Skipped)?;
                if *part == BlockPart::Dc {
                    blocks.next().ok_or(Declined)?.put(0, *last_dc as i16);
                }
            }
            *source = reader;
        }
        Ok(())
    }
}

/// Transforms the coefficients of some MCUs of a row to samples.
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
                        let block = blocks.next().ok_or(Declined)?;
                        let plane = plane.get_mut(at + column * side..).ok_or(Declined)?;
                        store::store(self.backend, component.quant, block, side, plane, stride)?;
                    }
                }
            }
        }
        Ok(())
    }
}
