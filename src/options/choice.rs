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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::pipeline::Dedup;
    use crate::source::layout::Layout;
    use crate::transform::image::{Animated, Color, Filter, Icc};

    fn check<T: Choice>() {
        for word in T::WORDS {
            assert_eq!(word.parse::<T>().unwrap().to_string(), *word);
        }
        assert!(T::WORDS.len() == 1 || "no such word".parse::<T>().is_err());
    }

    #[test]
    fn every_word_is_understood_and_written_back() {
        check::<Format>();
        check::<Layout>();
        check::<Dedup>();
        check::<Filter>();
        check::<Color>();
        check::<Animated>();
        check::<Icc>();
    }
}
