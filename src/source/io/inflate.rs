//! Decompression of deflate (RFC 1951) and gzip (RFC 1952) that loses nothing before damage.
//!
//! The readers of `flate2` drop what they have decoded in a call that finds damage, up to the size of their buffers.
//! These use the same decoder, `miniz_oxide`, and return it first.

use std::io::{self, BufRead, ErrorKind, Read};
use std::ops::Range;

use flate2::Crc;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::compressed_members::{MemberDecoder, skip_zeros};

/// Size of the decoded bytes in memory: the 32 KiB that later bytes may repeat, and as much again.
const WINDOW_BYTES: usize = 64 << 10;

/// Reader of a deflate stream.
pub(in crate::source) struct Inflate<R> {
    raw: R,
    state: Box<DecompressorOxide>,
    /// The last decoded bytes; the next one is written at `next`, and then again from the start.
    window: Box<[u8]>,
    next: usize,
    /// Decoded bytes that were not returned yet.
    ready: Range<usize>,
    /// What comes after them.
    ending: Option<Ending>,
}

enum Ending {
    End,
    Damage(io::Error),
}

impl<R: BufRead> Inflate<R> {
    pub(in crate::source) fn new(raw: R) -> Self {
        let window = vec![0; WINDOW_BYTES].into_boxed_slice();
        Self { raw, state: Box::default(), window, next: 0, ready: 0..0, ending: None }
    }

    /// Decodes until there are bytes to return, or the stream ends.
    fn decode(&mut self) -> io::Result<()> {
        let input = self.raw.fill_buf()?;
        let flags = if input.is_empty() { 0 } else { TINFL_FLAG_HAS_MORE_INPUT };
        let (status, taken, given) = decompress(&mut self.state, input, &mut self.window, self.next, flags);
        self.raw.consume(taken);
        self.ready = self.next..self.next + given;
        self.next = self.ready.end % WINDOW_BYTES;
        self.ending = match status {
            TINFLStatus::Done => Some(Ending::End),
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => None,
            TINFLStatus::FailedCannotMakeProgress => Some(Ending::Damage(ErrorKind::UnexpectedEof.into())),
            _ => Some(Ending::Damage(io::Error::new(ErrorKind::InvalidData, "corrupt deflate stream"))),
        };
        Ok(())
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.ready.is_empty() {
            match &mut self.ending {
                None => self.decode()?,
                Some(Ending::End) => return Ok(0),
                Some(Ending::Damage(error)) => {
                    let again = io::Error::new(error.kind(), "corrupt deflate stream");
                    return Err(std::mem::replace(error, again));
                }
            }
        }
        let given = self.ready.len().min(buffer.len());
        let start = self.ready.start;
        buffer[..given].copy_from_slice(&self.window[start..start + given]);
        self.ready.start += given;
        Ok(given)
    }
}

/// Reader of a gzip member. Its header has been read.
pub(super) struct GzipMember<R> {
    content: Inflate<R>,
    crc: Crc,
    is_checked: bool,
}

/// Flags of a gzip header.
const HAS_HEADER_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;

fn invalid_header() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "invalid gzip header")
}

fn read_byte(raw: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    raw.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn skip(raw: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    match io::copy(&mut raw.take(bytes), &mut io::sink())? {
        skipped if skipped == bytes => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Skips a text that ends with a zero.
fn skip_text(raw: &mut impl BufRead) -> io::Result<()> {
    match raw.skip_until(0)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

impl<R: BufRead> MemberDecoder<R> for GzipMember<R> {
    fn start(mut raw: R) -> io::Result<Self> {
        // Byte by byte, because other data after a member may be shorter than a header.
        for expected in [0x1f, 0x8b, 8] {
            if read_byte(&mut raw)? != expected {
                return Err(invalid_header());
            }
        }
        let flags = read_byte(&mut raw)?;
        // Time, flags of the compressor, and system.
        skip(&mut raw, 6)?;
        if flags & HAS_EXTRA != 0 {
            let bytes = u16::from_le_bytes([read_byte(&mut raw)?, read_byte(&mut raw)?]);
            skip(&mut raw, bytes.into())?;
        }
        for text in [HAS_NAME, HAS_COMMENT] {
            if flags & text != 0 {
                skip_text(&mut raw)?;
            }
        }
        if flags & HAS_HEADER_CRC != 0 {
            skip(&mut raw, 2)?;
        }
        Ok(Self { content: Inflate::new(raw), crc: Crc::new(), is_checked: false })
    }

    fn rest(self) -> R {
        self.content.raw
    }

    /// Tapes and disk images pad files; gzip and Python ignore the zeros.
    fn skip_padding(raw: &mut R) -> io::Result<()> {
        skip_zeros(raw).map(drop)
    }
}

impl<R: BufRead> Read for GzipMember<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let given = self.content.read(buffer)?;
        self.crc.update(&buffer[..given]);
        if given == 0 && !buffer.is_empty() && !self.is_checked {
            let mut trailer = [0; 8];
            self.content.raw.read_exact(&mut trailer)?;
            let expected = u64::from(self.crc.sum()) | u64::from(self.crc.amount()) << 32;
            if u64::from_le_bytes(trailer) != expected {
                return Err(io::Error::new(
                    ErrorKind::InvalidInput,
                    "the checksum of a gzip member is wrong",
                ));
            }
            self.is_checked = true;
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compress, Compression, FlushCompress, GzBuilder};

    use super::*;

    fn text() -> Vec<u8> {
        (0..300_000u32).map(|i| b'a' + (i % 1009 * i % 26) as u8).collect()
    }

    /// Returns all that `reader` returns before its error.
    fn before_damage(mut reader: impl Read, size: usize) -> (Vec<u8>, io::Error) {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => panic!("no damage was found"),
                Ok(given) => bytes.extend_from_slice(&buffer[..given]),
                Err(error) => return (bytes, error),
            }
        }
    }

    #[test]
    fn everything_before_damage_is_returned() {
        let text = text();
        for length in [1, 5_000, 40_000, 200_000, 300_000] {
            let mut deflated = Vec::with_capacity(2 * text.len());
            let mut encoder = Compress::new(Compression::default(), false);
            encoder.compress_vec(&text[..length], &mut deflated, FlushCompress::Full).unwrap();
            // A block of the reserved type.
            deflated.extend([0x07; 20]);
            let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
            let gzip = [&header[..], &deflated].concat();
            for size in [1, 1000, 65_536, 500_000] {
                let (bytes, error) = before_damage(Inflate::new(&deflated[..]), size);
                assert!(bytes == text[..length], "{} of {length}", bytes.len());
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                let member = GzipMember::start(&gzip[..]).unwrap();
                assert!(before_damage(member, size).0 == text[..length]);
            }
        }
    }

    #[test]
    fn optional_parts_of_a_header_are_skipped() {
        let text = text();
        let mut encoder = GzBuilder::new()
            .extra([7; 300])
            .filename("a name")
            .comment("a comment")
            .mtime(12)
            .write(Vec::new(), Compression::best());
        encoder.write_all(&text).unwrap();
        let gzip = encoder.finish().unwrap();
        let mut bytes = Vec::new();
        GzipMember::start(&gzip[..]).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == text);
        for wrong in [&b"garbage"[..], &[0x1f, 0x8b, 9]] {
            assert_eq!(GzipMember::start(wrong).err().unwrap().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(GzipMember::start(&gzip[..300]).err().unwrap().kind(), ErrorKind::UnexpectedEof);
    }
}
