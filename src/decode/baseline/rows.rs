//! From bits to planes, one row of minimum coded units after the other: first the coefficients of the row, then their
//! samples. Each half is compiled by itself, so that its numbers stay in registers.

use std::ops::Range;

use pulp::NullaryFnOnce;

use super::block::{Content, Quant, Reader};
use super::color;
use super::header::Frame;
use super::huffman::{Cache, Table};
use super::idct::{self, Block, Machine};
use super::planes::{Planes, Span};
use super::{NotOurs, Rect};

/// What is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) rect: Rect,
    pub(super) channels: usize,
}

impl Job<'_> {
    /// Decodes into `out`.
    pub(super) fn run(
        self,
        machine: impl Machine,
        tables: &Cache,
        data: &[u8],
        planes: &mut Planes,
        out: &mut [u8],
    ) -> Result<(), NotOurs> {
        let Self { frame, rect, channels } = self;
        let mcu = frame.sampling.mcu();
        let span = Span::of(frame, rect);
        planes.reshape(frame.sampling, &span);
        let mut components = [None; 3];
        for (n, component) in frame.components.iter().enumerate().take(frame.sampling.components()) {
            let (dc, ac) = tables.pair(component.dc, component.ac).ok_or(NotOurs)?;
            let quant = frame.quant.get(component.quant).and_then(Option::as_ref).ok_or(NotOurs)?;
            let side = if n == 0 { mcu / 8 } else { 1 };
            components[n] = Some(Source { dc, ac, quant, side, wanted: n == 0 || channels == 3 });
        }
        let mut reader = Reader::new(data);
        let mut last = [0; 3];
        let mut blocks = std::mem::take(&mut planes.blocks);
        let none = 0..0;
        for row in 0..span.rows.end {
            let wanted = if span.rows.contains(&row) { &span.columns } else { &none };
            let units = frame.width.div_ceil(mcu);
            machine.run(ReadRow {
                reader: &mut reader,
                components,
                last: &mut last,
                units,
                wanted,
                blocks: &mut blocks,
            })?;
            if !wanted.is_empty() {
                let row = row - span.rows.start;
                machine.run(WriteRow { machine, components, wanted, row, blocks: &mut blocks, planes })?;
            }
        }
        planes.blocks = blocks;
        machine.run(WritePixels { machine, frame, planes, rect, channels, out });
        reader.check_end(span.rows.end == frame.height.div_ceil(mcu))
    }
}

/// Tables of a component, and the blocks it has in a unit: `side` × `side`.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    dc: &'a Table,
    ac: &'a Table,
    quant: &'a Quant,
    side: usize,
    wanted: bool,
}

/// Reads the coefficients of a row of units; of those that are not wanted, only what those behind depend on.
struct ReadRow<'a, 'd> {
    reader: &'a mut Reader<'d>,
    components: [Option<Source<'a>>; 3],
    /// Mean of the last block of each component.
    last: &'a mut [i32; 3],
    units: usize,
    wanted: &'a Range<usize>,
    blocks: &'a mut Vec<(Block, Content)>,
}

impl NullaryFnOnce for ReadRow<'_, '_> {
    type Output = Result<(), NotOurs>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut reader = *self.reader;
        let per_unit: usize =
            self.components.iter().flatten().filter(|c| c.wanted).map(|c| c.side * c.side).sum();
        // All are zero: whoever transforms a block leaves it so.
        self.blocks.resize(self.wanted.len() * per_unit, ([0; 64], Content::Flat));
        let mut blocks = self.blocks.iter_mut();
        for unit in 0..self.units {
            let inside = self.wanted.contains(&unit);
            for (source, last) in self.components.iter().flatten().zip(self.last.iter_mut()) {
                for _ in 0..source.side * source.side {
                    if inside && source.wanted {
                        let (block, content) = blocks.next().ok_or(NotOurs)?;
                        *content = reader.read(source.dc, source.ac, last, block)?;
                    } else {
                        reader.skip(source.dc, source.ac, last)?;
                    }
                }
            }
        }
        *self.reader = reader;
        Ok(())
    }
}

/// Transforms the coefficients of a row of units.
struct WriteRow<'a, M> {
    machine: M,
    components: [Option<Source<'a>>; 3],
    wanted: &'a Range<usize>,
    /// Row of units in the planes.
    row: usize,
    blocks: &'a mut [(Block, Content)],
    planes: &'a mut Planes,
}

impl<M: Machine> NullaryFnOnce for WriteRow<'_, M> {
    type Output = Result<(), NotOurs>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut blocks = self.blocks.iter_mut();
        for unit in 0..self.wanted.len() {
            for (component, source) in self.components.iter().flatten().enumerate().filter(|(_, c)| c.wanted)
            {
                for n in 0..source.side * source.side {
                    let place =
                        (unit * source.side + n % source.side, self.row * source.side + n / source.side);
                    let (block, content) = blocks.next().ok_or(NotOurs)?;
                    let (plane, stride, at) = self.planes.block(component, place);
                    idct::write(self.machine, *content, source.quant, block, plane, stride, at)?;
                }
            }
        }
        Ok(())
    }
}

/// Makes pixels of the planes.
struct WritePixels<'a, M> {
    machine: M,
    frame: &'a Frame<'a>,
    planes: &'a mut Planes,
    rect: Rect,
    channels: usize,
    out: &'a mut [u8],
}

impl<M: Machine> NullaryFnOnce for WritePixels<'_, M> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        color::write(self.machine, self.frame, self.planes, self.rect, self.channels, self.out);
    }
}
