//! Options whose value is one of a few words.

use std::fmt::Display;
use std::str::FromStr;

use crate::error::Error;

/// A type that is written as one of a few words. The words are named once: the command line lists them in `--help` and in
/// completions, and suggests the nearest one.
pub trait Choice: FromStr<Err = Error> + Display + Clone + Send + Sync + 'static {
    /// All words, the default first where there is one.
    const WORDS: &'static [&'static str];
}
