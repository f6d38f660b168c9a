//! `dsconvert text`

use std::path::Path;

use super::Ending;
use super::common::{CommonArgs, flag};
use crate::error::{Error, Result};
use crate::options::parse_size;
use crate::pipeline::{DEFAULT_TEXT_FIELD, TextJob, TextOptions};
use crate::transform::text::{EngineChoice, SpecialInText, Tokenizer, TokenizerOptions, Verify};

/// Arguments of `dsconvert text`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonArgs,

    #[command(flatten)]
    tokens: TokenArgs,

    /// jsonl: the field that holds the text
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TEXT_FIELD, help_heading = "Documents")]
    text_field: String,

    /// jsonl: the field that holds a unique key [default: file and byte offset are the key]
    #[arg(long, value_name = "NAME", help_heading = "Documents")]
    key_field: Option<String>,

    /// Reject documents with more bytes than this
    #[arg(long, value_name = "SIZE", default_value = "64MiB", help_heading = "Documents")]
    max_document_bytes: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tokens")]
struct TokenArgs {
    /// tokenizer.json, a folder that holds it, or `bytes` for the UTF-8 bytes as ids
    #[arg(short, long, value_name = "FILE")]
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

/// Runs it.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let output = args.common.output()?;
    let max_document_bytes =
        parse_size(&args.max_document_bytes).map_err(|e| flag("--max-document-bytes", &e))?;
    let tokenizer = load(&args.tokens.tokenizer, args.tokens.options())?;
    let follow_symlinks = args.common.follow_symlinks;
    args.common.exec(|sources| {
        TextJob::plan(TextOptions {
            sources,
            follow_symlinks,
            tokenizer,
            text_field: args.text_field,
            key_field: args.key_field,
            max_document_bytes,
            output,
        })
    })
}

impl TokenArgs {
    fn options(&self) -> TokenizerOptions {
        TokenizerOptions {
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
        }
    }
}

/// The tokenizer that `--tokenizer` names.
fn load(name: &str, options: TokenizerOptions) -> Result<Tokenizer> {
    if name == "bytes" && !Path::new(name).exists() {
        return Tokenizer::bytes(options);
    }
    let given = Path::new(name);
    let path = if given.is_dir() { given.join("tokenizer.json") } else { given.to_owned() };
    let json = std::fs::read(&path).map_err(|e| {
        let error = match e.kind() {
            std::io::ErrorKind::NotFound => Error::usage("there is no such tokenizer").at_path(&path),
            _ => Error::io("read the tokenizer", &path, e),
        };
        error.help("--tokenizer takes a tokenizer.json, a folder that holds one, or the word bytes")
    })?;
    Tokenizer::from_json(json, options).map_err(|e| e.at_path(&path))
}
