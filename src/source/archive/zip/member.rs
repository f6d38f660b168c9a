//! Reads single files of a zip archive.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use crate::error::Error;
use crate::sample::RejectCode;
use crate::source::archive::member_reader::{MAX_MEMBER_BYTES, MemberReader};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;

/// Size of the local header before the name of a file, in bytes.
pub(super) const LOCAL_HEADER_BYTES: usize = 30;
/// Usual size limit of the name and the extra fields, in bytes.
const USUAL_NAME_BYTES: u64 = 512;
/// Decompressed bytes allowed per stored byte, in addition to [`FREE_BYTES`] if a file is read in pieces. DEFLATE
/// reaches at most 1032.
const MAX_RATIO: u64 = 1100;
/// Decompressed bytes allowed for any file.
const FREE_BYTES: u64 = 64 << 20;
/// Decompressed bytes per stored byte for which memory is allocated at first. Images and most text need no more.
const FIRST_RATIO: usize = 8;
/// Minimum size of that memory, in bytes.
const MIN_STEP_BYTES: usize = 4096;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Location of a file in a zip archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipMember {
    /// Offset of the local header.
    pub offset: u64,
    /// Size of the file in the archive, in bytes.
    pub compressed: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// CRC-32 of the file.
    pub crc: u32,
    /// Compression method.
    pub method: u16,
    /// Whether the bytes are encrypted.
    pub is_encrypted: bool,
}

impl ZipMember {
    /// Returns the range of the file in an archive of `archive_bytes` bytes, including the header before its bytes.
    pub(in crate::source) fn range(&self, archive_bytes: u64) -> Range<u64> {
        let before = LOCAL_HEADER_BYTES as u64 + USUAL_NAME_BYTES;
        let end = self.offset.saturating_add(before).saturating_add(self.compressed);
        self.offset..end.min(archive_bytes)
    }

    /// Reads the file from the archive `opened`.
    ///
    /// # Errors
    ///
    /// Returns an error if the archive cannot be read or has changed, or if this part of it is damaged.
    pub fn read_opened(&self, opened: &OpenedFile) -> Result<Vec<u8>, Broken> {
        self.check()?;
        opened.will_read(self.range(opened.bytes()))?;
        let failed = |e| Error::io("read", opened.path(), e);
        let data = self.data(opened)?;
        let mut bytes = vec![0; self.compressed as usize];
        opened.read_exact_at(&mut bytes, data.start).map_err(failed)?;
        // Apparent damage may also be a file that was written to.
        opened.check_unchanged()?;
        self.decompressed(bytes)
    }

    /// Opens a reader of the file in an archive that is already open. It reads files of any size, in pieces.
    ///
    /// # Errors
    ///
    /// As [`Self::read_opened`]. Damage to the compressed data is reported when it is read.
    pub(in crate::source) fn open(&self, opened: &Arc<OpenedFile>) -> Result<MemberReader, Broken> {
        self.check_method()?;
        if self.size > self.compressed.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES) {
            let message = format!("the file decompresses to more than {MAX_RATIO} times its size");
            return Err(Broken::damaged(RejectCode::TooLarge, message));
        }
        let data = self.data(opened)?;
        opened.will_read(data.clone())?;
        Ok(MemberReader::new(Arc::clone(opened), data, self.method == DEFLATED, self.size, Some(self.crc)))
    }

    /// Returns the range of the bytes of the file in the archive.
    fn data(&self, opened: &OpenedFile) -> Result<Range<u64>, Broken> {
        let failed = |e| Error::io("read", opened.path(), e);
        let truncated =
            || Broken::damaged(RejectCode::Truncated, "the zip archive ends before the file does");
        let mut header = [0; LOCAL_HEADER_BYTES];
        let header_end = self.offset.checked_add(LOCAL_HEADER_BYTES as u64).ok_or_else(truncated)?;
        if header_end > opened.bytes() {
            return Err(truncated());
        }
        opened.read_exact_at(&mut header, self.offset).map_err(failed)?;
        if !header.starts_with(b"PK\x03\x04") {
            // Apparent damage may also be a file that was written to.
            opened.check_unchanged()?;
            let message = "the zip archive has no header where the file should start";
            return Err(Broken::damaged(RejectCode::Corrupt, message));
        }
        let length = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let start = header_end + length(26) + length(28);
        let end = start.checked_add(self.compressed).filter(|end| *end <= opened.bytes());
        end.map(|end| start..end).ok_or_else(truncated)
    }

    /// Returns a reject if the file cannot be decompressed, or is too large to be read as a whole.
    pub(in crate::source) fn check(&self) -> Result<(), Broken> {
        self.check_method()?;
        if self.size.max(self.compressed) > MAX_MEMBER_BYTES {
            let message = format!(
                "the file has {} bytes, more than the limit of {MAX_MEMBER_BYTES}",
                self.size.max(self.compressed)
            );
            return Err(Broken::damaged(RejectCode::TooLarge, message));
        }
        let is_possible = match self.method {
            STORED => self.size == self.compressed,
            _ => self.size <= self.compressed.saturating_mul(MAX_RATIO),
        };
        if is_possible { Ok(()) } else { Err(wrong_size()) }
    }

    fn check_method(&self) -> Result<(), Broken> {
        if self.is_encrypted {
            return Err(Broken::damaged(RejectCode::Unsupported, "the file is encrypted in the zip archive"));
        }
        if !matches!(self.method, STORED | DEFLATED) {
            let message = format!(
                "the file uses zip compression method {}; only stored and deflated files can be read",
                self.method
            );
            return Err(Broken::damaged(RejectCode::Unsupported, message));
        }
        Ok(())
    }

    fn decompressed(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Broken> {
        let bytes = match self.method {
            STORED => bytes,
            _ => self.inflated(&bytes)?,
        };
        if bytes.len() as u64 != self.size {
            return Err(wrong_size());
        }
        let mut crc = Crc::new();
        crc.update(&bytes);
        if crc.sum() != self.crc {
            return Err(Broken::damaged(
                RejectCode::Corrupt,
                "the checksum of the file in the zip archive is wrong",
            ));
        }
        Ok(bytes)
    }

    /// Decompresses `bytes`, up to one byte more than declared, to detect excess bytes. The buffer is never more than
    /// about twice as large as the data so far, because the declared size may be wrong.
    fn inflated(&self, bytes: &[u8]) -> Result<Vec<u8>, Broken> {
        let limit = self.size.saturating_add(1);
        let mut decoder = DeflateDecoder::new(bytes);
        let mut out = Vec::new();
        loop {
            let left = limit.saturating_sub(out.len() as u64);
            let first = bytes.len().saturating_mul(FIRST_RATIO).max(MIN_STEP_BYTES);
            let step = left.min(out.len().max(first) as u64);
            out.reserve_exact(step as usize);
            let read = decoder.by_ref().take(step).read_to_end(&mut out).map_err(|e| {
                Broken::damaged(
                    RejectCode::Corrupt,
                    format!("the compressed data in the zip archive is damaged ({e})"),
                )
            })?;
            if (read as u64) < step || step == left {
                return Ok(out);
            }
        }
    }
}

fn wrong_size() -> Broken {
    Broken::damaged(RejectCode::Corrupt, "the file does not have the size that the zip archive declares")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;
    use crate::source::archive::member::{ArchiveMember, MemberData};
    use crate::source::io::planned::PlannedFile;

    fn deflated(content: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn member(method: u16, compressed: u64, size: u64) -> ZipMember {
        ZipMember { offset: 0, compressed, size, crc: 0, method, is_encrypted: false }
    }

    #[test]
    fn an_impossible_size_is_found_before_the_archive_is_read() {
        let archive = PlannedFile {
            path: Path::new("/nonexistent/archive.zip").into(),
            bytes: 1 << 20,
            modified_ns: 0,
            etag: None,
            follow_symlinks: true,
        };
        let read = |method, compressed, size| {
            let data = MemberData::Zip(member(method, compressed, size));
            let (archive_parts, root_parts, archive_bytes) = (0, 0, archive.bytes);
            ArchiveMember { archive_parts, root_parts, archive_bytes, data }.read(&archive)
        };
        for (method, compressed, size) in [(DEFLATED, 1000, 200 << 20), (STORED, 1000, 1001), (STORED, 9, 0)]
        {
            match read(method, compressed, size) {
                Err(Broken::Damaged(reject)) => assert!(reject.message.contains("does not have the size")),
                other => panic!("{other:?}"),
            }
        }
        for (method, compressed, size) in [(DEFLATED, 1000, 1 << 20), (DEFLATED, 2, 0), (STORED, 9, 9)] {
            assert!(matches!(read(method, compressed, size), Err(Broken::Failed(_))));
        }
    }

    #[test]
    fn memory_grows_with_the_data_and_not_with_the_declared_size() {
        let bytes = deflated(&[7; 100_000]);
        let found = member(DEFLATED, bytes.len() as u64, 1 << 24).inflated(&bytes).unwrap();
        assert_eq!(found.len(), 100_000);
        assert!(found.capacity() < 300_000, "{}", found.capacity());
        for size in [0usize, 1, 4095, 4096, 4097, 8191, 8192, 8193, 70_000, 99_999, 100_000, 100_001] {
            let found = member(DEFLATED, bytes.len() as u64, size as u64).inflated(&bytes).unwrap();
            // One byte more than declared shows that there is more.
            assert_eq!(found.len(), (size + 1).min(100_000));
            assert!(found.iter().all(|byte| *byte == 7) && found.capacity() <= 2 * found.len().max(4096));
        }
        assert!(member(DEFLATED, 3, 100).inflated(&[0xff; 3]).is_err());
    }
}
