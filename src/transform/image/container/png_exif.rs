//! EXIF in PNG: the `eXIf` chunk, or the text chunk in which ImageMagick and older tools store it.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

use super::png_chunks::chunks;

/// Keywords of text chunks that contain a profile in hexadecimal digits.
const KEYWORDS: [&[u8]; 2] = [b"Raw profile type exif", b"Raw profile type APP1"];
/// Maximum size of a text that is read.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Returns the EXIF block of the PNG file `bytes`.
pub(in crate::transform::image) fn exif(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    if let Some(chunk) = chunks(bytes).find(|chunk| &chunk.kind == b"eXIf") {
        return Some(Cow::Borrowed(chunk.data));
    }
    let block = chunks(bytes).find_map(|chunk| profile(&text(&chunk.kind, chunk.data)?))?;
    Some(Cow::Owned(block))
}

/// Returns the text of a chunk that has one of the [`KEYWORDS`].
fn text<'a>(kind: &[u8; 4], data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if !matches!(kind, b"tEXt" | b"zTXt") {
        return None;
    }
    let (keyword, rest) = data.split_at_checked(KEYWORDS[0].len())?;
    match rest {
        _ if !KEYWORDS.contains(&keyword) => None,
        [0, text @ ..] if kind == b"tEXt" => Some(Cow::Borrowed(text)),
        // The second byte is the compression method; 0 is the only one.
        [0, 0, compressed @ ..] if kind == b"zTXt" => {
            let mut text = Vec::new();
            ZlibDecoder::new(compressed).take(MAX_TEXT_BYTES).read_to_end(&mut text).ok()?;
            Some(Cow::Owned(text))
        }
        _ => None,
    }
}

/// Decodes the bytes of a profile: a line feed, its name, its length, then hexadecimal digits in lines.
fn profile(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines = text.strip_prefix(b"\n")?.splitn(3, |byte| *byte == b'\n');
    let (_name, length, digits) = (lines.next()?, lines.next()?, lines.next()?);
    let length: usize = std::str::from_utf8(length).ok()?.trim().parse().ok()?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let digits: Vec<u32> =
        digits.iter().filter(|byte| !byte.is_ascii_whitespace()).map_while(digit).collect();
    let block: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    (block.len() == length).then_some(block)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &[0; 4]].concat()
    }

    #[test]
    fn profiles_in_texts_are_read() {
        let digits: String = b"Exif\0\0II*\0".iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("\nexif\n      10\n{}\n{}\n", &digits[..8], &digits[8..]);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(text.as_bytes()).unwrap();
        let plain = [KEYWORDS[0], b"\0", text.as_bytes()].concat();
        let compressed = [KEYWORDS[1], b"\0\0", &zlib.finish().unwrap()].concat();
        for (kind, data) in [(b"tEXt", plain), (b"zTXt", compressed)] {
            let file = [&[0; 8][..], &chunk(kind, &data)].concat();
            assert_eq!(exif(&file).as_deref(), Some(&b"Exif\0\0II*\0"[..]));
            let direct = [&file[..], &chunk(b"eXIf", b"MM")].concat();
            assert_eq!(exif(&direct).as_deref(), Some(&b"MM"[..]));
            for end in 0..file.len() {
                let _ = exif(&file[..end]);
            }
        }
        assert_eq!(exif(&[&[0; 8][..], &chunk(b"tEXt", b"Author\0somebody")].concat()), None);
    }
}
