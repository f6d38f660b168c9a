//! The decoder for all 8-bit JPEGs with Huffman coding.

use crate::color::{cmyk_to_rgb, invert_cmyk, luma};
use crate::error::{Error, ErrorKind};
use crate::fast::{FastDecoder, FastRequest};
use crate::general::LayoutRequest;
use crate::memory;
use crate::options::{DecodeOptions, Image, ImageInfo, PixelFormat, Region};
use crate::structure::{JpegLayout, check_file_size};

/// Decodes JPEG images, and keeps its buffers and tables from one image to the next.
///
/// Common files are decoded by [`FastDecoder`], all others by [`JpegLayout::decode`]. The pixels do not depend on which
/// of the two is used.
#[derive(Debug, Default)]
pub struct Decoder {
    fast: FastDecoder,
    /// CMYK samples before color conversion.
    cmyk: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder, without allocating buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the file `bytes`.
    ///
    /// # Errors
    ///
    /// See [`ErrorKind`].
    pub fn decode(&mut self, bytes: &[u8], options: &DecodeOptions) -> Result<Image, Error> {
        let mut pixels = Vec::new();
        let info = self.decode_into(bytes, options, &mut pixels)?;
        Ok(Image { info, pixels })
    }

    /// Decodes like [`decode`](Self::decode), and replaces the content of `pixels`. Reusing the buffer saves an
    /// allocation. On failure, its content is unspecified.
    ///
    /// # Errors
    ///
    /// See [`ErrorKind`].
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        pixels: &mut Vec<u8>,
    ) -> Result<ImageInfo, Error> {
        // The fast decoder declines any damage, so a lenient decode can also try it first.
        if let Some(info) = self.decode_fast(bytes, options, pixels)? {
            return Ok(info);
        }
        let layout =
            if options.is_lenient { JpegLayout::read(bytes)? } else { JpegLayout::read_strict(bytes)? };
        let region = self::region(options, layout.width(), layout.height())?;
        if !options.is_lenient {
            layout.check_file_size(bytes)?;
        }
        let info = self.decode_layout(&layout, options, pixels)?;
        crop(pixels, info, region);
        Ok(ImageInfo { width: region.width, height: region.height, ..info })
    }

    /// Decodes a common file; returns `None` for any other or damaged file.
    fn decode_fast(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        pixels: &mut Vec<u8>,
    ) -> Result<Option<ImageInfo>, Error> {
        let Ok((width, height, is_gray)) = self.fast.size(bytes) else { return Ok(None) };
        let region = self::region(options, width, height)?;
        if check_file_size(width.div_ceil(8) * height.div_ceil(8), bytes).is_err() {
            return Ok(None);
        }
        let format = options.format.unwrap_or(if is_gray { PixelFormat::Gray } else { PixelFormat::Rgb });
        let request = FastRequest {
            size: (width, height),
            scale: options.scale,
            region,
            stride: region.width,
            format,
            reads_to_end: options.reads_to_end,
        };
        let Some(count) = request.sample_count() else { return Ok(None) };
        memory::resize(pixels, count, 0)?;
        Ok(self.fast.decode_into(bytes, request, pixels).is_ok().then_some(ImageInfo {
            width: region.width,
            height: region.height,
            format,
            is_damaged: false,
        }))
    }

    /// Decodes the whole image of any file, ignoring the region.
    fn decode_layout(
        &mut self,
        layout: &JpegLayout<'_>,
        options: &DecodeOptions,
        pixels: &mut Vec<u8>,
    ) -> Result<ImageInfo, Error> {
        let DecodeOptions { scale, is_lenient, .. } = *options;
        let stored = match layout.components().len() {
            1 => PixelFormat::Gray,
            4 => PixelFormat::Cmyk,
            _ => PixelFormat::Rgb,
        };
        if stored != PixelFormat::Cmyk {
            let format = options.format.unwrap_or(stored);
            return layout.decode(LayoutRequest { scale, format, is_lenient }, pixels);
        }
        let format = options.format.unwrap_or(PixelFormat::Rgb);
        let samples = if format == PixelFormat::Cmyk { &mut *pixels } else { &mut self.cmyk };
        let info = layout.decode(LayoutRequest { scale, format: PixelFormat::Cmyk, is_lenient }, samples)?;
        if layout.has_adobe_marker() {
            invert_cmyk(samples);
        }
        if format != PixelFormat::Cmyk {
            memory::resize(pixels, info.width * info.height * format.channels(), 0)?;
        }
        match format {
            PixelFormat::Cmyk => {}
            PixelFormat::Rgb => cmyk_to_rgb(&self.cmyk, pixels),
            PixelFormat::Gray => {
                for (gray, cmyk) in pixels.iter_mut().zip(self.cmyk.chunks_exact(4)) {
                    let mut rgb = [0; 3];
                    cmyk_to_rgb(cmyk, &mut rgb);
                    *gray = luma(rgb);
                }
            }
        }
        Ok(ImageInfo { format, ..info })
    }
}

/// Returns the region to decode of an image of `width` × `height` stored pixels, at the scale of `options`.
fn region(options: &DecodeOptions, width: usize, height: usize) -> Result<Region, Error> {
    if width as u64 * height as u64 > options.max_pixels {
        let message =
            format!("the image has {width}×{height} pixels, but the limit is {}", options.max_pixels);
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let (width, height) = (options.scale.of_side(width), options.scale.of_side(height));
    let whole = Region::whole(width, height);
    let region = options.region.unwrap_or(whole);
    if !region.fits(width, height) {
        let message = format!("the region {region:?} is not inside the {width}×{height} image");
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    Ok(region)
}

/// Removes all pixels outside `region`.
fn crop(pixels: &mut Vec<u8>, info: ImageInfo, region: Region) {
    if region == Region::whole(info.width, info.height) {
        return;
    }
    let channels = info.format.channels();
    let (stride, kept) = (info.width * channels, region.width * channels);
    for row in 0..region.height {
        let start = (region.top + row) * stride + region.left * channels;
        pixels.copy_within(start..start + kept, row * kept);
    }
    pixels.truncate(region.height * kept);
}
