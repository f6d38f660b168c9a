//! From a stored image to pixels: the part of it that is wanted, written where it is wanted.

use crate::sample::{Reject, RejectCode};

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A part of an image, in pixels; not only whole ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pixels: Vec<u8>,
}

impl Decoder {
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        size: Size,
        part: Part,
        target: Size,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let reject = |e: libjpeg_turbo_rs::JpegError| Reject::new(RejectCode::Corrupt, e.to_string());
        let mut decoder = libjpeg_turbo_rs::Decoder::new(bytes).map_err(reject)?;
        decoder.set_output_format(libjpeg_turbo_rs::PixelFormat::Rgb);
        self.pixels.resize(decoder.output_buffer_size().map_err(reject)?, 0);
        let info = decoder.decode_image_into(&mut self.pixels).map_err(reject)?;
        let stride = info.width * channels;
        let _ = (size, part, target);
        let (left, len) = (part.left as usize * channels, target.width as usize * channels);
        for (to, from) in
            out.chunks_exact_mut(len).zip(self.pixels.chunks_exact(stride).skip(part.top as usize))
        {
            if let Some(from) = from.get(left..left + len) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}
