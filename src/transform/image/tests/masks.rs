//! Tests of masks and their images.

use bytes::Bytes;

use super::files::with_orientation;
use super::*;
use crate::decode::{Mask, Size};

/// Creates blocks of 16 × 16 pixels. Adjacent blocks differ, and no two rows or columns are alike.
fn blocks(width: u32, height: u32) -> pixels::Pixels {
    let value = |x: u32, y: u32| 20 + 30 * ((x / 16 + 3 * (y / 16) + (x / 16) * (y / 16)) % 8) as u8;
    let data = (0..height).flat_map(|y| (0..width).map(move |x| value(x, y))).collect();
    pixels::Pixels { data, width, height, channels: 1 }
}

fn turned(source: &pixels::Pixels, tag: u16) -> pixels::Pixels {
    let mut out = pixels::Pixels::default();
    pixels::orient(source, orientation::Orientation::from_tag(tag).unwrap(), &mut out);
    out
}

fn png(pixels: &pixels::Pixels) -> Bytes {
    encode::encode(pixels, Encode::Png).unwrap().into()
}

fn converted(file: &[u8], mask: &Bytes, texts: &[(&str, &str)]) -> (Converted, Result<Bytes, Reject>) {
    let transform = ImageTransform::new(options(texts)).unwrap();
    let geometry = transform.peek(file).unwrap().geometry;
    (convert(file, texts).unwrap(), transform.convert_mask(mask, &geometry))
}

#[test]
fn masks_align_with_their_images_in_every_orientation() {
    let upright = blocks(96, 64);
    let jpeg = Encode::Jpeg { quality: 95, subsampling: Subsampling::S444 };
    let more: [&[(&str, &str)]; 3] = [
        &[],
        &[("resize", "exact:48x32"), ("crop", "center:41x22"), ("pad", "50x30")],
        &[("resize", "shorter:100"), ("enlarge", "true")],
    ];
    for tag in 1..=8u16 {
        let inverse = match tag {
            6 => 8,
            8 => 6,
            other => other,
        };
        let stored = turned(&upright, inverse);
        let file = with_orientation(&encode::encode(&stored, jpeg).unwrap(), tag);
        let mut masks = vec![png(&stored)];
        if (stored.width, stored.height) != (96, 64) {
            masks.push(png(&upright));
        }
        for (mask, more) in masks.iter().flat_map(|mask| more.iter().map(move |more| (mask, more))) {
            let texts = [*more, &[("encode", "raw"), ("color", "gray")]].concat();
            let (image, mask) = converted(&file, mask, &texts);
            let (width, height) = (image.width as usize, image.height as usize);
            let mask = Mask::read(&mask.unwrap(), Size::new(image.width, image.height)).unwrap();
            let mut compared = 0;
            for at in 0..mask.data.len() {
                let (x, y) = (at % width, at / width);
                if !(3..width - 3).contains(&x) || !(3..height - 3).contains(&y) {
                    continue;
                }
                let around = [at - 3, at + 3, at - 3 * width, at + 3 * width];
                if around.iter().all(|&other| mask.data[other] == mask.data[at]) {
                    compared += 1;
                    let difference = mask.data[at].abs_diff(image.bytes[at]);
                    assert!(difference <= 12, "orientation {tag}, {more:?}: {difference} at {x},{y}");
                }
            }
            assert!(compared > mask.data.len() / 60, "{compared}");
            let known = |v: &u8| *v == 0 || upright.data.contains(v);
            assert!(mask.data.iter().all(known), "values are not mixed");
        }
    }
}

#[test]
fn masks_keep_palettes_and_depths() {
    let indexed = {
        let mut out = Vec::new();
        let mut encoder = ::png::Encoder::new(&mut out, 4, 2);
        encoder.set_color(::png::ColorType::Indexed);
        encoder.set_depth(::png::BitDepth::Four);
        encoder.set_palette((0..12).collect::<Vec<u8>>());
        encoder.add_text_chunk("Author".to_owned(), "nobody".to_owned()).unwrap();
        encoder.write_header().unwrap().write_image_data(&[0x01, 0x23, 0x32, 0x10]).unwrap();
        Bytes::from(out)
    };
    let image = |width, height| png(&blocks(width, height));
    // Unchanged, but without metadata.
    let (_, same) = converted(&image(4, 2), &indexed, &[]);
    let same = same.unwrap();
    assert_eq!(Mask::read(&same, Size::new(4, 2)), Mask::read(&indexed, Size::new(4, 2)));
    assert!(same.len() < indexed.len() && !same.windows(6).any(|w| w == b"Author"));
    let (_, half) = converted(&image(4, 2), &indexed, &[("resize", "exact:2x2"), ("filter", "box")]);
    let half = Mask::read(&half.unwrap(), Size::new(2, 2)).unwrap();
    assert_eq!((half.data, half.palette.unwrap().colors), (vec![1, 3, 2, 0], (0..12).collect()));

    let deep = {
        let mut out = Vec::new();
        let mut encoder = ::png::Encoder::new(&mut out, 2, 1);
        encoder.set_depth(::png::BitDepth::Sixteen);
        encoder.write_header().unwrap().write_image_data(&[1, 2, 3, 4]).unwrap();
        Bytes::from(out)
    };
    let (_, large) = converted(&image(2, 1), &deep, &[("resize", "exact:4x1"), ("enlarge", "true")]);
    assert_eq!(Mask::read(&large.unwrap(), Size::new(4, 1)).unwrap().data, [1, 2, 1, 2, 3, 4, 3, 4]);
}

#[test]
fn masks_that_do_not_fit_are_rejected() {
    let image = png(&blocks(32, 16));
    let code = |mask: Bytes| converted(&image, &mask, &[("lenient", "true")]).1.unwrap_err().code;
    assert_eq!(code(png(&blocks(16, 32))), RejectCode::InvalidValue);
    let whole = png(&blocks(32, 16));
    assert_eq!(code(whole.slice(..whole.len() - 20)), RejectCode::Truncated);
    assert_eq!(code(files::jpeg(32, 16).into()), RejectCode::Unsupported);
    assert_eq!(code(Bytes::new()), RejectCode::Empty);
}

#[test]
fn masks_that_pass_through_keep_their_metadata_on_request() {
    let whole = png(&blocks(32, 16)).to_vec();
    let text = files::png_chunk(b"tEXt", b"classes\x000=sky");
    let tagged = Bytes::from([&whole[..33], &text, &whole[33..]].concat());
    let kept = converted(&tagged, &tagged, &[("keep_metadata", "true"), ("encode", "keep")]).1.unwrap();
    assert_eq!(kept, tagged);
    assert_eq!(converted(&tagged, &tagged, &[]).1.unwrap(), whole);
}

#[test]
fn additional_images_are_turned_like_the_image_of_their_sample() {
    let upright = blocks(96, 64);
    let texts = [("encode", "raw"), ("color", "gray"), ("resize", "exact:48x32"), ("filter", "box")];
    let transform = ImageTransform::new(options(&texts)).unwrap();
    let jpeg = |pixels: &pixels::Pixels| encode::encode(pixels, "jpeg:95".parse().unwrap()).unwrap();
    for (tag, inverse) in [(1u16, 1), (2, 2), (3, 3), (5, 5), (6, 8), (7, 7), (8, 6)] {
        let stored = turned(&upright, inverse);
        let main = with_orientation(&jpeg(&stored), tag);
        let geometry = transform.peek(&main).unwrap().geometry;
        let expected = convert(&main, &texts).unwrap();
        let further = FurtherImage { main: &geometry, turns_with_main: true };
        let mut files = vec![png(&stored), main.clone().into()];
        if (stored.width, stored.height) != (96, 64) {
            files.push(png(&upright));
        }
        for file in files {
            match transform.convert_further(&file, further, &mut ImageScratch::new()).unwrap() {
                ImageOutcome::Converted(found) => {
                    assert_eq!((found.width, found.height), (48, 32), "{tag}");
                    let near = |(a, b): (&u8, &u8)| a.abs_diff(*b) < 16;
                    assert!(found.bytes.iter().zip(&expected.bytes).all(near), "{tag}");
                }
                other => panic!("{other:?}"),
            }
        }
        // An image of another size has its own geometry.
        let other = png(&blocks(24, 65));
        match transform.convert_further(&other, further, &mut ImageScratch::new()).unwrap() {
            ImageOutcome::Converted(found) => {
                assert_eq!((found.width, found.height), (24, 32), "{tag}");
                assert_eq!(found.bytes, convert(&other, &texts).unwrap().bytes);
            }
            other => panic!("{other:?}"),
        }
    }
}
