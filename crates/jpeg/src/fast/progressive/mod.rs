//! The coefficients of progressive files (T.81, annex G).
//!
//! All scans are read before the first sample is computed, because each of them adds bits to every block.

mod coding;
mod scan;

use self::coding::{AcFirst, AcRefined, BlockCoding, DcFirst, DcRefined};
use self::scan::ReadScan;
use super::coded_blocks::CodedBlock;
use super::mcu_reader::BlockPart;
use super::request::Declined;
use super::rows::McuSource;
use super::scan::ScanData;
use crate::huffman_table::HuffmanTable;
use crate::idct::Backend;
use crate::memory;
use crate::structure::{JpegLayout, Scan};

/// Maximum size of the buffers that are kept for the next image: enough for about 5 megapixels with 4:2:0.
const KEPT_BYTES: usize = 16 << 20;

/// The blocks of all components. The buffers are reused for the next image.
#[derive(Debug, Default)]
pub(super) struct ProgressiveImage {
    components: [ComponentBlocks; 3],
}

#[derive(Debug, Default)]
struct ComponentBlocks {
    /// Row by row, including blocks that only complete MCUs.
    blocks: Vec<CodedBlock>,
    /// For each block, a bit for each nonzero AC coefficient, by zigzag index.
    nonzero: Vec<u64>,
    /// Blocks per row.
    stride: usize,
    /// Columns and rows of blocks with pixels of the image.
    in_image: (usize, usize),
    /// Columns and rows of blocks per MCU.
    per_mcu: (usize, usize),
}

impl ProgressiveImage {
    /// Returns the size in bytes of the buffers.
    pub(super) fn kept_bytes(&self) -> usize {
        let bytes = |c: &ComponentBlocks| {
            c.blocks.capacity() * size_of::<CodedBlock>() + c.nonzero.capacity() * size_of::<u64>()
        };
        self.components.iter().map(bytes).sum()
    }

    /// Frees the buffers if they are larger than [`KEPT_BYTES`].
    pub(super) fn trim(&mut self) {
        if self.kept_bytes() > KEPT_BYTES {
            *self = Self::default();
        }
    }

    /// Reads all scans of `layout`, which has one or three components. `data` is a reusable buffer.
    pub(super) fn read(
        &mut self,
        backend: impl Backend,
        layout: &JpegLayout<'_>,
        data: &mut ScanData,
    ) -> Result<(), Declined> {
        let mcus = layout.mcus();
        for (blocks, component) in self.components.iter_mut().zip(&layout.components) {
            let (across, down) = (component.horizontal, component.vertical);
            blocks.stride = mcus.0 * across;
            blocks.per_mcu = (across, down);
            blocks.in_image = layout.blocks_with_pixels(component);
            let count = blocks.stride * mcus.1 * down;
            blocks.blocks.clear();
            blocks.nonzero.clear();
            memory::resize(&mut blocks.blocks, count, CodedBlock { coefficients: [0; 64] })
                .map_err(|_| Declined)?;
            memory::resize(&mut blocks.nonzero, count, 0).map_err(|_| Declined)?;
        }
        for scan in &layout.scans {
            data.read_segments(scan.data)?;
            self.read_scan(backend, scan, mcus, data)?;
        }
        Ok(())
    }

    fn read_scan(
        &mut self,
        backend: impl Backend,
        scan: &Scan<'_>,
        mcus: (usize, usize),
        data: &ScanData,
    ) -> Result<(), Declined> {
        let (band, low) = (scan.spectral, scan.approximation.1);
        let ac_table = || {
            let spec = scan.components.first().and_then(|component| component.ac).ok_or(Declined)?;
            Ok(HuffmanTable::new(spec))
        };
        match (band.0, scan.approximation.0) {
            (0, 0) => {
                let mut tables = [None; 3];
                for component in &scan.components {
                    *tables.get_mut(component.index).ok_or(Declined)? = component.dc;
                }
                let tables = tables.map(|spec| spec.map(HuffmanTable::new));
                self.read_blocks(backend, DcFirst::new(tables, low), scan, mcus, data)
            }
            (0, _) => self.read_blocks(backend, DcRefined::new(low), scan, mcus, data),
            (_, 0) => self.read_blocks(backend, AcFirst::new(ac_table()?, band, low), scan, mcus, data),
            _ => self.read_blocks(backend, AcRefined::new(ac_table()?, band, low), scan, mcus, data),
        }
    }

    fn read_blocks<C: BlockCoding>(
        &mut self,
        backend: impl Backend,
        coding: C,
        scan: &Scan<'_>,
        mcus: (usize, usize),
        data: &ScanData,
    ) -> Result<(), Declined> {
        backend.run(ReadScan {
            coding,
            scan,
            mcus,
            segments: data.segments(),
            components: &mut self.components,
        })
    }

    /// Returns a source of the needed blocks. `parts` is the needed part of the blocks, per component.
    pub(super) fn blocks(&self, columns: usize, parts: [BlockPart; 3]) -> ProgressiveBlocks<'_> {
        ProgressiveBlocks { image: self, columns, parts }
    }
}

/// The needed blocks of a progressive image.
pub(super) struct ProgressiveBlocks<'a> {
    image: &'a ProgressiveImage,
    /// MCUs per row.
    columns: usize,
    parts: [BlockPart; 3],
}

impl McuSource for ProgressiveBlocks<'_> {
    fn read(
        &mut self,
        _: impl Backend,
        first: usize,
        count: usize,
        blocks: &mut [CodedBlock],
    ) -> Result<(), Declined> {
        let mut to = blocks.iter_mut();
        for mcu in first..first + count {
            let (row, column) = (mcu / self.columns, mcu % self.columns);
            for (component, part) in self.image.components.iter().zip(self.parts) {
                let (across, down) = component.per_mcu;
                for y in 0..if part == BlockPart::Nothing { 0 } else { down } {
                    let at = (row * down + y) * component.stride + column * across;
                    for from in component.blocks.get(at..at + across).ok_or(Declined)? {
                        let to = to.next().ok_or(Declined)?;
                        match part {
                            BlockPart::All => *to = *from,
                            _ => to.coefficients[0] = from.coefficients[0],
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
