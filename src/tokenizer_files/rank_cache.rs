//! The tiktoken cache, whose files are named after the SHA-1 of their URLs.

use std::path::PathBuf;

use dsconvert_tokens::TiktokenEncoding;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::source::read_file;
use crate::storage::{hex, stat};

/// Environment variables with the path of the cache, in order of precedence.
const VARIABLES: [&str; 2] = ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"];

/// Folder of the cache.
pub(super) struct RankCache(PathBuf);

impl RankCache {
    /// Returns the cache for the environment variables of this process.
    pub(super) fn of_process() -> Self {
        Self::in_folder(VARIABLES.iter().find_map(std::env::var_os).map(PathBuf::from))
    }

    /// Returns the cache in `folder`; the default cache if the path is missing or empty.
    pub(super) fn in_folder(folder: Option<PathBuf>) -> Self {
        let given = folder.filter(|folder| !folder.as_os_str().is_empty());
        Self(given.unwrap_or_else(|| std::env::temp_dir().join("data-gym-cache")))
    }

    /// Returns the path of the file of an encoding, which may not exist.
    pub(super) fn file(&self, encoding: &TiktokenEncoding) -> PathBuf {
        self.0.join(encoding.cache_name)
    }

    /// Returns the file of an encoding; `None` if it is not in the cache. Its bytes must be the published ones.
    pub(super) fn find(&self, encoding: &TiktokenEncoding) -> Result<Option<PathBuf>> {
        let path = self.file(encoding);
        if stat(&path)?.is_none() {
            return Ok(None);
        }
        if hex(&Sha256::digest(read_file(&path)?)) != encoding.sha256 {
            return Err(Error::usage(format!("this is not the published file of {}", encoding.name))
                .at_path(path)
                .help(format!(
                    "remove it and fill the cache again: python -c \"import tiktoken; tiktoken.get_encoding('{}')\"; to use your \
                     own file, name it as {}:FILE",
                    encoding.name, encoding.name
                )));
        }
        Ok(Some(path))
    }
}
