//! Coefficients and samples of a component.

use crate::block::{DctBlock, QuantTable};
use crate::error::Error;
use crate::idct::{Backend, Portable, dc_sample, four, two};
use crate::memory;
use crate::structure::JpegLayout;

/// Blocks of coefficients of a component, including blocks that only complete MCUs.
#[derive(Debug)]
pub(crate) struct Coefficients {
    blocks: Vec<DctBlock>,
    columns: usize,
}

impl Coefficients {
    /// Allocates zeros for all blocks of component `index`.
    pub(super) fn of_image(layout: &JpegLayout<'_>, index: usize) -> Result<Self, Error> {
        Self::of_mcu_rows(layout, index, layout.mcus().1)
    }

    /// Allocates zeros for one row of MCUs of component `index`.
    pub(super) fn of_mcu_row(layout: &JpegLayout<'_>, index: usize) -> Result<Self, Error> {
        Self::of_mcu_rows(layout, index, 1)
    }

    fn of_mcu_rows(layout: &JpegLayout<'_>, index: usize, rows: usize) -> Result<Self, Error> {
        let component = &layout.components[index];
        let columns = layout.mcus().0 * component.horizontal;
        let count = memory::product(&[columns, rows, component.vertical])?;
        Ok(Self { blocks: memory::filled(count, [0; 64])?, columns })
    }

    /// Returns the block at a column and row.
    pub(super) fn block(&mut self, (column, row): (usize, usize)) -> Option<&mut DctBlock> {
        let blocks = self.blocks.get_mut(row * self.columns..)?.get_mut(..self.columns)?;
        blocks.get_mut(column)
    }

    /// Returns the block at a column and row.
    pub(crate) fn get(&self, (column, row): (usize, usize)) -> Option<&DctBlock> {
        self.blocks.get(row * self.columns..)?.get(..self.columns)?.get(column)
    }

    pub(super) fn clear(&mut self) {
        self.blocks.fill([0; 64]);
    }
}

/// Samples of a component.
#[derive(Debug)]
pub(super) struct Plane {
    samples: Vec<u8>,
    stride: usize,
    /// Samples per row of the image, without those that only complete MCUs.
    pub(super) width: usize,
    height: usize,
    /// Samples per side of a block: 8, 4, 2 or 1.
    side: usize,
    quant: QuantTable,
    /// Rows of blocks per MCU.
    vertical: usize,
}

impl Plane {
    /// Creates an empty plane for component `index` with `side` samples per side of a block.
    pub(super) fn new(layout: &JpegLayout<'_>, index: usize, side: usize) -> Result<Self, Error> {
        let (max_h, max_v) = layout.max_factors();
        let component = &layout.components[index];
        let stride = layout.width.div_ceil(8 * max_h) * component.horizontal * side;
        let rows = layout.height.div_ceil(8 * max_v) * component.vertical * side;
        Ok(Self {
            samples: memory::filled(memory::product(&[stride, rows])?, 0)?,
            stride,
            width: (layout.width * component.horizontal * side).div_ceil(8 * max_h),
            height: (layout.height * component.vertical * side).div_ceil(8 * max_v),
            side,
            quant: QuantTable::new(&component.quant.unwrap_or([1; 64])),
            vertical: component.vertical,
        })
    }

    /// Returns row `y`, or the last row if `y` is below it.
    pub(super) fn row(&self, y: usize) -> &[u8] {
        let start = y.min(self.height - 1) * self.stride;
        &self.samples[start..start + self.width]
    }

    /// Transforms `coefficients`, whose first row of MCUs is row `mcu_row` of the image.
    pub(super) fn write(&mut self, coefficients: &Coefficients, mcu_row: usize) {
        let first = mcu_row * self.vertical;
        for (row, blocks) in (first..).zip(coefficients.blocks.chunks_exact(coefficients.columns)) {
            for (column, block) in blocks.iter().enumerate() {
                let at = row * self.side * self.stride + column * self.side;
                match self.side {
                    8 => self.put(at, &Portable.samples(&self.dequantize(block))),
                    4 => self.put(at, &four(&self.dequantize(block))),
                    2 => self.put(at, &two(&self.dequantize(block))),
                    _ => {
                        let dc = i32::from(block[0]) * i32::from(self.quant.0[0]);
                        self.put(at, &[[dc_sample(dc)]]);
                    }
                }
            }
        }
    }

    /// Dequantizes a block for the transforms.
    fn dequantize(&self, block: &DctBlock) -> DctBlock {
        Portable.dequantize(block, &self.quant).unwrap_or_else(|| {
            // The coefficients are larger than any real pixels produce, but libjpeg accepts them at every scale.
            std::array::from_fn(|n| {
                let product = i32::from(block[n]) * i32::from(self.quant.0[n]);
                product.clamp(i16::MIN.into(), i16::MAX.into()) as i16
            })
        })
    }

    fn put<const SIDE: usize>(&mut self, at: usize, samples: &[[u8; SIDE]; SIDE]) {
        for (n, samples) in samples.iter().enumerate() {
            let start = at + n * self.stride;
            if let Some(row) = self.samples.get_mut(start..start + SIDE) {
                row.copy_from_slice(samples);
            }
        }
    }
}
