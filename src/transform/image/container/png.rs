//! PNG: a signature, then chunks of length, type, data and CRC (W3C PNG, third edition). EXIF is in the `eXIf` chunk, or in
//! the text chunk in which ImageMagick and older tools store it.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

use super::super::exif;
use super::super::outcome::Tolerated;
use super::{Structure, check_decoded_bytes, corrupt, cut_off, size, truncated, u32_be};
use crate::sample::Reject;

/// Reads the structure of the PNG file `bytes`. All checksums are verified.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let (Some(width), Some(height)) = (u32_be(bytes, 16), u32_be(bytes, 20)) else {
        return Err(truncated("its header"));
    };
    if bytes.get(12..16) != Some(b"IHDR") {
        return Err(corrupt("the first chunk is not IHDR"));
    }
    let mut structure = Structure::of_size(size(width, height)?);
    let (mut ended, mut data_bytes, mut headers) = (false, 0u64, 0);
    // What follows the last whole chunk, with the start of its data if the file is cut off.
    let mut rest_bytes = bytes.len().saturating_sub(SIGNATURE.len()) as u64;
    for chunk in chunks(bytes) {
        rest_bytes = rest_bytes.saturating_sub(chunk.whole.len() as u64);
        if !chunk.crc_is_valid() {
            if chunk.is_ancillary() {
                structure.tolerated = Some(Tolerated::PngChunks);
            } else {
                let kind = chunk.kind.escape_ascii();
                structure.note(corrupt(format!("the checksum of chunk {kind} is wrong")));
            }
        }
        match &chunk.kind {
            b"IHDR" => headers += 1,
            b"IDAT" => data_bytes += chunk.data.len() as u64,
            b"PLTE" => {}
            b"acTL" => structure.animated = u32_be(chunk.data, 0).is_some_and(|frames| frames > 1),
            b"IEND" => {
                ended = true;
                break;
            }
            _ if chunk.is_critical() => {
                let kind = chunk.kind.escape_ascii();
                structure.note(corrupt(format!("the critical chunk {kind} is unknown")));
            }
            _ => {}
        }
    }
    structure.orientation = exif::orientation_with(exif_block(bytes).as_deref(), || xmp_packet(bytes));
    if headers > 1 {
        structure.note(corrupt("the PNG has two headers"));
    }
    let row_bits = u64::from(width) * bits_per_pixel(bytes);
    let decoded = row_bits.div_ceil(8) * u64::from(height);
    if ended {
        check_decoded_bytes(decoded, data_bytes, MAX_DEFLATE_RATIO)?;
    } else {
        let checked = check_decoded_bytes(decoded, data_bytes + rest_bytes, MAX_DEFLATE_RATIO);
        structure.lacks_data = checked.map_err(cut_off).err();
        structure.note(truncated("its chunks"));
    }
    Ok(structure)
}

/// Maximum expansion ratio of deflate.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Returns the bits per pixel, from the depth and the color type in the header.
fn bits_per_pixel(bytes: &[u8]) -> u64 {
    let (depth, color_type) = (bytes.get(24).copied().unwrap_or(1), bytes.get(25).copied().unwrap_or(0));
    let channels = match color_type {
        2 => 3,
        4 => 2,
        6 => 4,
        _ => 1,
    };
    u64::from(depth) * channels
}

/// The eight bytes at the start of every PNG file.
pub(in crate::transform::image) const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// One chunk of a PNG file.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::image) struct PngChunk<'a> {
    pub(in crate::transform::image) kind: [u8; 4],
    pub(in crate::transform::image) data: &'a [u8],
    /// Length, type, data and CRC as stored in the file.
    pub(in crate::transform::image) whole: &'a [u8],
}

impl PngChunk<'_> {
    /// Returns whether the image cannot be shown without the chunk: the first letter of its type is uppercase.
    pub(in crate::transform::image) fn is_critical(&self) -> bool {
        self.kind[0].is_ascii_uppercase()
    }

    /// Returns whether the pixels are the same without the chunk: it is not critical, and holds no transparency.
    pub(in crate::transform::image) fn is_ancillary(&self) -> bool {
        !self.is_critical() && &self.kind != b"tRNS"
    }

    pub(in crate::transform::image) fn crc_is_valid(&self) -> bool {
        u32_be(self.whole, self.whole.len() - 4)
            == Some(crc32fast::hash(&self.whole[4..self.whole.len() - 4]))
    }
}

/// Returns the chunks of a PNG file, up to its end or the first truncated chunk.
pub(in crate::transform::image) fn chunks(bytes: &[u8]) -> impl Iterator<Item = PngChunk<'_>> {
    let mut rest = bytes.get(SIGNATURE.len()..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_be(rest, 0)?).ok()?;
        let (whole, after) = rest.split_at_checked(length.checked_add(12)?)?;
        rest = after;
        let kind = *whole.get(4..)?.first_chunk()?;
        Some(PngChunk { kind, data: &whole[8..8 + length], whole })
    })
}

/// Keywords of text chunks that contain a profile in hexadecimal digits.
const KEYWORDS: [&[u8]; 2] = [b"Raw profile type exif", b"Raw profile type APP1"];
/// Maximum size of a text that is read.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Returns the EXIF block of the PNG file `bytes`.
pub(in crate::transform::image) fn exif_block(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    if let Some(chunk) = chunks(bytes).find(|chunk| &chunk.kind == b"eXIf") {
        return Some(Cow::Borrowed(chunk.data));
    }
    let block = chunks(bytes).find_map(|chunk| profile(&text(&chunk.kind, chunk.data)?))?;
    Some(Cow::Owned(block))
}

/// Returns the XMP packet of the PNG file `bytes`: the international text with its keyword.
fn xmp_packet(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    chunks(bytes).filter(|chunk| &chunk.kind == b"iTXt").find_map(|chunk| {
        // Keyword, compression, language, translated keyword and text.
        let [is_compressed, 0, rest @ ..] = chunk.data.strip_prefix(b"XML:com.adobe.xmp\0")? else {
            return None;
        };
        let text = rest.splitn(3, |byte| *byte == 0).nth(2)?;
        if *is_compressed == 0 {
            return Some(Cow::Borrowed(text));
        }
        let mut packet = Vec::new();
        // A damaged packet is read as far as possible.
        let _ = ZlibDecoder::new(text).take(MAX_TEXT_BYTES).read_to_end(&mut packet);
        Some(Cow::Owned(packet))
    })
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
            assert_eq!(exif_block(&file).as_deref(), Some(&b"Exif\0\0II*\0"[..]));
            let direct = [&file[..], &chunk(b"eXIf", b"MM")].concat();
            assert_eq!(exif_block(&direct).as_deref(), Some(&b"MM"[..]));
            for end in 0..file.len() {
                let _ = exif_block(&file[..end]);
            }
        }
        assert_eq!(exif_block(&[&[0; 8][..], &chunk(b"tEXt", b"Author\0somebody")].concat()), None);
    }
}
