//! Tar files: their headers, and the files in them by offset.

pub mod directory;
pub(in crate::source) mod headers;
pub mod member;
#[cfg(test)]
mod tests;

use crate::source::io::name::strip_extension;

/// The extension of tar files without compression.
pub(in crate::source) const EXTENSION: &str = ".tar";
/// Extensions of tar files.
const EXTENSIONS: [&str; 4] = [EXTENSION, ".tar.gz", ".tgz", ".tar.zst"];

/// Returns whether `name` is the name of a tar file, compressed or not.
pub fn is_tar(name: &str) -> bool {
    tar_stem(name) != name
}

/// Returns the name of a tar file, compressed or not, without its extension, or another name unchanged.
pub fn tar_stem(name: &str) -> &str {
    EXTENSIONS.iter().find_map(|extension| strip_extension(name, extension)).unwrap_or(name)
}
