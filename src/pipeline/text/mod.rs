//! Text corpora: documents in text files, JSON Lines files and tables.
//!
//! ```text
//! sources ─▶ sections of files (plan) ─▶ tasks (section_reader, feed) ─▶ documents (items) ─▶ ids, records (convert)
//! ```

mod convert;
mod dedup;
mod duplicates_file;
mod feed;
mod field_check;
mod items;
mod options;
mod pack;
mod plan;
mod position;
mod predict;
mod record;
mod section_reader;
mod stored;
mod task;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) use self::convert::TextConversion;
pub use self::options::{TextInput, TextOptions};
use self::plan::{Extent, FileSection, TextFile};
use crate::error::{Error, Result};
use crate::format::check_schema;
use crate::options::{Existing, OutputOptions, RunOptions, SourceSpec};
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::predict::Prediction;
use crate::pipeline::progress::Progress;
use crate::pipeline::run::{Job, Outcome, check_start, run, store_plan};
use crate::pipeline::source_checks::splits_twice;
use crate::pipeline::stop::{Continuation, Stop};
use crate::printable::shell_word;
use crate::schema::{Field, FieldType, Kind, Schema};
use crate::source::PlannedFile;
use crate::source::file_list::ChosenFiles;
use crate::source::json_line::WantedFields;
use crate::source::opened::OpenedFile;
use crate::source::skipped::SkippedTypes;
use crate::source::source_file::SourceFile;
use crate::source::split_by::SplitBy;
use crate::source::splits::{SplitNames, Splits};
use crate::source::stream::Stream;
use crate::source::text::cut::Rule;
use crate::source::text::kind::{Documents, TextFormat};
use crate::source::warning::Warning;
use crate::transform::text::id_width;

/// Default of `--unit-bytes`: a minute for the slowest tokenizer on one core.
const UNIT_BYTES: u64 = 256 << 20;

/// A planned conversion of text.
pub struct TextJob {
    options: TextOptions,
    described: serde_json::Value,
    /// Sources after expansion of patterns and ranges.
    sources: Vec<SourceSpec>,
    files: Vec<SourceFile>,
    /// One per file.
    details: Vec<TextFile>,
    skipped: SkippedTypes,
    splits: Vec<String>,
    /// What determines the split of a file; `None`: a hash.
    split_by: Option<SplitBy>,
    /// Names of the folders that determine splits.
    split_folders: Vec<String>,
    /// Split of each file; empty if a hash determines it.
    file_splits: Vec<u16>,
    warnings: Vec<Warning>,
    /// In record order.
    sections: Vec<FileSection>,
    /// Each unit is a range of `sections`.
    units: Vec<Range<usize>>,
    schema: Arc<Schema>,
    /// Kept fields.
    fields: Vec<Field>,
    /// The rule that divides plain text into documents.
    rule: Rule,
    /// Requested fields of a line of JSON.
    wanted: WantedFields,
    /// Standard input, if it is the source and not yet read.
    stdin: Mutex<Option<Stream>>,
}

/// Returns the source bytes at which a unit is full.
fn unit_bytes(output: &OutputOptions) -> u64 {
    output.unit_bytes.unwrap_or(UNIT_BYTES)
}

impl TextJob {
    /// Lists the sources and divides them into units.
    ///
    /// # Errors
    ///
    /// Fails if sources are missing, cannot be listed, or are explicitly named but of an unknown type; if two files
    /// have the same origin; or if tables lack requested columns.
    pub fn plan(options: TextOptions) -> Result<Self> {
        let options = options.checked()?;
        let found = plan::find(&options, unit_bytes(&options.recipe.output))?;
        let all = ChosenFiles::all(&found.files[..]);
        let (given, mut warnings) = Splits::find(&all, options.recipe.layout, SplitNames::OfContainers)?;
        let (splits, split_by, split_folders, file_splits) = match &options.recipe.output.split {
            Some(_) if given.are_given() => return Err(splits_twice(&given, "flat")),
            Some(spec) => {
                warnings.clear();
                (spec.names().map(str::to_owned).collect(), None, Vec::new(), Vec::new())
            }
            None => {
                let of_files = all.iter().map(|file| given.of(&file) as u16).collect();
                (given.names, Some(given.by), given.folders, of_files)
            }
        };
        let mut extra = found.fields.clone();
        if options.recipe.pack.is_some() {
            extra.extend(PACK_FIELDS.map(|name| Field::required(name, FieldType::IdsU32)));
        }
        let schema = Arc::new(Schema::text(id_width(&options.tokenizer), extra)?);
        check_schema(options.recipe.output.format, &schema)?;
        let mut stdin = match (&options.input, &found.details[..]) {
            (TextInput::Stdin, [detail]) => Some(detail.kind.stdin(options.recipe.encoding)?),
            _ => None,
        };
        warnings.extend(Warning::of_keys(&found.unusable));
        warnings.extend(found.warnings);
        warnings.extend(field_check::check(
            &options,
            &found.files,
            &found.sources,
            &found.details,
            stdin.as_mut(),
        )?);
        Ok(Self {
            described: options.described()?,
            rule: items::rule(&options.recipe.documents),
            wanted: wanted_fields(&options, &found.fields),
            options,
            sources: found.sources,
            files: found.files,
            details: found.details,
            skipped: found.skipped,
            splits,
            split_by,
            split_folders,
            file_splits,
            warnings,
            sections: found.sections,
            units: found.units,
            schema,
            fields: found.fields,
            stdin: Mutex::new(stdin),
        })
    }

    /// Returns whether the whole file is one document.
    fn is_document(&self, file: &TextFile) -> bool {
        file.kind.format == TextFormat::Text && self.options.recipe.documents == Documents::File
    }

    /// Returns the file with this ordinal, as planned.
    fn planned(&self, file: usize) -> PlannedFile {
        self.files[file].planned(&self.sources, self.options.recipe.follow_symlinks)
    }

    /// Returns the file of the section with the ordinal `section`.
    fn file_of(&self, section: usize) -> &SourceFile {
        &self.files[self.sections[section].file]
    }

    /// Returns what is known of the file of the section with the ordinal `section`.
    fn detail_of(&self, section: usize) -> &TextFile {
        &self.details[self.sections[section].file]
    }

    /// Opens the file of `section` and requests its bytes in advance, if it is in object storage.
    fn open_ahead(&self, section: &FileSection) -> Option<OpenedFile> {
        let (file, detail) = (&self.files[section.file], &self.details[section.file]);
        let is_too_long = self.is_document(detail) && file.bytes > self.options.recipe.max_document_bytes;
        if detail.defect.is_some() || detail.kind.format == TextFormat::Parquet || is_too_long {
            return None;
        }
        match &section.extent {
            Extent::Lines(bytes) => self.planned(section.file).open_range_ahead(bytes.clone()),
            _ => file.open_ahead(&self.sources, self.options.recipe.follow_symlinks),
        }
    }

    /// Returns standard input, including the bytes that the plan has examined. `None` after the first call.
    fn take_stdin(&self) -> Option<Stream> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the split of the item with this `key` in the section with the ordinal `section`.
    fn split_of(&self, section: usize, key: &str) -> u16 {
        let output = &self.options.recipe.output;
        match &output.split {
            Some(spec) => spec.split_of(key, output.seed) as u16,
            None => self.file_splits[self.sections[section].file],
        }
    }
}

/// Fields of the rows of `--pack`, which mark the boundaries of their documents.
pub(super) const PACK_FIELDS: [&str; 2] = ["cu_seqlens", "piece_starts"];

/// Returns the requested fields of a line of JSON.
fn wanted_fields(options: &TextOptions, kept: &[Field]) -> WantedFields {
    WantedFields::new(&options.recipe.text_field, options.recipe.key_field.as_deref(), kept)
}

impl Job for TextJob {
    fn summary(&self) -> PlanSummary {
        let documents = self.details.iter().all(|file| self.is_document(file));
        PlanSummary {
            kind: Kind::Text.name(),
            files: self.files.len() as u64,
            items: documents.then_some(self.files.len() as u64),
            bytes: self.files.iter().map(|f| f.bytes).sum(),
            skipped: self.skipped.clone(),
            units: self.units.len() as u32,
            splits: self.splits.clone(),
            split_by: self.split_by,
            split_folders: self.split_folders.clone(),
            split_files: self.split_by.map(|_| {
                let count =
                    |split| self.file_splits.iter().filter(|&&of| usize::from(of) == split).count() as u64;
                (0..self.splits.len()).map(count).collect()
            }),
            classes: None,
            metadata: Vec::new(),
            fields: self.fields.iter().map(|field| field.name.clone()).collect(),
            sidecars: Vec::new(),
            image_fields: Vec::new(),
            main_image: None,
            left_out: Vec::new(),
            dedup: self.options.recipe.dedup.is_some(),
            warnings: self.warnings.clone(),
        }
    }

    fn run(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Outcome> {
        let is_stdin = self.options.input == TextInput::Stdin;
        if is_stdin && matches!(options.existing, Existing::Resume(_)) {
            let out = shell_word(&options.out);
            return Err(Error::usage("standard input cannot be read again, so there is nothing to resume")
                .help(format!(
                    "if everything was read, but not committed because of too many rejects, commit it with \
                     `dsconvert merge {out} --max-rejects N`; otherwise, start again with `overwrite`, or write it to a \
                     file first"
                )));
        }
        stop.start_writing(match is_stdin {
            true => Continuation::MergeOnly(options.out.clone()),
            false => Continuation::Resume,
        });
        run(self, &TextConversion::new(self), options, progress, stop)
    }

    fn store(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<u32> {
        if self.options.input == TextInput::Stdin {
            return Err(Error::usage("standard input can only be read once, by one process")
                .help("write it to a file first, or convert it with `dsconvert text`"));
        }
        store_plan(self, &TextConversion::new(self), options, progress, stop)
    }

    fn check_start(&self, run: &RunOptions) -> Result<()> {
        check_start(self, run)
    }

    fn predict(&self, sample: u64, run: &RunOptions, stop: &Stop) -> Result<Prediction> {
        self.prediction(sample, run, stop)
    }
}
