//! Megatron's indexed datasets: a `.bin` with the token ids and an `.idx` that lists the documents.

use std::io::Write;
use std::ops::Range;

use serde_json::{Value, json};

use super::documents::{DocumentBlock, Documents, EndPlace};
use super::output::StagedFiles;
use super::{ExportInput, ExportOptions, ExportSplit, Exporter, Part, entry};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::numbers::count;
use crate::schema::IdWidth;
use crate::storage::NewFile;

/// First bytes of an index.
const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// Version of the index.
const VERSION: u64 = 1;
/// Codes of the type of ids: `uint16` and `int32`.
const CODES: (u8, u8) = (8, 4);
/// Megatron stores ids in 16 bits if there are fewer than this.
const NARROW_BELOW: u64 = 65_500;
/// Bytes of the index that are formatted at once.
const CHUNK: usize = 4096;

/// Megatron's indexed datasets.
pub(super) struct Megatron {
    documents: Documents,
}

/// The files of a part.
pub(super) struct MegatronFiles {
    stem: String,
    bin: NewFile,
    /// Number of tokens of each document.
    lengths: Vec<i32>,
}

impl Megatron {
    pub(super) fn new(input: &ExportInput, options: &ExportOptions) -> Result<Self> {
        let width = |ids: Option<u64>| match ids {
            Some(ids) if ids < NARROW_BELOW => IdWidth::U16,
            _ => IdWidth::U32,
        };
        Ok(Self { documents: Documents::new(input, options, EndPlace::After, false, width)? })
    }
}

impl Exporter for Megatron {
    type Block = DocumentBlock;
    type Files = MegatronFiles;

    fn warnings(&self) -> Vec<String> {
        self.documents.warnings.clone()
    }

    fn check(&self, part: &Part<'_>) -> Result<()> {
        let runs = part.split.source.lengths().runs()?;
        let longest = runs.last().transpose()?.map_or(0, |run| run.length);
        // With an end token.
        match i32::try_from(longest + 1) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(too_long(longest).help("convert with `max_length`, which limits the tokens of a record"))
            }
        }
    }

    fn described(&self) -> Value {
        let dtype = if self.documents.width == IdWidth::U16 { "uint16" } else { "int32" };
        json!({ "dtype": dtype, "eod": self.documents.end.as_ref().map(|(id, _)| id) })
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<DocumentBlock> {
        self.documents.encode(split, records)
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<MegatronFiles> {
        let stem = part.stem();
        let bin = staged.create(&format!("{stem}.bin"))?;
        Ok(MegatronFiles { stem, bin, lengths: Vec::new() })
    }

    fn append(&self, files: &mut MegatronFiles, block: DocumentBlock) -> Result<()> {
        for length in block.lengths {
            files.lengths.push(i32::try_from(length).map_err(|_| too_long(length.into()))?);
        }
        files.bin.write_all(&block.ids).map_err(|e| Error::io("write", files.bin.path(), e))
    }

    fn close(&self, files: MegatronFiles, staged: &StagedFiles) -> Result<Vec<FileEntry>> {
        let MegatronFiles { stem, bin, lengths } = files;
        let bin = entry(format!("{stem}.bin"), bin.commit()?);
        let name = format!("{stem}.idx");
        let mut idx = staged.create(&name)?;
        write_index(&mut idx, &lengths, self.documents.width)
            .map_err(|e| Error::io("write", idx.path(), e))?;
        Ok(vec![bin, entry(name, idx.commit()?)])
    }
}

/// Writes the index of documents with these `lengths`.
fn write_index(out: &mut impl Write, lengths: &[i32], width: IdWidth) -> std::io::Result<()> {
    let documents = lengths.len() as u64;
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&[if width == IdWidth::U16 { CODES.0 } else { CODES.1 }])?;
    out.write_all(&documents.to_le_bytes())?;
    // The list of documents starts with 0.
    out.write_all(&(documents + 1).to_le_bytes())?;
    let mut buffer = Vec::with_capacity(8 * CHUNK);
    let mut put = |values: &mut dyn Iterator<Item = u8>| {
        buffer.clear();
        buffer.extend(values);
        out.write_all(&buffer)
    };
    for chunk in lengths.chunks(CHUNK) {
        put(&mut chunk.iter().flat_map(|length| length.to_le_bytes()))?;
    }
    let mut at = 0i64;
    for chunk in lengths.chunks(CHUNK) {
        put(&mut chunk.iter().flat_map(|&length| {
            let start = at;
            at += i64::from(length) * width.bytes() as i64;
            start.to_le_bytes()
        }))?;
    }
    let mut numbers = 0..=documents;
    while !numbers.is_empty() {
        put(&mut numbers.by_ref().take(CHUNK).flat_map(u64::to_le_bytes))?;
    }
    Ok(())
}

fn too_long(tokens: u64) -> Error {
    Error::usage(format!(
        "a document has {} tokens, and the index of Megatron stores at most 2^31 - 1",
        count(tokens)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_that_of_megatron() {
        let mut index = Vec::new();
        write_index(&mut index, &[3, 0, 2], IdWidth::U16).unwrap();
        let mut expected = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
        [3i32, 0, 2].iter().for_each(|length| expected.extend(length.to_le_bytes()));
        [0i64, 6, 6, 0, 1, 2, 3].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        assert_eq!(index, expected);
    }

    #[test]
    fn pointers_exceed_32_bits() {
        let mut index = Vec::new();
        write_index(&mut index, &[i32::MAX, 1, 1], IdWidth::U32).unwrap();
        assert_eq!(index[17], 4);
        let pointer = |at: usize| i64::from_le_bytes(index[34 + 12 + 8 * at..][..8].try_into().unwrap());
        assert_eq!([0, 1, 2].map(pointer), [0, 4 * i64::from(i32::MAX), 4 * (i64::from(i32::MAX) + 1)]);
    }
}
