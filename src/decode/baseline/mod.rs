//! A decoder of the JPEGs that dsconvert writes, for the part of them that a crop keeps.
//!
//! A training loader decodes the middle of a small photograph, again and again. libjpeg-turbo decodes all of it, and its
//! crop spares little. This decoder steps over the blocks outside of the crop without transforming them, stops after
//! the last row that is needed, and writes pixels where the caller wants them. It reads baseline JPEG of 8 bits, grey
//! or YCbCr with 4:2:0 or 4:4:4 sampling, in one scan without restarts, and **nothing else**: whatever is unusual,
//! damaged or extreme is [`NotOurs`], and libjpeg-turbo has the last word on it.
//!
//! Its pixels are those of libjpeg-turbo, bit by bit: the accurate integer transform, "fancy" upsampling, the same
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
mod planes;
mod rows;
#[cfg(test)]
mod tests;

use header::Frame;
use idct::Machine;
use planes::Planes;

/// The file is not of the kind that is decoded here, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotOurs;

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Buffers and tables that outlive one image.
#[derive(Debug, Default)]
pub(crate) struct Baseline {
    tables: huffman::Cache,
    /// The entropy-coded data without stuffing.
    data: Vec<u8>,
    planes: Planes,
}

impl Baseline {
    /// Bytes of the buffers that the next image will use.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.data.capacity() + self.planes.kept_bytes()
    }

    /// Decodes `rect` of the JPEG `bytes`, which has `size` (width, height), into `out`: rows of `channels` (1 or 3)
    /// samples per pixel, without gaps. Afterwards `out` is complete or, on failure, of no use.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        size: (usize, usize),
        rect: Rect,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), NotOurs> {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return self.decode_on(idct_avx2::Avx2(v3), bytes, size, rect, channels, out);
        }
        self.decode_on(idct::Portable, bytes, size, rect, channels, out)
    }

    /// As [`Baseline::decode`], on a kind of processor.
    fn decode_on(
        &mut self,
        machine: impl Machine,
        bytes: &[u8],
        size: (usize, usize),
        rect: Rect,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), NotOurs> {
        let frame = Frame::read(bytes, &mut self.tables)?;
        let fits = |start: usize, length: usize, all: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
        };
        if (frame.width, frame.height) != size
            || !fits(rect.left, rect.width, frame.width)
            || !fits(rect.top, rect.height, frame.height)
            || out.len() != rect.width * rect.height * channels
        {
            return Err(NotOurs);
        }
        block::unstuff(frame.scan, &mut self.data)?;
        let job = rows::Job { frame: &frame, rect, channels };
        job.run(machine, &self.tables, &self.data, &mut self.planes, out)
    }
}
