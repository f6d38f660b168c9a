//! Zip archives: their central directory, and the files in them.

mod directory;
mod member;
mod reader;
#[cfg(test)]
mod tests;

pub use self::directory::{Directory, ZipEntry};
pub use self::member::ZipMember;
pub(super) use self::reader::{MemberReader, ZipDamage};

/// The extension of archives.
const EXTENSION: &str = ".zip";

/// Returns whether the name of a file is that of a zip archive.
pub fn is_zip(name: &str) -> bool {
    stem(name) != name
}

/// Returns `name` without the extension of an archive.
pub fn stem(name: &str) -> &str {
    let at = name.len().saturating_sub(EXTENSION.len());
    match name.get(at..) {
        Some(end) if end.eq_ignore_ascii_case(EXTENSION) => &name[..at],
        _ => name,
    }
}
