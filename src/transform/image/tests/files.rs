//! Image files created byte by byte, intact and broken.

use libjpeg_turbo_rs::{ColorSpace, Encoder, PixelFormat, Subsampling};

use super::super::{Encode, encode, exif, pixels::Pixels};

/// Creates a smooth RGB picture whose corners differ.
pub(super) fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x * 255 / width.max(2), y * 255 / height.max(2));
            out.extend([x as u8, y as u8, (255 - x / 2 - y / 2) as u8]);
        }
    }
    out
}

/// Creates a picture with edges and texture, so that chroma subsampling and resampling lose detail.
pub(super) fn busy_picture(width: u32, height: u32) -> Vec<u8> {
    let mut out = picture(width, height);
    for (i, pixel) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (x, y) = (i as u32 % width, i as u32 / width);
        if (x / 13 + y / 7) % 3 == 0 {
            *pixel = [pixel[1], 255 - pixel[0], pixel[2] / 2];
        }
        pixel[0] = pixel[0].saturating_add((x * 7 + y * 11) as u8 % 16);
    }
    out
}

pub(super) fn encoder(rgb: &[u8], width: u32, height: u32) -> Encoder<'_> {
    Encoder::new(rgb, width as usize, height as usize, PixelFormat::Rgb)
        .quality(95)
        .subsampling(Subsampling::S420)
}

pub(super) fn jpeg(width: u32, height: u32) -> Vec<u8> {
    encoder(&picture(width, height), width, height).encode().unwrap()
}

pub(super) fn progressive(width: u32, height: u32) -> Vec<u8> {
    encoder(&picture(width, height), width, height).progressive(true).encode().unwrap()
}

/// Creates a sequential file with one scan per component.
pub(super) fn one_scan_per_component(width: u32, height: u32) -> Vec<u8> {
    let component = |n: usize| -> Vec<u8> { picture(width, height).into_iter().skip(n).step_by(3).collect() };
    let gray = |n: usize| encoded(component(n), width, height, 1, "jpeg:95".parse().unwrap());
    let position = |file: &[u8], marker: u8| file.windows(2).position(|w| w == [0xff, marker]).unwrap();
    let first = gray(0);
    let (frame, scan) = (position(&first, 0xc0), position(&first, 0xda));
    // The frame header of a gray file, for three components. Only their numbers differ.
    let mut file = first[..frame].to_vec();
    file.extend([0xff, 0xc0, 0, 17]);
    file.extend(&first[frame + 4..frame + 9]);
    file.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    file.extend(&first[frame + 13..scan]);
    for n in 0..3 {
        let one = gray(n);
        let scan = position(&one, 0xda);
        file.extend(&one[scan..scan + 5]);
        file.push(n as u8 + 1);
        file.extend(&one[scan + 6..one.len() - 2]);
    }
    file.extend([0xff, 0xd9]);
    file
}

/// Creates a CMYK or YCCK file of one color.
pub(super) fn cmyk(inks: [u8; 4], space: ColorSpace, adobe: bool) -> Vec<u8> {
    let data = inks.repeat(16 * 16);
    Encoder::new(&data, 16, 16, PixelFormat::Cmyk)
        .quality(100)
        .subsampling(Subsampling::S444)
        .colorspace(space)
        .write_adobe_marker(adobe)
        .encode()
        .unwrap()
}

/// Inserts a segment after the start marker of `jpeg`.
pub(super) fn with_segment(jpeg: &[u8], marker: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = jpeg[..2].to_vec();
    out.extend([0xff, marker]);
    out.extend((payload.len() as u16 + 2).to_be_bytes());
    out.extend(payload);
    out.extend(&jpeg[2..]);
    out
}

pub(super) fn with_orientation(jpeg: &[u8], tag: u16) -> Vec<u8> {
    let mut payload = b"Exif\0\0".to_vec();
    payload.extend(exif::tests::block(tag, false));
    with_segment(jpeg, 0xe1, &payload)
}

pub(super) fn with_icc(jpeg: &[u8], profile: &[u8]) -> Vec<u8> {
    let mut payload = b"ICC_PROFILE\0\x01\x01".to_vec();
    payload.extend(profile);
    with_segment(jpeg, 0xe2, &payload)
}

pub(super) fn encoded(data: Vec<u8>, width: u32, height: u32, channels: usize, as_: Encode) -> Vec<u8> {
    encode::encode(&Pixels { data, width, height, channels }, as_).unwrap()
}

pub(super) fn png(width: u32, height: u32) -> Vec<u8> {
    encoded(picture(width, height), width, height, 3, Encode::Png)
}

pub(super) fn webp(width: u32, height: u32) -> Vec<u8> {
    encoded(picture(width, height), width, height, 3, Encode::Webp { quality: 90 })
}

pub(super) fn png_chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut out = (data.len() as u32).to_be_bytes().to_vec();
    out.extend(kind);
    out.extend(data);
    let crc = crc32fast::hash(&out[4..]);
    out.extend(crc.to_be_bytes());
    out
}

/// Creates a zlib stream with one stored block.
fn stored_zlib(data: &[u8]) -> Vec<u8> {
    let length = data.len() as u16;
    let mut out = vec![0x78, 0x01, 0x01];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(data);
    let (mut a, mut b) = (1u32, 0u32);
    for byte in data {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}

/// Creates a PNG from its header fields, the chunks between header and data, and its rows (each after a filter byte of
/// 0).
pub(super) fn raw_png(
    size: (u32, u32),
    depth: u8,
    color: u8,
    between: &[Vec<u8>],
    rows: &[&[u8]],
) -> Vec<u8> {
    let mut header = size.0.to_be_bytes().to_vec();
    header.extend(size.1.to_be_bytes());
    header.extend([depth, color, 0, 0, 0]);
    let data: Vec<u8> = rows.iter().flat_map(|row| [&[0], *row].concat()).collect();
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    out.extend(png_chunk(b"IHDR", &header));
    out.extend(between.concat());
    out.extend(png_chunk(b"IDAT", &stored_zlib(&data)));
    out.extend(png_chunk(b"IEND", b""));
    out
}

/// Creates a 1×1 GIF with `frames` frames.
pub(super) fn gif(frames: usize) -> Vec<u8> {
    let mut out = b"GIF89a\x01\0\x01\0\x80\0\0\xff\x80\0\0\0\0".to_vec();
    for _ in 0..frames {
        out.extend(b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0");
    }
    out.push(0x3b);
    out
}

/// Creates a bitmap of 24 bits per pixel; a negative height means rows from top to bottom.
pub(super) fn bmp(width: u32, height: i32, rows: &[&[u8]]) -> Vec<u8> {
    let mut out = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    out.extend(width.to_le_bytes());
    out.extend(height.to_le_bytes());
    out.extend(b"\x01\0\x18\0");
    out.resize(54, 0);
    for row in rows {
        out.extend(*row);
        out.resize(54 + (out.len() - 54).next_multiple_of(4), 0);
    }
    out
}

/// Creates a little-endian gray TIFF of 2×2 pixels whose first directory links to a next one at `next`.
pub(super) fn tiff(orientation: u16, next: u32) -> Vec<u8> {
    let entries: [(u16, u16, u32, u32); 9] = [
        (0x0100, 3, 1, 2),
        (0x0101, 3, 1, 2),
        (0x0102, 3, 1, 8),
        (0x0103, 3, 1, 1),
        (0x0106, 3, 1, 1),
        (0x0111, 4, 1, 8 + 2 + 9 * 12 + 4),
        (0x0112, 3, 1, orientation.into()),
        (0x0116, 3, 1, 2),
        (0x0117, 4, 1, 4),
    ];
    let mut out = b"II*\0\x08\0\0\0".to_vec();
    out.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
    out.extend(next.to_le_bytes());
    out.extend([10, 20, 30, 40]);
    out
}

/// Creates a little-endian TIFF in one strip with 8 or 16 bits per sample. `more` are further tags, each with its type
/// and value, and replace other tags; an empty value removes a tag.
pub(super) fn tiff_of(
    (width, height): (u16, u16),
    channels: u16,
    bits: u16,
    more: &[(u16, u16, Vec<u8>)],
    samples: &[u8],
) -> Vec<u8> {
    const HEADER_BYTES: u32 = 8;
    let short = |value: u16| (3, value.to_le_bytes().to_vec());
    let long = |value: u32| (4, value.to_le_bytes().to_vec());
    let mut entries = std::collections::BTreeMap::from([
        (0x0100, short(width)),
        (0x0101, short(height)),
        (0x0102, (3, bits.to_le_bytes().repeat(channels.into()))),
        (0x0103, short(1)),
        (0x0106, short(if channels < 3 { 1 } else { 2 })),
        (0x0111, long(HEADER_BYTES)),
        (0x0115, short(channels)),
        (0x0116, short(height)),
        (0x0117, long(samples.len() as u32)),
    ]);
    entries.extend(more.iter().map(|(tag, kind, value)| (*tag, (*kind, value.clone()))));
    entries.retain(|_, (_, value)| !value.is_empty());
    let mut out = b"II*\0".to_vec();
    let directory = HEADER_BYTES + samples.len().next_multiple_of(2) as u32;
    out.extend(directory.to_le_bytes());
    out.extend(samples);
    out.resize(directory as usize, 0);
    out.extend((entries.len() as u16).to_le_bytes());
    let mut values = Vec::new();
    let start = directory + 2 + 12 * entries.len() as u32 + 4;
    for (tag, (kind, value)) in entries {
        let sample_bytes = match kind {
            3 => 2,
            4 => 4,
            _ => 1,
        };
        out.extend(u16::to_le_bytes(tag));
        out.extend(u16::to_le_bytes(kind));
        out.extend((value.len() as u32 / sample_bytes).to_le_bytes());
        if value.len() <= 4 {
            out.extend([&value[..], &[0; 4]].concat().iter().take(4));
        } else {
            out.extend((start + values.len() as u32).to_le_bytes());
            values.extend(value);
        }
    }
    out.extend([0; 4]);
    out.extend(values);
    out
}
