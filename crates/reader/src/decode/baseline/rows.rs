//! From bits to planes, one row of minimum coded units after the other: first the coefficients of the row, then their
//! samples. Each half is compiled by itself, so that its numbers stay in registers.

use std::num::NonZeroUsize;
use std::ops::Range;

use pulp::NullaryFnOnce;

use super::block::{Content, Quant, Reader};
use super::color;
use super::header::Frame;
use super::huffman::{Cache, Table};
use super::idct::{self, Block, Machine};
use super::planes::{Layer, Planes, Span};
use super::scan::{PADDING, Parts, Scan};
use super::{NotOurs, Wanted};

/// What is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) wanted: Wanted,
}

impl Job<'_> {
    /// Decodes the scan, as [`Scan`] has it, into `out`.
    pub(super) fn run(
        self,
        machine: impl Machine,
        tables: &Cache,
        scan: &Scan,
        planes: &mut Planes,
        out: &mut [u8],
    ) -> Result<(), NotOurs> {
        let Self { frame, wanted: asked } = self;
        let Wanted { reduction, rect, channels, .. } = asked;
        let layers = Layer::of(frame, reduction)?;
        let span = Span::of(&layers, rect);
        planes.reshape(frame.sampling.is_gray, layers, &span);
        let mut components = [None; 3];
        for (n, component) in frame.components.iter().enumerate().take(frame.sampling.components()) {
            let (dc, ac) = tables.pair(component.dc, component.ac).ok_or(NotOurs)?;
            let quant = frame.quant.get(component.quant).and_then(Option::as_ref).ok_or(NotOurs)?;
            let layer = layers[n.min(1)];
            components[n] = Some(Source { dc, ac, quant, layer, wanted: n == 0 || channels == 3 });
        }
        let unit = layers[0].unit();
        let (columns, rows) = (layers[0].width.div_ceil(unit.0), layers[0].height.div_ceil(unit.1));
        let mut reader = UnitReader {
            parts: scan.parts(),
            // As if a part had been read to its end.
            reader: Reader::new(&[0; PADDING]),
            last: [0; 3],
            left: 0,
            restart: frame.restart.map_or(usize::MAX, NonZeroUsize::get),
        };
        let mut blocks = std::mem::take(&mut planes.blocks);
        let none = 0..0;
        let end = if asked.to_the_end { rows } else { span.rows.end };
        for row in 0..end {
            let wanted = if span.rows.contains(&row) { &span.columns } else { &none };
            machine.run(ReadRow { reader: &mut reader, components, columns, wanted, blocks: &mut blocks })?;
            if !wanted.is_empty() {
                let row = row - span.rows.start;
                machine.run(WriteRow { machine, components, wanted, row, blocks: &mut blocks, planes })?;
            }
        }
        planes.blocks = blocks;
        machine.run(WritePixels { machine, is_gray: frame.sampling.is_gray, planes, wanted: asked, out });
        reader.check_end(end == rows)
    }
}

/// Tables of a component, and how its samples lie.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    dc: &'a Table,
    ac: &'a Table,
    quant: &'a Quant,
    layer: Layer,
    wanted: bool,
}

/// Reads one unit after the other, across restarts.
struct UnitReader<'a> {
    /// What has not been begun.
    parts: Parts<'a>,
    reader: Reader<'a>,
    /// Mean of the last block of each component.
    last: [i32; 3],
    /// Units until the next part.
    left: usize,
    /// Units of a part.
    restart: usize,
}

impl UnitReader<'_> {
    /// Goes on to the next part where one is due.
    #[inline(always)]
    fn next_unit(&mut self) -> Result<(), NotOurs> {
        if self.left == 0 {
            self.reader.check_end(true)?;
            self.reader = Reader::new(self.parts.next().ok_or(NotOurs)?);
            (self.last, self.left) = ([0; 3], self.restart);
        }
        self.left -= 1;
        Ok(())
    }

    /// Whether all that was read was there and, when that was `all` of the image, nothing is left.
    fn check_end(mut self, all: bool) -> Result<(), NotOurs> {
        self.reader.check_end(all)?;
        if all && self.parts.next().is_some() { Err(NotOurs) } else { Ok(()) }
    }
}

/// Reads the coefficients of a row of units; of those that are not wanted, only what those behind depend on.
struct ReadRow<'a, 'd> {
    reader: &'a mut UnitReader<'d>,
    components: [Option<Source<'a>>; 3],
    /// Units in the row.
    columns: usize,
    wanted: &'a Range<usize>,
    blocks: &'a mut Vec<(Block, Content)>,
}

impl NullaryFnOnce for ReadRow<'_, '_> {
    type Output = Result<(), NotOurs>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let sources = self.components.iter().flatten();
        let per_unit: usize =
            sources.clone().filter(|c| c.wanted).map(|c| c.layer.columns * c.layer.rows).sum();
        // All are zero: whoever transforms a block leaves it so.
        self.blocks.resize(self.wanted.len() * per_unit, ([0; 64], Content::Flat));
        let mut blocks = self.blocks.iter_mut();
        for unit in 0..self.columns {
            self.reader.next_unit()?;
            let UnitReader { reader, last, .. } = self.reader;
            let inside = self.wanted.contains(&unit);
            for (source, last) in sources.clone().zip(last) {
                for _ in 0..source.layer.columns * source.layer.rows {
                    if !inside || !source.wanted {
                        reader.skip(source.dc, source.ac, last)?;
                        continue;
                    }
                    let (block, content) = blocks.next().ok_or(NotOurs)?;
                    *content = if source.layer.side > 1 {
                        reader.read(source.dc, source.ac, last, block)?
                    } else {
                        // One sample is the mean.
                        reader.skip(source.dc, source.ac, last)?;
                        block[0] = *last as i16;
                        Content::Flat
                    };
                }
            }
        }
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
                let Layer { columns, rows, side, .. } = source.layer;
                let (plane, stride) = self.planes.plane(component);
                for row in 0..rows {
                    let at = (self.row * rows + row) * side * stride + unit * columns * side;
                    for column in 0..columns {
                        let (block, content) = blocks.next().ok_or(NotOurs)?;
                        let plane = plane.get_mut(at + column * side..).ok_or(NotOurs)?;
                        idct::write(self.machine, *content, source.quant, block, side, plane, stride)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Makes pixels of the planes.
struct WritePixels<'a, M> {
    machine: M,
    is_gray: bool,
    planes: &'a mut Planes,
    wanted: Wanted,
    out: &'a mut [u8],
}

impl<M: Machine> NullaryFnOnce for WritePixels<'_, M> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        color::write(self.machine, self.is_gray, self.planes, self.wanted, self.out);
    }
}
