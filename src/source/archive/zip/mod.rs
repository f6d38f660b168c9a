//! Zip archives: their central directory, and the files in them.

pub(in crate::source) mod directory;
pub mod member;
#[cfg(test)]
mod tests;
