//! Tests of files whose coded pixels pass through unchanged.

use moxcms::ColorProfile;

use super::files::*;
use super::*;

#[test]
fn a_file_that_needs_no_change_keeps_its_scans() {
    let plain = jpeg(40, 30);
    for encode in ["jpeg:50", "keep"] {
        let image = convert(&plain, &[("encode", encode), ("resize", "longer:40")]).unwrap();
        assert!(image.passthrough, "{encode}");
        assert_eq!(image.bytes, plain);
    }
    let lossy = webp(20, 10);
    assert_eq!(convert(&lossy, &[("encode", "webp:10")]).unwrap().bytes, lossy);
    let truecolor = png(20, 10);
    assert_eq!(convert(&truecolor, &[("encode", "png")]).unwrap().bytes, truecolor);
}

#[test]
fn files_that_must_change_are_encoded_again() {
    let gray = raw_png((2, 1), 8, 0, &[], &[&[1, 2]]);
    let deep = raw_png((1, 1), 16, 2, &[], &[&[0, 0, 0, 0, 0, 0]]);
    let arithmetic = encoder(&picture(8, 8), 8, 8).arithmetic(true).encode().unwrap();
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("a coding few can read", arithmetic, "jpeg"),
        ("another type", png(8, 8), "jpeg"),
        ("gray to color", gray, "png"),
        ("16 bits", deep, "png"),
        ("lossless to lossy", encoded(picture(8, 8), 8, 8, 3, Encode::WebpLossless), "webp:90"),
        ("turned", with_orientation(&jpeg(8, 8), 2), "keep"),
        ("several frames", gif(2), "keep"),
        ("inks", cmyk([9, 9, 9, 9], libjpeg_turbo_rs::ColorSpace::Cmyk, true), "keep"),
        ("profile", with_icc(&jpeg(8, 8), &ColorProfile::new_adobe_rgb().encode().unwrap()), "keep"),
    ];
    for (name, file, encode) in cases {
        assert!(!convert(&file, &[("encode", encode)]).unwrap().passthrough, "{name}");
    }
}

#[test]
fn metadata_is_removed_and_pixels_are_unchanged() {
    let srgb = ColorProfile::new_srgb().encode().unwrap();
    let plain = jpeg(40, 30);
    let mut jpeg = with_orientation(&plain, 1);
    jpeg = with_icc(&jpeg, &srgb);
    jpeg = with_segment(&jpeg, 0xfe, b"a comment");
    jpeg.extend(b"a video after the end");
    let mut png = png(20, 10);
    png.splice(33..33, png_chunk(b"tEXt", b"Author\0somebody"));
    let webp = webp(20, 10);
    let with_exif =
        metadata::with_exif(webp.clone(), ImageType::Webp, (20, 10), &exif::tests::block(1, true));
    assert!(with_exif.len() > webp.len());

    for file in [jpeg, png, with_exif] {
        let stripped = convert(&file, &[("encode", "keep")]).unwrap();
        assert!(stripped.passthrough);
        assert!(stripped.bytes.len() < file.len());
        assert_eq!(raw(&stripped.bytes, &[]).bytes, raw(&file, &[]).bytes);
        let again = convert(&stripped.bytes, &[("encode", "keep")]).unwrap();
        assert_eq!(again.bytes, stripped.bytes, "nothing is left to strip");
        let kept = convert(&file, &[("encode", "keep"), ("keep_metadata", "true")]).unwrap();
        assert_eq!(kept.bytes, file);
    }
    assert_eq!(convert(&with_segment(&plain, 0xfe, b"x"), &[("encode", "keep")]).unwrap().bytes, plain);
}

/// Covers files that pass through, are resized by planes, or are encoded from RGB.
#[test]
fn restart_markers_do_not_change_pixels() {
    let source = jpeg(40, 30);
    let padded = [("resize", "longer:36"), ("pad", "40x40")];
    for texts in
        [&[][..], &[("encode", "keep"), ("keep_metadata", "true")], &[("resize", "longer:36")], &padded]
    {
        let plain = convert(&source, texts).unwrap();
        let marked = convert(&source, &[texts, &[("restart_interval", "2")]].concat()).unwrap();
        assert!(plain.bytes.windows(4).all(|w| w != [0xff, 0xdd, 0, 4]), "{texts:?}");
        assert!(marked.bytes.windows(6).any(|w| w == [0xff, 0xdd, 0, 4, 0, 2]), "{texts:?}");
        assert_eq!(raw(&marked.bytes, &[]).bytes, raw(&plain.bytes, &[]).bytes, "{texts:?}");
        assert_eq!(marked.passthrough, plain.passthrough);
        // Markers that a file already has are unchanged.
        let again = convert(&marked.bytes, &[("restart_interval", "3"), ("encode", "keep")]).unwrap();
        assert!(again.passthrough && again.bytes == marked.bytes, "{texts:?}");
    }
    let png = convert(&source, &[("encode", "png")]).unwrap().bytes;
    let kept = convert(&png, &[("encode", "keep"), ("restart_interval", "2")]).unwrap();
    assert!(kept.passthrough && kept.bytes == png, "only JPEGs have restart markers");
}

#[test]
fn progressive_files_become_baseline_files_with_the_same_pixels() {
    let source = progressive(48, 32);
    let with_exif = with_orientation(&source, 1);
    for (file, texts) in [
        (&source, &[][..]),
        (&source, &[("encode", "keep")]),
        (&with_exif, &[("encode", "keep"), ("keep_metadata", "true")]),
        (&source, &[("restart_interval", "2")]),
    ] {
        let kept = convert(file, texts).unwrap();
        let image = convert(file, &[texts, &[("baseline", "true")]].concat()).unwrap();
        assert!(kept.passthrough && image.passthrough, "{texts:?}");
        assert!(kept.has_several_scans && !image.has_several_scans, "{texts:?}");
        assert!(kept.bytes.windows(2).any(|w| w == [0xff, 0xc2]), "{texts:?}");
        assert!(image.bytes.windows(2).all(|w| w != [0xff, 0xc2]), "{texts:?}");
        assert_eq!(
            image.bytes.windows(4).any(|w| w == [0xff, 0xdd, 0, 4]),
            texts.len() == 1 && texts[0].1 == "2"
        );
        assert_eq!(raw(&image.bytes, &[]).bytes, raw(file, &[]).bytes, "{texts:?}");
        let has_exif = |bytes: &[u8]| bytes.windows(6).any(|w| w == b"Exif\0\0");
        assert_eq!(has_exif(&image.bytes), has_exif(&kept.bytes), "{texts:?}");
    }
    // Nothing changes for baseline files, for files that are encoded again, and for those that cannot be baseline.
    let deep = encoder(&picture(24, 24), 24, 24).quality(5).progressive(true).encode().unwrap();
    for (file, texts) in [
        (&jpeg(40, 30), &[][..]),
        (&source, &[("resize", "longer:36")]),
        (&deep, &[("encode", "keep")]),
        (&png(8, 8), &[("encode", "keep")]),
    ] {
        let with = convert(file, &[texts, &[("baseline", "true")]].concat()).unwrap();
        assert_eq!(with.bytes, convert(file, texts).unwrap().bytes, "{texts:?}");
    }
}

#[test]
fn exif_is_copied_into_a_new_file_as_upright() {
    let source = with_orientation(&jpeg(40, 30), 6);
    for encode in ["jpeg:90", "png", "webp:90", "webp-lossless"] {
        let texts = [("encode", encode), ("resize", "longer:20"), ("keep_metadata", "true")];
        let image = convert(&source, &texts).unwrap();
        assert_eq!((image.width, image.height), (15, 20), "{encode}");
        let options = ImageOptions::default();
        let read = source::CheckedImage::read(&image.bytes, &options).unwrap();
        assert_eq!(read.structure.damage, None);
        assert_eq!(read.oriented_size(), geometry::Size::new(15, 20));
        assert_eq!(metadata::upright_exif(&read), Some(exif::tests::block(1, false)), "{encode}");
        assert!(raw(&image.bytes, &[]).bytes.len() == 15 * 20 * 3);
        let without = convert(&source, &texts[..2]).unwrap();
        assert_eq!(raw(&without.bytes, &[]).bytes, raw(&image.bytes, &[]).bytes);
    }
}

#[test]
fn a_damaged_file_never_passes_through() {
    let mut file = jpeg(40, 30);
    file.truncate(file.len() - 2);
    let image = convert(&file, &[("encode", "keep"), ("lenient", "true")]).unwrap();
    assert!(image.lenient && !image.passthrough);
    assert!(convert(&image.bytes, &[]).is_ok());
}

/// A file that passes through is read to its end, but most pixels are not computed. That must find the same damage.
#[test]
fn a_file_passes_through_exactly_if_its_pixels_can_be_decoded() {
    let plain = jpeg(100, 80);
    let scan = plain.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    let (mut passed, mut refused) = (0, 0);
    for at in scan..plain.len() {
        for damage in [0x01_u8, 0x80, 0xff] {
            let mut file = plain.clone();
            file[at] ^= damage;
            let kept = convert(&file, &[("encode", "keep")]);
            let decoded = convert(&file, &[("encode", "png")]);
            assert_eq!(
                kept.as_ref().map_err(|e| e.code).err(),
                decoded.map_err(|e| e.code).err(),
                "{at} {damage}"
            );
            match kept {
                Ok(image) => {
                    let is_same = image.bytes == file || image.tolerated == [Tolerated::ScanParameters];
                    assert!(image.passthrough && is_same, "{at} {damage}");
                    passed += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(passed > 100 && refused > 100, "{passed} passed, {refused} refused");
}

#[test]
fn profiles_are_converted_unless_dropped() {
    let flat = encoder(&[100, 180, 100].repeat(64), 8, 8).encode().unwrap();
    let tagged = with_icc(&flat, &ColorProfile::new_adobe_rgb().encode().unwrap());
    let converted = pixel(&raw(&tagged, &[]), 4, 4);
    assert!(converted[0] < 90, "{converted:?}");
    assert!(near(pixel(&raw(&tagged, &[("icc", "drop")]), 4, 4), [100, 180, 100], 3));
    // A resize gives the same colors.
    let resized = raw(&tagged, &[("resize", "longer:4")]);
    assert!(near(pixel(&resized, 2, 2), converted, 2));
}

#[test]
fn an_exif_block_that_is_too_large_for_a_jpeg_is_reported() {
    let with_exif = |bytes: usize| {
        let mut block = exif::tests::block(1, true);
        block.resize(bytes, 0);
        metadata::with_exif(png(20, 10), ImageType::Png, (20, 10), &block)
    };
    let has_exif = |image: &Converted| image.bytes.windows(6).any(|w| w == b"Exif\0\0" || &w[..4] == b"eXIf");
    for (bytes, encode, is_kept) in
        [(65_527, "jpeg", true), (65_528, "jpeg", false), (65_528, "png", true), (65_528, "webp", true)]
    {
        let file = with_exif(bytes);
        let texts = [("encode", encode), ("keep_metadata", "true"), ("resize", "longer:10")];
        let image = convert(&file, &texts).unwrap();
        assert_eq!(image.lacks_exif, !is_kept, "{bytes}, {encode}");
        assert_eq!(has_exif(&image) || encode == "webp", is_kept, "{bytes}, {encode}");
        assert!(!convert(&file, &[texts[0], texts[2]]).unwrap().lacks_exif);
    }
}
