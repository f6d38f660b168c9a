//! Extraction of documents from the input of a task: UTF-8, lines, fields, rows.

use std::borrow::Cow;
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use super::conversion::{TextConversion, TextJob};
use super::duplicates::DocumentPosition;
use super::feed::TextTask;
use super::section_reader::TaskInput;
use crate::error::Result;
use crate::panics::contained;
use crate::pipeline::job::Converting;
use crate::pipeline::outcome::Outcomes;
use crate::sample::{Record, Reject, RejectCode, Value};
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::encoding::to_utf8;
use crate::source::io::encoding::without_bom;
use crate::source::io::lines::LinePiece;
use crate::source::io::opened::OpenedFile;
use crate::source::items::text::cut::{Rule, lines};
use crate::source::items::text::fields::{SourceDocument, TextFields};
use crate::source::items::text::kind::{Documents, TextFormat};
use crate::source::list::source_file::SourceFile;
use crate::source::table::delimited::unclosed_quote;

/// A consumer of the items of a task, called for each item in order.
pub(super) trait ItemSink {
    /// Called with a document, or with the reason why there is none.
    fn item(
        &mut self,
        position: DocumentPosition,
        item: Result<SourceDocument<'_>, Reject>,
        out: &mut Outcomes,
    ) -> Converting;
}

impl TextJob {
    /// Passes the items of a task to `sink`.
    ///
    /// # Errors
    ///
    /// Fails only for reasons other than the bytes of an item.
    pub(super) fn for_each_item(
        &self,
        task: TextTask,
        sink: &mut impl ItemSink,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        out.source_bytes += task.source_bytes;
        let TextConversion { recipe, text, fields, .. } = &self.conversion;
        let section = task.section;
        let format = self.conversion.detail_of(section).kind.format;
        let position = |mark| DocumentPosition { section, mark };
        Ok(match task.input {
            TaskInput::Defect { mark, reject } => sink.item(position(mark), Err(reject), out),
            TaskInput::UnclosedQuote { offset, bytes } => {
                out.count("unclosed_quote_bytes", bytes);
                sink.item(position(Some(offset)), Err(unclosed_quote(offset, bytes)), out)
            }
            TaskInput::Lines(LinePiece::Overlong { offset, bytes }) => {
                let mark = self.mark(section, offset);
                let what = match format {
                    TextFormat::JsonLines => "line",
                    TextFormat::Json => "element",
                    _ => "document",
                };
                sink.item(position(mark), Err(self.too_long(what, bytes)), out)
            }
            TaskInput::Lines(LinePiece::Lines { offset, bytes }) => {
                out.add_content(&bytes);
                match format {
                    TextFormat::JsonLines | TextFormat::Json => {
                        self.json_lines(section, offset, &bytes, sink, out)
                    }
                    _ => self.texts(section, offset, &bytes, sink, out),
                }
            }
            TaskInput::Rows { header, offset, bytes } => {
                out.add_content(&bytes);
                let mut converting = Converting::Done;
                let wanted = self.conversion.requested_columns();
                header.rows(&bytes, wanted, recipe.replaces_invalid_utf8(), |at, row| {
                    let row = row.and_then(|row| self.check_length(row.text.len()).map(|()| row));
                    converting = sink.item(position(Some(offset + at as u64)), row, out);
                    converting == Converting::Done
                });
                converting
            }
            TaskInput::File(opened) => self.file_item(section, &task.file, opened.as_ref(), sink, out)?,
            TaskInput::Batch { columns, rows } => {
                let mut hash = Xxh3::new();
                let mut converting = Converting::Done;
                let lossy = recipe.replaces_invalid_utf8();
                for (at, row) in columns.documents(&rows, text, fields, lossy).enumerate() {
                    let mark = rows.first().saturating_add(at as u64);
                    hash.update(&[u8::from(row.is_ok())]);
                    let document = row.and_then(|row| {
                        hash.update(&(row.text.len() as u64).to_le_bytes());
                        hash.update(row.text.as_bytes());
                        hash.update(row.key.as_deref().unwrap_or_default().as_bytes());
                        // A text of several fields is always a copy.
                        if matches!((text, &row.text), (TextFields::Text(_), Cow::Owned(_))) {
                            out.note("invalid_utf8_replaced");
                        }
                        self.check_length(row.text.len())?;
                        let kept = Record { values: row.kept };
                        hash.update(&kept.crc32c().to_le_bytes());
                        Ok(SourceDocument { kept: kept.values, ..row })
                    });
                    converting = sink.item(position(Some(mark)), document, out);
                    if converting == Converting::RedoUnit {
                        break;
                    }
                }
                out.content.push(hash.digest128());
                converting
            }
        })
    }

    /// Returns the mark of the document at `offset` in a text file.
    fn mark(&self, section: usize, offset: u64) -> Option<u64> {
        (!self.conversion.is_document(self.conversion.detail_of(section))).then_some(offset)
    }

    /// Passes on a file that is one document.
    fn file_item(
        &self,
        section: usize,
        file: &SourceFile,
        opened: Option<&OpenedFile>,
        sink: &mut impl ItemSink,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        let position = DocumentPosition { section, mark: None };
        if let Err(reject) = self.check_length(file.bytes as usize) {
            return Ok(sink.item(position, Err(reject), out));
        }
        let started = Instant::now();
        let bytes = match file.read_opened(&self.header.sources, self.header.follow_symlinks, opened) {
            Ok(bytes) => bytes,
            Err(Broken::Damaged(reject)) => return Ok(sink.item(position, Err(reject), out)),
            Err(Broken::Failed(error)) => return Err(error),
        };
        out.add_content(&bytes);
        out.reading += started.elapsed();
        let text = match Compression::sniff(&bytes) {
            Some(found) => Err(found.unexpected()),
            None => to_utf8(bytes, self.conversion.recipe.encoding),
        };
        let text = text.and_then(|text| self.check_length(text.len()).map(|()| text));
        let document =
            text.as_deref().map_err(Reject::clone).and_then(|text| self.text(without_bom(text), out));
        Ok(sink.item(position, document, out))
    }

    /// Passes on the documents of plain text.
    fn texts(
        &self,
        section: usize,
        offset: u64,
        bytes: &[u8],
        sink: &mut impl ItemSink,
        out: &mut Outcomes,
    ) -> Converting {
        let rule = &self.conversion.rule;
        for (at, document) in rule.documents(bytes) {
            let start = offset + at as u64;
            let mut document = without_bom_at(start, document);
            if start == 0 && matches!(rule, Rule::BlankLines) {
                // The byte order mark was part of a blank line.
                document = without_blank_lines(document);
                if document.is_empty() {
                    continue;
                }
            }
            let position = DocumentPosition { section, mark: self.mark(section, start) };
            let document = self.check_length(document.len()).and_then(|()| self.text(document, out));
            if sink.item(position, document, out) == Converting::RedoUnit {
                return Converting::RedoUnit;
            }
        }
        Converting::Done
    }

    fn text<'a>(&self, bytes: &'a [u8], out: &mut Outcomes) -> Result<SourceDocument<'a>, Reject> {
        let text = self.utf8(bytes, "the document", out)?;
        let kept = vec![Value::Null; self.conversion.fields.len()];
        Ok(SourceDocument { key: None, text, kept, unread: Vec::new() })
    }

    fn json_lines(
        &self,
        section: usize,
        offset: u64,
        bytes: &[u8],
        sink: &mut impl ItemSink,
        out: &mut Outcomes,
    ) -> Converting {
        // An empty array, or a comma after the last element, leaves a line that is not an element.
        let is_array = self.conversion.detail_of(section).kind.format == TextFormat::Json;
        for (at, line) in lines(bytes).filter(|(_, line)| !(is_array && line.trim_ascii().is_empty())) {
            let start = offset + at as u64;
            let position = DocumentPosition { section, mark: Some(start) };
            let converting = match self.check_length(line.len()) {
                Err(reject) => sink.item(position, Err(reject), out),
                Ok(()) => {
                    let line = without_bom_at(start, line.strip_suffix(b"\n").unwrap_or(line));
                    self.json_line(position, line, sink, out)
                }
            };
            if converting == Converting::RedoUnit {
                return Converting::RedoUnit;
            }
        }
        Converting::Done
    }

    fn json_line(
        &self,
        position: DocumentPosition,
        line: &[u8],
        sink: &mut impl ItemSink,
        out: &mut Outcomes,
    ) -> Converting {
        let replaced = match self.conversion.recipe.replaces_invalid_utf8() {
            true => self.utf8(line, "the line", out),
            // The parser validates the line itself.
            false => Ok(Cow::Borrowed("")),
        };
        let line = match &replaced {
            Ok(Cow::Owned(replaced)) => replaced.as_bytes(),
            _ => line,
        };
        let document = contained(|| self.conversion.wanted.find(line));
        sink.item(position, document, out)
    }

    /// Decodes bytes as text, replacing invalid UTF-8 if requested.
    fn utf8<'a>(&self, bytes: &'a [u8], what: &str, out: &mut Outcomes) -> Result<Cow<'a, str>, Reject> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) if self.conversion.recipe.replaces_invalid_utf8() => {
                out.note("invalid_utf8_replaced");
                Ok(String::from_utf8_lossy(bytes))
            }
            Err(e) => Err(Reject::not_utf8(what, &e)),
        }
    }

    fn check_length(&self, bytes: usize) -> Result<(), Reject> {
        match bytes as u64 > self.conversion.recipe.max_document_bytes {
            true => Err(self.too_long("document", bytes as u64)),
            false => Ok(()),
        }
    }

    fn too_long(&self, what: &str, bytes: u64) -> Reject {
        let limit = self.conversion.recipe.max_document_bytes;
        Reject::new(
            RejectCode::TooLarge,
            format!("the {what} has {bytes} bytes, more than `max_document_bytes {limit}`"),
        )
    }
}

/// Removes the byte order mark from the first document of a file.
fn without_bom_at(offset: u64, bytes: &[u8]) -> &[u8] {
    if offset == 0 { without_bom(bytes) } else { bytes }
}

/// Removes the blank lines at the start of a document.
fn without_blank_lines(document: &[u8]) -> &[u8] {
    let first = lines(document).find(|(_, line)| !line.trim_ascii().is_empty());
    first.map_or(&[], |(at, _)| &document[at..])
}

/// Returns the rule that divides plain text into documents.
pub(super) fn rule(documents: &Documents) -> Rule {
    match documents {
        Documents::File => Rule::Whole,
        Documents::Line => Rule::Lines,
        Documents::BlankLine => Rule::BlankLines,
        Documents::Separator(separator) => Rule::Separator(separator.clone()),
    }
}
