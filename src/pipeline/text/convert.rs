//! From pieces of files to records: lines, fields, token ids.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::TextJob;
use super::feed::{PartFeed, Task};
use crate::error::Result;
use crate::pipeline::conversion::{Conversion, Converting, Feed};
use crate::pipeline::outcome::{Converted, Outcome, Outcomes};
use crate::sample::{Ids, Record, Reject, RejectCode, Value};
use crate::schema::Schema;
use crate::source::jsonl::{self, Fields};
use crate::source::lines::Piece;
use crate::source::read_planned;
use crate::transform::text::Scratch;

/// The running conversion.
pub(super) struct Texts<'a> {
    pub(super) job: &'a TextJob,
}

/// What a worker keeps from task to task.
pub(in crate::pipeline) struct Worker {
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
        Ok(Box::new(PartFeed::new(self.job, parts, careful)))
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
