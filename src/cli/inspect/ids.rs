//! `inspect --verify` of token ids that another program has written: rows with lists of ids, and files of Megatron.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::masks::MaskRules;
use super::{Args, Out, print_error, print_json};
use crate::cli::flags::with_flags;
use crate::cli::recipe::Given;
use crate::cli::summary::Lines;
use crate::cli::text::{LoadedTokenizer, load};
use crate::cli::{Ending, print, signals, values};
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_NAME;
use crate::numbers::plural;
use crate::options::{OutputOptions, is_remote};
use crate::pipeline::{IdsReport, OddDocument, TextOptions, check_ids};
use crate::printable::{printable, printable_path};
use crate::recipe::{IdsRecipe, TextRecipe};
use crate::report::Vocabulary;
use crate::storage::stat;
use crate::transform::text::{Tokenizer, TokenizerOptions};

/// Extensions of the index of Megatron, and of the file with its ids.
const INDEX: &str = "idx";
const IDS: &str = "bin";
/// Name of the field of ids that have no name.
const UNNAMED: &str = "ids";

/// Options of token ids that another program has written.
#[derive(Debug, clap::Args)]
#[command(mut_arg("keep_packs", |arg| arg.hide(true)))]
pub(super) struct IdsArgs {
    #[command(flatten)]
    given: Given<IdsRecipe>,
}

impl IdsArgs {
    /// Returns whether `path` holds token ids of another program: an option says so, or it is a dataset of Megatron.
    pub(super) fn applies_to(&self, path: &Path) -> Result<bool> {
        Ok(self.given.has("ids_field") || index_of(path)?.is_some())
    }

    /// Refuses the options without a check, or of a dataset, whose ids have names.
    pub(super) fn check_used(&self, is_verified: bool, path: &Path) -> Result<()> {
        let Some(option) = self.given.first() else { return Ok(()) };
        if self.given.has("keep_packs") {
            return Err(Error::usage("`keep_packs` applies only to a conversion")
                .help("leave it out: documents are checked one by one"));
        }
        if !is_verified {
            let what =
                format!("`{option}` applies only with `verify`, which checks token ids of another program");
            return Err(Error::usage(what).help("add `verify`"));
        }
        if stat(&path.join(MANIFEST_NAME)).is_ok_and(|found| found.is_some()) {
            let what =
                format!("`{option}` applies only to token ids of another program, and this is a dataset");
            return Err(Error::usage(what).at_path(path).help("leave out the option"));
        }
        if !self.applies_to(path)? {
            let what = format!("`{option}` applies only to token ids of another program");
            return Err(Error::usage(what).help("name their field with `ids_field`"));
        }
        Ok(())
    }
}

/// Returns the index of the dataset of Megatron that `path` names: the index itself, or the file beside it.
fn index_of(path: &Path) -> Result<Option<PathBuf>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(INDEX) => Ok(Some(path.to_owned())),
        Some(IDS) => {
            let index = path.with_extension(INDEX);
            Ok(stat(&index)?.is_some().then_some(index))
        }
        _ => Ok(None),
    }
}

/// Checks the ids and prints what was found.
pub(super) fn verify(args: &Args, threads: usize, out: &mut Out) -> Result<Ending> {
    if args.repair.is_some() {
        return Err(Error::usage(
            "`repair` regenerates files of a dataset, and these are not ones of dsconvert",
        )
        .help("leave it out"));
    }
    let path = index_of(args.path())?.unwrap_or_else(|| args.path().to_owned());
    let mut ids: IdsRecipe = args.ids.given.options()?;
    ids.ids_field.get_or_insert_with(|| UNNAMED.to_owned());
    let LoadedTokenizer { tokenizer, .. } = match args.report.tokenizer_name() {
        Some(name) => load(&name.to_string_lossy(), TokenizerOptions::default())?,
        None => {
            ids.without_tokenizer = true;
            LoadedTokenizer::bytes(TokenizerOptions::default())?
        }
    };
    if ids.without_tokenizer {
        let bounded = if ids.vocab_size.is_some() { "" } else { "that ids are those of a model, " };
        print::note(with_flags(&format!(
            "without `tokenizer`, these are not checked: {bounded}doubled BOS tokens, and ends of what is trained on"
        )));
    }
    let rules = rules(&tokenizer, ids.without_tokenizer)?;
    let odd = |ids: &[u32], mask: Option<&[u8]>| -> Vec<OddDocument> {
        let found = rules.document_oddities(ids, mask);
        found.into_iter().map(|(code, message)| OddDocument { code, message }).collect()
    };
    let sources = vec![values::source(&path)?];
    let is_remote = is_remote(&sources);
    let recipe = TextRecipe { ids, ..TextRecipe::default() };
    let options = TextOptions { recipe, ..TextOptions::new(sources, tokenizer, OutputOptions::of_text()) };
    let stop = signals::watch()?;
    let report = check_ids(options, threads, &stop, &odd)?;
    if report.files == 0 {
        let what = if is_remote {
            "no objects with token ids were found"
        } else {
            "no files with token ids were found"
        };
        return Err(Error::usage(what).at_path(path));
    }
    print::unless_closed(print_report(&path, &report, args.json, out))?;
    Ok(if report.findings.is_empty() { Ending::Success } else { Ending::Damaged })
}

/// Returns the rules for documents whose ids are those of `tokenizer`.
fn rules(tokenizer: &Tokenizer, without_tokenizer: bool) -> Result<MaskRules> {
    if without_tokenizer {
        return Ok(MaskRules::default());
    }
    let vocabulary = match tokenizer.json() {
        Some(json) => Vocabulary::from_json(json)?,
        None => Vocabulary::bytes(),
    };
    let bos = tokenizer.info().bos.as_ref().map(|bos| bos.id);
    Ok(MaskRules::of_vocabulary(vocabulary, bos))
}

fn print_report(path: &Path, report: &IdsReport, json: bool, out: &mut Out) -> Result<()> {
    let IdsReport { files, rows, documents, tokens, trained, findings, more } = report;
    if json {
        let shown = findings.iter().map(|finding| {
            json!({
                "code": finding.code,
                "count": finding.count,
                "message": with_flags(&finding.message),
                "first": finding.first,
            })
        });
        let object = json!({
            "ok": findings.is_empty(),
            "files": files,
            "rows": rows,
            "documents": documents,
            "tokens": tokens,
            "trained": trained,
            "findings": shown.collect::<Vec<_>>(),
            "more": more,
        });
        return print_json(out, &object);
    }
    let mut lines = Lines::default();
    for finding in findings {
        lines.add(printable(&with_flags(&finding.to_string())));
    }
    if *more > 0 {
        lines.add(format!("and {} of other kinds", plural(*more, "row")));
    }
    let verdict = match findings.len() as u64 {
        0 => "nothing found".to_owned(),
        kinds => plural(kinds, "finding"),
    };
    let trained = trained.map_or_else(String::new, |trained| format!(", {trained} trained"));
    let counts = format!(
        "{}, {}, {}{trained}",
        plural(*rows, "row"),
        plural(*documents, "document"),
        plural(*tokens, "token")
    );
    lines.add(format!(
        "{}: {verdict}; {} with {counts} checked",
        printable_path(path),
        plural(*files, "file")
    ));
    out.write_all(lines.0.as_bytes()).map_err(print_error)
}
