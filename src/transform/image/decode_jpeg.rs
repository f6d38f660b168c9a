//! JPEG decoding: strict by default, and at a smaller scale if that loses little. `dsconvert_jpeg` decodes common
//! baseline and progressive files, CMYK and unusual sampling factors; libjpeg-turbo-rs decodes the rest. The pixels do
//! not depend on the decoder.

use std::borrow::Cow;

use dsconvert_jpeg::{FastDecoder, FastRequest, ImageInfo, JpegLayout, LayoutRequest, Process, Region};
use libjpeg_turbo_rs::PixelFormat;

use super::container::jpeg::JpegHeader;
use super::container::{self, jpeg};
use super::geometry::{Rect, Size};
use super::icc::ProfileConversion;
use super::option_values::Color;
use super::options::ImageOptions;
use super::pixels::Pixels;
use super::scratch::ImageScratch;
use super::source::CheckedImage;
use crate::decode::jpeg_engine::JpegEngine;
use crate::decode::{self, of_jpeg, turbo};
use crate::sample::{Reject, RejectCode};

/// Maximum number of pixels per byte of a JPEG: the DC coefficient of a block of 64 pixels takes at least one bit.
const MAX_PIXELS_PER_BYTE: u64 = 64 * 8;
/// The marker at the end of a JPEG.
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

/// Returns the reduction for decoding `source`, which is resized to `target`: 1 for files that can only be decoded at
/// full size.
pub(super) fn reduction(header: &JpegHeader<'_>, source: Size, target: Size) -> u32 {
    if header.frame.process == Process::Lossless || header.frame.precision != 8 {
        return 1;
    }
    decode::reduction(source.width.into(), source.height.into(), target)
}

/// Rejects a file that is too small for its pixels.
pub(super) fn check_file_size(source: &CheckedImage<'_>) -> Result<(), Reject> {
    let (size, stored) = (source.structure.size, source.bytes.len() as u64);
    let checked = container::check_pixels_per_byte(size.pixels(), stored, MAX_PIXELS_PER_BYTE);
    let is_ended = |header: &JpegHeader<'_>| jpeg::is_ended(source.bytes, header.first_scan);
    match &source.jpeg {
        Some(header) if !is_ended(header) => checked.map_err(container::cut_off),
        _ => checked,
    }
}

/// A request to decode a JPEG.
#[derive(Clone, Copy)]
pub(super) struct JpegRequest<'a> {
    pub(super) source: &'a CheckedImage<'a>,
    pub(super) header: &'a JpegHeader<'a>,
    pub(super) options: &'a ImageOptions,
    /// Decode to 1/`reduction` of the size of the file.
    pub(super) reduction: u32,
    /// The pixels needed, at that size; the content of others is unspecified.
    pub(super) needed: Rect,
    /// The profile conversion of the pixels. It is applied here only to CMYK.
    pub(super) profile: Option<&'a ProfileConversion>,
}

impl JpegRequest<'_> {
    /// Decodes the file into `scratch.decoded`: as gray if gray is requested and the profile does not need colors,
    /// otherwise as RGB. Returns true if damage was concealed, which only happens with the lenient option.
    ///
    /// CMYK is the exception: it is converted to RGB here, by the profile if that is a CMYK profile.
    pub(super) fn decode(&self, scratch: &mut ImageScratch) -> Result<bool, Reject> {
        let frame = self.header.frame;
        let is_cmyk = frame.components == 4;
        check_file_size(self.source)?;
        let channels = match (self.options.color, self.profile) {
            // libjpeg-turbo-rs does not convert the colors of lossless files to gray.
            (Color::Gray, _) if frame.process == Process::Lossless && frame.components != 1 => 3,
            (Color::Gray, None | Some(ProfileConversion::Table(_))) => 1,
            _ => 3,
        };
        let ImageScratch { jpeg, samples, decoded: out, .. } = scratch;
        if !is_cmyk && self.decode_fast(channels, jpeg, out) {
            return Ok(false);
        }
        let Some((layout, is_cut)) = self.layout()? else {
            return self.decode_turbo(channels, out).map(|_| true);
        };
        match (JpegEngine::of(&layout)?, is_cmyk) {
            (JpegEngine::Layout, false) => {
                out.reshape(self.source.structure.size.reduced(self.reduction), channels);
                let decoded = self.decode_layout(&layout, jpeg_format(channels), &mut out.data)?;
                Ok(is_cut || decoded.is_damaged)
            }
            (JpegEngine::Turbo, false) => Ok(self.decode_usual(&layout, channels, out)? || is_cut),
            (engine, true) => Ok(self.decode_cmyk(&layout, engine, samples, out)? || is_cut),
        }
    }

    /// Returns the structure of the file, and whether damage in it is concealed; `None` if the structure cannot be read
    /// and only a lenient decoder may still decode the file.
    fn layout(&self) -> Result<Option<(JpegLayout<'_>, bool)>, Reject> {
        let is_lenient = self.options.lenient;
        let bytes = self.source.bytes;
        match if is_lenient { JpegLayout::read(bytes) } else { JpegLayout::read_strict(bytes) } {
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
        layout: &JpegLayout<'_>,
        format: dsconvert_jpeg::PixelFormat,
        out: &mut Vec<u8>,
    ) -> Result<ImageInfo, Reject> {
        let request =
            LayoutRequest { scale: decode::scale(self.reduction), format, is_lenient: self.options.lenient };
        let decoded = layout.decode(request, out).map_err(of_jpeg)?;
        let expected = self.source.structure.size.reduced(self.reduction);
        if size(decoded.width, decoded.height) != expected {
            return Err(Reject::new(
                RejectCode::Corrupt,
                "its frame header differs from the one that was read first",
            ));
        }
        Ok(decoded)
    }

    /// Decodes with libjpeg-turbo-rs, which gives up at damage in files with several scans. With the lenient option, they
    /// are then decoded as far as each scan goes. Returns true if damage was concealed.
    fn decode_usual(
        &self,
        layout: &JpegLayout<'_>,
        channels: usize,
        out: &mut Pixels,
    ) -> Result<bool, Reject> {
        self.decode_turbo(channels, out).or_else(|reject| {
            let is_damage = matches!(reject.code, RejectCode::Corrupt | RejectCode::Truncated);
            let has_scans_to_keep = self.header.has_several_scans(self.source.bytes);
            if !self.options.lenient || !is_damage || !has_scans_to_keep {
                return Err(reject);
            }
            out.reshape(self.source.structure.size.reduced(self.reduction), channels);
            // If this decoder does not support the file, the first error says what is wrong.
            self.decode_layout(layout, jpeg_format(channels), &mut out.data).map_err(|_| reject).map(|_| true)
        })
    }

    /// Decodes with libjpeg-turbo-rs. Returns true if damage was concealed.
    fn decode_turbo(&self, channels: usize, out: &mut Pixels) -> Result<bool, Reject> {
        let format = if channels == 1 { PixelFormat::Grayscale } else { PixelFormat::Rgb };
        let (size, is_damaged) = self.turbo_samples(format, &mut out.data)?;
        out.reshape(size, channels);
        Ok(is_damaged)
    }

    /// Replaces `samples` by those that libjpeg-turbo-rs decodes. Returns the size, and true if damage was concealed.
    fn turbo_samples(&self, format: PixelFormat, samples: &mut Vec<u8>) -> Result<(Size, bool), Reject> {
        let ImageOptions { max_pixels, lenient, .. } = *self.options;
        let bytes = self.with_end();
        let mut decode = || {
            let mut decoder = turbo::decoder(&bytes, max_pixels, lenient, self.reduction)?;
            decoder.set_output_format(format);
            samples.resize(decoder.output_buffer_size()?, 0);
            decoder.decode_image_into(samples)
        };
        let info = decode().map_err(|error| {
            turbo::reject(error, jpeg::is_ended(self.source.bytes, self.header.first_scan))
        })?;
        samples.truncate(info.bytes_written);
        let is_damaged = !info.warnings.is_empty() || matches!(bytes, Cow::Owned(_));
        Ok((size(info.width, info.height), is_damaged))
    }

    /// Decodes the file with [`FastDecoder`], which is faster for the files that it supports, and gives the same
    /// pixels. It accepts only undamaged files; the general decoders handle all others. Returns whether it decoded the
    /// file.
    fn decode_fast(&self, channels: usize, decoder: &mut FastDecoder, out: &mut Pixels) -> bool {
        let frame = self.header.frame;
        if frame.process == Process::Lossless || frame.precision != 8 {
            return false;
        }
        let size = self.source.structure.size;
        out.reshape(size.reduced(self.reduction), channels);
        let region = Region::from(self.needed);
        let stride = out.width as usize;
        let request = FastRequest {
            size: (size.width as usize, size.height as usize),
            scale: decode::scale(self.reduction),
            region,
            stride,
            format: jpeg_format(channels),
            reads_to_end: true,
        };
        let first = region.top * stride + region.left;
        let end = first + region.height.saturating_sub(1) * stride + region.width;
        let out = out.data.get_mut(first * channels..end * channels);
        out.is_some_and(|out| decoder.decode_into(self.source.bytes, request, out).is_ok())
    }

    /// Decodes CMYK and converts it to RGB. Returns true if damage was concealed.
    fn decode_cmyk(
        &self,
        layout: &JpegLayout<'_>,
        engine: JpegEngine,
        buffer: &mut Vec<u8>,
        out: &mut Pixels,
    ) -> Result<bool, Reject> {
        let is_damaged = match engine {
            JpegEngine::Layout => {
                self.decode_layout(layout, dsconvert_jpeg::PixelFormat::Cmyk, buffer)?.is_damaged
            }
            JpegEngine::Turbo => self.turbo_samples(PixelFormat::Cmyk, buffer)?.1,
        };
        // Files with an Adobe segment store CMYK inverted.
        if layout.has_adobe_marker() {
            dsconvert_jpeg::invert_cmyk(buffer);
        }
        out.reshape(self.source.structure.size.reduced(self.reduction), 3);
        if !self.profile.is_some_and(|profile| profile.cmyk_to_rgb(buffer, &mut out.data)) {
            dsconvert_jpeg::cmyk_to_rgb(buffer, &mut out.data);
        }
        Ok(is_damaged)
    }

    /// Returns the file, with an end marker if it has several scans, was cut off and may be decoded as far as it goes:
    /// libjpeg-turbo-rs needs the marker to know that no scan follows.
    fn with_end(&self) -> Cow<'_, [u8]> {
        let bytes = self.source.bytes;
        let has_several_scans = self.header.has_several_scans(bytes);
        match self.options.lenient && has_several_scans && !jpeg::is_ended(bytes, self.header.first_scan) {
            true => Cow::Owned([bytes, &END_OF_IMAGE].concat()),
            false => Cow::Borrowed(bytes),
        }
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

    /// Checked here because all decoders produce the same pixels.
    #[test]
    fn common_files_go_through_the_faster_decoder() {
        let options = ImageOptions::default();
        for (subsampling, is_progressive) in [(Subsampling::S420, false), (Subsampling::S444, true)] {
            let gray = [90; 3 * 40 * 30];
            let encoder = Encoder::new(&gray, 40, 30, PixelFormat::Rgb).progressive(is_progressive);
            let bytes = encoder.quality(90).subsampling(subsampling).encode().unwrap();
            let source = CheckedImage::read(&bytes, &options).unwrap();
            let header = source.jpeg.as_ref().unwrap();
            for (reduction, size) in [(1, Size::new(40, 30)), (4, Size::new(10, 8))] {
                let needed = Rect { left: 0, top: 0, size };
                let options = &options;
                let request =
                    JpegRequest { source: &source, header, options, reduction, needed, profile: None };
                let mut out = Pixels::default();
                assert!(request.decode_fast(3, &mut FastDecoder::default(), &mut out));
                assert_eq!(out.size(), size);
            }
        }
    }
}
