//! Decoding of MCU rows to planes, one group of MCUs at a time: first the coefficients of the group, which stay in the
//! L1 cache, then its samples. The two halves are compiled separately, so that their variables stay in registers.

use pulp::NullaryFnOnce;

use super::block_reader::{Coefficients, Skipped, read_block};
use super::coded_blocks::{CodedBlock, GROUP_BLOCKS, store};
use super::frame::{Component, Frame};
use super::mcu_reader::{BlockPart, CodedBlockKind, McuReader, SkipMcus};
use super::planes::{McuSpan, PlaneShape, Planes};
use super::request::Declined;
use crate::block::QuantTable;
use crate::idct::Backend;
use crate::options::{Region, Scale};

/// The parts of an image that the caller needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) scale: Scale,
    /// The pixels to decode, at that scale.
    pub(super) region: Region,
    pub(super) has_chroma: bool,
    /// Whether chroma will be upsampled to the resolution of luma.
    pub(super) is_upsampled: bool,
}

/// A source of the coefficients of an image.
pub(super) trait McuSource {
    /// Reads the needed blocks of `count` MCUs, from MCU `first` on, into `blocks`, which are zero. MCUs are requested in
    /// order; some are never requested.
    fn read(
        &mut self,
        backend: impl Backend,
        first: usize,
        count: usize,
        blocks: &mut [CodedBlock],
    ) -> Result<(), Declined>;
}

/// The plan for decoding one image: the MCUs and the parts of its components that are needed.
#[derive(Debug)]
pub(super) struct McuPlan<'a> {
    shapes: [PlaneShape; 2],
    span: McuSpan,
    is_gray: bool,
    components: [Option<CodedComponent<'a>>; 3],
    /// MCUs per row.
    columns: usize,
}

impl<'a> McuPlan<'a> {
    pub(super) fn new(frame: &'a Frame<'_>, needs: Needs) -> Result<Self, Declined> {
        let Needs { scale, region, has_chroma, is_upsampled } = needs;
        let shapes = PlaneShape::of(frame, scale, is_upsampled)?;
        let mut components = [None; 3];
        for (n, Component { quant, .. }) in frame.components.iter().enumerate() {
            let (shape, is_needed) = (shapes[n.min(1)], n == 0 || has_chroma);
            components[n] = Some(CodedComponent { quant, shape, is_needed });
        }
        let (span, is_gray) = (McuSpan::of(&shapes, region), frame.sampling.is_gray);
        Ok(Self { shapes, span, is_gray, components, columns: frame.mcus().0 })
    }

    /// Returns the part of the blocks of each component that is needed.
    pub(super) fn parts(&self) -> [BlockPart; 3] {
        self.components.map(|component| match component {
            Some(CodedComponent { is_needed: true, shape: PlaneShape { side: 1, .. }, .. }) => BlockPart::Dc,
            Some(CodedComponent { is_needed: true, .. }) => BlockPart::All,
            _ => BlockPart::Nothing,
        })
    }

    /// Decodes the MCUs of `source` into `planes`.
    pub(super) fn run(
        self,
        backend: impl Backend,
        source: &mut impl McuSource,
        planes: &mut Planes,
    ) -> Result<(), Declined> {
        let Self { shapes, span, is_gray, components, columns } = self;
        planes.reshape(is_gray, shapes, &span)?;
        let per_mcu: usize =
            components.iter().flatten().filter(|c| c.is_needed).map(|c| c.shape.blocks()).sum();
        let group = GROUP_BLOCKS / per_mcu;
        let mut blocks = std::mem::take(&mut planes.blocks);
        for row in span.rows.clone() {
            let needed = span.columns.clone();
            for start in needed.clone().step_by(group) {
                let count = group.min(needed.end - start);
                let blocks = blocks.reset(count * per_mcu)?;
                source.read(backend, row * columns + start, count, blocks)?;
                let place = (start - needed.start, row - span.rows.start);
                backend.run(WriteMcus { backend, components, count, place, blocks, planes })?;
            }
        }
        planes.blocks = blocks;
        Ok(())
    }
}

/// The MCUs of a scan that contains all coefficients.
pub(super) struct McuStream<'a> {
    reader: McuReader<'a>,
    /// Number of the MCU that the reader returns next.
    next: usize,
    /// Whether all coefficients of every block are needed.
    is_whole: bool,
}

impl<'a> McuStream<'a> {
    pub(super) fn new(reader: McuReader<'a>) -> Self {
        let is_whole = reader.pattern.iter().flatten().all(|kind| kind.part == BlockPart::All);
        Self { reader, next: 0, is_whole }
    }

    /// Ends reading of an image of `count` MCUs. With `reads_to_end`, damage in its last MCUs is found although they are
    /// not needed.
    pub(super) fn finish(
        mut self,
        backend: impl Backend,
        count: usize,
        reads_to_end: bool,
    ) -> Result<(), Declined> {
        if reads_to_end {
            self.skip_to(backend, count)?;
        }
        self.reader.check_end(self.next == count)
    }

    fn skip_to(&mut self, backend: impl Backend, mcu: usize) -> Result<(), Declined> {
        let count = mcu - self.next;
        if count > 0 {
            backend.run(SkipMcus { reader: &mut self.reader, count })?;
        }
        self.next = mcu;
        Ok(())
    }
}

impl McuSource for McuStream<'_> {
    fn read(
        &mut self,
        backend: impl Backend,
        first: usize,
        count: usize,
        blocks: &mut [CodedBlock],
    ) -> Result<(), Declined> {
        self.skip_to(backend, first)?;
        self.next += count;
        let reader = &mut self.reader;
        if self.is_whole {
            backend.run(ReadMcus::<true> { reader, count, blocks })
        } else {
            backend.run(ReadMcus::<false> { reader, count, blocks })
        }
    }
}

/// A component and the shape of its samples.
#[derive(Debug, Clone, Copy)]
struct CodedComponent<'a> {
    quant: &'a QuantTable,
    shape: PlaneShape,
    /// Whether the output depends on the component.
    is_needed: bool,
}

/// Reads the coefficients of some MCUs of a row. With `WHOLE`, every block is needed completely: without the code for
/// partial blocks, more variables stay in registers.
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
                        store(self.backend, component.quant, block, side, plane, stride)?;
                    }
                }
            }
        }
        Ok(())
    }
}
