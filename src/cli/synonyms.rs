//! Tips for options of other tools: the error about an unknown option names the dsconvert option that replaces it.

use std::ffi::OsString;
use std::num::{ParseFloatError, ParseIntError};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use super::Cli;
use crate::suggest::nearest;

/// Options of other tools that the guides mention, and similar ones. A line has the subcommands, the options (with `-` for
/// `_`), and what replaces them, with the value in braces that is shown if none was given; or advice after an exclamation
/// mark.
const TIPS: &str = "\
images text: workers num-workers num-proc processes n-jobs = --threads {N}
images text: size-limit chunk-bytes max-shard-size shard-size = --shard-bytes {256MiB}
images text: maxcount samples-per-shard = --shard-records {N}
images text: force = --overwrite
images text: continue restart = --resume
images text: output output-dir output-prefix write-path = --out {DIR}
images text: input input-dir data-dir data-files = !name sources without an option, as in `dsconvert images photos --out photos-data`
images text: val-split validation-split test-size val-size = --split train=0.9,validation=0.1
images text: limit max-samples = --dry-run --sample {N}
images: quality jpeg-quality = --encode jpeg:{90}
images: size image-size resize-to = --resize shorter:{256}
images: max-resolution max-size = --resize longer:{256}
images: center-crop = --crop center:{224x224}
images: interpolation resample = --filter {bilinear}
images: url-list file-list = --files-from {FILE}
images: labels class-list = --classes {FILE}
text: seq-len seq-length sequence-length block-size context-length = --pack {2048}
text: max-seq-len max-seq-length model-max-length = --max-length {N}
text: append-eod append-eos = --add-eos
text: tokenizer-model tokenizer-name tokenizer-path vocab-file = --tokenizer {tokenizer.json}
text: json-keys text-column text-key = --text-field {text}
text: chat-template = !render conversations to one text field first (`tokenizer.apply_chat_template(messages, \
tokenize=False)`), then convert it with `--special-in-text parse`";

/// Adds a tip to an error about an option or value of another tool, or about an invalid number.
pub(super) fn with_tip(mut error: clap::Error, argv: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let option = text(ContextKind::InvalidArg);
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).collect();
            tip(&words, &option)
        }
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
    let command = words.iter().skip(1).find(|word| **word != "plan")?;
    let advice = TIPS.lines().find_map(|line| {
        let (commands, rest) = line.split_once(": ")?;
        let (names, advice) = rest.split_once(" = ")?;
        let is_meant =
            commands.split(' ').any(|known| known == *command) && names.split(' ').any(|known| known == name);
        is_meant.then_some(advice)
    })?;
    if let Some(advice) = advice.strip_prefix('!') {
        return Some(advice.to_owned());
    }
    let with = match advice.split_once('{') {
        Some((with, default)) => {
            let value = value(words, option).unwrap_or(default.trim_end_matches('}'));
            // A size such as 256x256 is exact, whatever the option.
            match with.strip_suffix("shorter:").or(with.strip_suffix("longer:")) {
                Some(with) if value.contains('x') => format!("{with}exact:{value}"),
                _ => format!("{with}{value}"),
            }
        }
        None => advice.to_owned(),
    };
    Some(format!("use '{with}' instead of '{option}'"))
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
        for line in TIPS.lines() {
            let (commands, rest) = line.split_once(": ").unwrap();
            let (names, _) = rest.split_once(" = ").unwrap();
            for (command, name) in commands.split(' ').flat_map(|c| names.split(' ').map(move |n| (c, n))) {
                let options = options(command);
                assert!(!options.iter().any(|option| option == name), "--{name} is an option");
                let tip = tip(&["dsconvert", command, &format!("--{name}")], &format!("--{name}")).unwrap();
                // Only the advice: the option that was typed follows `instead of`.
                for option in tip.split(" instead of ").next().unwrap().split("--").skip(1) {
                    let option = option.split([' ', '\'', '`']).next().unwrap();
                    assert!(options.iter().any(|known| known == option), "{tip}: no --{option}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 70, "{seen}");
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
