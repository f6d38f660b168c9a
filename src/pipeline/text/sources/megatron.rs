//! Indexed datasets of Megatron: ids in a `.bin` file, and the lengths of sequences and bounds of documents in the `.idx`
//! file beside it, which is the source.
//!
//! The index is a header of 34 bytes; the length of each sequence (`i32`), its offset in the `.bin` file (`i64`), and the
//! ordinals of the first sequences of the documents with their number (`i64`); in multimodal datasets, a byte per sequence.
//! It may be large, so it is read piece by piece.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use dsconvert_writer::outcome::Outcomes;

use super::source::{
    BYTES_HELD_PER_BYTE, Division, ExaminedFile, Extent, FileBeside, FilePlan, ItemContext, RejectTask,
    SectionFile, SectionReader, SingleBlock, SourceTask, TASK_BYTES, TaskBlock, TextItem, TextSource,
    too_long,
};
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;
use crate::source::items::text::columns::TextColumns;
use crate::source::items::text::fields::{SourceDocument, TextFields};
use crate::source::table::number_lists::{Integers, RowList};

/// First bytes of an index, and its version.
const MAGIC: &[u8] = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0";
/// Extension of the file with the ids.
const EXTENSION: &str = "bin";
/// Size of the header: magic, version, code of the type, and the numbers of sequences and bounds.
const HEADER_BYTES: u64 = 34;
/// Number of entries of the index that are read at a time.
const ENTRIES: u64 = 1 << 16;
/// Maximum number of documents per task, however short they are.
const TASK_DOCUMENTS: usize = 4096;

/// The index of a dataset of Megatron.
pub(super) struct MegatronIndex;

impl TextSource for MegatronIndex {
    fn plan(&self, file: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        let recipe = file.recipe;
        for (option, is_given) in [
            ("mask_field", !recipe.ids.mask_field.is_empty()),
            ("labels_field", recipe.ids.labels_field.is_some()),
            ("weights_field", recipe.ids.weights_field.is_some()),
            ("key_field", recipe.key_field.is_some()),
            ("keep_fields", !recipe.keep_fields.is_empty()),
        ] {
            if is_given {
                let error = Error::usage("a dataset of Megatron has only ids").of_option(option);
                return Err(error.help("leave out the option").into());
            }
        }
        if file.file.member.is_some() {
            let message = "datasets of Megatron in zip archives are not supported: unpack the archive";
            return Err(Reject::new(RejectCode::Unsupported, message).into());
        }
        let beside = ids_beside(file.planned)?;
        let index = Index::open(file.planned)?;
        let sections = index.check(&beside, file.section_bytes)?;
        index.file.check_unchanged()?;
        Ok(FilePlan {
            columns: None,
            division: Division::Groups(sections),
            beside: Some(FileBeside::of(beside)),
        })
    }

    fn open<'a>(&'static self, section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        let (Extent::Groups(documents), Some(beside)) = (section.extent, section.beside) else {
            return Ok(SingleBlock::none());
        };
        let (index, ids) =
            (Index::open(&section.planned)?, beside.planned(&section.planned, EXTENSION).open()?);
        let document = documents.start as u64;
        let cursor = DocumentCursor::new(&index, document..documents.end as u64)?;
        let max_bytes = section.context.recipe.max_document_bytes;
        Ok(Box::new(DocumentsSection { index, ids, cursor, document, next: None, max_bytes }))
    }

    fn weigh(
        &self,
        file: &PlannedFile,
        _: Option<&TextColumns>,
        group: usize,
    ) -> Result<Option<(u64, u64)>, Broken> {
        let index = Index::open(file)?;
        let range = DocumentCursor::new(&index, group as u64..group as u64 + 1)?.next(&index)?;
        Ok(range.map(|bytes| (1, bytes.end - bytes.start)))
    }

    fn has_encoding(&self) -> bool {
        false
    }

    fn may_hold_ids(&self) -> bool {
        true
    }

    fn check_stdin(&self) -> Result<()> {
        Err(Error::usage("a dataset of Megatron has two files, but standard input is one")
            .help("name the .idx file"))
    }
}

/// Returns the file with the ids, which is beside the index.
fn ids_beside(index: &PlannedFile) -> Result<PlannedFile> {
    let path = index.path.with_extension(EXTENSION);
    let found = PlannedFile::now_or_object(&path)
        .map_err(|e| e.help("the ids of an .idx file are in a .bin file of the same name beside it"))?;
    Ok(PlannedFile { follow_symlinks: index.follow_symlinks, ..found })
}

/// The type of the ids.
#[derive(Clone, Copy)]
enum IdType {
    U8,
    I8,
    I16,
    I32,
    I64,
    U16,
}

impl IdType {
    fn of_code(code: u8) -> Option<(Self, u64)> {
        Some(match code {
            1 => (Self::U8, 1),
            2 => (Self::I8, 1),
            3 => (Self::I16, 2),
            4 => (Self::I32, 4),
            5 => (Self::I64, 8),
            8 => (Self::U16, 2),
            _ => return None,
        })
    }

    /// Decodes ids.
    fn ids(self, bytes: &[u8]) -> Vec<i64> {
        match self {
            Self::U8 => bytes.iter().map(|&id| id.into()).collect(),
            Self::I8 => bytes.iter().map(|&id| (id as i8).into()).collect(),
            Self::I16 => bytes.as_chunks().0.iter().map(|&id| i16::from_le_bytes(id).into()).collect(),
            Self::U16 => bytes.as_chunks().0.iter().map(|&id| u16::from_le_bytes(id).into()).collect(),
            Self::I32 => bytes.as_chunks().0.iter().map(|&id| i32::from_le_bytes(id).into()).collect(),
            Self::I64 => bytes.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id)).collect(),
        }
    }
}

/// An open index.
struct Index {
    file: OpenedFile,
    id_type: IdType,
    id_bytes: u64,
    sequences: u64,
    documents: u64,
}

impl Index {
    fn open(planned: &PlannedFile) -> Result<Self, Broken> {
        let file = planned.open()?;
        let mut header = [0; HEADER_BYTES as usize];
        let read = planned.bytes.min(HEADER_BYTES) as usize;
        fill(&file, &mut header[..read], 0)?;
        if read < header.len() || !header.starts_with(MAGIC) {
            return Err(wrong("the file is not an index of Megatron of version 1".to_owned()));
        }
        let code = header[MAGIC.len()];
        let Some((id_type, id_bytes)) = IdType::of_code(code) else {
            return Err(wrong(format!("the type of the ids has the code {code}, which is not an integer")));
        };
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let (sequences, bounds) = (number(18), number(26));
        let size = |per_sequence: u64| {
            let all = u128::from(sequences) * u128::from(per_sequence) + u128::from(bounds) * 8;
            all + u128::from(HEADER_BYTES)
        };
        let bytes = u128::from(planned.bytes);
        if bytes == size(13) && sequences > 0 {
            let message = "the dataset is multimodal: its sequences are not only text";
            return Err(Error::usage(message).at_path(file.path()).into());
        }
        if bytes != size(12) || bounds == 0 {
            let what =
                format!("{sequences} sequences and {bounds} bounds of documents take {} bytes", size(12));
            return Err(wrong(format!("{what}, but the index has {bytes}")));
        }
        Ok(Self { file, id_type, id_bytes, sequences, documents: bounds - 1 })
    }

    /// Reads bounds of documents: ordinals of sequences.
    fn bounds(&self, range: Range<u64>) -> Result<Vec<u64>> {
        self.numbers(HEADER_BYTES + 12 * self.sequences + 8 * range.start, range.end - range.start)
    }

    /// Reads offsets of sequences.
    fn offsets(&self, range: Range<u64>) -> Result<Vec<u64>> {
        self.numbers(HEADER_BYTES + 4 * self.sequences + 8 * range.start, range.end - range.start)
    }

    /// Reads numbers of 64 bits. A negative one is larger than all others.
    fn numbers(&self, offset: u64, count: u64) -> Result<Vec<u64>> {
        let mut bytes = vec![0; 8 * count as usize];
        fill(&self.file, &mut bytes, offset)?;
        Ok(bytes.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number)).collect())
    }

    /// Reads the lengths of sequences.
    fn sequence_lengths(&self, range: Range<u64>) -> Result<Vec<i32>> {
        let mut bytes = vec![0; 4 * (range.end - range.start) as usize];
        fill(&self.file, &mut bytes, HEADER_BYTES + 4 * range.start)?;
        Ok(bytes.as_chunks().0.iter().map(|&length| i32::from_le_bytes(length)).collect())
    }

    /// Checks the whole index, and the size of the file with the ids. Returns the sections: ranges of documents, each with
    /// its bytes of ids.
    fn check(&self, ids: &PlannedFile, section_bytes: u64) -> Result<Vec<(Range<usize>, u64, u64)>, Broken> {
        let (mut sections, mut start, mut bytes) = (Vec::new(), 0, 0u64);
        let mut documents = DocumentCursor::new(self, 0..self.documents)?;
        let mut document = 0;
        while let Some(range) = documents.next(self)? {
            let length = range.end - range.start;
            if bytes > 0 && bytes + length > section_bytes {
                sections.push((start..document, bytes, bytes));
                (start, bytes) = (document, 0);
            }
            bytes += length;
            document += 1;
        }
        if start < document {
            sections.push((start..document, bytes, bytes));
        }
        let DocumentCursor { sequence, end, .. } = documents;
        if sequence != self.sequences {
            let message =
                format!("the documents have {sequence} sequences, but there are {}", self.sequences);
            return Err(wrong(message));
        }
        if end != ids.bytes {
            let message =
                format!("the index describes {end} bytes of ids, but the .bin file has {}", ids.bytes);
            return Err(wrong(message));
        }
        Ok(sections)
    }
}

/// Returns damage to an index, or to the file with its ids.
fn wrong(message: String) -> Broken {
    Reject::new(RejectCode::Corrupt, message).into()
}

/// Returns the error that refuses a dataset, because of damage to the index `path`.
pub(in crate::pipeline::text) fn refusal(path: &Path, damage: &Reject) -> Error {
    Error::usage(&damage.message)
        .at_path(path)
        .help("write the dataset again: its files are truncated, or belong to others")
}

fn fill(file: &OpenedFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|e| Error::io("read", file.path(), e))
}

/// Reads where documents are in the file with the ids, and checks that they follow each other.
struct DocumentCursor {
    /// Documents whose bounds were not yet read.
    documents: Range<u64>,
    /// Bounds that were read, from the one where the next document starts.
    bounds: std::vec::IntoIter<u64>,
    /// The first sequence of the next document.
    sequence: u64,
    /// Lengths and offsets of sequences that were read.
    lengths: std::iter::Zip<std::vec::IntoIter<i32>, std::vec::IntoIter<u64>>,
    /// Sequences whose lengths were read.
    read: u64,
    /// End of the document before in the file with the ids.
    end: u64,
}

impl DocumentCursor {
    fn new(index: &Index, documents: Range<u64>) -> Result<Self, Broken> {
        let sequence = index.bounds(documents.start..documents.start + 1)?.first().copied().unwrap_or(0);
        let end = match documents.start {
            0 if sequence > 0 => {
                return Err(wrong(format!("the first document starts at sequence {sequence}")));
            }
            0 => 0,
            _ if sequence < index.sequences => {
                index.offsets(sequence..sequence + 1)?.first().copied().unwrap_or(0)
            }
            // Only documents without sequences follow.
            _ => 0,
        };
        let (bounds, lengths) = (Vec::new().into_iter(), Vec::new().into_iter().zip(Vec::new()));
        Ok(Self { documents, bounds, sequence, lengths, read: sequence, end })
    }

    /// Returns the bytes of the next document; `None` at the end.
    fn next(&mut self, index: &Index) -> Result<Option<Range<u64>>, Broken> {
        if self.bounds.len() == 0 {
            if self.documents.is_empty() {
                return Ok(None);
            }
            let start = self.documents.start;
            let end = (start + ENTRIES).min(self.documents.end);
            self.documents.start = end;
            self.bounds = index.bounds(start + 1..end + 1)?.into_iter();
        }
        let Some(bound) = self.bounds.next() else { return Ok(None) };
        if bound < self.sequence || bound > index.sequences {
            let message = format!(
                "the bounds of documents do not ascend to {}: {bound} follows {}",
                index.sequences, self.sequence
            );
            return Err(wrong(message));
        }
        let start = self.end;
        while self.sequence < bound {
            if self.lengths.len() == 0 {
                let range = self.read..(self.read + ENTRIES).min(index.sequences);
                self.read = range.end;
                let lengths = index.sequence_lengths(range.clone())?.into_iter();
                self.lengths = lengths.zip(index.offsets(range)?);
            }
            let Some((length, offset)) = self.lengths.next() else { break };
            let Ok(length) = u64::try_from(length) else {
                return Err(wrong(format!("sequence {} has the length {length}", self.sequence)));
            };
            if offset != self.end {
                let (sequence, end) = (self.sequence, self.end);
                return Err(wrong(format!(
                    "sequence {sequence} is at byte {offset}, but the one before ends at {end}"
                )));
            }
            self.end = self.end.saturating_add(length * index.id_bytes);
            self.sequence += 1;
        }
        Ok(Some(start..self.end))
    }
}

/// A range of documents.
struct DocumentsSection {
    index: Index,
    ids: OpenedFile,
    cursor: DocumentCursor,
    /// The next document, and its bytes once they are known.
    document: u64,
    next: Option<Range<u64>>,
    max_bytes: u64,
}

impl DocumentsSection {
    /// Returns the bytes of the next document. The whole index was checked when the run was planned.
    fn next_document(&mut self) -> Result<Option<Range<u64>>> {
        self.cursor.next(&self.index).map_err(|broken| match broken {
            Broken::Failed(error) => error,
            Broken::Damaged(reject) => refusal(self.index.file.path(), &reject),
        })
    }
}

impl SectionReader for DocumentsSection {
    fn next(&mut self) -> Result<Option<TaskBlock>> {
        let mut bytes = 0..0;
        let mut ends = Vec::new();
        loop {
            let next = match self.next.take() {
                Some(next) => Some(next),
                None => self.next_document()?,
            };
            let Some(next) = next else { break };
            let length = next.end - next.start;
            if ends.is_empty() {
                if length > self.max_bytes {
                    let reject = too_long("document", length, self.max_bytes);
                    self.document += 1;
                    let items = RejectTask::boxed(Some(self.document - 1), self.document, reject);
                    return Ok(Some(TaskBlock { items, member: None, source_bytes: length, held: 0 }));
                }
                bytes = next.start..next.start;
            }
            let is_full = next.end - bytes.start > TASK_BYTES as u64 || ends.len() == TASK_DOCUMENTS;
            if !ends.is_empty() && is_full {
                self.next = Some(next);
                break;
            }
            bytes.end = next.end;
            ends.push((next.end - bytes.start) as usize);
        }
        if ends.is_empty() {
            return Ok(None);
        }
        let first = self.document;
        self.document += ends.len() as u64;
        let source_bytes = bytes.end - bytes.start;
        let mut ids = vec![0; source_bytes as usize];
        fill(&self.ids, &mut ids, bytes.start)?;
        let items = Box::new(DocumentsTask { first, ids, ends, at: 0, id_type: self.index.id_type });
        let held = source_bytes.saturating_mul(BYTES_HELD_PER_BYTE);
        Ok(Some(TaskBlock { items, member: None, source_bytes, held }))
    }

    fn check_unchanged(&self) -> Result<()> {
        self.index.file.check_unchanged()?;
        self.ids.check_unchanged()
    }
}

/// Documents that follow each other.
struct DocumentsTask {
    /// Ordinal of the first document.
    first: u64,
    ids: Vec<u8>,
    /// End of each document in `ids`.
    ends: Vec<usize>,
    /// The next document.
    at: usize,
    id_type: IdType,
}

impl SourceTask for DocumentsTask {
    fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    fn rows(&self) -> Option<u64> {
        Some(self.ends.len() as u64)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Result<Option<TextItem<'_>>> {
        let Some(&end) = self.ends.get(self.at) else { return Ok(None) };
        let start = match self.at.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => {
                out.add_content(&self.ids);
                0
            }
        };
        let mark = Some(self.first + self.at as u64);
        self.at += 1;
        let ids = self.id_type.ids(self.ids.get(start..end).unwrap_or_default());
        let row = match context.text {
            TextFields::Ids(fields) => {
                fields.row(|at, _| Ok((at == 0).then_some(RowList::Integers(Integers::I64((&ids).into())))))
            }
            _ => Err(Reject::new(RejectCode::Unsupported, "the file holds token ids, not text")),
        };
        let document = row.map(|row| SourceDocument {
            text: Cow::Borrowed(""),
            ids: Some(Box::new(row)),
            key: None,
            kept: Vec::new(),
            unread: Vec::new(),
        });
        Ok(Some(TextItem { mark, document }))
    }
}
