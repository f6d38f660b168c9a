//! Rejects URLs where a local path is expected, and source addresses of unsupported stores.
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
    match path.to_str().and_then(scheme) {
        None => Ok(()),
        Some(_) => Err(Error::usage(format!("{:?} is a URL, not a local path", path.to_string_lossy()))
            .of_option(option)
            .help("name a local file or folder")),
    }
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

/// Returns the URL scheme of `text`, such as `s3` for `s3://bucket/x`, by the rules of RFC 3986.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next()?.is_ascii_alphabetic()
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then_some(scheme)
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
