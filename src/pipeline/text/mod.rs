//! Text corpora: one item per line (jsonl) or per file (txt).

mod convert;
mod feed;

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::convert::Texts;
use crate::error::{Error, Result};
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::progress::{Progress, Stop};
use crate::pipeline::run::{Job, Planned, Report, run};
use crate::schema::{Kind, Schema};
use crate::source::labels::DEFAULT_SPLIT;
use crate::source::walk::{SourceFile, list};
use crate::transform::text::Tokenizer;

/// Default of `--unit-bytes`: a minute for the slowest tokenizer on one core.
const UNIT_BYTES: u64 = 256 << 20;
/// Source bytes of the pieces that `--shuffle` puts in a keyed order.
const SHUFFLE_PIECE_BYTES: u64 = 8 << 20;
/// Files of one unit.
const UNIT_FILES: usize = 65_536;
/// Sets the order of pieces apart from the split hash, which has the same seed.
const SHUFFLE_SALT: u64 = 0x5348_5546_464c_4532;
/// Default of `--max-document-bytes`.
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Default of `--text-field`.
pub const DEFAULT_TEXT_FIELD: &str = "text";

/// What `dsconvert text` is told.
pub struct TextOptions {
    /// Files and folders.
    pub sources: Vec<SourceSpec>,
    /// Whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// Makes the ids.
    pub tokenizer: Tokenizer,
    /// jsonl: field with the text.
    pub text_field: String,
    /// jsonl: field with the key, instead of the origin.
    pub key_field: Option<String>,
    /// Longest document.
    pub max_document_bytes: u64,
    /// What becomes of the records.
    pub output: OutputOptions,
}

/// How documents stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// One JSON object a line.
    JsonLines,
    /// The file is the document.
    Document,
}

impl FileKind {
    fn of(name: &str) -> Option<Self> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "jsonl" | "ndjson" => Some(FileKind::JsonLines),
            "txt" => Some(FileKind::Document),
            _ => None,
        }
    }
}

/// A part of a file: the lines that start in the range, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    file: usize,
    bytes: Range<u64>,
}

/// A planned conversion of text.
pub struct TextJob {
    options: TextOptions,
    described: serde_json::Value,
    files: Vec<SourceFile>,
    skipped: u64,
    splits: Vec<String>,
    /// In record order.
    parts: Vec<Part>,
    /// Ranges of `parts`.
    units: Vec<Range<usize>>,
    schema: Arc<Schema>,
}

impl TextJob {
    /// Lists the sources and divides them.
    ///
    /// # Errors
    ///
    /// Sources that are missing, cannot be listed, or are named but of no type that is read; two files with one origin.
    pub fn plan(options: TextOptions) -> Result<Self> {
        for source in &options.sources {
            if source.path.is_file() && FileKind::of(&source.path.to_string_lossy()).is_none() {
                return Err(Error::usage("this is no kind of text file that is read here")
                    .at_path(&source.path)
                    .help("text is read from .txt files (one document each) and .jsonl files (one JSON object a line)"));
            }
        }
        let listing = list(&options.sources, options.follow_symlinks, &|name| FileKind::of(name).is_some())?;
        let files = listing.files;
        crate::pipeline::check_origins(&files, &options.sources)?;
        let splits = match &options.output.split {
            Some(spec) => spec.names().map(str::to_owned).collect(),
            None => vec![DEFAULT_SPLIT.to_owned()],
        };
        let shuffle = options.output.shuffle;
        let unit_bytes = options.output.unit_bytes.unwrap_or(UNIT_BYTES);
        let part_bytes = if shuffle { unit_bytes.min(SHUFFLE_PIECE_BYTES) } else { unit_bytes };
        let mut parts = divide_files(&files, &options.sources, part_bytes);
        if shuffle {
            let seed = options.output.seed ^ SHUFFLE_SALT;
            parts.sort_by_cached_key(|p| {
                let name = format!("{}#{}", files[p.file].origin, p.bytes.start);
                (xxh3_64_with_seed(name.as_bytes(), seed), name)
            });
        }
        let schema = Arc::new(Schema::text(options.tokenizer.id_width(), Vec::new())?);
        Ok(Self {
            described: describe(&options)?,
            units: group(&parts, unit_bytes),
            skipped: listing.skipped,
            options,
            files,
            splits,
            parts,
            schema,
        })
    }

    fn kind(&self, file: usize) -> FileKind {
        kind_of(&self.files[file], &self.options.sources)
    }
}

fn kind_of(file: &SourceFile, sources: &[SourceSpec]) -> FileKind {
    FileKind::of(&file.path(sources).to_string_lossy()).unwrap_or(FileKind::Document)
}

/// The semantic options, by the names of their flags.
fn describe(options: &TextOptions) -> Result<serde_json::Value> {
    let as_json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|e| Error::usage("the options cannot be written as JSON").caused_by(e))
    };
    Ok(json!({
        "text_field": options.text_field,
        "key_field": options.key_field,
        "max_document_bytes": options.max_document_bytes,
        "follow_symlinks": options.follow_symlinks,
        "tokenizer": options.tokenizer.info().sha256.clone().unwrap_or_else(|| "bytes".to_owned()),
        "tokenization": as_json(serde_json::to_value(options.tokenizer.options()))?,
        "reference": as_json(serde_json::to_value(&options.tokenizer.info().reference))?,
        "output": as_json(serde_json::to_value(&options.output))?,
    }))
}

/// Cuts files that can be divided at line ends into parts of at most `max_bytes`.
fn divide_files(files: &[SourceFile], sources: &[SourceSpec], max_bytes: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    for (ordinal, file) in files.iter().enumerate() {
        match kind_of(file, sources) {
            FileKind::Document => parts.push(Part { file: ordinal, bytes: 0..file.bytes }),
            FileKind::JsonLines => {
                let mut start = 0;
                while start < file.bytes {
                    let end = (start + max_bytes).min(file.bytes);
                    parts.push(Part { file: ordinal, bytes: start..end });
                    start = end;
                }
            }
        }
    }
    parts
}

/// Groups small parts into units.
fn group(parts: &[Part], max_bytes: u64) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, part) in parts.iter().enumerate() {
        let size = part.bytes.end - part.bytes.start;
        if i > start && (bytes + size > max_bytes || i - start == UNIT_FILES) {
            units.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += size;
    }
    if start < parts.len() {
        units.push(start..parts.len());
    }
    units
}

impl Job for TextJob {
    fn summary(&self) -> PlanSummary {
        let documents = (0..self.files.len()).all(|f| self.kind(f) == FileKind::Document);
        PlanSummary {
            kind: Kind::Text.name(),
            files: self.files.len() as u64,
            items: documents.then_some(self.files.len() as u64),
            bytes: self.files.iter().map(|f| f.bytes).sum(),
            skipped: self.skipped,
            units: self.units.len() as u32,
            splits: self.splits.clone(),
            classes: None,
        }
    }

    fn run(&self, options: &RunOptions, progress: &Progress, stop: &Stop) -> Result<Report> {
        let info = serde_json::to_value(self.options.tokenizer.info())
            .map_err(|e| Error::usage("the tokenizer cannot be described as JSON").caused_by(e))?;
        let planned = Planned {
            sources: &self.options.sources,
            walked: true,
            files: &self.files,
            skipped: self.skipped,
            options: &self.described,
            output: &self.options.output,
            tokenizer: Some(info),
            tokenizer_json: self.options.tokenizer.json(),
        };
        run(planned, &Texts { job: self }, options, progress, stop)
    }
}
