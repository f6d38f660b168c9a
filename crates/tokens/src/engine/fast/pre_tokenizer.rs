//! Pre-tokenizers with `ByteLevel`: cuts before the split into words, the split pattern, and cuts of the resulting
//! words as bytes.
//!
//! Cuts that no hand-written splitter supports use the regular expressions of the reference, but do not copy each piece
//! and the origin of each of its bytes, which makes the reference slow.

use std::ops::Range;

use serde_json::Value;

use super::classes::ClassTable;
use super::regex::SplitRegex;
use super::split::pattern::{DEEPSEEK, Pattern};
use super::stop::EngineStop;
use super::words::{CharCut, MAX_STEPS};
use crate::outline::type_of;

/// Regular expressions that match only numbers.
const NUMBERS: [&str; 3] = [NUMBER, r"\p{N}+", r"\p{N}{1,3}"];
/// Regular expression of a single number.
const NUMBER: &str = r"\p{N}";
/// Regular expression of Cohere 2, which divides the digits of a number into groups of three from its end.
/// Oniguruma needs steps proportional to the square of the number's length.
const THOUSANDS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";

/// A pre-tokenizer, which splits texts into words.
pub(super) struct PreTokenizer {
    /// Cuts of the text into pieces, applied one after the other. Each piece is then split independently.
    cuts: Vec<PatternCut>,
    /// The split pattern of the pieces.
    pub(super) pattern: Pattern,
    /// The class table for the pattern.
    pub(super) table: ClassTable,
    /// Whether a space is prepended to a piece that does not start with one.
    pub(super) add_prefix_space: bool,
    /// Cuts of words whose bytes are written as printable characters.
    pub(super) cuts_of_bytes: Vec<PatternCut>,
}

/// A step that cuts a text into matches and the parts between them.
pub(super) struct PatternCut {
    matches: Matches,
    keeps: Keeps,
    /// Whether it cuts out only numbers or punctuation, so that runs of letters stay whole.
    keeps_letters: bool,
}

enum Matches {
    Regex(SplitRegex),
    Thousands(Thousands),
    Chars(CharCut),
}

/// Finds the matches of [`THOUSANDS`] in linear time.
struct Thousands {
    /// Some digits.
    digits: SplitRegex,
    /// A character of a word.
    word: SplitRegex,
}

/// The parts of a text that a cut keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    All,
    Matches,
    Others,
}

impl PreTokenizer {
    /// Parses a pre-tokenizer of a `tokenizer.json`; `None` if a part is not supported.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let parts = match type_of(value)? {
            "Sequence" => value.get("pretokenizers")?.as_array()?.as_slice(),
            _ => std::slice::from_ref(value),
        };
        if parts.len() > MAX_STEPS {
            return None;
        }
        let is_byte_level = |part: &Value| type_of(part) == Some("ByteLevel");
        let (before, from_bytes) = parts.split_at(parts.iter().position(is_byte_level)?);
        let (byte_level, after) = from_bytes.split_first()?;
        let flag = |name| byte_level.get(name).map_or(Some(true), Value::as_bool);
        let (use_regex, add_prefix_space) = (flag("use_regex")?, flag("add_prefix_space")?);
        let (pattern, table, cuts) = match before {
            [numbers] if use_regex && split_at(numbers) == Some((NUMBER, Keeps::All)) => {
                (Pattern::Gpt2BetweenNumbers, ClassTable::Plain, [].as_slice())
            }
            [digits]
                if use_regex
                    && type_of(digits) == Some("Digits")
                    && digits.get("individual_digits") == Some(&Value::Bool(true)) =>
            {
                (Pattern::Gpt2BetweenNumbers, ClassTable::NumericAreNumbers, [].as_slice())
            }
            _ if use_regex => (Pattern::Gpt2, ClassTable::Plain, before),
            [_, _, _]
                if before.iter().zip(DEEPSEEK).all(|(s, regex)| split_at(s) == Some((regex, Keeps::All))) =>
            {
                (Pattern::DeepSeek, ClassTable::MarksAreLetters, [].as_slice())
            }
            [before @ .., split] if let Some((pattern, table)) = known(split) => (pattern, table, before),
            _ => (Pattern::Whole, ClassTable::Plain, before),
        };
        let read = |cuts: &[Value]| cuts.iter().map(PatternCut::read).collect::<Option<Vec<PatternCut>>>();
        let (cuts, cuts_of_bytes) = (read(cuts)?, read(after)?);
        // With cuts, the reference prepends the space to each piece, which is not supported.
        (before.is_empty() || !add_prefix_space).then_some(Self {
            cuts,
            pattern,
            table,
            add_prefix_space,
            cuts_of_bytes,
        })
    }

    /// Returns whether a word always ends after a letter that is not followed by a letter, mark or apostrophe.
    pub(super) fn splits_after_letters(&self) -> bool {
        self.pattern != Pattern::Whole && self.cuts.iter().all(|cut| cut.keeps_letters)
    }

    /// Calls `each` with the pieces of `text` that are to be split into words.
    pub(super) fn pieces(
        &self,
        text: &str,
        mut each: impl FnMut(&str) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        if self.cuts.is_empty() { each(text) } else { cut(&self.cuts, text, &mut each) }
    }
}

/// Returns the regular expression of a `Split`, and the parts it keeps.
fn split_at(value: &Value) -> Option<(&str, Keeps)> {
    if type_of(value)? != "Split" {
        return None;
    }
    let is_inverted = value.get("invert")?.as_bool()?;
    let keeps = match (value.get("behavior")?.as_str()?, is_inverted) {
        ("Isolated", _) => Keeps::All,
        ("Removed", true) => Keeps::Matches,
        ("Removed", false) => Keeps::Others,
        _ => return None,
    };
    Some((value.pointer("/pattern/Regex")?.as_str()?, keeps))
}

/// Returns the supported pattern of a `Split`. Such patterns match every character, so keeping the matches keeps
/// everything.
fn known(value: &Value) -> Option<(Pattern, ClassTable)> {
    match split_at(value)? {
        (regex, Keeps::All | Keeps::Matches) => Pattern::known(regex),
        _ => None,
    }
}

impl PatternCut {
    fn read(value: &Value) -> Option<Self> {
        if let Some(chars) = CharCut::read(value) {
            return Some(Self { matches: Matches::Chars(chars), keeps: Keeps::All, keeps_letters: true });
        }
        let (regex, keeps) = split_at(value)?;
        let keeps_letters = keeps == Keeps::All && NUMBERS.contains(&regex);
        let matches = match regex {
            THOUSANDS => Matches::Thousands(Thousands::new()?),
            _ => Matches::Regex(SplitRegex::new(regex)?),
        };
        Some(Self { matches, keeps, keeps_letters })
    }

    /// Calls `each` with the pieces of `text` that the cut keeps.
    fn pieces(
        &self,
        text: &str,
        each: &mut dyn FnMut(&str) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let mut end = 0;
        let mut keep = |found: Range<usize>| {
            let before = end..found.start;
            end = found.end;
            for (range, kept) in [(before, Keeps::Others), (found, Keeps::Matches)] {
                if (self.keeps == Keeps::All || self.keeps == kept) && !range.is_empty() {
                    each(text.get(range).unwrap_or_default())?;
                }
            }
            Ok(())
        };
        match &self.matches {
            Matches::Regex(regex) => regex.find(text, &mut keep)?,
            Matches::Thousands(thousands) => thousands.find(text, &mut keep)?,
            Matches::Chars(chars) => return chars.pieces(text, each),
        }
        keep(text.len()..text.len())
    }
}

impl Thousands {
    fn new() -> Option<Self> {
        // Bounded, so that a match needs little memory.
        Some(Self { digits: SplitRegex::new(r"\d{1,60}")?, word: SplitRegex::new(r"\A\w")? })
    }

    /// Calls `each` with the matches in `text`.
    fn find(
        &self,
        text: &str,
        mut each: impl FnMut(Range<usize>) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let mut run = 0..0;
        self.digits.find(text, |found| {
            if found.start == run.end {
                run.end = found.end;
                return Ok(());
            }
            self.groups(text, std::mem::replace(&mut run, found), &mut each)
        })?;
        self.groups(text, run, &mut each)
    }

    /// Calls `each` with the groups of a run of digits. There are none if a character of a word follows: inside and
    /// after the run, there is then no boundary of words.
    fn groups(
        &self,
        text: &str,
        run: Range<usize>,
        each: &mut impl FnMut(Range<usize>) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let mut next = [0; 4];
        let following = text.get(run.end..).and_then(|rest| rest.chars().next());
        let mut is_in_word = false;
        if let Some(c) = following {
            self.word.find(c.encode_utf8(&mut next), |_| {
                is_in_word = true;
                Ok(())
            })?;
        }
        if is_in_word {
            return Ok(());
        }
        let digits = text.get(run.clone()).unwrap_or_default();
        let count = digits.chars().count();
        let mut start = run.start;
        for (number, (at, _)) in digits.char_indices().enumerate().skip(1) {
            if (count - number).is_multiple_of(3) {
                each(start..run.start + at)?;
                start = run.start + at;
            }
        }
        if start < run.end { each(start..run.end) } else { Ok(()) }
    }
}

/// Applies `cuts` to `text`, one after the other, and calls `each` with the pieces.
pub(super) fn cut(
    cuts: &[PatternCut],
    text: &str,
    each: &mut dyn FnMut(&str) -> Result<(), EngineStop>,
) -> Result<(), EngineStop> {
    match cuts.split_first() {
        None => each(text),
        Some((first, rest)) => first.pieces(text, &mut |piece| cut(rest, piece, each)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tricky;

    fn thousands(text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let each = |range: Range<usize>| {
            found.push((range.start, range.end));
            Ok(())
        };
        assert!(Thousands::new().unwrap().find(text, each).is_ok());
        found
    }

    fn expected(text: &str) -> Vec<(usize, usize)> {
        onig::Regex::new(THOUSANDS).unwrap().find_iter(text).collect()
    }

    proptest! {
        #[test]
        fn groups_of_digits_are_those_of_the_regular_expression(
            text in tricky(),
            digits in "([0-9٣߀]{1,9}|[a_é\u{301}\u{200d}½²字 .,-]|[0-9]{50,130}){0,12}",
        ) {
            prop_assert_eq!(thousands(&text), expected(&text));
            prop_assert_eq!(thousands(&digits), expected(&digits));
        }
    }

    #[test]
    fn a_number_before_any_character_is_divided_as_by_the_regular_expression() {
        let text: String = ('\0'..=char::MAX).flat_map(|c| ['1', '2', '3', '4', c]).collect();
        assert_eq!(thousands(&text), expected(&text));
        assert_eq!(thousands(&"7".repeat(3_000_001)).len(), 1_000_001);
    }
}
