//! Tests of the quality of resized images, and of the detection of damage while resizing.

use libjpeg_turbo_rs::Subsampling;

use super::files::*;
use super::*;

#[test]
fn a_crop_is_the_middle_of_the_uncropped_image() {
    let file = encoder(&busy_picture(333, 501), 333, 501).encode().unwrap();
    for tag in 1..=8 {
        let file = with_orientation(&file, tag);
        let whole = raw(&file, &[("resize", "shorter:150")]);
        let (left, top) = ((whole.width - 101) / 2, (whole.height - 99) / 2);
        let middle: Vec<u8> = (0..99)
            .flat_map(|y| (0..101).map(move |x| (x, y)))
            .flat_map(|(x, y)| pixel(&whole, left + x, top + y))
            .collect();
        let cropped = raw(&file, &[("resize", "shorter:150"), ("crop", "center:101x99")]);
        assert_eq!((cropped.width, cropped.height), (101, 99));
        let worst = cropped.bytes.iter().zip(&middle).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst <= Some(1), "orientation {tag}: {worst:?}");
    }
}

#[test]
fn subsampling_of_the_source_does_not_move_colors() {
    let picture = busy_picture(300, 200);
    let truth = raw(&encoded(picture.clone(), 300, 200, 3, Encode::Png), &[("resize", "shorter:100")]);
    for (subsampling, min_psnr) in
        [(Subsampling::S444, 30.0), (Subsampling::S422, 20.0), (Subsampling::S420, 20.0)]
    {
        let file = encoder(&picture, 300, 200).subsampling(subsampling).encode().unwrap();
        let psnr = psnr(&raw(&file, &[("resize", "shorter:100")]).bytes, &truth.bytes);
        assert!(psnr > min_psnr, "{subsampling:?}: {psnr}");
    }
}

#[test]
fn damage_is_detected_while_resizing() {
    let file = encoder(&busy_picture(900, 600), 900, 600).encode().unwrap();
    for resize in ["shorter:400", "shorter:100", "shorter:20"] {
        let texts = [("resize", resize)];
        assert_eq!(code(&file[..file.len() / 2], &texts), RejectCode::Truncated);
        let mut bad = file.clone();
        let middle = bad.len() / 2;
        bad[middle..middle + 6].copy_from_slice(&[0xff, 0, 0xff, 0, 0xff, 0]);
        assert_eq!(code(&bad, &texts), RejectCode::Corrupt, "{resize}");
    }
}

#[test]
fn a_jpeg_of_rgb_components_keeps_its_colors() {
    let rgb = encoder(&busy_picture(60, 40), 60, 40)
        .subsampling(Subsampling::S444)
        .colorspace(libjpeg_turbo_rs::ColorSpace::Rgb)
        .encode()
        .unwrap();
    let png = encoded(raw(&rgb, &[]).bytes.to_vec(), 60, 40, 3, Encode::Png);
    let texts = [("resize", "longer:30")];
    assert_eq!(convert(&rgb, &texts).unwrap().bytes, convert(&png, &texts).unwrap().bytes);
}
