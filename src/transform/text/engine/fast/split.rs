//! The split patterns of byte-level tokenizers, by hand: where the word that begins here ends.
//!
//! Each splitter is the leftmost-first alternation of one regular expression, which the source names. Every character
//! is matched by one of the alternatives, so the words cover the text.
//!
//! There are two ways to the same words: one at a time, from character to character ([`Split::end`]), and all those of
//! a block of ASCII at once ([`Split::starts`]), which is several times as fast.

use super::block::{Block, low};
use super::classes::{Classes, LETTER, LINE_END, NUMBER, OTHER, SPACE};

/// The pattern of GPT-2, built into the `ByteLevel` pre-tokenizer.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The same, as some files write it.
const GPT2_SHORT: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of `cl100k_base` and Llama 3.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2: single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A known split pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// GPT-2.
    Gpt2,
    /// `cl100k_base`, Llama 3: up to three digits.
    Cl100k,
    /// Qwen 2: one digit.
    Qwen2,
}

impl Pattern {
    /// The pattern written as `regex`, if it is a known one.
    pub(super) fn known(regex: &str) -> Option<Self> {
        match regex {
            GPT2 | GPT2_SHORT => Some(Pattern::Gpt2),
            CL100K => Some(Pattern::Cl100k),
            QWEN2 => Some(Pattern::Qwen2),
            _ => None,
        }
    }
}

/// Where words end.
pub(super) trait Split {
    /// End of the word that begins at `at`, which is a character boundary before the end of `bytes`.
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize;

    /// Where words begin in `block`, of which one begins at byte 0: a bit for each but that one. Those only that begin
    /// there whatever comes behind the block.
    fn starts(block: &Block<'_>) -> u64;
}

/// [`Pattern::Gpt2`].
pub(super) struct Gpt2;

impl Split for Gpt2 {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        if first == b' ' {
            return match classes.at(bytes, at + 1) {
                Some((LETTER, len)) => classes.letters(bytes, at + 1 + len),
                Some((class, len)) if class < SPACE => classes.run(bytes, at + 1 + len, class),
                _ => spaces(classes, bytes, at + 1, at),
            };
        }
        if class == LETTER {
            return classes.letters(bytes, at + len);
        }
        if class < SPACE {
            if first == b'\''
                && let Some(end) = contraction(bytes, at, false)
            {
                return end;
            }
            return classes.run(bytes, at + len, class);
        }
        spaces(classes, bytes, at + len, at)
    }

    #[inline(always)]
    fn starts(block: &Block<'_>) -> u64 {
        let &Block { letters, numbers, spaces, blanks, lines, apostrophes, .. } = block;
        let white = spaces | blanks | lines;
        let other = block.all() & !(letters | numbers | white);
        let first_other = other & !(other << 1);
        let runs = letters & !(letters << 1) | numbers & !(numbers << 1) | first_other;
        // A space takes what follows with it; of several, the last one does.
        let starts = runs & !(spaces << 1) | white & !(white << 1) | white & !(white >> 1) & block.all() >> 1;
        contractions(block, apostrophes & first_other & !(spaces << 1), starts, false)
    }
}

/// [`Pattern::Cl100k`] and [`Pattern::Qwen2`]: a word takes up to `DIGITS` digits.
pub(super) struct Cl100k<const DIGITS: usize>;

impl<const DIGITS: usize> Split for Cl100k<DIGITS> {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        let next = at + len;
        match class {
            LETTER => return classes.letters(bytes, next),
            NUMBER => {
                let mut end = next;
                for _ in 1..DIGITS {
                    match classes.at(bytes, end) {
                        Some((NUMBER, len)) => end += len,
                        _ => break,
                    }
                }
                return end;
            }
            _ => {}
        }
        if first == b'\''
            && let Some(end) = contraction(bytes, at, true)
        {
            return end;
        }
        let following = classes.at(bytes, next);
        if class != LINE_END
            && let Some((LETTER, len)) = following
        {
            return classes.letters(bytes, next + len);
        }
        match (first, following) {
            (b' ', Some((OTHER, len))) => line_ends(bytes, classes.run(bytes, next + len, OTHER)),
            _ if class == OTHER => line_ends(bytes, classes.run(bytes, next, OTHER)),
            _ => spaces_and_lines(classes, bytes, at),
        }
    }

    #[inline(always)]
    fn starts(block: &Block<'_>) -> u64 {
        let &Block { letters, numbers, spaces, blanks, lines, apostrophes, .. } = block;
        let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
        let other = block.all() & !(letters | numbers | white);
        // Runs of other characters: a space before one goes with it, line ends behind it too.
        let first_other = other & !(other << 1) & !(spaces << 1);
        let after_other = lines & other << 1;
        let taken = lines & !lines.wrapping_add(after_other);
        // Letters take one character before them with them: a gap, or another that stands alone.
        let prefixes = gaps | first_other & !(other >> 1);
        let first_letters = letters & !(letters << 1) & !(prefixes << 1);
        // Every so many digits another word begins.
        let longer = (1..=DIGITS).fold(numbers, |run, k| run & numbers << k);
        let mut first_numbers = numbers & !(numbers << 1);
        let mut next = first_numbers << DIGITS & longer;
        while next != 0 {
            first_numbers |= next;
            next = next << DIGITS & longer;
        }
        // White space is a word up to its last line end, then up to its last character, then that.
        let first_white = white & !taken & (!(white << 1) | taken << 1);
        let last_gaps = gaps & !(white >> 1) & block.all() >> 1;
        let after_line = gaps & lines << 1 & !before(gaps, lines) & !at_end(block, gaps);
        let starts = first_other | first_letters | first_numbers | first_white | last_gaps | after_line;
        contractions(block, apostrophes & first_other, starts, true)
    }
}

/// The runs of `gaps` that are followed by one of `lines`.
#[inline(always)]
fn before(gaps: u64, lines: u64) -> u64 {
    let last = gaps & lines >> 1;
    if last == 0 {
        return 0; // nearly always
    }
    // Adding to the lowest bit of a run of ones clears the run: here from the other side.
    let (gaps, last) = (gaps.reverse_bits(), last.reverse_bits());
    (gaps & !gaps.wrapping_add(last)).reverse_bits()
}

/// The run of `gaps` at the end of `block`.
#[inline(always)]
fn at_end(block: &Block<'_>, gaps: u64) -> u64 {
    let len = block.bytes.len();
    let run = gaps.checked_shl(64 - len as u32).unwrap_or(0).leading_ones() as usize;
    block.all() & !low(len - run.min(len))
}

/// Corrects `starts` for the contractions that begin at some of `apostrophes`, at all of which words begin.
#[inline(always)]
fn contractions(block: &Block<'_>, mut apostrophes: u64, mut starts: u64, ignore_case: bool) -> u64 {
    while apostrophes != 0 {
        let at = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if at + 3 > block.bytes.len() {
            // Nobody knows yet what follows.
            starts &= low(at + 1);
        } else if let Some(end) = contraction(block.bytes, at, ignore_case) {
            let next = 1u64.checked_shl(end as u32).unwrap_or(0) & block.all();
            starts = starts & !(low(end) & !low(at + 1)) | next;
        }
    }
    starts & !1
}

/// `\s+(?!\S)|\s+`, after the first character of it, which began at `at`.
#[inline]
fn spaces(classes: Classes, bytes: &[u8], mut end: usize, at: usize) -> usize {
    let mut last = at;
    while let Some((class, len)) = classes.at(bytes, end) {
        if class < SPACE {
            // The last space belongs to what follows, unless it is the only one.
            return if last == at { end } else { last };
        }
        last = end;
        end += len;
    }
    end
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`.
#[inline]
fn spaces_and_lines(classes: Classes, bytes: &[u8], at: usize) -> usize {
    let (mut end, mut last) = (at, at);
    let mut after_line = None;
    while let Some((class, len)) = classes.at(bytes, end) {
        if class < SPACE {
            return after_line.unwrap_or(if last == at { end } else { last });
        }
        last = end;
        end += len;
        if class == LINE_END {
            after_line = Some(end);
        }
    }
    after_line.unwrap_or(end)
}

/// `[\r\n]*`.
#[inline]
fn line_ends(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// End of `'s|'t|'re|'ve|'m|'ll|'d` at the apostrophe `at`.
#[inline]
fn contraction(bytes: &[u8], at: usize, ignore_case: bool) -> Option<usize> {
    let letter = |k: usize| {
        let b = bytes.get(at + k).copied().unwrap_or(0);
        if ignore_case { b.to_ascii_lowercase() } else { b }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        // U+017F, the long s, is an s when case does not count.
        (0xc5, 0xbf) if ignore_case => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split as ReferenceSplit, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;
    use crate::masks::Portable;
    use crate::transform::text::testing::tricky;

    fn words<S: Split>(text: &str) -> Vec<&str> {
        let classes = Classes::get().unwrap();
        let (mut at, mut words) = (0, Vec::new());
        while at < text.len() {
            let end = S::end(classes, text.as_bytes(), at);
            words.push(&text[at..end]);
            at = end;
        }
        words
    }

    /// Checks that the blocks of `text` have the same words: from each word on, those that are known, in a row.
    fn check_blocks<S: Split>(text: &str) -> usize {
        let mut ends: Vec<usize> = vec![0];
        ends.extend(words::<S>(text).iter().scan(0, |at, word| {
            *at += word.len();
            Some(*at)
        }));
        let mut known = 0;
        for (i, &at) in ends.iter().enumerate() {
            let Some(block) = Block::at(Portable, text.as_bytes(), at) else { continue };
            let mut starts = S::starts(&block);
            for &end in &ends[i + 1..] {
                if starts == 0 {
                    break;
                }
                assert_eq!(at + starts.trailing_zeros() as usize, end, "{text:?} from {at}");
                starts &= starts - 1;
                known += 1;
            }
            assert_eq!(starts, 0, "{text:?} from {at}");
        }
        known
    }

    fn check_all_blocks(text: &str) {
        check_blocks::<Gpt2>(text);
        check_blocks::<Cl100k<3>>(text);
        check_blocks::<Cl100k<1>>(text);
    }

    fn expected(split: &ReferenceSplit, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        split.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(s, _, _)| s.to_owned()).collect()
    }

    fn reference(regex: &str) -> ReferenceSplit {
        ReferenceSplit::new(SplitPattern::Regex(regex.into()), SplitDelimiterBehavior::Isolated, false)
            .unwrap()
    }

    #[test]
    fn known_patterns_are_known_as_written() {
        assert_eq!(Pattern::known(GPT2), Some(Pattern::Gpt2));
        assert_eq!(Pattern::known(CL100K), Some(Pattern::Cl100k));
        assert_eq!(Pattern::known(QWEN2), Some(Pattern::Qwen2));
        assert_eq!(Pattern::known(r"\s+"), None);
    }

    #[test]
    fn most_words_of_a_text_are_found_in_blocks() {
        let text =
            "It's 12345 o'clock (twelve), they'd say;\n\tif x >= 10:\r\n        return 'yes'  \n\n   no. "
                .repeat(5);
        for known in [check_blocks::<Gpt2>(&text), check_blocks::<Cl100k<3>>(&text)] {
            // From each word on, the words of up to 64 bytes.
            assert!(known > 10 * words::<Gpt2>(&text).len(), "{known}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn words_end_where_the_regular_expression_says(text in tricky()) {
            prop_assert_eq!(words::<Gpt2>(&text), expected(&reference(GPT2), &text));
            prop_assert_eq!(words::<Gpt2>(&text), expected(&reference(GPT2_SHORT), &text));
            prop_assert_eq!(words::<Cl100k<3>>(&text), expected(&reference(CL100K), &text));
            prop_assert_eq!(words::<Cl100k<1>>(&text), expected(&reference(QWEN2), &text));
            check_all_blocks(&text);
        }

        #[test]
        fn blocks_have_the_same_words(
            text in "([ \\t\\r\\n\\x0b'().,a-eST]|'[stdmSRVL]|'(re|LL|ve)|[0-9]{1,9}| {1,5}|\n +|é|\u{a0}){0,120}",
        ) {
            check_all_blocks(&text);
        }
    }
}
