//! Tests that compare resizing JPEG to JPEG by planes with the path through RGB.

use libjpeg_turbo_rs::{Decoder, Encoder, PixelFormat, Subsampling};

use super::super::encode;
use super::super::geometry::SizePlan;
use super::super::pixels::Pixels;
use super::super::source::CheckedImage;
use super::files::*;
use super::*;

/// Creates a picture of slow waves in all colors: any shift, even by half a chroma pixel, changes colors.
fn waves(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for c in 0..3 {
                let (x, y, c) = (f64::from(x), f64::from(y), f64::from(c));
                let wave = (x / (9.0 + 2.0 * c) + c).sin() + (y / (11.0 - 2.0 * c) - c).cos();
                out.push((wave * 50.0 + 128.0) as u8);
            }
        }
    }
    out
}

fn decoded(file: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(file).unwrap();
    decoder.set_output_format(PixelFormat::Rgb);
    decoder.decode_image().unwrap().into_vec()
}

/// Converts `file` through RGB.
fn through_rgb(file: &[u8], texts: &[(&str, &str)]) -> Vec<u8> {
    let image = raw(file, texts);
    let pixels = Pixels { data: image.bytes.to_vec(), width: image.width, height: image.height, channels: 3 };
    encode::encode(&pixels, "jpeg:98".parse::<Encode>().unwrap()).unwrap()
}

#[test]
fn colors_and_positions_match_the_path_through_rgb() {
    let mut converted = 0;
    for (width, height) in [(201, 333), (64, 65), (17, 90)] {
        for subsampling in [Subsampling::S420, Subsampling::S422, Subsampling::S444, Subsampling::S440] {
            let picture = waves(width, height);
            let encoder = Encoder::new(&picture, width as usize, height as usize, PixelFormat::Rgb);
            let file = encoder.quality(98).subsampling(subsampling).encode().unwrap();
            for tag in 1..=8 {
                let file = with_orientation(&file, tag);
                for texts in [
                    vec![("resize", "shorter:31")],
                    vec![("resize", "shorter:120"), ("crop", "center:77x61")],
                    vec![("resize", "longer:63"), ("crop", "center:33x21")],
                    vec![("resize", "longer:400"), ("enlarge", "true"), ("filter", "catmullrom")],
                    vec![("resize", "exact:40x90"), ("filter", "bilinear")],
                ] {
                    let mut jpeg = texts.clone();
                    jpeg.push(("encode", "jpeg:98"));
                    let found = convert(&file, &jpeg).unwrap();
                    let (found, expected) = (decoded(&found.bytes), decoded(&through_rgb(&file, &texts)));
                    let psnr = psnr(&found, &expected);
                    assert!(psnr > 34.0, "{width}×{height}, {subsampling:?}, {tag}, {texts:?}: {psnr}");
                    converted += 1;
                }
            }
        }
    }
    assert_eq!(converted, 3 * 4 * 8 * 5);
}

#[test]
fn the_smallest_images_are_converted() {
    for (width, height) in [(1, 1), (1, 2), (2, 1), (3, 3), (1, 40), (40, 1), (16, 17)] {
        for subsampling in [Subsampling::S420, Subsampling::S422, Subsampling::S444] {
            let rgb = [200, 90, 30].repeat((width * height) as usize);
            let encoder = Encoder::new(&rgb, width as usize, height as usize, PixelFormat::Rgb);
            let file = with_orientation(&encoder.quality(98).subsampling(subsampling).encode().unwrap(), 6);
            for resize in ["exact:1x1", "longer:50", "shorter:7", "none"] {
                let image = convert(&file, &[("resize", resize), ("enlarge", "true")]).unwrap();
                let pixels = decoded(&image.bytes);
                assert_eq!(pixels.len(), (image.width * image.height * 3) as usize);
                for pixel in pixels.as_chunks::<3>().0 {
                    assert!(pixel.iter().zip([200, 90, 30]).all(|(a, b)| a.abs_diff(b) < 12), "{pixel:?}");
                }
            }
        }
    }
}

#[test]
fn a_side_of_one_pixel_gets_the_mean_color() {
    let row = [[255, 0, 0].repeat(100), [0, 0, 255].repeat(100)].concat();
    for subsampling in [Subsampling::S420, Subsampling::S444] {
        let file = encoder(&row.repeat(200), 200, 200).subsampling(subsampling).encode().unwrap();
        for tag in 1..=8 {
            let file = with_orientation(&file, tag);
            let texts = [("resize", if tag < 5 { "exact:1x200" } else { "exact:200x1" })];
            let image = convert(&file, &[texts[0], ("encode", "jpeg:98")]).unwrap();
            let (found, expected) = (decoded(&image.bytes), raw(&file, &texts).bytes);
            let worst = found.iter().zip(&expected[..]).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst <= Some(4), "{subsampling:?}, {tag}: {worst:?}");
        }
    }
}

#[test]
fn grayscale_files_stay_without_color() {
    let picture: Vec<u8> = waves(90, 70).into_iter().step_by(3).collect();
    let file = Encoder::new(&picture, 90, 70, PixelFormat::Grayscale).quality(95).encode().unwrap();
    let found = decoded(&convert(&file, &[("resize", "shorter:31")]).unwrap().bytes);
    let expected = decoded(&through_rgb(&file, &[("resize", "shorter:31")]));
    assert!(psnr(&found, &expected) > 38.0);
    assert!(found.as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b));
}

/// Checked here because both paths produce correct pixels.
#[test]
fn only_common_files_are_resized_by_planes() {
    let picture = waves(60, 40);
    let encoder = || Encoder::new(&picture, 60, 40, PixelFormat::Rgb).quality(90);
    let plain = encoder().subsampling(Subsampling::S420).encode().unwrap();
    let progressive = encoder().progressive(true).encode().unwrap();
    let is_planar = |file: &[u8], texts: &[(&str, &str)]| {
        let options = options(texts);
        let source = CheckedImage::read(file, &options).unwrap();
        let plan = SizePlan::new(&options, source.oriented_size());
        let transform = ImageTransform::new(options).unwrap();
        transform.convert_planar(&source, &plan, &mut ImageScratch::new()).unwrap().is_some()
    };
    assert!(is_planar(&plain, &[("resize", "shorter:20")]));
    assert!(is_planar(&progressive, &[("resize", "shorter:20")]));
    assert!(!is_planar(&plain, &[("crop", "center:20x20")]), "nothing is resized");
    for other in [("encode", "jpeg:90:444"), ("encode", "png"), ("color", "gray"), ("pad", "99x99")] {
        assert!(!is_planar(&plain, &[("resize", "shorter:20"), other]), "{other:?}");
    }
    assert!(!is_planar(&plain[..plain.len() - 20], &[("resize", "shorter:20")]), "damage");
}

/// The weights of thousands of samples are too small for the fixed-point arithmetic of planes.
#[test]
fn extreme_reductions_are_exact() {
    let (width, height) = (8000, 2);
    let row: Vec<u8> = (0..width).flat_map(|x| [if x < width / 2 { 0 } else { 200 }; 3]).collect();
    let picture = row.repeat(height);
    for (width, height, picture) in [
        (width, height, picture.clone()),
        (height, width, { (0..width).flat_map(|x| picture[3 * x..][..3].repeat(height)).collect() }),
    ] {
        let encoder = Encoder::new(&picture, width, height, PixelFormat::Rgb).quality(100);
        let file = encoder.subsampling(Subsampling::S420).encode().unwrap();
        for filter in ["box", "lanczos3", "catmullrom"] {
            let resize = if width > height { "exact:1x2" } else { "exact:2x1" };
            let image = convert(&file, &[("resize", resize), ("filter", filter), ("encode", "jpeg:100")]);
            for value in decoded(&image.unwrap().bytes) {
                assert!(value.abs_diff(100) <= 2, "{width}×{height}, {filter}: {value}");
            }
        }
    }
}
