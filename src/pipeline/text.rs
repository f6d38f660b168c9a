//! Text corpora: one item per line (jsonl) or per file (txt).

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::conversion::{Conversion, Converting, Feed};
use super::outcome::{Converted, Outcome, Outcomes};
use super::plan::PlanSummary;
use super::progress::{Progress, Stop};
use super::run::{Job, Planned, Report, run};
use crate::error::{Error, Result};
use crate::options::{OutputOptions, RunOptions, SourceSpec};
use crate::sample::{Ids, Record, Reject, RejectCode, Value};
use crate::schema::{Kind, Schema};
use crate::source::jsonl::{self, Fields};
use crate::source::labels::DEFAULT_SPLIT;
use crate::source::lines::{LineReader, Piece};
use crate::source::read_planned;
use crate::source::walk::{SourceFile, list};
use crate::transform::text::{Scratch, Tokenizer};

/// Default of `--unit-bytes`: a minute for the slowest tokenizer on one core.
const UNIT_BYTES: u64 = 256 << 20;
/// Source bytes of the pieces that `--shuffle` puts in a keyed order.
const SHUFFLE_PIECE_BYTES: u64 = 8 << 20;
/// Files of one unit.
const UNIT_FILES: usize = 65_536;
/// Source bytes of one task.
const TASK_BYTES: usize = 256 << 10;
/// Bytes held for one source byte: the text, its fields, ids and record.
const BYTES_HELD_PER_BYTE: u64 = 8;
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
        super::check_origins(&files, &options.sources)?;
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

/// The running conversion.
struct Texts<'a> {
    job: &'a TextJob,
}

/// A piece of a file.
enum Task {
    Piece { file: usize, piece: Piece },
    Document { file: usize },
}

struct Worker {
    tokens: Scratch,
    ids: Vec<u32>,
    careful: bool,
}

/// A document of a source, before tokenization.
struct Document<'a> {
    origin: String,
    key: Option<String>,
    text: &'a str,
}

impl Conversion for Texts<'_> {
    type Task = (Task, bool);
    type Scratch = Worker;

    fn units(&self) -> u32 {
        self.job.units.len() as u32
    }

    fn splits(&self) -> &[String] {
        &self.job.splits
    }

    fn schema(&self) -> &Arc<Schema> {
        &self.job.schema
    }

    fn scratch(&self) -> Worker {
        Worker { tokens: self.job.options.tokenizer.scratch(), ids: Vec::new(), careful: false }
    }

    fn open(&self, unit: u32, careful: bool) -> Result<Box<dyn Feed<(Task, bool)> + '_>> {
        let parts = self.job.parts[self.job.units[unit as usize].clone()].iter();
        Ok(Box::new(PartFeed { job: self.job, parts, open: None, careful }))
    }

    fn convert(
        &self,
        (task, careful): (Task, bool),
        worker: &mut Worker,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        worker.careful = careful;
        match task {
            Task::Piece { file, piece: Piece::Overlong { offset, bytes } } => {
                out.source_bytes += bytes;
                self.reject(format!("{}#{offset}", self.job.files[file].origin), self.too_long(bytes), out);
                Ok(Converting::Done)
            }
            Task::Piece { file, piece: Piece::Lines { offset, bytes } } => {
                out.source_bytes += bytes.len() as u64;
                out.read(&bytes);
                self.lines(file, offset, &bytes, worker, out)
            }
            Task::Document { file } => self.file(file, worker, out),
        }
    }
}

impl Texts<'_> {
    fn file(&self, file: usize, worker: &mut Worker, out: &mut Outcomes) -> Result<Converting> {
        let file = &self.job.files[file];
        out.source_bytes += file.bytes;
        if file.bytes > self.job.options.max_document_bytes {
            self.reject(file.origin.clone(), self.too_long(file.bytes), out);
            return Ok(Converting::Done);
        }
        let bytes = read_planned(&file.path(&self.job.options.sources), file.bytes)?;
        out.read(&bytes);
        match std::str::from_utf8(&bytes) {
            Err(e) => {
                self.reject(file.origin.clone(), not_utf8(e.valid_up_to()), out);
                Ok(Converting::Done)
            }
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                Ok(self.document(Document { origin: file.origin.clone(), key: None, text }, worker, out))
            }
        }
    }

    fn lines(
        &self,
        file: usize,
        offset: u64,
        bytes: &[u8],
        worker: &mut Worker,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        let options = &self.job.options;
        let fields = Fields { text: &options.text_field, key: options.key_field.as_deref() };
        let mut at = 0;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            let start = offset + at as u64;
            at += line.len();
            let origin = format!("{}#{start}", self.job.files[file].origin);
            if line.len() as u64 > options.max_document_bytes {
                self.reject(origin, self.too_long(line.len() as u64), out);
                continue;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            // A byte order mark is no part of the first line.
            let line =
                if start == 0 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line };
            match jsonl::parse(line, fields) {
                Err(reject) => self.reject(origin, reject, out),
                Ok(found) => {
                    let document = Document { origin, key: found.key, text: &found.text };
                    if self.document(document, worker, out) == Converting::RedoUnit {
                        return Ok(Converting::RedoUnit);
                    }
                }
            }
        }
        Ok(Converting::Done)
    }

    fn split_of(&self, key: &str) -> u16 {
        let output = &self.job.options.output;
        output.split.as_ref().map_or(0, |spec| spec.split_of(key, output.seed) as u16)
    }

    fn reject(&self, origin: String, reject: Reject, out: &mut Outcomes) {
        out.list.push(Outcome::Rejected { split: self.split_of(&origin), origin, reject });
    }

    fn too_long(&self, bytes: u64) -> Reject {
        let limit = self.job.options.max_document_bytes;
        Reject::new(
            RejectCode::TooLarge,
            format!("the document has {bytes} bytes, more than --max-document-bytes {limit}"),
        )
    }

    fn document(&self, document: Document<'_>, worker: &mut Worker, out: &mut Outcomes) -> Converting {
        let Document { origin, key, text } = document;
        let key_is_field = key.is_some();
        let key = key.unwrap_or_else(|| origin.clone());
        let split = self.split_of(&key);
        let tokenizer = &self.job.options.tokenizer;
        worker.ids.clear();
        let encoded = if text.is_empty() {
            Err(Reject::new(RejectCode::Empty, "the document is empty"))
        } else if worker.careful {
            tokenizer.encode_reference(text, &mut worker.tokens, &mut worker.ids)
        } else {
            tokenizer.encode(text, &mut worker.tokens, &mut worker.ids)
        };
        let ids = &worker.ids;
        let record = encoded.and_then(|stats| {
            if ids.len() == tokenizer.added_per_document() {
                return Err(Reject::new(RejectCode::Empty, "the tokenizer makes no token of the document"));
            }
            let too_many = || Reject::new(RejectCode::TooLarge, "the document has more than 2^32 - 1 tokens");
            let length = u32::try_from(ids.len()).map_err(|_| too_many())?;
            let packed = Ids::pack(tokenizer.id_width(), ids).ok_or_else(|| {
                Reject::new(RejectCode::Unsupported, "the tokenizer gave an id beyond its largest one")
            })?;
            Ok((stats, length, packed))
        });
        let (stats, length, packed) = match record {
            Ok(record) => record,
            Err(reject) => {
                out.list.push(Outcome::Rejected { split, origin, reject });
                return Converting::Done;
            }
        };
        if !worker.careful && tokenizer.should_verify(xxh3_64_with_seed(key.as_bytes(), VERIFY_SEED)) {
            out.note("verified_documents");
            if !tokenizer.matches_reference(text, ids, &mut worker.tokens) {
                return Converting::RedoUnit;
            }
        }
        for (name, happened) in [
            ("special_tokens_in_text", stats.special_in_text > 0),
            ("doubled_bos", stats.doubled_bos),
            ("doubled_eos", stats.doubled_eos),
            ("encoded_by_reference", worker.careful),
        ] {
            if happened {
                out.note(name);
            }
        }
        let key_hash = key_is_field.then(|| xxh3_128(key.as_bytes()));
        let values = vec![
            Value::Text(key.into()),
            Value::Ids(packed),
            Value::UInt(u64::from(length)),
            Value::Text(origin.into()),
        ];
        let mut converted = Converted::new(split, Record { values }, u64::from(length));
        converted.key_hash = key_hash;
        out.list.push(Outcome::Converted(converted));
        Converting::Done
    }
}

/// Sets the choice of documents to verify apart from other hashes of the key.
const VERIFY_SEED: u64 = 0x5645_5249_4659_3031;

fn not_utf8(offset: usize) -> Reject {
    Reject::new(RejectCode::InvalidUtf8, format!("byte {offset} is not UTF-8"))
}

/// Pieces of the parts of a unit.
struct PartFeed<'a> {
    job: &'a TextJob,
    parts: std::slice::Iter<'a, Part>,
    open: Option<(usize, LineReader)>,
    careful: bool,
}

impl Feed<(Task, bool)> for PartFeed<'_> {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES as u64 * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<((Task, bool), u64)>> {
        loop {
            if let Some((file, reader)) = &mut self.open {
                if let Some(piece) = reader.next(TASK_BYTES)? {
                    let bytes = match &piece {
                        Piece::Lines { bytes, .. } => bytes.len() as u64 * BYTES_HELD_PER_BYTE,
                        Piece::Overlong { .. } => 0,
                    };
                    return Ok(Some(((Task::Piece { file: *file, piece }, self.careful), bytes)));
                }
                self.open = None;
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            let file = &self.job.files[part.file];
            match self.job.kind(part.file) {
                FileKind::Document => {
                    let task = Task::Document { file: part.file };
                    return Ok(Some(((task, self.careful), file.bytes * BYTES_HELD_PER_BYTE)));
                }
                FileKind::JsonLines => {
                    let path = file.path(&self.job.options.sources);
                    let limit = self.job.options.max_document_bytes;
                    self.open =
                        Some((part.file, LineReader::open(&path, file.bytes, part.bytes.clone(), limit)?));
                }
            }
        }
    }
}
