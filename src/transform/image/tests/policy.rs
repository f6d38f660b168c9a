//! Tests of the pixel policy, one rule per test.

use bytes::Bytes;
use libjpeg_turbo_rs::PixelFormat;

use super::files::{encoder, jpeg, one_scan_per_component, picture, png, progressive, with_orientation};
use super::*;

#[test]
fn a_jpeg_gets_the_requested_size() {
    let image = convert(&jpeg(500, 375), &[("resize", "shorter:256")]).unwrap();
    assert_eq!((image.width, image.height, image.encoding), (341, 256, ImageType::Jpeg));
    assert_eq!(sniff(&image.bytes), Some(ImageType::Jpeg));
    let again = raw(&image.bytes, &[]);
    assert_eq!((again.width, again.height, again.bytes.len()), (341, 256, 341 * 256 * 3));
}

#[test]
fn every_orientation_gives_the_same_upright_image() {
    let upright = raw(&jpeg(64, 48), &[("resize", "longer:32")]);
    let sizes = [(64, 48), (64, 48), (64, 48), (64, 48), (48, 64), (48, 64), (48, 64), (48, 64)];
    for (tag, (w, h)) in (1..=8u16).zip(sizes) {
        // The picture as a camera would have stored it: rotated by the inverse of its orientation.
        let inverse = match tag {
            6 => 8,
            8 => 6,
            other => other,
        };
        let mut stored = pixels::Pixels::default();
        let source = pixels::Pixels { data: picture(64, 48), width: 64, height: 48, channels: 3 };
        pixels::orient(&source, orientation::Orientation::from_tag(inverse).unwrap(), &mut stored);
        assert_eq!((stored.width, stored.height), (w, h));
        let encode = Encode::Jpeg { quality: 95, subsampling: Subsampling::S420 };
        let file = with_orientation(&encode::encode(&stored, encode).unwrap(), tag);
        let header = ImageTransform::new(ImageOptions::default()).unwrap().peek(&file).unwrap();
        assert_eq!((header.width, header.height), (64, 48));
        let image = raw(&file, &[("resize", "longer:32")]);
        assert_eq!((image.width, image.height), (32, 24));
        for (x, y) in [(0, 0), (31, 0), (0, 23), (31, 23), (16, 12)] {
            assert!(near(pixel(&image, x, y), pixel(&upright, x, y), 8), "orientation {tag} at {x},{y}");
        }
    }
}

#[test]
fn a_reduced_decode_is_as_good_as_a_full_one() {
    let source = jpeg(1601, 1203);
    let small = raw(&source, &[("resize", "shorter:100")]);
    let full = raw(&png_of(&raw(&source, &[])), &[("resize", "shorter:100")]);
    assert_eq!((small.width, small.height), (133, 100));
    let worst = small.bytes.iter().zip(&full.bytes).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst <= Some(4), "{worst:?}");
}

fn png_of(image: &Converted) -> Vec<u8> {
    let pixels =
        pixels::Pixels { data: image.bytes.to_vec(), width: image.width, height: image.height, channels: 3 };
    encode::encode(&pixels, Encode::Png).unwrap()
}

#[test]
fn files_truncated_anywhere_are_rejected() {
    for whole in [jpeg(120, 90), png(60, 45)] {
        for end in (8..whole.len()).step_by(7).chain([whole.len() - 1, whole.len() - 2]) {
            let code = code(&whole[..end], &[("encode", "raw")]);
            assert_eq!(code, RejectCode::Truncated, "{:?} cut at {end} of {}", sniff(&whole), whole.len());
        }
    }
}

#[test]
fn changed_png_bytes_are_rejected() {
    let whole = png(20, 15);
    for at in 8..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(convert(&bytes, &[]).is_err(), "byte {at} changed");
    }
}

#[test]
fn a_jpeg_damaged_in_the_middle_is_kept_only_when_lenient() {
    let mut bytes = jpeg(200, 150);
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    assert_eq!(code(&bytes, &[]), RejectCode::Truncated);
    let image = convert(&bytes, &[("lenient", "true")]).unwrap();
    assert!(image.lenient && !image.passthrough);
    assert_eq!((image.width, image.height), (200, 150));
}

#[test]
fn a_jpeg_with_several_scans_is_kept_as_far_as_each_scan_goes_when_lenient() {
    // The second file loses the colors after the damage, but not its luma.
    for (whole, least) in [(progressive(200, 150), 30.0), (one_scan_per_component(200, 150), 10.0)] {
        let mut bytes = whole.clone();
        let scans: Vec<usize> =
            whole.windows(2).enumerate().filter(|(_, w)| w == &[0xff, 0xda]).map(|(at, _)| at).collect();
        for at in [scans[1] + 40, scans[scans.len() - 1] + 40] {
            // No code of a Huffman table consists of ones only.
            bytes[at..at + 6].copy_from_slice(&[0xff, 0, 0xff, 0, 0xff, 0]);
            assert_eq!(code(&bytes, &[]), RejectCode::Corrupt);
            for texts in [&[][..], &[("resize", "shorter:40")], &[("color", "gray")]] {
                let image = raw(&bytes, &[texts, &[("lenient", "true")]].concat());
                let expected = raw(&whole, texts);
                assert!(image.lenient);
                assert_eq!((image.width, image.height), (expected.width, expected.height));
                let psnr = psnr(&image.bytes, &expected.bytes);
                assert!(psnr > least, "{texts:?}: {psnr}");
            }
        }
    }
}

#[test]
fn bytes_after_the_end_of_a_jpeg_are_not_damage() {
    let mut bytes = jpeg(40, 30);
    bytes.extend(b"a second image, or a video, as phones append them");
    assert!(convert(&bytes, &[]).is_ok());
}

#[test]
fn empty_files_and_html_are_rejected() {
    assert_eq!(code(b"", &[]), RejectCode::Empty);
    assert_eq!(code(b"<!DOCTYPE html><html>404</html>", &[]), RejectCode::UnknownType);
}

#[test]
fn pixels_are_counted_before_any_is_decoded() {
    let mut bytes = jpeg(16, 16);
    let frame = bytes.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    assert_eq!(code(&bytes, &[]), RejectCode::TooLarge);
    assert_eq!(code(&jpeg(16, 16), &[("max_pixels", "255")]), RejectCode::TooLarge);
    assert!(convert(&jpeg(16, 16), &[("max_pixels", "256")]).is_ok());
    let enlarged = [("resize", "shorter:10000"), ("enlarge", "true"), ("max_pixels", "1000000")];
    assert_eq!(code(&jpeg(16, 16), &enlarged), RejectCode::TooLarge);
}

#[test]
fn keep_returns_the_same_bytes() {
    for file in [jpeg(40, 30), png(40, 30)] {
        let source = Bytes::from(file);
        let transform =
            ImageTransform::new(options(&[("encode", "keep"), ("resize", "shorter:256")])).unwrap();
        let Ok(ImageOutcome::Converted(image)) = transform.convert(&source, &mut ImageScratch::new()) else {
            panic!("not converted")
        };
        assert!(image.passthrough);
        assert_eq!(image.bytes.as_ptr(), source.as_ptr());
        assert_eq!(Some(image.encoding), sniff(&source));
    }
    let turned = convert(&with_orientation(&jpeg(40, 30), 6), &[("encode", "keep")]).unwrap();
    assert!(!turned.passthrough);
    assert_eq!((turned.width, turned.height, turned.encoding), (30, 40, ImageType::Jpeg));
    let small = convert(&png(40, 30), &[("encode", "keep"), ("resize", "shorter:15")]).unwrap();
    assert_eq!((small.passthrough, small.encoding, small.width), (false, ImageType::Png, 20));
}

#[test]
fn transparency_is_blended_with_the_background() {
    let data = [255, 0, 0, 255, 0, 255, 0, 0, 0, 0, 255, 128].to_vec();
    let rgba = pixels::Pixels { data, width: 3, height: 1, channels: 4 };
    let file = encode::encode(&rgba, Encode::Png).unwrap();
    let image = raw(&file, &[("background", "#204060")]);
    assert_eq!(pixel(&image, 0, 0), [255, 0, 0]);
    assert_eq!(pixel(&image, 1, 0), [0x20, 0x40, 0x60]);
    assert_eq!(pixel(&image, 2, 0), [16, 32, 176]);
    assert_eq!(raw(&file, &[("color", "rgba")]).bytes.as_ref(), rgba.data);
}

#[test]
fn crop_and_pad_give_the_requested_size() {
    let texts = [("resize", "shorter:32"), ("crop", "center:24x40"), ("pad", "64x48:#ff0000")];
    let image = raw(&jpeg(80, 60), &texts);
    assert_eq!((image.width, image.height), (64, 48));
    assert_eq!(pixel(&image, 0, 0), [255, 0, 0]);
    assert_eq!(pixel(&image, 63, 24), [255, 0, 0]);
    assert_ne!(pixel(&image, 32, 24), [255, 0, 0]);
}

#[test]
fn selection_applies_to_the_source_size() {
    let outcome = |file: &[u8], texts: &[(&str, &str)]| {
        let transform = ImageTransform::new(options(texts)).unwrap();
        transform.convert(&Bytes::copy_from_slice(file), &mut ImageScratch::new()).unwrap()
    };
    let file = jpeg(80, 20);
    assert_eq!(outcome(&file, &[("min_size", "21")]), ImageOutcome::Filtered(Filtered::MinSize));
    assert_eq!(outcome(&file, &[("max_aspect", "3.9")]), ImageOutcome::Filtered(Filtered::MaxAspect));
    assert_eq!(outcome(&file, &[("min_pixels", "1601")]), ImageOutcome::Filtered(Filtered::MinPixels));
    let all = [("min_size", "20"), ("max_aspect", "4"), ("min_pixels", "1600")];
    assert!(matches!(outcome(&file, &all), ImageOutcome::Converted(_)));
}

#[test]
fn grayscale_and_color_modes() {
    let gray = libjpeg_turbo_rs::compress(
        &[90; 16 * 16],
        16,
        16,
        PixelFormat::Grayscale,
        90,
        libjpeg_turbo_rs::Subsampling::S444,
    )
    .unwrap();
    assert_eq!(pixel(&raw(&gray, &[]), 3, 3), [90; 3]);
    assert_eq!(raw(&jpeg(16, 16), &[("color", "gray")]).bytes.len(), 256);
    let image = convert(&jpeg(16, 16), &[("color", "gray")]).unwrap();
    assert_eq!(raw(&image.bytes, &[("color", "gray")]).bytes.len(), 256);
}

#[test]
fn one_scratch_serves_all_images() {
    let transform = ImageTransform::new(options(&[("resize", "longer:50")])).unwrap();
    let mut scratch = ImageScratch::new();
    let files =
        [jpeg(300, 200), png(70, 90), with_orientation(&jpeg(90, 70), 5), jpeg(20, 20), jpeg(300, 200)];
    for file in files.map(Bytes::from) {
        let reused = transform.convert(&file, &mut scratch);
        assert_eq!(reused, transform.convert(&file, &mut ImageScratch::new()));
        assert!(transform.convert(&file.slice(..file.len() / 2), &mut scratch).is_err());
    }
    assert!(scratch.kept_bytes() > 0);
}

#[test]
fn lossless_jpegs_become_gray() {
    let samples = picture(9, 7);
    let file = encoder(&samples, 9, 7).lossless(true).encode().unwrap();
    let expected: Vec<u8> = samples.as_chunks::<3>().0.iter().map(|rgb| pixels::luma(*rgb)).collect();
    assert_eq!(raw(&file, &[("color", "gray")]).bytes, expected);
}
