//! Tips for options and commands of other tools: the error about an unknown one names what replaces it in dsconvert.

use std::ffi::OsString;
use std::num::{ParseFloatError, ParseIntError};
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use super::Cli;
use crate::manifest::MANIFEST_NAME;
use crate::printable::shell_word;
use crate::storage::stat;
use crate::suggest::nearest;

/// Options of other tools. A line has the subcommands, the options (with `-` for
/// `_`), and what replaces them, with the value in braces that is shown if none was given; or advice after an exclamation
/// mark.
const TIPS: &str = "\
images text run merge: workers num-workers num-proc nproc processes processes-count jobs cpus n-jobs = --threads {N}
images text: size-limit maxsize max-shard-size shard-size chunk-bytes target-size = --shard-bytes {256MiB}
images text: maxcount chunk-size samples-per-shard shard-max-count number-sample-per-shard = --shard-records {N}
images text: num-shards n-shards shards = !their number follows from the size: `--shard-bytes 256MiB` or `--shard-records N`
images text: output-format dataset-impl file-format = --format {parquet}
images text: compression = !choose it with the format: `--format parquet` compresses with zstd where that saves space
images text: force clobber replace = --overwrite
images text: continue continue-from restart = --resume
images text: output output-dir output-folder output-path output-prefix out-root out-dir write-path = --out {DIR}
images text: input input-dir input-folder in-root src data-dir data-files path = !name sources without an option, \
as in `dsconvert images photos --out photos-data`
images text: recursive = !folders are always read recursively
images text: ignore skip = !name what to convert with a pattern, as in 'photos/**/*.jpg', or in a list with \
`--files-from FILE`
images text: val-split validation-split test-split val-ratio val-size test-size train-split = --split train=0.9,validation=0.1
images text: limit max-samples max-records = --dry-run --sample {N}
images: quality jpeg-quality encode-quality jpg-quality = --encode jpeg:{90}
images: jpeg encode-format image-format = --encode jpeg:90
images: skip-reencode no-reencode disable-all-reencoding write-mode = --encode keep
images: size image-size img-size resize-to image-resize = --resize shorter:{256}
images: resize-mode resize-only-if-bigger = --resize shorter:256
images: max-resolution max-size max-dim max-side = --resize longer:{256}
images: enable-bucket bucket-reso-steps min-bucket-reso max-bucket-reso aspect-ratio-buckets = \
--buckets area:{1024x1024}
images: center-crop = --crop center:{224x224}
images: interpolation resample = --filter {bilinear}
images: min-image-size = --min-size {PIXELS}
images: max-aspect-ratio = --max-aspect {RATIO}
images: url-list file-list list = --files-from {FILE}
images: caption-col url-col save-additional-columns = --metadata FILE
images: labels class-list = --classes {FILE}
images: label-column class-column class-field label-name target-column = --label-field {NAME}
text: seq-len seq-length sequence-length block-size context-length concat-tokens ctx-len = --pack {2048}
text: field fields = --text-field {text}
images: field fields = --keep-fields {NAME}
export: field = --fields {NAME}
text: train-on-last-turn last-turn-only mask-history = --train-on last
text: train-on-input train-on-inputs train-on-prompt = --train-on all
text: roles-to-train = --train-on {assistant}
text: max-seq-len max-seq-length model-max-length truncation = --max-length {N}
text: append-eod append-eos = --add-eos
text: prepend-bos append-bos = --add-bos
text: eos-text eod-token = --add-eos --eos-token {TOKEN}
text: bos-text = --add-bos --bos-token {TOKEN}
text: tokenizer-model tokenizer-name tokenizer-path tokenizer-name-or-path tokenizer-file vocab-file vocab = \
--tokenizer {tokenizer.json}
text: tokenizer-type merge-file = --tokenizer FILE
text: json-keys json-key text-column text-key column columns key = --text-field {text}
text: id-column id-field = --key-field {NAME}
text: sep separator delimiter = !columns are separated by commas in .csv and by tabs in .tsv files; documents in .txt \
files are divided by `--documents`
text: batch-size = !batches are made when the dataset is read; `--report-batch N` is for the padding statistics
text: apply-chat-template chat-template-path = --messages-field messages --chat-template FILE
text: messages-key conversation-column conversations = --messages-field {messages}
text: assistant-only-loss train-on-responses-only completion-only-loss = --train-on assistant
text: split-sentences keep-newlines = --documents line
text: no-wrap = --packing best-fit
inspect: validate check checksum = --verify
inspect: limit n rows first = --head {N}
inspect: random shuffle = --sample {N}
inspect: decode show-text = --text
inspect: index row = --record {I}";

/// Commands of other tools, and other names of commands: the words, and what replaces them.
const COMMANDS: &str = "\
image imgs img pictures picture photos photo = dsconvert images SRC --out DIR
texts txt tokenize tokens corpus chats chat = dsconvert text SRC --out DIR --tokenizer FILE
verify check validate fsck = dsconvert inspect DATASET --verify
info show describe stats stat view head cat ls list = dsconvert inspect DATASET
repair fix = dsconvert inspect DATASET --verify --repair
benchmark profile = dsconvert bench PATH
convert-to dump = dsconvert export DATASET --to FORMAT --out DIR";

/// Adds a tip to an error about an option or value of another tool, or about an invalid number.
pub(super) fn with_tip(mut error: clap::Error, argv: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (option, subcommand) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidSubcommand));
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).collect();
            tip(&words, &option)
        }
        // Not the subcommand of `plan`.
        ErrorKind::InvalidSubcommand
            if argv.get(1).is_some_and(|first| first.to_str() == Some(&*subcommand)) =>
        {
            error.remove(ContextKind::SuggestedSubcommand);
            Some(command_tip(&subcommand))
        }
        ErrorKind::InvalidValue if option.starts_with("--format ") => {
            foreign_format(&text(ContextKind::InvalidValue))
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

/// Returns the tip for a word that is not a command: the command that was meant, or those for the path that it names.
fn command_tip(word: &str) -> String {
    let lower = word.to_lowercase();
    let known = COMMANDS.lines().find_map(|line| {
        let (words, with) = line.split_once(" = ")?;
        words.split(' ').any(|known| known == lower).then_some(with)
    });
    let commands: Vec<String> =
        Cli::command().get_subcommands().map(|found| found.get_name().to_owned()).collect();
    let names: Vec<&str> = commands.iter().map(String::as_str).collect();
    let path = Path::new(word);
    let is_there = stat(path).ok().flatten().is_some();
    if let Some(with) = known.filter(|_| !is_there) {
        return format!("use '{with}'");
    }
    if let Some(near) = nearest(&lower, &names).filter(|_| !is_there) {
        return format!("use 'dsconvert {near}'");
    }
    let shown = shell_word(path);
    if stat(&path.join(MANIFEST_NAME)).ok().flatten().is_some() {
        return format!("the command comes first: 'dsconvert inspect {shown}' describes this dataset");
    }
    format!(
        "the command comes first: 'dsconvert images {shown} --out DIR' converts images, 'dsconvert text {shown} --out DIR \
         --tokenizer FILE' text"
    )
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

/// Returns the tip for a format of another tool, which dsconvert does not write.
fn foreign_format(value: &str) -> Option<String> {
    const FORMATS: &str =
        "mds litdata webdataset wds tar tfrecord beton ffcv hdf5 lmdb bin npy jsonl csv zarr lance";
    FORMATS.split(' ').any(|format| value.eq_ignore_ascii_case(format)).then(|| {
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
    fn words_that_are_no_commands_get_the_command_that_was_meant() {
        let cli = Cli::command();
        for word in COMMANDS.lines().flat_map(|line| line.split_once(" = ").unwrap().0.split(' ')) {
            assert!(cli.find_subcommand(word).is_none(), "{word} is a command");
            let tip = command_tip(word);
            let parts: Vec<&str> = tip.split(['\'', ' ']).filter(|part| !part.is_empty()).collect();
            let found = cli.find_subcommand(parts[2]).unwrap_or_else(|| panic!("{tip}"));
            for option in parts.iter().filter_map(|part| part.strip_prefix("--")) {
                assert!(found.get_arguments().any(|arg| arg.get_long() == Some(option)), "{tip}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        assert!(command_tip(path).contains(&format!("'dsconvert images {path} --out DIR'")));
        std::fs::write(dir.path().join("manifest.json"), "{}").unwrap();
        assert!(command_tip(path).contains(&format!("'dsconvert inspect {path}'")));
        assert!(command_tip("insepct").contains("'dsconvert inspect'"));
        assert!(command_tip("a b").contains("images 'a b' --out"));
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
