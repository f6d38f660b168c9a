//! Files of planes: the luma and chroma samples of an image, as a JPEG decoder has them before upsampling and color
//! conversion. `docs/reference/format-records.md` is the specification.

use dsconvert_dataset::sample::Reject;
use dsconvert_jpeg::{PixelFormat, PlaneConverter, Region, StoredPlane, StoredPlanes, rgb_to_ycbcr};
use image::{ColorType, ImageDecoder, ImageResult};

use super::pixels::{Pixels, Rect, Size};
use super::rejects::image_error;
use super::{corrupt, truncated, unsupported};

/// The first four bytes of a file of planes.
pub(super) const MAGIC: [u8; 4] = *b"\x89YUV";
/// The version of the format.
const VERSION: u8 = 1;
/// The center of a chroma sample is the center of the pixels that it covers, as in JPEG.
const CENTERED: u8 = 0;
/// Bytes before the samples.
pub const PLANES_HEADER_BYTES: usize = 16;

/// The chroma planes of a file of planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanesChroma {
    /// None: the image is grayscale.
    None,
    /// 4:2:0: one sample of Cb and Cr per 2×2 pixels.
    S420,
    /// 4:4:4: one sample of Cb and Cr per pixel.
    S444,
}

impl PlanesChroma {
    /// Returns the number of pixels per chroma sample in each direction, or 0 without chroma.
    pub fn spread(self) -> u8 {
        match self {
            PlanesChroma::None => 0,
            PlanesChroma::S420 => 2,
            PlanesChroma::S444 => 1,
        }
    }

    /// Returns the size of a chroma plane of an image of `size`; `None` without chroma.
    pub fn plane_size(self, size: Size) -> Option<Size> {
        match self {
            PlanesChroma::None => None,
            PlanesChroma::S420 => Some(Size::new(size.width.div_ceil(2), size.height.div_ceil(2))),
            PlanesChroma::S444 => Some(size),
        }
    }

    /// Returns the number of samples of an image of `size`, in all planes.
    pub fn samples(self, size: Size) -> u64 {
        size.pixels() + 2 * self.plane_size(size).map_or(0, Size::pixels)
    }
}

/// A file of planes whose header and length were checked.
#[derive(Debug, Clone, Copy)]
pub struct PlanesFile<'a> {
    /// Width and height in pixels.
    pub size: Size,
    /// The chroma planes.
    pub chroma: PlanesChroma,
    /// All samples: luma, then Cb and Cr.
    pub samples: &'a [u8],
}

impl<'a> PlanesFile<'a> {
    /// Reads the file `bytes`.
    ///
    /// # Errors
    ///
    /// If the header is not one of this format, or if the file is shorter or longer than the header says.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Reject> {
        let Some((header, samples)) = bytes.split_first_chunk::<PLANES_HEADER_BYTES>() else {
            return Err(truncated("its header"));
        };
        let [m0, m1, m2, m3, version, across, down, siting, w0, w1, w2, w3, h0, h1, h2, h3] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(corrupt("it does not start with the mark of a file of planes"));
        }
        if version != VERSION {
            let what = format!("its planes have version {version}, and this build reads version {VERSION}");
            return Err(unsupported(what));
        }
        let chroma = match (across, down) {
            (0, 0) => PlanesChroma::None,
            (2, 2) => PlanesChroma::S420,
            (1, 1) => PlanesChroma::S444,
            _ => {
                let what =
                    format!("planes with one chroma sample per {across}×{down} pixels are not supported");
                return Err(unsupported(what));
            }
        };
        if siting != CENTERED {
            return Err(unsupported(format!("the chroma siting {siting} of its planes is not supported")));
        }
        let size = Size::new(u32::from_le_bytes([w0, w1, w2, w3]), u32::from_le_bytes([h0, h1, h2, h3]));
        // Larger sides overflow no number of samples.
        if [size.width, size.height].iter().any(|side| !(1..=i32::MAX.cast_unsigned()).contains(side)) {
            return Err(corrupt(format!("the header declares {}×{} pixels", size.width, size.height)));
        }
        let (expected, found) = (chroma.samples(size), samples.len() as u64);
        if found < expected {
            return Err(truncated("its planes"));
        }
        if found > expected {
            return Err(corrupt(format!("it has {found} samples, but its size needs {expected}")));
        }
        Ok(Self { size, chroma, samples })
    }

    /// Returns the planes.
    pub fn planes(&self) -> StoredPlanes<'a> {
        let plane = |samples: &'a [u8], size: Size, spread: u8| StoredPlane {
            samples,
            stride: size.width as usize,
            left: 0,
            top: 0,
            width: size.width as usize,
            height: size.height as usize,
            spread: (spread.into(), spread.into()),
        };
        let [luma, cb, cr] = split(self.samples, self.size, self.chroma);
        let chroma = self.chroma.plane_size(self.size);
        let spread = self.chroma.spread();
        StoredPlanes {
            luma: plane(luma, self.size, 1),
            chroma: chroma.map(|size| [plane(cb, size, spread), plane(cr, size, spread)]),
        }
    }

    /// Writes the pixels of `rect` to `out`, as gray (1 channel) or RGB (3). The pixels are those of a JPEG with the same
    /// samples.
    pub(super) fn convert(
        &self,
        rect: Rect,
        channels: usize,
        converter: &mut PlaneConverter,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let format = if channels == 1 { PixelFormat::Gray } else { PixelFormat::Rgb };
        let converted = converter.convert(&self.planes(), Region::from(rect), format, out);
        converted.map_err(|_| corrupt("the requested part lies outside the image"))
    }
}

/// Divides `samples` into luma, Cb and Cr. Without chroma, the latter are empty.
fn split(samples: &[u8], size: Size, chroma: PlanesChroma) -> [&[u8]; 3] {
    let (luma, rest) = samples.split_at_checked(size.pixels() as usize).unwrap_or((samples, &[]));
    let (cb, cr) = rest.split_at(match chroma {
        PlanesChroma::None => 0,
        _ => rest.len() / 2,
    });
    [luma, cb, cr]
}

/// Creates a file of planes from its samples. Each of `planes` has rows of `stride` bytes, of which the first belong to
/// the image.
pub fn planes_file(size: Size, chroma: PlanesChroma, planes: &[(&[u8], usize)]) -> Vec<u8> {
    let mut file = header(size, chroma);
    for (n, (samples, stride)) in planes.iter().enumerate() {
        let plane = if n == 0 { Some(size) } else { chroma.plane_size(size) };
        let Some(Size { width, height }) = plane else { break };
        for row in samples.chunks((*stride).max(1)).take(height as usize) {
            file.extend_from_slice(&row[..row.len().min(width as usize)]);
        }
    }
    file
}

fn header(size: Size, chroma: PlanesChroma) -> Vec<u8> {
    let bytes = PLANES_HEADER_BYTES + usize::try_from(chroma.samples(size)).unwrap_or(0);
    let mut file = Vec::with_capacity(bytes);
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&[VERSION, chroma.spread(), chroma.spread(), CENTERED]);
    file.extend_from_slice(&size.width.to_le_bytes());
    file.extend_from_slice(&size.height.to_le_bytes());
    file
}

/// Creates a file of planes from gray or RGB pixels, with the rounding of libjpeg's encoder: a chroma sample is the mean
/// of its pixels, rounded down and up by turns where it is exactly between two values. The last column and row count
/// twice where the size is odd.
pub fn planes_of_pixels(pixels: &Pixels, chroma: PlanesChroma) -> Vec<u8> {
    let size = pixels.size();
    let Some(plane) = chroma.plane_size(size).filter(|_| pixels.channels == 3) else {
        let mut file = header(size, PlanesChroma::None);
        file.extend_from_slice(&pixels.data);
        return file;
    };
    let mut file = header(size, chroma);
    file.resize(PLANES_HEADER_BYTES + chroma.samples(size) as usize, 0);
    let (luma, rest) = file[PLANES_HEADER_BYTES..].split_at_mut(size.pixels() as usize);
    let (cb, cr) = rest.split_at_mut(plane.pixels() as usize);
    let (width, spread) = (size.width as usize, usize::from(chroma.spread()));
    // Sums of the chroma of two rows of pixels.
    let mut sums = vec![[0u16; 2]; width];
    let bands = luma.chunks_mut(width * spread).zip(pixels.data.chunks(pixels.stride() * spread));
    let chroma_rows = cb.chunks_mut(plane.width as usize).zip(cr.chunks_mut(plane.width as usize));
    for ((luma, rgb), (cb, cr)) in bands.zip(chroma_rows) {
        if chroma == PlanesChroma::S444 {
            let samples = luma.iter_mut().zip(cb).zip(cr).zip(rgb.as_chunks::<3>().0);
            for (((y, cb), cr), rgb) in samples {
                [*y, *cb, *cr] = rgb_to_ycbcr(*rgb);
            }
            continue;
        }
        sums.fill([0; 2]);
        let rows = luma.len() / width;
        for (y, rgb) in luma.chunks_mut(width).zip(rgb.chunks(pixels.stride())) {
            for ((y, sum), rgb) in y.iter_mut().zip(&mut sums).zip(rgb.as_chunks::<3>().0) {
                let [luma, cb, cr] = rgb_to_ycbcr(*rgb);
                *y = luma;
                sum[0] += u16::from(cb);
                sum[1] += u16::from(cr);
            }
        }
        // The last row of an odd height counts twice.
        let weight = if rows == 1 { 2 } else { 1 };
        for (x, ((cb, cr), pair)) in cb.iter_mut().zip(cr).zip(sums.chunks(2)).enumerate() {
            let bias = if x.is_multiple_of(2) { 1 } else { 2 };
            let last = pair.len() - 1;
            let mean = |c: usize| ((weight * (pair[0][c] + pair[last][c]) + bias) >> 2) as u8;
            (*cb, *cr) = (mean(0), mean(1));
        }
    }
    file
}

/// Decodes a file of planes to gray or RGB.
pub(super) struct PlanesReader<'a>(PlanesFile<'a>);

impl<'a> PlanesReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ImageResult<Self> {
        PlanesFile::read(bytes).map(Self).map_err(image_error)
    }
}

impl ImageDecoder for PlanesReader<'_> {
    fn dimensions(&self) -> (u32, u32) {
        (self.0.size.width, self.0.size.height)
    }

    fn color_type(&self) -> ColorType {
        if self.0.chroma == PlanesChroma::None { ColorType::L8 } else { ColorType::Rgb8 }
    }

    fn read_image(self, out: &mut [u8]) -> ImageResult<()> {
        let channels = usize::from(self.color_type().channel_count());
        let whole = Rect { left: 0, top: 0, size: self.0.size };
        self.0.convert(whole, channels, &mut PlaneConverter::default(), out).map_err(image_error)
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}

#[cfg(test)]
mod tests {
    use dsconvert_dataset::sample::RejectCode;
    use proptest::prelude::*;

    use super::*;

    fn picture(width: u32, height: u32) -> Pixels {
        let data = (0..width * height * 3).map(|n| (n * n * 31 + n * 7) as u8).collect();
        Pixels { data, width, height, channels: 3 }
    }

    #[test]
    fn the_header_is_as_specified() {
        let pixels = Pixels { data: vec![255, 0, 0, 90, 90, 90], width: 2, height: 1, channels: 3 };
        let header = b"\x89YUV\x01\x01\x01\0\x02\0\0\0\x01\0\0\0";
        let file = planes_of_pixels(&pixels, PlanesChroma::S444);
        assert_eq!(file, [&header[..], &[76, 90, 85, 128, 255, 128]].concat());
        // (85 + 85 + 128 + 128 + 1) / 4 and (255 + 255 + 128 + 128 + 1) / 4: the row counts twice.
        let file = planes_of_pixels(&pixels, PlanesChroma::S420);
        let header = b"\x89YUV\x01\x02\x02\0\x02\0\0\0\x01\0\0\0";
        assert_eq!(file, [&header[..], &[76, 90, 106, 191]].concat());
        let gray = Pixels { data: vec![1, 2], width: 1, height: 2, channels: 1 };
        let header = b"\x89YUV\x01\0\0\0\x01\0\0\0\x02\0\0\0";
        assert_eq!(planes_of_pixels(&gray, PlanesChroma::S420), [&header[..], &[1, 2]].concat());
    }

    /// Compares with the formulas of T.871 in floating point, and means of the pixels that a sample covers.
    #[test]
    fn samples_are_those_of_the_formulas() {
        for (width, height) in [(1, 1), (1, 2), (2, 1), (3, 5), (5, 3), (16, 16), (37, 21)] {
            let pixels = picture(width, height);
            let at = |x: u32, y: u32| -> [f64; 3] {
                let (x, y) = (x.min(width - 1) as usize, y.min(height - 1) as usize);
                let [r, g, b] = pixels.data.as_chunks::<3>().0[y * width as usize + x].map(f64::from);
                [
                    0.299 * r + 0.587 * g + 0.114 * b,
                    128.0 - 0.168_735_9 * r - 0.331_264_1 * g + 0.5 * b,
                    128.0 + 0.5 * r - 0.418_687_6 * g - 0.081_312_4 * b,
                ]
            };
            for chroma in [PlanesChroma::S420, PlanesChroma::S444] {
                let file = planes_of_pixels(&pixels, chroma);
                let StoredPlanes { luma, chroma: Some(colors) } = PlanesFile::read(&file).unwrap().planes()
                else {
                    panic!("no chroma");
                };
                for (c, plane) in [luma, colors[0], colors[1]].iter().enumerate() {
                    let across = plane.spread.0 as u32;
                    for (n, &found) in plane.samples.iter().enumerate() {
                        let (x, y) = (n as u32 % plane.width as u32, n as u32 / plane.width as u32);
                        let covered = (0..across * across).map(|n| {
                            at(x * across + n % across, y * across + n / across)[c].clamp(0.0, 255.0)
                        });
                        let mean = covered.sum::<f64>() / f64::from(across * across);
                        let limit = if across == 1 { 0.51 } else { 1.01 };
                        assert!((mean - f64::from(found)).abs() < limit, "{c}, {x}, {y}: {found}, {mean}");
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = planes_of_pixels(&picture(3, 5), PlanesChroma::S420);
        assert_eq!(file.len(), 16 + 15 + 2 * 2 * 3);
        let code = |bytes: &[u8]| PlanesFile::read(bytes).unwrap_err().code;
        for cut in 0..file.len() {
            assert_eq!(code(&file[..cut]), RejectCode::Truncated, "{cut}");
        }
        assert_eq!(code(&[&file[..], &[0]].concat()), RejectCode::Corrupt);
        let patched = |at: usize, bytes: &[u8]| {
            let mut file = file.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            code(&file)
        };
        assert_eq!(patched(0, b"\x88"), RejectCode::Corrupt);
        assert_eq!(patched(4, &[2]), RejectCode::Unsupported, "version");
        assert_eq!(patched(5, &[2, 1]), RejectCode::Unsupported, "4:2:2");
        assert_eq!(patched(6, &[0]), RejectCode::Unsupported, "half a subsampling");
        assert_eq!(patched(7, &[1]), RejectCode::Unsupported, "siting");
        assert_eq!(patched(8, &[0]), RejectCode::Corrupt, "no columns");
        assert_eq!(patched(8, &[0xff; 8]), RejectCode::Corrupt, "sides of more than 31 bits");
        assert_eq!(patched(8, b"\xff\xff\xff\x7f\xff\xff\xff\x7f"), RejectCode::Truncated, "4 EiB");
        assert_eq!(patched(8, &[4]), RejectCode::Truncated);
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            (spread, width, height) in (0u8..3, 0u8..6, 0u8..6),
            has_header: bool,
        ) {
            if has_header {
                let header = [&MAGIC[..], &[1, spread, spread, 0, width, 0, 0, 0, height, 0, 0, 0]].concat();
                bytes.splice(..0, header);
            }
            if let Ok(file) = PlanesFile::read(&bytes) {
                let Size { width, height } = file.size;
                let mut out = vec![0; width as usize * height as usize * 3];
                let whole = Rect { left: 0, top: 0, size: file.size };
                file.convert(whole, 3, &mut PlaneConverter::default(), &mut out).unwrap();
                let outside = Rect { left: 1, ..whole };
                prop_assert!(file.convert(outside, 3, &mut PlaneConverter::default(), &mut out).is_err());
            }
        }
    }
}
