//! Pre-tokenizers with `ByteLevel`: what is cut out of a text first, how the rest is split into words, and how words are cut
//! after that, as bytes.
//!
//! Cuts that no hand-written splitter knows are made by the regular expressions of the reference itself, without what
//! makes them slow there: a copy of each piece with the origin of each of its bytes.

use std::ops::Range;

use serde_json::Value;
use tokenizers::utils::SysRegex;

use super::classes::Table;
use super::split::pattern::{DEEPSEEK, Pattern};
use super::stop::Stop;
use super::wordpiece::is_punctuation;
use crate::outline::type_of;

/// Regular expressions that match numbers and nothing else.
const NUMBERS: [&str; 3] = [NUMBER, r"\p{N}+", r"\p{N}{1,3}"];
/// One number.
const NUMBER: &str = r"\p{N}";

/// How a text becomes words.
pub(super) struct PreTokenizer {
    /// Makes pieces, and pieces of these; each is split as if it stood alone.
    cuts: Vec<Cut>,
    /// How pieces are split.
    pub(super) pattern: Pattern,
    /// What characters are to the pattern.
    pub(super) table: Table,
    /// Whether a piece that does not begin with a space gets one.
    pub(super) add_prefix_space: bool,
    /// Cut words in which a printable character stands for each byte.
    pub(super) cuts_of_bytes: Vec<Cut>,
}

/// Cuts a text into matches and the parts between them.
pub(super) struct Cut {
    matches: Matches,
    keeps: Keeps,
    /// Whether it cuts out numbers or punctuation and nothing else.
    keeps_letters: bool,
}

enum Matches {
    Regex(SysRegex),
    /// Numeric characters or punctuation: each, or as many as follow each other.
    Chars {
        is_cut_out: fn(char) -> bool,
        each: bool,
    },
}

/// What of a text stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    All,
    Matches,
    Others,
}

impl PreTokenizer {
    /// Reads it from a `tokenizer.json`; `None` when part of it is not known.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let parts = match type_of(value)? {
            "Sequence" => value.get("pretokenizers")?.as_array()?.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let is_byte_level = |part: &Value| type_of(part) == Some("ByteLevel");
        let (before, from_bytes) = parts.split_at(parts.iter().position(is_byte_level)?);
        let (byte_level, after) = from_bytes.split_first()?;
        let flag = |name| byte_level.get(name).map_or(Some(true), Value::as_bool);
        let (use_regex, add_prefix_space) = (flag("use_regex")?, flag("add_prefix_space")?);
        let (pattern, table, cuts) = match before {
            [numbers] if use_regex && split_at(numbers) == Some((NUMBER, Keeps::All)) => {
                (Pattern::Gpt2BetweenNumbers, Table::Plain, [].as_slice())
            }
            [digits] if use_regex && each_numeric(digits) == Some(true) => {
                (Pattern::Gpt2BetweenNumbers, Table::NumericAreNumbers, [].as_slice())
            }
            _ if use_regex => (Pattern::Gpt2, Table::Plain, before),
            [_, _, _]
                if before.iter().zip(DEEPSEEK).all(|(s, regex)| split_at(s) == Some((regex, Keeps::All))) =>
            {
                (Pattern::DeepSeek, Table::MarksAreLetters, [].as_slice())
            }
            [before @ .., split] if let Some((pattern, table)) = known(split) => (pattern, table, before),
            _ => (Pattern::Whole, Table::Plain, before),
        };
        let read = |cuts: &[Value]| cuts.iter().map(Cut::read).collect::<Option<Vec<Cut>>>();
        let (cuts, cuts_of_bytes) = (read(cuts)?, read(after)?);
        // The reference puts the space before each piece.
        (before.is_empty() || !add_prefix_space).then_some(Self {
            cuts,
            pattern,
            table,
            add_prefix_space,
            cuts_of_bytes,
        })
    }

    /// Whether a word ends after every letter that is not followed by a letter, mark or apostrophe, in any context.
    pub(super) fn splits_behind_letters(&self) -> bool {
        self.pattern != Pattern::Whole && self.cuts.iter().all(|cut| cut.keeps_letters)
    }

    /// Calls `each` with the parts that are split into words.
    pub(super) fn pieces(
        &self,
        text: &str,
        mut each: impl FnMut(&str) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.cuts.is_empty() { each(text) } else { cut(&self.cuts, text, &mut each) }
    }
}

/// The regular expression of a `Split`, and what it keeps.
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

/// The known pattern of a `Split`. Such patterns match everything: keeping matches is keeping all.
fn known(value: &Value) -> Option<(Pattern, Table)> {
    match split_at(value)? {
        (regex, Keeps::All | Keeps::Matches) => Pattern::known(regex),
        _ => None,
    }
}

/// Whether `Digits` cuts out each digit, or as many as follow each other.
fn each_numeric(value: &Value) -> Option<bool> {
    if type_of(value)? == "Digits" { value.get("individual_digits")?.as_bool() } else { None }
}

impl Cut {
    fn read(value: &Value) -> Option<Self> {
        let chars = |is_cut_out, each| {
            let matches = Matches::Chars { is_cut_out, each };
            Some(Self { matches, keeps: Keeps::All, keeps_letters: true })
        };
        if type_of(value)? == "Punctuation" {
            return match value.get("behavior").map_or(Some("Isolated"), Value::as_str)? {
                "Isolated" => chars(is_punctuation, true),
                "Contiguous" => chars(is_punctuation, false),
                _ => None,
            };
        }
        if let Some(each) = each_numeric(value) {
            return chars(char::is_numeric, each);
        }
        let (regex, keeps) = split_at(value)?;
        let keeps_letters = keeps == Keeps::All && NUMBERS.contains(&regex);
        Some(Self { matches: Matches::Regex(SysRegex::new(regex).ok()?), keeps, keeps_letters })
    }

    /// Calls `each` with the pieces of `text` that stay.
    fn pieces(&self, text: &str, each: &mut dyn FnMut(&str) -> Result<(), Stop>) -> Result<(), Stop> {
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
            Matches::Regex(regex) => {
                for (start, end) in regex.find_iter(text) {
                    keep(start..end)?;
                }
            }
            Matches::Chars { is_cut_out, each } => {
                let mut run = 0..0;
                for (at, c) in text.char_indices().filter(|(_, c)| is_cut_out(*c)) {
                    if *each || at != run.end {
                        keep(std::mem::replace(&mut run, at..at))?;
                    }
                    run.end = at + c.len_utf8();
                }
                keep(run)?;
            }
        }
        keep(text.len()..text.len())
    }
}

/// Calls `each` with the pieces that `cuts`, one after the other, leave of `text`.
pub(super) fn cut(
    cuts: &[Cut],
    text: &str,
    each: &mut dyn FnMut(&str) -> Result<(), Stop>,
) -> Result<(), Stop> {
    match cuts.split_first() {
        None => each(text),
        Some((first, rest)) => first.pieces(text, &mut |piece| cut(rest, piece, each)),
    }
}
