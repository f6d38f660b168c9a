//! Whole lines of a byte range of a file, in pieces of bounded size.
//!
//! A line belongs to the range in which it starts. Any division of a file into ranges therefore yields every line
//! exactly once, and each range can be read independently of the others.

use std::io::ErrorKind;
use std::ops::Range;

use memchr::{memchr, memrchr};

use super::opened::OpenedFile;
use super::retry::retried;
use crate::error::{Error, Result};

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinePiece {
    /// Whole lines with their line ends (the last line of the file may have none), starting at byte `offset`.
    Lines {
        /// Offset in the file.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A line of `bytes` bytes that was skipped, because it exceeds the limit.
    Overlong {
        /// Offset of the line in the file.
        offset: u64,
        /// Size of the line.
        bytes: u64,
    },
}

/// Reader of the [`LinePiece`]s of a range.
#[derive(Debug)]
pub struct LineReader {
    file: OpenedFile,
    /// Offset of the next line.
    offset: u64,
    /// Bytes already read from there: the start of a line that is still incomplete.
    begun: Vec<u8>,
    /// Lines that start here or later belong to the next range.
    end: u64,
    /// Planned size of the file.
    file_bytes: u64,
    max_line_bytes: u64,
}

impl LineReader {
    /// Creates a reader of the lines of an open file that start in `range`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn over(file: OpenedFile, range: Range<u64>, max_line_bytes: u64) -> Result<Self> {
        let file_bytes = file.bytes();
        file.will_read(range.start.saturating_sub(1)..range.end)?;
        let mut reader =
            Self { file, offset: range.start, begun: Vec::new(), end: range.end, file_bytes, max_line_bytes };
        if range.start > 0 {
            // A line that is in progress at the start belongs to the previous range.
            reader.offset = reader.line_end(range.start - 1)?;
        }
        Ok(reader)
    }

    /// Checks, after the last piece, that the file has not changed since it was planned.
    ///
    /// # Errors
    ///
    /// As [`OpenedFile::check_unchanged`].
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.check_unchanged()
    }

    /// Returns the next piece of about `target` bytes; `None` at the end of the range.
    pub fn next(&mut self, target: usize) -> Result<Option<LinePiece>> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let offset = self.offset;
        // Up to the target, but no further than the first line end after the range.
        let mut want = (target as u64).min(self.end - offset).max(1);
        let mut bytes = std::mem::take(&mut self.begun);
        loop {
            let until = want.min(self.file_bytes - offset) as usize;
            self.read(&mut bytes, offset, until)?;
            if offset + until as u64 == self.file_bytes {
                break;
            }
            if let Some(last) = memrchr(b'\n', &bytes) {
                // A longer rest would need as much memory again as a long line, so it is read again later.
                if bytes.len() - last <= target {
                    self.begun.reserve_exact(target);
                    self.begun.extend_from_slice(&bytes[last + 1..]);
                }
                bytes.truncate(last + 1);
                if bytes.capacity() - bytes.len() > target {
                    bytes.shrink_to_fit();
                }
                break;
            }
            if bytes.len() as u64 > self.max_line_bytes {
                drop(bytes);
                let end = self.line_end(offset + self.max_line_bytes)?;
                self.offset = end;
                return Ok(Some(LinePiece::Overlong { offset, bytes: end - offset }));
            }
            // At most as far as needed to find that the line is too long.
            want = (bytes.len() as u64 * 2).min(self.max_line_bytes.saturating_add(1));
        }
        // A piece that reaches the end of the file may contain lines of the next range: these are dropped.
        if offset + bytes.len() as u64 > self.end {
            let inside = (self.end - offset - 1) as usize;
            if let Some(newline) = memchr(b'\n', &bytes[inside..]) {
                bytes.truncate(inside + newline + 1);
            }
        }
        self.offset = offset + bytes.len() as u64;
        if bytes.len() as u64 > self.max_line_bytes && memchr(b'\n', &bytes[..bytes.len() - 1]).is_none() {
            return Ok(Some(LinePiece::Overlong { offset, bytes: bytes.len() as u64 }));
        }
        Ok(Some(LinePiece::Lines { offset, bytes }))
    }

    /// Returns the end of the line that contains byte `from`: the offset after its line end, or the end of the file.
    fn line_end(&self, from: u64) -> Result<u64> {
        let mut buffer = Vec::new();
        let mut offset = from;
        while offset < self.file_bytes {
            buffer.clear();
            self.read(&mut buffer, offset, (self.file_bytes - offset).min(64 << 10) as usize)?;
            if let Some(i) = memchr(b'\n', &buffer) {
                return Ok(offset + i as u64 + 1);
            }
            offset += buffer.len() as u64;
        }
        Ok(self.file_bytes)
    }

    /// Extends `buffer`, which holds the bytes of the file from `offset`, to `until` bytes.
    fn read(&self, buffer: &mut Vec<u8>, offset: u64, until: usize) -> Result<()> {
        buffer.reserve_exact(until.saturating_sub(buffer.len()));
        let read = retried(|| {
            while buffer.len() < until {
                let at = offset + buffer.len() as u64;
                if self.file.append_at(buffer, at)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        });
        buffer.truncate(until);
        read.map_err(|e| Error::io("read", self.file.path(), e).at_offset(offset))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::io::planned::PlannedFile;
    use proptest::prelude::*;

    fn lines(path: &Path, ranges: &[Range<u64>], target: usize) -> Vec<u8> {
        let planned = PlannedFile::now(path).unwrap();
        let mut all = Vec::new();
        for range in ranges {
            let mut reader = LineReader::over(planned.open().unwrap(), range.clone(), 1 << 20).unwrap();
            while let Some(piece) = reader.next(target).unwrap() {
                match piece {
                    LinePiece::Lines { offset, bytes } => {
                        assert_eq!(offset, all.len() as u64);
                        assert!(offset < range.end);
                        all.extend(bytes);
                    }
                    LinePiece::Overlong { .. } => panic!("no line is that long"),
                }
            }
        }
        all
    }

    proptest! {
        #[test]
        fn any_division_gives_every_line_once(
            text in proptest::collection::vec(prop_oneof![3 => Just(b'a'), 1 => Just(b'\n')], 0..200),
            cuts in proptest::collection::vec(0u64..200, 0..5),
            target in 1usize..50,
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            let size = text.len() as u64;
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c.min(size)).chain([0, size]).collect();
            cuts.sort_unstable();
            let ranges: Vec<_> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
            prop_assert_eq!(lines(file.path(), &ranges, target), text);
        }

        #[test]
        fn nothing_is_lost_around_overlong_lines(
            text in proptest::collection::vec(prop_oneof![9 => Just(b'a'), 1 => Just(b'\n')], 1..300),
            cut in 0u64..300,
            target in 1usize..80,
            most in 1u64..40,
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            let size = text.len() as u64;
            let planned = PlannedFile::now(file.path()).unwrap();
            let mut at = 0;
            for range in [0..cut.min(size), cut.min(size)..size] {
                let mut reader = LineReader::over(planned.open().unwrap(), range, most).unwrap();
                while let Some(piece) = reader.next(target).unwrap() {
                    let (offset, end) = match piece {
                        LinePiece::Lines { offset, bytes } => {
                            prop_assert_eq!(&bytes, &text[offset as usize..][..bytes.len()]);
                            (offset, offset + bytes.len() as u64)
                        }
                        LinePiece::Overlong { offset, bytes } => {
                            prop_assert!(bytes > most);
                            (offset, offset + bytes)
                        }
                    };
                    prop_assert_eq!(offset, at);
                    prop_assert!(end == size || text[end as usize - 1] == b'\n');
                    at = end;
                }
            }
            prop_assert_eq!(at, size);
        }
    }

    #[test]
    fn an_overlong_line_is_passed_over_without_being_held() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("short\n{}\nend", "x".repeat(5000));
        std::fs::write(file.path(), &text).unwrap();
        let planned = PlannedFile::now(file.path()).unwrap();
        let mut reader = LineReader::over(planned.open().unwrap(), 0..planned.bytes, 1000).unwrap();
        let mut found = Vec::new();
        while let Some(piece) = reader.next(100).unwrap() {
            found.push(piece);
        }
        assert_eq!(
            found,
            [
                LinePiece::Lines { offset: 0, bytes: b"short\n".to_vec() },
                LinePiece::Overlong { offset: 6, bytes: 5001 },
                LinePiece::Lines { offset: 5007, bytes: b"end".to_vec() },
            ]
        );
    }
}
