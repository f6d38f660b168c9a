//! Division of a stream into pieces of whole documents.

use super::scan::Scanner;
pub use super::scan::{Rule, line_at, lines};
use crate::error::Result;
use crate::sample::Reject;
use crate::source::io::lines::LinePiece;
use crate::source::io::stream::Stream;

/// Bytes read at a time.
const READ_BYTES: usize = 128 << 10;

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum DocumentCut {
    /// Whole documents, or one that is too long. Offsets refer to the decompressed bytes.
    Piece(LinePiece),
    /// The stream is damaged after `offset`: nothing follows.
    Broken {
        /// Start of the document that is cut off.
        offset: u64,
        /// The defect.
        reject: Reject,
    },
    /// The quoted value of a row at `offset` is never closed: the last `bytes` bytes of the stream are part of it.
    Unclosed {
        /// Start of the row.
        offset: u64,
        /// Size of the row.
        bytes: u64,
    },
}

/// Cuts a stream into pieces.
pub struct DocumentCutter {
    stream: Stream,
    scanner: Scanner,
    /// Maximum size of a document with its separator, in bytes.
    max_bytes: u64,
    /// Bytes that were read but not yet returned.
    buffer: Vec<u8>,
    /// Offset of the buffer in the stream.
    offset: u64,
    ended: bool,
    damage: Option<Reject>,
    /// Starts of compressed members from which no bytes have been returned yet.
    members: Vec<u64>,
}

impl DocumentCutter {
    /// Cuts `stream` according to `rule`. Documents of more than `max_document_bytes` are skipped.
    pub fn new(stream: Stream, rule: Rule, max_document_bytes: u64) -> Self {
        let separator = if let Rule::Separator(separator) = &rule { separator.len() } else { 2 };
        Self {
            stream,
            scanner: Scanner::new(rule),
            max_bytes: max_document_bytes.saturating_add(separator as u64),
            buffer: Vec::new(),
            offset: 0,
            ended: false,
            damage: None,
            members: Vec::new(),
        }
    }

    /// Returns the start of the last compressed member that contributed bytes to what was returned since the last call;
    /// after [`DocumentCut::Broken`], the start of the damaged member. `None` if no other member started.
    pub fn take_member_start(&mut self) -> Option<u64> {
        let is_broken = self.ended && self.damage.is_none() && self.buffer.is_empty();
        let given = self.members.iter().take_while(|&&start| is_broken || start < self.offset).count();
        self.members.drain(..given).next_back()
    }

    /// Returns the number of bytes read from the file so far.
    pub fn raw_bytes(&self) -> u64 {
        self.stream.raw_bytes()
    }

    /// As [`Stream::check_unchanged`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since it was planned.
    pub fn check_unchanged(&self) -> Result<()> {
        self.stream.check_unchanged()
    }

    /// Returns the next piece, of about `target` bytes unless a single document is longer; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn next(&mut self, target: usize) -> Result<Option<DocumentCut>> {
        loop {
            if self.scanner.last.is_none() && self.buffer.len() as u64 > self.max_bytes {
                return self.skip_document().map(Some);
            }
            if self.ended || (self.buffer.len() >= target && self.scanner.last.is_some()) {
                break;
            }
            self.read()?;
        }
        let is_end = self.ended && self.damage.is_none() && !self.scanner.is_in_quotes();
        let whole = if is_end { self.buffer.len() } else { self.scanner.last.unwrap_or(0) };
        if whole > 0 {
            let rest = self.buffer.split_off(whole);
            let bytes = std::mem::replace(&mut self.buffer, rest);
            let offset = self.advance(whole);
            return Ok(Some(DocumentCut::Piece(LinePiece::Lines { offset, bytes })));
        }
        let (offset, bytes) = (self.offset, std::mem::take(&mut self.buffer).len() as u64);
        Ok(match self.damage.take() {
            Some(reject) => Some(DocumentCut::Broken { offset, reject }),
            None => (bytes > 0).then_some(DocumentCut::Unclosed { offset, bytes }),
        })
    }

    /// Skips to the next document without holding the current one in memory.
    fn skip_document(&mut self) -> Result<DocumentCut> {
        let offset = self.offset;
        loop {
            let bytes = match self.scanner.first {
                Some(first) => first,
                None if self.ended => self.buffer.len(),
                None => self.scanner.scanned(),
            };
            let is_found = self.scanner.first.is_some();
            self.buffer.drain(..bytes);
            self.advance(bytes);
            if let Some(reject) = self.damage.take().filter(|_| !is_found) {
                return Ok(DocumentCut::Broken { offset, reject });
            }
            if is_found || self.ended {
                let bytes = self.offset - offset;
                return Ok(match !is_found && self.scanner.is_in_quotes() {
                    true => DocumentCut::Unclosed { offset, bytes },
                    false => DocumentCut::Piece(LinePiece::Overlong { offset, bytes }),
                });
            }
            self.read()?;
        }
    }

    /// Records that the first `bytes` bytes were removed from the buffer. Returns their offset.
    fn advance(&mut self, bytes: usize) -> u64 {
        self.scanner.remove(bytes);
        let offset = self.offset;
        self.offset += bytes as u64;
        offset
    }

    fn read(&mut self) -> Result<()> {
        let have = self.buffer.len();
        self.buffer.resize(have + READ_BYTES, 0);
        let filled = match self.stream.fill(&mut self.buffer[have..]) {
            Ok(filled) => filled,
            Err(broken) => {
                self.damage = Some(broken.damage()?);
                0
            }
        };
        self.buffer.truncate(have + filled);
        self.members.extend(self.stream.take_member_starts());
        self.ended = filled == 0;
        self.scanner.scan(&self.buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::sample::RejectCode;
    use crate::source::io::compression::Compression;
    use crate::source::io::planned::PlannedFile;

    fn cutter(path: &Path, compression: Option<Compression>, rule: Rule, max_bytes: u64) -> DocumentCutter {
        let stream = Stream::open(&PlannedFile::now(path).unwrap(), compression).unwrap();
        DocumentCutter::new(stream, rule, max_bytes)
    }

    fn cuts(mut cutter: DocumentCutter, target: usize) -> Vec<DocumentCut> {
        std::iter::from_fn(|| cutter.next(target).unwrap()).collect()
    }

    /// Returns the documents of pieces, with their offsets.
    fn documents(rule: &Rule, cuts: &[DocumentCut]) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        for cut in cuts {
            let DocumentCut::Piece(LinePiece::Lines { offset, bytes }) = cut else { panic!("{cut:?}") };
            found.extend(
                rule.documents(bytes).into_iter().map(|d| (offset + d.start as u64, bytes[d].to_vec())),
            );
        }
        found
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        prop_oneof![
            Just(Rule::Lines),
            Just(Rule::BlankLines),
            Just(Rule::Separator(b"\n".as_slice().into())),
            Just(Rule::Separator(b"aa".as_slice().into())),
            Just(Rule::Separator(b"\na\"".as_slice().into())),
        ]
    }

    proptest! {
        #[test]
        fn pieces_hold_the_documents_of_the_whole(
            text in prop::collection::vec(prop::sample::select(b"aaaab \n\n\r\"".to_vec()), 0..400),
            rule in any_rule(),
            step in 1usize..9,
        ) {
            // A buffer that grows by a few bytes at a time, like the buffer of a stream.
            let mut scanner = Scanner::new(rule.clone());
            let (mut buffer, mut offset, mut found) = (Vec::new(), 0, Vec::new());
            for part in text.chunks(step) {
                buffer.extend_from_slice(part);
                scanner.scan(&buffer);
                if let Some(last) = scanner.last {
                    let piece: Vec<u8> = buffer.drain(..last).collect();
                    found.extend(rule.documents(&piece).into_iter().map(|d| (offset + d.start, piece[d].to_vec())));
                    offset += last;
                    scanner.remove(last);
                }
            }
            found.extend(rule.documents(&buffer).into_iter().map(|d| (offset + d.start, buffer[d].to_vec())));
            let whole: Vec<_> = rule.documents(&text).into_iter().map(|d| (d.start, text[d].to_vec())).collect();
            prop_assert_eq!(found, whole);
        }

        #[test]
        fn rows_end_where_the_csv_crate_ends_them(
            text in prop::collection::vec(prop::sample::select(b"ab,,\n\r\"\"".to_vec()), 0..200),
            step in 1usize..9,
        ) {
            let read = |bytes: &[u8]| {
                let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
                reader.byte_records().collect::<Result<Vec<_>, _>>().unwrap()
            };
            let mut scanner = Scanner::new(Rule::Rows { delimiter: b',' });
            let (mut buffer, mut found) = (Vec::new(), Vec::new());
            for part in text.chunks(step) {
                buffer.extend_from_slice(part);
                scanner.scan(&buffer);
                if let Some(last) = scanner.last {
                    found.extend(read(&buffer[..last]));
                    buffer.drain(..last);
                    scanner.remove(last);
                }
            }
            found.extend(read(&buffer));
            prop_assert_eq!(found, read(&text));
        }
    }

    #[test]
    fn overlong_documents_are_skipped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(3 * READ_BYTES);
        std::fs::write(file.path(), format!("one--{long}--three--{long}")).unwrap();
        let rule = Rule::Separator(b"--".as_slice().into());
        let found = cuts(cutter(file.path(), None, rule.clone(), 1000), 1);
        let length = long.len() as u64;
        let three = 7 + length;
        assert_eq!(
            found[1..],
            [
                DocumentCut::Piece(LinePiece::Overlong { offset: 5, bytes: length + 2 }),
                DocumentCut::Piece(LinePiece::Lines { offset: three, bytes: b"three--".to_vec() }),
                DocumentCut::Piece(LinePiece::Overlong { offset: three + 7, bytes: length }),
            ]
        );
        assert_eq!(documents(&rule, &found[..1]), [(0, b"one".to_vec())]);
    }

    #[test]
    fn a_quote_that_is_never_closed_ends_the_table() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows: String = (0..50_000).map(|i| format!("{i},text\r\n")).collect();
        let quoted = format!("{rows}50000,\"text\r\n{rows}");
        let unclosed =
            DocumentCut::Unclosed { offset: rows.len() as u64, bytes: (quoted.len() - rows.len()) as u64 };
        let rule = Rule::Rows { delimiter: b',' };
        for compression in [None, Some(Compression::Zstd)] {
            let bytes = match compression {
                None => quoted.clone().into_bytes(),
                Some(_) => zstd::encode_all(quoted.as_bytes(), 1).unwrap(),
            };
            std::fs::write(file.path(), bytes).unwrap();
            for (target, max_bytes) in [(1, 1 << 30), (1, 1000), (1000, 1 << 30), (1 << 30, 1 << 30)] {
                let mut found = cuts(cutter(file.path(), compression, rule.clone(), max_bytes), target);
                assert_eq!(found.pop().as_ref(), Some(&unclosed), "{target} {max_bytes}");
                let whole: Vec<u8> = found
                    .into_iter()
                    .flat_map(|cut| match cut {
                        DocumentCut::Piece(LinePiece::Lines { bytes, .. }) => bytes,
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert!(whole == rows.as_bytes(), "{target} {max_bytes}");
            }
        }
    }

    #[test]
    fn damage_keeps_what_came_before() {
        let lines: String = (0..50_000).map(|i| format!("line {i}\n")).collect();
        let whole = zstd::encode_all(lines.as_bytes(), 1).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        let mut found = cuts(cutter(file.path(), Some(Compression::Zstd), Rule::Lines, 1 << 20), 1000);
        let Some(DocumentCut::Broken { offset, reject }) = found.pop() else {
            panic!("{} cuts", found.len())
        };
        assert_eq!(reject.code, RejectCode::Truncated);
        let documents = documents(&Rule::Lines, &found);
        assert!(documents.len() > 50_000 && documents.len() < 100_000);
        let (at, last) = documents.last().unwrap();
        assert_eq!(at + last.len() as u64 + 1, offset);
        assert!(
            documents.iter().zip((0..50_000).cycle()).all(|((_, d), i)| *d == format!("line {i}").as_bytes())
        );
    }

    #[test]
    fn decompression_bombs_are_stopped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), zstd::encode_all(std::io::repeat(0).take(1 << 28), 19).unwrap()).unwrap();
        let found = cuts(cutter(file.path(), Some(Compression::Zstd), Rule::Whole, 1 << 20), 1000);
        assert!(
            matches!(&found[..], [DocumentCut::Broken { offset: 0, reject }] if reject.code == RejectCode::TooLarge)
        );
    }
}
