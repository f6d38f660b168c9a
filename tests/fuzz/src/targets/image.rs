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
