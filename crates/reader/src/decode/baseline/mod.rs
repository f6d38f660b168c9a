//! A decoder of common JPEGs: for the part of them that a crop keeps, or for photographs at a fraction of their size.
//!
//! A training loader decodes the middle of a small photograph, again and again. libjpeg-turbo decodes all of it, and its
//! crop spares little. This decoder steps over the blocks outside of the crop without transforming them, stops after
//! the last row that is needed, and writes pixels where the caller wants them. It reads baseline JPEG of 8 bits, grey
//! or YCbCr with 4:2:0, 4:2:2 or 4:4:4 sampling, in one scan, and **nothing else**: whatever is unusual, damaged or
//! extreme is [`NotOurs`], and libjpeg-turbo has the last word on it.
//!
//! Its pixels are those of libjpeg-turbo, bit by bit: the accurate integer transforms, "fancy" upsampling, the same
//! colour conversion. What they are is public knowledge (ITU T.81 for the format, Loeffler, Ligtenberg and Moschytz 1989
//! for the transform); the tests compare with libjpeg-turbo itself.
//!
//! All code here is portable and safe. `pulp` compiles it a second time for processors with AVX2, where the compiler
//! makes vector code of the loops over rows; results do not depend on it.

mod block;
mod color;
mod header;
mod huffman;
mod idct;
#[cfg(target_arch = "x86_64")]
mod idct_avx2;
mod idct_reduced;
mod planes;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

pub(super) use block::{PLACES, Quant};
pub(super) use color::rgb;
use header::Frame;
pub(super) use idct::{Block, Machine, Portable, sample};
pub(super) use idct_reduced::{four, two};
use planes::Planes;

/// The file is not of the kind that is decoded here, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOurs;

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    pub left: usize,
    pub top: usize,
    pub width: usize,
    pub height: usize,
}

impl From<super::Rect> for Rect {
    fn from(rect: super::Rect) -> Self {
        let [left, top, width, height] =
            [rect.left, rect.top, rect.size.width, rect.size.height].map(|n| n as usize);
        Self { left, top, width, height }
    }
}

/// What is to be decoded of a file.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Width and height that the file is known to have.
    pub size: (usize, usize),
    /// The pixels are those at 1/`reduction` of the size, rounded up: 1, 2, 4 or 8.
    pub reduction: usize,
    /// Which of them.
    pub rect: Rect,
    /// Pixels from one row of the output to the next.
    pub stride: usize,
    /// Samples per pixel: 1 or 3.
    pub channels: usize,
    /// Whether the file is to be read to its end, wherever the pixels stand: then it is known to be sound.
    pub to_the_end: bool,
}

impl Wanted {
    /// Samples from the first pixel to the last.
    fn samples(&self) -> Option<usize> {
        let Rect { width, height, .. } = self.rect;
        let pixels = height.checked_sub(1)?.checked_mul(self.stride)?.checked_add(width)?;
        pixels.checked_mul(self.channels).filter(|_| width <= self.stride)
    }
}

/// Buffers and tables that outlive one image.
#[derive(Debug, Default)]
pub struct Baseline {
    tables: huffman::Cache,
    scan: scan::Scan,
    planes: Planes,
}

impl Baseline {
    /// Bytes of the buffers that the next image will use.
    pub fn kept_bytes(&self) -> usize {
        self.scan.kept_bytes() + self.planes.kept_bytes()
    }

    /// Decodes the JPEG `bytes` into `out`, the samples from the first pixel that is wanted to the last. Afterwards it is
    /// complete or, on failure, of no use.
    pub fn decode(&mut self, bytes: &[u8], wanted: Wanted, out: &mut [u8]) -> Result<(), NotOurs> {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return self.decode_on(idct_avx2::Avx2(v3), bytes, wanted, out);
        }
        self.decode_on(idct::Portable, bytes, wanted, out)
    }

    /// As [`Baseline::decode`], on a kind of processor.
    fn decode_on(
        &mut self,
        machine: impl Machine,
        bytes: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<(), NotOurs> {
        let frame = Frame::read(bytes, &mut self.tables)?;
        let Wanted { size, reduction, rect, .. } = wanted;
        let fits = |start: usize, length: usize, all: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all.div_ceil(reduction))
        };
        if (frame.width, frame.height) != size
            || !matches!(reduction, 1 | 2 | 4 | 8)
            || !fits(rect.left, rect.width, frame.width)
            || !fits(rect.top, rect.height, frame.height)
            || wanted.samples() != Some(out.len())
        {
            return Err(NotOurs);
        }
        self.scan.read(frame.scan)?;
        let job = rows::Job { frame: &frame, wanted };
        job.run(machine, &self.tables, &self.scan, &mut self.planes, out)
    }
}
