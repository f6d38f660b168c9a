//! Tips for options of other tools: the error about an unknown option names the dsconvert option that replaces it.

use std::ffi::OsString;
use std::num::{ParseFloatError, ParseIntError};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use Advice::{Say, Use, UseSize};

use super::Cli;
use crate::suggest::nearest;

/// Replacement for an option that dsconvert does not have.
#[derive(Clone, Copy)]
enum Advice {
    /// An option with `{}` for the value, the value to show if none was given, and a note.
    Use(&'static str, &'static str, &'static str),
    /// `--resize`, whose rule depends on the value: `256` is the length of a side, `256x256` a size.
    UseSize(&'static str),
    /// Advice where no option corresponds.
    Say(&'static str),
}

/// Options of other tools, without leading dashes and with `-` for `_`, and their replacements.
type SynonymTable = &'static [(&'static [&'static str], Advice)];

/// Options of both `images` and `text`.
const CONVERSIONS: SynonymTable = &[
    (
        &[
            "workers",
            "num-workers",
            "num-proc",
            "nproc",
            "processes",
            "processes-count",
            "jobs",
            "cpus",
            "n-jobs",
        ],
        Use("--threads {}", "N", ""),
    ),
    (
        &["size-limit", "maxsize", "max-shard-size", "shard-size", "chunk-bytes", "target-size"],
        Use("--shard-bytes {}", "256MiB", ""),
    ),
    (
        &["maxcount", "chunk-size", "samples-per-shard", "shard-max-count", "number-sample-per-shard"],
        Use("--shard-records {}", "N", ""),
    ),
    (&["output-format", "dataset-impl", "file-format"], Use("--format {}", "parquet", "")),
    (
        &["val-split", "validation-split", "test-split", "val-ratio", "val-size", "test-size", "train-split"],
        Use("--split train=0.9,validation=0.1", "", "names and fractions of all splits"),
    ),
    (&["force", "clobber", "replace"], Use("--overwrite", "", "")),
    (&["restart", "continue", "continue-from"], Use("--resume", "", "")),
    (
        &[
            "output",
            "output-dir",
            "output-folder",
            "output-path",
            "output-prefix",
            "out-root",
            "out-dir",
            "write-path",
        ],
        Use("--out {}", "DIR", ""),
    ),
    (
        &["input", "input-dir", "input-folder", "in-root", "src", "data-dir", "path"],
        Say("name sources without an option, as in `dsconvert images photos --out photos-data`"),
    ),
    (&["recursive"], Say("folders are always read recursively")),
    (
        &["compression"],
        Say("choose it with the format: `--format parquet` compresses with zstd where that saves space"),
    ),
    (
        &["num-shards", "n-shards", "shards"],
        Say("their number follows from the size: `--shard-bytes 256MiB` or `--shard-records N`"),
    ),
    (
        &["exclude", "ignore", "skip"],
        Say(
            "name what to convert with a pattern, as in 'photos/**/*.jpg', or in a list with `--files-from FILE`",
        ),
    ),
    (
        &["limit", "max-samples", "max-records"],
        Use("--dry-run --sample {}", "N", "to try the options on a few items"),
    ),
];

/// Options of `images` only.
const IMAGES: SynonymTable = &[
    (&["quality", "jpeg-quality", "encode-quality", "jpg-quality"], Use("--encode jpeg:{}", "90", "")),
    (
        &["jpeg", "encode-format", "image-format"],
        Use("--encode jpeg:90", "", "or png, webp:QUALITY, raw or keep"),
    ),
    (&["size", "image-size", "img-size", "resize-to", "image-resize"], UseSize("shorter:")),
    (&["max-resolution", "max-size", "max-dim", "max-side"], UseSize("longer:")),
    (
        &["resize-mode", "resize-only-if-bigger"],
        Use("--resize shorter:256", "", "images are only made smaller, unless --enlarge is given"),
    ),
    (&["center-crop"], Use("--crop center:{}", "224x224", "")),
    (&["interpolation", "resample"], Use("--filter {}", "bilinear", "")),
    (&["min-image-size"], Use("--min-size {}", "PIXELS", "")),
    (&["max-aspect-ratio"], Use("--max-aspect {}", "RATIO", "")),
    (&["skip-reencode", "no-reencode", "disable-all-reencoding", "write-mode"], Use("--encode keep", "", "")),
    (&["url-list", "file-list", "list"], Use("--files-from {}", "FILE", "")),
    (
        &["caption-col", "url-col", "save-additional-columns"],
        Use("--metadata FILE", "", "all columns of FILE become fields"),
    ),
    (&["class-list", "labels"], Use("--classes {}", "FILE", "")),
];

/// Options of `text` only.
const TEXT: SynonymTable = &[
    (
        &[
            "seq-len",
            "seq-length",
            "sequence-length",
            "block-size",
            "context-length",
            "concat-tokens",
            "ctx-len",
        ],
        Use("--pack {}", "2048", "rows of that many tokens, filled with documents"),
    ),
    (&["max-seq-len", "max-seq-length", "model-max-length", "truncation"], Use("--max-length {}", "N", "")),
    (&["append-eod", "append-eos", "eod"], Use("--add-eos", "", "")),
    (&["prepend-bos", "append-bos"], Use("--add-bos", "", "")),
    (&["eos-text", "eod-token"], Use("--add-eos --eos-token {}", "TOKEN", "")),
    (&["bos-text"], Use("--add-bos --bos-token {}", "TOKEN", "")),
    (
        &[
            "tokenizer-model",
            "tokenizer-name",
            "tokenizer-path",
            "tokenizer-name-or-path",
            "tokenizer-file",
            "vocab-file",
            "vocab",
        ],
        Use("--tokenizer {}", "tokenizer.json", ""),
    ),
    (
        &["tokenizer-type", "merge-file"],
        Use("--tokenizer FILE", "", "the file holds the model and its merges"),
    ),
    (
        &["json-keys", "json-key", "text-column", "text-key", "column", "columns", "key"],
        Use("--text-field {}", "text", ""),
    ),
    (&["id-column", "id-field"], Use("--key-field {}", "NAME", "")),
    (
        &["sep", "separator", "delimiter"],
        Say(
            "columns are separated by commas in .csv and by tabs in .tsv files; documents in .txt files are divided by \
             `--documents`",
        ),
    ),
    (
        &["batch-size"],
        Say("batches are made when the dataset is read; `--report-batch N` is for the padding statistics"),
    ),
    (
        &["chat-template", "apply-chat-template"],
        Say(
            "render conversations to one text field first (`tokenizer.apply_chat_template(messages, tokenize=False)`), \
             then convert it with `--special-in-text parse`",
        ),
    ),
    (
        &["split-sentences", "keep-newlines"],
        Use("--documents line", "", "how txt files are divided into documents"),
    ),
    (
        &["no-wrap"],
        Use("--packing best-fit", "", "documents that fit a row are not cut; this is the default"),
    ),
];

/// Options of `inspect`.
const INSPECT: SynonymTable = &[
    (&["validate", "check", "checksum"], Use("--verify", "", "")),
    (&["limit", "n", "rows", "first"], Use("--head {}", "N", "")),
    (&["random", "shuffle"], Use("--sample {}", "N", "")),
    (&["decode", "show-text"], Use("--text", "", "")),
    (&["index", "row"], Use("--record {}", "I", "")),
];

/// Formats of other tools, which dsconvert does not write.
const FOREIGN_FORMATS: &[&str] = &[
    "mds",
    "streaming",
    "litdata",
    "webdataset",
    "wds",
    "tar",
    "tfrecord",
    "beton",
    "ffcv",
    "hdf5",
    "lmdb",
    "mmap",
    "bin",
    "npy",
    "jsonl",
    "csv",
    "zarr",
    "lance",
];

/// Adds a tip to an error about an option or value of another tool, or about an invalid number.
pub(super) fn with_tip(mut error: clap::Error, argv: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (option, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).collect();
            tip(&words, &option)
        }
        ErrorKind::InvalidValue => foreign_format(&option, &value),
        ErrorKind::ValueValidation => number(&option, &error),
        _ => None,
    };
    if error.kind() == ErrorKind::UnknownArgument && option.starts_with("--") {
        // Clap suggests to pass the option as a value, or an option that is not similar enough.
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::SuggestedArg);
        if let Some(near) = nearest_option(argv, &option) {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
        }
    }
    if let Some(tip) = tip {
        // A similar spelling would mislead here.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedValue);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// Returns the option of the subcommand in the command line `argv` that is spelled like `option`.
fn nearest_option(argv: &[OsString], option: &str) -> Option<String> {
    let cli = Cli::command();
    let mut command = &cli;
    for word in argv.iter().skip(1).map_while(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(found) => command = found,
            None => break,
        }
    }
    let options: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let name = option.trim_start_matches('-').split('=').next()?;
    nearest(name, &options).map(|name| format!("--{name}"))
}

/// Returns the tip for a format of another tool, such as `--format mds`.
fn foreign_format(option: &str, value: &str) -> Option<String> {
    let is_foreign = FOREIGN_FORMATS.contains(&&*value.to_lowercase());
    (option.starts_with("--format ") && is_foreign).then(|| {
        "dsconvert does not write this format; parquet is the format that most tools read".to_owned()
    })
}

/// Returns the tip for a value that is not a number.
fn number(option: &str, error: &clap::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?;
    if !(cause.is::<ParseIntError>() || cause.is::<ParseFloatError>()) {
        return None;
    }
    Some(match option.starts_with("--threads ") {
        true => "leave --threads out to use all cores".to_owned(),
        false if cause.is::<ParseFloatError>() => "write a number, such as 2.5".to_owned(),
        false => "write a whole number without a unit, such as 2048".to_owned(),
    })
}

/// Returns the tip for the unknown `option` in the command line `words`.
fn tip(words: &[&str], option: &str) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next()?.replace('_', "-").to_lowercase();
    let advice =
        tables(words).iter().flat_map(|table| table.iter()).find(|(names, _)| names.contains(&&*name))?.1;
    let given = value(words, option);
    let (with, note) = match advice {
        Say(text) => return Some(text.to_owned()),
        Use(template, default, note) => (template.replace("{}", given.unwrap_or(default)), note),
        UseSize(rule) => {
            let is_size = given.is_some_and(|text| text.contains('x'));
            let rule = if is_size { "exact:" } else { rule };
            (format!("--resize {rule}{}", given.unwrap_or("256")), "")
        }
    };
    let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
    Some(format!("use '{with}' instead of '{option}'{note}"))
}

/// Returns the tables that apply to this command line.
fn tables(words: &[&str]) -> &'static [SynonymTable] {
    match words.get(1..).unwrap_or_default() {
        ["images", ..] | ["plan", "images", ..] => &[IMAGES, CONVERSIONS],
        ["text", ..] | ["plan", "text", ..] => &[TEXT, CONVERSIONS],
        ["run" | "merge", ..] => &[CONVERSIONS],
        ["inspect", ..] => &[INSPECT],
        _ => &[],
    }
}

/// Returns the value of `option`, if it is a plain word.
fn value<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word.split('=').next() == Some(option))?;
    let value = match words[at].split_once('=') {
        Some((_, value)) => value,
        None => words.get(at + 1)?,
    };
    let is_plain = value.chars().all(|c| c.is_ascii_alphanumeric() || "._/%".contains(c));
    (is_plain && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the long options of a subcommand, without dashes.
    fn options(name: &str) -> Vec<String> {
        let cli = Cli::command();
        let subcommand = cli.find_subcommand(name).unwrap();
        subcommand.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect()
    }

    #[test]
    fn tips_replace_unknown_options_with_existing_ones() {
        let mut seen = 0;
        for (subcommands, tables) in [
            (vec!["images"], vec![IMAGES, CONVERSIONS]),
            (vec!["text"], vec![TEXT, CONVERSIONS]),
            (vec!["inspect"], vec![INSPECT]),
        ] {
            let options = options(subcommands[0]);
            for (names, _) in tables.into_iter().flatten() {
                for name in *names {
                    assert!(!options.iter().any(|option| option == name), "--{name} is an option");
                    let tip = tip(&["dsconvert", subcommands[0], &format!("--{name}")], &format!("--{name}"));
                    let tip = tip.unwrap();
                    // Only the advice: the option that was typed follows `instead of`.
                    let advised = tip.split(" instead of ").next().unwrap();
                    for option in advised.split("--").skip(1) {
                        let option = option.split([' ', '\'', '`']).next().unwrap();
                        assert!(options.iter().any(|known| known == option), "{tip}: no --{option}");
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn tips_keep_the_value_of_the_option() {
        for (words, expected) in [
            (&["--quality", "75"][..], "'--encode jpeg:75'"),
            (&["--quality=75"], "'--encode jpeg:75'"),
            (&["--quality"], "'--encode jpeg:90'"),
            (&["--quality", "\u{1b}[2J"], "'--encode jpeg:90'"),
            (&["--size", "224"], "'--resize shorter:224'"),
            (&["--size", "224x224"], "'--resize exact:224x224'"),
            (&["--max_resolution", "512"], "'--resize longer:512'"),
        ] {
            let line: Vec<&str> = ["dsconvert", "images"].iter().chain(words).copied().collect();
            let option = words[0].split('=').next().unwrap();
            let tip = tip(&line, option).unwrap();
            assert!(tip.contains(expected), "{tip}");
        }
    }
}
