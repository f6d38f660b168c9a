//! A table of difficult files. Each row generates a file and states its outcome: pixels or a reject.
//!
//! The outcome of a row is a promise about the content of datasets: change it only together with
//! `docs/reference/images.md`.

use libjpeg_turbo_rs::ColorSpace;

use super::files::*;
use super::*;

/// The expected outcome of a file.
#[derive(Debug, PartialEq)]
enum Expected {
    /// Pixels: width, height and CRC-32 of the RGB samples.
    Pixels(u32, u32, u32),
    Reject(RejectCode),
}

/// Name, file, options and outcome.
type HostileFile = (&'static str, Vec<u8>, &'static [(&'static str, &'static str)], Expected);

use Expected::Pixels;
use RejectCode::{Animated, Corrupt, Empty, TooLarge, Truncated, UnknownType, Unsupported};

fn outcome(file: &[u8], texts: &[(&str, &str)]) -> Expected {
    let mut texts = texts.to_vec();
    texts.push(("encode", "raw"));
    match convert(file, &texts) {
        Ok(image) => {
            assert_eq!(image.bytes.len() as u64, u64::from(image.width) * u64::from(image.height) * 3);
            Pixels(image.width, image.height, crc32fast::hash(&image.bytes))
        }
        Err(reject) => Expected::Reject(reject.code),
    }
}

/// Replaces the bytes of `file` at `at`.
fn patched(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn cut(mut file: Vec<u8>, keep: usize) -> Vec<u8> {
    file.truncate(keep);
    file
}

/// Returns the position of the first `marker` in `jpeg`.
fn marker(jpeg: &[u8], marker: u8) -> usize {
    jpeg.windows(2).position(|w| w == [0xff, marker]).unwrap()
}

/// Creates a progressive file whose last scan is repeated thousands of times.
fn many_scans() -> Vec<u8> {
    let file = progressive(16, 16);
    let last = file.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    let scan = file[last..file.len() - 2].repeat(5000);
    [&file[..file.len() - 2], &scan, &[0xff, 0xd9]].concat()
}

fn palette_with_alpha() -> Vec<u8> {
    let palette = png_chunk(b"PLTE", &[255, 0, 0, 0, 255, 0, 0, 0, 255]);
    let alpha = png_chunk(b"tRNS", &[255, 0, 128]);
    raw_png((3, 1), 8, 3, &[palette, alpha], &[&[0, 1, 2]])
}

#[test]
fn difficult_files_have_the_outcome_of_their_row() {
    let (whole, several_scans) = (jpeg(48, 32), one_scan_per_component(48, 32));
    let gray = PNG_GRAY_16;
    let rows: Vec<HostileFile> = vec![
        // Truncated and unknown files.
        ("no bytes", vec![], &[], Expected::Reject(Empty)),
        (
            "HTML named .jpg",
            b"<html><body>404 not found</body></html>".to_vec(),
            &[],
            Expected::Reject(UnknownType),
        ),
        ("HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic".to_vec(), &[], Expected::Reject(Unsupported)),
        ("start of image only", whole[..3].to_vec(), &[], Expected::Reject(Truncated)),
        ("baseline cut in its header", cut(whole.clone(), 100), &[], Expected::Reject(Truncated)),
        ("baseline cut in its scan", cut(whole.clone(), whole.len() - 90), &[], Expected::Reject(Truncated)),
        ("progressive cut in a scan", cut(progressive(48, 32), 700), &[], Expected::Reject(Truncated)),
        ("progressive cut between scans", cut_before_last_scan(), &[], Expected::Reject(Truncated)),
        ("no end of image", cut(whole.clone(), whole.len() - 2), &[], Expected::Reject(Truncated)),
        (
            "no end of image, lenient",
            cut(whole.clone(), whole.len() - 2),
            &[("lenient", "true")],
            same_as(&whole),
        ),
        (
            "progressive without an end of image, lenient",
            cut(progressive(48, 32), progressive(48, 32).len() - 2),
            &[("lenient", "true")],
            same_as(&progressive(48, 32)),
        ),
        (
            "one scan per component without an end of image, lenient",
            cut(several_scans.clone(), several_scans.len() - 2),
            &[("lenient", "true")],
            same_as(&several_scans),
        ),
        ("cut PNG", cut(png(20, 20), 150), &[], Expected::Reject(Truncated)),
        ("PNG without its end", cut(png(4, 4), png(4, 4).len() - 12), &[], Expected::Reject(Truncated)),
        ("cut WebP", cut(webp(20, 20), 60), &[], Expected::Reject(Truncated)),
        ("cut GIF", cut(gif(1), gif(1).len() - 2), &[], Expected::Reject(Truncated)),
        ("GIF without its end", cut(gif(1), gif(1).len() - 1), &[], Pixels(1, 1, 0)),
        ("cut BMP", cut(bmp(2, 2, &[&[1; 6], &[2; 6]]), 60), &[], Expected::Reject(Truncated)),
        ("cut TIFF", cut(tiff(1, 0), 124), &[], Expected::Reject(Truncated)),
        // Damage inside files.
        (
            "bad code in the scan",
            patched(whole.clone(), whole.len() - 60, &[0xff, 0, 0xff, 0, 0xff, 0]),
            &[],
            Expected::Reject(Corrupt),
        ),
        (
            "restart marker in the scan",
            patched(whole.clone(), whole.len() - 60, &[0xff, 0xd3]),
            &[],
            Expected::Reject(Corrupt),
        ),
        ("stray bytes between segments", with_stray_bytes(&whole), &[], same_as(&whole)),
        ("stray bytes, lenient", with_stray_bytes(&whole), &[("lenient", "true")], same_as(&whole)),
        ("wrong checksum", patched(png(4, 4), 50, &[0xee]), &[], Expected::Reject(Corrupt)),
        ("no Huffman table", without_segment(&progressive(16, 16), 0xc4), &[], Expected::Reject(Corrupt)),
        ("no quantisation table", without_segment(&whole, 0xdb), &[], Expected::Reject(Corrupt)),
        ("two frame headers", twice(&whole, 0xc0), &[], Expected::Reject(Corrupt)),
        ("end before the scan", [&whole[..2], &[0xff, 0xd9]].concat(), &[], Expected::Reject(Corrupt)),
        ("GIF without frames", gif(0), &[], Expected::Reject(Corrupt)),
        (
            "TIFF whose directory is outside the file",
            patched(tiff(1, 0), 4, &[0xff; 4]),
            &[],
            Expected::Reject(Truncated),
        ),
        ("BMP of no width", bmp(0, 5, &[]), &[], Expected::Reject(Corrupt)),
        // Sizes.
        ("JPEG of 65500×65500", resized(&whole, 65_500, 65_500), &[], Expected::Reject(TooLarge)),
        ("JPEG of no height", resized(&whole, 48, 0), &[], Expected::Reject(Unsupported)),
        ("JPEG of no width", resized(&whole, 0, 32), &[], Expected::Reject(Corrupt)),
        ("PNG bomb", raw_png((60_000, 60_000), 1, 0, &[], &[&[0]]), &[], Expected::Reject(TooLarge)),
        ("BMP bomb", bmp(i32::MAX as u32, i32::MIN, &[]), &[], Expected::Reject(TooLarge)),
        (
            "PNG bomb without its end, lenient",
            cut(raw_png((12_000, 12_000), 8, 2, &[], &[&[0]]), 60),
            &[("lenient", "true")],
            Expected::Reject(Truncated),
        ),
        (
            "JPEG of 12000×12000 without an end of image, lenient",
            cut(resized(&whole, 12_000, 12_000), whole.len() - 2),
            &[("lenient", "true")],
            Expected::Reject(Truncated),
        ),
        (
            "progressive of 12000×12000, lenient",
            resized_at(&progressive(48, 32), 0xc2, 12_000, 12_000),
            &[("lenient", "true"), ("resize", "longer:64")],
            Expected::Reject(TooLarge),
        ),
        (
            "BMP of 12000×12000, lenient",
            bmp(12_000, 12_000, &[&[1; 6]]),
            &[("lenient", "true")],
            Expected::Reject(Truncated),
        ),
        ("thousands of scans", many_scans(), &[], Expected::Reject(TooLarge)),
        ("1×1 JPEG", jpeg(1, 1), &[], Pixels(1, 1, 0)),
        ("65500×1 JPEG", jpeg(65_500, 1), &[("resize", "longer:8")], Pixels(8, 1, 0)),
        // Unusual but intact files.
        ("bytes after the end", [&whole, &b"tail"[..]].concat(), &[], same_as(&whole)),
        ("progressive", progressive(48, 32), &[], same_as(&whole)),
        (
            "arithmetic coding",
            encoder(&picture(48, 32), 48, 32).arithmetic(true).encode().unwrap(),
            &[],
            same_as(&whole),
        ),
        (
            "lossless",
            encoder(&picture(9, 7), 9, 7).lossless(true).encode().unwrap(),
            &[],
            rgb(9, 7, &picture(9, 7)),
        ),
        ("CMYK of Adobe", cmyk([255, 55, 128, 255], ColorSpace::Cmyk, true), &[], flat(16, [255, 55, 128])),
        ("YCCK of Adobe", cmyk([255, 55, 128, 255], ColorSpace::Ycck, true), &[], Pixels(16, 16, 0)),
        (
            "CMYK, not inverted",
            cmyk([0, 200, 127, 0], ColorSpace::Cmyk, false),
            &[],
            flat(16, [255, 55, 128]),
        ),
        ("16-bit gray PNG", gray(), &[], rgb(2, 1, &[0x12, 0x12, 0x12, 0xff, 0xff, 0xff])),
        (
            "palette and alpha",
            palette_with_alpha(),
            &[],
            rgb(3, 1, &[255, 0, 0, 255, 255, 255, 127, 127, 255]),
        ),
        (
            "1-bit PNG",
            raw_png((3, 1), 1, 0, &[], &[&[0b1010_0000]]),
            &[],
            rgb(3, 1, &[255, 255, 255, 0, 0, 0, 255, 255, 255]),
        ),
        ("GIF", gif(1), &[], Pixels(1, 1, 0)),
        ("animated GIF", gif(3), &[], outcome(&gif(1), &[])),
        ("animated GIF, refused", gif(3), &[("animated", "reject")], Expected::Reject(Animated)),
        (
            "BMP, rows from bottom to top",
            bmp(1, 2, &[&[1, 2, 3], &[4, 5, 6]]),
            &[],
            rgb(1, 2, &[6, 5, 4, 3, 2, 1]),
        ),
        (
            "BMP, rows from top to bottom",
            bmp(1, -2, &[&[1, 2, 3], &[4, 5, 6]]),
            &[],
            rgb(1, 2, &[3, 2, 1, 6, 5, 4]),
        ),
        ("BMP of OS/2", os2(&bmp(1, 2, &[&[1, 2, 3], &[4, 5, 6]])), &[], rgb(1, 2, &[6, 5, 4, 3, 2, 1])),
        ("TIFF", tiff(1, 0), &[], grays(2, 2, &[10, 20, 30, 40])),
        ("TIFF, turned", tiff(6, 0), &[], grays(2, 2, &[30, 10, 40, 20])),
        ("TIFF whose directories form a loop", tiff(1, 8), &[], grays(2, 2, &[10, 20, 30, 40])),
        ("broken EXIF", with_segment(&whole, 0xe1, b"Exif\0\0II*\0\xff\xff\xff\xff"), &[], same_as(&whole)),
        ("orientation 9", with_orientation(&whole, 9), &[], same_as(&whole)),
        ("broken profile", with_icc(&whole, b"not a profile"), &[], same_as(&whole)),
        (
            "profile without its second part",
            with_segment(&whole, 0xe2, b"ICC_PROFILE\0\x01\x02part"),
            &[],
            same_as(&whole),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, file, texts, expected) in rows {
        let actual = outcome(&file, texts);
        let matches = match (&actual, &expected) {
            // A digest of 0 in the table fixes only the size; other tests check the pixels.
            (Pixels(w, h, _), Pixels(x, y, 0)) => (w, h) == (x, y),
            _ => actual == expected,
        };
        if !matches {
            wrong.push(format!(
                "{name}: {actual:?} instead of {expected:?} {:?}",
                convert(&file, texts).err()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const PNG_GRAY_16: fn() -> Vec<u8> = || raw_png((2, 1), 16, 0, &[], &[&[0x12, 0x34, 0xff, 0xff]]);

fn same_as(file: &[u8]) -> Expected {
    outcome(file, &[])
}

fn rgb(width: u32, height: u32, samples: &[u8]) -> Expected {
    Pixels(width, height, crc32fast::hash(samples))
}

fn grays(width: u32, height: u32, samples: &[u8]) -> Expected {
    let rgb_samples: Vec<u8> = samples.iter().flat_map(|v| [*v; 3]).collect();
    rgb(width, height, &rgb_samples)
}

fn flat(side: u32, color: [u8; 3]) -> Expected {
    rgb(side, side, &color.repeat((side * side) as usize))
}

fn resized(jpeg: &[u8], width: u16, height: u16) -> Vec<u8> {
    resized_at(jpeg, 0xc0, width, height)
}

/// Changes the size in the frame header with the marker `frame`.
fn resized_at(jpeg: &[u8], frame: u8, width: u16, height: u16) -> Vec<u8> {
    let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
    patched(jpeg.to_vec(), marker(jpeg, frame) + 5, &size)
}

fn segment(jpeg: &[u8], kind: u8) -> std::ops::Range<usize> {
    let at = marker(jpeg, kind);
    at..at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]))
}

fn without_segment(jpeg: &[u8], kind: u8) -> Vec<u8> {
    let mut file = jpeg.to_vec();
    while file.windows(2).any(|w| w == [0xff, kind]) {
        file.drain(segment(&file, kind));
    }
    file
}

fn twice(jpeg: &[u8], kind: u8) -> Vec<u8> {
    let range = segment(jpeg, kind);
    [&jpeg[..range.end], &jpeg[range.clone()], &jpeg[range.end..]].concat()
}

/// Returns the BMP with a header of OS/2 2.x, of 64 bytes.
fn os2(bmp: &[u8]) -> Vec<u8> {
    let mut out = [&bmp[..54], &[0; 24], &bmp[54..]].concat();
    out[10..14].copy_from_slice(&78u32.to_le_bytes());
    out[14..18].copy_from_slice(&64u32.to_le_bytes());
    out
}

fn with_stray_bytes(jpeg: &[u8]) -> Vec<u8> {
    let at = marker(jpeg, 0xc0);
    [&jpeg[..at], b"stray", &jpeg[at..]].concat()
}

fn cut_before_last_scan() -> Vec<u8> {
    let file = progressive(48, 32);
    let last = file.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    cut(file, last)
}
