//! Storage of a planned conversion of text for other processes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::options::{TextInput, TextShape};
use super::plan::{self, FileSection, TextFile};
use super::{TextJob, TextOptions, items, unit_bytes, wanted_fields};
use crate::build_id::BUILD_ID;
use crate::error::{Error, Result};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter, OpenedJob, StoredJob};
use crate::schema::{Field, Kind, Schema};
use crate::source::encoding::TextEncoding;
use crate::source::file_list::SourceFiles;
use crate::source::layout::FolderLayout;
use crate::source::metadata::Keep;
use crate::source::source_file::SourceFile;
use crate::source::split_by::SplitBy;
use crate::source::text::kind::{Documents, FileKind};
use crate::transform::text::{Normalize, Tokenizer, TokenizerOptions, usage_error};

/// The first line specific to text in a stored job. One line per file and one per section follow.
#[derive(Serialize, Deserialize)]
struct StoredText<'a> {
    input: TextInput,
    input_format: Option<FileKind>,
    follow_symlinks: bool,
    layout: FolderLayout,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<TextEncoding>,
    documents: Documents,
    tokenizer: Cow<'a, TokenizerOptions>,
    text_field: Cow<'a, str>,
    key_field: Option<Cow<'a, str>>,
    keep_fields: Cow<'a, [Keep]>,
    replace_invalid_utf8: bool,
    max_document_bytes: u64,
    normalize: Normalize,
    shape: TextShape,
    dedup: bool,
    split_by: Option<SplitBy>,
    file_splits: Cow<'a, [u16]>,
    units: Cow<'a, [Range<usize>]>,
    fields: Cow<'a, [Field]>,
    #[serde(rename = "parts")]
    sections: usize,
}

impl StoredJob for TextJob {
    fn header(&self) -> Result<JobHeader> {
        let info = serde_json::to_value(self.options.tokenizer.info())
            .map_err(|e| Error::not_serialized("the description of the tokenizer", e))?;
        Ok(JobHeader {
            build: BUILD_ID.to_owned(),
            plan: String::new(),
            listing: String::new(),
            kind: Kind::Text,
            options: self.described.clone(),
            output: self.options.output.clone(),
            sources: self.sources.clone(),
            walked: self.options.input == TextInput::Walk,
            follow_symlinks: self.options.follow_symlinks,
            files: self.files.len() as u64,
            skipped: self.skipped.clone(),
            units: self.units.len() as u32,
            unit_bytes: unit_bytes(&self.options.output),
            unit_pieces: plan::UNIT_SECTIONS as u64,
            tokenizer: Some(info),
            schema: Schema::clone(&self.schema),
            splits: self.splits.clone(),
        })
    }

    fn files(&self) -> SourceFiles<'_> {
        SourceFiles::Slice(&self.files)
    }

    fn files_of_unit(&self, unit: u32) -> Vec<SourceFile> {
        let sections = self.units.get(unit as usize).and_then(|unit| self.sections.get(unit.clone()));
        // Shuffled sections are not in the order of their files.
        let files: BTreeSet<_> = sections.unwrap_or_default().iter().map(|section| section.file).collect();
        files.into_iter().filter_map(|file| self.files.get(file)).cloned().collect()
    }

    fn tokenizer_json(&self) -> Option<&[u8]> {
        self.options.tokenizer.json()
    }

    fn write(&self, file: &mut JobWriter) -> Result<()> {
        let options = &self.options;
        file.line(&StoredText {
            input: options.input.clone(),
            input_format: options.input_format,
            follow_symlinks: options.follow_symlinks,
            layout: options.layout,
            encoding: options.encoding,
            documents: options.documents.clone(),
            tokenizer: Cow::Borrowed(options.tokenizer.options()),
            text_field: Cow::Borrowed(&options.text_field),
            key_field: options.key_field.as_deref().map(Cow::Borrowed),
            keep_fields: Cow::Borrowed(&options.keep_fields),
            replace_invalid_utf8: options.replace_invalid_utf8,
            max_document_bytes: options.max_document_bytes,
            normalize: options.normalize,
            shape: options.shape.clone(),
            dedup: options.dedup,
            split_by: self.split_by,
            file_splits: Cow::Borrowed(&self.file_splits),
            units: Cow::Borrowed(&self.units),
            fields: Cow::Borrowed(&self.fields),
            sections: self.sections.len(),
        })?;
        self.details.iter().try_for_each(|detail| file.line(detail))?;
        self.sections.iter().try_for_each(|section| file.line(section))
    }

    fn read(opened: OpenedJob, file: &mut JobReader) -> Result<Self> {
        let OpenedJob { header, files, tokenizer_json } = opened;
        let stored: StoredText<'_> = file.line()?;
        let details: Vec<TextFile> = file.lines(files.len())?;
        let sections: Vec<FileSection> = file.lines(stored.sections)?;
        let tokenizer =
            Tokenizer::stored(tokenizer_json, stored.tokenizer.into_owned()).map_err(usage_error)?;
        let options = TextOptions {
            input: stored.input,
            input_format: stored.input_format,
            follow_symlinks: stored.follow_symlinks,
            layout: stored.layout,
            encoding: stored.encoding,
            documents: stored.documents,
            text_field: stored.text_field.into_owned(),
            key_field: stored.key_field.map(Cow::into_owned),
            keep_fields: stored.keep_fields.into_owned(),
            replace_invalid_utf8: stored.replace_invalid_utf8,
            max_document_bytes: stored.max_document_bytes,
            normalize: stored.normalize,
            shape: stored.shape,
            dedup: stored.dedup,
            ..TextOptions::new(header.sources.clone(), tokenizer, header.output)
        };
        let fields = stored.fields.into_owned();
        Ok(Self {
            stdin: Mutex::new(None),
            described: header.options,
            rule: items::rule(&options.documents),
            wanted: wanted_fields(&options, &fields),
            options,
            sources: header.sources,
            files: files.iter().collect(),
            details,
            skipped: header.skipped,
            splits: header.splits,
            split_by: stored.split_by,
            // Used only in the summary of the plan.
            split_folders: Vec::new(),
            file_splits: stored.file_splits.into_owned(),
            warnings: Vec::new(),
            sections,
            units: stored.units.into_owned(),
            schema: Arc::new(header.schema),
            fields,
        })
    }
}
