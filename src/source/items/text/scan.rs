//! Detection of document boundaries in a stream of bytes that arrives piece by piece.
//!
//! A *boundary* is a position that no document spans. The scanner keeps a few words of state, so that a document of any
//! length is scanned only once.

use std::ops::Range;
use std::sync::Arc;

use memchr::{memchr, memmem, memrchr};

use crate::source::table::row_scan::RowScanner;

/// UTF-8 byte order mark.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// How a stream is divided into documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Not divided.
    Whole,
    /// After each line.
    Lines,
    /// After each line that consists only of spaces, tabs and carriage returns.
    BlankLines,
    /// After each occurrence of these bytes (at least one byte).
    Separator(Arc<[u8]>),
    /// After each row of a table of quoted values, as defined by RFC 4180 and the `csv` crate.
    Rows {
        /// Separator of values.
        delimiter: u8,
    },
}

impl Rule {
    /// Returns the positions of the documents in `piece`. The piece must lie between two boundaries, or between a
    /// boundary and the end of the file. Separators are not part of documents. Tables are not divided.
    pub fn documents(&self, piece: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        match self {
            Rule::Whole | Rule::Rows { .. } => found.push(0..piece.len()),
            Rule::Lines => {
                found.extend(lines(piece).map(|(at, line)| at..at + without_line_end(line).len()));
            }
            Rule::Separator(separator) => {
                let mut at = 0;
                for end in memmem::find_iter(piece, &**separator).chain([piece.len()]) {
                    // The rest after the last separator is a document only if it is not empty.
                    if at < piece.len() {
                        found.push(at..end);
                    }
                    at = end + separator.len();
                }
            }
            Rule::BlankLines => {
                let mut start = None;
                for (at, line) in lines(piece) {
                    if line.iter().all(|&b| is_blank(b)) {
                        found.extend(
                            start
                                .take()
                                .map(|start| start..start + without_line_end(&piece[start..at]).len()),
                        );
                    } else {
                        start.get_or_insert(at);
                    }
                }
                found.extend(start.map(|start| start..start + without_line_end(&piece[start..]).len()));
            }
        }
        found
    }
}

/// Returns the lines of `piece` with their line ends and offsets.
pub fn lines(piece: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let line = line_at(piece, at)?;
        at += line.len();
        Some((at - line.len(), line))
    })
}

/// Returns the line of `piece` that starts at `at`, with its line end; `None` at the end.
pub fn line_at(piece: &[u8], at: usize) -> Option<&[u8]> {
    let rest = piece.get(at..).filter(|rest| !rest.is_empty())?;
    Some(&rest[..memchr(b'\n', rest).map_or(rest.len(), |end| end + 1)])
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn without_line_end(line: &[u8]) -> &[u8] {
    // A carriage return alone is an ordinary character, at the end of a file, too.
    line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Finds boundaries in a buffer that grows at its end and is drained from its start.
#[derive(Debug)]
pub(super) struct Scanner {
    rule: Rule,
    /// Bytes of the buffer that need not be scanned again.
    scanned: usize,
    /// The first and the last boundary found since the last call of [`Self::remove`].
    pub(super) first: Option<usize>,
    pub(super) last: Option<usize>,
    /// State of a table.
    rows: RowScanner,
    /// Whether the byte order mark of a table was skipped, or is known to be missing.
    started: bool,
    /// Whether the line has had only whitespace so far.
    blank: bool,
}

impl Scanner {
    pub(super) fn new(rule: Rule) -> Self {
        let delimiter = if let Rule::Rows { delimiter } = rule { delimiter } else { b',' };
        let rows = RowScanner::new(delimiter);
        Self { rule, scanned: 0, first: None, last: None, rows, started: false, blank: true }
    }

    /// Scans the bytes that were added to the buffer.
    pub(super) fn scan(&mut self, buffer: &[u8]) {
        let from = self.scanned;
        let fresh = &buffer[from..];
        self.scanned = buffer.len();
        match &self.rule {
            Rule::Whole => {}
            Rule::Lines => {
                if let Some(last) = memrchr(b'\n', fresh) {
                    let first = memchr(b'\n', fresh).unwrap_or(last);
                    self.add_boundary(from + first + 1);
                    self.add_boundary(from + last + 1);
                }
            }
            Rule::Separator(separator) => {
                let length = separator.len();
                let ends: Vec<usize> =
                    memmem::find_iter(fresh, &**separator).map(|at| from + at + length).collect();
                // The last bytes may be the start of a separator.
                self.scanned = from.max(buffer.len().saturating_sub(length - 1));
                for end in ends {
                    self.scanned = self.scanned.max(end);
                    self.add_boundary(end);
                }
            }
            Rule::BlankLines => {
                let mut at = from;
                while let Some(&byte) = buffer.get(at) {
                    if byte == b'\n' {
                        if self.blank {
                            self.add_boundary(at + 1);
                        }
                        self.blank = true;
                    } else if !is_blank(byte) {
                        self.blank = false;
                        // The rest of the line does not matter.
                        let Some(end) = memchr(b'\n', &buffer[at..]) else { break };
                        at += end;
                        continue;
                    }
                    at += 1;
                }
            }
            Rule::Rows { .. } => {
                let mut from = from;
                if !self.started {
                    if buffer.len() < BOM.len() && BOM.starts_with(buffer) {
                        self.scanned = 0;
                        return;
                    }
                    self.started = true;
                    // A quote after the mark is at the start of a cell.
                    from = if buffer.starts_with(BOM) { BOM.len() } else { 0 };
                }
                let (first, last) = (&mut self.first, &mut self.last);
                self.rows.scan(&buffer[from..], |end| {
                    first.get_or_insert(from + end);
                    *last = Some(from + end);
                });
            }
        }
    }

    fn add_boundary(&mut self, boundary: usize) {
        self.first.get_or_insert(boundary);
        self.last = Some(boundary);
    }

    /// Records that the first `bytes` of the buffer were removed. They must end at a boundary, unless none was found.
    pub(super) fn remove(&mut self, bytes: usize) {
        self.scanned = self.scanned.saturating_sub(bytes);
        self.first = None;
        self.last = self.last.and_then(|last| last.checked_sub(bytes)).filter(|&last| last > 0);
    }

    /// Returns the number of bytes that may be removed even if no boundary was found.
    pub(super) fn scanned(&self) -> usize {
        self.scanned
    }
    /// Returns whether the bytes that were scanned end inside a quoted value of a table.
    pub(super) fn is_in_quotes(&self) -> bool {
        self.rows.is_in_quotes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carriage_return_is_part_of_a_line_end_only_before_a_line_feed() {
        let texts = |rule: &Rule, piece: &'static [u8]| -> Vec<&[u8]> {
            rule.documents(piece).into_iter().map(|range| &piece[range]).collect()
        };
        assert_eq!(texts(&Rule::Lines, b"a\r\nb\r"), [&b"a"[..], b"b\r"]);
        assert_eq!(texts(&Rule::BlankLines, b"a\r\n\r\nb\n\nc\r"), [&b"a"[..], b"b", b"c\r"]);
    }
}
