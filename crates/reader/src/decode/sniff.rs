//! Detects the type of an image file from its first bytes.
//!
//! File extensions are unreliable (real corpora contain PNGs named `.JPEG`), so nothing after planning uses names.

use dsconvert_dataset::sample::Reject;
use serde::{Deserialize, Serialize};

use super::planes_file::MAGIC;
use super::rejects::unsupported;

/// A type of image file, or `Raw` for raw pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageType {
    /// JPEG (ITU T.81).
    Jpeg,
    /// PNG, APNG included.
    Png,
    /// WebP, lossy, lossless or animated.
    Webp,
    /// GIF 87a and 89a.
    Gif,
    /// Windows or OS/2 bitmap.
    Bmp,
    /// TIFF and BigTIFF.
    Tiff,
    /// Planes of luma and chroma, see [`PlanesFile`](super::PlanesFile).
    Planes,
    /// PBM, PGM, PPM and PAM.
    Pnm,
    /// Truevision TGA, which has no signature.
    Tga,
    /// Quite OK Image.
    Qoi,
    /// AVIF, still or animated; only used for input.
    Avif,
    /// 8-bit samples, interleaved, rows from top to bottom, no header; only used for output.
    Raw,
}

impl ImageType {
    /// Returns the name used in manifests and messages.
    pub fn name(self) -> &'static str {
        match self {
            ImageType::Jpeg => "jpeg",
            ImageType::Png => "png",
            ImageType::Webp => "webp",
            ImageType::Gif => "gif",
            ImageType::Bmp => "bmp",
            ImageType::Tiff => "tiff",
            ImageType::Planes => "planes",
            ImageType::Pnm => "pnm",
            ImageType::Tga => "tga",
            ImageType::Qoi => "qoi",
            ImageType::Avif => "avif",
            ImageType::Raw => "raw",
        }
    }

    /// Returns the usual file extension, without its dot.
    pub fn extension(self) -> &'static str {
        self.extensions().first().copied().unwrap_or_default()
    }

    /// Returns the common file extensions, the usual one first.
    fn extensions(self) -> &'static [&'static str] {
        match self {
            ImageType::Jpeg => &["jpg", "jpeg", "jpe", "jfif"],
            ImageType::Png => &["png", "apng"],
            ImageType::Webp => &["webp"],
            ImageType::Gif => &["gif"],
            ImageType::Bmp => &["bmp", "dib"],
            ImageType::Tiff => &["tif", "tiff"],
            ImageType::Planes => &["planes"],
            ImageType::Pnm => &["ppm", "pgm", "pbm", "pnm", "pam"],
            ImageType::Tga => &["tga"],
            ImageType::Qoi => &["qoi"],
            ImageType::Avif => &["avif", "avifs"],
            ImageType::Raw => &["raw"],
        }
    }

    /// Returns the type with the file extension of `name`, ignoring case, if this build reads it. The content of the
    /// file may be of another type.
    pub fn of_name(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let has_extension =
            |ty: &Self| ty.extensions().iter().any(|known| extension.eq_ignore_ascii_case(known));
        READABLE.iter().copied().find(has_extension).filter(|_| !stem.is_empty())
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            ImageType::Jpeg => "image/jpeg",
            ImageType::Png => "image/png",
            ImageType::Webp => "image/webp",
            ImageType::Gif => "image/gif",
            ImageType::Bmp => "image/bmp",
            ImageType::Tiff => "image/tiff",
            ImageType::Pnm => "image/x-portable-anymap",
            ImageType::Tga => "image/x-tga",
            ImageType::Qoi => "image/qoi",
            ImageType::Avif => "image/avif",
            ImageType::Planes | ImageType::Raw => "application/octet-stream",
        }
    }
}

impl std::fmt::Display for ImageType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The types that are read.
const READABLE: &[ImageType] = &[
    ImageType::Jpeg,
    ImageType::Png,
    ImageType::Webp,
    ImageType::Gif,
    ImageType::Bmp,
    ImageType::Tiff,
    ImageType::Planes,
    ImageType::Pnm,
    ImageType::Tga,
    ImageType::Qoi,
    ImageType::Avif,
];

/// Sizes of the DIB header that follows the 14-byte BMP file header.
const DIB_HEADER_BYTES: [u32; 8] = [12, 16, 40, 52, 56, 64, 108, 124];

/// Returns the type of the image file that starts with `bytes`, or `None` if it is not an image that this build reads.
///
/// Never returns [`ImageType::Raw`]: raw pixels have no signature.
pub fn sniff(bytes: &[u8]) -> Option<ImageType> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some(ImageType::Jpeg),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(ImageType::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageType::Webp),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(ImageType::Gif),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(ImageType::Tiff),
        [m0, m1, m2, m3, ..] if [*m0, *m1, *m2, *m3] == MAGIC => Some(ImageType::Planes),
        [b'B', b'M', rest @ ..] => {
            let size = rest.get(12..16)?;
            let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]);
            DIB_HEADER_BYTES.contains(&size).then_some(ImageType::Bmp)
        }
        [b'P', b'1'..=b'6', rest @ ..] => begins_with_number(rest).then_some(ImageType::Pnm),
        [b'P', b'7', b'\n', rest @ ..] => {
            let starts = ["WIDTH", "HEIGHT", "DEPTH", "MAXVAL", "TUPLTYPE", "#"];
            starts.iter().any(|start| rest.starts_with(start.as_bytes())).then_some(ImageType::Pnm)
        }
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => is_avif(bytes).then_some(ImageType::Avif),
        [b'q', b'o', b'i', b'f', _, _, _, _, _, _, _, _, 3 | 4, 0 | 1, ..] => Some(ImageType::Qoi),
        _ => is_tga_header(bytes).then_some(ImageType::Tga),
    }
}

/// Returns whether `bytes` start with the header of an AVIF image or sequence: a box `ftyp` with one of their brands.
fn is_avif(bytes: &[u8]) -> bool {
    let Some((size, rest)) = bytes.split_first_chunk() else { return false };
    let Some(content) = rest.strip_prefix(b"ftyp") else { return false };
    let length = (u32::from_be_bytes(*size) as usize).saturating_sub(8);
    let content = content.get(..length).unwrap_or(content);
    // The minor version, after the major brand, is not a brand.
    let brands = content.as_chunks::<4>().0.iter().enumerate().filter(|(index, _)| *index != 1);
    brands.map(|(_, brand)| brand).any(|brand| matches!(brand, b"avif" | b"avis"))
}

/// Returns the reject for an image of the type `name`, as of [`foreign_format`].
pub fn unreadable(name: &str) -> Reject {
    let how = match converter(name) {
        Some((command, project)) => format!("PNG first, for example with `{command}` of {project}"),
        None => "PNG or JPEG first".to_owned(),
    };
    unsupported(format!("{name} images cannot be read by this build; convert them to {how}"))
}

/// Returns whether `bytes` start with the signature of an image that this build reads. Unlike [`sniff`], this does not accept
/// TGA, which only its name distinguishes from other binary data with certainty.
pub fn has_signature(bytes: &[u8]) -> bool {
    sniff(bytes).is_some_and(|image_type| image_type != ImageType::Tga)
}

/// Returns whether white space, comments and a digit follow the signature of a PNM file, so that text which starts with `P1`
/// is not mistaken for one.
fn begins_with_number(mut rest: &[u8]) -> bool {
    if !matches!(rest, [first, ..] if first.is_ascii_whitespace() || *first == b'#') {
        return false;
    }
    loop {
        match rest {
            [b'#', ..] => {
                let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
            }
            [first, more @ ..] if first.is_ascii_whitespace() => rest = more,
            [first, ..] => return first.is_ascii_digit(),
            [] => return false,
        }
    }
}

/// Returns whether `bytes` start with a TGA header whose fields have only values of the specification.
fn is_tga_header(bytes: &[u8]) -> bool {
    let Some(
        &[_, map_type, image_type, o0, o1, l0, l1, entry, _, _, _, _, w0, w1, h0, h1, depth, descriptor],
    ) = bytes.first_chunk::<18>()
    else {
        return false;
    };
    let is_known_entry = matches!(entry, 15 | 16 | 24 | 32);
    let map_fits = match map_type {
        0 => [o0, o1, l0, l1] == [0; 4] && (entry == 0 || is_known_entry),
        1 => [l0, l1] != [0; 2] && is_known_entry,
        _ => false,
    };
    let depth_fits = match image_type {
        1 | 9 => map_type == 1 && matches!(depth, 8 | 16),
        2 | 10 => matches!(depth, 15 | 16 | 24 | 32),
        3 | 11 => matches!(depth, 8 | 16),
        _ => false,
    };
    // The highest bits are reserved; the lowest are the number of bits of alpha.
    let descriptor_fits = descriptor & 0xc0 == 0 && matches!(descriptor & 0x0f, 0 | 1 | 8);
    map_fits && depth_fits && descriptor_fits && [w0, w1] != [0; 2] && [h0, h1] != [0; 2]
}

/// The first bytes of a JPEG XL without a container.
const BARE_JPEG_XL: [u8; 2] = [0xff, 0x0a];
/// The name of all formats of raw photographs: CR3, RW2, ORF, RAF and those that are TIFF files.
pub(super) const CAMERA_RAW: &str = "camera raw";

/// Returns the name of a known image format that this build cannot read, for a better message than "unknown".
pub fn foreign_format(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some("AVIF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h' | b'm', b'e' | b'i', b'i' | b'v' | b'f', _, ..] => {
            Some("HEIF")
        }
        [b0, b1, ..] if [*b0, *b1] == BARE_JPEG_XL => Some("JPEG XL"),
        [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'c', b'r', b'x', ..] => Some(CAMERA_RAW),
        [b'I', b'I', b'U', 0, ..] | [b'I', b'I', b'R', b'O' | b'S', ..] | [b'M', b'M', b'O', b'R', ..] => {
            Some(CAMERA_RAW)
        }
        _ if bytes.starts_with(b"FUJIFILMCCD-RAW") => Some(CAMERA_RAW),
        [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] | [0xff, 0x4f, 0xff, 0x51, ..] => Some("JPEG 2000"),
        [b'8', b'B', b'P', b'S', ..] => Some("Photoshop"),
        [0, 0, 1, 0, _, _, ..] => Some("icon"),
        _ => None,
    }
}

/// Returns a command that converts a file of the type `name`, as of [`foreign_format`], to PNG, and the project that it is
/// from.
pub fn converter(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "AVIF" => Some(("avifdec IN.avif OUT.png", "libavif")),
        "HEIF" => Some(("heif-convert IN.heic OUT.png", "libheif")),
        "JPEG XL" => Some(("djxl IN.jxl OUT.png", "libjxl")),
        "JPEG 2000" => Some(("opj_decompress -i IN.jp2 -o OUT.png", "OpenJPEG")),
        CAMERA_RAW => Some(("darktable-cli IN OUT.png", "darktable")),
        _ => None,
    }
}

/// Returns whether the content of the file `name` is a photograph of a type that cannot be read. Such a file must not be
/// mistaken for something other than an image.
pub fn is_unreadable_photo(bytes: &[u8], name: &str) -> bool {
    // Two bytes are not enough to tell a bare JPEG XL from other data.
    let is_uncertain = bytes.starts_with(&BARE_JPEG_XL) && !has_extension(name, "jxl");
    let is_photo =
        matches!(foreign_format(bytes), Some("AVIF" | "HEIF" | "JPEG XL" | "JPEG 2000" | CAMERA_RAW));
    is_photo && !is_uncertain
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case(extension))
}

/// Returns whether `name` has an extension of an image type that this build reads, ignoring case.
pub fn has_image_extension(name: &str) -> bool {
    ImageType::of_name(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_detected_from_content() {
        assert_eq!(sniff(b"\xff\xd8\xff\xe0"), Some(ImageType::Jpeg));
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n"), Some(ImageType::Png));
        assert_eq!(sniff(b"RIFF\0\0\0\0WEBPVP8 "), Some(ImageType::Webp));
        assert_eq!(sniff(b"RIFF\0\0\0\0WAVEfmt "), None);
        assert_eq!(sniff(b"GIF89a"), Some(ImageType::Gif));
        assert_eq!(sniff(b"MM\0*"), Some(ImageType::Tiff));
        assert_eq!(sniff(b"\0\0\0\x1cftypmif1\0\0\0\0miafavifmif1"), Some(ImageType::Avif));
        assert_eq!(sniff(b"<html>"), None);
        assert_eq!(sniff(b""), None);
    }

    #[test]
    fn avif_has_one_of_its_brands() {
        for bytes in [
            &b"\0\0\0\x14ftypheic\0\0\0\0mif1heicavif"[..],
            // The minor version is not a brand.
            b"\0\0\0\x14ftypheicavifmif1",
            b"\0\0\0\x14ftyp",
        ] {
            assert_eq!(sniff(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn text_that_starts_with_bm_is_not_a_bitmap() {
        assert_eq!(sniff(b"BMW builds cars and motorcycles"), None);
        let mut bmp = b"BM".to_vec();
        bmp.extend([0; 12]);
        bmp.extend(40u32.to_le_bytes());
        assert_eq!(sniff(&bmp), Some(ImageType::Bmp));
    }

    #[test]
    fn only_headers_of_portable_maps_are_detected() {
        for (bytes, expected) in [
            (&b"P6\n3 4\n255\n"[..], true),
            (b"P1 # a comment\n# 2\r 3 4", true),
            (b"P4\t12 3\n", true),
            (b"P7\nWIDTH 3\n", true),
            (b"P7\n# comment\nWIDTH 3\n", true),
            (b"P2 is the second priority", false),
            (b"P3", false),
            (b"P36 4", false),
            (b"P8 3 4", false),
            (b"P7 332\n", false),
            (b"P1 # 3 4", false),
        ] {
            assert_eq!(sniff(bytes) == Some(ImageType::Pnm), expected, "{bytes:?}");
        }
    }

    #[test]
    fn only_sane_headers_are_those_of_tga() {
        let header = |map_type: u8, kind: u8, map: [u8; 5], depth: u8, descriptor: u8| {
            let mut header = vec![0, map_type, kind];
            header.extend(map);
            header.extend([0, 0, 0, 0, 5, 0, 7, 0, depth, descriptor]);
            header
        };
        for (bytes, expected) in [
            (header(0, 2, [0; 5], 24, 0x20), true),
            (header(0, 10, [0, 0, 0, 0, 24], 32, 8), true),
            (header(1, 9, [0, 0, 0, 1, 24], 8, 0), true),
            (header(0, 11, [0; 5], 8, 0), true),
            // A color map that is missing, without entries, or of unknown size.
            (header(0, 1, [0; 5], 8, 0), false),
            (header(1, 1, [0, 0, 0, 0, 24], 8, 0), false),
            (header(1, 1, [0, 0, 0, 1, 23], 8, 0), false),
            (header(0, 2, [1, 0, 0, 0, 0], 24, 0), false),
            // Other types and depths.
            (header(0, 0, [0; 5], 24, 0), false),
            (header(0, 4, [0; 5], 24, 0), false),
            (header(0, 2, [0; 5], 8, 0), false),
            (header(0, 3, [0; 5], 24, 0), false),
            (header(0, 2, [0; 5], 24, 0x40), false),
            (header(0, 2, [0; 5], 24, 3), false),
        ] {
            assert_eq!(sniff(&bytes), expected.then_some(ImageType::Tga), "{bytes:?}");
            assert!(!has_signature(&bytes));
            assert_eq!(sniff(&bytes[..17]), None);
        }
        // Cursors, icons and fonts.
        assert_eq!(sniff(b"\0\0\x02\0\x01\0\x20\x20\0\0\0\0\x30\x01\0\0\x16\0\0\0"), None);
        assert_eq!(sniff(b"\0\0\x01\0\x01\0\x20\x20\0\0\0\0\x30\x01\0\0\x16\0\0\0"), None);
        assert_eq!(sniff(b"\0\x01\0\0\0\x0d\0\x80\0\x03\0\x50GDEF"), None);
    }

    #[test]
    fn extensions_are_matched_in_any_case() {
        assert!(has_image_extension("a/b/n01440764_10026.JPEG"));
        assert!(has_image_extension("x.tar/photo.Webp"));
        assert_eq!(ImageType::of_name("scan.TIFF"), Some(ImageType::Tiff));
        assert!(!has_image_extension("pixels.raw"));
        assert!(!has_image_extension("notes.txt"));
        assert!(!has_image_extension(".jpg"));
        assert!(!has_image_extension("jpg"));
    }

    #[test]
    fn foreign_formats_are_named() {
        assert_eq!(foreign_format(b"\0\0\0\x18ftypheic\0\0\0\0"), Some("HEIF"));
        assert_eq!(foreign_format(b"\0\0\0\x18ftypavif\0\0\0\0"), Some("AVIF"));
        assert_eq!(foreign_format(b"hello, world"), None);
        for bytes in [
            &b"\0\0\0\x0cJXL "[..],
            b"\xff\x0a",
            b"\0\0\0\x0cjP  ",
            b"\xff\x4f\xff\x51",
            b"\0\0\0\x18ftypheic\0\0\0\0",
            b"\0\0\0\x18ftypcrx \0\0\0\x01",
            b"IIU\0\x18\0\0\0",
            b"IIRO\x08\0\0\0",
            b"FUJIFILMCCD-RAW 0201",
        ] {
            assert!(foreign_format(bytes).and_then(converter).is_some(), "{bytes:?}");
            assert!(is_unreadable_photo(bytes, "a.jxl"), "{bytes:?}");
            assert_eq!(is_unreadable_photo(bytes, "a.bin"), !bytes.starts_with(b"\xff\x0a"));
        }
        assert!(is_unreadable_photo(b"\xff\x0a\x01", "photos/B.JXL"));
    }
}
