//! Decodes all types except JPEG, most with the `image` crate, with its limits enabled. Reads the sizes of all types.

use std::borrow::Cow;
use std::io::Cursor;

use dsconvert_dataset::sample::Reject;
use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::pnm::PnmDecoder;
use image::codecs::qoi::QoiDecoder;
use image::codecs::tga::TgaDecoder;
use image::codecs::webp::WebPDecoder;
use image::error::{DecodingError, ImageFormatHint, LimitError, LimitErrorKind};
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageResult, Limits};

use super::avif;
use super::pixels::Size;
use super::planes_file::PlanesReader;
use super::rejects::{corrupt, image_error, too_large, truncated, unsupported};
use super::sniff::{ImageType, sniff};
use super::tiff::TiffFile;

/// Bytes that a decoder may allocate in addition to its output: tables, windows, palettes, compressed strips.
const DECODER_BYTES: u64 = 64 << 20;

/// Returns the limits for a decoder whose output has `decoded_bytes`.
pub fn limits(decoded_bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(decoded_bytes.saturating_mul(2).saturating_add(DECODER_BYTES));
    limits
}

/// Opens a decoder for an image of `image_type` whose expected size is `size`.
pub fn open(
    bytes: &[u8],
    image_type: ImageType,
    size: Size,
) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    let reader = Cursor::new(bytes);
    Ok(match image_type {
        ImageType::Png => Box::new(PngFile::new(bytes, size, true)?),
        ImageType::Webp => Box::new(WebPDecoder::new(Cursor::new(without_blending(bytes)))?),
        ImageType::Gif => Box::new(GifDecoder::new(reader)?),
        ImageType::Bmp => Box::new(BmpDecoder::new(Cursor::new(with_windows_header(bytes)))?),
        ImageType::Planes => Box::new(PlanesReader::new(bytes)?),
        ImageType::Pnm => Box::new(PnmDecoder::new(reader)?),
        ImageType::Tga => {
            Box::new(TgaFile { decoder: TgaDecoder::new(reader)?, is_opaque: has_unused_alpha(bytes) })
        }
        ImageType::Qoi => Box::new(QoiDecoder::new(reader)?),
        ImageType::Avif => avif::open(bytes)?,
        ImageType::Tiff | ImageType::Raw | ImageType::Jpeg => {
            Box::new(TiffFile::read(bytes).map_err(image_error)?)
        }
    })
}

/// Opens a decoder for the PNG `bytes` that ignores wrong checksums.
pub fn open_damaged_png(bytes: &[u8], size: Size) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    Ok(Box::new(PngFile::new(bytes, size, false)?))
}

/// Returns the BMP file `bytes` with a header of Windows instead of that of OS/2 2.x, which the decoder does not read. It
/// starts with the same fields.
fn with_windows_header(bytes: &[u8]) -> Cow<'_, [u8]> {
    const START: usize = 14;
    const OS2_BYTES: u32 = 64;
    const WINDOWS_BYTES: u32 = 40;
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let rest = bytes.get(START + OS2_BYTES as usize..);
    // Compressions from 3 on are others than in Windows.
    match (number(START), number(START + 16), number(10), rest) {
        (Some(OS2_BYTES), Some(0..=2), Some(offset), Some(rest)) if offset > OS2_BYTES => {
            let header = &bytes[START..START + WINDOWS_BYTES as usize];
            let mut file = [&bytes[..START], header, rest].concat();
            file[10..14].copy_from_slice(&(offset - (OS2_BYTES - WINDOWS_BYTES)).to_le_bytes());
            file[START..START + 4].copy_from_slice(&WINDOWS_BYTES.to_le_bytes());
            Cow::Owned(file)
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// Position of the flags in the data of an ANMF chunk.
const FRAME_FLAGS: usize = 15;
const NO_BLENDING: u8 = 0x02;

/// Returns the WebP file `bytes` such that its first frame, if it is an animation, is not blended with the canvas. The
/// canvas is transparent then, so blending has no effect, but the decoder changes colors by rounding.
fn without_blending(bytes: &[u8]) -> Cow<'_, [u8]> {
    match flags_of_first_frame(bytes) {
        Some(at) if bytes[at] & NO_BLENDING == 0 => {
            let mut bytes = bytes.to_vec();
            bytes[at] |= NO_BLENDING;
            Cow::Owned(bytes)
        }
        _ => Cow::Borrowed(bytes),
    }
}

fn flags_of_first_frame(bytes: &[u8]) -> Option<usize> {
    const RIFF_HEADER_BYTES: usize = 12;
    let mut at = RIFF_HEADER_BYTES;
    // Only the extended form of the container has frames.
    if bytes.get(at..)?.first_chunk()? != b"VP8X" {
        return None;
    }
    loop {
        let (kind, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
        if kind == b"ANMF" {
            let flags = at + 8 + FRAME_FLAGS;
            return (flags < bytes.len()).then_some(flags);
        }
        let length = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        at = at.checked_add(8)?.checked_add(length.checked_next_multiple_of(2)?)?;
    }
}

/// A decoder for one TGA file that makes its pixels opaque if its extension area says that the fourth channel is unused.
struct TgaFile<'a> {
    decoder: TgaDecoder<Cursor<&'a [u8]>>,
    is_opaque: bool,
}

impl ImageDecoder for TgaFile<'_> {
    fn dimensions(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    fn color_type(&self) -> ColorType {
        self.decoder.color_type()
    }

    fn read_image(self, out: &mut [u8]) -> ImageResult<()> {
        let is_opaque = self.is_opaque && self.color_type() == ColorType::Rgba8;
        self.decoder.read_image(out)?;
        if is_opaque {
            out.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = 0xff);
        }
        Ok(())
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}

/// Returns whether the TGA file `bytes` has an extension area whose attributes type is 0: no alpha.
fn has_unused_alpha(bytes: &[u8]) -> bool {
    const FOOTER_BYTES: usize = 26;
    const ATTRIBUTES_TYPE: usize = 494;
    let footer = bytes.len().checked_sub(FOOTER_BYTES).and_then(|start| bytes.get(start..));
    let Some((offset, footer)) = footer.and_then(|footer| footer.split_first_chunk::<4>()) else {
        return false;
    };
    let offset = u32::from_le_bytes(*offset) as usize;
    let attributes_type = offset.checked_add(ATTRIBUTES_TYPE).and_then(|at| bytes.get(at));
    offset > 0 && footer.ends_with(b"TRUEVISION-XFILE.\0") && attributes_type == Some(&0)
}

/// Converts an error of the `image` crate into a reject. The input is in memory, so an unexpected end of file means
/// that it is truncated.
pub fn reject(error: ImageError) -> Reject {
    match error {
        ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => truncated("its data"),
        ImageError::IoError(e) => corrupt(e.to_string()),
        ImageError::Limits(e) => match e.kind() {
            LimitErrorKind::Unsupported { .. } => unsupported(e.to_string()),
            _ => too_large(),
        },
        ImageError::Unsupported(e) => unsupported(e.to_string()),
        ImageError::Decoding(e) => avif::reject_of(&e).unwrap_or_else(|| corrupt(e.to_string())),
        other => corrupt(other.to_string()),
    }
}

// Decodes PNG with the `png` crate, up to the last chunk, and verifies all checksums.
//
// The decoder of the `image` crate skips the checksum of the compressed data. It would accept a chunk whose data a
// broken tool changed and whose chunk checksum it recomputed, although other readers refuse such a file.

/// Returns a decoder for the PNG file `bytes` whose expected size is `size`. Without `checks`, wrong checksums are ignored.
pub(super) fn png_decoder(bytes: &[u8], size: Size, checks: bool) -> png::Decoder<Cursor<&[u8]>> {
    // A decoded pixel has at most eight bytes.
    let most = limits(size.pixels().saturating_mul(8)).max_alloc;
    let most = most.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: most });
    decoder.set_ignore_text_chunk(true);
    decoder.ignore_checksums(!checks);
    decoder
}

/// A decoder for one PNG file.
struct PngFile<'a> {
    reader: png::Reader<Cursor<&'a [u8]>>,
    color_type: ColorType,
}

impl<'a> PngFile<'a> {
    fn new(bytes: &'a [u8], size: Size, checks: bool) -> ImageResult<Self> {
        let mut decoder = png_decoder(bytes, size, checks);
        decoder.set_transformations(png::Transformations::EXPAND);
        let reader = decoder.read_info().map_err(png_error)?;
        let color_type = match reader.output_color_type() {
            (png::ColorType::Grayscale, png::BitDepth::Sixteen) => ColorType::L16,
            (png::ColorType::GrayscaleAlpha, png::BitDepth::Sixteen) => ColorType::La16,
            (png::ColorType::Rgb, png::BitDepth::Sixteen) => ColorType::Rgb16,
            (png::ColorType::Rgba, png::BitDepth::Sixteen) => ColorType::Rgba16,
            (png::ColorType::Grayscale, _) => ColorType::L8,
            (png::ColorType::GrayscaleAlpha, _) => ColorType::La8,
            (png::ColorType::Rgb | png::ColorType::Indexed, _) => ColorType::Rgb8,
            (png::ColorType::Rgba, _) => ColorType::Rgba8,
        };
        Ok(Self { reader, color_type })
    }
}

impl ImageDecoder for PngFile<'_> {
    fn dimensions(&self) -> (u32, u32) {
        self.reader.info().size()
    }

    fn color_type(&self) -> ColorType {
        self.color_type
    }

    fn icc_profile(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.reader.info().icc_profile.as_ref().map(|profile| profile.to_vec()))
    }

    fn read_image(mut self, out: &mut [u8]) -> ImageResult<()> {
        self.reader.next_frame(out).map_err(png_error)?;
        if self.color_type.bytes_per_pixel() / self.color_type.channel_count() == 2 {
            for sample in out.as_chunks_mut::<2>().0 {
                *sample = u16::from_be_bytes(*sample).to_ne_bytes();
            }
        }
        self.reader.finish().map_err(png_error)
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}

pub(super) fn png_error(error: png::DecodingError) -> ImageError {
    match error {
        png::DecodingError::IoError(error) => ImageError::IoError(error),
        png::DecodingError::LimitsExceeded => {
            ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory))
        }
        other => ImageError::Decoding(DecodingError::new(ImageFormatHint::Exact(ImageFormat::Png), other)),
    }
}

/// A size for limits only: the header of a file needs no more memory.
const ANY_SIZE: Size = Size { width: 1 << 14, height: 1 << 14 };

/// Returns the size of the pixels that are stored in the image file `bytes`; `None` if its header does not say it.
pub fn stored_size(bytes: &[u8]) -> Option<Size> {
    match sniff(bytes)? {
        ImageType::Jpeg => jpeg_size(bytes),
        image_type => {
            let (width, height) = open(bytes, image_type, ANY_SIZE).ok()?.dimensions();
            Some(Size { width, height })
        }
    }
}

/// Returns the size in the frame header of a JPEG file.
fn jpeg_size(bytes: &[u8]) -> Option<Size> {
    let mut rest = bytes.get(2..)?;
    loop {
        let start = rest.iter().position(|&byte| byte != 0xff)?;
        let marker = if start == 0 { return None } else { *rest.get(start)? };
        rest = rest.get(start + 1..)?;
        match marker {
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => continue,
            // The scan comes after the frame header.
            0xd9 | 0xda => return None,
            _ => {}
        }
        let (length, segment) = rest.split_first_chunk::<2>()?;
        // 0xc4, 0xc8 and 0xcc are tables and an extension; all others are frame headers.
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let [_, h1, h0, w1, w0] = *segment.first_chunk::<5>()?;
            let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
            return Some(Size { width: side(w1, w0), height: side(h1, h0) });
        }
        rest = rest.get(usize::from(u16::from_be_bytes(*length))..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_whole_and_damaged_headers() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x11\x08\x01\x02\x03\x04\x03";
        assert_eq!(stored_size(jpeg), Some(Size { width: 0x304, height: 0x102 }));
        for cut in 0..jpeg.len() - 1 {
            assert_eq!(stored_size(&jpeg[..cut]), None, "{cut}");
        }
        assert_eq!(stored_size(b"\xff\xd8\xff\xda\0\x02\xff\xc0\0\x11\x08\0\x01\0\x01"), None);
        assert_eq!(stored_size(b"\x89PNG\r\n\x1a\n"), None);
        assert_eq!(stored_size(b"no image"), None);
    }
}
