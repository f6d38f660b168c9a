//! `dsconvert text`: its arguments and the job they describe.

use std::path::{Path, PathBuf};

use super::common::CommonArgs;
use super::values::{LISTED, check_no_folder, choice, flag, parse, source};
use super::{Ending, lengths, print, signals, summary};
use crate::error::Result;
use crate::options::{RunOptions, SourceSpec, check_local, parse_size};
use crate::packing::Packing;
use crate::pipeline::{DEFAULT_TEXT_FIELD, Overflow, TextInput, TextJob, TextOptions, TextShape};
use crate::reader::batch::{BatchOptions, BatchSize};
use crate::source::files_from::FilesFrom;
use crate::source::layout::Layout;
use crate::source::metadata::parse_keep;
use crate::storage::stat;
use crate::tokenizer_files;
use crate::transform::text::{
    EngineChoice, Normalize, SpecialInText, Tokenizer, TokenizerOptions, Verify, usage_error,
};

/// Source that stands for standard input.
const STDIN: &str = "-";
/// Default label of standard input.
const STDIN_LABEL: &str = "stdin";
/// Default of `--report-batch`.
const DEFAULT_REPORT_BATCH: u64 = 32;

/// Arguments of `dsconvert text`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("sources", |sources| sources
    .required(false)
    .required_unless_present("files_from")
    .help("Files, folders and patterns to convert, or - for standard input; LABEL=PATH names the source")
    .long_help("Files, folders and patterns to convert, or - for standard input; LABEL=PATH names the source\n\n\
                The label of a source is the first part of every key and origin: the name of the file or folder, unless \
                LABEL=PATH gives another. When all labels are names of splits (train=…, validation=…), the sources are the \
                splits.\n\n\
                Sources may be in object storage: a prefix or an object, as s3://bucket/corpus (also gs:// and az://), or a \
                file of a web server (https://…).")))]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    documents: DocumentArgs,

    #[command(flatten)]
    tokens: TokenArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Size of the batches whose padding is printed at the end, in records
    #[arg(long, value_name = "RECORDS", default_value_t = DEFAULT_REPORT_BATCH, help_heading = "Run")]
    report_batch: u64,

    /// The same in tokens, padding included
    #[arg(long, value_name = "TOKENS", conflicts_with = "report_batch", help_heading = "Run")]
    report_tokens: Option<u64>,
}

/// Where files come from, and their type.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sources")]
struct InputArgs {
    /// Convert the files that FILE (or - for standard input) names, one path per line
    ///
    /// The records have the order of the list. Paths are relative to SRC, or without it to the folder of FILE (the working
    /// directory for -).
    #[arg(long, value_name = "FILE|-")]
    files_from: Option<PathBuf>,

    /// Paths in --files-from end with a NUL byte, as from find -print0
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,

    /// Type of standard input and of files that are named one by one: txt, jsonl, json, csv, tsv, parquet or arrow
    ///
    /// Replaces the type that the name of a file says. txt, jsonl, json, csv and tsv may end with .gz, .zst, .xz or .bz2.
    #[arg(long, value_name = "FORMAT")]
    input_format: Option<String>,

    /// What names of folders and files mean
    ///
    /// auto: sources, folders and files named as splits are splits; splits: the same, and a file that names none is refused,
    /// but when there is no such name at all, the first level is the split; flat: nothing.
    #[arg(long, value_name = "LAYOUT", value_parser = choice::<Layout>(), default_value = "auto")]
    layout: Layout,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Documents")]
struct DocumentArgs {
    /// What a document of a txt file is: file, line, blank-line or separator:STRING
    ///
    /// blank-line: the lines between blank lines; separator:STRING: the text between occurrences of STRING, in which \n, \t
    /// and \\ are escapes.
    #[arg(long, value_name = "WHAT", default_value = "file")]
    documents: String,

    /// The field or column with the text; in jsonl also a path, as a.b.c
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TEXT_FIELD)]
    text_field: String,

    /// The field or column with a unique key [default: file and byte offset or row]
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,

    /// Fields or columns to keep in the records, as name or name:type
    #[arg(long, value_name = "FIELDS")]
    keep_fields: Option<String>,

    /// Reject documents with more bytes than this
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    max_document_bytes: String,

    /// What happens to documents that are not UTF-8
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = Utf8Arg::Reject)]
    invalid_utf8: Utf8Arg,

    /// The normal form that the text is brought into first
    #[arg(long, value_name = "FORM", value_enum, default_value_t = NormalizeArg::None)]
    normalize: NormalizeArg,

    /// Leave out documents whose text is exactly that of an earlier one, after --normalize
    #[arg(long, value_name = "exact", value_enum)]
    dedup: Option<DedupArg>,
}

/// How the ids of a document become records.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Lengths")]
struct ShapeArgs {
    /// Leave out documents with fewer than MIN or more than MAX tokens
    #[arg(long, value_name = "MIN:MAX")]
    filter_length: Option<String>,

    /// Most tokens of a record
    #[arg(long, value_name = "N")]
    max_length: Option<u32>,

    /// What happens to documents over --max-length: truncate, reject, split or split:STRIDE
    ///
    /// With split:STRIDE, each record starts with the last STRIDE tokens of the one before.
    #[arg(long, value_name = "POLICY", default_value = "truncate", requires = "max_length")]
    overflow: String,

    /// Store rows of N tokens, filled with documents
    #[arg(long, value_name = "N")]
    pack: Option<u32>,

    /// How documents get into the rows of --pack
    #[arg(long, value_name = "HOW", value_enum, default_value_t = PackingArg::BestFit, requires = "pack")]
    packing: PackingArg,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Utf8Arg {
    /// They are rejected
    Reject,
    /// What is not UTF-8 becomes U+FFFD
    Replace,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum NormalizeArg {
    /// As it is
    None,
    /// Canonical composition
    Nfc,
    /// Compatibility composition
    Nfkc,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DedupArg {
    /// The same characters
    Exact,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PackingArg {
    /// One after the other; a row ends where it is full, in the middle of a document if need be
    Concat,
    /// Without cutting documents that fit a row
    BestFit,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens")]
struct TokenArgs {
    /// tokenizer.json, SentencePiece .model or .tiktoken file, a folder that holds one, a model in the local Hugging Face cache
    /// (org/model), a tiktoken encoding in its cache (cl100k_base), or `bytes` for the UTF-8 bytes as ids
    #[arg(short, long, value_name = "NAME")]
    tokenizer: String,

    /// Put the beginning-of-sequence token before every document
    #[arg(long)]
    add_bos: bool,

    /// Put the end-of-sequence token after every document
    #[arg(long)]
    add_eos: bool,

    /// Put around every document what the tokenizer's post-processor puts there
    #[arg(long, conflicts_with_all = ["add_bos", "add_eos"])]
    add_special_tokens: bool,

    /// The token of --add-bos, where the tokenizer does not say it
    #[arg(long, value_name = "TOKEN")]
    bos_token: Option<String>,

    /// The token of --add-eos, where the tokenizer does not say it
    #[arg(long, value_name = "TOKEN")]
    eos_token: Option<String>,

    /// What the string of a special token means inside a document
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = SpecialArg::Text)]
    special_in_text: SpecialArg,

    /// Which engine makes the ids; all make the same
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,

    /// How many documents the reference encodes a second time, to compare
    #[arg(long, value_name = "SHARE", value_enum, default_value_t = VerifyArg::Sample)]
    verify_ids: VerifyArg,

    /// Reject documents over this size that only the reference can encode [default: 4MiB]
    ///
    /// The size counts before and after normalization. The reference takes about 150 bytes of memory per byte of text.
    #[arg(long, value_name = "SIZE")]
    max_reference_bytes: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SpecialArg {
    /// Ordinary characters: no document can inject a control token
    Text,
    /// The special token
    Parse,
    /// The document is rejected
    Error,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EngineArg {
    /// A fast engine where it proves to give the same ids, otherwise the reference
    Auto,
    /// The reference: the `tokenizers` crate
    Reference,
    /// A fast engine, or an error
    Fast,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum VerifyArg {
    /// One in a thousand, chosen by key
    Sample,
    /// Every document
    All,
}

impl Args {
    /// Returns these arguments for a plan that is stored and not run.
    pub(super) fn planning(mut self) -> Self {
        self.common.plan_only = true;
        self
    }
}

/// Runs `dsconvert text`.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let watch = signals::watch()?;
    let Args { common, input, documents, tokens, shape, report_batch, report_tokens } = args;
    let batches = report_tokens.map_or(BatchSize::BatchSize(report_batch), BatchSize::MaxTokens);
    BatchOptions::new(batches).check()?;
    let output = common.output()?;
    let max_document_bytes =
        parse_size(&documents.max_document_bytes).map_err(|e| flag("--max-document-bytes", &e))?;
    let keep_fields = documents.keep_fields.as_deref().map(parse_keep).transpose();
    let keep_fields = keep_fields.map_err(|e| flag("--keep-fields", &e))?.unwrap_or_default();
    let text_documents = parse("--documents", &documents.documents)?;
    let input_format = input.input_format.as_deref().map(|text| parse("--input-format", text)).transpose()?;
    let layout = input.layout;
    let shape = shape.shape()?;
    let (input, sources) = input.sources(common.sources()?)?;
    let tokenizer = load(&tokens.tokenizer, tokens.options()?)?;
    if let Some(why) = tokenizer.info().engine_note.as_ref().filter(|_| !common.verbosity.is_quiet()) {
        print::say(format!("using the slow reference tokenizer: {why}"));
    }
    let follow_symlinks = common.follow_symlinks;
    let walked = input == TextInput::Walk;
    let plan = |sources| {
        TextJob::plan(TextOptions {
            input,
            input_format,
            follow_symlinks,
            layout,
            documents: text_documents,
            text_field: documents.text_field,
            key_field: documents.key_field,
            keep_fields,
            replace_invalid_utf8: matches!(documents.invalid_utf8, Utf8Arg::Replace),
            max_document_bytes,
            normalize: match documents.normalize {
                NormalizeArg::None => Normalize::None,
                NormalizeArg::Nfc => Normalize::Nfc,
                NormalizeArg::Nfkc => Normalize::Nfkc,
            },
            shape,
            dedup: documents.dedup.is_some(),
            ..TextOptions::new(sources, tokenizer, output)
        })
    };
    let (sample, dedup) = (common.sample, documents.dedup.is_some());
    let preview = |job: &TextJob, run: &RunOptions| match sample {
        None => Ok(()),
        Some(sample) => {
            let prediction = job.predict(sample, run, watch.stop())?;
            print::out(&summary::prediction(&prediction, run.threads, dedup))
        }
    };
    common.exec_reported(sources, walked, &watch, plan, preview, |report, out| {
        lengths::text(report, out, batches)
    })
}

impl InputArgs {
    /// Returns how files are found, and the sources: by default, the folder that names are relative to.
    fn sources(&self, mut sources: Vec<SourceSpec>) -> Result<(TextInput, Vec<SourceSpec>)> {
        if let Some(list) = &self.files_from {
            check_local("--files-from", list)?;
            check_no_folder("--files-from", list, LISTED)?;
            let from = FilesFrom { list: list.clone(), null: self.null };
            if sources.is_empty() {
                sources.push(source(&from.folder())?);
            }
            return Ok((TextInput::FilesFrom(from), sources));
        }
        let Some(stdin) = sources.iter_mut().find(|s| s.path == Path::new(STDIN)) else {
            return Ok((TextInput::Walk, sources));
        };
        if stdin.label == STDIN {
            STDIN_LABEL.clone_into(&mut stdin.label);
        }
        Ok((TextInput::Stdin, sources))
    }
}

impl ShapeArgs {
    fn shape(&self) -> Result<TextShape> {
        let overflow: Overflow = parse("--overflow", &self.overflow)?;
        let packing = match self.packing {
            PackingArg::Concat => Packing::Concat,
            PackingArg::BestFit => Packing::BestFit,
        };
        Ok(TextShape {
            filter_length: self.filter_length.as_deref().map(|t| parse("--filter-length", t)).transpose()?,
            max_length: self.max_length.map(|most| (most, overflow)),
            pack: self.pack.map(|length| (length, packing)),
        })
    }
}

impl TokenArgs {
    fn options(&self) -> Result<TokenizerOptions> {
        let max_reference_bytes = self.max_reference_bytes.as_deref().map(parse_size).transpose();
        Ok(TokenizerOptions {
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            add_special_tokens: self.add_special_tokens,
            bos_token: self.bos_token.clone(),
            eos_token: self.eos_token.clone(),
            special_in_text: match self.special_in_text {
                SpecialArg::Text => SpecialInText::Text,
                SpecialArg::Parse => SpecialInText::Parse,
                SpecialArg::Error => SpecialInText::Error,
            },
            engine: match self.engine {
                EngineArg::Auto => EngineChoice::Auto,
                EngineArg::Reference => EngineChoice::Reference,
                EngineArg::Fast => EngineChoice::Fast,
            },
            verify: match self.verify_ids {
                VerifyArg::Sample => Verify::Sample,
                VerifyArg::All => Verify::All,
            },
            max_reference_bytes: max_reference_bytes.map_err(|e| flag("--max-reference-bytes", &e))?,
        })
    }
}

/// Loads the tokenizer that `--tokenizer` names.
pub(super) fn load(name: &str, options: TokenizerOptions) -> Result<Tokenizer> {
    let given = Path::new(name);
    if name == "bytes" && stat(given)?.is_none() {
        return Tokenizer::bytes(options).map_err(usage_error);
    }
    check_local("--tokenizer", given)?;
    let file = tokenizer_files::find(name)?;
    Tokenizer::from_json(file.json, options).map_err(|e| usage_error(e).at_path(&file.path))
}
