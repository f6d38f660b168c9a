//! Zip archives: their central directory, and the files in them.

mod directory;
mod member;
mod reader;
#[cfg(test)]
mod tests;

pub(super) use self::directory::read_directory;
pub use self::member::ZipMember;
pub(super) use self::reader::{MemberReader, ZipDamage};
use super::name::strip_extension;

/// The extension of archives.
const EXTENSION: &str = ".zip";

/// Returns whether the name of a file is that of a zip archive.
pub fn is_zip(name: &str) -> bool {
    strip_extension(name, EXTENSION).is_some()
}

/// Returns `name` without the extension of an archive.
pub fn stem(name: &str) -> &str {
    strip_extension(name, EXTENSION).unwrap_or(name)
}
