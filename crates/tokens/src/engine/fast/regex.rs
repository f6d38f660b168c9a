//! Regular expressions of split patterns, run by Oniguruma like those of the reference, but with bounded memory.

use std::ops::Range;

use onig::{MatchParam, Regex, Region, SearchOptions};

use super::stop::EngineStop;

/// Maximum number of entries of Oniguruma's match stack, 32 bytes each. A run of a million letters needs as many.
const MAX_STACK: u32 = 1 << 21;

/// A regular expression with the syntax and the options of the reference.
pub(super) struct SplitRegex(Regex);

impl SplitRegex {
    /// Compiles `pattern`; `None` if Oniguruma does not accept it.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        Regex::new(pattern).ok().map(Self)
    }

    /// Calls `each` with the matches in `text`, which are those of `onig::Regex::find_iter`. If a match needs too many
    /// steps or too much memory, the text needs the reference, which allows more memory for one text at a time.
    pub(super) fn find(
        &self,
        text: &str,
        mut each: impl FnMut(Range<usize>) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let (mut region, mut from, mut last) = (Region::new(), 0, None);
        while from <= text.len() {
            region.clear();
            let mut param = MatchParam::default();
            param.set_match_stack_limit(MAX_STACK);
            let found = self.0.search_with_param(
                text,
                from,
                text.len(),
                SearchOptions::SEARCH_OPTION_NONE,
                Some(&mut region),
                param,
            );
            let Some((start, end)) = found.map_err(|_| EngineStop::NeedsReference)?.and(region.pos(0)) else {
                break;
            };
            if start == end && last == Some(end) {
                // An empty match right after another match is skipped.
                from += text.get(from..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                continue;
            }
            if last.is_some_and(|last| start < last) {
                // With `\K` in a lookbehind, matches overlap.
                return Err(EngineStop::NeedsReference);
            }
            (from, last) = (end, Some(end));
            each(start..end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tricky;

    /// Returns the matches of `pattern` in `text`; `None` if they need the reference.
    fn matches(pattern: &str, text: &str) -> Option<Vec<(usize, usize)>> {
        let mut found = Vec::new();
        let each = |range: Range<usize>| {
            found.push((range.start, range.end));
            Ok(())
        };
        SplitRegex::new(pattern).unwrap().find(text, each).is_ok().then_some(found)
    }

    proptest! {
        #[test]
        fn matches_are_those_of_the_iterator(text in tricky()) {
            for pattern in [r"\w+", "", "a*", r"\b", "^", "$", r"(?<=\s)", r"\K.", r".\K", r"\G\w", r"\X", r"(?m:.)"] {
                let expected: Vec<_> = Regex::new(pattern).unwrap().find_iter(&text).collect();
                prop_assert_eq!(matches(pattern, &text), Some(expected), "{}", pattern);
            }
        }
    }

    #[test]
    fn matches_that_need_too_many_steps_or_overlap_need_the_reference() {
        assert_eq!(matches("(a|a)*1", &format!("{} 1", "a".repeat(60))), None);
        assert_eq!(matches(r"(?<=\Ka)b|a", "ab"), None);
        assert_eq!(matches(r"\p{L}+", &"é".repeat(1_000_000)), Some(vec![(0, 2_000_000)]));
        assert_eq!(matches(r"\p{L}+", &"a".repeat(1 << 22)), None);
    }
}
