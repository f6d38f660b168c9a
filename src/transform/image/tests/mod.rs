//! Tests of the whole transform, on generated files.

mod buckets;
mod files;
mod hostile;
mod masks;
mod passthrough;
mod planar;
mod planes;
mod policy;
mod properties;
mod quality;
mod strict;
mod tiff;
mod webp;

use bytes::Bytes;

use super::*;
use crate::sample::{Reject, RejectCode};

/// Returns the default options with some fields replaced. Names and values are those of the manifest.
fn options(texts: &[(&str, &str)]) -> ImageOptions {
    let mut json = serde_json::to_value(ImageOptions::default()).unwrap();
    for (key, text) in texts {
        json[*key] = serde_json::from_str(text).unwrap_or_else(|_| (*text).into());
    }
    serde_json::from_value(json).unwrap()
}

fn convert(source: &[u8], texts: &[(&str, &str)]) -> Result<Converted, Reject> {
    let transform = ImageTransform::new(options(texts)).unwrap();
    match transform.convert(&Bytes::copy_from_slice(source), &mut ImageScratch::new())? {
        ImageOutcome::Converted(image) => Ok(image),
        ImageOutcome::Filtered(reason) => panic!("filtered: {reason:?}"),
    }
}

/// Converts `source` to bare samples.
fn raw(source: &[u8], texts: &[(&str, &str)]) -> Converted {
    let mut texts = texts.to_vec();
    texts.push(("encode", "raw"));
    convert(source, &texts).unwrap()
}

fn code(source: &[u8], texts: &[(&str, &str)]) -> RejectCode {
    convert(source, texts).unwrap_err().code
}

fn pixel(image: &Converted, x: u32, y: u32) -> [u8; 3] {
    let at = ((y * image.width + x) * 3) as usize;
    [image.bytes[at], image.bytes[at + 1], image.bytes[at + 2]]
}

fn near(a: [u8; 3], b: [u8; 3], by: u8) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= by)
}

/// Returns the peak signal-to-noise ratio of two images, in decibels.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0f64.powi(2) * a.len() as f64 / squares.max(1e-9)).log10()
}
