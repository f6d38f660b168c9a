//! Storage of a planned conversion of text for other processes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::options::TextInput;
use super::plan::{self, FileSection, TextFile};
use super::{TextJob, TextOptions, items, unit_bytes, wanted_fields};
use crate::build_id::BUILD_ID;
use crate::error::{Error, Result};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter, OpenedJob, StoredJob};
use crate::recipe::TextRecipe;
use crate::schema::{Field, Kind, Schema};
use crate::source::file_list::SourceFiles;
use crate::source::source_file::SourceFile;
use crate::source::split_by::SplitBy;
use crate::transform::text::{Tokenizer, usage_error};

/// The first line specific to text in a stored job. One line per file and one per section follow.
#[derive(Serialize, Deserialize)]
struct TextLine<'a> {
    input: TextInput,
    recipe: Cow<'a, TextRecipe>,
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
            output: self.options.recipe.output.clone(),
            sources: self.sources.clone(),
            walked: self.options.input == TextInput::Walk,
            follow_symlinks: self.options.recipe.follow_symlinks,
            files: self.files.len() as u64,
            skipped: self.skipped.clone(),
            units: self.units.len() as u32,
            unit_bytes: unit_bytes(&self.options.recipe.output),
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
        file.line(&TextLine {
            input: self.options.input.clone(),
            recipe: Cow::Borrowed(&self.options.recipe),
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
        let TextLine { input, recipe, split_by, file_splits, units, fields, sections } = file.line()?;
        let (recipe, fields) = (recipe.into_owned(), fields.into_owned());
        let details: Vec<TextFile> = file.lines(files.len())?;
        let sections: Vec<FileSection> = file.lines(sections)?;
        let tokenizer =
            Tokenizer::stored(tokenizer_json, recipe.tokenization.clone()).map_err(usage_error)?;
        let options = TextOptions { sources: header.sources.clone(), input, tokenizer, recipe };
        Ok(Self {
            stdin: Mutex::new(None),
            described: header.options,
            rule: items::rule(&options.recipe.documents),
            wanted: wanted_fields(&options, &fields),
            options,
            sources: header.sources,
            files: files.iter().collect(),
            details,
            skipped: header.skipped,
            splits: header.splits,
            split_by,
            // Used only in the summary of the plan.
            split_folders: Vec::new(),
            file_splits: file_splits.into_owned(),
            warnings: Vec::new(),
            sections,
            units: units.into_owned(),
            schema: Arc::new(header.schema),
            fields,
        })
    }
}
