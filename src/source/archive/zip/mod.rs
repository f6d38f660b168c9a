//! Zip archives: their central directory, and the files in them.

mod directory;
mod member;
mod reader;
#[cfg(test)]
mod tests;

pub(in crate::source) use self::directory::read_directory;
pub use self::member::ZipMember;
pub(in crate::source) use self::reader::{MemberReader, ZipDamage};
