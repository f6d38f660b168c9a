//! The cache of tiktoken: files called by the SHA-1 of the address that they are from.

use std::path::PathBuf;

use dsconvert_tokens::TiktokenEncoding;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::source::read_file;
use crate::storage::{hex, stat};

/// Variables that name the cache, in order of precedence.
const VARIABLES: [&str; 2] = ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"];

/// The cache.
pub(super) struct RankCache(PathBuf);

impl RankCache {
    /// The cache that the environment of this process names.
    pub(super) fn of_process() -> Self {
        Self::in_folder(VARIABLES.iter().find_map(std::env::var_os).map(PathBuf::from))
    }

    /// The cache in `folder`; without one, or with an empty path, the default one.
    pub(super) fn in_folder(folder: Option<PathBuf>) -> Self {
        let given = folder.filter(|folder| !folder.as_os_str().is_empty());
        Self(given.unwrap_or_else(|| std::env::temp_dir().join("data-gym-cache")))
    }

    /// Where the file of an encoding would be.
    pub(super) fn file(&self, encoding: &TiktokenEncoding) -> PathBuf {
        self.0.join(encoding.cache_name)
    }

    /// The file of an encoding; `None` when the cache does not have it. Its bytes must be those that were published.
    pub(super) fn find(&self, encoding: &TiktokenEncoding) -> Result<Option<PathBuf>> {
        let path = self.file(encoding);
        if stat(&path)?.is_none() {
            return Ok(None);
        }
        if hex(&Sha256::digest(read_file(&path)?)) != encoding.sha256 {
            return Err(Error::usage(format!("this is not the published file of {}", encoding.name))
                .at_path(path)
                .help(format!(
                    "remove it and fill the cache again: python -c \"import tiktoken; tiktoken.get_encoding('{}')\"; a file of your own \
                     is named as {}:FILE",
                    encoding.name, encoding.name
                )));
        }
        Ok(Some(path))
    }
}
