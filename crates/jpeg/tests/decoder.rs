//! Compares the public decoder with libjpeg-turbo, on generated files and on the photographs of the repository.
#![allow(clippy::unwrap_used)] // The exception for tests does not cover helper functions.

use std::path::{Path, PathBuf};

use dsconvert_jpeg::{
    ColorModel, DecodeOptions, Decoder, Error, ErrorKind, Image, JpegLayout, PixelFormat, Process, Region,
    Scale, cmyk_to_rgb, luma,
};
use libjpeg_turbo_rs::{Decoder as Turbo, Encoder, PixelFormat as TurboFormat, ScalingFactor, Subsampling};
use proptest::prelude::*;

/// Creates a picture of waves with noise that depends on `seed`.
fn picture(width: usize, height: usize, channels: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let samples = (0..width * height * channels).map(|n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (x, y, c) = (n / channels % width, n / channels / width, n % channels);
        let wave = ((x * (c + 1)) as f64 / 7.0).sin() * 60.0 + ((y * 2 + c) as f64 / 11.0).cos() * 50.0;
        (wave + 120.0 + ((state >> 40) % 24) as f64).clamp(0.0, 255.0) as u8
    });
    samples.collect()
}

fn turbo_format(format: PixelFormat) -> TurboFormat {
    match format {
        PixelFormat::Gray => TurboFormat::Grayscale,
        PixelFormat::Rgb => TurboFormat::Rgb,
        PixelFormat::Cmyk => TurboFormat::Cmyk,
    }
}

/// Decodes with the strict decoder of libjpeg-turbo.
fn reference(bytes: &[u8], scale: Scale, format: PixelFormat) -> Option<Vec<u8>> {
    let mut decoder = Turbo::new(bytes).ok()?;
    decoder.set_scale(ScalingFactor::try_new(1, scale.denominator() as u32).ok()?);
    decoder.set_stop_on_warning(true);
    decoder.set_output_format(turbo_format(format));
    Some(decoder.decode_image().ok()?.into_vec())
}

fn crop(pixels: &[u8], width: usize, region: Region, channels: usize) -> Vec<u8> {
    let rows = pixels.chunks_exact(width * channels).skip(region.top).take(region.height);
    rows.flat_map(|row| &row[region.left * channels..][..region.width * channels]).copied().collect()
}

fn decode(bytes: &[u8], options: DecodeOptions) -> Result<Image, Error> {
    Decoder::new().decode(bytes, &options)
}

fn encoded(width: usize, height: usize, subsampling: Subsampling, is_progressive: bool) -> Vec<u8> {
    let pixels = picture(width, height, 3, 7);
    let encoder = Encoder::new(&pixels, width, height, TurboFormat::Rgb).quality(88);
    encoder.subsampling(subsampling).progressive(is_progressive).encode().unwrap()
}

fn scales() -> impl Strategy<Value = Scale> {
    prop_oneof![Just(Scale::Full), Just(Scale::Half), Just(Scale::Quarter), Just(Scale::Eighth)]
}

fn subsamplings() -> impl Strategy<Value = Subsampling> {
    prop_oneof![
        Just(Subsampling::S420),
        Just(Subsampling::S444),
        Just(Subsampling::S422),
        Just(Subsampling::S440)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn regions_match_libjpeg_turbo(
        (width, height) in (1usize..80, 1usize..80),
        is_color: bool,
        is_progressive: bool,
        quality in 20u8..=100,
        subsampling in subsamplings(),
        restart in prop_oneof![Just(0u16), 1u16..12],
        scale in scales(),
        place in (0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0),
        is_gray_requested: bool,
        seed: u64,
    ) {
        let (channels, stored) = if is_color { (3, TurboFormat::Rgb) } else { (1, TurboFormat::Grayscale) };
        let pixels = picture(width, height, channels, seed);
        let encoder = Encoder::new(&pixels, width, height, stored).quality(quality).subsampling(subsampling);
        let bytes = encoder.progressive(is_progressive).restart_blocks(restart).encode().unwrap();
        let format = if is_gray_requested { PixelFormat::Gray } else { PixelFormat::Rgb };
        let (width, height) = (scale.of_side(width), scale.of_side(height));
        let (left, top) = ((place.0 * width as f64) as usize, (place.1 * height as f64) as usize);
        let region = Region {
            left,
            top,
            width: 1 + (place.2 * (width - left - 1) as f64) as usize,
            height: 1 + (place.3 * (height - top - 1) as f64) as usize,
        };
        let image = decode(&bytes, DecodeOptions::new().scale(scale).format(format).region(region)).unwrap();
        prop_assert_eq!((image.info.width, image.info.height), (region.width, region.height));
        let expected = reference(&bytes, scale, format).unwrap();
        prop_assert!(image.pixels == crop(&expected, width, region, format.channels()));
    }

    /// If a strict decode succeeds, a lenient one returns the same pixels.
    #[test]
    fn damaged_files_never_cause_a_panic(
        (width, height) in (5usize..60, 5usize..60),
        subsampling in subsamplings(),
        is_progressive: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in prop::option::of(any::<prop::sample::Index>()),
        scale in scales(),
    ) {
        let mut bytes = encoded(width, height, subsampling, is_progressive);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let options = DecodeOptions::new().scale(scale).max_pixels(1 << 20).reads_to_end(true);
        let lenient = decode(&bytes, options.lenient(true));
        if let Ok(strict) = decode(&bytes, options) {
            prop_assert!(!strict.info.is_damaged);
            prop_assert_eq!(lenient, Ok(strict));
        }
    }

    #[test]
    fn arbitrary_bytes_never_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), is_lenient: bool) {
        let options = DecodeOptions::new().lenient(is_lenient).max_pixels(1 << 20);
        prop_assert!(decode(&bytes, options).is_err());
        let mut file = encoded(20, 20, Subsampling::S420, false)[..620].to_vec();
        file.extend(bytes);
        let _ = decode(&file, options);
    }
}

/// Collects every file under `folder` that starts like a JPEG.
fn jpegs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if std::fs::metadata(&path).unwrap().is_dir() {
            jpegs(&path, found);
        } else if std::fs::read(&path).unwrap().starts_with(&[0xff, 0xd8]) {
            found.push(path);
        }
    }
}

#[test]
fn photographs_match_libjpeg_turbo() {
    let mut paths = Vec::new();
    jpegs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/photos"), &mut paths);
    let (mut decoder, mut pixels, mut compared) = (Decoder::new(), Vec::new(), 0);
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        let Ok(layout) = JpegLayout::read_strict(&bytes) else { continue };
        if layout.components().len() == 4 {
            continue;
        }
        for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
            let options = DecodeOptions::new().scale(scale).format(PixelFormat::Rgb);
            let found = decoder.decode_into(&bytes, &options, &mut pixels);
            let expected = reference(&bytes, scale, PixelFormat::Rgb);
            assert_eq!(found.is_ok(), expected.is_some(), "{}", path.display());
            if let Some(expected) = expected {
                assert!(pixels == expected, "{} at {scale:?}", path.display());
                compared += 1;
            }
        }
    }
    assert!(compared >= 4 * 15, "{compared} of {} files", paths.len());
}

#[test]
fn cmyk_has_full_ink_at_255_and_is_converted_to_rgb_and_gray() {
    let stored = picture(40, 24, 4, 3);
    let encoder = Encoder::new(&stored, 40, 24, TurboFormat::Cmyk).quality(95);
    let bytes = encoder.subsampling(Subsampling::S444).encode().unwrap();
    let layout = JpegLayout::read_strict(&bytes).unwrap();
    assert!(matches!(layout.color_model(), ColorModel::Cmyk | ColorModel::Ycck));
    let expected = reference(&bytes, Scale::Full, PixelFormat::Cmyk).unwrap();
    let ink = |v: &u8| if layout.has_adobe_marker() { 255 - v } else { *v };
    let expected: Vec<u8> = expected.iter().map(ink).collect();
    let cmyk = decode(&bytes, DecodeOptions::new().format(PixelFormat::Cmyk)).unwrap();
    assert_eq!(cmyk.pixels, expected);
    let mut rgb = vec![0; 40 * 24 * 3];
    cmyk_to_rgb(&expected, &mut rgb);
    assert_eq!(decode(&bytes, DecodeOptions::new()).unwrap().pixels, rgb);
    let gray: Vec<u8> = rgb.as_chunks::<3>().0.iter().map(|pixel| luma(*pixel)).collect();
    assert_eq!(decode(&bytes, DecodeOptions::new().format(PixelFormat::Gray)).unwrap().pixels, gray);
}

#[test]
fn the_stored_format_is_the_default() {
    let pixels = picture(20, 10, 1, 1);
    let gray = Encoder::new(&pixels, 20, 10, TurboFormat::Grayscale).quality(90).encode().unwrap();
    let color = encoded(20, 10, Subsampling::S420, false);
    let progressive = encoded(20, 10, Subsampling::S420, true);
    for (bytes, format) in
        [(gray, PixelFormat::Gray), (color, PixelFormat::Rgb), (progressive, PixelFormat::Rgb)]
    {
        assert_eq!(decode(&bytes, DecodeOptions::new()).unwrap().info.format, format);
    }
}

#[test]
fn errors_have_kinds() {
    let kind = |bytes: &[u8], options: DecodeOptions| decode(bytes, options).unwrap_err().kind();
    let strict = DecodeOptions::new();
    for is_progressive in [false, true] {
        let bytes = encoded(64, 48, Subsampling::S420, is_progressive);
        assert_eq!(kind(&bytes[..bytes.len() / 2], strict), ErrorKind::Truncated);
        assert_eq!(kind(&bytes, strict.max_pixels(64 * 48 - 1)), ErrorKind::TooLarge);
        assert!(decode(&bytes, strict.max_pixels(64 * 48)).is_ok());
        let outside = Region { left: 32, top: 0, width: 33, height: 1 };
        assert_eq!(kind(&bytes, strict.region(outside)), ErrorKind::InvalidRequest);
        let endless = Region { left: usize::MAX, top: 0, width: usize::MAX, height: 1 };
        assert_eq!(kind(&bytes, strict.region(endless)), ErrorKind::InvalidRequest);
        assert_eq!(kind(&bytes, strict.format(PixelFormat::Cmyk)), ErrorKind::InvalidRequest);
    }
    assert_eq!(kind(b"", strict), ErrorKind::Corrupt);
    let pixels = picture(40, 40, 3, 1);
    let arithmetic = Encoder::new(&pixels, 40, 40, TurboFormat::Rgb).arithmetic(true).encode().unwrap();
    assert_eq!(kind(&arithmetic, strict), ErrorKind::Unsupported);
    assert!(JpegLayout::read_strict(&arithmetic).unwrap().is_arithmetic());
    assert_eq!(JpegLayout::read_strict(&arithmetic).unwrap().process(), Process::Sequential);
}

#[test]
fn a_header_alone_does_not_determine_how_much_is_allocated() {
    for is_progressive in [false, true] {
        let mut bytes = encoded(64, 48, Subsampling::S420, is_progressive);
        let marker = [0xff, if is_progressive { 0xc2 } else { 0xc0 }];
        let frame = bytes.windows(2).position(|window| window == marker).unwrap();
        // 11,000 × 11,000 pixels, below the limit.
        bytes[frame + 5..frame + 9].copy_from_slice(&[0x2a, 0xf8, 0x2a, 0xf8]);
        let error = decode(&bytes, DecodeOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert!(error.to_string().contains("blocks"), "{error}");
    }
}

#[test]
fn lenient_decodes_keep_what_comes_before_the_damage() {
    for is_progressive in [false, true] {
        let bytes = encoded(64, 64, Subsampling::S444, is_progressive);
        let whole = decode(&bytes, DecodeOptions::new()).unwrap();
        let cut = decode(&bytes[..bytes.len() * 3 / 4], DecodeOptions::new().lenient(true)).unwrap();
        assert!(cut.info.is_damaged && !whole.info.is_damaged);
        assert_eq!((cut.info.width, cut.info.height), (64, 64));
        assert_ne!(cut.pixels, whole.pixels);
        if !is_progressive {
            assert_eq!(cut.pixels[..8 * 64 * 3], whole.pixels[..8 * 64 * 3]);
        }
    }
}
