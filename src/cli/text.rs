//! `dsconvert text`: its arguments and the job they describe.

use std::path::{Path, PathBuf};

use super::common::{CommonArgs, STDIN};
use super::conversion_command::ConversionCommand;
use super::flags::with_flags;
use super::text_values::{DedupArg, EngineArg, NormalizeArg, PackingArg, SpecialArg, Utf8Arg, VerifyArg};
use super::values::{FILES_FROM_HELP, check_not_folder, choice_of, parse, source};
use super::{Ending, print, signals};
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local, parse_size};
use crate::pipeline::{DEFAULT_TEXT_FIELD, Overflow, TextInput, TextJob, TextOptions, TextShape};
use crate::reader::batch::{BatchOptions, BatchSize, MAX_BATCH_RECORDS, MAX_BATCH_TOKENS};
use crate::source::encoding::TextEncoding;
use crate::source::files_from::FilesFrom;
use crate::source::layout::FolderLayout;
use crate::source::metadata::parse_keep;
use crate::storage::{ObjectUrl, stat};
use crate::tokenizer_files;
use crate::transform::text::{Tokenizer, TokenizerOptions, usage_error};

/// Default label of standard input.
const STDIN_LABEL: &str = "stdin";
/// Values of `--layout`: text has no classes, so `labels` is missing.
const LAYOUTS: &[&str] = &["auto", "splits", "flat"];
/// Default of `--report-batch`.
const DEFAULT_REPORT_BATCH: u64 = 32;

/// Arguments of `dsconvert text`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("sources", |sources| sources
    .required(false)
    .required_unless_present("files_from")
    .help("Files, folders and patterns to convert, or - for standard input; LABEL=PATH sets the label of a source")
    .long_help("Files, folders and patterns to convert, or - for standard input; LABEL=PATH sets the label of a source\n\n\
                The label is the first part of every key and origin. The default is the name of the file or folder. If all \
                labels are names of splits (train=…, validation=…), each source is a split.\n\n\
                Sources may be in object storage: a prefix or an object such as s3://bucket/corpus (also gs:// and az://), or \
                a file on a web server (https://…).")))]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    documents: DocumentArgs,

    #[command(flatten)]
    tokens: TokenArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Batch size in records for the padding statistics at the end
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH_RECORDS), default_value_t = DEFAULT_REPORT_BATCH, help_heading = "Run")]
    report_batch: u64,

    /// Batch size in tokens, including padding, for the padding statistics at the end
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH_TOKENS), conflicts_with = "report_batch", help_heading = "Run")]
    report_tokens: Option<u64>,
}

/// Where files come from, and their type.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sources")]
struct InputArgs {
    /// Convert the files listed in FILE (or - for standard input), one path per line
    ///
    /// Records are in the order of the list. Paths are relative to SRC; without SRC, to the folder of FILE (for -, to the working
    /// directory).
    #[arg(long, value_name = "FILE|-")]
    files_from: Option<PathBuf>,

    /// Paths in --files-from end with a NUL byte, like the output of find -print0
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,

    /// Type of standard input and of individually named files: txt, jsonl, json, csv, tsv, parquet or arrow
    ///
    /// Overrides the extension of the file name. txt, jsonl, json, csv and tsv may end with .gz, .zst, .xz or .bz2.
    #[arg(long, value_name = "FORMAT")]
    input_format: Option<String>,

    /// Encoding of text files without a byte order mark, such as windows-1252 or shift_jis [default: utf-8]
    ///
    /// Files that start with the byte order mark of UTF-8 or UTF-16 are decoded accordingly.
    #[arg(long, value_name = "NAME")]
    encoding: Option<String>,

    /// Meaning of folder and file names
    ///
    /// auto: sources, folders and files whose names contain the word of a split (train, val, test, ...) are splits; splits: the same, but files outside of splits are
    /// errors, and if there is no such name, the first folder level is the split; flat: names have no meaning.
    #[arg(long, value_name = "LAYOUT", value_parser = choice_of::<FolderLayout>(LAYOUTS), default_value = "auto")]
    layout: FolderLayout,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Documents")]
struct DocumentArgs {
    /// How txt files are divided into documents: file, line, blank-line or separator:STRING
    ///
    /// blank-line: the lines between blank lines; separator:STRING: the text between occurrences of STRING, in which \n, \t
    /// and \\ are escapes.
    #[arg(long, value_name = "WHAT", default_value = "file")]
    documents: String,

    /// Field or column with the text; for jsonl also a path such as a.b.c
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TEXT_FIELD)]
    text_field: String,

    /// Field or column with a unique key [default: file and byte offset or row]
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,

    /// Fields or columns to keep in the records, as name or name:type
    #[arg(long, value_name = "FIELDS")]
    keep_fields: Option<String>,

    /// Reject documents with more bytes than this
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    max_document_bytes: String,

    /// Handling of documents that are not valid UTF-8
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = Utf8Arg::Reject)]
    invalid_utf8: Utf8Arg,

    /// Unicode normalization form applied before tokenization
    #[arg(long, value_name = "FORM", value_enum, default_value_t = NormalizeArg::None)]
    normalize: NormalizeArg,

    /// Leave out documents with the same text as an earlier document, after --normalize
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

    /// Maximum number of tokens in a record
    #[arg(long, value_name = "N")]
    max_length: Option<u32>,

    /// Handling of documents longer than --max-length: truncate, reject, split or split:STRIDE
    ///
    /// With split:STRIDE, each record starts with the last STRIDE tokens of the previous one.
    #[arg(long, value_name = "POLICY", default_value = "truncate", requires = "max_length")]
    overflow: String,

    /// Pack documents into rows of N tokens
    #[arg(long, value_name = "N")]
    pack: Option<u32>,

    /// Packing algorithm of --pack
    #[arg(long, value_name = "HOW", value_enum, default_value_t = PackingArg::BestFit, requires = "pack")]
    packing: PackingArg,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens")]
struct TokenArgs {
    /// Tokenizer: a tokenizer.json, SentencePiece .model or .tiktoken file, or a folder that contains one; a model in the local
    /// Hugging Face cache (org/model); a tiktoken encoding in its cache (cl100k_base); or `bytes`, UTF-8 bytes as ids
    #[arg(short, long, value_name = "NAME")]
    tokenizer: String,

    /// Add the beginning-of-sequence token before every document
    #[arg(long)]
    add_bos: bool,

    /// Add the end-of-sequence token after every document
    #[arg(long)]
    add_eos: bool,

    /// Add the special tokens of the tokenizer's post-processor around every document
    #[arg(long, conflicts_with_all = ["add_bos", "add_eos"])]
    add_special_tokens: bool,

    /// Token for --add-bos [default: from the files beside the tokenizer, or from the tokenizer]
    #[arg(long, value_name = "TOKEN")]
    bos_token: Option<String>,

    /// Token for --add-eos [default: from the files beside the tokenizer, or from the tokenizer]
    #[arg(long, value_name = "TOKEN")]
    eos_token: Option<String>,

    /// Handling of special-token strings inside documents
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = SpecialArg::Text)]
    special_in_text: SpecialArg,

    /// Tokenizer engine; all engines produce the same ids
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineArg::Auto)]
    engine: EngineArg,

    /// Share of documents that the reference engine encodes again to verify the ids
    #[arg(long, value_name = "SHARE", value_enum, default_value_t = VerifyArg::Sample)]
    verify_ids: VerifyArg,

    /// Reject larger documents if only the reference engine can encode them [default: 4MiB]
    ///
    /// The limit applies before and after normalization. The reference engine needs 80 to 500 bytes of memory per byte of text.
    #[arg(long, value_name = "SIZE")]
    max_reference_bytes: Option<String>,
}

/// Runs `dsconvert text`.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let watch = signals::watch()?;
    let Args { common, input, documents, tokens, shape, report_batch, report_tokens } = args;
    let batches = report_tokens.map_or(BatchSize::BatchSize(report_batch), BatchSize::MaxTokens);
    BatchOptions::new(batches).check()?;
    if report_tokens.is_some() || report_batch != DEFAULT_REPORT_BATCH {
        let option = if report_tokens.is_some() { "--report-tokens" } else { "--report-batch" };
        check_shows_padding(&common, option)?;
    }
    let output = common.output()?;
    let max_document_bytes =
        parse_size(&documents.max_document_bytes).map_err(|e| e.of_option("max_document_bytes"))?;
    let keep_fields = documents.keep_fields.as_deref().map(parse_keep).transpose();
    let keep_fields = keep_fields.map_err(|e| e.of_option("keep_fields"))?.unwrap_or_default();
    let text_documents = parse("documents", &documents.documents)?;
    let input_format = input.input_format.as_deref().map(|text| parse("input_format", text)).transpose()?;
    let encoding = input.encoding.as_deref().map(TextEncoding::parse).transpose();
    let encoding = encoding.map_err(|e| e.of_option("encoding"))?.flatten();
    let layout = input.layout;
    let shape = shape.shape()?;
    let (input, sources) = input.sources(common.sources()?)?;
    let LoadedTokenizer { tokenizer, path } = load(&tokens.tokenizer, tokens.options()?)?;
    if let Some(why) = tokenizer.info().engine_note.as_ref().filter(|_| !common.verbosity.is_quiet()) {
        print::note(format!("using the slow reference tokenizer: {}", with_flags(why)));
    }
    let follow_symlinks = common.follow_symlinks;
    let walked = input == TextInput::Walk;
    let list = if let TextInput::FilesFrom(from) = &input { from.input() } else { None };
    let inputs = list.into_iter().chain(path.map(|path| ("tokenizer", path))).collect();
    let plan = |sources| {
        TextJob::plan(TextOptions {
            input,
            input_format,
            follow_symlinks,
            layout,
            encoding,
            documents: text_documents,
            text_field: documents.text_field,
            key_field: documents.key_field,
            keep_fields,
            replace_invalid_utf8: matches!(documents.invalid_utf8, Utf8Arg::Replace),
            max_document_bytes,
            normalize: documents.normalize.into(),
            shape,
            dedup: documents.dedup.is_some(),
            ..TextOptions::new(sources, tokenizer, output)
        })
    };
    let batches = Some(batches);
    ConversionCommand { common: &common, watch: &watch, sources, walked, inputs, batches }.exec(plan)
}

/// Fails if the run shows no padding, to which `option` applies.
fn check_shows_padding(common: &CommonArgs, option: &str) -> Result<()> {
    let why = if common.plan_only {
        "to a plan, which converts nothing"
    } else if common.out.as_deref().is_some_and(ObjectUrl::is_url) {
        "to output in object storage, whose lengths are not read back"
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("{option} does not apply {why}"))
        .help("dsconvert inspect --html shows the lengths and the padding of a dataset"))
}

impl InputArgs {
    /// Returns how files are found, and the sources: by default, the folder that names are relative to.
    fn sources(&self, mut sources: Vec<SourceSpec>) -> Result<(TextInput, Vec<SourceSpec>)> {
        if let Some(list) = &self.files_from {
            check_local("files_from", list)?;
            check_not_folder("files_from", list, FILES_FROM_HELP)?;
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
        let overflow: Overflow = parse("overflow", &self.overflow)?;
        Ok(TextShape {
            filter_length: self.filter_length.as_deref().map(|t| parse("filter_length", t)).transpose()?,
            max_length: self.max_length.map(|max| (max, overflow)),
            pack: self.pack.map(|length| (length, self.packing.into())),
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
            special_in_text: self.special_in_text.into(),
            engine: self.engine.into(),
            verify: self.verify_ids.into(),
            max_reference_bytes: max_reference_bytes.map_err(|e| e.of_option("max_reference_bytes"))?,
        })
    }
}

/// A tokenizer, and the file that it was read from.
pub(super) struct LoadedTokenizer {
    pub(super) tokenizer: Tokenizer,
    /// `None` if it has no file.
    path: Option<PathBuf>,
}

/// Loads the tokenizer given as `--tokenizer`.
pub(super) fn load(name: &str, options: TokenizerOptions) -> Result<LoadedTokenizer> {
    let given = Path::new(name);
    if name == "bytes" && stat(given)?.is_none() {
        let tokenizer = Tokenizer::bytes(options).map_err(usage_error)?;
        return Ok(LoadedTokenizer { tokenizer, path: None });
    }
    check_local("tokenizer", given)?;
    let file = tokenizer_files::find(name)?;
    let path = file.path.clone();
    let tokenizer = file.load(options)?;
    tokenizer.warnings().iter().map(|why| with_flags(why)).for_each(print::warning);
    Ok(LoadedTokenizer { tokenizer, path: Some(path) })
}
