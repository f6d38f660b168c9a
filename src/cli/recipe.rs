//! Recipes on the command line: options from their definitions, `--like`, and the command that makes a dataset.

use std::path::Path;

use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches, value_parser};

use super::flags::with_flags;
use super::print;
use super::values::possible_values;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::options::{Defined, Definition, Input};
use crate::printable::{printable_path, shell_word};
use crate::reader::{Dataset, OpenOptions};
use crate::recipe::{ImagesRecipe, Recipe, Recorded, RecordedInput, TextRecipe};
use crate::schema::Kind;
use crate::source::items::metadata::columns::Keep;
use crate::storage::ObjectUrl;

/// Name of the option that names a dataset whose options are used.
pub(super) const LIKE: &str = "like";

/// The options of a recipe that the command line gives.
pub(super) struct Given<R>(Vec<(Definition<R>, String)>);

impl<R> std::fmt::Debug for Given<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(option, text)| (option.name, text))).finish()
    }
}

impl<R: Defined + Default + 'static> Given<R> {
    /// Returns whether the command line gives the option `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(option, _)| option.name == name)
    }

    /// Returns the first option that the command line gives.
    pub(super) fn first(&self) -> Option<&'static str> {
        self.0.first().map(|(option, _)| option.name)
    }

    /// Returns the defaults with the options of the command line.
    pub(super) fn options(&self) -> Result<R> {
        let mut options = R::default();
        self.0.iter().try_for_each(|(option, text)| option.set(&mut options, text))?;
        Ok(options)
    }
}

impl<R: Recipe> Given<R> {
    /// Returns the recipe: the one of `like`, or the defaults, with the options of the command line. Says which options of
    /// `like` are replaced, unless `is_quiet`.
    pub(super) fn recipe(&self, like: Option<&Like<'_, R>>, is_quiet: bool) -> Result<R> {
        let mut recipe = like.map_or_else(R::default, |like| like.recorded.recipe.clone());
        for (option, text) in &self.0 {
            let old = option.get(&recipe);
            option.set(&mut recipe, text)?;
            let new = option.get(&recipe);
            if let Some(like) = like.filter(|_| old != new && !is_quiet) {
                let shown = |value: Option<String>| match (value, option.input) {
                    (None, Input::Flag) => "off".to_owned(),
                    (Some(_), Input::Flag) => "on".to_owned(),
                    (None, _) => "not given".to_owned(),
                    (Some(text), _) => text,
                };
                let (old, new, dataset) = (shown(old), shown(new), printable_path(like.path));
                print::note(with_flags(&format!(
                    "`{}` was {old} in {dataset} and is {new} here",
                    option.name
                )));
            }
        }
        Ok(recipe)
    }
}

impl<R: Defined + Default + 'static> clap::Args for Given<R> {
    fn augment_args(command: Command) -> Command {
        let defaults = R::default();
        // Of a command that converts nothing, other options may be given in place of a required one.
        let is_conversion = command.get_arguments().any(|arg| *arg.get_id() == LIKE);
        R::definitions().into_iter().fold(command, |command, mut option| {
            option.extra.requires = option.extra.requires.filter(|_| is_conversion);
            let command = match option.extra.requires {
                // Several options may require the same one.
                Some(other) if command.get_groups().all(|group| *group.get_id() != either(other)) => {
                    // The dataset of --like may have the other option.
                    let group = ArgGroup::new(either(other)).args([other, LIKE]).multiple(true);
                    command.group(group)
                }
                _ => command,
            };
            command.arg(arg(&option, option.get(&defaults)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<R: Defined + Default + 'static> FromArgMatches for Given<R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |option: &Definition<R>| {
            matches.value_source(option.name) == Some(clap::parser::ValueSource::CommandLine)
        };
        let text = |option: &Definition<R>| match option.input {
            Input::Flag => "true".to_owned(),
            _ => {
                let values = matches.get_raw(option.name).into_iter().flatten();
                values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
            }
        };
        let given = R::definitions().into_iter().filter(is_given);
        Ok(Self(given.map(|option| (text(&option), option)).map(|(text, option)| (option, text)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The group of an option that another one requires, or of a dataset that may have it.
fn either(option: &'static str) -> &'static str {
    leaked(format!("{option}-or-{LIKE}"))
}

/// clap takes names as `&'static str`. The command is built once or twice per process.
fn leaked(text: String) -> &'static str {
    text.leak()
}

/// Returns the argument of `option`, with the text of its default.
fn arg<R: 'static>(option: &Definition<R>, default: Option<String>) -> Arg {
    let (help, long_help) = paragraphs(option.help);
    let mut arg = Arg::new(option.name).long(leaked(option.flag())).help(help);
    if let Some(text) = long_help {
        arg = arg.long_help(text);
    }
    arg = match option.heading {
        "" => arg.help_heading(Resettable::Reset),
        heading => arg.help_heading(heading),
    };
    arg = match option.input {
        Input::Flag => return with_extra(arg.action(ArgAction::SetTrue), option),
        Input::Text => arg.value_parser(value_parser!(String)),
        Input::List => arg.value_parser(value_parser!(String)).action(ArgAction::Append),
        Input::Positive16 => arg.value_parser(value_parser!(std::num::NonZeroU16)),
        Input::Int32 => arg.value_parser(value_parser!(u32)),
        Input::Int64 => arg.value_parser(value_parser!(u64)),
        Input::Float => arg.value_parser(value_parser!(f64)),
        Input::Words(_) | Input::DescribedWords(_) => {
            arg.value_parser(PossibleValuesParser::new(possible_values(option.input)))
        }
    };
    if let Some(default) = default {
        arg = arg.default_value(leaked(default));
    }
    with_extra(arg.value_name(option.value), option)
}

fn with_extra<R>(mut arg: Arg, option: &Definition<R>) -> Arg {
    let extra = option.extra;
    if let Some(short) = extra.short {
        arg = arg.short(short);
    }
    if let Some(alias) = extra.alias {
        arg = arg.visible_alias(alias);
    }
    if let Some(other) = extra.requires {
        arg = arg.requires(either(other));
    }
    arg.conflicts_with_all(extra.conflicts)
}

/// Returns the summary and, if there are further paragraphs, the whole help, from the lines of a doc comment.
fn paragraphs(lines: &[&str]) -> (String, Option<String>) {
    let paragraphs = lines.split(|line| line.trim().is_empty());
    let joined = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let all: Vec<String> = paragraphs.map(joined).filter(|text| !text.is_empty()).collect();
    let summary = all.first().cloned().unwrap_or_default();
    (summary, (all.len() > 1).then(|| all.join("\n\n")))
}

/// The dataset of `--like`.
pub(super) struct Like<'a, R> {
    pub(super) path: &'a Path,
    pub(super) dataset: Dataset,
    /// Its recipe.
    pub(super) recorded: Recorded<R>,
}

impl<'a, R: Recipe> Like<'a, R> {
    /// Opens the dataset, and reads its recipe.
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        let open = || {
            let dataset = OpenOptions::new().open(path)?;
            let recorded = Recorded::of(dataset.manifest())?;
            Ok(Self { path, dataset, recorded })
        };
        open().map_err(|e: Error| e.of_option(LIKE))
    }
}

/// Returns the command that makes a dataset with this manifest, with placeholders for what the manifest does not
/// contain. `dir` is the dataset.
pub(super) fn command_line(dir: &Path, manifest: &Manifest) -> Result<String> {
    let kind = manifest.kind();
    if kind == Kind::Records {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "no command makes this dataset: a program wrote its records",
        )
        .help("run that program again"));
    }
    let (mut before, mut words) = (Vec::new(), vec!["dsconvert".to_owned(), kind.name().to_owned()]);
    words.extend(["--out".to_owned(), "OUT".to_owned()]);
    let labels: Vec<_> = manifest.sources.labels.iter().map(|label| word(label)).collect();
    let labels = labels.join(" ");
    before.push(format!(
        "# OUT: the new dataset; SRC…: the sources with the labels {labels} (LABEL=PATH sets a label)"
    ));
    let (input, exclude) = match kind {
        Kind::Images => {
            let Recorded { recipe, input, exclude } = Recorded::<ImagesRecipe>::of(manifest)?;
            if input == RecordedInput::WalkOnly {
                words.extend(["--metadata".to_owned(), "none".to_owned()]);
            }
            if let Some(names) = &recipe.classes {
                let names: Vec<_> = names.iter().map(|name| word(name)).collect();
                before.push(format!("printf '%s\\n' {} > classes.txt", names.join(" ")));
                words.extend(["--classes".to_owned(), "classes.txt".to_owned()]);
            }
            add_options(&recipe, &mut words);
            (input, exclude)
        }
        Kind::Text | Kind::Records => {
            let Recorded { recipe, input, exclude } = Recorded::<TextRecipe>::of(manifest)?;
            let (flag, value) = match manifest.tokenizer_sha256() {
                None => ("--tokenizer", "bytes".into()),
                // A tokenizer is a local file, but the dataset of --like may be in object storage.
                Some(_) if ObjectUrl::is_url(dir) => ("--like", shell_word(dir)),
                Some(_) => ("--tokenizer", shell_word(&dir.join(TOKENIZER_NAME))),
            };
            if recipe.chat.chat_template.is_some() && flag == "--tokenizer" {
                // The dataset itself has the template.
                words.extend(["--chat-template".to_owned(), shell_word(dir)]);
            }
            if !recipe.ids.without_tokenizer {
                words.extend([flag.to_owned(), value]);
            }
            add_options(&recipe, &mut words);
            (input, exclude)
        }
    };
    for (number, fingerprint) in (1..).zip(&exclude) {
        before.push(format!("# OLD{number}: the dataset with the fingerprint {fingerprint}"));
        words.extend(["--exclude".to_owned(), format!("OLD{number}")]);
    }
    match input {
        RecordedInput::Walk | RecordedInput::WalkOnly => words.push("SRC…".to_owned()),
        RecordedInput::FilesFrom => {
            before.push("# LIST: the list of files, which the dataset does not contain".to_owned());
            words.extend(["--files-from", "LIST", "SRC…"].map(str::to_owned));
        }
        RecordedInput::Table { path_field, keep_fields } => {
            before.push("# TABLE: the table, which the dataset does not contain".to_owned());
            words.extend(["--metadata", "TABLE", "--path-field"].map(str::to_owned));
            words.push(word(&path_field));
            if let Some(keep) = keep_fields {
                let keep = keep.iter().map(Keep::to_string).collect::<Vec<_>>().join(",");
                words.extend(["--keep-fields".to_owned(), word(&keep)]);
            }
            words.push("SRC…".to_owned());
        }
        RecordedInput::Annotations => {
            before.push("# ANNOTATIONS: the annotations, which the dataset does not contain".to_owned());
            words.extend(["--annotations", "ANNOTATIONS", "SRC…"].map(str::to_owned));
        }
        RecordedInput::Stdin => {
            let label = manifest.sources.labels.first().map_or("stdin", String::as_str);
            words.push(if label == "stdin" { "-".to_owned() } else { format!("{}=-", word(label)) });
        }
    }
    before.push(words.join(" "));
    Ok(before.join("\n") + "\n")
}

/// Quotes a value for a shell.
fn word(text: &str) -> String {
    match text.strip_prefix('-') {
        // Not the name of a file.
        Some(rest) => format!("-{}", word(rest)),
        None => shell_word(Path::new(text)),
    }
}

/// Adds the options that differ from their defaults.
fn add_options<R: Recipe>(recipe: &R, words: &mut Vec<String>) {
    let defaults = R::default();
    for option in R::definitions() {
        let (value, flag) = (option.get(recipe), option.flag());
        match value.clone().filter(|_| value != option.get(&defaults)) {
            None => {}
            Some(_) if option.input == Input::Flag => words.push(format!("--{flag}")),
            Some(text) if text.starts_with('-') || text.is_empty() => {
                words.push(format!("--{flag}={}", word(&text)));
            }
            Some(text) => words.extend([format!("--{flag}"), word(&text)]),
        }
    }
}
