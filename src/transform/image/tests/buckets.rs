//! Sizes of buckets, and the choice among them.

use proptest::prelude::*;

use super::super::geometry::Size;
use super::files::{jpeg, png, with_orientation};
use super::*;

fn buckets(text: &str) -> Buckets {
    text.parse().unwrap()
}

fn pairs(buckets: &Buckets) -> Vec<(u32, u32)> {
    buckets.sizes().iter().map(|size| (size.width, size.height)).collect()
}

/// The bucket and the resized size of an image.
fn chosen(buckets: &Buckets, width: u32, height: u32) -> ((u32, u32), (u32, u32)) {
    let source = Size::new(width, height);
    let bucket = buckets.choose(source);
    let resized = buckets.covering(source, bucket);
    ((bucket.width, bucket.height), (resized.width, resized.height))
}

#[test]
fn texts_survive_a_round_trip() {
    for text in [
        "area:1024x1024,step:64,max-ratio:2",
        "area:768x512,step:8,max-ratio:1.5",
        "kohya:512x512,step:64,min:256,max:1024",
        "1024x1024,832x1216,1216x832",
        "area:1024x1024,step:64,max-ratio:2=704x1408,1024x1024",
        "kohya:512x512,step:64,min:256,max:1024=512x512",
    ] {
        assert_eq!(buckets(text).to_string(), text);
    }
    assert_eq!(buckets("area:512x512").to_string(), "area:512x512,step:64,max-ratio:2");
    assert_eq!(
        buckets("kohya:512x512,max:2048,step:32").to_string(),
        "kohya:512x512,step:32,min:256,max:2048"
    );
}

#[test]
fn invalid_buckets_are_refused() {
    for (text, what) in [
        ("", "expected area:WxH"),
        ("512", "expected area:WxH"),
        ("512x512,", "expected area:WxH"),
        ("0x5", "expected area:WxH"),
        ("70000x5", "sides from 1 to 65536"),
        ("area:512", "expected area:WxH"),
        ("area:512x512,step:0", "expected area:WxH"),
        ("area:512x512,step:8,step:8", "expected area:WxH"),
        ("area:512x512,min:8", "expected area:WxH"),
        ("area:512x512,max-ratio:0.5", "expected area:WxH"),
        ("area:512x512,max-ratio:NaN", "expected area:WxH"),
        ("novel:512x512", "expected area:WxH"),
        ("512x512,8x8,512x512", "is listed twice"),
        ("area:32x32", "less area than a square of one step"),
        ("area:4096x4096,step:1", "more than 1024 sizes"),
        ("kohya:4096x4096,step:1,max:65536", "more than 1024 sizes"),
        ("area:1024x1024=512x512", "not a part of the rule's sizes"),
        ("area:1024x1024=1024x1024,1024x1024", "not a part of the rule's sizes"),
        ("8x8,9x9=9x9", "not a part of the rule's sizes"),
        ("area:1024x1024=", "expected WxH,WxH,…"),
        ("kohya:1024x1024,max:512", "max is below a side of the area"),
        ("kohya:128x128,min:512,max:256", "max is below min"),
    ] {
        let error = text.parse::<Buckets>().unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
}

#[test]
fn sizes_of_an_area_are_symmetric_multiples_of_the_step() {
    assert_eq!(
        pairs(&buckets("area:1024x1024,step:64,max-ratio:2")),
        [
            (704, 1408),
            (768, 1280),
            (768, 1344),
            (832, 1216),
            (896, 1152),
            (960, 1088),
            (1024, 1024),
            (1088, 960),
            (1152, 896),
            (1216, 832),
            (1280, 768),
            (1344, 768),
            (1408, 704),
        ]
    );
    assert_eq!(pairs(&buckets("area:512x512,step:64,max-ratio:1")), [(512, 512)]);
}

/// Values that `make_bucket_resolutions` and `BucketManager.select_bucket` return, with `no_upscale=False`.
#[test]
fn sizes_and_choices_of_kohya_are_those_of_its_functions() {
    let small = buckets("kohya:512x512,step:64");
    let landscape =
        [(576, 448), (640, 384), (704, 320), (768, 320), (832, 256), (896, 256), (960, 256), (1024, 256)];
    let mut expected: Vec<(u32, u32)> = landscape.iter().map(|&(w, h)| (h, w)).chain(landscape).collect();
    expected.push((512, 512));
    expected.sort_unstable();
    assert_eq!(pairs(&small), expected);
    let large = buckets("kohya:1024x1024,step:64,min:512,max:2048");
    assert_eq!(pairs(&large).len(), 33);
    // Widths start at `min`, which need not be a multiple of the step.
    let odd = buckets("kohya:1000x700,step:32,min:200,max:1800");
    assert_eq!(pairs(&odd).len(), 103);
    assert_eq!(pairs(&odd)[..3], [(200, 1800), (232, 1800), (264, 1800)]);
    for (image, of_small, of_large, of_odd) in [
        ((1, 1), ((512, 512), (512, 512)), ((1024, 1024), (1024, 1024)), ((832, 832), (832, 832))),
        ((640, 480), ((576, 448), (597, 448)), ((1152, 896), (1195, 896)), ((960, 712), (960, 720))),
        ((480, 640), ((448, 576), (448, 597)), ((896, 1152), (896, 1195)), ((712, 960), (720, 960))),
        ((6000, 1000), ((1024, 256), (1536, 256)), ((2048, 512), (3072, 512)), ((1800, 296), (1800, 300))),
        ((333, 1000), ((256, 832), (277, 832)), ((576, 1728), (576, 1730)), ((480, 1448), (482, 1448))),
        ((1920, 1080), ((640, 384), (683, 384)), ((1344, 768), (1365, 768)), ((1096, 608), (1096, 617))),
        ((1080, 1920), ((384, 640), (384, 683)), ((768, 1344), (768, 1365)), ((608, 1096), (617, 1096))),
        ((577, 433), ((576, 448), (597, 448)), ((1152, 896), (1194, 896)), ((960, 712), (960, 720))),
        ((1216, 832), ((576, 448), (655, 448)), ((1216, 832), (1216, 832)), ((1000, 672), (1000, 684))),
        ((5472, 3648), ((640, 384), (640, 427)), ((1216, 832), (1248, 832)), ((1024, 680), (1024, 683))),
        ((101, 67), ((640, 384), (640, 425)), ((1216, 832), (1254, 832)), ((1024, 680), (1025, 680))),
        ((3000, 2999), ((512, 512), (512, 512)), ((1024, 1024), (1024, 1024)), ((832, 832), (832, 832))),
        ((1999, 1501), ((576, 448), (597, 448)), ((1152, 896), (1193, 896)), ((960, 712), (960, 721))),
    ] {
        let (width, height) = image;
        assert_eq!(chosen(&small, width, height), of_small, "{image:?}");
        assert_eq!(chosen(&large, width, height), of_large, "{image:?}");
        assert_eq!(chosen(&odd, width, height), of_odd, "{image:?}");
    }
}

#[test]
fn ties_are_decided() {
    // The same ratio: the largest that needs no enlargement, or else the smallest.
    let squares = buckets("512x512,1024x1024,256x256");
    assert_eq!(chosen(&squares, 1024, 1100).0, (1024, 1024));
    assert_eq!(chosen(&squares, 900, 900).0, (512, 512));
    assert_eq!(chosen(&squares, 100, 100).0, (256, 256));
    // A square between mirrored buckets.
    assert_eq!(chosen(&buckets("256x512,512x256"), 1000, 1000).0, (512, 256));
    // Exactly between two ratios: 1 and 4.
    assert_eq!(chosen(&buckets("512x128,256x256"), 1000, 500).0, (256, 256));
    assert_eq!(chosen(&buckets("128x512,256x256"), 500, 1000).0, (256, 256));
}

#[test]
fn images_cover_their_bucket_and_are_cropped_to_it() {
    let texts = [("buckets", "48x32,32x48,40x40"), ("encode", "raw")];
    // Width, height, bucket, resized.
    for (width, height, bucket, resized) in [
        (96, 64, "48x32", "48x32"),
        (97, 60, "48x32", "52x32"),
        (60, 97, "32x48", "32x52"),
        (200, 40, "48x32", "160x32"),
        (81, 80, "40x40", "41x40"),
        (48, 32, "48x32", "48x32"),
    ] {
        for tag in [1, 3, 6, 7] {
            let (w, h) = if tag < 5 { (width, height) } else { (height, width) };
            let file = with_orientation(&jpeg(w, h), tag);
            let found = raw(&file, &texts);
            let expected =
                raw(&file, &[("resize", &format!("exact:{resized}")), ("crop", &format!("center:{bucket}"))]);
            assert_eq!(format!("{}x{}", found.width, found.height), bucket);
            assert!(found.bytes == expected.bytes, "{width}x{height}, {tag}");
        }
    }
    let exact = convert(&jpeg(48, 32), &[("buckets", "48x32,32x48")]).unwrap();
    assert!(exact.passthrough);
}

#[test]
fn images_smaller_than_their_bucket_are_filtered_unless_they_may_be_enlarged() {
    let outcome = |file: &[u8], texts: &[(&str, &str)]| {
        let transform = ImageTransform::new(options(texts)).unwrap();
        transform.convert(&Bytes::copy_from_slice(file), &mut ImageScratch::new()).unwrap()
    };
    let buckets = ("buckets", "48x32,32x48,40x40");
    for (width, height) in [(47, 32), (300, 31), (39, 41), (1, 3000)] {
        let file = png(width, height);
        assert_eq!(outcome(&file, &[buckets]), ImageOutcome::Filtered(Filtered::Buckets), "{width}x{height}");
        assert!(ImageTransform::new(options(&[buckets])).unwrap().peek(&file).is_ok());
    }
    let enlarged = convert(&png(20, 10), &[buckets, ("enlarge", "true")]).unwrap();
    assert_eq!((enlarged.width, enlarged.height), (48, 32));
    // 48 × 144,000 pixels.
    assert_eq!(
        code(&png(1, 3000), &[buckets, ("enlarge", "true"), ("max_pixels", "1000000")]),
        RejectCode::TooLarge
    );
}

#[test]
fn buckets_with_too_few_images_are_left_out_one_by_one() {
    let sizes: ImageSizes =
        [((100, 100), 5), ((150, 100), 2), ((100, 150), 1), ((400, 100), 1), ((30, 30), 7), ((20, 4), 9)]
            .into();
    let decided = |texts: &[(&str, &str)]| {
        let texts = [&[("buckets", "50x50,60x40,40x60,80x20")][..], texts].concat();
        let mut transform = ImageTransform::new(options(&texts)).unwrap();
        let before = transform.count_buckets(&sizes).unwrap();
        let counts = transform.leave_out_buckets(&sizes).unwrap();
        let left = transform.options().buckets.as_ref().unwrap().to_string();
        (before, counts, left)
    };
    let shown = |counts: &BucketCounts| {
        let of = |all: &[BucketCount]| {
            all.iter().map(|b| format!("{}x{}:{}", b.width, b.height, b.images)).collect::<Vec<_>>().join(" ")
        };
        (of(&counts.buckets), of(&counts.left_out), counts.moved, counts.smaller, counts.filtered)
    };
    let (before, counts, left) = decided(&[]);
    let all = ("40x60:1 50x50:5 60x40:2 80x20:1".to_owned(), String::new(), 0, 16, 0);
    assert_eq!((shown(&before), shown(&counts)), (all.clone(), all));
    assert_eq!(left, "50x50,60x40,40x60,80x20");
    // First 40x60, whose image joins 50x50; then 80x20, whose image joins 60x40, which then has enough.
    let (before, counts, left) = decided(&[("min_bucket", "3")]);
    assert!(before.left_out.is_empty());
    assert_eq!(shown(&counts), ("50x50:6 60x40:3".to_owned(), "40x60:1 80x20:1".to_owned(), 2, 16, 0));
    assert_eq!(left, "50x50,60x40");
    // One bucket stays, however few images it has.
    let (_, counts, left) = decided(&[("min_bucket", "100"), ("min_size", "31")]);
    assert_eq!((counts.buckets.len(), counts.filtered), (1, 16));
    assert_eq!(left, "50x50");
    let (_, counts, _) = decided(&[("enlarge", "true"), ("min_bucket", "4")]);
    assert_eq!(shown(&counts), ("50x50:15 80x20:10".to_owned(), "40x60:1 60x40:2".to_owned(), 3, 0, 0));
    let texts = [("buckets", "area:64x64,step:16"), ("min_bucket", "6")];
    let mut of_area = ImageTransform::new(options(&texts)).unwrap();
    of_area.leave_out_buckets(&sizes).unwrap();
    let left = of_area.options().buckets.as_ref().unwrap().to_string();
    assert_eq!(left, "area:64x64,step:16,max-ratio:2=64x64");
}

#[test]
fn additional_images_have_the_bucket_of_the_main_image() {
    let transform = ImageTransform::new(options(&[("buckets", "48x32,32x48"), ("encode", "raw")])).unwrap();
    let geometry = transform.peek(&jpeg(90, 70)).unwrap().geometry;
    let further = |file: Vec<u8>| {
        let further = FurtherImage { main: &geometry, turns_with_main: false };
        transform.convert_further(&Bytes::from(file), further, &mut ImageScratch::new())
    };
    match further(jpeg(70, 90)).unwrap() {
        ImageOutcome::Converted(image) => assert_eq!((image.width, image.height), (48, 32)),
        other => panic!("{other:?}"),
    }
    let reject = further(jpeg(40, 90)).unwrap_err();
    assert_eq!(reject.code, RejectCode::InvalidValue);
    assert!(reject.message.contains("40×90 pixels, which do not cover"), "{}", reject.message);
}

proptest! {
    #[test]
    fn the_nearest_ratio_is_chosen_and_covered(
        width in 1u32..20_000, height in 1u32..20_000,
        area in 100u32..3000, step in 8u32..100, ratio in 1.0f64..4.0,
    ) {
        let text = format!("area:{area}x{area},step:{step},max-ratio:{ratio}");
        let buckets = buckets(&text);
        let (bucket, resized) = chosen(&buckets, width, height);
        let distance = |(w, h): (u32, u32)| {
            (f64::from(width) / f64::from(height)).ln() - (f64::from(w) / f64::from(h)).ln()
        };
        let nearest = pairs(&buckets).into_iter().map(|size| distance(size).abs()).fold(f64::MAX, f64::min);
        prop_assert!((distance(bucket).abs() - nearest).abs() < 1e-9);
        // One side is exactly a side of the bucket, and the other is the nearest to the ratio of the source.
        prop_assert!(resized.0 >= bucket.0 && resized.1 >= bucket.1);
        prop_assert!(resized.0 == bucket.0 || resized.1 == bucket.1);
        let scale = (f64::from(bucket.0) / f64::from(width)).max(f64::from(bucket.1) / f64::from(height));
        prop_assert!((f64::from(resized.0) - scale * f64::from(width)).abs() <= 0.5 + 1e-6);
        prop_assert!((f64::from(resized.1) - scale * f64::from(height)).abs() <= 0.5 + 1e-6);
        // Portrait and landscape are mirrored.
        let ((w, h), (rw, rh)) = chosen(&buckets, height, width);
        prop_assert!(width == height || ((h, w), (rh, rw)) == (bucket, resized));
        for (w, h) in pairs(&buckets) {
            prop_assert!(w % step == 0 && h % step == 0);
            prop_assert!(u64::from(w) * u64::from(h) <= u64::from(area) * u64::from(area));
            prop_assert!(pairs(&buckets).contains(&(h, w)));
        }
    }
}
