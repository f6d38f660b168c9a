//! Comparison with libjpeg-turbo: the decoder must return the same pixels or decline.

use libjpeg_turbo_rs::{Decoder, Encoder, JpegError, PixelFormat as TurboFormat, ScalingFactor, Subsampling};
use proptest::prelude::*;

use super::{Declined, FastDecoder, FastRequest, PlanesRequest, StoredPlane, StoredPlanes};
use crate::idct::Portable;
use crate::{PixelFormat, Region, Scale};

/// Decodes with the strict decoder of libjpeg-turbo.
fn reference(bytes: &[u8], channels: usize) -> Result<Vec<u8>, JpegError> {
    reduced_reference(bytes, 1, channels)
}

fn reduced_reference(bytes: &[u8], reduction: usize, channels: usize) -> Result<Vec<u8>, JpegError> {
    let mut decoder = Decoder::new(bytes)?;
    decoder.set_scale(ScalingFactor::try_new(1, reduction as u32)?);
    decoder.set_stop_on_warning(true);
    decoder.set_output_format(if channels == 1 { TurboFormat::Grayscale } else { TurboFormat::Rgb });
    Ok(decoder.decode_image()?.into_vec())
}

fn crop(pixels: &[u8], width: usize, region: Region, channels: usize) -> Vec<u8> {
    let rows = pixels.chunks_exact(width * channels).skip(region.top).take(region.height);
    rows.flat_map(|row| &row[region.left * channels..][..region.width * channels]).copied().collect()
}

fn decode(bytes: &[u8], size: (usize, usize), region: Region, channels: usize) -> Result<Vec<u8>, Declined> {
    decode_request(bytes, request(size, 1, region, channels))
}

/// Creates a request for rows without gaps that reads no more of the file than they need.
fn request(size: (usize, usize), reduction: usize, region: Region, channels: usize) -> FastRequest {
    let scale = Scale::from_denominator(reduction as u32).unwrap();
    let format = if channels == 1 { PixelFormat::Gray } else { PixelFormat::Rgb };
    FastRequest { size, scale, region, stride: region.width, format, reads_to_end: false }
}

/// Decodes with the code for this processor and with the portable code; both must agree.
fn decode_request(bytes: &[u8], request: FastRequest) -> Result<Vec<u8>, Declined> {
    let mut out = vec![0; request.sample_count().unwrap_or(0)];
    let done = FastDecoder::default().decode_into(bytes, request, &mut out);
    let mut portable = vec![0; out.len()];
    assert_eq!(FastDecoder::default().decode_with(Portable, bytes, request, &mut portable), done);
    assert!(done.is_err() || out == portable, "the backends disagree");
    done.map(|()| out)
}

/// Creates a picture of waves and noise.
fn picture(width: usize, height: usize, channels: usize, seed: u64, noise: u32) -> Vec<u8> {
    let mut state = seed;
    let mut pixels = Vec::with_capacity(width * height * channels);
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let wave =
                    ((x * (c + 1)) as f64 / 7.0).sin() + ((y * 2 + c) as f64 / 11.0 + seed as f64).cos();
                let noise = if noise > 0 { (state >> 40) as u32 % noise } else { 0 };
                pixels.push((wave * 60.0 + 128.0 + f64::from(noise)).clamp(0.0, 255.0) as u8);
            }
        }
    }
    pixels
}

/// Copies a plane and its position, for comparison.
fn owned(plane: StoredPlane<'_>) -> (Vec<u8>, [usize; 5], (usize, usize)) {
    let StoredPlane { samples, stride, left, top, width, height, spread } = plane;
    (samples.to_vec(), [stride, left, top, width, height], spread)
}

fn encode(
    pixels: &[u8],
    (width, height): (usize, usize),
    channels: usize,
    quality: u8,
    s: Subsampling,
) -> Vec<u8> {
    let format = if channels == 1 { TurboFormat::Grayscale } else { TurboFormat::Rgb };
    Encoder::new(pixels, width, height, format).quality(quality).subsampling(s).encode().unwrap()
}

fn subsampling() -> impl Strategy<Value = Subsampling> {
    prop_oneof![Just(Subsampling::S420), Just(Subsampling::S444), Just(Subsampling::S422)]
}

/// Returns a region that starts at given fractions of the sides, and covers given fractions of the rest.
fn region_at((width, height): (usize, usize), place: (f64, f64, f64, f64)) -> Region {
    let (left, top) = ((place.0 * width as f64) as usize, (place.1 * height as f64) as usize);
    Region {
        left,
        top,
        width: 1 + (place.2 * (width - left - 1) as f64) as usize,
        height: 1 + (place.3 * (height - top - 1) as f64) as usize,
    }
}

fn encoder_with_restarts(
    pixels: &[u8],
    (width, height): (usize, usize),
    format: TurboFormat,
    quality: u8,
    subsampling: Subsampling,
    interval: u16,
) -> Vec<u8> {
    let encoder = Encoder::new(pixels, width, height, format).quality(quality).subsampling(subsampling);
    encoder.restart_blocks(interval).encode().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pixels_match_libjpeg_turbo(
        (width, height) in (1usize..90, 1usize..90),
        color: bool,
        // Below 25, quantization values take 16 bits, and the file is not a baseline JPEG.
        quality in 25u8..=100,
        subsampling in subsampling(),
        noise in prop_oneof![Just(0u32), 1u32..255],
        seed: u64,
        place in (0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0),
        is_gray_requested: bool,
        reduction in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
        restart in prop_oneof![Just(0u16), 1u16..20],
        // Huffman codes optimized for this image.
        has_optimized_codes: bool,
        is_progressive: bool,
    ) {
        let stored = if color { 3 } else { 1 };
        let pixels = picture(width, height, stored, seed, noise);
        let format = if color { TurboFormat::Rgb } else { TurboFormat::Grayscale };
        let encoder = Encoder::new(&pixels, width, height, format).quality(quality).subsampling(subsampling);
        let encoder = encoder.restart_blocks(restart).progressive(is_progressive);
        let bytes = encoder.optimize_huffman(has_optimized_codes).encode().unwrap();
        let size = (width, height);
        let (width, height) = (width.div_ceil(reduction), height.div_ceil(reduction));
        let region = region_at((width, height), place);
        let channels = if is_gray_requested { 1 } else { 3 };
        let expected = reduced_reference(&bytes, reduction, channels).unwrap();
        let expected = crop(&expected, width, region, channels);
        match decode_request(&bytes, request(size, reduction, region, channels)) {
            Ok(found) => prop_assert!(found == expected),
            // Only chroma that is too narrow for fancy upsampling is declined.
            Err(Declined) => prop_assert!(color && subsampling != Subsampling::S444 && width < 5),
        }
    }

    #[test]
    fn restart_markers_do_not_change_pixels(
        (width, height) in (5usize..90, 1usize..90),
        color: bool,
        quality in 25u8..=100,
        subsampling in subsampling(),
        noise in prop_oneof![Just(0u32), 1u32..255],
        seed: u64,
        interval in 1u16..20,
        has_optimized_codes: bool,
    ) {
        let stored = if color { 3 } else { 1 };
        let pixels = picture(width, height, stored, seed, noise);
        let format = if color { TurboFormat::Rgb } else { TurboFormat::Grayscale };
        let encoder = Encoder::new(&pixels, width, height, format).quality(quality).subsampling(subsampling);
        let bytes = [&encoder.optimize_huffman(has_optimized_codes).encode().unwrap()[..], b"after the end"].concat();
        let mut decoder = FastDecoder::default();
        let rewritten = decoder.with_restarts(&bytes, interval.try_into().unwrap()).unwrap();
        prop_assert!(reference(&rewritten, 3).unwrap() == reference(&bytes, 3).unwrap());
        let request = request((width, height), 1, Region { left: 0, top: 0, width, height }, 3);
        let request = FastRequest { reads_to_end: true, ..request };
        prop_assert!(decode_request(&rewritten, request) == decode_request(&bytes, request));
        prop_assert!(rewritten.ends_with(b"after the end"));
        // With standard codes, these are the bytes of an encoder that writes restart markers.
        if !has_optimized_codes {
            let expected = encoder_with_restarts(&pixels, (width, height), format, quality, subsampling, interval);
            let scan = |bytes: &[u8]| bytes.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
            prop_assert!(rewritten[scan(&rewritten)..].strip_suffix(b"after the end").unwrap() == &expected[scan(&expected)..]);
        }
        prop_assert_eq!(decoder.with_restarts(&rewritten, interval.try_into().unwrap()), Err(Declined));
    }

    /// Compares whole components and parts of them with libjpeg-turbo, and with the portable code.
    #[test]
    fn planes_match_libjpeg_turbo(
        (width, height) in (1usize..90, 1usize..90),
        color: bool,
        subsampling in subsampling(),
        quality in 25u8..=100,
        seed: u64,
        place in (0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..1.0),
        reduction in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
    ) {
        let stored = if color { 3 } else { 1 };
        let bytes = encode(&picture(width, height, stored, seed, 40), (width, height), stored, quality, subsampling);
        let scale = Scale::from_denominator(reduction as u32).unwrap();
        let (full_width, full_height) = (width, height);
        let (width, height) = (width.div_ceil(reduction), height.div_ceil(reduction));
        let region = region_at((width, height), place);
        let Region { left, top, .. } = region;
        let request = PlanesRequest { size: (full_width, full_height), scale, region, reads_to_end: true };
        let (mut decoder, mut portable) = (FastDecoder::default(), FastDecoder::default());
        let found = decoder.decode_planes(&bytes, request).unwrap();
        let by_portable = portable.planes_with(Portable, &bytes, request).unwrap();
        prop_assert_eq!(found.chroma.is_some(), color);
        let raw = Decoder::new(&bytes[..]).unwrap().decode_raw().unwrap();
        let gray = reduced_reference(&bytes, reduction, 1).unwrap();
        let all = |planes: StoredPlanes<'_>| planes.chroma.map_or(vec![planes.luma], |[cb, cr]| vec![planes.luma, cb, cr]).into_iter().map(owned).collect::<Vec<_>>();
        prop_assert!(all(found) == all(by_portable), "the backends disagree");
        for (c, plane) in [Some(found.luma)].into_iter().chain(found.chroma.map_or([None; 2], |planes| planes.map(Some))).flatten().enumerate() {
            let (across, down) = plane.spread;
            prop_assert_eq!((plane.width, plane.height), (width.div_ceil(across), height.div_ceil(down)));
            // All samples of pixels in the region.
            for y in top / down..(top + region.height).div_ceil(down) {
                for x in left / across..(left + region.width).div_ceil(across) {
                    let sample = plane.samples[(y - plane.top) * plane.stride + x - plane.left];
                    match (c, reduction) {
                        (_, 1) => prop_assert_eq!(sample, raw.planes[c][y * raw.plane_widths[c] + x]),
                        (0, _) => prop_assert_eq!(sample, gray[y * width + x]),
                        _ => {
                            // Approximately the mean of the samples that it covers.
                            let rows = (y * reduction..(y + 1) * reduction).flat_map(|y| (x * reduction..(x + 1) * reduction).map(move |x| (x, y)));
                            let sum: u32 = rows.map(|(x, y)| u32::from(raw.planes[c][y * raw.plane_widths[c] + x])).sum();
                            let mean = sum / (reduction * reduction) as u32;
                            prop_assert!(mean.abs_diff(sample.into()) < 60, "{mean} {sample}");
                        }
                    }
                }
            }
        }
    }

    /// Damaged files never cause a panic either.
    #[test]
    fn damaged_files_are_declined_or_match_libjpeg_turbo(
        (width, height) in (5usize..60, 1usize..60),
        subsampling in subsampling(),
        is_progressive: bool,
        seed: u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let pixels = picture(width, height, 3, seed, 90);
        let encoder = Encoder::new(&pixels, width, height, TurboFormat::Rgb).quality(90).subsampling(subsampling);
        let mut bytes = encoder.progressive(is_progressive).encode().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let region = Region { left: 0, top: 0, width, height };
        if let Ok(found) = decode(&bytes, (width, height), region, 3)
            && let Ok(expected) = reference(&bytes, 3)
        {
            prop_assert!(found == expected);
        }
    }

    /// The converter relies on this: it does not check whole images from this decoder with libjpeg-turbo again.
    #[test]
    fn files_read_to_the_end_are_valid_for_libjpeg_turbo(
        (width, height) in (5usize..60, 1usize..60),
        subsampling in subsampling(),
        color: bool,
        is_progressive: bool,
        seed: u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        // Damage in the headers, in the scan, or in the last bytes of the file.
        region in 0usize..3,
        reduction in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
        restart in prop_oneof![Just(0u16), 1u16..20],
    ) {
        let stored = if color { 3 } else { 1 };
        let pixels = picture(width, height, stored, seed, 90);
        let format = if color { TurboFormat::Rgb } else { TurboFormat::Grayscale };
        let encoder = Encoder::new(&pixels, width, height, format).quality(90).subsampling(subsampling);
        let bytes = encoder.restart_blocks(restart).progressive(is_progressive).encode().unwrap();
        let scan = bytes.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
        let places = [0..scan, scan..bytes.len(), bytes.len().saturating_sub(12)..bytes.len()][region].clone();
        let mut damaged = bytes.clone();
        for (at, byte) in damage {
            damaged[places.start + at.index(places.len())] = byte;
        }
        let size = (width, height);
        let region =
            Region { left: 0, top: 0, width: width.div_ceil(reduction), height: height.div_ceil(reduction) };
        for channels in [1, 3] {
            if let Ok(found) = decode_request(&damaged, FastRequest { reads_to_end: true, ..request(size, reduction, region, channels) }) {
                let expected = reduced_reference(&damaged, reduction, channels);
                prop_assert!(expected.is_ok(), "{:?}", expected.err());
                prop_assert!(found == expected.unwrap());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), rest in any::<[usize; 4]>()) {
        let [left, top, width, height] = rest.map(|n| n % 40);
        let region = Region { left, top, width, height };
        let _ = decode(&bytes, (20, 20), region, 3);
        let mut bytes = bytes;
        bytes.splice(0..0, encode(&picture(20, 20, 3, 1, 9), (20, 20), 3, 80, Subsampling::S420)[..620].to_vec());
        let _ = decode(&bytes, (20, 20), region, 3);
    }
}

#[test]
fn extreme_blocks_are_declined_or_match_libjpeg_turbo() {
    // Noise of full contrast has the highest energy that samples can have.
    for seed in 0..20 {
        let mut pixels = picture(48, 48, 3, seed, 255);
        pixels.iter_mut().for_each(|v| *v = if *v % 2 == 0 { 0 } else { 255 });
        for quality in [1, 5, 50, 100] {
            let bytes = encode(&pixels, (48, 48), 3, quality, Subsampling::S444);
            let region = Region { left: 0, top: 0, width: 48, height: 48 };
            if let Ok(found) = decode(&bytes, (48, 48), region, 3) {
                assert_eq!(found, reference(&bytes, 3).unwrap(), "seed {seed}, quality {quality}");
            }
        }
    }
}

#[test]
fn reused_buffers_do_not_affect_the_next_image() {
    let mut decoder = FastDecoder::default();
    for (n, size) in [(60, 40), (16, 16), (33, 70), (8, 90), (60, 40)].into_iter().enumerate() {
        for (subsampling, is_progressive) in [
            (Subsampling::S420, false),
            (Subsampling::S444, true),
            (Subsampling::S420, true),
            (Subsampling::S444, false),
        ] {
            let pixels = picture(size.0, size.1, 3, n as u64, 60);
            let encoder =
                Encoder::new(&pixels, size.0, size.1, TurboFormat::Rgb).quality(90).subsampling(subsampling);
            let bytes = encoder.progressive(is_progressive).encode().unwrap();
            let region = Region { left: 0, top: 0, width: size.0, height: size.1 };
            let mut out = vec![0; size.0 * size.1 * 3];
            let request = request(size, 1, region, 3);
            decoder.decode_into(&bytes, request, &mut out).unwrap();
            assert_eq!(out, reference(&bytes, 3).unwrap());
            // A failed decode in between leaves coefficients in the buffers.
            let cut = &bytes[..bytes.len() - bytes.len() / 4];
            assert_eq!(decoder.decode_into(cut, request, &mut out), Err(Declined));
        }
    }
}

#[test]
fn unsupported_files_and_requests_are_declined() {
    let pixels = picture(40, 40, 3, 3, 30);
    let region = Region { left: 0, top: 0, width: 40, height: 40 };
    let encoder = || Encoder::new(&pixels, 40, 40, TurboFormat::Rgb).quality(80);
    let plain = encoder().encode().unwrap();
    assert!(decode(&plain, (40, 40), region, 3).is_ok());
    for other in [
        encoder().arithmetic(true).encode().unwrap(),
        encoder().subsampling(Subsampling::S440).encode().unwrap(),
    ] {
        assert_eq!(decode(&other, (40, 40), region, 3), Err(Declined));
    }
    assert_eq!(decode(&plain, (41, 40), region, 3), Err(Declined), "the requested size is wrong");
    for region in [
        Region { left: 1, ..region },
        Region { top: usize::MAX, ..region },
        Region { width: 0, ..region },
        Region { height: 41, ..region },
    ] {
        let mut out = vec![0; region.width.min(100) * region.height.min(100) * 3];
        assert_eq!(
            FastDecoder::default().decode_into(&plain, request((40, 40), 1, region, 3), &mut out),
            Err(Declined)
        );
    }
}

#[test]
fn jfif_adobe_or_component_identifiers_determine_the_color_model() {
    let pixels = picture(40, 40, 3, 3, 30);
    let plain = Encoder::new(&pixels, 40, 40, TurboFormat::Rgb).quality(80).encode().unwrap();
    let region = Region { left: 0, top: 0, width: 40, height: 40 };
    let length = 2 + usize::from(u16::from_be_bytes([plain[4], plain[5]]));
    assert_eq!(plain[2..4], [0xff, 0xe0], "JFIF first");
    let (jfif, rest) = (&plain[2..2 + length], &plain[2 + length..]);
    let adobe = |transform| [b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0", &[transform][..]].concat();
    let file = |segments: &[&[u8]]| [&[0xff, 0xd8], segments.concat().as_slice(), rest].concat();
    let expected = reference(&plain, 3).unwrap();
    // JFIF precedes the Adobe segment, as in libjpeg.
    for segments in [&[][..], &[&adobe(1)[..]], &[jfif, &adobe(1)], &[jfif, &adobe(0)]] {
        let file = file(segments);
        assert_eq!(reference(&file, 3).unwrap(), expected);
        assert_eq!(decode(&file, (40, 40), region, 3).unwrap(), expected);
    }
    // A file in RGB.
    assert_eq!(decode(&file(&[&adobe(0)]), (40, 40), region, 3), Err(Declined));
    let unknown = file(&[&adobe(2)]);
    assert_eq!(decode(&unknown, (40, 40), region, 3).ok(), reference(&unknown, 3).ok());
}

#[test]
fn rows_follow_the_stride_and_damage_after_them_is_found() {
    let pixels = picture(64, 64, 3, 5, 30);
    let mut bytes = encode(&pixels, (64, 64), 3, 90, Subsampling::S420);
    let region = Region { left: 20, top: 9, width: 11, height: 7 };
    let request = FastRequest { stride: 64, reads_to_end: true, ..request((64, 64), 1, region, 3) };
    let mut out = vec![7; request.sample_count().unwrap()];
    FastDecoder::default().decode_into(&bytes, request, &mut out).unwrap();
    let expected = crop(&reference(&bytes, 3).unwrap(), 64, region, 3);
    for (n, row) in out.chunks(64 * 3).enumerate() {
        assert_eq!(row[..33], expected[n * 33..][..33]);
        assert!(row[33..].iter().all(|&v| v == 7), "samples between the rows are not changed");
    }
    // Removes the last bytes of the scan, but keeps the end of the image.
    bytes.drain(bytes.len() - 40..bytes.len() - 2);
    assert_eq!(FastDecoder::default().decode_into(&bytes, request, &mut out), Err(Declined));
    assert_eq!(
        FastDecoder::default().decode_into(&bytes, FastRequest { reads_to_end: false, ..request }, &mut out),
        Ok(())
    );
}

#[test]
fn segments_outside_a_region_are_skipped_unless_the_whole_file_is_read() {
    let (width, height) = (96, 96);
    let pixels = picture(width, height, 3, 1, 60);
    let encoder =
        Encoder::new(&pixels, width, height, TurboFormat::Rgb).quality(90).subsampling(Subsampling::S420);
    // Six MCUs per row, in segments of four: some segments hold the end of a row and the start of the next.
    let bytes = encoder.restart_blocks(4).encode().unwrap();
    let is_marker = |pair: &[u8]| pair[0] == 0xff && (0xd0..=0xd7).contains(&pair[1]);
    let markers: Vec<usize> =
        bytes.windows(2).enumerate().filter(|(_, pair)| is_marker(pair)).map(|(at, _)| at).collect();
    assert_eq!(markers.len(), 8);
    // With one more on each side for upsampling, MCUs 7 to 10, 13 to 16, 19 to 22 and 25 to 28 are needed. Only the
    // first and the last segment contain none of them.
    let region = Region { left: 32, top: 32, width: 32, height: 32 };
    let request = request((width, height), 1, region, 3);
    let expected = decode_request(&bytes, request).unwrap();
    for (segment, range) in [(0, markers[0] - 40..markers[0]), (8, markers[7] + 2..markers[7] + 42)] {
        let mut damaged = bytes.clone();
        damaged[range].fill(0x7f);
        assert!(decode_request(&damaged, request) == Ok(expected.clone()), "{segment}");
        assert_eq!(decode_request(&damaged, FastRequest { reads_to_end: true, ..request }), Err(Declined));
    }
    let mut damaged = bytes.clone();
    damaged[markers[1] + 2..markers[2]].fill(0x7f);
    assert!(decode_request(&damaged, request) != Ok(expected));
}

#[test]
fn a_large_file_may_have_many_restart_markers() {
    let (width, height) = (200, 100);
    let pixels = picture(width, height, 1, 7, 30);
    let encoder = Encoder::new(&pixels, width, height, TurboFormat::Grayscale).quality(80);
    let rewritten =
        FastDecoder::default().with_restarts(&encoder.encode().unwrap(), 1.try_into().unwrap()).unwrap();
    assert!(rewritten.ends_with(&encoder.restart_blocks(1).encode().unwrap()[600..]));
    assert!(rewritten.windows(2).filter(|w| w[0] == 0xff && (0xd0..=0xd7).contains(&w[1])).count() > 256);
}

/// Only a complete JFIF segment means that the colors are YCbCr, whatever the component identifiers.
#[test]
fn short_jfif_segments_are_ignored() {
    let (width, height) = (40, 24);
    let pixels = picture(width, height, 3, 3, 20);
    let file = encode(&pixels, (width, height), 3, 90, Subsampling::S444);
    let jfif_bytes = 2 + usize::from(u16::from_be_bytes([file[4], file[5]]));
    assert_eq!(file[3], 0xe0);
    let with_segment = |payload: &[u8]| {
        let mut rest = file[2 + jfif_bytes..].to_vec();
        let find = |rest: &[u8], marker: u8| rest.windows(2).position(|w| w == [0xff, marker]).unwrap();
        let (frame, scan) = (find(&rest, 0xc0), find(&rest, 0xda));
        for (n, id) in b"RGB".iter().enumerate() {
            rest[frame + 10 + 3 * n] = *id;
            rest[scan + 5 + 2 * n] = *id;
        }
        let length = (payload.len() as u16 + 2).to_be_bytes();
        [&[0xff, 0xd8, 0xff, 0xe0], &length[..], payload, &rest].concat()
    };
    let whole = Region { left: 0, top: 0, width, height };
    let full = with_segment(b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    assert_eq!(decode(&full, (width, height), whole, 3).unwrap(), reference(&full, 3).unwrap());
    let short = with_segment(b"JFIF\0\x01\x01");
    assert_ne!(reference(&short, 3).unwrap(), reference(&full, 3).unwrap());
    assert_eq!(decode(&short, (width, height), whole, 3), Err(Declined));
}
