//! Sequential reader of the MCUs of a scan, across restart markers.

use std::num::NonZeroUsize;

use pulp::NullaryFnOnce;

use super::bit_reader::BitReader;
use super::block_reader::{BlockTables, Skipped, read_block};
use super::frame::{Component, Frame};
use super::huffman::TableCache;
use super::request::Declined;
use super::scan::{PADDING, ScanData, Segments};
use super::step_table::StepTables;

/// Maximum number of blocks per MCU: 4:2:0.
const MAX_MCU_BLOCKS: usize = 6;

/// Reads MCUs across restart markers.
pub(super) struct McuReader<'a> {
    /// Segments that are not started yet.
    segments: Segments<'a>,
    pub(super) reader: BitReader<'a>,
    /// DC coefficient of the last block, per component.
    pub(super) last_dc: [i32; 3],
    /// MCUs left in the current segment.
    left: usize,
    /// Whether segments without a needed MCU are read, too, so that damage in them is found.
    pub(super) reads_all: bool,
    /// Restart interval: MCUs per segment.
    restart: usize,
    /// The blocks of an MCU.
    pub(super) pattern: [Option<CodedBlockKind<'a>>; MAX_MCU_BLOCKS],
}

/// The component, tables and needed part of one block of an MCU.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodedBlockKind<'a> {
    pub(super) component: usize,
    pub(super) tables: BlockTables<'a>,
    pub(super) part: BlockPart,
}

/// The part of a block that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockPart {
    Nothing,
    /// The DC coefficient, which determines a single sample.
    Dc,
    All,
}

impl<'a> McuReader<'a> {
    /// Creates a reader at the first MCU of `scan`. `parts` is the needed part of the blocks, per component.
    pub(super) fn new(
        frame: &Frame<'_>,
        parts: [BlockPart; 3],
        tables: &'a TableCache,
        steps: &'a mut [StepTables; 3],
        scan: &'a ScanData,
    ) -> Result<Self, Declined> {
        let components = &frame.components;
        let pair = |component: &Component| tables.pair(component.dc, component.ac).ok_or(Declined);
        // Components with the same Huffman tables share their step tables.
        let same = |component: &Component| {
            components.iter().position(|c| (c.dc, c.ac) == (component.dc, component.ac)).unwrap_or(0)
        };
        for (n, component) in components.iter().enumerate() {
            let (dc, ac) = pair(component)?;
            if same(component) == n {
                steps[n].define(dc, ac);
            }
        }
        let mut pattern = [None; MAX_MCU_BLOCKS];
        let mut slots = pattern.iter_mut();
        for (n, component) in components.iter().enumerate() {
            let (dc, ac) = pair(component)?;
            let StepTables { start, rest, .. } = &steps[same(component)];
            let tables = BlockTables { start, rest, dc, ac };
            let count = if n == 0 { frame.sampling.columns * frame.sampling.rows } else { 1 };
            for slot in slots.by_ref().take(count) {
                *slot = Some(CodedBlockKind { component: n, tables, part: parts[n] });
            }
        }
        Ok(Self {
            segments: scan.segments(),
            // Starts in the state at the end of a segment.
            reader: BitReader::new(&[0; PADDING]),
            last_dc: [0; 3],
            left: 0,
            reads_all: true,
            restart: frame.restart.map_or(usize::MAX, NonZeroUsize::get),
            pattern,
        })
    }

    /// Moves to the next MCU, and to the next segment if the current one is at its end.
    #[inline(always)]
    pub(super) fn next_mcu(&mut self) -> Result<(), Declined> {
        if self.left == 0 {
            self.reader.check_end(true)?;
            self.reader = BitReader::new(self.segments.next().ok_or(Declined)?);
            (self.last_dc, self.left) = ([0; 3], self.restart);
        }
        self.left -= 1;
        Ok(())
    }

    /// Skips up to `count` MCUs that are the rest of a segment or whole segments, without decoding them. Returns the
    /// number of MCUs skipped.
    fn skip_segments(&mut self, count: usize) -> usize {
        if self.reads_all || self.left > count {
            return 0;
        }
        let mut skipped = self.left;
        if skipped > 0 {
            (self.reader, self.left) = (BitReader::new(&[0; PADDING]), 0);
        }
        while count - skipped >= self.restart && self.segments.next().is_some() {
            skipped += self.restart;
        }
        skipped
    }

    /// Fails if more was read than the segment has or, with `all` MCUs of the image read, if anything is left.
    pub(super) fn check_end(mut self, all: bool) -> Result<(), Declined> {
        self.reader.check_end(all)?;
        if all && self.segments.next().is_some() { Err(Declined) } else { Ok(()) }
    }
}

/// Skips MCUs. Those before a needed MCU of the same segment are decoded, because their DC coefficients are needed.
pub(super) struct SkipMcus<'a, 'd> {
    pub(super) reader: &'a mut McuReader<'d>,
    pub(super) count: usize,
}

impl NullaryFnOnce for SkipMcus<'_, '_> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        for _ in self.reader.skip_segments(self.count)..self.count {
            self.reader.next_mcu()?;
            let McuReader { reader: source, last_dc, pattern, .. } = self.reader;
            // A local copy stays in registers.
            let mut reader = *source;
            for kind in pattern.iter().flatten() {
                read_block(&mut reader, &kind.tables, &mut last_dc[kind.component], &mut Skipped)?;
            }
            *source = reader;
        }
        Ok(())
    }
}
