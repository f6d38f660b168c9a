//! `dsconvert text`: its arguments and the job they describe.

use std::path::{Path, PathBuf};

use super::common::{CommonArgs, ListArgs, RunArgs, STDIN, check_seed, note_list};
use super::conversion_command::ConversionCommand;
use super::flags::with_flags;
use super::recipe::{Given, LIKE, Like};
use super::values::source;
use super::{Ending, print, signals};
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::pipeline::{Stop, TextInput, TextJob, TextOptions};
use crate::printable::printable_path;
use crate::reader::batch::{BatchOptions, BatchSize, MAX_BATCH_RECORDS, MAX_BATCH_TOKENS};
use crate::recipe::{Recorded, RecordedInput, TextRecipe};
use crate::source::io::planned::read_file;
use crate::storage::{ObjectUrl, stat};
use crate::tokenizer_files::{self, chat_template, processor};
use crate::transform::text::{Tokenizer, TokenizerOptions, usage_error};

/// Default label of standard input.
const STDIN_LABEL: &str = "stdin";
/// Default of `--report-batch`.
pub(super) const DEFAULT_REPORT_BATCH: u64 = 32;

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
    common: CommonArgs,

    #[command(flatten)]
    list: ListArgs,

    /// Tokenizer: a tokenizer.json, SentencePiece .model or .tiktoken file, or a folder that contains one; a model in the local
    /// Hugging Face cache (org/model); a tiktoken encoding in its cache (cl100k_base); or `bytes`, UTF-8 bytes as ids
    #[arg(short, long, value_name = "NAME", required_unless_present_any = [LIKE, "ids_field"], help_heading = "Tokens")]
    tokenizer: Option<String>,

    /// Chat template for --messages-field: a Jinja file, a tokenizer_config.json, a folder with one of them, a model in the local
    /// Hugging Face cache, or a dataset of chats [default: the template beside the tokenizer]
    #[arg(long, value_name = "FILE|FOLDER", help_heading = "Chats")]
    chat_template: Option<String>,

    #[command(flatten)]
    given: Given<TextRecipe>,

    #[command(flatten)]
    pub(super) run: RunArgs,

    /// Batch size in records for the padding statistics at the end
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH_RECORDS), default_value_t = DEFAULT_REPORT_BATCH, help_heading = "Run")]
    report_batch: u64,

    /// Batch size in tokens, including padding, for the padding statistics at the end
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH_TOKENS), conflicts_with = "report_batch", help_heading = "Run")]
    report_tokens: Option<u64>,
}

/// Runs `dsconvert text`.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let stop = signals::watch()?;
    let Args { common, list, tokenizer, chat_template, given, run, report_batch, report_tokens } = args;
    let (out, is_quiet) = (common.out.as_deref(), run.verbosity.is_quiet());
    let batches = report_tokens.map_or(BatchSize::BatchSize(report_batch), BatchSize::MaxTokens);
    BatchOptions::new(batches).check()?;
    if report_tokens.is_some() || report_batch != DEFAULT_REPORT_BATCH {
        let option = if report_tokens.is_some() { "--report-tokens" } else { "--report-batch" };
        check_shows_padding(&run, out, option)?;
    }
    let like = common.like.as_deref().map(Like::open).transpose()?;
    let mut recipe = given.recipe(like.as_ref(), is_quiet)?;
    if !run.is_repair() {
        check_seed(&recipe.output, given.has("seed"))?;
    }
    recipe.check()?;
    let (input, sources) = input(list, common.sources()?)?;
    like.iter().filter(|_| !is_quiet).for_each(|like| common.note_exclude(like));
    if let (Some(like), false) = (&like, is_quiet)
        && like.recorded.input == RecordedInput::FilesFrom
        && input == TextInput::Walk
    {
        note_list(&printable_path(like.path));
    }
    let LoadedTokenizer { tokenizer, path } = match (tokenizer, &like) {
        (Some(name), _) => {
            recipe.ids.without_tokenizer = false;
            load(&name, recipe.tokenization.clone())?
        }
        (None, Some(like)) => load_stored(like, recipe.tokenization.clone())?,
        (None, None) if recipe.ids.is_given() => {
            recipe.ids.without_tokenizer = true;
            LoadedTokenizer::bytes(recipe.tokenization.clone())?
        }
        (None, None) => return Err(Error::internal("neither --tokenizer nor --like is given")),
    };
    if recipe.chat.has_masks() || chat_template.is_some() {
        let found = chat_template::find(chat_template.as_deref(), path.as_deref())?;
        if let Some(template) =
            found.filter(|_| chat_template.is_some() || recipe.chat.chat_template.is_none())
        {
            let TokenizerOptions { bos_token, eos_token, .. } = &recipe.tokenization;
            let given = [("bos_token", bos_token.as_deref()), ("eos_token", eos_token.as_deref())];
            let is_argument = |name: &str| recipe.chat.template_arg.0.contains_key(name);
            recipe.chat.chat_template = match chat_template::with_tokens(template, given, is_argument) {
                Ok(template) => Some(template),
                // Pairs of texts need no template; pairs of lists of messages are then rejected.
                Err(error) if chat_template.is_none() && recipe.chat.may_be_pairs() => {
                    if !is_quiet {
                        print::note(format!(
                            "the chat template is not used: {}",
                            with_flags(&error.to_string())
                        ));
                    }
                    None
                }
                Err(error) => return Err(error),
            };
        }
        recipe.check()?;
    }
    if recipe.multimodal.is_given() {
        recipe.multimodal.vision = Some(processor::find(path.as_deref(), &tokenizer, &recipe.multimodal)?);
    }
    if let Some(why) = tokenizer.info().engine_note.as_ref().filter(|_| !is_quiet) {
        print::note(format!("using the slow reference tokenizer: {}", with_flags(why)));
    }
    let list = if let TextInput::FilesFrom(from) = &input { from.input() } else { None };
    let inputs = list.into_iter().chain(path.map(|path| ("tokenizer", path))).collect();
    let options = TextOptions { sources, input, tokenizer, exclude: common.exclude, recipe };
    convert(options, common.out.as_deref(), &run, inputs, Some(batches), &stop)
}

/// Repairs the dataset in `dir` from `sources`. `tokenizer` is the stored one; `None` for bytes.
pub(super) fn repair(
    recorded: Recorded<TextRecipe>,
    tokenizer: Option<&Path>,
    dir: &Path,
    sources: Vec<SourceSpec>,
    threads: Option<usize>,
) -> Result<Ending> {
    let recipe = recorded.recipe;
    let json = tokenizer.map(read_file).transpose()?;
    let tokenizer = Tokenizer::stored(json, recipe.tokenization.clone()).map_err(usage_error)?;
    let options = TextOptions { sources, input: TextInput::Walk, tokenizer, exclude: Vec::new(), recipe };
    let batches = Some(BatchSize::BatchSize(DEFAULT_REPORT_BATCH));
    let stop = signals::watch()?;
    convert(options, Some(dir), &RunArgs::repair(threads), Vec::new(), batches, &stop)
}

/// Plans, then previews, stores or runs the conversion. `inputs` are files that options name.
fn convert(
    options: TextOptions,
    out: Option<&Path>,
    run: &RunArgs,
    inputs: Vec<(&'static str, PathBuf)>,
    batches: Option<BatchSize>,
    stop: &Stop,
) -> Result<Ending> {
    let searched = if options.input == TextInput::Walk { options.sources.clone() } else { Vec::new() };
    let excluded = options.exclude.clone();
    let command = ConversionCommand { out, run, stop, searched, inputs, excluded, batches };
    command.exec(|| TextJob::plan(options))
}

/// Fails if the run shows no padding, to which `option` applies.
fn check_shows_padding(run: &RunArgs, out: Option<&Path>, option: &str) -> Result<()> {
    let why = if run.plan_only {
        "to a plan, which converts nothing"
    } else if out.is_some_and(ObjectUrl::is_url) {
        "to output in object storage, whose lengths are not read back"
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("{option} does not apply {why}"))
        .help("dsconvert inspect --html shows the lengths and the padding of a dataset"))
}

/// Returns how files are found, and the sources: by default, the folder that names are relative to.
fn input(list: ListArgs, mut sources: Vec<SourceSpec>) -> Result<(TextInput, Vec<SourceSpec>)> {
    if let Some(from) = list.list()? {
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

/// A tokenizer, and the file that it was read from.
pub(super) struct LoadedTokenizer {
    pub(super) tokenizer: Tokenizer,
    /// `None` if it has no file.
    path: Option<PathBuf>,
}

impl LoadedTokenizer {
    pub(super) fn bytes(options: TokenizerOptions) -> Result<Self> {
        Ok(Self { tokenizer: Tokenizer::bytes(options).map_err(usage_error)?, path: None })
    }
}

/// Loads the tokenizer given as `--tokenizer`.
pub(super) fn load(name: &str, options: TokenizerOptions) -> Result<LoadedTokenizer> {
    let given = Path::new(name);
    if name == "bytes" && stat(given)?.is_none() {
        return LoadedTokenizer::bytes(options);
    }
    check_local("tokenizer", given)?;
    let file = tokenizer_files::find(name)?;
    let path = file.path.clone();
    let tokenizer = file.load(options)?;
    tokenizer.warnings().iter().map(|why| with_flags(why)).for_each(print::warning);
    Ok(LoadedTokenizer { tokenizer, path: Some(path) })
}

/// Loads the tokenizer of the dataset of `--like`.
fn load_stored(like: &Like<'_, TextRecipe>, options: TokenizerOptions) -> Result<LoadedTokenizer> {
    let json = tokenizer_files::stored_tokenizer(&like.dataset)?;
    let tokenizer = Tokenizer::stored(json.map(Vec::from), options).map_err(usage_error)?;
    match tokenizer.info().sha256.as_deref() == like.dataset.manifest().tokenizer_sha256() {
        true => Ok(LoadedTokenizer { tokenizer, path: None }),
        false => Err(Error::corrupt("the tokenizer.json is not the one that made the dataset")
            .at_path(like.path)
            .help("name the tokenizer with --tokenizer, or repair the dataset")),
    }
}
