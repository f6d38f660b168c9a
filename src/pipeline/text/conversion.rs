//! What a conversion of text needs of a plan.

use std::sync::{Mutex, PoisonError};

use super::chat::Chats;
use super::ids::TokenIds;
use super::multimodal::Multimodal;
use super::options::TextInput;
use super::plan::{FileSection, TextFile};
use super::sources::source::ItemContext;
use super::sources::source_of;
use crate::error::Result;
use crate::pipeline::job::Job;
use crate::pipeline::job_file::JobHeader;
use crate::recipe::TextRecipe;
use crate::schema::Field;
use crate::source::io::stream::Stream;
use crate::source::items::json_line::WantedFields;
use crate::source::items::text::fields::TextFields;
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
    /// Fields to read beside the text: the kept ones, and perhaps one that decides the split.
    pub(super) fields: Vec<Field>,
    /// Requested fields of a line of JSON.
    pub(super) wanted: WantedFields,
    /// If items are chats or pairs.
    pub(super) chats: Option<Chats>,
    /// If chats may have images.
    pub(super) multimodal: Option<Multimodal>,
    /// If items are token ids.
    pub(super) ids: Option<TokenIds>,
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
        let text = recipe.text_fields();
        let wanted = WantedFields::new(&text, recipe.key_field.as_deref(), &fields);
        let multimodal = Multimodal::new(&recipe.multimodal)?;
        let image = multimodal.as_ref().map(|multimodal| &multimodal.processor);
        let chats = Chats::new(&recipe.chat, &tokenizer, image)?;
        let ids = TokenIds::new(&recipe, &tokenizer)?;
        let stdin = Mutex::default();
        Ok(Self {
            input,
            recipe,
            tokenizer,
            details,
            sections,
            text,
            fields,
            wanted,
            chats,
            multimodal,
            ids,
            stdin,
        })
    }

    /// Returns whether the whole file is one document.
    pub(super) fn is_document(&self, file: &TextFile) -> bool {
        source_of(file.kind.format).is_document(&self.recipe)
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
    /// Returns what determines the items of files besides their content.
    pub(super) fn item_context(&self) -> ItemContext<'_> {
        let TextConversion { recipe, text, fields, wanted, .. } = &self.conversion;
        let JobHeader { sources, follow_symlinks, .. } = &self.header;
        ItemContext { sources, follow_symlinks: *follow_symlinks, recipe, text, fields, wanted }
    }
}
