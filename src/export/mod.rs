//! Exports: the records of a dataset as files that other trainers read.
//!
//! ```text
//! record source ─▶ parts (one per file) ─▶ blocks, encoded on many threads ─▶ files of a part, in order ─▶ commit
//!                  blocks.rs               Exporter::encode                  Exporter::append            output.rs
//! ```
//!
//! Each format is one file behind the trait `Exporter`, and one line in [`export()`]. The bytes of an export depend only
//! on the records and the options. `docs/reference/export.md` describes the formats.

mod blocks;
mod documents;
mod hf;
pub(crate) mod hub_card;
mod input;
mod megatron;
mod megatron_bridge;
mod nested;
mod options;
mod output;
mod reward_columns;
mod row_columns;
mod rows_file;
#[cfg(test)]
mod tests;
mod tokens;
mod trainer_columns;
mod webdataset;

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use self::blocks::{BLOCK_BYTES, divide, in_order};
pub use self::input::{ExportInput, ExportSplit, TokenizerFacts};
pub use self::options::{Columns, EndOfDocument, ExportFormat, ExportOptions, Layout};
pub use self::output::EXPORT_NAME;
use self::output::{Output, OutputState, StagedFiles};
use crate::decode::{ImageType, sniff};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::numbers::plural;
use crate::pipeline::{Progress, Stop};
use crate::reader::Record;
use crate::sample;
use crate::schema::{FieldType, Schema};
use crate::testing::pause_point;

/// Records that go to one file, or one group of files.
#[derive(Debug)]
struct Part<'a> {
    split: &'a ExportSplit,
    /// Number among the parts of its split, from 0.
    number: u64,
    /// Number of parts of its split.
    count: u64,
    records: Range<u64>,
    /// Sum of the lengths of the records.
    length: u64,
}

impl Part<'_> {
    /// Returns the start of the names of the files: the name of the split and, if it has several parts, the number.
    fn stem(&self) -> String {
        match self.count {
            1 => self.split.name.clone(),
            _ => format!("{}-{:05}", self.split.name, self.number),
        }
    }
}

/// An export format.
///
/// [`Exporter::encode`] runs on many threads; the other methods run on one, part by part and in record order.
trait Exporter: Sync {
    /// Encoded records of a block.
    type Block: Send;
    /// The open files of a part.
    type Files;

    /// Returns what the user should know before anything is written.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Refuses a part that does not fit the format.
    fn check(&self, part: &Part<'_>) -> Result<()> {
        let _ = part;
        Ok(())
    }

    /// Returns the default number of parts of a split.
    fn default_parts(&self, split: &ExportSplit) -> u64 {
        let _ = split;
        1
    }

    /// Returns the members of the description of the export that are specific to the format.
    fn described(&self) -> Value;

    /// Encodes the records with the ordinals `records`.
    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<Self::Block>;

    /// Creates the files of a part.
    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<Self::Files>;

    /// Appends a block.
    fn append(&self, files: &mut Self::Files, block: Self::Block) -> Result<()>;

    /// Completes the files of a part, the one that makes the others readable last.
    fn close(&self, files: Self::Files, staged: &StagedFiles) -> Result<Vec<FileEntry>>;

    /// Writes files that do not belong to a part, after all others.
    fn finish(&self, parts: &[(&Part<'_>, &[FileEntry])], staged: &StagedFiles) -> Result<Vec<FileEntry>> {
        let _ = (parts, staged);
        Ok(Vec::new())
    }
}

/// What an export wrote.
#[derive(Debug)]
pub struct ExportOutcome {
    /// The files.
    pub files: Vec<FileEntry>,
    /// Number of records.
    pub records: u64,
    /// Whether the export was complete before.
    pub was_complete: bool,
}

/// Exports `input`. `warn` receives what the user should know before anything is written.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) before anything is written, if the format cannot hold the records or the
/// output is not empty; otherwise those of reading and writing. An export that failed can be resumed.
pub fn export(
    input: &ExportInput,
    options: &ExportOptions,
    warn: &mut dyn FnMut(String),
    progress: &Progress,
    stop: &Stop,
) -> Result<ExportOutcome> {
    let has_documents = matches!(options.format, ExportFormat::Tokens | ExportFormat::Megatron);
    if options.layout.is_some() && options.format != ExportFormat::Tokens {
        return Err(Error::usage("`layout` applies only to `to tokens`").help("leave it out"));
    }
    if options.columns.is_some() && options.format != ExportFormat::Hf {
        return Err(Error::usage("`columns` applies only to `to hf`").help("leave it out"));
    }
    if options.eod.is_some() && !has_documents {
        return Err(Error::usage("`eod` applies only to `to tokens` and `to megatron`").help("leave it out"));
    }
    let run = Run { input, options, progress, stop };
    let exported = match options.format {
        ExportFormat::Tokens => run.with(&tokens::Flat::new(input, options)?, warn),
        ExportFormat::Megatron => run.with(&megatron::Megatron::new(input, options)?, warn),
        ExportFormat::MegatronBridge => {
            run.with(&megatron_bridge::MegatronBridge::new(input, options)?, warn)
        }
        ExportFormat::Webdataset => run.with(&webdataset::WebDataset::new(input, options)?, warn),
        ExportFormat::Hf => match columns(input, options)? {
            Columns::Stored => run.with(&hf::HuggingFace::new(input, options)?, warn),
            Columns::Reward => run.with(&reward_columns::RewardColumns::new(input, options)?, warn),
            Columns::Nested => run.with(&nested::NestedColumns::new(input, options)?, warn),
            columns => run.with(&trainer_columns::TrainerColumns::new(input, options, columns)?, warn),
        },
    };
    exported.map_err(|error| with_remedy(error, &options.out))
}

/// Returns the columns of the format `hf`. Prompts are nested, because no trainer reads messages as JSON texts.
fn columns(input: &ExportInput, options: &ExportOptions) -> Result<Columns> {
    let default = if input.schema()?.holds_prompts() { Columns::Nested } else { Columns::default() };
    Ok(options.columns.unwrap_or(default))
}

/// An export in progress.
struct Run<'a> {
    input: &'a ExportInput,
    options: &'a ExportOptions,
    progress: &'a Progress,
    stop: &'a Stop,
}

impl Run<'_> {
    fn with<E: Exporter>(&self, exporter: &E, warn: &mut dyn FnMut(String)) -> Result<ExportOutcome> {
        let parts = self.parts(exporter)?;
        parts.iter().try_for_each(|part| exporter.check(part))?;
        let records = parts.iter().map(|part| part.records.end - part.records.start).sum();
        let plan = self.plan(exporter, &parts);
        let output =
            Output::open(&self.options.out, self.options.scratch.as_deref(), self.options.resume, &plan)?;
        let mut output = match output {
            OutputState::Complete(files) => return Ok(ExportOutcome { files, records, was_complete: true }),
            OutputState::Unfinished(output) => output,
        };
        exporter.warnings().into_iter().for_each(warn);
        output.start(self.stop)?;
        let bytes: u64 = self.input.splits.iter().map(|split| split.bytes).sum();
        self.progress.planned(parts.len() as u64, bytes);
        let mut written_parts = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let written = match output.finished(number)? {
                Some(written) => {
                    self.progress.done(
                        part.records.end - part.records.start,
                        self.bytes_of(part, &part.records),
                        0,
                        0,
                    );
                    written
                }
                None => {
                    let written = self.write(exporter, part, &output.staged)?;
                    output.finish(number, &written, self.stop)?;
                    pause_point("export part");
                    written
                }
            };
            written_parts.push(written);
        }
        let all: Vec<_> = parts.iter().zip(written_parts.iter().map(Vec::as_slice)).collect();
        let last = exporter.finish(&all, &output.staged)?;
        output.finish(parts.len(), &last, self.stop)?;
        let files: Vec<FileEntry> = written_parts.into_iter().flatten().chain(last).collect();
        output.commit(&plan, &files)?;
        Ok(ExportOutcome { files, records, was_complete: false })
    }

    /// Divides the splits into parts.
    fn parts<E: Exporter>(&self, exporter: &E) -> Result<Vec<Part<'_>>> {
        let mut parts = Vec::new();
        for split in &self.input.splits {
            let records = split.source.lengths().records();
            let count = match self.options.parts {
                Some(0) => return Err(Error::usage("`parts 0`: at least one part is needed")),
                Some(count) => count,
                None => exporter.default_parts(split).clamp(1, records.max(1)),
            };
            for (number, (records, length)) in (0..).zip(divide(&*split.source, count)?) {
                parts.push(Part { split, number, count, records, length });
            }
        }
        Ok(parts)
    }

    /// Returns the description of the export, without its files: what a resumed run must have in common.
    fn plan<E: Exporter>(&self, exporter: &E, parts: &[Part<'_>]) -> Value {
        let splits: serde_json::Map<String, Value> = self
            .input
            .splits
            .iter()
            .map(|split| {
                let of_split: Vec<&Part<'_>> =
                    parts.iter().filter(|part| part.split.name == split.name).collect();
                let records: u64 = of_split.iter().map(|part| part.records.end - part.records.start).sum();
                (split.name.clone(), json!({ "records": records, "parts": of_split.len() }))
            })
            .collect();
        let mut plan = json!({
            "export_version": 1,
            "dsconvert": env!("CARGO_PKG_VERSION"),
            "format": self.options.format.to_string(),
            "options": exporter.described(),
            "fingerprint": self.input.fingerprint,
            "splits": splits,
        });
        if let Some(plan) = plan.as_object_mut() {
            let fields = self.input.fields.as_ref().map(|fields| ("fields", json!(fields)));
            let mixture = self.input.mixture.as_ref().map(|mixture| ("mixture", mixture.clone()));
            plan.extend(fields.into_iter().chain(mixture).map(|(name, value)| (name.to_owned(), value)));
        }
        plan
    }

    /// Writes the files of a part.
    fn write<E: Exporter>(
        &self,
        exporter: &E,
        part: &Part<'_>,
        staged: &StagedFiles,
    ) -> Result<Vec<FileEntry>> {
        let mut files = exporter.create(part, staged)?;
        let mut start = part.records.start;
        let next = || {
            if start >= part.records.end {
                return Ok(None);
            }
            let end = part.split.source.block_end(start, BLOCK_BYTES)?.clamp(start + 1, part.records.end);
            let block = start..end;
            start = end;
            Ok(Some(block))
        };
        let encode = |records: Range<u64>| Ok((exporter.encode(part.split, records.clone())?, records));
        in_order(self.options.threads, self.stop, next, encode, |(block, records)| {
            exporter.append(&mut files, block)?;
            self.progress.done(records.end - records.start, self.bytes_of(part, &records), 0, 0);
            Ok(())
        })?;
        exporter.close(files, staged)
    }

    /// Returns about how many stored bytes the `records` of a part have.
    fn bytes_of(&self, part: &Part<'_>, records: &Range<u64>) -> u64 {
        let all = part.split.source.lengths().records().max(1);
        let at = |record: u64| u128::from(part.split.bytes) * u128::from(record) / u128::from(all);
        (at(records.end) - at(records.start)) as u64
    }
}

/// Returns the names of the fields of `schema` that are neither built in nor named in `used`.
fn unused_fields(schema: &Schema, used: &[&str]) -> Vec<String> {
    let built_in = schema.layout().built_in;
    let is_unused = |name: &str| !built_in.contains(&name) && !used.contains(&name);
    schema.fields.iter().map(|field| field.name.clone()).filter(|name| is_unused(name)).collect()
}

/// Returns the warning about fields that `format` cannot hold.
fn left_out(format: impl Display, fields: &[String]) -> Option<String> {
    (!fields.is_empty()).then(|| {
        let of = plural(fields.len() as u64, "field");
        format!("{format} has no place for {of}: {}", fields.join(", "))
    })
}

/// Refuses images that are not stored as image files, for which other tools have no type. Of each split, the first record
/// is read.
fn encoded_images(input: &ExportInput) -> Result<()> {
    if input.splits.iter().any(|split| split.source.properties().raw_channels.is_some()) {
        return Err(not_an_image_file());
    }
    input.splits.iter().try_for_each(|split| split.source.get_many(&[0])?.iter().try_for_each(check_images))
}

/// Refuses a record with an image that is stored as planes.
fn check_images(record: &Record) -> Result<()> {
    let is_planes = |(_, ty, value): (&str, FieldType, &sample::Value)| match value {
        sample::Value::Bytes(bytes) => ty.is_image_file() && sniff(bytes) == Some(ImageType::Planes),
        _ => false,
    };
    if record.fields().any(is_planes) { Err(not_an_image_file()) } else { Ok(()) }
}

fn not_an_image_file() -> Error {
    Error::usage("the images are stored as raw pixels or planes, and the format holds image files")
        .of_option("to")
        .help("convert again with an encoding such as `encode png`")
}

/// Returns the path of a file as the description of the export names it.
fn entry(name: String, written: crate::storage::Written) -> FileEntry {
    FileEntry { path: name, bytes: written.bytes, sha256: written.sha256 }
}

/// Returns an error about a full disk with the way to continue.
fn with_remedy(error: Error, out: &Path) -> Error {
    match error.is_disk_full() {
        true => {
            error.help(format!("free space for {}, then run the same command with `resume`", out.display()))
        }
        false => error,
    }
}
