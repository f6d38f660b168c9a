//! Options of a conversion of text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::error::{Error, Result};
use crate::options::{OutputOptions, SourceSpec, check_sources};
use crate::packing::Packing;
use crate::source::encoding::TextEncoding;
use crate::source::files_from::FilesFrom;
use crate::source::layout::FolderLayout;
use crate::source::metadata::Keep;
use crate::source::text::kind::{Documents, FileKind, TextFormat};
use crate::transform::text::{Normalize, Tokenizer};

/// Default of `--max-document-bytes`.
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Default of `--text-field`.
pub const DEFAULT_TEXT_FIELD: &str = "text";
/// Maximum length of the rows of `--pack`, in tokens.
pub const MAX_PACK_TOKENS: u64 = 1 << 20;

/// Options of a conversion of text.
pub struct TextOptions {
    /// Files and folders. If files are named by a list, the one folder that the names are relative to.
    pub sources: Vec<SourceSpec>,
    /// How files are found.
    pub input: TextInput,
    /// Format of standard input and explicitly named files, regardless of their names.
    pub input_format: Option<FileKind>,
    /// Whether symbolic links are followed.
    pub follow_symlinks: bool,
    /// Whether the names of sources, folders and files determine splits.
    pub layout: FolderLayout,
    /// Encoding of text without a byte order mark; `None`: UTF-8.
    pub encoding: Option<TextEncoding>,
    /// How plain text is divided into documents.
    pub documents: Documents,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Field or column that holds the text.
    pub text_field: String,
    /// Field or column that holds the key, which replaces the origin.
    pub key_field: Option<String>,
    /// Fields or columns that are copied to the records.
    pub keep_fields: Vec<Keep>,
    /// Whether invalid UTF-8 is replaced with U+FFFD, instead of rejecting the document.
    pub replace_invalid_utf8: bool,
    /// Maximum size of a document, in bytes.
    pub max_document_bytes: u64,
    /// Unicode normalization of the text, applied first.
    pub normalize: Normalize,
    /// How the token ids of a document become records.
    pub shape: TextShape,
    /// Whether documents with the same text as an earlier one are excluded.
    pub dedup: bool,
    /// How the records are stored.
    pub output: OutputOptions,
}

/// How the files of the sources are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextInput {
    /// The sources are walked.
    #[default]
    Walk,
    /// A list names the files.
    FilesFrom(FilesFrom),
    /// The only source is standard input.
    Stdin,
}

/// How the token ids of a document become records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextShape {
    /// Documents with fewer or more tokens are filtered.
    pub filter_length: Option<LengthRange>,
    /// Maximum tokens per record, and the treatment of longer documents.
    pub max_length: Option<(u32, Overflow)>,
    /// If set, records are rows of this many tokens, filled with documents.
    pub pack: Option<(u32, Packing)>,
}

/// An inclusive range of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthRange {
    /// Minimum number of tokens.
    pub min: u64,
    /// Maximum number of tokens.
    pub max: u64,
}

impl FromStr for LengthRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let end = |part: &str, open: u64| if part.is_empty() { Some(open) } else { part.parse().ok() };
        text.split_once(':')
            .and_then(|(min, max)| Some(Self { min: end(min, 0)?, max: end(max, u64::MAX)? }))
            .filter(|range| range.min <= range.max && text != ":")
            .ok_or_else(|| {
                Error::usage(format!("invalid range of lengths {text:?}"))
                    .help("use MIN:MAX in tokens; either may be left out, as in 16: or :8192")
            })
    }
}

impl fmt::Display for LengthRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            u64::MAX => write!(f, "{}:", self.min),
            max => write!(f, "{}:{max}", self.min),
        }
    }
}

/// Treatment of documents with more tokens than a record may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// They are truncated.
    #[default]
    Truncate,
    /// They are split into several records. Each starts with the last `stride` tokens of the previous one.
    Split {
        /// Number of tokens shared by adjacent records.
        stride: u32,
    },
    /// They are rejected.
    Reject,
}

impl FromStr for Overflow {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("split:").map(str::parse)) {
            ("truncate", _) => Ok(Self::Truncate),
            ("reject", _) => Ok(Self::Reject),
            ("split", _) => Ok(Self::Split { stride: 0 }),
            (_, Some(Ok(stride))) => Ok(Self::Split { stride }),
            _ => Err(Error::usage(format!("unknown treatment of long documents {text:?}"))
                .help("use truncate, reject, split or split:STRIDE")),
        }
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncate => f.write_str("truncate"),
            Self::Reject => f.write_str("reject"),
            Self::Split { stride: 0 } => f.write_str("split"),
            Self::Split { stride } => write!(f, "split:{stride}"),
        }
    }
}

impl<'de> Deserialize<'de> for Overflow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Overflow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl TextShape {
    /// Returns whether a document may become several records, or a record may hold several documents.
    pub(super) fn has_pieces(&self) -> bool {
        self.pack.is_some() || matches!(self.max_length, Some((_, Overflow::Split { .. })))
    }

    /// Returns the bytes that a task holds, if it holds `bytes` without overlapping pieces of documents.
    pub(super) fn bytes_with_overlap(&self, bytes: u64) -> u64 {
        match self.max_length {
            // For every `max - stride` tokens of a document, there is a piece of `max` tokens.
            Some((max, Overflow::Split { stride })) if stride < max => {
                let all = u128::from(bytes) * u128::from(max) / u128::from(max - stride);
                u64::try_from(all).unwrap_or(u64::MAX)
            }
            _ => bytes,
        }
    }

    fn check(&self) -> Result<()> {
        match self.max_length {
            Some((0, _)) => return Err(Error::usage("`max_length 0`: a record has at least one token")),
            Some((max, Overflow::Split { stride })) if stride >= max => {
                return Err(Error::usage(format!("`overflow split:{stride}` would never end"))
                    .help(format!("the stride must be less than `max_length {max}`")));
            }
            _ => {}
        }
        // The pieces would be packed as if they were documents, with wrong positions.
        if self.pack.is_some() && matches!(self.max_length, Some((_, Overflow::Split { .. }))) {
            return Err(Error::usage(
                "`overflow split` excludes `pack`, which itself divides long documents among rows",
            )
            .help("leave out one of them"));
        }
        match self.pack {
            Some((length, _)) if !(1..=MAX_PACK_TOKENS).contains(&u64::from(length)) => {
                Err(Error::usage(format!("`pack {length}`: a row has 1 to {MAX_PACK_TOKENS} tokens")))
            }
            _ => Ok(()),
        }
    }
}

impl TextOptions {
    /// Creates options with the defaults of the command line.
    pub fn new(sources: Vec<SourceSpec>, tokenizer: Tokenizer, output: OutputOptions) -> Self {
        Self {
            sources,
            input: TextInput::Walk,
            input_format: None,
            follow_symlinks: false,
            layout: FolderLayout::Auto,
            encoding: None,
            documents: Documents::File,
            tokenizer,
            text_field: DEFAULT_TEXT_FIELD.to_owned(),
            key_field: None,
            keep_fields: Vec::new(),
            replace_invalid_utf8: false,
            max_document_bytes: DEFAULT_MAX_DOCUMENT_BYTES,
            normalize: Normalize::None,
            shape: TextShape::default(),
            dedup: false,
            output,
        }
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        check_sources(&self.sources)?;
        self.shape.check()?;
        if self.layout == FolderLayout::Labels {
            return Err(Error::usage("`layout labels` is for images: text has no classes")
                .help("use auto, splits or flat"));
        }
        if self.shape.pack.is_some() && !self.keep_fields.is_empty() {
            return Err(Error::usage(
                "`keep_fields` excludes `pack`: a row holds many documents, but a field only one value",
            )
            .help("leave out one of them"));
        }
        if self.input == TextInput::Stdin {
            match self.input_format.map(|kind| kind.format) {
                None => {
                    return Err(Error::usage(
                        "the format of standard input is unknown, because it has no file name",
                    )
                    .help("give it with `input_format`: jsonl, txt, csv.gz, …"));
                }
                Some(TextFormat::Parquet) => {
                    return Err(Error::usage(
                        "a Parquet file is read from its end, but standard input can only be read from its start",
                    )
                    .help("write it to a file first"));
                }
                Some(_) => {}
            }
            if self.dedup {
                return Err(Error::usage(
                    "`dedup` reads the sources twice, but standard input can only be read once",
                )
                .help("write it to a file first"));
            }
            if self.sources.len() != 1 {
                return Err(Error::usage("standard input cannot be combined with other sources")
                    .help("give - or files, not both"));
            }
        }
        Ok(())
    }

    /// Describes the options that affect the dataset, under their library names. Options that were introduced after
    /// the first datasets are omitted if they have no effect, so that fingerprints stay the same.
    pub(super) fn describe(&self) -> Result<serde_json::Value> {
        let as_json = |value: serde_json::Result<serde_json::Value>| {
            value.map_err(|e| Error::not_serialized("the options", e))
        };
        let mut described = json!({
            "text_field": self.text_field,
            "key_field": self.key_field,
            "max_document_bytes": self.max_document_bytes,
            "follow_symlinks": self.follow_symlinks,
            "tokenizer": self.tokenizer.info().sha256.clone().unwrap_or_else(|| "bytes".to_owned()),
            "tokenization": as_json(serde_json::to_value(self.tokenizer.options()))?,
            "reference": as_json(serde_json::to_value(&self.tokenizer.info().reference))?,
            "output": as_json(serde_json::to_value(&self.output))?,
        });
        let mut add = |name: &str, value: serde_json::Value| described[name] = value;
        match self.input {
            TextInput::Walk => {}
            // The list itself is in the plan, file by file.
            TextInput::FilesFrom(_) => add("files_from", json!(true)),
            TextInput::Stdin => add("stdin", json!(true)),
        }
        if self.layout != FolderLayout::Auto {
            add("layout", json!(self.layout.to_string()));
        }
        if let Some(kind) = self.input_format {
            add("input_format", json!(kind.to_string()));
        }
        if let Some(encoding) = self.encoding {
            add("encoding", json!(encoding));
        }
        if self.documents != Documents::File {
            add("documents", json!(self.documents));
        }
        if !self.keep_fields.is_empty() {
            let kept = self.keep_fields.iter().map(|k| json!({ "name": k.name, "type": k.ty }));
            add("keep_fields", kept.collect());
        }
        if self.replace_invalid_utf8 {
            add("invalid_utf8", json!("replace"));
        }
        if self.normalize != Normalize::None {
            add("normalize", as_json(serde_json::to_value(self.normalize))?);
        }
        if let Some(range) = self.shape.filter_length {
            add("filter_length", json!(range.to_string()));
        }
        if let Some((length, overflow)) = self.shape.max_length {
            add("max_length", json!(length));
            add("overflow", json!(overflow));
        }
        if let Some((length, packing)) = self.shape.pack {
            add("pack", json!(length));
            add(
                "packing",
                json!(match packing {
                    Packing::Concat => "concat",
                    Packing::BestFit => "best-fit",
                }),
            );
        }
        if self.dedup {
            add("dedup", json!("exact"));
        }
        Ok(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::text::TokenizerOptions;

    #[test]
    fn ranges_and_overflow_are_parsed() {
        let range = |text: &str| text.parse::<LengthRange>().ok().map(|r| (r.min, r.max));
        assert_eq!(range("4:9"), Some((4, 9)));
        assert_eq!(range(":9"), Some((0, 9)));
        assert_eq!(range("4:"), Some((4, u64::MAX)));
        for wrong in ["", ":", "9:4", "a:b", "4", "-1:4"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
        for text in ["truncate", "reject", "split", "split:3"] {
            assert_eq!(text.parse::<Overflow>().unwrap().to_string(), text);
        }
        assert!("split:x".parse::<Overflow>().is_err());
        let shape = |max, stride| TextShape {
            max_length: Some((max, Overflow::Split { stride })),
            ..TextShape::default()
        };
        assert!(shape(4, 3).check().is_ok() && shape(4, 4).check().is_err());
        let held: Vec<u64> = [0, 2, 3, 4].map(|stride| shape(4, stride).bytes_with_overlap(100)).into();
        assert_eq!(held, [100, 200, 400, 100]);
        assert_eq!(shape(u32::MAX, u32::MAX - 1).bytes_with_overlap(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_layout_labels_is_refused() {
        let tokenizer = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
        let options = TextOptions::new(Vec::new(), tokenizer, OutputOptions::default());
        let options = TextOptions { layout: FolderLayout::Labels, ..options };
        assert!(options.check().unwrap_err().to_string().contains("text has no classes"));
    }
}
