//! Sources that are URLs.

use super::SourceSpec;
use crate::error::Result;
use crate::storage::ObjectUrl;

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
