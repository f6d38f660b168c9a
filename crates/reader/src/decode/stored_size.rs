//! The size of an image file, from its header.

use image::ImageDecoder;

use super::other;
use super::pixels::Size;
use super::sniff::{ImageType, sniff};

/// A size for limits only: the header of a file needs no more memory.
const ANY_SIZE: Size = Size { width: 1 << 14, height: 1 << 14 };

/// Returns the size of the pixels that are stored in the image file `bytes`; `None` if its header does not say it.
pub fn stored_size(bytes: &[u8]) -> Option<Size> {
    match sniff(bytes)? {
        ImageType::Jpeg => jpeg_size(bytes),
        image_type => {
            let (width, height) = other::open(bytes, image_type, ANY_SIZE).ok()?.dimensions();
            Some(Size { width, height })
        }
    }
}

/// Returns the size in the frame header of a JPEG file.
fn jpeg_size(bytes: &[u8]) -> Option<Size> {
    let mut rest = bytes.get(2..)?;
    loop {
        let start = rest.iter().position(|&byte| byte != 0xff)?;
        let marker = if start == 0 { return None } else { *rest.get(start)? };
        rest = rest.get(start + 1..)?;
        match marker {
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => continue,
            // The scan comes after the frame header.
            0xd9 | 0xda => return None,
            _ => {}
        }
        let (length, segment) = rest.split_first_chunk::<2>()?;
        // 0xc4, 0xc8 and 0xcc are tables and an extension; all others are frame headers.
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let [_, h1, h0, w1, w0] = *segment.first_chunk::<5>()?;
            let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
            return Some(Size { width: side(w1, w0), height: side(h1, h0) });
        }
        rest = rest.get(usize::from(u16::from_be_bytes(*length))..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_whole_and_damaged_headers() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x11\x08\x01\x02\x03\x04\x03";
        assert_eq!(stored_size(jpeg), Some(Size { width: 0x304, height: 0x102 }));
        for cut in 0..jpeg.len() - 1 {
            assert_eq!(stored_size(&jpeg[..cut]), None, "{cut}");
        }
        assert_eq!(stored_size(b"\xff\xd8\xff\xda\0\x02\xff\xc0\0\x11\x08\0\x01\0\x01"), None);
        assert_eq!(stored_size(b"\x89PNG\r\n\x1a\n"), None);
        assert_eq!(stored_size(b"no image"), None);
    }
}
