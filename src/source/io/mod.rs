//! Bytes of source files: opened as planned, read with retries, decompressed, and decoded to lines of UTF-8.

pub(crate) mod base64;
pub mod broken;
mod compressed_members;
pub mod compression;
pub mod encoding;
pub(in crate::source) mod inflate;
mod json_array;
pub mod lines;
pub mod name;
pub mod opened;
pub mod planned;
pub mod retry;
pub mod stream;
mod zstd_frames;
