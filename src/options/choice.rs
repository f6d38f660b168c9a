//! Options whose value is one of a fixed set of words.

use std::fmt::Display;
use std::str::FromStr;

use crate::error::Error;

/// An option whose value is one of a fixed set of words. The command line lists [`Choice::WORDS`] in `--help` and in
/// completions, and suggests the nearest word for a misspelled one.
pub trait Choice: FromStr<Err = Error> + Display + Clone + Send + Sync + 'static {
    /// All words, with the default first if there is one.
    const WORDS: &'static [&'static str];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::pipeline::Dedup;
    use crate::source::layout::FolderLayout;
    use crate::transform::image::{Animated, Color, Filter, Icc};

    fn check<T: Choice>() {
        for word in T::WORDS {
            assert_eq!(word.parse::<T>().unwrap().to_string(), *word);
        }
        assert!(T::WORDS.len() == 1 || "no such word".parse::<T>().is_err());
    }

    #[test]
    fn every_word_parses_and_displays_as_itself() {
        check::<Format>();
        check::<FolderLayout>();
        check::<Dedup>();
        check::<Filter>();
        check::<Color>();
        check::<Animated>();
        check::<Icc>();
    }
}
