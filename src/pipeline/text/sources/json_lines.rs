//! Objects of JSON: one per line, or the elements of an array.

use std::borrow::Cow;

use super::pieces::{self, Pieces};
use super::source::{
    Division, ExaminedFile, FieldNames, FilePlan, ItemContext, SectionFile, SectionReader, SourceTask,
    TextItem, TextSource,
};
use crate::error::Result;
use crate::panics::contained;
use crate::source::io::broken::Broken;
use crate::source::io::encoding::{TextEncoding, without_bom};
use crate::source::io::stream::Stream;
use crate::source::items::text::cut::{Rule, line_at};
use crate::writer::outcome::Outcomes;

/// A file of JSON objects.
pub(super) struct JsonFile {
    /// Whether the objects may be the elements of an array, which are read as lines.
    pub(super) is_array: bool,
}

impl TextSource for JsonFile {
    fn plan(&self, _: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        let division = if self.is_array { Division::Whole } else { Division::AtLineEnds };
        Ok(FilePlan { division, ..FilePlan::default() })
    }

    fn open<'a>(&'static self, section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        pieces::open(self, section, Rule::Lines, self)
    }

    fn may_hold_ids(&self) -> bool {
        true
    }

    fn decoded(&self, stream: Stream, given: Option<TextEncoding>) -> Stream {
        let stream = stream.with_encoding(given);
        if self.is_array { stream.with_array_lines() } else { stream }
    }

    fn field_names(&self) -> FieldNames {
        FieldNames::InLines
    }
}

impl Pieces for &JsonFile {
    fn task(&self, offset: u64, bytes: Vec<u8>) -> Box<dyn SourceTask> {
        Box::new(LinesTask { offset, bytes, at: 0, is_array: self.is_array, replaced: String::new() })
    }

    fn what(&self) -> &'static str {
        if self.is_array { "element" } else { "line" }
    }
}

/// Lines that follow each other in a file.
struct LinesTask {
    offset: u64,
    bytes: Vec<u8>,
    /// Start of the next line in `bytes`.
    at: usize,
    is_array: bool,
    /// The current line, if invalid UTF-8 in it was replaced.
    replaced: String,
}

impl SourceTask for LinesTask {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        if self.at == 0 {
            out.add_content(&self.bytes);
        }
        while let Some(line) = line_at(&self.bytes, self.at) {
            let start = self.offset + self.at as u64;
            self.at += line.len();
            // An empty array, or a comma after the last element, leaves a line that is not an element.
            if self.is_array && line.trim_ascii().is_empty() {
                continue;
            }
            let mark = Some(start);
            if let Err(reject) = context.check_length(line.len()) {
                return Ok(Some(TextItem { mark, document: Err(reject) }));
            }
            let mut line = line.strip_suffix(b"\n").unwrap_or(line);
            if start == 0 {
                line = without_bom(line);
            }
            // The parser validates a line in which nothing is replaced.
            if context.is_lossy()
                && let Ok(Cow::Owned(replaced)) = context.utf8(line, "the line", out)
            {
                self.replaced = replaced;
                line = self.replaced.as_bytes();
            }
            return Ok(Some(TextItem { mark, document: contained(|| context.wanted.find(line)) }));
        }
        Ok(None)
    }
}
