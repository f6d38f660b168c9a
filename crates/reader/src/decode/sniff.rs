//! Detects the type of an image file from its first bytes.
//!
//! File extensions are unreliable (real corpora contain PNGs named `.JPEG`), so nothing after planning uses names.

use serde::{Deserialize, Serialize};

use super::planes_file::MAGIC;

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
            ImageType::Raw => &["raw"],
        }
    }

    /// Returns the type with the file extension of `name`, ignoring case, if this build reads it. The content of the
    /// file may be of another type.
    pub fn of_name(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let has_extension =
            |ty: &Self| ty.extensions().iter().any(|known| extension.eq_ignore_ascii_case(known));
        READABLE.into_iter().find(has_extension).filter(|_| !stem.is_empty())
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
const READABLE: [ImageType; 7] = [
    ImageType::Jpeg,
    ImageType::Png,
    ImageType::Webp,
    ImageType::Gif,
    ImageType::Bmp,
    ImageType::Tiff,
    ImageType::Planes,
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
        _ => None,
    }
}

/// Returns the name of a known image format that this build cannot read, for a better message than "unknown".
pub fn foreign_format(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some("AVIF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h' | b'm', b'e' | b'i', b'i' | b'v' | b'f', _, ..] => {
            Some("HEIF")
        }
        [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] | [0xff, 0x4f, 0xff, 0x51, ..] => Some("JPEG 2000"),
        [b'8', b'B', b'P', b'S', ..] => Some("Photoshop"),
        [0, 0, 1, 0, _, _, ..] => Some("icon"),
        _ => None,
    }
}

/// Returns whether the content is a photograph of a type that cannot be read. Such a file must not be mistaken for
/// something other than an image.
pub fn is_unreadable_photo(bytes: &[u8]) -> bool {
    matches!(foreign_format(bytes), Some("AVIF" | "HEIF"))
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
        assert_eq!(sniff(b"<html>"), None);
        assert_eq!(sniff(b""), None);
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
    }
}
