//! Comparison of rewritten files with their sources: pixels by libjpeg-turbo-rs, coefficients by the general decoder.

use libjpeg_turbo_rs::{Decoder, Encoder, PixelFormat as TurboFormat, Subsampling};
use proptest::prelude::*;

use super::*;
use crate::testing::picture;
use crate::{ErrorKind, FastDecoder, FastRequest, PixelFormat, Process, Region, Scale};

fn pixels(bytes: &[u8]) -> Vec<u8> {
    Decoder::new(bytes).unwrap().decode_image().unwrap().into_vec()
}

/// Returns the coefficients of all blocks with pixels of the image.
fn coefficients(bytes: &[u8]) -> Vec<DctBlock> {
    let layout = JpegLayout::read_strict(bytes).unwrap();
    let image = read_image(&layout, |result| result).unwrap();
    let mut blocks = Vec::new();
    for (component, image) in layout.components.iter().zip(&image) {
        let (columns, rows) = layout.blocks_with_pixels(component);
        for row in 0..rows {
            for column in 0..columns {
                blocks.push(*image.get((column, row)).unwrap());
            }
        }
    }
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn pixels_and_coefficients_do_not_change(
        (width, height) in (1usize..70, 1usize..70),
        subsampling in prop_oneof![
            Just(Subsampling::S420), Just(Subsampling::S444), Just(Subsampling::S422), Just(Subsampling::S440)
        ],
        is_color: bool,
        is_progressive: bool,
        // Below, libjpeg writes quantization tables of 16 bits.
        quality in 30u8..=100,
        seed: u64,
        restart in prop_oneof![Just(0u16), 1u16..12],
        interval in prop_oneof![Just(0u16), 1u16..12],
    ) {
        let (format, channels) = if is_color { (TurboFormat::Rgb, 3) } else { (TurboFormat::Grayscale, 1) };
        let picture = picture(width, height, channels, seed);
        let encoder = Encoder::new(&picture, width, height, format).quality(quality).subsampling(subsampling);
        let source = encoder.progressive(is_progressive).restart_blocks(restart).encode().unwrap();
        let baseline = to_baseline(&source, NonZeroU16::new(interval)).unwrap();
        prop_assert!(pixels(&baseline) == pixels(&source));
        prop_assert!(coefficients(&baseline) == coefficients(&source));
        let layout = JpegLayout::read_strict(&baseline).unwrap();
        prop_assert_eq!((layout.process, layout.scans.len()), (Process::Sequential, 1));
        prop_assert_eq!(layout.scans[0].restart, usize::from(interval));
        prop_assert!(to_baseline(&baseline, NonZeroU16::new(interval)).unwrap() == baseline);
        if subsampling != Subsampling::S440 && width > 4 {
            let region = Region { left: 0, top: 0, width, height };
            let format = PixelFormat::Rgb;
            let scale = Scale::Full;
            let request =
                FastRequest { size: (width, height), scale, region, stride: width, format, reads_to_end: true };
            let mut out = vec![0; width * height * 3];
            prop_assert!(FastDecoder::default().decode_into(&baseline, request, &mut out).is_ok());
        }
    }

    #[test]
    fn damaged_files_never_cause_a_panic(
        is_progressive: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let picture = picture(40, 30, 3, 7);
        let encoder = Encoder::new(&picture, 40, 30, TurboFormat::Rgb).progressive(is_progressive);
        let mut bytes = encoder.encode().unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(layout) = JpegLayout::read(&bytes)
            && layout.width * layout.height < 1 << 16
            && let Ok(baseline) = to_baseline(&bytes, None)
        {
            prop_assert!(coefficients(&baseline) == coefficients(&bytes));
        }
    }
}

fn progressive() -> Vec<u8> {
    let picture = picture(40, 30, 3, 7);
    Encoder::new(&picture, 40, 30, TurboFormat::Rgb).progressive(true).encode().unwrap()
}

/// Returns the position of the first marker `marker`.
fn marker(bytes: &[u8], marker: u8) -> usize {
    bytes.windows(2).position(|w| w == [0xff, marker]).unwrap()
}

#[test]
fn other_segments_and_the_bytes_after_the_end_are_kept() {
    let mut source = progressive();
    let last_scan = source.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    source.splice(last_scan..last_scan, *b"\xff\xfe\0\x0cbetween it");
    source.splice(2..2, *b"\xff\xe1\0\x0aEXIF and");
    source.extend(b"a video");
    let baseline = to_baseline(&source, None).unwrap();
    assert!(baseline.starts_with(b"\xff\xd8\xff\xe1\0\x0aEXIF and\xff\xe0"));
    assert!(baseline.ends_with(b"\xff\xd9a video"));
    assert!(marker(&baseline, 0xfe) < marker(&baseline, 0xc0));
    assert_eq!(pixels(&baseline), pixels(&source));
}

#[test]
fn segments_about_colors_between_scans_stay_without_effect() {
    let mut source = progressive();
    let last_scan = source.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    // Without the JFIF segment, an Adobe segment would say that the components are red, green and blue.
    let jfif = marker(&source, 0xe0);
    source.splice(last_scan..last_scan, *b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0");
    source.drain(jfif..jfif + 18);
    let baseline = to_baseline(&source, None).unwrap();
    assert_eq!(pixels(&baseline), pixels(&source));
    assert!(!baseline.windows(2).any(|w| w == [0xff, 0xee]));
}

#[test]
fn files_that_baseline_cannot_represent_are_rejected() {
    let source = progressive();
    let error_kind = |bytes: &[u8]| to_baseline(bytes, None).unwrap_err().kind();
    let quant = marker(&source, 0xdb);
    let table = source[quant..quant + 69].to_vec();
    assert_eq!(table[2..5], [0, 67, 0], "one table of 8 bits");

    let last_scan = source.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    let mut between = source.clone();
    between.splice(last_scan..last_scan, table.iter().copied());
    assert_eq!(error_kind(&between), ErrorKind::Unsupported);

    let wide = table[5..].iter().flat_map(|&value| [0, value]);
    let wide: Vec<u8> = [0xff, 0xdb, 0, 131, 0x10].into_iter().chain(wide).collect();
    let mut deep = source.clone();
    deep.splice(quant..quant + 69, wide);
    assert_eq!(pixels(&deep), pixels(&source));
    assert_eq!(error_kind(&deep), ErrorKind::Unsupported);

    let incomplete = [&source[..last_scan], &[0xff, 0xd9]].concat();
    assert_eq!(error_kind(&incomplete), ErrorKind::Unsupported);
    assert_eq!(error_kind(&source[..last_scan + 30]), ErrorKind::Truncated);
    let picture = picture(40, 30, 3, 7);
    let arithmetic = Encoder::new(&picture, 40, 30, TurboFormat::Rgb).arithmetic(true).encode().unwrap();
    assert_eq!(error_kind(&arithmetic), ErrorKind::Unsupported);
}
