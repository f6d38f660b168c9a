//! Token ids as the documents that trainers read: their width, and the token that separates them.

use std::ops::Range;

use super::{EndOfDocument, ExportFormat, ExportInput, ExportOptions, ExportSplit, left_out, unused_fields};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::reader::Record;
use crate::sample::{Ids, Value};
use crate::schema::{CU_SEQLENS, INPUT_IDS, IdWidth, KEY, ORIGIN, PIECE_STARTS};

/// Place of the token that separates documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndPlace {
    Before,
    After,
}

/// Turns records of token ids into documents.
#[derive(Debug)]
pub(super) struct Documents {
    pub(super) width: IdWidth,
    /// The separating token: id and string.
    pub(super) end: Option<(u32, String)>,
    pub(super) warnings: Vec<String>,
    place: EndPlace,
    /// Whether records are rows of several documents.
    packed: bool,
    /// Whether a separating token is only before the first piece of a document, which the rows name.
    before_starts: bool,
    /// Whether to also return keys and origins.
    has_names: bool,
}

/// The documents of a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DocumentBlock {
    /// Ids of all documents, little-endian.
    pub(super) ids: Vec<u8>,
    /// Number of tokens of each document.
    pub(super) lengths: Vec<u32>,
    /// Key, origin and ordinal of the record of each document, if requested.
    pub(super) names: Vec<(String, String, u64)>,
}

impl Documents {
    /// Checks that `input` consists of documents without masks. `width` is derived from the number of ids that may occur, if
    /// it is known.
    pub(super) fn new(
        input: &ExportInput,
        options: &ExportOptions,
        place: EndPlace,
        has_names: bool,
        width: impl Fn(Option<u64>) -> IdWidth,
    ) -> Result<Self> {
        let schema = input.schema()?;
        let format = options.format;
        check_text(input, format)?;
        if schema.masks_field().is_some() {
            return Err(Error::usage(format!(
                "the dataset marks the tokens to train on (assistant_masks), and {format} would train on all of them"
            ))
            .help("export with `to megatron-bridge`, which has loss masks"));
        }
        let packed = input.is_packed()?;
        let used: &[&str] =
            if place == EndPlace::Before { &[CU_SEQLENS, PIECE_STARTS] } else { &[CU_SEQLENS] };
        let mut warnings: Vec<String> = left_out(format, &unused_fields(schema, used)).into_iter().collect();
        if packed && input.cut_documents > 0 {
            warnings.push(format!(
                "{} of the packed rows {} divided among several rows; each piece becomes a document",
                plural(input.cut_documents, "document"),
                if input.cut_documents == 1 { "is" } else { "are" }
            ));
        }
        let mut end = end_token(input, options)?;
        if let Some((id, name)) = &end
            && input.tokenizer.pad_id == Some(*id)
        {
            warnings.push(format!(
                "{name:?} (id {id}) ends documents, and is also the padding token: trainers that mask padding do not learn it"
            ));
        }
        let cardinality = input.tokenizer.cardinality();
        let by_end = end.as_ref().map(|(id, _)| u64::from(*id) + 1);
        let width = width(cardinality.map(|known| known.max(by_end.unwrap_or(0))));
        // In rows that were packed from documents with an EOS token, a piece without one continues in another row.
        let mut before_starts = false;
        if packed && input.tokenizer.adds_eos {
            let is_added =
                |(id, _): &(u32, String)| input.tokenizer.eos.as_ref().is_some_and(|(eos, _)| eos == id);
            match place {
                EndPlace::After => end = end.filter(|end| !is_added(end)),
                EndPlace::Before => {
                    before_starts =
                        end.as_ref().is_some_and(is_added) && schema.index_of(PIECE_STARTS).is_some();
                }
            }
        }
        Ok(Self { width, end, warnings, place, packed, before_starts, has_names })
    }

    /// Encodes the documents of `records`.
    pub(super) fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<DocumentBlock> {
        let source = &*split.source;
        let ordinals: Vec<u64> = records.collect();
        let mut block = DocumentBlock::default();
        block.lengths.reserve(ordinals.len());
        if self.packed || self.has_names {
            for record in source.get_many(&ordinals)? {
                let at = |error: Error| source.at_record(error, record.ordinal());
                self.add_record(&record, &mut block).map_err(at)?;
            }
            return Ok(block);
        }
        let field = source.schema().index_of(INPUT_IDS).ok_or_else(no_ids)?;
        let mut result = Ok(());
        source.lend_ids(&ordinals, field, &mut |all| {
            block.ids.reserve(all.iter().map(|ids| (ids.len() + 1) * self.width.bytes()).sum());
            result = all.iter().zip(&ordinals).try_for_each(|(ids, &record)| {
                self.add(ids, false, &mut block).map_err(|error| source.at_record(error, record))
            });
        })?;
        result.map(|()| block)
    }

    fn add_record(&self, record: &Record, block: &mut DocumentBlock) -> Result<()> {
        let ids = record.input_ids().ok_or_else(no_ids)?;
        let before = block.lengths.len();
        match self.packed {
            true => {
                let pieces = pieces(record, ids.len())?;
                let continues =
                    if self.before_starts { continues(record, pieces.len())? } else { Vec::new() };
                for (number, piece) in pieces.into_iter().enumerate() {
                    let width = ids.width();
                    let bytes = &ids.as_bytes()[piece.start * width.bytes()..piece.end * width.bytes()];
                    let piece = Ids::new(width, bytes).ok_or_else(no_ids)?;
                    self.add(&piece, continues.get(number) == Some(&true), block)?;
                }
            }
            false => self.add(&ids.lend(), false, block)?,
        }
        if self.has_names {
            let text = |name: &str| record.text(name).unwrap_or_default().to_owned();
            let names = (text(KEY), text(ORIGIN), record.ordinal());
            block.names.extend(std::iter::repeat_n(names, block.lengths.len() - before));
        }
        Ok(())
    }

    /// Adds a document with these `ids`, and the separating token where it is missing. If the document `continues`, it has
    /// the token before its start, in another row.
    fn add(&self, ids: &Ids<&[u8]>, continues: bool, block: &mut DocumentBlock) -> Result<()> {
        let width = ids.width().bytes();
        let mut bytes: &[u8] = ids.as_bytes();
        let end_bytes = self.end.as_ref().map(|(id, _)| id.to_le_bytes());
        let is_end = |id: &[u8]| {
            let ends = |end: &[u8; 4]| end.starts_with(id) && end[id.len()..].iter().all(|byte| *byte == 0);
            end_bytes.as_ref().is_some_and(ends)
        };
        let ends = bytes.len() >= width && is_end(&bytes[bytes.len() - width..]);
        let starts = bytes.len() >= width && is_end(&bytes[..width]);
        let begin = block.ids.len();
        let end = self.end.as_ref().map(|(id, _)| *id);
        if self.place == EndPlace::Before {
            // The token before the next document takes the place of the one after this document.
            if ends && (bytes.len() > width || continues) {
                bytes = &bytes[..bytes.len() - width];
            }
            if continues && bytes.is_empty() {
                return Ok(());
            }
            if let Some(end) = end.filter(|_| !starts && !continues) {
                self.push(end, &mut block.ids)?;
            }
        }
        self.copy(ids.width(), bytes, &mut block.ids)?;
        if self.place == EndPlace::After
            && let Some(end) = end.filter(|_| !ends)
        {
            self.push(end, &mut block.ids)?;
        }
        let length = (block.ids.len() - begin) / self.width.bytes();
        block.lengths.push(u32::try_from(length).map_err(|_| Error::corrupt("the record has 2^32 tokens"))?);
        Ok(())
    }

    fn push(&self, id: u32, out: &mut Vec<u8>) -> Result<()> {
        match self.width {
            IdWidth::U16 => {
                out.extend_from_slice(&u16::try_from(id).map_err(|_| too_large(id))?.to_le_bytes())
            }
            IdWidth::U32 => out.extend_from_slice(&id.to_le_bytes()),
        }
        Ok(())
    }

    /// Appends the ids in `bytes`, which have the width `from`, in the width of the output.
    fn copy(&self, from: IdWidth, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match (from, self.width) {
            (IdWidth::U16, IdWidth::U16) | (IdWidth::U32, IdWidth::U32) => out.extend_from_slice(bytes),
            (IdWidth::U16, IdWidth::U32) => {
                out.extend(bytes.as_chunks().0.iter().flat_map(|&[a, b]: &[u8; 2]| [a, b, 0, 0]));
            }
            (IdWidth::U32, IdWidth::U16) => {
                let ids = bytes.as_chunks().0;
                if let Some(id) = ids.iter().find(|[_, _, c, d]| (*c, *d) != (0, 0)) {
                    return Err(too_large(u32::from_le_bytes(*id)));
                }
                out.extend(ids.iter().flat_map(|&[a, b, _, _]: &[u8; 4]| [a, b]));
            }
        }
        Ok(())
    }
}

/// Refuses records that are not token ids.
pub(super) fn check_text(input: &ExportInput, format: ExportFormat) -> Result<()> {
    let schema = input.schema()?;
    if !schema.holds_token_ids() {
        let (items, help) = if schema.holds_completions() {
            (
                "preference data",
                "export it with `to hf`; `columns reward` writes each side of a pair as one list of ids",
            )
        } else if schema.holds_prompts() {
            ("prompts", "export them with `to hf`, which writes their messages")
        } else {
            (schema.kind.name(), "export images and records with `to webdataset` or `to hf`")
        };
        let what = format!("the dataset holds {items}, and {format} holds token ids");
        return Err(Error::usage(what).of_option("to").help(help));
    }
    if schema.holds_multimodal() {
        let what = format!("the tokens of images stand for images, which {format} does not hold");
        return Err(Error::usage(what)
            .of_option("to")
            .help("export chats with images with `to hf` and all stored columns"));
    }
    schema.index_of(INPUT_IDS).map(drop).ok_or_else(no_ids)
}

fn no_ids() -> Error {
    Error::corrupt("the record has no token ids")
}

fn too_large(id: u32) -> Error {
    Error::corrupt(format!("the token id {id} is larger than any of the recorded tokenizer"))
        .help("the dataset or its manifest was altered; convert it again")
}

/// Returns the documents of a packed row.
pub(super) fn pieces(record: &Record, tokens: usize) -> Result<Vec<Range<usize>>> {
    let damaged = || Error::corrupt(format!("{CU_SEQLENS} does not divide the tokens of the row"));
    let Some(Value::Ids(ends)) = record.get(CU_SEQLENS) else { return Err(damaged()) };
    let ends: Vec<usize> = ends.iter().map(|end| end as usize).collect();
    let is_valid = ends.first() == Some(&0)
        && ends.last() == Some(&tokens)
        && ends.windows(2).all(|pair| pair[0] < pair[1]);
    match is_valid {
        true => Ok(ends.windows(2).map(|pair| pair[0]..pair[1]).collect()),
        false => Err(damaged()),
    }
}

/// Returns for each of the `pieces` of a packed row whether its document starts in another row.
fn continues(record: &Record, pieces: usize) -> Result<Vec<bool>> {
    match record.get(PIECE_STARTS) {
        Some(Value::Ids(starts)) if starts.len() == pieces => {
            Ok(starts.iter().map(|start| start > 0).collect())
        }
        _ => {
            Err(Error::corrupt(format!("{PIECE_STARTS} does not have one number for each piece of the row")))
        }
    }
}

/// Returns the token that separates documents: id and string.
fn end_token(input: &ExportInput, options: &ExportOptions) -> Result<Option<(u32, String)>> {
    let facts = &input.tokenizer;
    match options.eod.clone().unwrap_or_default() {
        EndOfDocument::None => Ok(None),
        EndOfDocument::Auto => match (&facts.eos, &facts.other_eos) {
            (Some((_, eos)), Some(other)) => {
                let what = format!("the datasets end documents with different tokens: {eos:?} and {other:?}");
                Err(Error::usage(what).of_option("eod").help("name the token that separates documents"))
            }
            (Some(eos), None) => Ok(Some(eos.clone())),
            (None, _) => Err(Error::usage("the dataset records no EOS token to end documents with")
                .of_option("eod")
                .help("name the token, or write documents as they are with `eod none`")),
        },
        EndOfDocument::Token(token) => match facts.id_of(&token) {
            Some(id) => Ok(Some((id, token))),
            None => Err(Error::usage(format!("the tokenizer of the dataset has no token {token:?}"))
                .of_option("eod")
                .help("give the string of a token, or its id")),
        },
    }
}
