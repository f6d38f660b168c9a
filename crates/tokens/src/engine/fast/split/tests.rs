//! Tests of every splitter against its regular expression, and of block splitting against word-by-word splitting.

use proptest::prelude::*;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::split::{Split as ReferenceSplit, SplitPattern};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use crate::masks::Portable;

use super::cl100k::Cl100k;
use super::deepseek::DeepSeek;
use super::gpt2::Gpt2;
use super::o200k::O200k;
use super::pattern::{CL100K, DEEPSEEK, GPT2, GPT2_SHORT, O200K, Pattern, QWEN2, QWEN35, TEKKEN};
use super::steps::Split;
use crate::engine::fast::block::AsciiBlock;
use crate::engine::fast::classes::{ClassTable, Classes};
use crate::testing::tricky;

fn words<S: Split>(text: &str) -> Vec<&str> {
    words_with::<S>(ClassTable::Plain, text)
}

fn words_with<S: Split>(table: ClassTable, text: &str) -> Vec<&str> {
    let classes = Classes::get(table).unwrap();
    let (mut at, mut words) = (0, Vec::new());
    while at < text.len() {
        let end = S::end(classes, text.as_bytes(), at);
        words.push(&text[at..end]);
        at = end;
    }
    words
}

/// Checks that from each word on, the consecutive words found in the block are those of `text`. Returns their total
/// number.
fn check_blocks<S: Split>(text: &str) -> usize {
    check_blocks_with::<S>(ClassTable::Plain, text)
}

fn check_blocks_with<S: Split>(table: ClassTable, text: &str) -> usize {
    let mut ends: Vec<usize> = vec![0];
    ends.extend(words_with::<S>(table, text).iter().scan(0, |at, word| {
        *at += word.len();
        Some(*at)
    }));
    let mut known = 0;
    for (i, &at) in ends.iter().enumerate() {
        let Some(block) = AsciiBlock::at(Portable, text.as_bytes(), at) else { continue };
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
    check_blocks_with::<DeepSeek>(ClassTable::MarksAreLetters, text);
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

/// Object-safe version of [`PreTokenizer`].
trait PreTokenize {
    fn run(&self, pieces: &mut PreTokenizedString);
}

impl<T: PreTokenizer> PreTokenize for T {
    fn run(&self, pieces: &mut PreTokenizedString) {
        self.pre_tokenize(pieces).unwrap();
    }
}

fn reference(regex: &str) -> ReferenceSplit {
    ReferenceSplit::new(SplitPattern::Regex(regex.into()), SplitDelimiterBehavior::Isolated, false).unwrap()
}

#[test]
fn known_patterns_are_recognized() {
    for (regex, pattern, table) in [
        (GPT2, Pattern::Gpt2, ClassTable::Plain),
        (CL100K, Pattern::Cl100k, ClassTable::Plain),
        (QWEN2, Pattern::Qwen2, ClassTable::Plain),
        (QWEN35, Pattern::Qwen2, ClassTable::MarksAreLetters),
        (O200K, Pattern::O200k, ClassTable::Plain),
        (TEKKEN, Pattern::Tekken, ClassTable::Plain),
    ] {
        assert_eq!(Pattern::known(regex), Some((pattern, table)));
    }
    assert_eq!(Pattern::known(r"\s+"), None);
}

#[test]
fn most_words_of_a_text_are_found_in_blocks() {
    let text = "It's 12345 o'clock (twelve), they'd say;\n\tif x >= 10:\r\n        return 'yes'  \n\n   no. "
        .repeat(5);
    for known in [
        check_blocks::<Gpt2<false>>(&text),
        check_blocks::<Gpt2<true>>(&text),
        check_blocks::<Cl100k<3>>(&text),
        check_blocks::<O200k<3, true>>(&text),
        check_blocks_with::<DeepSeek>(ClassTable::MarksAreLetters, &text),
    ] {
        // From each word on, a block contains the words in up to 64 bytes.
        assert!(known > 10 * words::<Gpt2<false>>(&text).len(), "{known}");
    }
}

/// Checks the O200K, Tekken, StarCoder and DeepSeek patterns.
fn check_words_and_case(text: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(words::<O200k<3, true>>(text), expected(&reference(O200K), text));
    prop_assert_eq!(words::<O200k<1, false>>(text), expected(&reference(TEKKEN), text));
    let (numbers, gpt2) = (reference(r"\p{N}"), reference(GPT2));
    prop_assert_eq!(words::<Gpt2<true>>(text), expected_by(&[&numbers, &gpt2], text));
    let between_numeric = words_with::<Gpt2<true>>(ClassTable::NumericAreNumbers, text);
    prop_assert_eq!(between_numeric, expected_by(&[&Digits::new(true), &gpt2], text));
    let [numbers, east, rest] = DEEPSEEK.map(reference);
    let deepseek = words_with::<DeepSeek>(ClassTable::MarksAreLetters, text);
    prop_assert_eq!(deepseek, expected_by(&[&numbers, &east, &rest], text));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn words_are_those_of_the_regular_expression(text in tricky()) {
        prop_assert_eq!(words::<Gpt2<false>>(&text), expected(&reference(GPT2), &text));
        prop_assert_eq!(words::<Gpt2<false>>(&text), expected(&reference(GPT2_SHORT), &text));
        prop_assert_eq!(words::<Cl100k<3>>(&text), expected(&reference(CL100K), &text));
        prop_assert_eq!(words::<Cl100k<1>>(&text), expected(&reference(QWEN2), &text));
        let with_marks = words_with::<Cl100k<1>>(ClassTable::MarksAreLetters, &text);
        prop_assert_eq!(with_marks, expected(&reference(QWEN35), &text));
        check_words_and_case(&text)?;
        check_all_blocks(&text);
    }

    #[test]
    fn words_end_where_their_case_changes(
        text in "([a-cA-C]|[ǅʰªƻΣσςßẞ語]|[\u{300}\u{345}\u{903}]|'(s|T|re|LL)|[ !/.'\t\r\n]|[0-9]{1,4}|[½²٣𑷠]|[・゜゙ナ漢〇\u{3040}«€\u{1}\u{200d}\u{ad}]){0,40}",
    ) {
        check_words_and_case(&text)?;
        let with_marks = words_with::<Cl100k<1>>(ClassTable::MarksAreLetters, &text);
        prop_assert_eq!(with_marks, expected(&reference(QWEN35), &text));
    }

    #[test]
    fn blocks_have_the_same_words(
        text in "([ \\t\\r\\n\\x0b'()/.,\u{1}\u{7f}a-eA-CST]|'[stdmSRVL]|'(re|LL|ve)|[0-9]{1,9}| {1,5}|\n +|[!/]\n[/\n]{1,4}|é|\u{a0}){0,120}",
    ) {
        check_all_blocks(&text);
    }
}
