//! `dsconvert inspect --verify --repair`: reconstructs the command that made a dataset from its manifest, and runs it
//! with `--resume=repair`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory};
use serde_json::{Map, Value};

use crate::cli::flags::with_flags;
use crate::cli::{Cli, Ending, convert};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::printable::shell_word;
use crate::schema::Kind;
use crate::storage::{hash_file, stat};

/// Objects among a manifest's options whose members are options themselves.
const GROUPS: [&str; 3] = ["image", "output", "tokenization"];
/// Manifest entries that are no command-line options, or are recorded in another form. The repair compares each with
/// what it finds.
const NOT_OPTIONS: [&str; 3] = ["tokenizer", "reference", CLASSES];
/// The class names, which the command reads from a file. The manifest contains the names themselves.
const CLASSES: &str = "classes";
/// Option whose name in the manifest differs from that on the command line.
const VERIFY_IDS: (&str, &str) = ("verify", "verify_ids");
/// Options whose input files are not in the manifest, with the words for the error message.
const EXTERNAL_INPUTS: [(&str, &str); 2] =
    [("files_from", "from a list of files"), ("metadata", "from a table")];
/// Entry of datasets that were made from standard input.
const STDIN: &str = "stdin";

/// Repairs the dataset in `dir` from `sources`, which must be unchanged.
///
/// # Errors
///
/// Those of the command that made the dataset; [`ErrorKind::Unsupported`] if the manifest does not record that command
/// completely.
pub(super) fn exec(dir: &Path, sources: &[PathBuf], threads: Option<usize>) -> Result<Ending> {
    let manifest = Manifest::read(dir)?;
    convert(command_of(dir, &manifest, sources, threads)?, classes_of(&manifest)?)
}

/// Says how to repair the dataset in `dir`, which was named as `path`.
pub(super) fn advice(path: &Path, dir: &Path, manifest: &Manifest) -> String {
    match command_of(dir, manifest, &[], None) {
        Ok(_) => {
            let path = shell_word(path);
            format!("to repair it from its sources: dsconvert inspect {path} --verify --repair SRC…")
        }
        Err(error) => match error.remedy() {
            Some(help) => format!("{error}; {}", with_flags(help)),
            None => error.to_string(),
        },
    }
}

/// Returns the class names that the dataset was made with; `None` if they come from the folders.
fn classes_of(manifest: &Manifest) -> Result<Option<Vec<String>>> {
    match manifest.options.get(CLASSES) {
        None | Some(Value::Null) => Ok(None),
        Some(names) => serde_json::from_value(names.clone())
            .map(Some)
            .map_err(|e| unexpected_value(CLASSES).caused_by(e)),
    }
}

/// Returns the command that repairs the dataset in `dir` with the given `manifest`.
fn command_of(
    dir: &Path,
    manifest: &Manifest,
    sources: &[PathBuf],
    threads: Option<usize>,
) -> Result<Vec<OsString>> {
    let kind = manifest.kind().name();
    let mut command: Vec<OsString> = vec!["dsconvert".into(), kind.into()];
    command.push([OsString::from("--out="), dir.into()].into_iter().collect());
    command.push("--resume=repair".into());
    command.extend(threads.map(|threads| format!("--threads={threads}").into()));
    if let Some(info) = &manifest.tokenizer {
        let name = match info["sha256"].as_str() {
            Some(sha256) => tokenizer_of(dir, sha256)?.into_os_string(),
            None => "bytes".into(),
        };
        command.push([OsString::from("--tokenizer="), name].into_iter().collect());
    }
    if let Some(options) = manifest.options.as_object() {
        let known = Cli::command();
        let known =
            known.find_subcommand(kind).ok_or_else(|| Error::internal("the subcommand does not exist"))?;
        add_options(options, known, &mut command)?;
        // Without it, metadata files beside the images would be used, although the dataset was made without them.
        let has_naming = ["metadata", "files_from"].iter().any(|&name| options.contains_key(name));
        if manifest.kind() == Kind::Images && !has_naming {
            command.push("--metadata=none".into());
        }
        if manifest.kind() == Kind::Images && !options.contains_key("sidecar") {
            command.push("--sidecar=none".into());
        }
    }
    // Sources follow `--`, so that a name that starts with a dash is not an option.
    command.push("--".into());
    command.extend(sources.iter().map(|source| source.clone().into_os_string()));
    Ok(command)
}

/// Returns the path of the `tokenizer.json` of the dataset in `dir`, which must have the given hash.
fn tokenizer_of(dir: &Path, sha256: &str) -> Result<PathBuf> {
    let path = dir.join(TOKENIZER_NAME);
    match stat(&path)? {
        Some(_) if hash_file(&path)?.sha256 == sha256 => Ok(path),
        Some(_) => Err(cannot_reconstruct(format!("its {TOKENIZER_NAME} is damaged"))),
        None => Err(cannot_reconstruct(format!("its {TOKENIZER_NAME} is missing"))),
    }
}

fn add_options(
    options: &Map<String, Value>,
    known: &clap::Command,
    command: &mut Vec<OsString>,
) -> Result<()> {
    for (name, value) in options {
        let is_beside_images = value.get("beside_images").is_some();
        match (name.as_str(), value) {
            (_, Value::Null | Value::Bool(false)) => continue,
            (group, Value::Object(members)) if GROUPS.contains(&group) => {
                add_options(members, known, command)?;
                continue;
            }
            // Metadata files beside the images are found again the same way.
            ("metadata", _) if is_beside_images => continue,
            (name, _) if NOT_OPTIONS.contains(&name) => continue,
            _ => {}
        }
        if let Some((_, how)) = EXTERNAL_INPUTS.iter().find(|(option, _)| option == name) {
            return Err(cannot_reconstruct(format!("it was made {how}, which it does not contain")));
        }
        if name == STDIN {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the dataset cannot be repaired, because it was made from standard input",
            )
            .help("standard input cannot be read again: convert again with --overwrite"));
        }
        let id = if name == VERIFY_IDS.0 { VERIFY_IDS.1 } else { name };
        let option = known.get_arguments().find(|option| option.get_id() == id);
        let flag = option.and_then(|option| option.get_long());
        let (Some(option), Some(flag)) = (option, flag) else {
            return Err(cannot_reconstruct(format!(
                "it was made with the option {name:?}, which this build does not have"
            )));
        };
        command.push(match option.get_action() {
            ArgAction::SetTrue => format!("--{flag}").into(),
            _ => format!("--{flag}={}", text_of(name, value)?).into(),
        });
    }
    Ok(())
}

/// Formats an option's value for the command line.
fn text_of(option: &str, value: &Value) -> Result<String> {
    let item = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        // A field to keep, with its type, or an additional image of a sample, with its member.
        Value::Object(field) => {
            let text = |name: &str| field.get(name).and_then(Value::as_str);
            let member = text("member").map_or(String::new(), |member| format!("={member}"));
            let ty = text("type").map_or(String::new(), |ty| format!(":{ty}"));
            Some(format!("{}{member}{ty}", text("name")?))
        }
        _ => None,
    };
    let text = match value {
        Value::Array(items) => {
            items.iter().map(item).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => item(value),
    };
    text.ok_or_else(|| unexpected_value(option))
}

fn unexpected_value(option: &str) -> Error {
    cannot_reconstruct(format!("the manifest has an unexpected value of the option {option:?}"))
}

fn cannot_reconstruct(why: String) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the dataset cannot be repaired from its manifest alone: {why}"),
    )
    .help("run the command that made the dataset again, with --resume=repair")
}
