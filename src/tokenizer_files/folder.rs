//! Finds the tokenizer file in a folder.

use std::path::{Path, PathBuf};

use super::{PARTS, has_extension, hub, save_command};
use crate::error::{Error, Result};
use crate::storage::stat;

/// File names in order of preference. A `tokenizer.json` next to one of the others was made from it.
pub(super) const NAMES: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"];

/// Returns the tokenizer file in `folder`, which may also be the folder of a model in the Hugging Face Hub cache.
pub(super) fn find(folder: &Path) -> Result<PathBuf> {
    for name in NAMES {
        let path = folder.join(name);
        if stat(&path)?.is_some() {
            return Ok(path);
        }
    }
    // After the files: a training run may keep its checkpoints in a folder `snapshots`.
    if let Some(snapshot) = hub::snapshot(folder)? {
        return find(&snapshot);
    }
    let mut files = hub::names_in(folder)?;
    files.sort_unstable();
    for extension in ["model", "tiktoken"] {
        let mut candidates = files.iter().filter(|name| has_extension(Path::new(name), extension));
        match (candidates.next(), candidates.next()) {
            (Some(one), None) => return Ok(folder.join(one)),
            (Some(one), Some(other)) => {
                return Err(Error::usage(format!("the folder has several tokenizers: {one}, {other}"))
                    .at_path(folder)
                    .help("name the file"));
            }
            _ => {}
        }
    }
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| files.iter().any(|name| name == part)).collect();
    let tried = format!("{}, *.model, *.tiktoken", NAMES.join(", "));
    let (message, help) = match parts.is_empty() {
        true => ("the folder has no tokenizer".to_owned(), format!("looked for {tried}")),
        false => (
            format!("the folder has no complete tokenizer, only {}", parts.join(", ")),
            format!("looked for {tried}; to make one: {}", save_command(&folder.display().to_string())),
        ),
    };
    Err(Error::usage(message).at_path(folder).help(help))
}
