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

/// The extension of tar files without compression.
const EXTENSION: &str = ".tar";

/// Returns whether the name of a file is that of a tar file without compression.
pub fn is_plain_tar(name: &str) -> bool {
    stem(name) != name
}

/// Returns `name` without the extension of a tar file without compression.
pub fn stem(name: &str) -> &str {
    let at = name.len().saturating_sub(EXTENSION.len());
    match name.get(at..) {
        Some(end) if end.eq_ignore_ascii_case(EXTENSION) => &name[..at],
        _ => name,
    }
}
