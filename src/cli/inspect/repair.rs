//! `dsconvert inspect --verify --repair`: reconstructs the command that made a dataset from its manifest, and runs it
//! with `--resume=repair`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory};
use serde_json::{Map, Value};

use crate::cli::{Cli, Ending, convert};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::schema::Kind;
use crate::storage::stat;

/// Objects among a manifest's options whose members are options themselves.
const GROUPS: [&str; 3] = ["image", "output", "tokenization"];
/// Manifest entries that are no command-line options, or are recorded in another form. The repair compares each with
/// what it finds.
const NOT_OPTIONS: [&str; 4] = ["tokenizer", "reference", "image_fields", CLASSES];
/// The class names, which the command reads from a file. The manifest contains the names themselves.
const CLASSES: &str = "classes";
/// Option whose name in the manifest differs from that on the command line.
const VERIFY_IDS: (&str, &str) = ("verify", "verify_ids");
/// Options whose input files are not in the manifest, with the words for the error message.
const EXTERNAL_INPUTS: [(&str, &str); 3] =
    [("files_from", "from a list of files"), ("stdin", "from standard input"), ("metadata", "from a table")];

/// Repairs the dataset in `dir` from `sources`, which must be unchanged.
///
/// # Errors
///
/// Those of the command that made the dataset; [`ErrorKind::Unsupported`] if the manifest does not record that command
/// completely.
pub(super) fn exec(dir: &Path, sources: &[PathBuf], threads: Option<usize>) -> Result<Ending> {
    let manifest = Manifest::read(dir)?;
    let mut command = command_of(dir, &manifest, sources)?;
    command.extend(threads.map(|threads| format!("--threads={threads}").into()));
    convert(command, classes_of(&manifest)?)
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
fn command_of(dir: &Path, manifest: &Manifest, sources: &[PathBuf]) -> Result<Vec<OsString>> {
    let kind = manifest.kind().name();
    let mut command: Vec<OsString> = vec!["dsconvert".into(), kind.into()];
    command.push([OsString::from("--out="), dir.into()].into_iter().collect());
    command.push("--resume=repair".into());
    let tokenizer = dir.join(TOKENIZER_NAME);
    if manifest.tokenizer.is_some() {
        let name = match stat(&tokenizer)? {
            Some(_) => tokenizer.into_os_string(),
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
    }
    // Sources follow `--`, so that a name that starts with a dash is not an option.
    command.push("--".into());
    command.extend(sources.iter().map(|source| source.clone().into_os_string()));
    Ok(command)
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
        // A field to keep, with its type.
        Value::Object(field) => {
            let name = field.get("name")?.as_str()?;
            let ty = field.get("type").and_then(Value::as_str);
            Some(ty.map_or_else(|| name.to_owned(), |ty| format!("{name}:{ty}")))
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
