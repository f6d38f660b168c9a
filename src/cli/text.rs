//! `dsconvert text`

use std::path::Path;

use super::Ending;
use super::common::{CommonArgs, flag};
use crate::error::{Error, Result};
use crate::options::parse_size;
use crate::pipeline::{DEFAULT_TEXT_FIELD, TextJob, TextOptions};
use crate::transform::text::{Tokenizer, TokenizerOptions};

/// Arguments of `dsconvert text`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonArgs,

    /// tokenizer.json, a folder that holds it, or `bytes` for the UTF-8 bytes as ids
    #[arg(short, long, value_name = "FILE", help_heading = "Tokens")]
    tokenizer: String,

    /// Put the beginning-of-sequence token before every document
    #[arg(long, help_heading = "Tokens")]
    add_bos: bool,

    /// Put the end-of-sequence token after every document
    #[arg(long, help_heading = "Tokens")]
    add_eos: bool,

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

/// Runs it.
pub(super) fn exec(args: Args) -> Result<Ending> {
    let output = args.common.output()?;
    let max_document_bytes =
        parse_size(&args.max_document_bytes).map_err(|e| flag("--max-document-bytes", &e))?;
    let options =
        TokenizerOptions { add_bos: args.add_bos, add_eos: args.add_eos, ..TokenizerOptions::default() };
    let tokenizer = load(&args.tokenizer, options)?;
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
