//! Properties that hold for any bytes and any sizes.

use libjpeg_turbo_rs::Subsampling;
use proptest::prelude::*;

use super::files::*;
use super::*;

fn samples() -> Vec<Vec<u8>> {
    vec![
        jpeg(40, 30),
        progressive(24, 40),
        with_orientation(&jpeg(20, 12), 7),
        png(12, 9),
        webp(16, 16),
        encoded(picture(9, 9), 9, 9, 3, Encode::WebpLossless),
        gif(2),
        bmp(2, 2, &[&[1; 6], &[2; 6]]),
        tiff(3, 0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No input causes a panic, a result has the size it declares, and the same bytes give the same outcome.
    #[test]
    fn damaged_files_have_an_outcome(
        which in 0usize..9,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        cut: bool,
        lenient: bool,
    ) {
        let mut file = samples().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        if cut {
            file.truncate(keep.index(file.len()));
        }
        let lenient = if lenient { "true" } else { "false" };
        let texts = [("encode", "raw"), ("resize", "shorter:7"), ("lenient", lenient), ("max_pixels", "1000000")];
        let transform = ImageTransform::new(options(&texts)).unwrap();
        let file = Bytes::from(file);
        let first = transform.convert(&file, &mut ImageScratch::new());
        if let Ok(ImageOutcome::Converted(image)) = &first {
            prop_assert_eq!(image.bytes.len() as u64, u64::from(image.width) * u64::from(image.height) * 3);
            prop_assert!(transform.peek(&file).is_ok());
        }
        prop_assert_eq!(first, transform.convert(&file, &mut ImageScratch::new()));
    }

    /// Only the part of a photograph that the result needs is decoded: earlier content of the buffers never shows.
    #[test]
    fn the_previous_image_does_not_affect_the_next(
        size in (17u32..200, 17u32..200),
        subsampling in prop_oneof![Just(Subsampling::S444), Just(Subsampling::S422), Just(Subsampling::S420)],
        orientation in 1u16..=8,
        filter in prop_oneof![Just("lanczos3"), Just("catmullrom"), Just("bilinear"), Just("box")],
        shorter in 3u32..60,
        crop in (1u32..60, 1u32..60),
    ) {
        let file = |picture: &[u8]| {
            let file = encoder(picture, size.0, size.1).subsampling(subsampling).encode().unwrap();
            Bytes::from(with_orientation(&file, orientation))
        };
        let (shown, before) = (file(&busy_picture(size.0, size.1)), file(&vec![255; size.0 as usize * size.1 as usize * 3]));
        let (resize, crop) = (format!("shorter:{shorter}"), format!("center:{}x{}", crop.0, crop.1));
        let texts = [("encode", "raw"), ("resize", &resize), ("crop", &crop), ("filter", filter)];
        let transform = ImageTransform::new(options(&texts)).unwrap();
        let mut scratch = ImageScratch::new();
        transform.convert(&before, &mut scratch).unwrap();
        let found = transform.convert(&shown, &mut scratch);
        prop_assert_eq!(found, transform.convert(&shown, &mut ImageScratch::new()));
    }

    /// Bytes that only start like an image do not cause a panic.
    #[test]
    fn noise_has_an_outcome(start in 0usize..6, noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let starts: [&[u8]; 6] =
            [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\xff\0\0\0WEBP", b"GIF89a", b"II*\0", b"MM\0*"];
        let file = [starts[start], &noise].concat();
        let transform = ImageTransform::new(options(&[("max_pixels", "1000000")])).unwrap();
        let _ = transform.convert(&Bytes::from(file), &mut ImageScratch::new());
    }

    /// The output has the planned size, whichever path it takes.
    #[test]
    fn sizes_are_as_planned(
        width in 1u32..200, height in 1u32..200, tag in 1u16..9, n in 1u32..120, crop in 1u32..120, kind in 0usize..3,
    ) {
        let file = with_orientation(&jpeg(width, height), tag);
        let resize = ["shorter", "longer", "area"][kind];
        let resize = format!("{resize}:{}", if kind == 2 { n * n } else { n });
        let crop = format!("center:{crop}x{n}");
        let texts = [("resize", resize.as_str()), ("crop", crop.as_str())];
        let pixels = raw(&file, &texts);
        let image = convert(&file, &texts).unwrap();
        prop_assert_eq!((pixels.width, pixels.height), (image.width, image.height));
        let again = raw(&image.bytes, &[]);
        prop_assert_eq!((again.width, again.height), (image.width, image.height));
        let widest = if tag > 4 { height } else { width };
        prop_assert!(image.width <= widest);
    }
}
