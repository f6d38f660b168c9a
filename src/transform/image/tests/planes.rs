//! The short way through planes gives what the long way through RGB gives.

use libjpeg_turbo_rs::Subsampling;

use super::files::*;
use super::*;

/// The same request by the short way, and by the long one, which lenient conversion takes.
fn both_ways(file: &[u8], texts: &[(&str, &str)]) -> (Converted, Converted) {
    let short = convert(file, texts).unwrap();
    let mut long_texts = texts.to_vec();
    long_texts.push(("lenient", "true"));
    (short, convert(file, &long_texts).unwrap())
}

#[test]
fn planes_are_as_good_as_rgb() {
    for (width, height) in [(500, 375), (333, 501), (301, 299)] {
        let picture = busy_picture(width, height);
        for subsampling in [Subsampling::S420, Subsampling::S422, Subsampling::S444] {
            let file = encoder(&picture, width, height).subsampling(subsampling).encode().unwrap();
            for crop in [None, Some("center:101x99")] {
                let mut texts = vec![("resize", "shorter:151")];
                texts.extend(crop.map(|crop| ("crop", crop)));
                let truth = raw(&file, &texts);
                let (short, long) = both_ways(&file, &texts);
                assert_ne!(short.bytes, long.bytes, "one of them did not take its way");
                assert_eq!((short.width, short.height), (truth.width, truth.height));
                let [short, long] =
                    [short, long].map(|image| psnr(&raw(&image.bytes, &[]).bytes, &truth.bytes));
                assert!(
                    short > long - 0.5,
                    "{width}×{height} {subsampling:?} {crop:?}: {short} against {long}"
                );
            }
        }
    }
}

#[test]
fn damage_is_found_on_the_short_way_too() {
    let file = encoder(&busy_picture(300, 200), 300, 200).encode().unwrap();
    let texts = [("resize", "shorter:100")];
    assert_eq!(code(&file[..file.len() / 2], &texts), RejectCode::Truncated);
    let mut bad = file.clone();
    let middle = bad.len() / 2;
    bad[middle..middle + 6].copy_from_slice(&[0xff, 0, 0xff, 0, 0xff, 0]);
    assert_eq!(code(&bad, &texts), RejectCode::Corrupt);
}

#[test]
fn a_jpeg_of_rgb_components_goes_the_long_way() {
    let rgb = encoder(&busy_picture(60, 40), 60, 40)
        .subsampling(Subsampling::S444)
        .colorspace(libjpeg_turbo_rs::ColorSpace::Rgb)
        .encode()
        .unwrap();
    let png = encoded(raw(&rgb, &[]).bytes.to_vec(), 60, 40, 3, Encode::Png);
    let texts = [("resize", "longer:30")];
    assert_eq!(convert(&rgb, &texts).unwrap().bytes, convert(&png, &texts).unwrap().bytes);
}
