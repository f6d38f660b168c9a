//! Reader of one file in an archive, in pieces.

use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

use flate2::Crc;

use crate::sample::RejectCode;
use crate::source::io::broken::DamagedInput;
use crate::source::io::inflate::Inflate;
use crate::source::io::opened::{OpenedFile, RangeReader};

/// Maximum size of a file in an archive that is read as a whole, in bytes.
pub(in crate::source) const MAX_MEMBER_BYTES: u64 = 256 << 20;
/// Bytes read from the archive at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Decompresses a file in an archive, and checks its size and checksum at its end. Errors caused by damage to the file
/// contain a [`DamagedInput`]; others are failures to read the archive.
pub(in crate::source) struct MemberReader {
    content: MemberContent,
    /// Bytes still to be read.
    left: u64,
    /// Whether there are more bytes than the archive declares.
    is_too_long: bool,
    crc: Crc,
    /// `None`: the archive has no checksum of the file.
    expected_crc: Option<u32>,
}

enum MemberContent {
    Stored(RangeReader<Arc<OpenedFile>>),
    Deflated(Inflate<BufReader<RangeReader<Arc<OpenedFile>>>>),
}

impl MemberReader {
    /// Creates a reader of a file of `size` bytes with the CRC-32 `crc`, stored in the bytes `range` of an archive.
    pub(in crate::source) fn new(
        opened: Arc<OpenedFile>,
        range: Range<u64>,
        is_deflated: bool,
        size: u64,
        crc: Option<u32>,
    ) -> Self {
        let range = RangeReader { opened, range };
        let content = match is_deflated {
            false => MemberContent::Stored(range),
            true => {
                let input = BufReader::with_capacity(BUFFER_BYTES, range);
                MemberContent::Deflated(Inflate::new(input))
            }
        };
        Self { content, left: size, is_too_long: false, crc: Crc::new(), expected_crc: crc }
    }
}

impl Read for MemberReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match &mut self.content {
            MemberContent::Stored(range) => range.read(buffer),
            MemberContent::Deflated(decoder) => decoder.read(buffer),
        };
        let read = read.map_err(|e| match e.kind() {
            // Errors of the decoder. Failures to read the archive are errors of the system, or of another kind.
            ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                if e.raw_os_error().is_none() =>
            {
                let message = format!("the compressed data in the zip archive is damaged ({e})");
                DamagedInput::error(RejectCode::Corrupt, message)
            }
            _ => e,
        })?;
        self.crc.update(&buffer[..read]);
        match self.left.checked_sub(read as u64) {
            // The declared bytes first. The next read fails.
            None if self.left > 0 => {
                self.is_too_long = true;
                Ok(std::mem::take(&mut self.left) as usize)
            }
            Some(0)
                if read == 0
                    && !self.is_too_long
                    && self.expected_crc.is_some_and(|crc| crc != self.crc.sum()) =>
            {
                Err(DamagedInput::error(
                    RejectCode::Corrupt,
                    "the checksum of the file in the zip archive is wrong",
                ))
            }
            Some(left) if (read > 0 || left == 0) && !self.is_too_long => {
                self.left = left;
                Ok(read)
            }
            _ => Err(DamagedInput::error(
                RejectCode::Corrupt,
                "the file does not have the size that the zip archive declares",
            )),
        }
    }
}
