//! Plain text, whose documents an option defines.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::pieces::{self, Pieces};
use super::source::{
    BYTES_HELD_PER_BYTE, Division, ExaminedFile, FilePlan, ItemContext, SectionFile, SectionReader,
    SingleBlock, SourceTask, TaskBlock, TextItem, TextSource,
};
use crate::error::Result;
use crate::recipe::TextRecipe;
use crate::sample::{Reject, Value};
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::encoding::{MAX_GROWTH, to_utf8, without_bom};
use crate::source::io::opened::OpenedFile;
use crate::source::items::text::cut::{Rule, lines};
use crate::source::items::text::fields::SourceDocument;
use crate::source::items::text::kind::Documents;
use crate::source::list::source_file::SourceFile;
use crate::writer::outcome::Outcomes;

/// Plain text.
pub(super) struct PlainText;

impl TextSource for PlainText {
    fn plan(&self, file: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        let division = match file.recipe.documents {
            Documents::Line => Division::AtLineEnds,
            _ => Division::Whole,
        };
        Ok(FilePlan { division, ..FilePlan::default() })
    }

    fn open<'a>(&'static self, section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        let recipe = section.context.recipe;
        let is_document = self.is_document(recipe);
        if is_document && section.kind.compression.is_none() && section.stdin.is_none() {
            let source_bytes = section.file.bytes;
            let text_bytes = source_bytes.saturating_mul(recipe.encoding.map_or(1, |_| MAX_GROWTH));
            let held = text_bytes.min(recipe.max_document_bytes).saturating_mul(BYTES_HELD_PER_BYTE);
            let items = Box::new(DocumentTask { file: section.file, opened: section.opened, text: None });
            return Ok(SingleBlock::boxed(TaskBlock { items, member: None, source_bytes, held }));
        }
        let rule = rule(&recipe.documents);
        pieces::open(self, section, rule.clone(), TextPieces { rule, is_document })
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_document(&self, recipe: &TextRecipe) -> bool {
        recipe.documents == Documents::File
    }
}

/// Returns the rule that divides plain text into documents.
fn rule(documents: &Documents) -> Rule {
    match documents {
        Documents::File => Rule::Whole,
        Documents::Line => Rule::Lines,
        Documents::BlankLine => Rule::BlankLines,
        Documents::Separator(separator) => Rule::Separator(separator.clone()),
    }
}

/// A file that is one document.
struct DocumentTask {
    file: Arc<SourceFile>,
    /// The file, if its bytes were requested in advance.
    opened: Option<OpenedFile>,
    /// The document, once it is read.
    text: Option<Result<Vec<u8>, Reject>>,
}

impl DocumentTask {
    fn read(&self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Vec<u8>, Broken> {
        let ItemContext { sources, follow_symlinks, recipe, .. } = context;
        context.check_length(self.file.bytes as usize)?;
        let started = Instant::now();
        let bytes = self.file.read_opened(sources, *follow_symlinks, self.opened.as_ref())?;
        out.add_content(&bytes);
        out.reading += started.elapsed();
        if let Some(found) = Compression::sniff(&bytes) {
            return Err(found.unexpected().into());
        }
        let text = to_utf8(bytes, recipe.encoding)?;
        context.check_length(text.len())?;
        Ok(text)
    }
}

impl SourceTask for DocumentTask {
    fn end(&self) -> u64 {
        0
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        if self.text.is_some() {
            return Ok(None);
        }
        let text = match self.read(context, out) {
            Ok(text) => Ok(text),
            Err(Broken::Damaged(reject)) => Err(reject),
            Err(Broken::Failed(error)) => return Err(error),
        };
        let text = self.text.insert(text).as_deref().map_err(Reject::clone);
        let document = text.and_then(|text| document(without_bom(text), context, out));
        Ok(Some(TextItem { mark: None, document }))
    }
}

/// Pieces with whole documents.
struct TextPieces {
    rule: Rule,
    is_document: bool,
}

impl Pieces for TextPieces {
    fn task(&self, offset: u64, bytes: Vec<u8>) -> Box<dyn SourceTask> {
        let (rule, is_document) = (self.rule.clone(), self.is_document);
        Box::new(TextTask { offset, bytes, rule, is_document, documents: None })
    }

    fn what(&self) -> &'static str {
        "document"
    }

    fn mark(&self, offset: u64) -> Option<u64> {
        (!self.is_document).then_some(offset)
    }
}

/// Documents that follow each other in a file.
struct TextTask {
    offset: u64,
    bytes: Vec<u8>,
    rule: Rule,
    is_document: bool,
    /// Those that were not yet returned.
    documents: Option<std::vec::IntoIter<Range<usize>>>,
}

impl SourceTask for TextTask {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let Self { offset, bytes, rule, is_document, documents } = self;
        let documents = documents.get_or_insert_with(|| {
            out.add_content(bytes);
            rule.documents(bytes).into_iter()
        });
        for range in documents {
            let start = *offset + range.start as u64;
            let mut text = &bytes[range];
            if start == 0 {
                text = without_bom(text);
                if matches!(rule, Rule::BlankLines) {
                    // The byte order mark was part of a blank line.
                    text = without_blank_lines(text);
                    if text.is_empty() {
                        continue;
                    }
                }
            }
            let document = context.check_length(text.len()).and_then(|()| document(text, context, out));
            return Ok(Some(TextItem { mark: (!*is_document).then_some(start), document }));
        }
        Ok(None)
    }
}

fn document<'a>(
    bytes: &'a [u8],
    context: &ItemContext<'_>,
    out: &mut Outcomes,
) -> Result<SourceDocument<'a>, Reject> {
    let text = context.utf8(bytes, "the document", out)?;
    let kept = vec![Value::Null; context.fields.len()];
    Ok(SourceDocument { key: None, text, ids: None, kept, unread: Vec::new() })
}

/// Removes the blank lines at the start of a document.
fn without_blank_lines(document: &[u8]) -> &[u8] {
    let first = lines(document).find(|(_, line)| !line.trim_ascii().is_empty());
    first.map_or(&[], |(at, _)| &document[at..])
}
