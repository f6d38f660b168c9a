//! Flat files of token ids, as nanoGPT, llm.c and OLMo read them.

use std::io::Write;
use std::ops::Range;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};

use super::documents::{DocumentBlock, Documents, EndPlace};
use super::output::StagedFiles;
use super::{ExportInput, ExportOptions, ExportSplit, Exporter, Layout, Part, entry};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::numbers::count;
use crate::schema::IdWidth;
use crate::storage::{NewFile, Written};

/// Size of the header of llm.c in 32-bit numbers.
const LLMC_HEADER: usize = 256;
/// Magic number and version of the header of llm.c, for ids of 16 and of 32 bits.
const LLMC_NARROW: [i32; 2] = [20_240_520, 1];
const LLMC_WIDE: [i32; 2] = [20_240_801, 7];
/// Number of ids up to which nanoGPT and OLMo store them in 16 bits.
const NARROW_IDS: u64 = 1 << 16;

/// Flat files.
pub(super) struct Flat {
    layout: Layout,
    documents: Documents,
    warning: Option<String>,
}

/// The files of a part.
pub(super) struct FlatFiles {
    stem: String,
    ids: NewFile,
    tokens: u64,
    bounds: Bounds,
}

/// Where documents begin and end.
enum Bounds {
    /// First tokens, for a numpy array.
    Starts(Vec<u64>),
    /// Lines of a `.csv.gz`.
    Lines(Box<GzEncoder<NewFile>>),
}

impl Flat {
    pub(super) fn new(input: &ExportInput, options: &ExportOptions) -> Result<Self> {
        let layout = options.layout.unwrap_or_default();
        let place = if layout == Layout::Llmc { EndPlace::Before } else { EndPlace::After };
        let stored = input.schema()?.fields.iter().find_map(|field| field.ty.id_width());
        let width = |ids: Option<u64>| match ids {
            Some(ids) if ids <= NARROW_IDS => IdWidth::U16,
            Some(_) => IdWidth::U32,
            None => stored.unwrap_or(IdWidth::U32),
        };
        let documents = Documents::new(input, options, place, layout == Layout::Olmo, width)?;
        let is_wide = documents.width == IdWidth::U32 && layout == Layout::Nanogpt;
        let warning =
            "the ids need 32 bits: read the files with dtype=np.uint32, where nanoGPT has np.uint16";
        Ok(Self { layout, documents, warning: is_wide.then(|| warning.to_owned()) })
    }

    /// Returns the start of the names of the files. nanoGPT calls the split for validation `val`.
    fn stem(&self, part: &Part<'_>) -> String {
        match part.stem().strip_prefix("validation") {
            Some(rest) if self.layout == Layout::Nanogpt => format!("val{rest}"),
            _ => part.stem(),
        }
    }

    fn extension(&self) -> &'static str {
        match self.layout {
            Layout::Olmo => "npy",
            Layout::Nanogpt | Layout::Llmc => "bin",
        }
    }
}

impl Exporter for Flat {
    type Block = DocumentBlock;
    type Files = FlatFiles;

    fn warnings(&self) -> Vec<String> {
        self.documents.warnings.iter().chain(&self.warning).cloned().collect()
    }

    fn check(&self, part: &Part<'_>) -> Result<()> {
        let most = part.length.saturating_add(part.records.end - part.records.start);
        match i32::try_from(most) {
            Err(_) if self.layout == Layout::Llmc => Err(Error::usage(format!(
                "{} has about {} tokens, and the header of llm.c counts at most 2^31 - 1",
                part.stem(),
                count(most)
            ))
            .help(format!(
                "divide each split into files: `parts {}`",
                most.saturating_mul(part.count) >> 30
            ))),
            _ => Ok(()),
        }
    }

    fn described(&self) -> Value {
        let dtype = if self.documents.width == IdWidth::U16 { "uint16" } else { "uint32" };
        json!({
            "layout": self.layout.to_string(),
            "dtype": dtype,
            "eod": self.documents.end.as_ref().map(|(id, _)| id),
        })
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<DocumentBlock> {
        self.documents.encode(split, records)
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<FlatFiles> {
        let stem = self.stem(part);
        let mut ids = staged.create(&format!("{stem}.{}", self.extension()))?;
        if self.layout == Layout::Llmc {
            // Until the number of tokens is known.
            ids.write_all(&[0; 4 * LLMC_HEADER]).map_err(|e| Error::io("write", ids.path(), e))?;
        }
        let bounds = match self.layout {
            Layout::Olmo => {
                // Without a time or a system, which would differ.
                let file = staged.create(&format!("{stem}.csv.gz"))?;
                Bounds::Lines(Box::new(GzBuilder::new().write(file, Compression::default())))
            }
            Layout::Nanogpt | Layout::Llmc => Bounds::Starts(vec![0]),
        };
        Ok(FlatFiles { stem, ids, tokens: 0, bounds })
    }

    fn append(&self, files: &mut FlatFiles, block: DocumentBlock) -> Result<()> {
        let mut names = block.names.iter();
        let mut lines = Vec::new();
        for length in block.lengths {
            let start = files.tokens;
            files.tokens += u64::from(length);
            match &mut files.bounds {
                Bounds::Starts(starts) => starts.push(files.tokens),
                Bounds::Lines(_) => {
                    let Some((key, origin, record)) = names.next() else { continue };
                    let (key, origin) = (csv_value(key), csv_value(origin));
                    lines
                        .extend(format!("{start},{},{key},{origin},{record}\r\n", files.tokens).into_bytes());
                }
            }
        }
        if let Bounds::Lines(file) = &mut files.bounds {
            let written = file.write_all(&lines);
            written.map_err(|e| Error::io("write", file.get_ref().path(), e))?;
        }
        files.ids.write_all(&block.ids).map_err(|e| Error::io("write", files.ids.path(), e))
    }

    fn close(&self, files: FlatFiles, staged: &StagedFiles) -> Result<Vec<FileEntry>> {
        let FlatFiles { stem, ids, tokens, bounds } = files;
        let ids: Written = match self.layout {
            Layout::Llmc => ids.commit_with_start(&llmc_header(tokens, self.documents.width)?)?,
            Layout::Nanogpt | Layout::Olmo => ids.commit()?,
        };
        let ids = entry(format!("{stem}.{}", self.extension()), ids);
        let bounds = match bounds {
            Bounds::Starts(starts) => {
                let name = format!("{stem}.documents.npy");
                let written = staged.write(&name, &npy_u64(&starts))?;
                entry(name, written)
            }
            Bounds::Lines(file) => {
                let path = file.get_ref().path().to_owned();
                let file = file.finish().map_err(|e| Error::io("write", &path, e))?;
                entry(format!("{stem}.csv.gz"), file.commit()?)
            }
        };
        Ok(vec![ids, bounds])
    }
}

/// Returns the header of llm.c.
fn llmc_header(tokens: u64, width: IdWidth) -> Result<Vec<u8>> {
    let [magic, version] = if width == IdWidth::U16 { LLMC_NARROW } else { LLMC_WIDE };
    // The number of tokens was checked before.
    let tokens =
        i32::try_from(tokens).map_err(|_| Error::internal("too many tokens for the header of llm.c"))?;
    let mut header = Vec::with_capacity(4 * LLMC_HEADER);
    [magic, version, tokens].iter().for_each(|number| header.extend(number.to_le_bytes()));
    header.resize(4 * LLMC_HEADER, 0);
    Ok(header)
}

/// Returns a `.npy` file (version 1.0) with these numbers.
fn npy_u64(numbers: &[u64]) -> Vec<u8> {
    let mut file = npy_header("<u8", &[numbers.len()]);
    file.reserve(8 * numbers.len());
    numbers.iter().for_each(|number| file.extend(number.to_le_bytes()));
    file
}

/// Returns the header of a `.npy` file (version 1.0) with values of the type `descr` in C order.
pub(super) fn npy_header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape = shape.iter().map(|n| format!("{n},")).collect::<Vec<_>>().join(" ");
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data start at a multiple of 64 bytes; the header ends with a line feed.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    header
}

/// Returns a value of a CSV file, in quotes where it needs them. Line breaks become spaces, because readers of these files
/// take each line as a document.
fn csv_value(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.contains([',', '"']) {
        true => format!("\"{}\"", line.replace('"', "\"\"")),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_numpy_and_llm_c() {
        let file = npy_u64(&[7]);
        let text = b"\x93NUMPY\x01\0\x76\0{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }";
        assert!(file.starts_with(text), "{:?}", String::from_utf8_lossy(&file));
        assert_eq!(file.len(), 128 + 8);
        assert_eq!((file[127], file[128]), (b'\n', 7));
        let header = llmc_header(5, IdWidth::U32).unwrap();
        assert_eq!(header.len(), 1024);
        let number = |at: usize| i32::from_le_bytes(header[4 * at..][..4].try_into().unwrap());
        assert_eq!([0, 1, 2, 3].map(number), [20_240_801, 7, 5, 0]);
        assert!(llmc_header(1 << 31, IdWidth::U16).is_err());
    }

    #[test]
    fn values_of_csv_files_are_quoted_where_needed() {
        assert_eq!(["a", "a,b", "a\"b", "a\nb"].map(csv_value), ["a", "\"a,b\"", "\"a\"\"b\"", "a b"]);
    }
}
