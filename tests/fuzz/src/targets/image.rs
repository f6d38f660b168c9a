//! Decoding, resizing and encoding of images in every container.

use bytes::Bytes;
use dsconvert::transform::image::{ImageOptions, ImageOutcome, ImageScratch, ImageTransform};

use super::{Input, Target, Verdict, files, fixture};
use crate::Result;

/// Maximum size of a mutated file: small ones decode faster.
const MAX_BYTES: usize = 12 << 10;
/// Maximum number of pixels of an image, so that a damaged header cannot make a case slow.
const MAX_PIXELS: u64 = 1 << 20;

pub(super) struct Images {
    inputs: Vec<Input>,
    transforms: [ImageTransform; 3],
    scratch: ImageScratch,
}

impl Images {
    pub(super) fn new() -> Result<Self> {
        let mut inputs = files(&fixture("photos"))?;
        inputs.extend(files(&fixture("golden/v1/source/photos"))?);
        inputs.extend(files(&fixture("avif"))?);
        inputs.extend(simple_images());
        inputs.retain(|input| input.bytes.len() <= MAX_BYTES && !input.name.ends_with(".txt"));
        let options = |resize: &str, encode: &str| -> Result<ImageTransform> {
            Ok(ImageTransform::new(ImageOptions {
                resize: resize.parse()?,
                encode: encode.parse()?,
                max_pixels: MAX_PIXELS,
                ..ImageOptions::default()
            })?)
        };
        let transforms =
            [options("shorter:24", "jpeg")?, options("none", "jpeg")?, options("longer:50", "yuv420")?];
        let mut scratch = ImageScratch::new();
        inputs.retain(|input| transforms[0].convert(&Bytes::from(input.bytes.clone()), &mut scratch).is_ok());
        let mut planes = Vec::new();
        for input in inputs.iter().take(4) {
            let converted = transforms[2].convert(&Bytes::from(input.bytes.clone()), &mut scratch);
            if let Ok(ImageOutcome::Converted(image)) = converted {
                planes.push(Input { name: format!("planes of {}", input.name), bytes: image.bytes.to_vec() });
            }
        }
        inputs.extend(planes);
        Ok(Self { inputs, transforms, scratch })
    }
}

/// Returns small files of the types without compression, or with run lengths.
fn simple_images() -> Vec<Input> {
    let samples: Vec<u8> = (0..4 * 3 * 3).map(|i| i * 7).collect();
    let with = |header: &[u8], data: &[u8]| [header, data].concat();
    let tga = |map: [u8; 7], depth: u8| {
        let [map_type, kind, map @ ..] = map;
        [&[0, map_type, kind][..], &map, &[0, 0, 0, 0, 4, 0, 3, 0, depth, 0x20]].concat()
    };
    let files: [(&str, Vec<u8>); 16] = [
        ("a.ppm", with(b"P6\n# comment\n4 3\n255\n", &samples)),
        ("deep.ppm", with(b"P6 2 3 65535\n", &samples)),
        ("text.pgm", b"P2\n3 2\n9\n1 2 3\n4 5 9\n".to_vec()),
        ("a.pbm", b"P4 12 2\n\xf0\x0f\xaa\x55".to_vec()),
        ("a.pam", with(b"P7\nWIDTH 3\nHEIGHT 3\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n", &samples)),
        ("a.tga", with(&tga([0, 2, 0, 0, 0, 0, 0], 24), &samples)),
        ("runs.tga", with(&tga([0, 10, 0, 0, 0, 0, 0], 24), b"\x84abc\x01defghi\x84jkl")),
        ("map.tga", with(&tga([1, 9, 0, 0, 2, 0, 24], 8), b"abcdef\x87\0\x83\x01")),
        ("palette.tif", tiff(1, 3, 2, b"\x1b\x1b\x1b")),
        ("deep.tif", tiff(1, 1, 32, &samples)),
        ("rows.tif", tiff(2, 0, 1, b"\xb7\x80\xb7\x80\xb7\x80")),
        ("group-3.tif", tiff(3, 0, 1, b"\x00\x1b\x70\x01\xb7\x00\x1b\x70")),
        ("group-4.tif", tiff(4, 0, 1, b"\x36\x9f\xff\x00\x10\x01")),
        ("packed.tif", tiff(32_773, 1, 8, b"\xf5\x07")),
        ("chroma.tif", tiff(1, 6, 8, &samples)),
        ("a.qoi", b"qoif\0\0\0\x04\0\0\0\x03\x04\0\xfe\x10\x20\x30\x7f\xa0\x88\xc3\x05\xff\x01\x02\x03\x04\xc2\0\0\0\0\0\0\0\x01".to_vec()),
    ];
    files.into_iter().map(|(name, bytes)| Input { name: name.to_owned(), bytes }).collect()
}

/// Creates a little-endian TIFF of 4×3 pixels in one strip, which has a palette.
fn tiff(compression: u16, photometric: u16, bits: u16, data: &[u8]) -> Vec<u8> {
    let samples = if photometric == 6 { 3 } else { 1 };
    let entries: [(u16, u16, u32, u32); 10] = [
        (256, 3, 1, 4),
        (257, 3, 1, 3),
        (258, 3, 1, bits.into()),
        (259, 3, 1, compression.into()),
        (262, 3, 1, photometric.into()),
        (273, 4, 1, 8 + 2 + 10 * 12 + 4 + 24),
        (277, 3, 1, samples),
        (279, 4, 1, data.len() as u32),
        (320, 3, 12, 8 + 2 + 10 * 12 + 4),
        (530, 3, 2, 0x0002_0002),
    ];
    let mut out = b"II*\0\x08\0\0\0\x0a\0".to_vec();
    for (tag, kind, count, value) in entries {
        out.extend(
            [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &value.to_le_bytes()]
                .concat(),
        );
    }
    out.extend([0; 4]);
    out.extend((0..24).map(|n| n * 10));
    out.extend(data);
    out
}

impl Target for Images {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn check(&mut self, input: usize, bytes: &[u8]) -> Verdict {
        let bytes = Bytes::copy_from_slice(bytes);
        let transform = &self.transforms[input % self.transforms.len()];
        match transform.convert(&bytes, &mut self.scratch) {
            Err(_) | Ok(ImageOutcome::Filtered(_)) => Verdict::Refused,
            Ok(ImageOutcome::Converted(_)) => Verdict::Accepted,
        }
    }
}
