//! The split patterns of byte-level tokenizers, by hand: where the word that begins here ends.
//!
//! Each splitter is the leftmost-first alternation of one regular expression, which the source names. Every character
//! is matched by one of the alternatives, so the words cover the text.
//!
//! There are two ways to the same words: one at a time, from character to character ([`Split::end`]), and all those of
//! a block of ASCII at once ([`Split::starts`]), which is several times as fast.

mod cl100k;
mod deepseek;
mod gpt2;
mod o200k;

pub(super) use cl100k::Cl100k;
pub(super) use deepseek::DeepSeek;
pub(super) use gpt2::Gpt2;
pub(super) use o200k::O200k;

use super::block::{Block, low};
use super::classes::{Classes, LINE_END, NUMBER, SPACE, Table};

/// The pattern of GPT-2, built into the `ByteLevel` pre-tokenizer.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The same, as some files write it.
const GPT2_SHORT: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of `cl100k_base` and Llama 3.
pub(super) const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2: single digits.
pub(super) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 3.5: marks are part of words.
pub(super) const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of `o200k_base` (GPT-4o, gpt-oss, Llama 4).
pub(super) const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Tekken (Mistral NeMo, Apertus).
pub(super) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The patterns of DeepSeek V3, one after the other.
pub(super) const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// A known way to split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// GPT-2.
    Gpt2,
    /// The same on what stands between numbers, of which each is a word (StarCoder, SmolLM).
    Gpt2BetweenNumbers,
    /// `cl100k_base`, Llama 3: up to three digits.
    Cl100k,
    /// Qwen 2: one digit.
    Qwen2,
    /// `o200k_base`: up to three digits, contractions.
    O200k,
    /// Tekken: one digit, no contractions.
    Tekken,
    /// DeepSeek V3, [`DEEPSEEK`].
    DeepSeek,
    /// All of it is one word.
    Whole,
}

impl Pattern {
    /// The pattern written as `regex`, if it is a known one, and what its classes are.
    pub(super) fn known(regex: &str) -> Option<(Self, Table)> {
        match regex {
            GPT2 | GPT2_SHORT => Some((Pattern::Gpt2, Table::Plain)),
            CL100K => Some((Pattern::Cl100k, Table::Plain)),
            QWEN2 => Some((Pattern::Qwen2, Table::Plain)),
            QWEN35 => Some((Pattern::Qwen2, Table::MarksAreLetters)),
            O200K => Some((Pattern::O200k, Table::Plain)),
            TEKKEN => Some((Pattern::Tekken, Table::Plain)),
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

/// Where, among runs of `numbers`, words of up to `digits` of them begin.
#[inline(always)]
fn first_numbers(numbers: u64, digits: usize) -> u64 {
    // Every so many digits another word begins.
    let longer = (1..=digits).fold(numbers, |run, k| run & numbers << k);
    let mut first = numbers & !(numbers << 1);
    let mut next = first << digits & longer;
    while next != 0 {
        first |= next;
        next = next << digits & longer;
    }
    first
}

/// End of the word of up to `digits` numbers of which the first ends at `end`.
#[inline(always)]
fn end_of_numbers(classes: Classes, bytes: &[u8], mut end: usize, digits: usize) -> usize {
    for _ in 1..digits {
        match classes.at(bytes, end) {
            Some((NUMBER, len)) => end += len,
            _ => break,
        }
    }
    end
}

/// Where white space begins words, `\s*[\r\n]+|\s+(?!\S)|\s+`: up to its last line end, then up to its last character, then
/// that. `taken` are line ends that belong to what stands before them.
#[inline(always)]
fn first_white(block: &Block<'_>, taken: u64) -> u64 {
    let &Block { spaces, blanks, lines, .. } = block;
    let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
    let first = white & !taken & (!(white << 1) | taken << 1);
    let last_gaps = gaps & !(white >> 1) & block.all() >> 1;
    let after_line = gaps & lines << 1 & !before(gaps, lines) & !at_end(block, gaps);
    first | last_gaps | after_line
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

/// What a contraction is to the word it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contraction {
    /// All of it.
    Whole,
    /// Its end, behind letters.
    Tail,
}

/// Corrects `starts` for the contractions that begin at some of `apostrophes`: where they are a whole word, one begins at
/// each of these in any case; where they are a tail, one begins there only if nothing stands before it.
#[inline(always)]
fn contractions(
    block: &Block<'_>,
    mut apostrophes: u64,
    mut starts: u64,
    ignore_case: bool,
    kind: Contraction,
) -> u64 {
    let mut behind = None;
    while apostrophes != 0 {
        let at = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if kind == Contraction::Tail && behind == Some(at) {
            // What stands before is a contraction itself.
            continue;
        }
        let certain = low(at + usize::from(kind == Contraction::Whole));
        if at + 3 > block.bytes.len() {
            // Nobody knows yet what follows.
            starts &= certain;
        } else if let Some(end) = contraction(block.bytes, at, ignore_case) {
            let next = 1u64.checked_shl(end as u32).unwrap_or(0) & block.all();
            starts = starts & !(low(end) & !certain) | next;
            behind = Some(end);
        }
    }
    starts & !1
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`, in a text of which `next` gives the class and the length of a character.
#[inline(always)]
fn spaces_and_lines(next: impl Fn(usize) -> Option<(u8, usize)>, at: usize) -> usize {
    let (mut end, mut last) = (at, at);
    let mut after_line = None;
    while let Some((class, len)) = next(end) {
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
    use tokenizers::pre_tokenizers::digits::Digits;
    use tokenizers::pre_tokenizers::split::{Split as ReferenceSplit, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;
    use crate::masks::Portable;
    use crate::transform::text::testing::tricky;

    fn words<S: Split>(text: &str) -> Vec<&str> {
        words_with::<S>(Table::Plain, text)
    }

    fn words_with<S: Split>(table: Table, text: &str) -> Vec<&str> {
        let classes = Classes::get(table).unwrap();
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
        check_blocks_with::<S>(Table::Plain, text)
    }

    fn check_blocks_with<S: Split>(table: Table, text: &str) -> usize {
        let mut ends: Vec<usize> = vec![0];
        ends.extend(words_with::<S>(table, text).iter().scan(0, |at, word| {
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
        check_blocks::<Gpt2<false>>(text);
        check_blocks::<Gpt2<true>>(text);
        check_blocks::<Cl100k<3>>(text);
        check_blocks::<Cl100k<1>>(text);
        check_blocks::<O200k<3, true>>(text);
        check_blocks::<O200k<1, false>>(text);
        check_blocks_with::<DeepSeek>(Table::MarksAreLetters, text);
    }

    fn expected(split: &ReferenceSplit, text: &str) -> Vec<String> {
        expected_by(&[split], text)
    }

    fn expected_by(steps: &[&dyn PreTokenize], text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        steps.iter().for_each(|step| step.run(&mut pieces));
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(s, _, _)| s.to_owned()).collect()
    }

    /// [`PreTokenizer`], for any of them.
    trait PreTokenize {
        fn run(&self, pieces: &mut PreTokenizedString);
    }

    impl<T: PreTokenizer> PreTokenize for T {
        fn run(&self, pieces: &mut PreTokenizedString) {
            self.pre_tokenize(pieces).unwrap();
        }
    }

    fn reference(regex: &str) -> ReferenceSplit {
        ReferenceSplit::new(SplitPattern::Regex(regex.into()), SplitDelimiterBehavior::Isolated, false)
            .unwrap()
    }

    #[test]
    fn known_patterns_are_known_as_written() {
        for (regex, pattern, table) in [
            (GPT2, Pattern::Gpt2, Table::Plain),
            (CL100K, Pattern::Cl100k, Table::Plain),
            (QWEN2, Pattern::Qwen2, Table::Plain),
            (QWEN35, Pattern::Qwen2, Table::MarksAreLetters),
            (O200K, Pattern::O200k, Table::Plain),
            (TEKKEN, Pattern::Tekken, Table::Plain),
        ] {
            assert_eq!(Pattern::known(regex), Some((pattern, table)));
        }
        assert_eq!(Pattern::known(r"\s+"), None);
    }

    #[test]
    fn most_words_of_a_text_are_found_in_blocks() {
        let text =
            "It's 12345 o'clock (twelve), they'd say;\n\tif x >= 10:\r\n        return 'yes'  \n\n   no. "
                .repeat(5);
        for known in [
            check_blocks::<Gpt2<false>>(&text),
            check_blocks::<Gpt2<true>>(&text),
            check_blocks::<Cl100k<3>>(&text),
            check_blocks::<O200k<3, true>>(&text),
            check_blocks_with::<DeepSeek>(Table::MarksAreLetters, &text),
        ] {
            // From each word on, the words of up to 64 bytes.
            assert!(known > 10 * words::<Gpt2<false>>(&text).len(), "{known}");
        }
    }

    /// Checks what came after the first patterns.
    fn check_words_and_case(text: &str) -> Result<(), TestCaseError> {
        prop_assert_eq!(words::<O200k<3, true>>(text), expected(&reference(O200K), text));
        prop_assert_eq!(words::<O200k<1, false>>(text), expected(&reference(TEKKEN), text));
        let (numbers, gpt2) = (reference(r"\p{N}"), reference(GPT2));
        prop_assert_eq!(words::<Gpt2<true>>(text), expected_by(&[&numbers, &gpt2], text));
        let between_numeric = words_with::<Gpt2<true>>(Table::NumericAreNumbers, text);
        prop_assert_eq!(between_numeric, expected_by(&[&Digits::new(true), &gpt2], text));
        let [numbers, east, rest] = DEEPSEEK.map(reference);
        let deepseek = words_with::<DeepSeek>(Table::MarksAreLetters, text);
        prop_assert_eq!(deepseek, expected_by(&[&numbers, &east, &rest], text));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn words_end_where_the_regular_expression_says(text in tricky()) {
            prop_assert_eq!(words::<Gpt2<false>>(&text), expected(&reference(GPT2), &text));
            prop_assert_eq!(words::<Gpt2<false>>(&text), expected(&reference(GPT2_SHORT), &text));
            prop_assert_eq!(words::<Cl100k<3>>(&text), expected(&reference(CL100K), &text));
            prop_assert_eq!(words::<Cl100k<1>>(&text), expected(&reference(QWEN2), &text));
            let with_marks = words_with::<Cl100k<1>>(Table::MarksAreLetters, &text);
            prop_assert_eq!(with_marks, expected(&reference(QWEN35), &text));
            check_words_and_case(&text)?;
            check_all_blocks(&text);
        }

        #[test]
        fn words_end_where_their_case_changes(
            text in "([a-cA-C]|[ǅʰªƻΣσςßẞ語]|[\u{300}\u{345}\u{903}]|'(s|T|re|LL)|[ !/.'\t\r\n]|[0-9]{1,4}|[½²٣𑷠]|[・゜゙ナ漢〇\u{3040}«€\u{1}\u{200d}\u{ad}]){0,40}",
        ) {
            check_words_and_case(&text)?;
            let with_marks = words_with::<Cl100k<1>>(Table::MarksAreLetters, &text);
            prop_assert_eq!(with_marks, expected(&reference(QWEN35), &text));
        }

        #[test]
        fn blocks_have_the_same_words(
            text in "([ \\t\\r\\n\\x0b'()/.,\u{1}\u{7f}a-eA-CST]|'[stdmSRVL]|'(re|LL|ve)|[0-9]{1,9}| {1,5}|\n +|[!/]\n[/\n]{1,4}|é|\u{a0}){0,120}",
        ) {
            check_all_blocks(&text);
        }
    }
}
