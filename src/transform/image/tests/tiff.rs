//! Tests of TIFF files.

use moxcms::ColorProfile;

use super::files::tiff_of;
use super::*;

const ICC_PROFILE: u16 = 34_675;
const UNDEFINED: u16 = 7;

#[test]
fn profiles_of_any_size_are_applied() {
    let profile = ColorProfile::new_adobe_rgb().encode().unwrap();
    let with_bytes = |more: usize| [&profile[..], &vec![0; more]].concat();
    for (side, profile) in [(1u16, with_bytes(0)), (8, with_bytes(0)), (8, with_bytes(300_000))] {
        let samples = [100, 180, 100].repeat(usize::from(side).pow(2));
        let file = tiff_of((side, side), 3, 8, &[(ICC_PROFILE, UNDEFINED, profile)], &samples);
        let found = pixel(&raw(&file, &[]), 0, 0);
        assert!(found[0] < 90, "{side}: {found:?}");
        assert_eq!(pixel(&raw(&file, &[("icc", "drop")]), 0, 0), [100, 180, 100]);
    }
}

#[test]
fn colors_are_divided_by_associated_alpha() {
    const EXTRA_SAMPLES: u16 = 338;
    const SHORT: u16 = 3;
    let of_kind = |kind: u8, bits: u16, samples: &[u8]| {
        tiff_of((2, 1), 4, bits, &[(EXTRA_SAMPLES, SHORT, vec![kind, 0])], samples)
    };
    let rgba = |file: &[u8]| raw(file, &[("color", "rgba")]).bytes;
    let samples = [100, 50, 0, 128, 9, 8, 7, 255];
    let wide: Vec<u8> = samples.iter().flat_map(|v| [*v, *v]).collect();
    for (bits, samples) in [(8, &samples[..]), (16, &wide)] {
        let associated = of_kind(1, bits, samples);
        assert_eq!(*rgba(&associated), [199, 100, 0, 128, 9, 8, 7, 255], "{bits} bits");
        // Over white: the color, and what alpha leaves of the background.
        assert!(near(pixel(&raw(&associated, &[]), 0, 0), [227, 177, 127], 1), "{bits} bits");
        let unassociated = of_kind(2, bits, samples);
        assert_eq!(*rgba(&unassociated), [100, 50, 0, 128, 9, 8, 7, 255], "{bits} bits");
    }
}

#[test]
fn pixels_may_start_in_the_lowest_bits_of_their_bytes() {
    const FILL_ORDER: u16 = 266;
    const SHORT: u16 = 3;
    let samples: Vec<u8> = (0..3 * 16).map(|i| i * 5).collect();
    let reversed: Vec<u8> = samples.iter().map(|byte| byte.reverse_bits()).collect();
    let of_order =
        |order: u8, samples: &[u8]| tiff_of((4, 4), 3, 8, &[(FILL_ORDER, SHORT, vec![order, 0])], samples);
    let expected = raw(&of_order(1, &samples), &[]).bytes;
    assert_eq!(*expected, samples);
    assert_eq!(raw(&of_order(2, &reversed), &[]).bytes, expected);
}

#[test]
fn separate_tiles_beyond_the_image_are_unsupported() {
    let (short, long) = (3, 4);
    let number = |value: u32| value.to_le_bytes().to_vec();
    let numbers = |values: [u32; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let tiles = [
        (0x0111, long, vec![]),
        (0x0116, short, vec![]),
        (0x0117, long, vec![]),
        (284, short, vec![2, 0]),
        (322, long, number(16)),
        (323, long, number(16)),
        (324, long, numbers([8, 264, 520])),
        (325, long, numbers([256; 3])),
    ];
    let of_size = |width, height| tiff_of((width, height), 3, 8, &tiles, &[5; 3 * 256]);
    assert!(raw(&of_size(16, 16), &[]).bytes.iter().all(|sample| *sample == 5));
    let reject = convert(&of_size(16, 10), &[]).unwrap_err();
    assert_eq!(reject.code, RejectCode::Unsupported);
    let reject = convert(&of_size(12, 16), &[]).unwrap_err();
    assert_eq!(reject.code, RejectCode::Unsupported);
    assert!(reject.message.contains("tiles"), "{}", reject.message);
}
