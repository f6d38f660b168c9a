//! Tests of TIFF files.

use moxcms::ColorProfile;

use super::files::{jpeg, tiff_of};
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
    let samples: Vec<u8> = (0..3 * 16).map(|i| i * 5).collect();
    let reversed: Vec<u8> = samples.iter().map(|byte| byte.reverse_bits()).collect();
    let of_order =
        |order: u8, samples: &[u8]| tiff_of((4, 4), 3, 8, &[(FILL_ORDER, SHORT, vec![order, 0])], samples);
    let expected = raw(&of_order(1, &samples), &[]).bytes;
    assert_eq!(*expected, samples);
    assert_eq!(raw(&of_order(2, &reversed), &[]).bytes, expected);
}

const SHORT: u16 = 3;
const LONG: u16 = 4;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const PREDICTOR: u16 = 317;
const COLOR_MAP: u16 = 320;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

fn short(tag: u16, values: &[u16]) -> TiffTag {
    (tag, SHORT, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn long(tag: u16, values: &[u32]) -> TiffTag {
    (tag, LONG, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// The samples of three gray pixels as RGB.
fn grays(values: [u8; 3]) -> Vec<u8> {
    values.into_iter().flat_map(|v| [v; 3]).collect()
}

/// Name, channels, bits, further tags, stored bytes and expected samples of a TIFF of 3×1 pixels.
type TiffRow = (&'static str, u16, u16, Vec<TiffTag>, Vec<u8>, Vec<u8>);
/// Number, type and value.
type TiffTag = (u16, u16, Vec<u8>);

#[test]
fn samples_of_every_depth_and_kind_are_read() {
    let floats = |values: [f32; 3]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let palette = short(COLOR_MAP, &[0, 257, 514, 65_535, 771, 1028, 1285, 0, 1542, 1799, 2056, 128]);
    let signed = short(SAMPLE_FORMAT, &[2]);
    let rows: Vec<TiffRow> = vec![
        ("1 bit", 1, 1, vec![], vec![0b1010_0000], grays([255, 0, 255])),
        ("1 bit, white is 0", 1, 1, vec![short(PHOTOMETRIC, &[0])], vec![0b1010_0000], grays([0, 255, 0])),
        ("2 bits", 1, 2, vec![], vec![0b0001_1000], grays([0, 85, 170])),
        ("4 bits", 1, 4, vec![], vec![0x0f, 0x10], grays([0, 255, 17])),
        (
            "gray and alpha",
            2,
            8,
            vec![short(EXTRA_SAMPLES, &[2])],
            vec![10, 255, 20, 255, 30, 255],
            grays([10, 20, 30]),
        ),
        (
            "palette",
            1,
            2,
            vec![short(PHOTOMETRIC, &[3]), palette],
            vec![0b0001_1000],
            vec![0, 3, 6, 1, 4, 7, 2, 5, 8],
        ),
        ("signed", 1, 8, vec![signed], vec![0, 127, 0x80], grays([0, 255, 0])),
        (
            "32 bits",
            1,
            32,
            vec![],
            [0u32, u32::MAX, 1 << 31].map(u32::to_le_bytes).concat(),
            grays([0, 255, 128]),
        ),
        (
            "floating point",
            1,
            32,
            vec![short(SAMPLE_FORMAT, &[3])],
            floats([0.0, 1.5, 0.5]),
            grays([0, 255, 128]),
        ),
        (
            "YCbCr",
            3,
            8,
            vec![short(PHOTOMETRIC, &[6]), short(530, &[1, 1])],
            vec![76, 85, 255, 9, 128, 128, 255, 128, 128],
            vec![254, 0, 0, 9, 9, 9, 255, 255, 255],
        ),
        // Four pixels on the left, and a column of padding on the right.
        (
            "subsampled YCbCr",
            3,
            8,
            vec![short(PHOTOMETRIC, &[6]), short(530, &[2, 2])],
            vec![10, 20, 0, 0, 128, 128, 30, 0, 0, 0, 128, 128],
            grays([10, 20, 30]),
        ),
        (
            "Lab",
            3,
            8,
            vec![short(PHOTOMETRIC, &[8])],
            vec![0, 0, 0, 255, 0, 0, 136, 81, 70],
            vec![0, 0, 0, 255, 255, 255, 252, 0, 0],
        ),
        (
            "CMYK",
            4,
            8,
            vec![short(PHOTOMETRIC, &[5])],
            vec![0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 255],
            vec![255, 255, 255, 0, 255, 255, 0, 0, 0],
        ),
        // Black runs of 1 and 2 pixels after white ones of 0 and 1.
        (
            "rows of fax codes",
            1,
            1,
            vec![short(COMPRESSION, &[2]), short(PHOTOMETRIC, &[0])],
            vec![0b0011_0101, 0b0100_0011, 0b1010_0000],
            grays([0, 255, 0]),
        ),
        (
            "fax of group 4",
            1,
            1,
            vec![short(COMPRESSION, &[4]), short(PHOTOMETRIC, &[0])],
            vec![0b0010_0110, 0b1010_1011, 0b1000_0000],
            grays([0, 255, 255]),
        ),
        ("PackBits", 1, 8, vec![short(COMPRESSION, &[32_773])], vec![0xfe, 7], grays([7, 7, 7])),
        (
            "predictor",
            1,
            8,
            vec![short(COMPRESSION, &[32_946]), short(PREDICTOR, &[2])],
            zlib(&[5, 1, 1]),
            grays([5, 6, 7]),
        ),
    ];
    for (name, channels, bits, tags, stored, expected) in rows {
        let file = tiff_of((3, 1), channels, bits, &tags, &stored);
        let found = raw(&file, &[]).bytes;
        assert!(found.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1), "{name}: {found:?}");
        assert_eq!(found.len(), expected.len(), "{name}");
        if stored.len() > 1 {
            // Without its end, or, if nothing is compressed, with its pixels at the end of the file.
            let is_compressed = tags.iter().any(|(tag, ..)| *tag == COMPRESSION);
            let far = if is_compressed { vec![] } else { vec![long(0x0111, &[0xffff])] };
            let cut = tiff_of((3, 1), channels, bits, &[&tags[..], &far].concat(), &stored[..1]);
            let cut = convert(&cut, &[]).expect_err(name);
            assert!(matches!(cut.code, RejectCode::Truncated | RejectCode::Corrupt), "{name}: {cut:?}");
        }
    }
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn strips_and_tiles_of_any_size_are_joined() {
    let samples: Vec<u8> = (0..3 * 20 * 18).map(|n| (n * 7 % 251) as u8).collect();
    let expected = raw(&tiff_of((20, 18), 3, 8, &[], &samples), &[]).bytes;
    assert_eq!(*expected, samples);
    for is_planar in [false, true] {
        for (width, height) in [(16, 16), (16, 32), (32, 16), (20, 7)] {
            let is_tiled = width % 16 == 0;
            // The samples of each part, with padding.
            let mut parts = Vec::new();
            for plane in 0..if is_planar { 3 } else { 1 } {
                for (top, left) in (0..18)
                    .step_by(height)
                    .flat_map(|top| (0..20).step_by(width).map(move |left| (top, left)))
                {
                    let mut part = Vec::new();
                    for y in top..if is_tiled { top + height } else { (top + height).min(18) } {
                        for x in left..left + width {
                            let pixel =
                                samples.chunks(3).nth(y * 20 + x).filter(|_| x < 20).unwrap_or(&[99; 3]);
                            part.extend(if is_planar { &pixel[plane..=plane] } else { pixel });
                        }
                    }
                    parts.push(part);
                }
            }
            let mut at = 8;
            let offsets: Vec<u32> = parts
                .iter()
                .map(|part| {
                    at += part.len() as u32;
                    at - part.len() as u32
                })
                .collect();
            let counts: Vec<u32> = parts.iter().map(|part| part.len() as u32).collect();
            let mut tags = vec![short(284, &[if is_planar { 2 } else { 1 }])];
            if is_tiled {
                tags.extend([long(0x0111, &[]), short(0x0116, &[]), long(0x0117, &[])]);
                tags.extend([
                    long(322, &[width as u32]),
                    long(323, &[height as u32]),
                    long(324, &offsets),
                    long(325, &counts),
                ]);
            } else {
                tags.extend([long(0x0111, &offsets), long(0x0116, &[height as u32]), long(0x0117, &counts)]);
            }
            let file = tiff_of((20, 18), 3, 8, &tags, &parts.concat());
            let name = format!("{width}×{height}, planar: {is_planar}");
            assert_eq!(raw(&file, &[]).bytes, expected, "{name}");
            // Without its last strip or tile.
            tags.retain(|(tag, ..)| !matches!(tag, 0x0111 | 324));
            let fewer = &offsets[..offsets.len() - 1];
            tags.push(if is_tiled { long(324, fewer) } else { long(0x0111, fewer) });
            let reject = convert(&tiff_of((20, 18), 3, 8, &tags, &parts.concat()), &[]).unwrap_err();
            assert!(reject.message.contains("instead of"), "{name}: {reject:?}");
        }
    }
}

#[test]
fn strips_of_jpeg_are_decoded_with_the_tables_and_colors_of_the_file() {
    let (width, height) = (32, 16);
    let whole = jpeg(width, height);
    let expected = raw(&whole, &[]).bytes;
    let tags = [short(COMPRESSION, &[7]), short(PHOTOMETRIC, &[6])];
    let found = raw(&tiff_of((32, 16), 3, 8, &tags, &whole), &[]).bytes;
    assert_eq!(found, expected);
    // The tables in a tag.
    let position = |marker: u8| whole.windows(2).position(|w| w == [0xff, marker]).unwrap();
    let (tables, frame) = (position(0xdb), position(0xc0));
    let stored = [&whole[..2], &whole[frame..]].concat();
    let tables = (347, UNDEFINED, [&whole[..2], &whole[tables..frame], &[0xff, 0xd9]].concat());
    let found = raw(&tiff_of((32, 16), 3, 8, &[&tags[..], &[tables]].concat(), &stored), &[]).bytes;
    assert_eq!(found, expected);
    // The old compression.
    let tags = [short(COMPRESSION, &[6]), short(PHOTOMETRIC, &[6]), long(513, &[8])];
    let found = raw(&tiff_of((32, 16), 3, 8, &tags, &whole), &[]).bytes;
    assert!(psnr(&found, &expected) > 45.0);
    // A JPEG that is smaller than its strip.
    let tags = [short(COMPRESSION, &[7]), short(PHOTOMETRIC, &[6])];
    assert_eq!(code(&tiff_of((33, 16), 3, 8, &tags, &whole), &[]), RejectCode::Corrupt);
}

#[test]
fn lenient_keeps_the_strips_before_damage() {
    let tags = [long(0x0111, &[8, 17]), short(0x0116, &[1]), long(0x0117, &[9, 9])];
    let whole: Vec<u8> = (1..=18).collect();
    let whole = tiff_of((3, 2), 3, 8, &tags, &whole);
    let tags = [long(0x0111, &[8, 0xffff]), short(0x0116, &[1]), long(0x0117, &[9, 9])];
    let cut = tiff_of((3, 2), 3, 8, &tags, &(1..=18).collect::<Vec<u8>>());
    assert_eq!(code(&cut, &[]), RejectCode::Truncated);
    let kept = raw(&cut, &[("lenient", "true")]);
    assert!(kept.lenient);
    assert_eq!(kept.bytes, [&raw(&whole, &[]).bytes[..9], &[0; 9]].concat());
}

#[test]
fn a_size_that_the_data_cannot_hold_is_refused_before_anything_is_allocated() {
    let lab = short(PHOTOMETRIC, &[8]);
    let far = [long(0x0111, &[8]), long(0x0116, &[12_000]), long(0x0117, &[4096])];
    let stored = zlib(&[0; 4 << 20]);
    for (name, tags, strict, lenient) in [
        ("uncompressed", vec![], RejectCode::Truncated, RejectCode::Truncated),
        ("LZW", vec![short(COMPRESSION, &[5])], RejectCode::TooLarge, RejectCode::TooLarge),
        ("deflate", vec![short(COMPRESSION, &[8])], RejectCode::TooLarge, RejectCode::TooLarge),
        ("PackBits", vec![short(COMPRESSION, &[32_773])], RejectCode::TooLarge, RejectCode::TooLarge),
        ("JPEG", vec![short(COMPRESSION, &[7])], RejectCode::TooLarge, RejectCode::TooLarge),
    ] {
        let lab = if name == "JPEG" { short(PHOTOMETRIC, &[6]) } else { lab.clone() };
        let tags = [&tags[..], &[lab], &far].concat();
        let file = tiff_of((12_000, 12_000), 3, 8, &tags, &stored);
        for (texts, expected) in [(vec![], strict), (vec![("lenient", "true")], lenient)] {
            // The header is read without an allocation for pixels.
            let reject = ImageTransform::new(options(&texts)).unwrap().peek(&file).unwrap_err();
            assert_eq!(reject.code, expected, "{name}: {reject:?}");
        }
    }
    // A file that is cut off keeps the strips that it has.
    let tags = [short(0x0116, &[100]), long(0x0111, &[8, 120_008, 240_008, 360_008, 0xff_ffff])];
    let tags = [&tags[..], &[long(0x0117, &[120_000; 5])]].concat();
    let file = tiff_of((400, 500), 3, 8, &tags, &[9; 480_000]);
    assert_eq!(code(&file, &[]), RejectCode::Truncated);
    let kept = raw(&file, &[("lenient", "true")]);
    assert!(kept.lenient && kept.bytes[..480_000].iter().all(|sample| *sample == 9));
}

#[test]
fn values_beyond_the_file_are_not_taken_for_missing_tags() {
    let whole = tiff_of((2, 1), 3, 8, &[], &[1, 2, 3, 4, 5, 6]);
    // The last value is the number of bits per sample, whose default is 1.
    assert!(whole.ends_with(&[8, 0, 8, 0, 8, 0]));
    assert_eq!(code(&whole[..whole.len() - 1], &[]), RejectCode::Truncated);
}

/// Joins files of one page each to a file of several pages. `inside` puts those after the first into tag 330 of it.
fn pages(files: &[Vec<u8>], inside: bool) -> Vec<u8> {
    let mut out = files[0].clone();
    let mut directories = vec![u32_at(&out, 4)];
    for file in &files[1..] {
        // Every offset grows by the position of the file.
        let base = out.len() as u32;
        let mut file = file.clone();
        let directory = u32_at(&file, 4) as usize;
        let count = usize::from(u16::from_le_bytes([file[directory], file[directory + 1]]));
        for entry in (0..count).map(|entry| directory + 2 + 12 * entry) {
            let tag = u16::from_le_bytes([file[entry], file[entry + 1]]);
            let value = entry + 8;
            let sample_bytes = if file[entry + 2] == 3 { 2 } else { 4 };
            let is_far = u32_at(&file, entry + 4) * sample_bytes > 4;
            if is_far || tag == 0x0111 {
                let moved = (u32_at(&file, value) + base).to_le_bytes();
                file[value..value + 4].copy_from_slice(&moved);
            }
        }
        directories.push(base + directory as u32);
        out.extend(file);
    }
    if inside {
        let first = directories[0] as usize;
        let count = usize::from(u16::from_le_bytes([out[first], out[first + 1]]));
        let entry = (0..count)
            .map(|entry| first + 2 + 12 * entry)
            .find(|at| u16::from_le_bytes([out[*at], out[*at + 1]]) == 330)
            .unwrap();
        out[entry + 8..entry + 12].copy_from_slice(&directories[1].to_le_bytes());
    } else {
        for pair in directories.windows(2) {
            let first = pair[0] as usize;
            let count = usize::from(u16::from_le_bytes([out[first], out[first + 1]]));
            let next = first + 2 + 12 * count;
            out[next..next + 4].copy_from_slice(&pair[1].to_le_bytes());
        }
    }
    out
}

fn u32_at(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*file[at..].first_chunk().unwrap())
}

#[test]
fn the_image_is_the_first_page_that_is_neither_reduced_nor_a_mask() {
    const NEW_SUBFILE_TYPE: u16 = 254;
    const SUBFILE_TYPE: u16 = 255;
    let page = |side: u16, tags: &[TiffTag]| {
        tiff_of((side, side), 1, 8, tags, &vec![side as u8; usize::from(side).pow(2)])
    };
    let (reduced, mask) = (long(NEW_SUBFILE_TYPE, &[1]), long(NEW_SUBFILE_TYPE, &[4]));
    let old_reduced = short(SUBFILE_TYPE, &[2]);
    let (thumbnail, full, other) =
        (page(3, std::slice::from_ref(&reduced)), page(9, &[]), page(7, &[long(NEW_SUBFILE_TYPE, &[2])]));
    for (name, files, side, further) in [
        ("thumbnail first", vec![thumbnail.clone(), full.clone()], 9, 0),
        ("old thumbnail first", vec![page(3, &[old_reduced]), full.clone()], 9, 0),
        ("mask first", vec![page(9, &[mask]), other.clone()], 7, 0),
        ("thumbnails last", vec![full.clone(), thumbnail.clone(), thumbnail.clone()], 9, 0),
        ("pages", vec![other.clone(), full.clone(), thumbnail.clone(), full.clone()], 7, 2),
        ("thumbnail and pages", vec![thumbnail.clone(), other, full.clone()], 7, 1),
        ("thumbnails alone", vec![thumbnail.clone(), page(4, std::slice::from_ref(&reduced))], 3, 0),
    ] {
        let file = pages(&files, false);
        let found = raw(&file, &[]);
        assert_eq!((found.width, found.bytes[0], found.further_pages), (side, side as u8, further), "{name}");
        // A file is passed through only if other readers show the same image.
        let kept = convert(&file, &[("encode", "keep")]).unwrap();
        assert_eq!((kept.width, kept.passthrough), (side, side as u8 == files[0][8]), "{name}");
    }
    // Inside the directory of the thumbnail.
    let inside = long(330, &[0]);
    let file = pages(&[page(3, &[reduced.clone(), inside.clone()]), full.clone()], true);
    assert_eq!(raw(&file, &[]).width, 9);
    // Reduced versions inside the directory of the image, as in pyramids.
    let file = pages(&[page(9, std::slice::from_ref(&inside)), thumbnail.clone()], true);
    assert_eq!((raw(&file, &[]).width, raw(&file, &[]).further_pages), (9, 0));
    // Damage to a later directory does not affect the image.
    let file = pages(&[full.clone(), full], false);
    let cut = raw(&file[..file.len() - 4], &[]);
    assert_eq!((cut.width, cut.further_pages), (9, 0));
}

#[test]
fn channels_that_no_image_can_show_are_counted() {
    for (channels, photometric, extra, expected) in [
        (7, 1, &[0; 6][..], 6),
        (4, 2, &[0], 1),
        (4, 2, &[2], 0),
        (5, 2, &[1, 0], 1),
        (2, 1, &[2], 0),
        (5, 5, &[2], 1),
    ] {
        let tags = [short(PHOTOMETRIC, &[photometric]), short(EXTRA_SAMPLES, extra)];
        let file = tiff_of((2, 1), channels, 8, &tags, &vec![9; usize::from(channels) * 2]);
        let found = raw(&file, &[]).further_channels;
        assert_eq!(found, expected, "{channels} {photometric} {extra:?}");
    }
}

#[test]
fn raw_photographs_are_not_their_previews() {
    const NEW_SUBFILE_TYPE: u16 = 254;
    let samples = [7; 9];
    let sensor = |photometric: u16| tiff_of((3, 3), 1, 8, &[short(PHOTOMETRIC, &[photometric])], &samples);
    let preview = |tags: &[TiffTag]| tiff_of((3, 3), 1, 8, tags, &samples);
    let reduced = long(NEW_SUBFILE_TYPE, &[1]);
    let mut cr2 = preview(&[]);
    cr2[8..10].copy_from_slice(b"CR");
    for (name, file) in [
        ("NEF, ARW", pages(&[preview(&[reduced.clone(), long(330, &[0])]), sensor(32_803)], true)),
        ("PEF", sensor(32_803)),
        ("after previews", pages(&[preview(&[reduced]), sensor(34_892)], false)),
        ("DNG", preview(&[(50_706, 1, vec![1, 4, 0, 0])])),
        ("CR2", cr2),
    ] {
        let reject = convert(&file, &[("lenient", "true")]).unwrap_err();
        assert_eq!(reject.code, RejectCode::Unsupported, "{name}: {reject:?}");
        assert!(
            reject.message.contains("camera raw") && reject.message.contains("darktable-cli"),
            "{reject:?}"
        );
    }
}

#[test]
fn what_is_not_supported_is_named() {
    for (tags, bits, expected) in [
        (vec![short(COMPRESSION, &[50_000])], 8, "compression 50000 (Zstandard)"),
        (vec![short(PHOTOMETRIC, &[32_844])], 8, "photometric interpretation 32844 (LogLuv)"),
        (vec![short(SAMPLE_FORMAT, &[3])], 8, "gray TIFF with floating-point samples of 8 bits"),
        (vec![short(COMPRESSION, &[3])], 8, "gray TIFF with samples of 8 bits and fax compression"),
    ] {
        let reject = convert(&tiff_of((3, 1), 1, bits, &tags, &[1, 2, 3]), &[]).unwrap_err();
        assert_eq!(reject.code, RejectCode::Unsupported);
        assert!(reject.message.contains(expected), "{}", reject.message);
    }
}
