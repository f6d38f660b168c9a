//! The local Hugging Face Hub cache, in the layout of its client: `models--ORG--NAME/refs/main` contains the name of a
//! revision, and `models--ORG--NAME/snapshots/REVISION` its files.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::io::planned::read_file;
use crate::storage::stat;

/// Maximum length of a model name, in bytes.
const MAX_NAME: usize = 96;

/// Folder of the cache.
pub(super) struct HubCache(PathBuf);

impl HubCache {
    /// Returns the cache for the environment variables of this process.
    pub(super) fn of_process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Returns the cache that the Hub client uses with these environment variables.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let home = variable("HOME").unwrap_or_else(|| ".".to_owned());
        let path = |value: String| match value
            .strip_prefix('~')
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            Some(rest) => PathBuf::from(format!("{home}{rest}")),
            None => PathBuf::from(value),
        };
        let given = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        Self(given.map(path).unwrap_or_else(|| {
            let hugging_face = variable("HF_HOME").map(path).unwrap_or_else(|| {
                let caches = variable("XDG_CACHE_HOME").map(path);
                caches.unwrap_or_else(|| Path::new(&home).join(".cache")).join("huggingface")
            });
            hugging_face.join("hub")
        }))
    }

    /// Returns whether `name` is a valid model name: `name` or `org/name`.
    pub(super) fn is_model(name: &str) -> bool {
        let is_part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
                && !part.starts_with(['-', '.'])
                && !part.contains("--")
                && !part.contains("..")
        };
        name.len() <= MAX_NAME && name.split('/').count() <= 2 && name.split('/').all(is_part)
    }

    /// Returns the path of the folder of a model, which may not exist.
    pub(super) fn folder(&self, model: &str) -> PathBuf {
        self.0.join(format!("models--{}", model.replace('/', "--")))
    }
}

/// Returns the folder of the revision `main`, or of the only revision, in the folder of a model. `None` if `folder` is
/// not the folder of a model.
pub(super) fn snapshot(folder: &Path) -> Result<Option<PathBuf>> {
    let snapshots = folder.join("snapshots");
    if !stat(&snapshots)?.is_some_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    let main = folder.join("refs").join("main");
    if stat(&main)?.is_some() {
        let revision = read_file(&main)?;
        let revision = String::from_utf8_lossy(&revision).trim().to_owned();
        let is_name = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let path = snapshots.join(&revision);
        return match is_name && stat(&path)?.is_some() {
            true => Ok(Some(path)),
            false => Err(Error::usage(format!("the cache has no files of the revision {revision:?}"))
                .at_path(main)
                .help("download the model again, or name the folder of another revision")),
        };
    }
    let mut names = names_in(&snapshots)?;
    names.sort_unstable();
    match &names[..] {
        [one] => Ok(Some(snapshots.join(one))),
        _ => Err(Error::usage(format!(
            "the cache has {} revisions, and none of them is marked as main",
            names.len()
        ))
        .at_path(snapshots)
        .help("name the folder of a revision")),
    }
}

/// Returns the names of the files in `folder`, except names that are not UTF-8.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let list = || -> std::io::Result<Vec<String>> {
        let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    };
    list().map_err(|e| Error::io("list the folder", folder, e))
}
