//! JPEG compression of strips and tiles (TIFF technical note 2), and the older one of TIFF 6.0.

use dsconvert_dataset::sample::Reject;
use dsconvert_jpeg::{DecodeOptions, Decoder, PixelFormat};

use super::super::pixels::Size;
use super::super::{corrupt, of_jpeg, truncated};
use super::layout::{Colors, Compression, Layout};
use super::tags::{self, TiffTags};

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const APP0: u8 = 0xe0;
const APP15: u8 = 0xef;

/// Decodes the part that is stored as `data`. Returns its size and its interleaved samples. Samples of YCbCr with the usual JPEG compression become RGB; others stay
/// as they are.
pub(super) fn decode(tags: &TiffTags<'_>, layout: &Layout, data: &[u8]) -> Result<(Size, Vec<u8>), Reject> {
    let file = match layout.compression {
        Compression::OldJpeg => old_file(tags, layout, data)?,
        _ => {
            let is_converted = matches!(layout.colors, Colors::YCbCr { .. });
            with_tables(tags.data(tags::JPEG_TABLES).unwrap_or_default(), data, is_converted, false)?
        }
    };
    let (format, count) = match layout.samples_together() {
        1 => (PixelFormat::Gray, 1),
        3 => (PixelFormat::Rgb, 3),
        4 => (PixelFormat::Cmyk, 4),
        other => return Err(corrupt(format!("the TIFF has JPEG compression and {other} samples per pixel"))),
    };
    let options = DecodeOptions::new().format(format).reads_to_end(true).max_pixels(u64::MAX);
    let image = Decoder::new().decode(&file, &options).map_err(of_jpeg)?;
    let (width, height) = (image.info.width as u32, image.info.height as u32);
    if image.info.format != format || image.pixels.len() != image.info.width * image.info.height * count {
        return Err(corrupt("a JPEG in the TIFF has other channels than the TIFF"));
    }
    Ok((Size { width, height }, image.pixels))
}

/// Returns a JPEG file with the abbreviated image `data`, the tables that it refers to, and a segment that says whether
/// colors are converted. `is_old` is for the compression of TIFF 6.0. Like libtiff, this ignores what its own segments say about colors.
fn with_tables(tables: &[u8], data: &[u8], is_converted: bool, is_old: bool) -> Result<Vec<u8>, Reject> {
    let mut out = vec![0xff, SOI];
    let components = [tables, data].iter().find_map(|part| components(part)).unwrap_or(3);
    // CMYK without such a segment is not inverted.
    if components == 3 {
        out.extend(b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0");
        out.push(u8::from(is_converted));
    }
    let rest = copy_segments(tables, &mut out);
    if rest.is_some() {
        return Err(corrupt("the JPEG tables of the TIFF contain an image"));
    }
    let scan = copy_segments(data, &mut out).ok_or_else(|| truncated("a JPEG"))?;
    let start = out.len();
    out.extend_from_slice(scan);
    if is_old {
        // Some writers leave the parameters of the only scan 0. As in libjpeg, they are those of a sequential one.
        let length =
            scan.get(2..4).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
        if let Some(parameters) = (start + length).checked_sub(1).and_then(|at| out.get_mut(at..at + 3)) {
            parameters.copy_from_slice(&[0, 63, 0]);
        }
    }
    // Some writers leave it out. If data is missing, too, the decoder notices.
    out.extend([0xff, EOI]);
    Ok(out)
}

/// Appends the segments of `jpeg` before its first scan, except those of applications. Returns the rest of the file;
/// `None` if it has no scan.
fn copy_segments<'a>(jpeg: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = jpeg;
    loop {
        match rest {
            [0xff, SOS, ..] => return Some(rest),
            [0xff, 0xff, ..] => rest = &rest[1..],
            [0xff, SOI | 0x00 | 0x01 | 0xd0..=0xd7, after @ ..] => rest = after,
            [0xff, EOI, ..] => return None,
            [0xff, marker, high, low, ..] => {
                let length = 2 + usize::from(u16::from_be_bytes([*high, *low]));
                let (segment, after) = rest.split_at_checked(length)?;
                if !(APP0..=APP15).contains(marker) {
                    out.extend_from_slice(segment);
                }
                rest = after;
            }
            // Bytes between segments, which libjpeg skips.
            [_, after @ ..] => rest = after,
            [] => return None,
        }
    }
}

/// Returns the number of components in the frame header of `jpeg`.
fn components(jpeg: &[u8]) -> Option<u8> {
    let mut segments = Vec::new();
    copy_segments(jpeg, &mut segments);
    let mut rest = &segments[..];
    while let [_, marker, high, low, payload @ ..] = rest {
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            return payload.get(5).copied();
        }
        rest = rest.get(2 + usize::from(u16::from_be_bytes([*high, *low]))..)?;
    }
    None
}

/// Returns the JPEG file of TIFF 6.0: the one for the whole image, or one of tables in tags and the scan `data`.
fn old_file(tags: &TiffTags<'_>, layout: &Layout, data: &[u8]) -> Result<Vec<u8>, Reject> {
    let at = |offset: u64| usize::try_from(offset).ok().and_then(|offset| tags.bytes().get(offset..));
    if let Some(file) = tags.first(tags::JPEG_INTERCHANGE_FORMAT).and_then(at)
        && file.starts_with(&[0xff, SOI])
        && layout.grid() == (1, 1)
    {
        // Its length often leaves out the scan.
        return with_tables(&[], file, false, true);
    }
    let Colors::YCbCr { h, v } = layout.colors else {
        return Err(corrupt("the TIFF has neither a JPEG nor the tables of one"));
    };
    let mut out = vec![0xff, SOI];
    let sizes = [
        (tags::JPEG_Q_TABLES, 0xdb, 0x00),
        (tags::JPEG_DC_TABLES, 0xc4, 0x00),
        (tags::JPEG_AC_TABLES, 0xc4, 0x10),
    ];
    for (tag, marker, class) in sizes {
        for (number, table) in tags.numbers(tag).take(3).enumerate() {
            let table = at(table).unwrap_or_default();
            let length = match marker {
                0xdb => 64,
                // 16 numbers of codes, and as many values.
                _ => 16 + table.iter().take(16).map(|count| usize::from(*count)).sum::<usize>(),
            };
            let table = table.get(..length).ok_or_else(|| truncated("a JPEG table"))?;
            out.extend([0xff, marker]);
            out.extend(((3 + length) as u16).to_be_bytes());
            out.push(class | number as u8);
            out.extend_from_slice(table);
        }
    }
    let side = |side: u32| {
        u16::try_from(side)
            .map(u16::to_be_bytes)
            .map_err(|_| corrupt("a part of the TIFF is too large for a JPEG"))
    };
    let (width, height) = (side(layout.part.width)?, side(layout.part.height)?);
    out.extend([0xff, 0xc0, 0, 17, 8, height[0], height[1], width[0], width[1], 3]);
    out.extend([1, (h << 4 | v) as u8, 0, 2, 0x11, 1, 3, 0x11, 2]);
    out.extend([0xff, SOS, 0, 12, 3, 1, 0x00, 2, 0x11, 3, 0x22, 0, 63, 0]);
    out.extend_from_slice(data);
    with_tables(&[], &out, false, true)
}
