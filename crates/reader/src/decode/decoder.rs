//! Decodes the requested part of a stored image into the caller's buffer.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::{FastDecoder, FastRequest, JpegLayout, LayoutRequest, PixelFormat, Process};
use fast_image_resize::{FilterType, Resizer};
use image::ImageDecoder;

use super::jpeg_engine::JpegEngine;
use super::pixels::{PixelOrder, Pixels, Rect, Size};
use super::plane_scaler::{PlaneScaler, is_resampled_by_planes};
use super::planes_file::{PlanesChroma, PlanesFile};
use super::rejects::{corrupt, fill_zeros, of_jpeg, too_large, unsupported};
use super::resize::{SourceRegion, is_reducible, reduction, resize, scale, whole_pixels};
use super::samples::to_8_bits;
use super::sniff::{ImageType, sniff};
use super::{luma, other, turbo};

/// Filter for parts whose size differs from the target; antialiased, as in PIL and torchvision.
const FILTER: FilterType = FilterType::Bilinear;

/// Filter with the weights of Pillow's `BICUBIC` and of torchvision's with antialiasing: a is −0.5.
const BICUBIC: FilterType = FilterType::CatmullRom;

/// A stored image.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The file, or raw samples.
    pub bytes: &'a [u8],
    /// Size in the record.
    pub size: Size,
    /// For raw samples (rows from top to bottom), the number of samples per pixel.
    pub raw_channels: Option<usize>,
}

/// Decodes images, reusing buffers and tables from one to the next.
#[derive(Default)]
pub struct Decoder {
    jpeg: FastDecoder,
    planes: PlaneScaler,
    /// The whole image, for formats that need it.
    whole: Pixels,
    /// The part that is resampled.
    part: Pixels,
    /// Samples as stored in the file.
    samples: Vec<u8>,
    /// One image, before its channels are separated, or between two steps.
    interleaved: Vec<u8>,
    resizer: Resizer,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Decodes `part` of `image` into `out`, as `target` pixels of `channels` samples (1: gray, 3: RGB). A part of
    /// whole pixels with the size of the target is not resampled. A JPEG is decoded at a reduced size if at least twice
    /// the target size remains in each direction.
    ///
    /// # Errors
    ///
    /// When the image does not decode, its size differs from the record, or the part lies outside the image. The
    /// content of `out` is then unspecified.
    pub fn decode(
        &mut self,
        image: Stored<'_>,
        part: SourceRegion,
        target: Size,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        if let Some(rect) = whole_pixels(part, target) {
            return self.rect(image, 1, rect, channels, out);
        }
        let image_type = if image.raw_channels.is_none() { sniff(image.bytes) } else { None };
        if image_type == Some(ImageType::Planes) && is_resampled_by_planes(part, target) {
            let order = PixelOrder::interleaved(channels);
            return self.planes.resize(&planes_of(image)?, part, target, order, out);
        }
        let reduction =
            if image_type == Some(ImageType::Jpeg) { reduction(part.width, part.height, target) } else { 1 };
        let reduction = if reduction == 1 || is_reducible(image.bytes) { reduction } else { 1 };
        let part = part.reduced(reduction);
        let whole = image.size.reduced(reduction);
        // All pixels that the part touches.
        let (left, top) = (part.left as u32, part.top as u32);
        let right = ((part.left + part.width).ceil() as u32).min(whole.width);
        let bottom = ((part.top + part.height).ceil() as u32).min(whole.height);
        let size = Size::new(right.saturating_sub(left).max(1), bottom.saturating_sub(top).max(1));
        let mut source = std::mem::take(&mut self.part);
        source.reshape(size, channels);
        let part = SourceRegion { left: part.left - f64::from(left), top: part.top - f64::from(top), ..part };
        let done = self
            .rect(image, reduction, Rect { left, top, size }, channels, &mut source.data)
            .and_then(|()| resize(&mut self.resizer, FILTER, &mut source, part, target, out));
        self.part = source;
        done
    }

    /// Decodes the whole `image` at its full size and returns its RGB samples, resampled to `target` pixels by the antialiased
    /// bicubic filter of Pillow: first columns, then rows. Transparent pixels are on white, as the image processors of
    /// transformers have them.
    ///
    /// # Errors
    ///
    /// When the image does not decode, or its size differs from the record.
    pub fn bicubic(&mut self, image: Stored<'_>, target: Size) -> Result<&[u8], Reject> {
        let mut source = std::mem::take(&mut self.part);
        let mut resized = Pixels { data: std::mem::take(&mut self.interleaved), ..Pixels::default() };
        self.on_white(image, &mut source)?;
        for size in [Size::new(target.width, image.size.height), target] {
            let Size { width, height } = source.size();
            if source.size() != size {
                resized.reshape(size, 3);
                let part = SourceRegion { left: 0.0, top: 0.0, width: width.into(), height: height.into() };
                resize(&mut self.resizer, BICUBIC, &mut source, part, size, &mut resized.data)?;
                std::mem::swap(&mut source, &mut resized);
            }
        }
        (self.part, self.interleaved) = (source, resized.data);
        Ok(&self.part.data)
    }

    /// Decodes the whole `image` to RGB. Transparent pixels are on white.
    fn on_white(&mut self, image: Stored<'_>, out: &mut Pixels) -> Result<(), Reject> {
        out.reshape(image.size, 3);
        let whole = Rect { left: 0, top: 0, size: image.size };
        match sniff(image.bytes).filter(|_| image.raw_channels.is_none()) {
            Some(image_type) if !matches!(image_type, ImageType::Jpeg | ImageType::Planes) => {
                self.whole_other(image, image_type)?;
                let Pixels { data, channels, .. } = &self.whole;
                if *channels != 4 {
                    return copy_rect(data, *channels, image.size, whole, 3, &mut out.data);
                }
                for (to, [colors @ .., alpha]) in
                    out.data.as_chunks_mut::<3>().0.iter_mut().zip(data.as_chunks::<4>().0)
                {
                    *to = colors.map(|color| over_white(color, *alpha));
                }
                Ok(())
            }
            _ => self.rect(image, 1, whole, 3, &mut out.data),
        }
    }

    /// Decodes like [`decode`](Self::decode), with samples in `order`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`decode`](Self::decode).
    pub fn arranged(
        &mut self,
        image: Stored<'_>,
        part: SourceRegion,
        target: Size,
        order: PixelOrder,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let PixelOrder { channels, is_mirrored, is_planar } = order;
        let is_planar = is_planar && channels > 1;
        if image.raw_channels.is_none() && sniff(image.bytes) == Some(ImageType::Planes) {
            // Mirrored and separated for free.
            match whole_pixels(part, target) {
                Some(rect) if is_planar && !is_mirrored => {
                    return self.planes.crop_to_planes(&planes_of(image)?, rect, out);
                }
                None if is_resampled_by_planes(part, target) => {
                    let order = PixelOrder { is_planar, ..order };
                    return self.planes.resize(&planes_of(image)?, part, target, order, out);
                }
                _ => {}
            }
        }
        if !is_planar {
            self.decode(image, part, target, channels, out)?;
            if is_mirrored {
                mirror(out, target.width as usize, channels);
            }
            return Ok(());
        }
        let mut interleaved = std::mem::take(&mut self.interleaved);
        interleaved.resize(out.len(), 0);
        let done = self.decode(image, part, target, channels, &mut interleaved);
        if done.is_ok() {
            if is_mirrored {
                mirror(&mut interleaved, target.width as usize, channels);
            }
            deinterleave(&interleaved, out);
        }
        self.interleaved = interleaved;
        done
    }

    /// Writes `part` of `image`, resampled to `target` pixels, to `out` as planes: luma, then Cb and Cr, each without gaps.
    /// The image must be stored as planes with the chroma planes `chroma`. If `is_mirrored`, columns are in reverse order.
    ///
    /// # Errors
    ///
    /// When the image is not stored so, its size differs from the record, or the part lies outside the image. The content
    /// of `out` is then unspecified.
    pub fn planes(
        &mut self,
        image: Stored<'_>,
        (part, is_mirrored): (SourceRegion, bool),
        target: Size,
        chroma: PlanesChroma,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let image_type = if image.raw_channels.is_none() { sniff(image.bytes) } else { Some(ImageType::Raw) };
        if let Some(image_type) = image_type.filter(|image_type| *image_type != ImageType::Planes) {
            return Err(unsupported(format!(
                "it is stored as {image_type}, and only images converted with encode yuv420 or yuv444 have planes"
            )));
        }
        let file = planes_of(image)?;
        if file.chroma != chroma {
            return Err(unsupported("its planes have another subsampling than the first image of its batch"));
        }
        self.planes.planes(&file, part, target, is_mirrored, out)
    }

    /// Decodes `rect` of `image` into `out`. JPEGs are decoded at 1/`reduction` of their size; `rect` is at that scale.
    fn rect(
        &mut self,
        image: Stored<'_>,
        reduction: u32,
        rect: Rect,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let Rect { left, top, size } = rect;
        let whole = image.size.reduced(reduction);
        let fits =
            |start: u32, length: u32, all: u32| start.checked_add(length).is_some_and(|end| end <= all);
        if !fits(left, size.width, whole.width) || !fits(top, size.height, whole.height) {
            return Err(corrupt("the requested part lies outside the image"));
        }
        if let Some(stored) = image.raw_channels {
            return copy_rect(image.bytes, stored, image.size, rect, channels, out);
        }
        match sniff(image.bytes) {
            Some(ImageType::Jpeg) => {
                let request = FastRequest {
                    size: (image.size.width as usize, image.size.height as usize),
                    scale: scale(reduction),
                    region: rect.into(),
                    stride: size.width as usize,
                    format: jpeg_format(channels),
                    reads_to_end: false,
                };
                if self.jpeg.decode_into(image.bytes, request, out).is_ok() {
                    return Ok(());
                }
                self.whole_jpeg(image, reduction, channels)?;
            }
            Some(ImageType::Planes) => return self.planes.crop(&planes_of(image)?, rect, channels, out),
            Some(image_type) => self.whole_other(image, image_type)?,
            None => {
                return Err(Reject::new(
                    RejectCode::UnknownType,
                    "the content is not an image of a known type",
                ));
            }
        }
        copy_rect(&self.whole.data, self.whole.channels, whole, rect, channels, out)
    }

    /// Decodes a whole JPEG of any kind, at 1/`reduction` of its size.
    fn whole_jpeg(&mut self, image: Stored<'_>, reduction: u32, channels: usize) -> Result<(), Reject> {
        let bytes = image.bytes;
        let layout = JpegLayout::read_strict(bytes).map_err(of_jpeg)?;
        check_size(image, image.size, (layout.width() as u64, layout.height() as u64))?;
        if JpegEngine::of(&layout)? == JpegEngine::Layout {
            return self.whole_layout(&layout, image.size, reduction, channels);
        }
        // libjpeg-turbo-rs does not convert the colors of lossless files to gray.
        let is_color = layout.process() == Process::Lossless && layout.components().len() == 3;
        let channels = if is_color { 3 } else { channels };
        let reject = |error| turbo::reject(error, bytes.ends_with(&[0xff, 0xd9]));
        let mut decoder = turbo::decoder(bytes, image.size.pixels(), false, reduction).map_err(reject)?;
        let size = image.size.reduced(reduction);
        check_size(image, size, (decoder.output_width() as u64, decoder.output_height() as u64))?;
        decoder.set_output_format(turbo_format(channels));
        self.whole.reshape(size, channels);
        let needed = decoder.output_buffer_size().map_err(reject)?;
        self.whole.data.resize(needed, 0);
        decoder.decode_image_into(&mut self.whole.data).map_err(reject)?;
        Ok(())
    }

    /// Decodes a whole JPEG with four components or unusual sampling factors.
    fn whole_layout(
        &mut self,
        layout: &JpegLayout<'_>,
        size: Size,
        reduction: u32,
        channels: usize,
    ) -> Result<(), Reject> {
        let size = size.reduced(reduction);
        let request = |format| LayoutRequest { scale: scale(reduction), format, is_lenient: false };
        if layout.components().len() != 4 {
            self.whole.reshape(size, channels);
            let done = layout.decode(request(jpeg_format(channels)), &mut self.whole.data);
            return done.map(drop).map_err(of_jpeg);
        }
        layout.decode(request(PixelFormat::Cmyk), &mut self.samples).map_err(of_jpeg)?;
        if layout.has_adobe_marker() {
            dsconvert_jpeg::invert_cmyk(&mut self.samples);
        }
        self.whole.reshape(size, 3);
        dsconvert_jpeg::cmyk_to_rgb(&self.samples, &mut self.whole.data);
        Ok(())
    }

    /// Decodes a whole image of any other type.
    fn whole_other(&mut self, image: Stored<'_>, image_type: ImageType) -> Result<(), Reject> {
        let mut decoder = other::open(image.bytes, image_type, image.size).map_err(other::reject)?;
        let (width, height) = decoder.dimensions();
        check_size(image, image.size, (width.into(), height.into()))?;
        let decoded = decoder.total_bytes();
        decoder.set_limits(other::limits(decoded)).map_err(other::reject)?;
        let color_type = decoder.color_type();
        let decoded = usize::try_from(decoded).map_err(|_| too_large())?;
        fill_zeros(&mut self.samples, decoded)?;
        decoder.read_image(&mut self.samples).map_err(other::reject)?;
        to_8_bits(&self.samples, color_type, image.size, &mut self.whole)
    }
}

/// Reverses each row of `width` pixels.
fn mirror(pixels: &mut [u8], width: usize, channels: usize) {
    for row in pixels.chunks_exact_mut((width * channels).max(1)) {
        match channels {
            3 => row.as_chunks_mut::<3>().0.reverse(),
            _ => row.reverse(),
        }
    }
}

/// Returns a color with `alpha` on white, rounded as Pillow does.
fn over_white(color: u8, alpha: u8) -> u8 {
    let (color, alpha) = (u32::from(color), u32::from(alpha));
    let sum = (color * alpha + 255 * (255 - alpha) + 128) << 7;
    (((sum >> 8) + sum) >> 15) as u8
}

/// Separates RGBRGB… into R…G…B….
fn deinterleave(interleaved: &[u8], planes: &mut [u8]) {
    let area = interleaved.len() / 3;
    let (red, rest) = planes.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    let pixels = interleaved.as_chunks::<3>().0;
    for (((r, g), b), pixel) in red.iter_mut().zip(green).zip(blue).zip(pixels) {
        (*r, *g, *b) = (pixel[0], pixel[1], pixel[2]);
    }
}

/// Returns the planes of `image`.
fn planes_of(image: Stored<'_>) -> Result<PlanesFile<'_>, Reject> {
    let file = PlanesFile::read(image.bytes)?;
    check_size(image, image.size, (file.size.width.into(), file.size.height.into()))?;
    Ok(file)
}

/// Returns the pixel format for gray or RGB output.
fn jpeg_format(channels: usize) -> PixelFormat {
    if channels == 1 { PixelFormat::Gray } else { PixelFormat::Rgb }
}

/// Same as [`jpeg_format`], for libjpeg-turbo-rs.
fn turbo_format(channels: usize) -> libjpeg_turbo_rs::PixelFormat {
    if channels == 1 { libjpeg_turbo_rs::PixelFormat::Grayscale } else { libjpeg_turbo_rs::PixelFormat::Rgb }
}

/// Checks that the decoded size, `(width, height)`, is `expected`.
fn check_size(image: Stored<'_>, expected: Size, (width, height): (u64, u64)) -> Result<(), Reject> {
    if (width, height) == (expected.width.into(), expected.height.into()) {
        return Ok(());
    }
    let Size { width: w, height: h } = image.size;
    Err(corrupt(format!("it has {width}×{height} pixels, but {w}×{h} in its record")))
}

/// Copies `rect` of `pixels` to `out`, converting from `from` to `to` samples per pixel. `pixels` has `size`.
fn copy_rect(
    pixels: &[u8],
    from: usize,
    size: Size,
    rect: Rect,
    to: usize,
    out: &mut [u8],
) -> Result<(), Reject> {
    let stride = size.width as usize * from;
    if pixels.len() as u64 != size.pixels() * from as u64 {
        let Size { width, height } = size;
        return Err(corrupt(format!("{} samples are not {width}×{height} pixels of {from}", pixels.len())));
    }
    let (start, length) = (rect.left as usize * from, rect.size.width as usize * from);
    let rows = pixels.chunks_exact(stride).skip(rect.top as usize);
    for (out, row) in out.chunks_exact_mut(rect.size.width as usize * to).zip(rows) {
        let row = row.get(start..start + length).unwrap_or_default();
        match (from, to) {
            (1, 3) => {
                out.as_chunks_mut::<3>().0.iter_mut().zip(row).for_each(|(pixel, v)| *pixel = [*v; 3]);
            }
            (3, 1) => out.iter_mut().zip(row.as_chunks::<3>().0).for_each(|(v, rgb)| *v = luma(*rgb)),
            (4, 1) => {
                out.iter_mut()
                    .zip(row.as_chunks::<4>().0)
                    .for_each(|(v, [r, g, b, _])| *v = luma([*r, *g, *b]));
            }
            (4, 3) => {
                let pixels = out.as_chunks_mut::<3>().0.iter_mut().zip(row.as_chunks::<4>().0);
                pixels.for_each(|(pixel, [r, g, b, _])| *pixel = [*r, *g, *b]);
            }
            _ => out.copy_from_slice(row),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use libjpeg_turbo_rs::{Encoder, PixelFormat, Subsampling};

    use super::*;

    const SIZE: Size = Size { width: 20, height: 12 };

    #[test]
    fn pixels_are_mirrored_and_deinterleaved() {
        let mut pixels = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        mirror(&mut pixels, 2, 3);
        assert_eq!(pixels, [4, 5, 6, 1, 2, 3, 10, 11, 12, 7, 8, 9]);
        let mut planes = [0; 12];
        deinterleave(&pixels, &mut planes);
        assert_eq!(planes, [4, 1, 10, 7, 5, 2, 11, 8, 6, 3, 12, 9]);
        let mut gray = [1, 2, 3, 4];
        mirror(&mut gray, 2, 1);
        assert_eq!(gray, [2, 1, 4, 3]);
    }

    fn pixels(channels: usize) -> Vec<u8> {
        (0..20 * 12 * channels).map(|n| (n * 7 % 251) as u8).collect()
    }

    fn part(left: f64, top: f64, width: f64, height: f64) -> SourceRegion {
        SourceRegion { left, top, width, height }
    }

    fn decode(
        image: Stored<'_>,
        part: SourceRegion,
        (w, h): (u32, u32),
        channels: usize,
    ) -> Result<Vec<u8>, Reject> {
        let mut out = vec![0; w as usize * h as usize * channels];
        Decoder::default().decode(image, part, Size::new(w, h), channels, &mut out).map(|()| out)
    }

    #[test]
    fn raw_samples_are_cropped_and_converted() {
        for (stored, wanted) in [(1, 1), (1, 3), (3, 1), (3, 3), (4, 1), (4, 3)] {
            let bytes = pixels(stored);
            let image = Stored { bytes: &bytes, size: SIZE, raw_channels: Some(stored) };
            let found = decode(image, part(3.0, 2.0, 5.0, 4.0), (5, 4), wanted).unwrap();
            let pixel = |x: usize, y: usize| &bytes[(y * 20 + x) * stored..][..stored];
            let expected: Vec<u8> = (2..6)
                .flat_map(|y| (3..8).map(move |x| (x, y)))
                .flat_map(|(x, y)| match (pixel(x, y), wanted) {
                    ([v], n) => vec![*v; n],
                    ([r, g, b, ..], 1) => vec![luma([*r, *g, *b])],
                    (rgb, _) => rgb[..3].to_vec(),
                })
                .collect();
            assert_eq!(found, expected, "{stored} to {wanted}");
        }
        let short = Stored { bytes: &pixels(3)[1..], size: SIZE, raw_channels: Some(3) };
        assert_eq!(
            decode(short, part(0.0, 0.0, 20.0, 12.0), (20, 12), 3).unwrap_err().code,
            RejectCode::Corrupt
        );
    }

    #[test]
    fn progressive_jpegs_are_decoded_like_baseline_jpegs() {
        let pixels = pixels(3);
        let [plain, progressive] = [false, true].map(|progressive| {
            let encoder = Encoder::new(&pixels, 20, 12, PixelFormat::Rgb).subsampling(Subsampling::S444);
            encoder.quality(95).progressive(progressive).encode().unwrap()
        });
        let [one, two] = [&plain, &progressive].map(|bytes| {
            let image = Stored { bytes, size: SIZE, raw_channels: None };
            decode(image, part(4.0, 1.0, 9.0, 9.0), (9, 9), 3).unwrap()
        });
        assert_eq!(one, two);
        let wrong = Stored { bytes: &plain, size: Size::new(21, 12), raw_channels: None };
        let error = decode(wrong, part(0.0, 0.0, 9.0, 9.0), (9, 9), 3).unwrap_err();
        assert!(error.message.contains("20×12"), "{}", error.message);
    }

    #[test]
    fn lossless_jpegs_are_converted_to_gray() {
        let pixels = pixels(3);
        let bytes = Encoder::new(&pixels, 20, 12, PixelFormat::Rgb).lossless(true).encode().unwrap();
        let raw = Stored { bytes: &pixels, size: SIZE, raw_channels: Some(3) };
        let image = Stored { bytes: &bytes, raw_channels: None, ..raw };
        let region = part(2.0, 3.0, 11.0, 6.0);
        for channels in [1, 3] {
            let [found, expected] =
                [image, raw].map(|stored| decode(stored, region, (11, 6), channels).unwrap());
            assert_eq!(found, expected, "{channels}");
        }
    }

    #[test]
    fn large_parts_of_jpegs_are_decoded_at_a_reduced_size() {
        // A smooth picture: photographs are smooth at the scale of a few pixels.
        let size = Size::new(403, 301);
        let wave = |x: u32, y: u32, c: u32| {
            let phase = f64::from(x * (c + 1)) / 31.0 + f64::from(y) / 23.0;
            (127.0 + 100.0 * phase.sin()) as u8
        };
        let pixels: Vec<u8> = (0..size.height)
            .flat_map(|y| (0..size.width).flat_map(move |x| (0..3).map(move |c| wave(x, y, c))))
            .collect();
        let files = [false, true].map(|progressive| {
            let encoder = Encoder::new(&pixels, 403, 301, PixelFormat::Rgb).quality(98);
            encoder.progressive(progressive).encode().unwrap()
        });
        let file = |bytes| Stored { bytes, size, raw_channels: None };
        let whole = decode(file(&files[0]), part(0.0, 0.0, 403.0, 301.0), (403, 301), 3).unwrap();
        let raw = Stored { bytes: &whole, size, raw_channels: Some(3) };
        for target in [200, 60, 40, 20, 10] {
            let region = part(1.5, 3.0, 400.5, 296.0);
            let of = |image| decode(image, region, (target, target), 3).unwrap();
            let [baseline, progressive] = [0, 1].map(|n: usize| of(file(&files[n])));
            assert_eq!(baseline, progressive, "{target}");
            let expected = of(raw);
            let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
            let error = baseline.iter().zip(&expected).map(square).sum::<f64>() / expected.len() as f64;
            // More than 40 dB.
            assert!(error < 6.5, "{error} at {target}");
        }
    }

    #[test]
    fn lossless_files_decode_to_their_pixels() {
        use image::ImageEncoder;
        use image::codecs::{png::PngEncoder, webp::WebPEncoder};
        for (channels, color) in [
            (1, image::ExtendedColorType::L8),
            (3, image::ExtendedColorType::Rgb8),
            (4, image::ExtendedColorType::Rgba8),
        ] {
            let pixels = pixels(channels);
            let (mut png, mut webp) = (Vec::new(), Vec::new());
            PngEncoder::new(&mut png).write_image(&pixels, 20, 12, color).unwrap();
            WebPEncoder::new_lossless(&mut webp).write_image(&pixels, 20, 12, color).unwrap();
            let raw = Stored { bytes: &pixels, size: SIZE, raw_channels: Some(channels) };
            let region = part(2.0, 3.0, 11.0, 6.0);
            let expected = decode(raw, region, (11, 6), 3).unwrap();
            for bytes in [&png, &webp] {
                let image = Stored { bytes, size: SIZE, raw_channels: None };
                assert_eq!(decode(image, region, (11, 6), 3).unwrap(), expected, "{channels} channels");
                let cut = Stored { bytes: &bytes[..bytes.len() / 2], ..image };
                assert!(decode(cut, region, (11, 6), 3).is_err());
                let wrong = Stored { size: Size::new(20, 13), ..image };
                assert!(decode(wrong, region, (11, 6), 3).is_err());
            }
        }
    }

    #[test]
    fn parts_that_differ_from_the_target_size_are_resampled() {
        let bytes = vec![77; 20 * 12 * 3];
        let image = Stored { bytes: &bytes, size: SIZE, raw_channels: Some(3) };
        assert_eq!(decode(image, part(0.5, 0.25, 19.5, 11.75), (7, 5), 3).unwrap(), vec![77; 7 * 5 * 3]);
        assert_eq!(decode(image, part(0.0, 0.0, 20.0, 12.0), (40, 30), 1).unwrap(), vec![77; 40 * 30]);
    }

    #[test]
    fn unknown_types_and_parts_outside_the_image_are_refused() {
        let image = Stored { bytes: b"not an image", size: SIZE, raw_channels: None };
        let error = decode(image, part(0.0, 0.0, 20.0, 12.0), (20, 12), 3).unwrap_err();
        assert_eq!(error.code, RejectCode::UnknownType);
        assert!(decode(image, part(10.0, 0.0, 20.0, 12.0), (20, 12), 3).is_err());
    }
}
