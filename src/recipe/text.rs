//! The options of a conversion of text.

use std::fmt;
use std::str::FromStr;

use dsconvert_vision::Processor;
use serde_json::{Map, Value};

use super::chat::ChatRecipe;
use super::ids::IdsRecipe;
use super::multimodal::MultimodalRecipe;
use super::{EXCLUDE, Recipe, RecordedInput};
use crate::error::{Error, Result};
use crate::options::{
    Defined, Definition, Extra, Form, Input, OptionValue, OutputOptions, Plain, Size, as_text, is_default,
    option_values, options, word_values,
};
use crate::packing::Packing;
use crate::schema::Kind;
use crate::source::io::encoding::TextEncoding;
use crate::source::items::metadata::columns::{Keep, parse_keep};
use crate::source::items::text::fields::TextFields;
use crate::source::items::text::kind::{Documents, FileKind};
use crate::source::names::layout::FolderLayout;
use crate::transform::text::{EngineChoice, Normalize, SpecialInText, TokenizerOptions, Verify};

/// Default of `--max-document-bytes`.
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Default of `--text-field`.
pub const DEFAULT_TEXT_FIELD: &str = "text";
/// Maximum length of the rows of `--pack`, in tokens.
pub const MAX_PACK_TOKENS: u64 = 1 << 20;

options! {
    /// Every option of a conversion of text that affects the dataset.
    pub struct TextRecipe {
        "" {
            /// Follow symbolic links inside the sources
            [] follow_symlinks: bool = false, "";
        }
        "Sources" {
            /// Type of standard input and of individually named files: txt, jsonl, json, csv, tsv, parquet or arrow
            ///
            /// Overrides the extension of the file name. txt, jsonl, json, csv and tsv may end with .gz, .zst, .xz or .bz2.
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            input_format: Option<FileKind> = None, "FORMAT";

            /// Encoding of text files without a byte order mark, such as windows-1252 or shift_jis [default: utf-8]
            ///
            /// Files that start with the byte order mark of UTF-8 or UTF-16 are decoded accordingly.
            [serde(skip_serializing_if = "is_default")]
            encoding: Option<TextEncoding> as Encodings = None, "NAME";

            /// Configuration of a repository of the Hugging Face Hub: the name of a set of files in its README.md
            ///
            /// A downloaded repository with several configurations is refused without it, unless one is the default. Splits are
            /// those of the configuration.
            [serde(skip_serializing_if = "is_default")]
            config: Option<String> = None, "NAME", conflicts = &["files_from"];

            /// Meaning of folder and file names
            ///
            /// auto: sources, folders and files whose names contain the word of a split (train, val, test, ...) are splits;
            /// splits: the same, but files outside of splits are errors, and if there is no such name, the first folder level is
            /// the split; flat: names have no meaning.
            [serde(skip_serializing_if = "is_default")]
            layout: FolderLayout as Layouts = FolderLayout::default(), "LAYOUT";
        }
        "Documents" {
            /// How txt files are divided into documents: file, line, blank-line or separator:STRING
            ///
            /// blank-line: the lines between blank lines; separator:STRING: the text between occurrences of STRING, in which \n,
            /// \t and \\ are escapes.
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            documents: Documents = Documents::default(), "WHAT";

            /// Field or column with the text; for jsonl also a path such as a.b.c
            [] text_field: String = DEFAULT_TEXT_FIELD.to_owned(), "NAME";

            /// Field or column with a unique key [default: file and byte offset or row]
            [] key_field: Option<String> = None, "NAME";

            /// Fields or columns to keep in the records, as name or name:type
            [serde(skip_serializing_if = "is_default")]
            keep_fields: Vec<Keep> = Vec::new(), "FIELDS";

            /// Field or column whose value decides the split: records with the same value are in one split [default: the key]
            ///
            /// Preference pairs with the same prompt are in one split without it.
            [serde(skip_serializing_if = "is_default")]
            split_by: Option<String> = None, "NAME", requires = Some("split");

            /// Reject documents with more bytes than this
            [] max_document_bytes: u64 as Size<0> = DEFAULT_MAX_DOCUMENT_BYTES, "SIZE";

            /// Handling of documents that are not valid UTF-8
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            invalid_utf8: InvalidUtf8 = InvalidUtf8::default(), "POLICY";

            /// Accept documents of which more than 1% of the bytes are NUL
            ///
            /// Without it, they are rejected, unless they have only one or two: they are binary data, or UTF-16 that needs --encoding.
            [serde(skip_serializing_if = "is_default")]
            allow_nul: bool = false, "";

            /// Unicode normalization form applied before tokenization
            [serde(skip_serializing_if = "is_default")]
            normalize: Normalize = Normalize::default(), "FORM";

            /// Leave out documents with the same text as an earlier document, after --normalize
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            dedup: Option<TextDedup> = None, "exact";
        }
        "Lengths" {
            /// Leave out documents with fewer than MIN or more than MAX tokens
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            filter_length: Option<LengthRange> = None, "MIN:MAX";

            /// Maximum number of tokens in a record
            [serde(skip_serializing_if = "is_default")]
            max_length: Option<u32> = None, "N";

            /// Handling of documents longer than --max-length: truncate, reject, split or split:STRIDE [default: truncate]
            ///
            /// Chats and pairs are rejected by default. With split:STRIDE, each record starts with the last STRIDE tokens of the previous one.
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            overflow: Option<Overflow> = None, "POLICY", requires = Some("max_length");

            /// Pack documents into rows of N tokens
            [serde(skip_serializing_if = "is_default")]
            pack: Option<u32> = None, "N";

            /// Packing algorithm of --pack [default: best-fit]
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            packing: Option<Packing> = None, "HOW", requires = Some("pack");

            /// Maximum number of patches of images in a row of --pack
            ///
            /// Chats with images are packed whole, by first fit decreasing. A chat with more patches is rejected.
            [serde(skip_serializing_if = "is_default")]
            pack_patches: Option<u32> = None, "P", requires = Some("pack");
        }
        groups {
            /// How chats and pairs are read and rendered.
            [serde(skip_serializing_if = "is_default")] chat: ChatRecipe;
            /// How the images of chats are read and stored.
            [serde(skip_serializing_if = "is_default")] multimodal: MultimodalRecipe;
            /// How token ids that exist already are read.
            [serde(skip_serializing_if = "is_default")] ids: IdsRecipe;
            /// How text becomes ids.
            tokenization: TokenizerOptions;
            /// How the records are stored.
            output: OutputOptions = OutputOptions::of_text();
        }
        values {}
    }
}

impl Recipe for TextRecipe {
    const KIND: Kind = Kind::Text;
    const FIRST: &'static [&'static str] = &[
        "text_field",
        "key_field",
        "max_document_bytes",
        "follow_symlinks",
        "tokenizer",
        "tokenization",
        "reference",
        "output",
        FILES_FROM,
        STDIN,
        "layout",
        "input_format",
        "encoding",
        "documents",
        "keep_fields",
        "invalid_utf8",
        "normalize",
        "filter_length",
        "max_length",
        "overflow",
        "pack",
        "packing",
        "pack_patches",
        "dedup",
        "config",
    ];
    const FACTS: &'static [&'static str] = &["tokenizer", "reference", FILES_FROM, STDIN, EXCLUDE];

    fn take_facts(&mut self, facts: Map<String, Value>) -> Result<RecordedInput> {
        Ok(match (facts.contains_key(FILES_FROM), facts.contains_key(STDIN)) {
            (true, _) => RecordedInput::FilesFrom,
            (_, true) => RecordedInput::Stdin,
            _ => RecordedInput::Walk,
        })
    }
}

/// Fact: a list named the files.
pub(super) const FILES_FROM: &str = "files_from";
/// Fact: the source was standard input.
const STDIN: &str = "stdin";

impl TextRecipe {
    /// Returns how the ids of a document become records.
    pub fn shape(&self) -> TextShape {
        let is_chat = self.has_masks();
        // A chat is cut only where that is asked for.
        let overflow = if is_chat { Overflow::Reject } else { Overflow::default() };
        let row =
            self.pack.filter(|_| is_chat && self.packing != Some(Packing::Concat) && !self.ids.keep_packs);
        TextShape {
            filter_length: self.filter_length,
            max_length: self.max_length.or(row).map(|max| (max, self.overflow.unwrap_or(overflow))),
            pack: self.pack.map(|length| (length, self.packing.unwrap_or(Packing::BestFit))),
        }
    }

    /// Returns whether records have a mask of the tokens to train on.
    pub fn has_masks(&self) -> bool {
        self.chat.has_masks() || self.ids.has_masks()
    }

    /// Returns the fields that make up the text of a document, or the chat, pair or ids in its place.
    pub fn text_fields(&self) -> TextFields {
        let ids = || self.ids.fields().map(TextFields::Ids);
        let mut fields =
            self.chat.fields().or_else(ids).unwrap_or_else(|| TextFields::Text(self.text_field.clone()));
        if let TextFields::Json(members) = &mut fields {
            members.extend(self.multimodal.member());
        }
        fields
    }

    /// Returns the fields to read beside the text: the kept ones and, if it is not one of them, the one that decides the split.
    pub(crate) fn read_fields(&self) -> Vec<Keep> {
        let group = self.split_by.iter().filter(|_| self.reads_group());
        let group = group.map(|name| Keep { name: name.clone(), ty: None });
        self.keep_fields.iter().cloned().chain(group).collect()
    }

    /// Returns whether the field that decides the split is read only for that.
    pub(crate) fn reads_group(&self) -> bool {
        let is_kept = |name: &String| self.keep_fields.iter().any(|keep| keep.name == *name);
        self.split_by.as_ref().is_some_and(|name| !is_kept(name))
    }

    /// Returns whether invalid UTF-8 becomes U+FFFD.
    pub(crate) fn replaces_invalid_utf8(&self) -> bool {
        self.invalid_utf8 == InvalidUtf8::Replace
    }

    /// Returns the recipe with the implied values of options that depend on others, as it is stored.
    #[must_use]
    pub(crate) fn complete(mut self) -> Self {
        let shape = self.shape();
        self.overflow = shape.max_length.map(|(_, overflow)| overflow);
        self.packing = shape.pack.map(|(_, packing)| packing).filter(|_| !self.ids.keep_packs);
        self
    }

    /// Refuses options that contradict token ids, which are stored as they are.
    fn check_ids(&self) -> Result<()> {
        let tokenization = &self.tokenization;
        for (name, is_given) in [
            ("messages_field", self.chat.messages_field.is_some()),
            ("prompt_field", self.chat.prompt_field.is_some()),
            ("alpaca", self.chat.alpaca.is_some()),
            ("text_field", self.text_field != DEFAULT_TEXT_FIELD),
            ("normalize", self.normalize != Normalize::default()),
            ("documents", self.documents != Documents::default()),
            ("encoding", self.encoding.is_some()),
            ("allow_nul", self.allow_nul),
            ("invalid_utf8", self.invalid_utf8 != InvalidUtf8::default()),
            ("special_in_text", tokenization.special_in_text != SpecialInText::default()),
            ("add_special_tokens", tokenization.add_special_tokens),
            ("add_bos", tokenization.add_bos),
            ("add_eos", tokenization.add_eos),
        ] {
            if is_given {
                return Err(Error::usage(format!("`{name}` applies only to texts, not to token ids"))
                    .help("leave it out: `ids_field` stores ids as they are, and adds none"));
            }
        }
        if self.ids.keep_packs && self.pack.is_none() {
            return Err(Error::usage("`keep_packs` applies only with `pack`")
                .help("give the number of tokens of a full row with `pack`"));
        }
        for (name, is_given) in [
            ("max_length", self.max_length.is_some()),
            ("filter_length", self.filter_length.is_some()),
            ("packing", self.packing.is_some()),
        ] {
            if self.ids.keep_packs && is_given {
                return Err(Error::usage(format!("`keep_packs` excludes `{name}`: rows stay as they are"))
                    .help("leave out one of them"));
            }
        }
        Ok(())
    }

    /// Refuses options that contradict images of chats.
    fn check_images(&self) -> Result<()> {
        self.multimodal.check(self.chat.messages_field.is_some())?;
        if !self.multimodal.is_given() {
            return match self.pack_patches {
                Some(_) => Err(Error::usage("`pack_patches` applies only to chats with images")
                    .help("name the field with the images with `images_field`")),
                None => Ok(()),
            };
        }
        for (name, is_given) in [
            ("packing concat", self.packing == Some(Packing::Concat)),
            ("overflow split", matches!(self.overflow, Some(Overflow::Split { .. }))),
        ] {
            if is_given {
                return Err(Error::usage(format!("`{name}` does not apply to chats with images"))
                    .help("leave it out: no chat is divided among records"));
            }
        }
        if self.pack_patches == Some(0) {
            return Err(Error::usage("`pack_patches 0`: a row has room for an image"));
        }
        let Some(row) = self.pack else { return Ok(()) };
        if let Some(max) = self.max_length.filter(|max| *max > row) {
            return Err(Error::usage(format!("`max_length {max}` is more than `pack {row}`"))
                .help("chats with images are packed whole, so none may be longer than a row"));
        }
        // Without the processor, the run is refused later.
        let packs = self.multimodal.vision.as_ref().map_or(Ok(()), Processor::check_packing);
        packs.map_err(|error| {
            Error::usage(format!("`pack` does not apply: {}", error.what())).help(error.help().to_owned())
        })
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        self.output.check()?;
        for (option, is_given, other, has_other) in [
            ("overflow", self.overflow.is_some(), "max_length", self.max_length.is_some()),
            ("packing", self.packing.is_some(), "pack", self.pack.is_some()),
            ("pack_patches", self.pack_patches.is_some(), "pack", self.pack.is_some()),
        ] {
            if is_given && !has_other {
                return Err(Error::usage(format!("`{option}` applies only with `{other}`"))
                    .help(format!("add `{other}`, or leave out `{option}`")));
            }
        }
        if self.split_by.is_some() && self.output.split.is_none() {
            return Err(Error::usage("`split_by` applies only with `split`")
                .help("add `split`, such as train=0.9,validation=0.1, or leave out `split_by`"));
        }
        self.shape().check()?;
        self.chat.check()?;
        if self.chat.are_preferences() || self.chat.prompt_only {
            for (name, is_given) in [
                ("pack", self.pack.is_some()),
                ("overflow", self.overflow.is_some_and(|overflow| overflow != Overflow::Reject)),
            ] {
                if is_given {
                    return Err(Error::usage(format!(
                        "`{name}` does not apply to preference data and prompts, which are neither cut nor joined"
                    ))
                    .help("leave it out; a side longer than `max_length` is rejected"));
                }
            }
        }
        self.check_images()?;
        self.ids.check()?;
        if self.ids.is_given() {
            self.check_ids()?;
        }
        if self.chat.has_masks() {
            let text_only = [
                ("text_field", self.text_field != DEFAULT_TEXT_FIELD),
                ("normalize", self.normalize != Normalize::default()),
                ("special_in_text", self.tokenization.special_in_text != SpecialInText::default()),
                ("add_special_tokens", self.tokenization.add_special_tokens),
                ("add_bos", self.tokenization.add_bos),
                ("add_eos", self.tokenization.add_eos),
            ];
            if let Some((name, _)) = text_only.into_iter().find(|(_, is_given)| *is_given) {
                return Err(Error::usage(format!("`{name}` applies only to texts, not to chats and pairs")).help(
                    "leave it out: a chat template writes its own special tokens, `pair_bos` is for pairs of texts, which the EOS \
                     token follows, and `special_in_content` is for what messages contain",
                ));
            }
        }
        if self.layout == FolderLayout::Labels {
            return Err(Error::usage("`layout labels` is for images: text has no classes")
                .help("use auto, splits or flat"));
        }
        if self.pack.is_some() && !self.keep_fields.is_empty() {
            return Err(Error::usage(
                "`keep_fields` excludes `pack`: a row holds many documents, but a field only one value",
            )
            .help("leave out one of them"));
        }
        Ok(())
    }
}

/// Defines the options of the tokenizer, whose crate knows neither help nor flags. The pattern has all members, so that
/// none is forgotten.
macro_rules! tokenizer_options {
    ($($(#[doc = $help:literal])+ $name:literal, $member:ident as $form:ty, $value:literal $(, $key:ident = $arg:expr)*;)+) => {
        impl Defined for TokenizerOptions {
            fn definitions() -> Vec<Definition<Self>> {
                let TokenizerOptions { $($member: _),+ } = Self::default();
                vec![$(Definition::new::<_, $form>(
                    $name,
                    "Tokens",
                    &[$($help),+],
                    $value,
                    Extra { $($key: $arg,)* ..Extra::default() },
                    (|options: &Self| &options.$member, |options: &mut Self| &mut options.$member),
                )),+]
            }
        }
    };
}

tokenizer_options! {
    /// Add the beginning-of-sequence token before every document
    "add_bos", add_bos as Plain, "";
    /// Add the end-of-sequence token after every document
    "add_eos", add_eos as Plain, "";
    /// Add the special tokens of the tokenizer's post-processor around every document
    "add_special_tokens", add_special_tokens as Plain, "", conflicts = &["add_bos", "add_eos"];
    /// Token for --add-bos [default: from the files beside the tokenizer, or from the tokenizer]
    "bos_token", bos_token as Plain, "TOKEN";
    /// Token for --add-eos [default: from the files beside the tokenizer, or from the tokenizer]
    "eos_token", eos_token as Plain, "TOKEN";
    /// Handling of special-token strings inside documents
    "special_in_text", special_in_text as Plain, "POLICY";
    /// Tokenizer engine; all engines produce the same ids
    "engine", engine as Plain, "ENGINE";
    /// Share of documents that the reference engine encodes again to verify the ids
    "verify_ids", verify as Plain, "SHARE";
    /// Reject larger documents if only the reference engine can encode them [default: 4MiB]
    ///
    /// The limit applies before and after normalization. The reference engine needs 80 to 500 bytes of memory per byte of
    /// text.
    "max_reference_bytes", max_reference_bytes as Size<0>, "SIZE";
}

option_values! { Text: FileKind, Documents, LengthRange, Overflow; }

/// Encodings other than UTF-8, which is `None`.
struct Encodings;

impl Form<Option<TextEncoding>> for Encodings {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<Option<TextEncoding>> {
        TextEncoding::parse(text)
    }

    fn text(value: &Option<TextEncoding>) -> Option<String> {
        value.map(|encoding| encoding.to_string())
    }
}

/// Layouts of text, which has no classes.
struct Layouts;

impl Form<FolderLayout> for Layouts {
    const INPUT: Input = Input::Words(&["auto", "splits", "flat"]);

    fn parse(text: &str) -> Result<FolderLayout> {
        text.parse()
    }

    fn text(value: &FolderLayout) -> Option<String> {
        Some(value.to_string())
    }
}

impl OptionValue for Vec<Keep> {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<Self> {
        parse_keep(text)
    }

    fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.iter().map(Keep::to_string).collect::<Vec<_>>().join(","))
    }
}

/// Handling of documents that are not valid UTF-8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InvalidUtf8 {
    /// They are rejected.
    #[default]
    Reject,
    /// Invalid bytes become U+FFFD.
    Replace,
}

word_values! {
    InvalidUtf8 {
        Reject = "reject", "Reject them";
        Replace = "replace", "Replace invalid bytes with U+FFFD";
    }
}

/// Criterion for duplicate documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextDedup {
    /// The same text.
    Exact,
}

word_values! {
    TextDedup {
        Exact = "exact", "Compare the exact text";
    }
}

word_values! {
    Normalize {
        None = "none", "No normalization";
        Nfc = "nfc", "NFC, canonical composition";
        Nfkc = "nfkc", "NFKC, compatibility composition";
    }
}

word_values! {
    Packing {
        Concat = "concat", "Concatenate documents; a document may continue in the next row";
        BestFit = "best-fit", "Best-fit packing, which never cuts a document that fits in a row";
    }
}

word_values! {
    SpecialInText {
        Text = "text", "Treat them as ordinary text: documents cannot inject control tokens";
        Parse = "parse", "Parse them as the special token";
        Error = "error", "Reject the document";
    }
}

word_values! {
    EngineChoice {
        Auto = "auto", "A fast engine if it is verified to produce the same ids, otherwise the reference engine";
        Reference = "reference", "The `tokenizers` crate";
        Fast = "fast", "A fast engine; it is an error if there is none";
    }
}

word_values! {
    Verify {
        Sample = "sample", "One document in a thousand, chosen by the hash of its key";
        All = "all", "Every document";
    }
}

/// How the token ids of a document become records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextShape {
    /// Documents with fewer or more tokens are filtered.
    pub filter_length: Option<LengthRange>,
    /// Maximum tokens per record, and the treatment of longer documents.
    pub max_length: Option<(u32, Overflow)>,
    /// If set, records are rows of this many tokens, filled with documents.
    pub pack: Option<(u32, Packing)>,
}

/// An inclusive range of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl TextShape {
    /// Returns whether a document may become several records, or a record may hold several documents.
    pub(crate) fn has_pieces(&self) -> bool {
        self.pack.is_some() || matches!(self.max_length, Some((_, Overflow::Split { .. })))
    }

    /// Returns the bytes that a task holds, if it holds `bytes` without overlapping pieces of documents.
    pub(crate) fn bytes_with_overlap(&self, bytes: u64) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let recipe = TextRecipe { layout: FolderLayout::Labels, ..TextRecipe::default() };
        assert!(recipe.check().unwrap_err().to_string().contains("text has no classes"));
    }
}
