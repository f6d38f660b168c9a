//! TIFF: the first image of full size in a file, in strips or tiles, with the colors and compressions that other readers support.
//!
//! Pixels are decoded in bands, which are rows of strips or tiles. The samples of a band are scaled to 8 or 16 bits, then
//! its colors are converted.

mod colors;
mod compression;
mod fax;
mod jpeg;
mod layout;
mod pages;
mod samples;
mod tags;

use std::ops::Range;

use dsconvert_dataset::sample::Reject;
use image::{ColorType, ImageDecoder, ImageResult};

use self::colors::ColorConverter;
use self::layout::{Alpha, Colors, Layout};
use self::pages::TiffPage;
use self::samples::{Sample, SampleReader};
use self::tags::TiffTags;
use super::pixels::Size;
use super::rejects::{image_error, too_large};
use super::samples::divide_by_alpha;
use super::{corrupt, truncated};

/// Bytes of a strip or tile that may be allocated in addition to twice the image.
const MAX_PART_BYTES: usize = 64 << 20;

/// A TIFF file with the parsed directory of its image.
#[derive(Debug)]
pub struct TiffFile<'a> {
    tags: TiffTags<'a>,
    is_first: bool,
    further_pages: u64,
    layout: Layout,
    converter: ColorConverter,
}

impl<'a> TiffFile<'a> {
    /// Reads the directory of the first image in the TIFF file `bytes` that is no thumbnail. Rejects everything that the
    /// decoder does not support.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Reject> {
        let TiffPage { tags, is_first, further: further_pages } = TiffPage::find(bytes)?;
        if !tags.has_all_values() {
            return Err(truncated("its directory"));
        }
        let layout = Layout::read(&tags)?;
        let converter = ColorConverter::new(&tags, &layout)?;
        Ok(Self { tags, is_first, further_pages, layout, converter })
    }

    /// Returns whether the image is that of the first directory, which readers show that ignore what others are.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Returns the number of other images in the file, not counting reduced versions and masks.
    pub fn further_pages(&self) -> u64 {
        self.further_pages
    }

    /// Returns the size of the stored pixels.
    pub fn size(&self) -> Size {
        self.layout.size
    }

    /// Returns the value of the orientation tag, with the meaning that it has in EXIF.
    pub fn orientation(&self) -> Option<u16> {
        self.tags.first(tags::ORIENTATION).and_then(|value| u16::try_from(value).ok())
    }

    /// Returns the XMP packet.
    pub fn xmp_packet(&self) -> Option<&'a [u8]> {
        self.tags.data(tags::XMP)
    }

    /// Returns the embedded color profile.
    pub fn icc_profile(&self) -> Option<&'a [u8]> {
        self.tags.data(tags::ICC_PROFILE)
    }

    /// Returns whether the file contains CMYK, which is converted without a profile.
    pub fn is_cmyk(&self) -> bool {
        self.layout.colors == Colors::Cmyk
    }

    /// Returns the memory that decoding needs in addition to the decoded pixels.
    pub fn working_bytes(&self) -> u64 {
        let part = self.layout.part_bytes(self.layout.part.height).unwrap_or(usize::MAX) as u64;
        let rows = u64::from(self.layout.part.height.min(self.layout.size.height));
        let band = rows * u64::from(self.layout.size.width) * (2 * self.converter.samples()) as u64;
        // A row of samples of 64 bits, and a JPEG with its own buffers.
        part.saturating_mul(if self.layout.compression.is_jpeg() { 3 } else { 2 }).saturating_add(band)
    }

    /// Returns the number of channels that are neither colors nor alpha, and are not read.
    pub fn further_channels(&self) -> u64 {
        self.layout.samples.saturating_sub(self.converter.samples()) as u64
    }

    /// Returns the bytes of the samples as the file declares them, the bytes of their compressed data in the file, and how
    /// many of the former one of the latter may become at most, if the compression limits that.
    pub fn data_bytes(&self) -> (u64, u64, Option<u64>) {
        let end = self.tags.bytes().len();
        let in_file = |part: &Range<usize>| part.end.min(end).saturating_sub(part.start) as u64;
        let stored = match self.layout.parts.as_slice() {
            // The JPEG is elsewhere.
            [] => end as u64,
            // Parts may share their data.
            parts => parts.iter().map(in_file).fold(0, u64::saturating_add).min(end as u64),
        };
        (self.layout.decompressed_bytes(), stored, self.layout.max_expansion())
    }

    /// Returns whether a strip or tile that is decoded reaches beyond the end of the file.
    pub fn is_cut_off(&self) -> bool {
        let (across, down) = self.layout.grid();
        let planes = if self.layout.is_planar { self.converter.samples() } else { 1 };
        let needed = (across as usize).saturating_mul(down as usize).saturating_mul(planes);
        let end = self.tags.bytes().len();
        self.layout.parts.iter().take(needed).any(|part| part.end > end)
    }

    fn is_deep(&self) -> bool {
        self.layout.bits > 8
    }

    /// Returns the type of the decoded samples, of 8 or 16 bits.
    pub fn color_type(&self) -> ColorType {
        match (self.converter.is_gray(), self.converter.has_alpha(), self.is_deep()) {
            (true, false, false) => ColorType::L8,
            (true, true, false) => ColorType::La8,
            (false, false, false) => ColorType::Rgb8,
            (false, true, false) => ColorType::Rgba8,
            (true, false, true) => ColorType::L16,
            (true, true, true) => ColorType::La16,
            (false, false, true) => ColorType::Rgb16,
            (false, true, true) => ColorType::Rgba16,
        }
    }

    /// Decodes the pixels into `out`, row after row. Returns whether the range of the samples is odd: some are negative,
    /// not a number or above 1.0, or all are so small that the image is black. If a strip or tile is damaged, the rows before it are decoded.
    pub fn decode(&self, out: &mut [u8]) -> Result<bool, Reject> {
        let part_bytes = self.layout.part_bytes(self.layout.part.height).ok_or_else(too_large)?;
        if part_bytes > out.len().saturating_mul(2).saturating_add(MAX_PART_BYTES) {
            return Err(too_large());
        }
        let result = if self.is_deep() { self.decode_as::<u16>(out) } else { self.decode_as::<u8>(out) };
        if self.layout.alpha == Alpha::Associated {
            divide_by_alpha(out, self.color_type());
        }
        result
    }

    fn decode_as<T: Sample>(&self, out: &mut [u8]) -> Result<bool, Reject> {
        let Self { tags, layout, converter, .. } = self;
        let mut reader = SampleReader::new(layout, tags.is_little_endian());
        let (_, down) = layout.grid();
        let width = layout.size.width as usize;
        let row_bytes = width * converter.channels() * T::BYTES;
        let mut band: Vec<T> = Vec::new();
        let mut rest = out;
        for row in 0..down {
            let top = row * layout.part.height;
            let rows = (layout.size.height - top).min(layout.part.height) as usize;
            let length = rows.checked_mul(width * converter.samples()).ok_or_else(too_large)?;
            band.try_reserve(length.saturating_sub(band.len())).map_err(|_| too_large())?;
            band.resize(length, T::default());
            self.read_band(row, rows, &mut reader, &mut band)?;
            let (now, later) = rest.split_at_mut_checked(rows * row_bytes).ok_or_else(too_large)?;
            converter.convert(&band, layout.bits, now);
            rest = later;
        }
        Ok(reader.has_odd_range(T::MAX))
    }

    /// Reads the samples of row `row` of strips or tiles into `band`, which has `rows` rows.
    fn read_band<T: Sample>(
        &self,
        row: u32,
        rows: usize,
        reader: &mut SampleReader,
        band: &mut [T],
    ) -> Result<(), Reject> {
        let Self { tags, layout, converter, .. } = self;
        let (across, down) = layout.grid();
        let (width, needed) = (layout.size.width as usize, converter.samples());
        // Channels that are not needed are not decompressed.
        let planes = if layout.is_planar { needed as u32 } else { 1 };
        for (plane, column) in (0..planes).flat_map(|plane| (0..across).map(move |column| (plane, column))) {
            let part = (plane * down + row) * across + column;
            let data = match layout.parts.get(part as usize) {
                Some(range) => tags.bytes().get(range.clone()).ok_or_else(|| truncated("its pixels"))?,
                // The JPEG is elsewhere.
                None => &[],
            };
            let left = column as usize * layout.part.width as usize;
            let pixels = (width - left).min(layout.part.width as usize);
            let (first, count) = if layout.is_planar { (plane as usize, 1) } else { (0, needed) };
            let mut put = |y: usize, x: usize, channel: usize, sample: T| {
                band[(y * width + left + x) * needed + first + channel] = sample;
            };
            if layout.compression.is_jpeg() {
                let (size, samples) = jpeg::decode(tags, layout, data)?;
                let stride = size.width as usize * layout.samples_together();
                if (size.width as usize) < pixels || (size.height as usize) < rows {
                    return Err(corrupt("a JPEG in the TIFF is smaller than its strip or tile"));
                }
                for (y, row) in samples.chunks_exact(stride).take(rows).enumerate() {
                    for (x, pixel) in row.chunks_exact(layout.samples_together()).take(pixels).enumerate() {
                        for (channel, sample) in pixel.iter().take(count).enumerate() {
                            put(y, x, channel, T::of((*sample).into()));
                        }
                    }
                }
                continue;
            }
            let part_rows = layout.part_rows(row);
            let expected = layout.part_bytes(part_rows).ok_or_else(too_large)?;
            let samples = compression::decompress(layout, data, part_rows, expected)?;
            let row_bytes = layout.row_bytes().ok_or_else(too_large)?;
            match layout.colors {
                Colors::YCbCr { h, v } if (h, v) != (1, 1) => {
                    read_blocks(&samples, row_bytes, (h as usize, v as usize), |y, x, channel, sample| {
                        if y < rows && x < pixels {
                            put(y, x, channel, T::of(sample.into()));
                        }
                    });
                }
                _ => {
                    for (y, row) in samples.chunks_exact(row_bytes).take(rows).enumerate() {
                        reader.read(row, pixels, count, |x, channel, sample| put(y, x, channel, sample));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads blocks of `h`×`v` samples of Y, with one of Cb and one of Cr, and calls `put` with the row, column and channel of
/// each sample.
fn read_blocks(
    samples: &[u8],
    row_bytes: usize,
    (h, v): (usize, usize),
    mut put: impl FnMut(usize, usize, usize, u8),
) {
    for (row, blocks) in samples.chunks_exact(row_bytes).enumerate() {
        for (column, block) in blocks.chunks_exact(h * v + 2).enumerate() {
            for (n, luma) in block[..h * v].iter().enumerate() {
                let (y, x) = (row * v + n / h, column * h + n % h);
                put(y, x, 0, *luma);
                put(y, x, 1, block[h * v]);
                put(y, x, 2, block[h * v + 1]);
            }
        }
    }
}

impl ImageDecoder for TiffFile<'_> {
    fn dimensions(&self) -> (u32, u32) {
        (self.layout.size.width, self.layout.size.height)
    }

    fn color_type(&self) -> ColorType {
        self.color_type()
    }

    fn read_image(self, out: &mut [u8]) -> ImageResult<()> {
        self.decode(out).map(drop).map_err(image_error)
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}
