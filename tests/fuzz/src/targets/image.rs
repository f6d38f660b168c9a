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
    let files: [(&str, Vec<u8>); 9] = [
        ("a.ppm", with(b"P6\n# comment\n4 3\n255\n", &samples)),
        ("deep.ppm", with(b"P6 2 3 65535\n", &samples)),
        ("text.pgm", b"P2\n3 2\n9\n1 2 3\n4 5 9\n".to_vec()),
        ("a.pbm", b"P4 12 2\n\xf0\x0f\xaa\x55".to_vec()),
        ("a.pam", with(b"P7\nWIDTH 3\nHEIGHT 3\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n", &samples)),
        ("a.tga", with(&tga([0, 2, 0, 0, 0, 0, 0], 24), &samples)),
        ("runs.tga", with(&tga([0, 10, 0, 0, 0, 0, 0], 24), b"\x84abc\x01defghi\x84jkl")),
        ("map.tga", with(&tga([1, 9, 0, 0, 2, 0, 24], 8), b"abcdef\x87\0\x83\x01")),
        ("a.qoi", b"qoif\0\0\0\x04\0\0\0\x03\x04\0\xfe\x10\x20\x30\x7f\xa0\x88\xc3\x05\xff\x01\x02\x03\x04\xc2\0\0\0\0\0\0\0\x01".to_vec()),
    ];
    files.into_iter().map(|(name, bytes)| Input { name: name.to_owned(), bytes }).collect()
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
