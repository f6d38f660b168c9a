//! Pixels of JPEG: strict by default, and at a smaller scale where little is lost by it. `dsconvert_jpeg` decodes common
//! baseline files, CMYK and unusual sampling factors, and libjpeg-turbo-rs the rest. The pixels do not depend on the
//! decoder.

use dsconvert_jpeg::{BaselineDecoder, BaselineRequest, ImageInfo, Layout, LayoutRequest, Region, Scale};
use libjpeg_turbo_rs::{Decoder, JpegError, PixelFormat};

use super::container::jpeg::{Header, Process};
use super::container::{self, jpeg};
use super::geometry::{Rect, Size};
use super::icc::Conversion;
use super::options::ImageOptions;
use super::pixels::Pixels;
use super::scratch::ImageScratch;
use super::source::CheckedImage;
use super::text::Color;
use crate::decode::jpeg_engine::JpegEngine;
use crate::decode::{of_jpeg, turbo};
use crate::sample::{Reject, RejectCode};

/// Pixels per byte that a JPEG has at most: the DC coefficient of a block of 64 takes a bit or more.
const MAX_PIXELS_PER_BYTE: u64 = 64 * 8;

/// The largest power of two, up to 8, by which a decode of `source` may be reduced so that the result keeps at least
/// twice the pixels of `target` in each direction. Down to that, Lanczos sees no difference that JPEG has not already
/// lost (44 to 50 dB); below, it does.
pub(super) fn reduction(header: &Header<'_>, source: Size, target: Size) -> u32 {
    if header.frame.process == Process::Lossless || header.frame.precision != 8 {
        return 1;
    }
    let fits = |n: &u32| {
        let wide_enough = |side: u32, target: u32| side / n >= target.saturating_mul(2);
        wide_enough(source.width, target.width) && wide_enough(source.height, target.height)
    };
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Rejects a file too small for its pixels.
pub(super) fn check_file_size(source: &CheckedImage<'_>) -> Result<(), Reject> {
    let (size, stored) = (source.structure.size, source.bytes.len() as u64);
    container::decoded_bytes(size.pixels(), stored, MAX_PIXELS_PER_BYTE).map(drop)
}

/// What a JPEG is decoded to.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) source: &'a CheckedImage<'a>,
    pub(super) header: &'a Header<'a>,
    pub(super) options: &'a ImageOptions,
    /// The pixels are to be 1/`reduction` of the size of the file.
    pub(super) reduction: u32,
    /// The pixels, at that size, that count; what others hold is left open.
    pub(super) needed: Rect,
    /// What the pixels will go through; only inks go through it here.
    pub(super) profile: Option<&'a Conversion>,
}

impl Asked<'_> {
    /// Decodes the file `bytes` into `scratch.decoded`: grey when grey is asked for and the profile does not need
    /// colours, else RGB. True when damage was concealed, which only happens with the lenient option.
    ///
    /// Inks are the exception: they are brought to RGB, by the profile if it is one for inks.
    pub(super) fn decode(&self, scratch: &mut ImageScratch) -> Result<bool, Reject> {
        let is_cmyk = self.header.frame.components == 4;
        if !self.options.lenient {
            check_file_size(self.source)?;
        }
        let (format, channels) = match (self.options.color, self.profile) {
            (Color::Gray, None | Some(Conversion::Table(_))) => (PixelFormat::Grayscale, 1),
            _ => (PixelFormat::Rgb, 3),
        };
        let ImageScratch { baseline, samples, decoded: out, .. } = scratch;
        if !is_cmyk && self.whole_baseline(channels, baseline, out) {
            return Ok(false);
        }
        let Some((layout, is_cut)) = self.layout()? else {
            return self.library(format, channels, out).map(|_| true);
        };
        match (JpegEngine::of(&layout)?, is_cmyk) {
            (JpegEngine::Layout, false) => {
                out.reshape(self.source.structure.size.reduced(self.reduction), channels);
                let decoded = self.decode_layout(&layout, jpeg_format(channels), &mut out.data)?;
                Ok(is_cut || decoded.is_damaged)
            }
            (JpegEngine::Turbo, false) => Ok(self.library(format, channels, out)? || is_cut),
            (engine, true) => Ok(self.inks(&layout, engine, samples, out)? || is_cut),
        }
    }

    /// The structure of the file, and whether damage in it is concealed; `None` when only a lenient decoder can make
    /// something of it.
    fn layout(&self) -> Result<Option<(Layout<'_>, bool)>, Reject> {
        let is_lenient = self.options.lenient;
        let bytes = self.source.bytes;
        match if is_lenient { Layout::read(bytes) } else { Layout::read_strict(bytes) } {
            Ok(layout) => {
                let is_damaged = layout.damage().is_some();
                Ok(Some((layout, is_damaged)))
            }
            Err(_) if is_lenient && self.header.frame.components != 4 => Ok(None),
            Err(error) => Err(of_jpeg(error)),
        }
    }

    fn decode_layout(
        &self,
        layout: &Layout<'_>,
        format: dsconvert_jpeg::PixelFormat,
        out: &mut Vec<u8>,
    ) -> Result<ImageInfo, Reject> {
        let request = LayoutRequest { scale: self.scale(), format, is_lenient: self.options.lenient };
        let decoded = layout.decode(request, out).map_err(of_jpeg)?;
        let expected = self.source.structure.size.reduced(self.reduction);
        if size(decoded.width, decoded.height) != expected {
            return Err(Reject::new(
                RejectCode::Corrupt,
                "its frame header is not the one that was read first",
            ));
        }
        Ok(decoded)
    }

    /// Decodes through libjpeg-turbo-rs. True when damage was concealed.
    fn library(&self, format: PixelFormat, channels: usize, out: &mut Pixels) -> Result<bool, Reject> {
        let reject = |error| self.reject(error);
        let mut decoder = self.decoder()?;
        decoder.set_output_format(format);
        out.reshape(size(decoder.output_width(), decoder.output_height()), channels);
        let need = decoder.output_buffer_size().map_err(reject)?;
        out.data.resize(need, 0);
        let info = decoder.decode_image_into(&mut out.data).map_err(reject)?;
        out.reshape(size(info.width, info.height), channels);
        Ok(!info.warnings.is_empty())
    }

    /// Decodes the file with the decoder that is faster for what it reads, and gives the same pixels. It takes only files
    /// without any damage; all others are for libjpeg-turbo to judge.
    fn whole_baseline(&self, channels: usize, baseline: &mut BaselineDecoder, out: &mut Pixels) -> bool {
        let frame = self.header.frame;
        if frame.process != Process::Sequential || frame.precision != 8 {
            return false;
        }
        let size = self.source.structure.size;
        out.reshape(size.reduced(self.reduction), channels);
        let region = Region::from(self.needed);
        let stride = out.width as usize;
        let request = BaselineRequest {
            size: (size.width as usize, size.height as usize),
            scale: self.scale(),
            region,
            stride,
            format: jpeg_format(channels),
            reads_to_end: true,
        };
        let first = region.top * stride + region.left;
        let end = first + region.height.saturating_sub(1) * stride + region.width;
        let out = out.data.get_mut(first * channels..end * channels);
        out.is_some_and(|out| baseline.decode_into(self.source.bytes, request, out).is_ok())
    }

    /// Decodes inks and converts them to RGB. True when damage was concealed.
    fn inks(
        &self,
        layout: &Layout<'_>,
        engine: JpegEngine,
        buffer: &mut Vec<u8>,
        out: &mut Pixels,
    ) -> Result<bool, Reject> {
        let reject = |error| self.reject(error);
        let is_damaged = match engine {
            JpegEngine::Layout => {
                self.decode_layout(layout, dsconvert_jpeg::PixelFormat::Cmyk, buffer)?.is_damaged
            }
            JpegEngine::Turbo => {
                let mut decoder = self.decoder()?;
                decoder.set_output_format(PixelFormat::Cmyk);
                buffer.resize(decoder.output_buffer_size().map_err(reject)?, 0);
                let info = decoder.decode_image_into(buffer).map_err(reject)?;
                buffer.truncate(info.bytes_written);
                !info.warnings.is_empty()
            }
        };
        // Files with Adobe's segment store the inks inverted.
        if layout.has_adobe_marker() {
            dsconvert_jpeg::invert_cmyk(buffer);
        }
        out.reshape(self.source.structure.size.reduced(self.reduction), 3);
        if !self.profile.is_some_and(|profile| profile.cmyk_to_rgb(buffer, &mut out.data)) {
            dsconvert_jpeg::cmyk_to_rgb(buffer, &mut out.data);
        }
        Ok(is_damaged)
    }

    /// [`reduction`] gives no other values.
    fn scale(&self) -> Scale {
        Scale::from_denominator(self.reduction).unwrap_or_default()
    }

    fn decoder(&self) -> Result<Decoder<'_>, Reject> {
        let ImageOptions { max_pixels, lenient, .. } = *self.options;
        turbo::decoder(self.source.bytes, max_pixels, lenient, self.reduction)
            .map_err(|error| self.reject(error))
    }

    fn reject(&self, error: JpegError) -> Reject {
        turbo::reject(error, jpeg::is_ended(self.source.bytes, self.header.first_scan))
    }
}

fn jpeg_format(channels: usize) -> dsconvert_jpeg::PixelFormat {
    if channels == 1 { dsconvert_jpeg::PixelFormat::Gray } else { dsconvert_jpeg::PixelFormat::Rgb }
}

fn size(width: usize, height: usize) -> Size {
    Size::new(width as u32, height as u32)
}

#[cfg(test)]
mod tests {
    use libjpeg_turbo_rs::{Encoder, Subsampling};

    use super::*;

    /// That the pixels are right does not tell which decoder has made them.
    #[test]
    fn whole_baseline_files_go_through_the_faster_decoder() {
        let options = ImageOptions::default();
        for subsampling in [Subsampling::S420, Subsampling::S444] {
            let grey = [90; 3 * 40 * 30];
            let encoder = Encoder::new(&grey, 40, 30, PixelFormat::Rgb);
            let bytes = encoder.quality(90).subsampling(subsampling).encode().unwrap();
            let source = CheckedImage::read(&bytes, &options).unwrap();
            let header = source.jpeg.as_ref().unwrap();
            for (reduction, size) in [(1, Size::new(40, 30)), (4, Size::new(10, 8))] {
                let needed = Rect { left: 0, top: 0, size };
                let options = &options;
                let asked = Asked { source: &source, header, options, reduction, needed, profile: None };
                let mut out = Pixels::default();
                assert!(asked.whole_baseline(3, &mut BaselineDecoder::default(), &mut out));
                assert_eq!(out.size(), size);
            }
        }
    }
}
