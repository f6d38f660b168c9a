//! What a conversion of text needs of a plan.

use std::sync::{Mutex, PoisonError};

use super::chat::Chats;
use super::items;
use super::options::TextInput;
use super::plan::{Extent, FileSection, TextFile};
use crate::error::Result;
use crate::pipeline::job::Job;
use crate::recipe::TextRecipe;
use crate::schema::Field;
use crate::source::io::opened::OpenedFile;
use crate::source::io::stream::Stream;
use crate::source::items::json_line::WantedFields;
use crate::source::items::text::cut::Rule;
use crate::source::items::text::fields::TextFields;
use crate::source::items::text::kind::{Documents, TextFormat};
use crate::source::items::text::rows::RequestedColumns;
use crate::source::list::source_file::SourceFile;
use crate::transform::text::Tokenizer;

/// A planned conversion of text. Its units are ranges of sections.
pub type TextJob = Job<TextConversion>;

/// What only a conversion of text needs of a plan.
pub struct TextConversion {
    pub(super) input: TextInput,
    pub(super) recipe: TextRecipe,
    pub(super) tokenizer: Tokenizer,
    /// One per file.
    pub(super) details: Vec<TextFile>,
    /// In record order.
    pub(super) sections: Vec<FileSection>,
    /// Fields of the text.
    pub(super) text: TextFields,
    /// Kept fields.
    pub(super) fields: Vec<Field>,
    /// The rule that divides plain text into documents.
    pub(super) rule: Rule,
    /// Requested fields of a line of JSON.
    pub(super) wanted: WantedFields,
    /// If items are chats or pairs.
    pub(super) chats: Option<Chats>,
    /// Standard input, if it is the source and not yet read.
    pub(super) stdin: Mutex<Option<Stream>>,
}

impl TextConversion {
    pub(super) fn new(
        input: TextInput,
        recipe: TextRecipe,
        tokenizer: Tokenizer,
        details: Vec<TextFile>,
        sections: Vec<FileSection>,
        fields: Vec<Field>,
    ) -> Result<Self> {
        let rule = items::rule(&recipe.documents);
        let text = recipe.text_fields();
        let wanted = WantedFields::new(&text, recipe.key_field.as_deref(), &fields);
        let chats = Chats::new(&recipe.chat, &tokenizer)?;
        let stdin = Mutex::default();
        Ok(Self { input, recipe, tokenizer, details, sections, text, fields, rule, wanted, chats, stdin })
    }

    /// Returns the columns to request from tables without types.
    pub(super) fn requested_columns(&self) -> RequestedColumns<'_> {
        RequestedColumns { text: &self.text, key: self.recipe.key_field.as_deref(), fields: &self.fields }
    }

    /// Returns whether the whole file is one document.
    pub(super) fn is_document(&self, file: &TextFile) -> bool {
        file.kind.format == TextFormat::Text && self.recipe.documents == Documents::File
    }

    /// Returns what is known of the file of the section with the ordinal `section`.
    pub(super) fn detail_of(&self, section: usize) -> &TextFile {
        &self.details[self.sections[section].file]
    }

    /// Returns standard input, including the bytes that the plan has examined. `None` after the first call.
    pub(super) fn take_stdin(&self) -> Option<Stream> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl TextJob {
    /// Requests the bytes of `section` of `file` in advance, if it is in object storage.
    pub(super) fn open_section_ahead(&self, section: &FileSection, file: &SourceFile) -> Option<OpenedFile> {
        let TextConversion { details, recipe, .. } = &self.conversion;
        let detail = &details[section.file];
        let is_too_long = self.conversion.is_document(detail) && file.bytes > recipe.max_document_bytes;
        if detail.defect.is_some() || detail.kind.format == TextFormat::Parquet || is_too_long {
            return None;
        }
        match &section.extent {
            Extent::Lines(bytes) => self.planned(file).open_ahead(bytes.clone()),
            _ => self.open_ahead(file),
        }
    }
}
