//! Tar files: their headers, and the files in them by offset.

mod directory;
mod headers;
mod member;
#[cfg(test)]
mod tests;

pub use self::directory::first_nested;
pub(super) use self::directory::{has_samples, read_directory};
pub(super) use self::headers::{
    BLOCK, MAX_TRAILER_BYTES, NoMember, TarDamage, TarHeader, TarInput, cut_off, next_header, skip_member,
    skip_padding,
};
pub use self::member::TarMember;
use super::name::strip_extension;

/// The extension of tar files without compression.
const EXTENSION: &str = ".tar";

/// Returns whether the name of a file is that of a tar file without compression.
pub fn is_plain_tar(name: &str) -> bool {
    strip_extension(name, EXTENSION).is_some()
}

/// Returns `name` without the extension of a tar file without compression.
pub fn stem(name: &str) -> &str {
    strip_extension(name, EXTENSION).unwrap_or(name)
}
