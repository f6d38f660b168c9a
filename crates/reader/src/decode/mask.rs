//! Masks: PNG files whose samples are classes or other values, which must not be interpolated or rounded.

use dsconvert_dataset::sample::Reject;

use super::other::{png_decoder, png_error, reject};
use super::pixels::Size;
use super::rejects::{fill_zeros, too_large};
use super::sniff::{ImageType, sniff};
use super::{corrupt, unsupported};

/// The samples of a mask. Palette indexes stay indexes, and 16-bit samples stay 16-bit samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// Rows from top to bottom without gaps; 16-bit samples are big-endian, as in PNG.
    pub data: Vec<u8>,
    /// Width and height.
    pub size: Size,
    /// Samples per pixel.
    pub channels: usize,
    /// Bytes per sample: 1 or 2.
    pub sample_bytes: usize,
    /// The palette, if the samples are indexes.
    pub palette: Option<Palette>,
}

/// The palette of a mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Palette {
    /// Red, green and blue of each index.
    pub colors: Vec<u8>,
    /// Alpha of each index, possibly only of the first ones, as in the PNG chunk `tRNS`.
    pub alpha: Option<Vec<u8>>,
}

impl Mask {
    /// Decodes the PNG file `bytes` completely and verifies its checksums. Gray samples of fewer than 8 bits are scaled
    /// to 0 to 255.
    ///
    /// # Errors
    ///
    /// When the file is not a PNG, is damaged, or does not have `size`.
    pub fn read(bytes: &[u8], size: Size) -> Result<Self, Reject> {
        if sniff(bytes) != Some(ImageType::Png) {
            return Err(unsupported("a mask must be a PNG file"));
        }
        let mut decoder = png_decoder(bytes, size, true);
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().map_err(|e| reject(png_error(e)))?;
        let (width, height) = reader.info().size();
        if (width, height) != (size.width, size.height) {
            let Size { width: w, height: h } = size;
            return Err(corrupt(format!("the mask has {width}×{height} pixels, not {w}×{h}")));
        }
        let (color, depth) = reader.output_color_type();
        let palette = (color == png::ColorType::Indexed)
            .then(|| {
                let info = reader.info();
                let colors = info.palette.as_ref().ok_or_else(|| corrupt("the mask has no palette"))?;
                Ok(Palette { colors: colors.to_vec(), alpha: info.trns.as_ref().map(|a| a.to_vec()) })
            })
            .transpose()?;
        let bytes = reader.output_buffer_size().ok_or_else(too_large)?;
        let mut data = Vec::new();
        fill_zeros(&mut data, bytes)?;
        reader.next_frame(&mut data).map_err(|e| reject(png_error(e)))?;
        reader.finish().map_err(|e| reject(png_error(e)))?;
        let bits = depth as usize;
        if bits < 8 {
            data = unpacked(&data, size, bits, palette.is_none());
        }
        Ok(Self { data, size, channels: color.samples(), sample_bytes: bits.div_ceil(8), palette })
    }

    /// Returns the number of bytes per pixel.
    pub fn pixel_bytes(&self) -> usize {
        self.channels * self.sample_bytes
    }

    /// Writes the pixels at all intersections of `rows` and `columns` to `out`. Both are offsets in pixels whose sum is
    /// the index of a pixel. `None` leaves the output unchanged.
    pub fn pick(&self, rows: &[Option<usize>], columns: &[Option<usize>], out: &mut [u8]) {
        let pixel = self.pixel_bytes();
        for (out, row) in out.chunks_exact_mut((columns.len() * pixel).max(1)).zip(rows) {
            let Some(row) = row else { continue };
            if pixel == 1 {
                for (to, column) in out.iter_mut().zip(columns) {
                    let from = column.and_then(|column| self.data.get(row + column));
                    *to = from.copied().unwrap_or(*to);
                }
                continue;
            }
            for (to, column) in out.chunks_exact_mut(pixel).zip(columns) {
                let at = column.map(|column| (row + column) * pixel);
                if let Some(from) = at.and_then(|at| self.data.get(at..at + pixel)) {
                    to.copy_from_slice(from);
                }
            }
        }
    }
}

/// Unpacks samples of `bits` bits into one byte each.
fn unpacked(packed: &[u8], size: Size, bits: usize, is_gray: bool) -> Vec<u8> {
    let most = (1u16 << bits) - 1;
    let scale = if is_gray { (255 / most) as u8 } else { 1 };
    let width = size.width as usize;
    let mut data = Vec::with_capacity(width * size.height as usize);
    for row in packed.chunks_exact((width * bits).div_ceil(8).max(1)) {
        data.extend((0..width).map(|x| {
            let at = x * bits;
            let byte = u16::from(row.get(at / 8).copied().unwrap_or_default());
            ((byte >> (8 - bits - at % 8)) & most) as u8 * scale
        }));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(color: png::ColorType, depth: png::BitDepth, (width, height): (u32, u32), data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == png::ColorType::Indexed {
            encoder.set_palette(vec![7; 3 * 4]);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        out
    }

    #[test]
    fn stored_samples_are_not_converted() {
        use png::{BitDepth, ColorType};
        let read = |color, depth, size: (u32, u32), data: &[u8]| {
            Mask::read(&png(color, depth, size, data), Size::new(size.0, size.1)).unwrap()
        };
        let indexed =
            read(ColorType::Indexed, BitDepth::Two, (5, 2), &[0b0001_1011, 0b1100_0000, 0b1110_0100, 0]);
        assert_eq!(indexed.data, [0, 1, 2, 3, 3, 3, 2, 1, 0, 0]);
        assert_eq!(indexed.palette.as_ref().unwrap().colors, [7; 12]);
        assert_eq!(read(ColorType::Grayscale, BitDepth::One, (3, 1), &[0b1010_0000]).data, [255, 0, 255]);
        let wide = read(ColorType::Grayscale, BitDepth::Sixteen, (2, 1), &[1, 2, 3, 4]);
        assert_eq!(
            (wide.data.as_slice(), wide.sample_bytes, wide.pixel_bytes()),
            ([1, 2, 3, 4].as_slice(), 2, 2)
        );
        let rgb = read(ColorType::Rgb, BitDepth::Eight, (2, 1), &[1, 2, 3, 4, 5, 6]);
        let mut out = [9; 9];
        rgb.pick(&[Some(0)], &[Some(1), None, Some(0)], &mut out);
        assert_eq!(out, [4, 5, 6, 9, 9, 9, 1, 2, 3]);
    }

    #[test]
    fn damage_and_other_files_are_rejected() {
        let whole = png(png::ColorType::Grayscale, png::BitDepth::Eight, (4, 4), &[3; 16]);
        let size = Size::new(4, 4);
        assert!(Mask::read(&whole, size).is_ok());
        assert!(Mask::read(&whole, Size::new(4, 5)).unwrap_err().message.contains("4×4"));
        for cut in 8..whole.len() {
            assert!(Mask::read(&whole[..cut], size).is_err(), "{cut} bytes");
        }
        let mut changed = whole.clone();
        let last = changed.len() - 20;
        changed[last] ^= 1;
        assert!(Mask::read(&changed, size).is_err());
        assert!(Mask::read(b"\xff\xd8\xff\xe0", size).unwrap_err().message.contains("PNG"));
    }
}
