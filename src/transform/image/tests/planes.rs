//! Tests of planes of luma and chroma.

use libjpeg_turbo_rs::{Decoder, Encoder, PixelFormat, Subsampling};

use super::super::pixels::Pixels;
use super::files::*;
use super::*;
use crate::decode::{self, PlanesChroma, PlanesFile, Size, SourceRegion, Stored};

fn with_libjpeg(file: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(file).unwrap();
    decoder.set_output_format(PixelFormat::Rgb);
    decoder.decode_image().unwrap().into_vec()
}

/// Decodes an image with the decoder of the loader.
fn loaded(file: &[u8], width: u32, height: u32) -> Vec<u8> {
    let size = Size::new(width, height);
    let mut out = vec![0; size.pixels() as usize * 3];
    let whole = SourceRegion { left: 0.0, top: 0.0, width: width.into(), height: height.into() };
    let stored = Stored { bytes: file, size, raw_channels: None };
    decode::Decoder::default().decode(stored, whole, size, 3, &mut out).unwrap();
    out
}

/// Sides of every remainder, and chroma that is too narrow for fancy upsampling.
const SIZES: [(u32, u32); 10] =
    [(1, 1), (1, 2), (2, 1), (3, 5), (4, 4), (5, 3), (6, 1), (16, 16), (37, 41), (130, 67)];

#[test]
fn planes_of_a_jpeg_give_the_pixels_that_libjpeg_decodes() {
    for (width, height) in SIZES {
        for (subsampling, encode) in [(Subsampling::S420, "yuv420"), (Subsampling::S444, "yuv444")] {
            for progressive in [false, true] {
                let picture = picture(width, height);
                let file = Encoder::new(&picture, width as usize, height as usize, PixelFormat::Rgb)
                    .quality(85)
                    .subsampling(subsampling)
                    .progressive(progressive)
                    .encode()
                    .unwrap();
                let image = convert(&file, &[("encode", encode)]).unwrap();
                assert_eq!((image.encoding, image.passthrough), (ImageType::Planes, false));
                let found = loaded(&image.bytes, width, height);
                assert!(found == with_libjpeg(&file), "{width}×{height}, {encode}, {progressive}");
                // The converter reads planes like the loader.
                assert!(raw(&image.bytes, &[]).bytes == found);
            }
        }
    }
}

#[test]
fn other_images_are_converted_from_their_pixels() {
    let picture = picture(40, 30);
    let full = Encoder::new(&picture, 40, 30, PixelFormat::Rgb).subsampling(Subsampling::S444);
    let files = [
        ("another subsampling", full.encode().unwrap(), vec![]),
        ("a crop", jpeg(40, 30), vec![("crop", "center:21x17")]),
        ("padding", jpeg(40, 30), vec![("pad", "50x40")]),
        ("turned", with_orientation(&jpeg(40, 30), 6), vec![]),
        (
            "a profile",
            with_icc(&jpeg(40, 30), &moxcms::ColorProfile::new_adobe_rgb().encode().unwrap()),
            vec![],
        ),
        ("another type", png(40, 30), vec![("resize", "shorter:20")]),
        ("gray", raw_png((2, 1), 8, 0, &[], &[&[1, 2]]), vec![]),
        ("16 bits", raw_png((1, 1), 16, 2, &[], &[&[1, 2, 3, 4, 5, 6]]), vec![]),
        ("transparency", encoded([9, 99, 199, 128].repeat(12), 4, 3, 4, Encode::Png), vec![]),
    ];
    for (name, file, mut texts) in files {
        let pixels = raw(&file, &texts);
        texts.push(("encode", "yuv420"));
        let found = convert(&file, &texts).unwrap();
        let expected =
            Pixels { data: pixels.bytes.to_vec(), width: pixels.width, height: pixels.height, channels: 3 };
        assert!(found.bytes == decode::planes_of_pixels(&expected, PlanesChroma::S420), "{name}");
    }
}

#[test]
fn a_resized_jpeg_is_near_the_path_through_pixels() {
    let file = jpeg(333, 251);
    for encode in ["yuv420", "yuv444"] {
        for texts in
            [vec![("resize", "shorter:97")], vec![("resize", "exact:60x90"), ("crop", "center:33x51")]]
        {
            let expected = raw(&file, &texts);
            let mut planes = texts.clone();
            planes.push(("encode", encode));
            let image = convert(&file, &planes).unwrap();
            assert_eq!((image.width, image.height), (expected.width, expected.height));
            let found = loaded(&image.bytes, image.width, image.height);
            let limit = if encode == "yuv444" { 45.0 } else { 30.0 };
            let psnr = psnr(&found, &expected.bytes);
            assert!(psnr > limit, "{encode}: {psnr}");
        }
    }
}

#[test]
fn gray_images_have_only_luma() {
    let file = jpeg(21, 9);
    let image = convert(&file, &[("encode", "yuv420"), ("color", "gray")]).unwrap();
    assert_eq!(PlanesFile::read(&image.bytes).unwrap().chroma, PlanesChroma::None);
    let gray = raw(&file, &[("color", "gray")]).bytes;
    assert_eq!(image.bytes[decode::PLANES_HEADER_BYTES..], gray);
    let widened: Vec<u8> = gray.iter().flat_map(|v| [*v; 3]).collect();
    assert!(loaded(&image.bytes, 21, 9) == widened);
    // Without `color gray`, chroma is neutral.
    let color = convert(&image.bytes, &[("encode", "yuv420")]).unwrap();
    assert_eq!(PlanesFile::read(&color.bytes).unwrap().chroma, PlanesChroma::S420);
    assert!(loaded(&color.bytes, 21, 9) == widened);
}

#[test]
fn planes_pass_through_or_are_shaped_again() {
    let planes = convert(&jpeg(40, 30), &[("encode", "yuv420")]).unwrap().bytes;
    for encode in ["yuv420", "keep"] {
        let image = convert(&planes, &[("encode", encode)]).unwrap();
        assert!(image.passthrough && image.bytes == planes, "{encode}");
    }
    let image = convert(&planes, &[("encode", "yuv444")]).unwrap();
    assert!(!image.passthrough && loaded(&image.bytes, 40, 30).len() == 3600);
    let image = convert(&planes, &[("encode", "keep"), ("resize", "shorter:15")]).unwrap();
    assert_eq!((image.encoding, image.bytes.len()), (ImageType::Planes, 16 + 20 * 15 + 2 * 10 * 8));
    assert_eq!(convert(&planes, &[("encode", "keep"), ("color", "rgba")]).unwrap().encoding, ImageType::Png);
    assert_eq!(code(&planes[..planes.len() - 1], &[]), RejectCode::Truncated);
    assert_eq!(code(&[&planes[..], &[0]].concat(), &[]), RejectCode::Corrupt);
}

#[test]
fn options_that_planes_cannot_store_are_refused() {
    for (name, value) in [("color", "rgba"), ("keep_metadata", "true"), ("baseline", "true")] {
        let error = ImageTransform::new(options(&[("encode", "yuv444"), (name, value)])).unwrap_err();
        assert!(
            error.to_string().contains(&format!("`{name}")) && error.to_string().contains("yuv444"),
            "{error}"
        );
    }
}
