//! Rejects URLs where a local path is expected, and sources that are URLs of unsupported stores.
//!
//! `s3://bucket/x` is also a valid path: without this check, a run would create the folder `s3:` and succeed.

use std::path::Path;

use super::SourceSpec;
use crate::error::{Error, Result};
use crate::storage::ObjectUrl;

/// Returns an error if `path`, the value of `option`, is a URL.
///
/// # Errors
///
/// Returns [`ErrorKind::Usage`](crate::error::ErrorKind) if `path` starts with a scheme and `://`.
pub fn check_local(option: &'static str, path: &Path) -> Result<()> {
    if !ObjectUrl::is_url(path) {
        return Ok(());
    }
    Err(Error::usage(format!("{:?} is a URL, not a local path", path.to_string_lossy()))
        .of_option(option)
        .help("name a local file or folder"))
}

/// Returns an error if a source is a URL of an unsupported store.
pub(crate) fn check_sources(sources: &[SourceSpec]) -> Result<()> {
    sources
        .iter()
        .try_for_each(|source| ObjectUrl::parse(&source.path).map(drop).map_err(|e| e.of_option("source")))
}

/// Returns whether any source is in object storage.
pub(crate) fn is_remote(sources: &[SourceSpec]) -> bool {
    sources.iter().any(|source| ObjectUrl::is_url(&source.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_not_paths() {
        for url in ["s3://bucket/x", "HTTPS://host/x", "a+b-c.d://x", "file:///x"] {
            let message = check_local("out", Path::new(url)).unwrap_err().to_string();
            assert!(message.contains("out") && message.contains("is a URL"), "{message}");
        }
        for path in ["s3:/bucket", "a/b://c", "://x", "1s://x", "x", ""] {
            check_local("out", Path::new(path)).unwrap();
        }
    }
}
