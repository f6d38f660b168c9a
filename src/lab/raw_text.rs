//! Raw text files: documents are located, parsed and tokenized one by one.
//!
//! One pass before the measurement locates the documents, because loaders keep such a list. Documents of plain files
//! are then read at their offsets. Compressed files are decompressed from their start, so they are read in order only,
//! each by one thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{BatchWorker, DeliveredShape, IdRows, LoadedBatch, RawFile, RawSource, Stopwatch, TargetKind};

use crate::error::{Error, Result};
use crate::sample::Reject;
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::lines::LinePiece;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::source::items::json_line::WantedFields;
use crate::source::items::text::cut::{DocumentCut, DocumentCutter, Rule, lines};
use crate::source::items::text::fields::TextFields;
use crate::source::items::text::kind::{Documents, FileKind, TextFormat};
use crate::storage::open_file;
use crate::transform::text::{Scratch, Tokenizer};

/// Number of bytes to read at a time while locating documents.
const SCAN_BYTES: usize = 1 << 20;
/// Maximum size of a document, equal to the default of a conversion.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Maximum number of files that a thread keeps open.
const OPEN_FILES: usize = 64;

/// Location of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DocumentPlace {
    file: u32,
    /// Offset in the decompressed file.
    offset: u64,
    bytes: u64,
}

/// A corpus of text files.
pub(super) struct RawText {
    files: Vec<RawFile>,
    kinds: Vec<FileKind>,
    documents: Documents,
    wanted: WantedFields,
    tokenizer: Option<Arc<Tokenizer>>,
    places: Vec<DocumentPlace>,
    /// Stored bytes ÷ decompressed bytes of each file.
    stored_ratio: Vec<f64>,
}

fn rule(kind: FileKind, documents: &Documents) -> Rule {
    match (kind.format, documents) {
        (TextFormat::JsonLines, _) | (_, Documents::Line) => Rule::Lines,
        (_, Documents::File) => Rule::Whole,
        (_, Documents::BlankLine) => Rule::BlankLines,
        (_, Documents::Separator(separator)) => Rule::Separator(separator.clone()),
    }
}

impl RawText {
    /// Locates the documents of `files`.
    pub(super) fn find(
        files: Vec<RawFile>,
        kinds: Vec<FileKind>,
        documents: Documents,
        text_field: String,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<Self> {
        let mut text = Self {
            kinds,
            documents,
            wanted: WantedFields::new(&TextFields::Text(text_field), None, &[]),
            tokenizer,
            places: Vec::new(),
            stored_ratio: Vec::new(),
            files,
        };
        for (file, (raw, &kind)) in (0u32..).zip(text.files.iter().zip(&text.kinds)) {
            let found = scan(raw, kind, &rule(kind, &text.documents), MAX_DOCUMENT_BYTES)?;
            let decompressed = found.iter().map(|(_, bytes)| bytes).sum::<u64>().max(1);
            text.stored_ratio.push(match kind.compression {
                Some(_) => raw.bytes as f64 / decompressed as f64,
                None => 1.0,
            });
            let places = found.into_iter().map(|(offset, bytes)| DocumentPlace { file, offset, bytes });
            text.places.extend(places);
        }
        Ok(text)
    }

    fn place(&self, item: u64) -> Option<(DocumentPlace, &RawFile)> {
        let place = *self.places.get(item as usize)?;
        Some((place, self.files.get(place.file as usize)?))
    }
}

impl RawSource for RawText {
    fn kind(&self) -> TargetKind {
        TargetKind::RawText
    }

    fn items(&self) -> u64 {
        self.places.len() as u64
    }

    fn files(&self) -> &[RawFile] {
        &self.files
    }

    fn has_tokens(&self) -> bool {
        self.tokenizer.is_some()
    }

    /// Returns the runs of documents that one thread must read in order, or `None` if any can be read at any time.
    fn streams(&self) -> Option<Vec<std::ops::Range<u64>>> {
        self.kinds.iter().any(|kind| kind.compression.is_some()).then(|| {
            let mut at = 0;
            let files = self.places.chunk_by(|a, b| a.file == b.file);
            files
                .map(|file| {
                    let start = at;
                    at += file.len() as u64;
                    start..at
                })
                .collect()
        })
    }

    /// Returns the origin of the document without the label of its source: the path under the folder and, unless the
    /// document is the whole file, its offset.
    fn name(&self, item: u64) -> String {
        let Some((place, file)) = self.place(item) else { return String::new() };
        let kind = self.kinds.get(place.file as usize);
        let whole = kind.is_some_and(|kind| rule(*kind, &self.documents) == Rule::Whole);
        if whole { file.name.clone() } else { format!("{}#{}", file.name, place.offset) }
    }

    fn worker(&self) -> Box<dyn BatchWorker + '_> {
        Box::new(RawTextWorker {
            text: self,
            open: BTreeMap::new(),
            stream: None,
            bytes: Vec::new(),
            buffer: Vec::new(),
            rows: IdRows::default(),
            scratch: self.tokenizer.as_ref().map(|tokenizer| tokenizer.scratch()),
        })
    }
}

/// Returns the offsets and sizes of the documents of a file, as a conversion finds them. A document of more than
/// `max_bytes` is not held in memory.
fn scan(file: &RawFile, kind: FileKind, rule: &Rule, max_bytes: u64) -> Result<Vec<(u64, u64)>> {
    if *rule == Rule::Whole && kind.compression.is_none() {
        return Ok(vec![(0, file.bytes)]);
    }
    let stream = Stream::open(&PlannedFile::now(&file.path)?, kind.compression)?;
    let mut cutter = DocumentCutter::new(stream, rule.clone(), max_bytes);
    let mut found = Vec::new();
    while let Some(cut) = cutter.next(SCAN_BYTES)? {
        match cut {
            DocumentCut::Piece(LinePiece::Lines { offset, bytes }) if *rule == Rule::Lines => {
                found.extend(lines(&bytes).map(|(at, line)| (offset + at as u64, line.len() as u64)));
            }
            DocumentCut::Piece(LinePiece::Lines { offset, bytes }) => {
                let documents = rule.documents(&bytes).into_iter();
                found.extend(documents.map(|at| (offset + at.start as u64, at.len() as u64)));
            }
            DocumentCut::Piece(LinePiece::Overlong { offset, bytes })
            | DocumentCut::Unclosed { offset, bytes } => found.push((offset, bytes)),
            // Documents before the damage are kept.
            DocumentCut::Broken { .. } => break,
        }
    }
    Ok(found)
}

/// A compressed file that is being read.
struct OpenStream {
    file: u32,
    stream: Stream,
    /// Number of decompressed bytes read so far.
    at: u64,
}

/// Loads documents on one thread.
struct RawTextWorker<'a> {
    text: &'a RawText,
    open: BTreeMap<u32, File>,
    stream: Option<OpenStream>,
    bytes: Vec<u8>,
    buffer: Vec<u8>,
    rows: IdRows,
    scratch: Option<Scratch>,
}

impl RawTextWorker<'_> {
    /// Reads a document into `self.bytes`.
    fn read(
        &mut self,
        place: DocumentPlace,
        lap: &mut Stopwatch,
        out: &mut LoadedBatch,
    ) -> Result<(), String> {
        if place.bytes > MAX_DOCUMENT_BYTES {
            return Err(format!("has {} bytes, more than {MAX_DOCUMENT_BYTES}", place.bytes));
        }
        let file = self.text.files.get(place.file as usize).ok_or("is not in the folder")?;
        let kind = self.text.kinds.get(place.file as usize).copied();
        self.bytes.resize(place.bytes as usize, 0);
        if let Some(compression) = kind.and_then(|kind| kind.compression) {
            self.read_stream(place, file, compression)?;
        } else {
            if !self.open.contains_key(&place.file) {
                if self.open.len() >= OPEN_FILES {
                    self.open.pop_first();
                }
                let opened = open_file(&file.path, true).map_err(|e| format!("cannot be opened: {e}"))?;
                self.open.insert(place.file, opened);
            }
            out.stages.open += lap.ns();
            let opened = self.open.get(&place.file).ok_or("is not open")?;
            opened
                .read_exact_at(&mut self.bytes, place.offset)
                .map_err(|e| format!("cannot be read: {e}"))?;
        }
        out.stages.read += lap.ns();
        let ratio = self.text.stored_ratio.get(place.file as usize).copied().unwrap_or(1.0);
        out.bytes += place.bytes as f64 * ratio;
        Ok(())
    }

    /// Decompresses up to the end of a document.
    fn read_stream(
        &mut self,
        place: DocumentPlace,
        file: &RawFile,
        compression: Compression,
    ) -> Result<(), String> {
        let here = self.stream.take().filter(|s| s.file == place.file && s.at <= place.offset);
        let mut stream = match here {
            Some(stream) => stream,
            None => {
                let planned = PlannedFile::now(&file.path).map_err(|e| e.to_string())?;
                let stream = Stream::open(&planned, Some(compression)).map_err(|e| e.to_string())?;
                OpenStream { file: place.file, stream, at: 0 }
            }
        };
        let mut fill = |buffer: &mut [u8]| match stream.stream.fill(buffer) {
            Ok(read) if read == buffer.len() => Ok(()),
            Ok(_) => Err("the file ends before the end of the document".to_owned()),
            Err(Broken::Failed(error)) => Err(error.to_string()),
            Err(Broken::Damaged(reject)) => Err(reject.message),
        };
        let mut gap = place.offset - stream.at;
        while gap > 0 {
            let step = gap.min(SCAN_BYTES as u64);
            self.buffer.resize(step as usize, 0);
            fill(&mut self.buffer)?;
            gap -= step;
        }
        fill(&mut self.bytes)?;
        stream.at = place.offset + place.bytes;
        self.stream = Some(stream);
        Ok(())
    }

    /// Loads a document, and adds its ids to the rows if there is a tokenizer.
    fn document(&mut self, item: u64, decode: bool, out: &mut LoadedBatch) -> Result<(), String> {
        let (place, _) = self.text.place(item).ok_or("is not in the corpus")?;
        let mut lap = Stopwatch::start();
        self.read(place, &mut lap, out)?;
        if !decode {
            std::hint::black_box(&self.bytes);
            return Ok(());
        }
        let Self { text, bytes, rows, scratch, .. } = self;
        let is_json = text.kinds.get(place.file as usize).is_some_and(|k| k.format == TextFormat::JsonLines);
        let bom = "\u{feff}".as_bytes();
        let content = match place.offset {
            0 => bytes.strip_prefix(bom).unwrap_or(bytes),
            _ => bytes.as_slice(),
        };
        let parsed: Result<std::borrow::Cow<'_, str>, Reject> = if is_json {
            let line = content.strip_suffix(b"\n").unwrap_or(content);
            text.wanted.find(line).map(|found| found.text)
        } else {
            let plain = std::str::from_utf8(content);
            plain.map(Into::into).map_err(|e| Reject::not_utf8("the document", &e))
        };
        out.stages.decode += lap.ns();
        let parsed = parsed.map_err(|reject| reject.message)?;
        if parsed.is_empty() {
            return Err("the document is empty".to_owned());
        }
        let (Some(tokenizer), Some(scratch)) = (&text.tokenizer, scratch) else {
            std::hint::black_box(&parsed);
            return Ok(());
        };
        let encoded = tokenizer.encode(&parsed, scratch, &mut rows.flat);
        out.stages.transform += lap.ns();
        encoded.map_err(|error| error.to_string())?;
        rows.end_document();
        Ok(())
    }
}

impl BatchWorker for RawTextWorker<'_> {
    fn load(&mut self, items: &[u64], decode: bool, out: &mut LoadedBatch) {
        self.rows.clear();
        for &item in items {
            let mut lap = Stopwatch::start();
            let loaded = self.document(item, decode, out);
            out.add(item, lap.ns(), loaded);
        }
        if decode && self.scratch.is_some() {
            let mut lap = Stopwatch::start();
            self.rows.pad(out);
            out.shared_ns = lap.ns();
            out.stages.collate += out.shared_ns;
        }
    }

    fn shape(&mut self, item: u64) -> Result<DeliveredShape, String> {
        self.rows.clear();
        self.document(item, true, &mut LoadedBatch::default())?;
        if self.scratch.is_none() {
            return Err("has no tokens without a tokenizer".to_owned());
        }
        Ok(DeliveredShape::of_ids(&self.rows.flat))
    }
}

/// Returns the error for a text file in an unsupported format.
pub(super) fn unsupported(file: &RawFile) -> Error {
    Error::usage("only .jsonl and .txt text files can be measured, plain or compressed")
        .at_path(&file.path)
        .help("convert it with dsconvert text, and measure the dataset")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit on the size of a document.
    const MAX_BYTES: u64 = 3 << 20;

    fn corpus(name: &str, bytes: &[u8], documents: &str) -> Vec<(u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let file = RawFile { path, name: name.to_owned(), bytes: bytes.len() as u64 };
        let kind = FileKind::of_name(name).unwrap();
        scan(&file, kind, &rule(kind, &documents.parse().unwrap()), MAX_BYTES).unwrap()
    }

    #[test]
    fn documents_are_found_at_their_offsets() {
        assert_eq!(corpus("a.jsonl", b"{}\n\n{\"a\":1}", "file"), [(0, 3), (3, 1), (4, 7)]);
        assert_eq!(corpus("a.txt", b"one\ntwo\n", "file"), [(0, 8)]);
        assert_eq!(corpus("a.txt", b"one\n\ntwo\n", "blank-line"), [(0, 3), (5, 3)]);
        assert_eq!(corpus("a.txt", b"one--two", "separator:--"), [(0, 3), (5, 3)]);
        assert_eq!(corpus("a.jsonl", b"", "file"), []);
        let long: Vec<u8> =
            std::iter::repeat_n(b"x".repeat(999).as_slice(), 3000).collect::<Vec<_>>().join(&b'\n');
        let found = corpus("a.jsonl", &long, "file");
        assert_eq!(found.len(), 3000);
        assert!(found.iter().enumerate().all(|(i, &(at, bytes))| at == i as u64 * 1000 && bytes >= 999));
    }

    #[test]
    fn a_document_above_the_limit_is_found_and_the_next_ones_too() {
        let long = [b"one\n\n".as_slice(), &b"x".repeat(5 << 20), b"\n\nthree\n"].concat();
        let found = [(0, 3), (5, 5 << 20), (7 + (5 << 20), 5)];
        assert_eq!(corpus("a.txt", &long, "blank-line"), [found[0], (5, (5 << 20) + 2), found[2]]);
        let zstd = zstd::encode_all(long.as_slice(), 1).unwrap();
        assert_eq!(corpus("a.txt.zst", &zstd, "blank-line").len(), 3);
        // Cut off in the middle of the long document.
        let cut = &zstd[..zstd.len() / 2];
        assert!(corpus("a.txt.zst", cut, "blank-line").len() < 3);
        let lines: u64 = corpus("a.jsonl", &long, "file").iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(lines, long.len() as u64);
    }
}
