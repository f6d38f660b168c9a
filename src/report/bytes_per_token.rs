//! Bytes of text per token, for the summary of a run and its report.

use crate::manifest::Manifest;

/// Returns the bytes of source text per token of the dataset, or `None` if its tokens are not those of the whole texts:
/// documents were truncated, or split into pieces that overlap.
pub fn bytes_per_token(manifest: &Manifest, text_bytes: u64, tokens: u64) -> Option<f64> {
    let notes = |name: &str| manifest.notes.get(name).copied().unwrap_or(0);
    let overflow = manifest.options.get("overflow").and_then(|value| value.as_str());
    let has_overlap = notes("split") > 0 && overflow != Some("split");
    let is_whole = notes("truncated") == 0 && !has_overlap;
    (is_whole && tokens > 0).then(|| text_bytes as f64 / tokens as f64)
}
