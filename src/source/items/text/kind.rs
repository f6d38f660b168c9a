//! Formats of text files by file name, and document boundaries in plain text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::source::io::compression::Compression;
use crate::source::table::delimited::Dialect;

/// File format of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextFormat {
    /// Plain text; [`Documents`] defines where a document ends.
    Text,
    /// One JSON object per line.
    JsonLines,
    /// A JSON array of objects, or one object per line.
    Json,
    /// Comma-separated or tab-separated values.
    Delimited(Dialect),
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file or stream.
    Arrow,
    /// The index of an indexed dataset of Megatron, whose ids are in a file beside it.
    Megatron,
}

/// Format and compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKind {
    /// Format of the documents.
    pub format: TextFormat,
    /// Compression of the file, if any.
    pub compression: Option<Compression>,
}

impl FileKind {
    /// Returns the kind that a file name denotes; `None` if it is not read as text.
    pub fn of_name(name: &str) -> Option<Self> {
        let (stem, compression) = Compression::of_name(name);
        Self::of_extension(stem.rsplit_once('.')?.1, compression)
    }

    /// As [`Self::of_name`], for a file that the user names. Also accepts `.json` files, which in folders are seldom
    /// documents.
    pub fn of_named(name: &str) -> Option<Self> {
        let (stem, compression) = Compression::of_name(name);
        let is_json =
            stem.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("json"));
        match is_json {
            true => Some(Self { format: TextFormat::Json, compression }),
            false => Self::of_name(name),
        }
    }

    fn of_extension(extension: &str, compression: Option<Compression>) -> Option<Self> {
        let extension = extension.to_ascii_lowercase();
        let named = FORMATS.iter().find(|named| named.extensions.contains(&&*extension))?;
        let format = named.format;
        (compression.is_none() || !(format.is_table() || format.is_ids()))
            .then_some(Self { format, compression })
    }
}

/// A format, the word that names it, and the extensions of its files in folders.
struct NamedFormat {
    format: TextFormat,
    word: &'static str,
    extensions: &'static [&'static str],
}

/// The formats.
const FORMATS: [NamedFormat; 8] = [
    NamedFormat { format: TextFormat::Text, word: "txt", extensions: &["txt"] },
    NamedFormat { format: TextFormat::JsonLines, word: "jsonl", extensions: &["jsonl", "ndjson"] },
    NamedFormat { format: TextFormat::Json, word: "json", extensions: &[] },
    NamedFormat { format: TextFormat::Delimited(Dialect::Csv), word: "csv", extensions: &["csv"] },
    NamedFormat { format: TextFormat::Delimited(Dialect::Tsv), word: "tsv", extensions: &["tsv"] },
    NamedFormat { format: TextFormat::Parquet, word: "parquet", extensions: &["parquet"] },
    NamedFormat { format: TextFormat::Arrow, word: "arrow", extensions: &["arrow", "feather", "ipc"] },
    NamedFormat { format: TextFormat::Megatron, word: "idx", extensions: &["idx"] },
];

impl TextFormat {
    /// Returns whether its files are tables with typed columns, which have their own compression.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }

    /// Returns whether its files hold only token ids.
    pub fn is_ids(self) -> bool {
        matches!(self, Self::Megatron)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = FORMATS.iter().find(|named| named.format == self.format);
        f.write_str(named.map_or("", |named| named.word))?;
        f.write_str(self.compression.map_or("", Compression::extension))
    }
}

/// Parses `--input-format`: an extension such as `jsonl` or `txt.gz`.
impl FromStr for FileKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (stem, compression) = Compression::of_name(text);
        let json = (stem == "json").then_some(Self { format: TextFormat::Json, compression });
        json.or_else(|| Self::of_extension(stem, compression)).ok_or_else(|| {
            Error::usage(format!("unknown text format {text:?}")).help(
                "use txt, jsonl, json, csv or tsv, alone or with .gz, .zst, .xz or .bz2; or parquet, arrow",
            )
        })
    }
}

/// Definition of a document in plain text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Documents {
    /// The whole file.
    #[default]
    File,
    /// Each line.
    Line,
    /// The lines between blank lines.
    BlankLine,
    /// The text between occurrences of these bytes.
    Separator(Arc<[u8]>),
}

impl FromStr for Documents {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("separator:")) {
            ("file", _) => Ok(Self::File),
            ("line", _) => Ok(Self::Line),
            ("blank-line", _) => Ok(Self::BlankLine),
            (_, Some(separator)) if !separator.is_empty() => Ok(Self::Separator(unescape(separator)?.into())),
            _ => Err(Error::usage(format!("unknown document boundary {text:?}"))
                .help("use file, line, blank-line or separator:STRING")),
        }
    }
}

/// Decodes the escapes `\n`, `\r`, `\t`, `\0`, `\xHH`, `\'`, `\"` and `\\`, as in most languages.
fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(quote @ (b'\\' | b'\'' | b'"')) => quote,
                Some(b'x') => hex_byte(rest.next(), rest.next()).ok_or_else(|| {
                    Error::usage(format!("{text:?} has a \\x without two hexadecimal digits"))
                })?,
                _ => {
                    return Err(Error::usage(format!("{text:?} has an unknown escape sequence"))
                        .help("write \\n, \\r, \\t, \\0, or \\\\ for a backslash"));
                }
            },
            byte => byte,
        });
    }
    Ok(bytes)
}

fn hex_byte(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

impl fmt::Display for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Line => f.write_str("line"),
            Self::BlankLine => f.write_str("blank-line"),
            Self::Separator(separator) => write!(f, "separator:{}", separator.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_denote_format_and_compression() {
        let kind = |name: &str| FileKind::of_name(name).map(|k| (k.format, k.compression));
        assert_eq!(kind("a/b.TXT"), Some((TextFormat::Text, None)));
        assert_eq!(kind("b.ndjson.gz"), Some((TextFormat::JsonLines, Some(Compression::Gzip))));
        assert_eq!(kind("b.tsv.bz2"), Some((TextFormat::Delimited(Dialect::Tsv), Some(Compression::Bzip2))));
        for name in ["b.arrow", "b.feather", "b.IPC"] {
            assert_eq!(kind(name), Some((TextFormat::Arrow, None)), "{name}");
        }
        for other in ["b.parquet.gz", "b.gz", "txt", "b.pdf", ""] {
            assert_eq!(kind(other), None, "{other}");
        }
        assert_eq!("csv.zst".parse::<FileKind>().unwrap(), FileKind::of_name("x.csv.zst").unwrap());
        assert_eq!("NDJSON.GZ".parse::<FileKind>().unwrap().to_string(), "jsonl.gz");
        assert!("x.csv".parse::<FileKind>().is_err());
    }

    #[test]
    fn document_boundaries_are_parsed_and_formatted() {
        for text in ["file", "line", "blank-line", "separator:--", r"separator:\n---\n", r"separator:\t\\"] {
            assert_eq!(text.parse::<Documents>().unwrap().to_string(), text);
        }
        for wrong in ["", "lines", "separator:", r"separator:\x", "separator:\\"] {
            assert!(wrong.parse::<Documents>().is_err(), "{wrong}");
        }
    }
}
