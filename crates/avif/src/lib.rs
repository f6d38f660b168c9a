#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod boxes;
mod convert;
mod decoder;
mod error;
mod file;
mod meta;
mod movie;
mod picture;
mod properties;
mod sequence;

pub use decoder::contain_panic;
pub use error::{Error, ErrorKind};
pub use file::{AvifFile, Mirror, Turn};
