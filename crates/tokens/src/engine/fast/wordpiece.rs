//! BERT, hand-written, for chunks that are not cached: normalization without tracking offsets, then greedy longest match.

use std::sync::LazyLock;

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{Model, ModelWrapper, Tokenizer};
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::UnicodeNormalization;

use super::bytemap::ByteMap;
use super::chinese::is_chinese;

/// `BertNormalizer`, `BertPreTokenizer` and a WordPiece model.
pub(super) struct WordPiece {
    normalizer: Option<Flags>,
    /// Every token, for the start of a word.
    first: ByteMap,
    /// Tokens that continue a word, without their prefix.
    later: ByteMap,
    unk: u32,
    max_chars: usize,
}

/// The flags of a `BertNormalizer`.
#[derive(Clone, Copy)]
struct Flags {
    clean: bool,
    chinese: bool,
    strip: bool,
    lowercase: bool,
}

impl WordPiece {
    /// The parts of `tokenizer`, if they are those; its pre-tokenizer is known to be BERT's.
    pub(super) fn new(tokenizer: &Tokenizer) -> Option<Self> {
        let ModelWrapper::WordPiece(model) = tokenizer.get_model() else { return None };
        let normalizer = match tokenizer.get_normalizer() {
            None => None,
            Some(NormalizerWrapper::BertNormalizer(n)) => Some(Flags {
                clean: n.clean_text,
                chinese: n.handle_chinese_chars,
                strip: n.strip_accents.unwrap_or(n.lowercase),
                lowercase: n.lowercase,
            }),
            Some(_) => return None,
        };
        let vocab = model.get_vocab();
        let prefix = model.continuing_subword_prefix.as_str();
        let later = vocab.iter().filter_map(|(token, &id)| Some((token.strip_prefix(prefix)?, id)));
        Some(Self {
            normalizer,
            later: ByteMap::new(later),
            first: ByteMap::new(vocab.iter().map(|(token, &id)| (token, id))),
            unk: *vocab.get(&model.unk_token)?,
            max_chars: model.max_input_chars_per_word,
        })
    }

    /// Appends the ids of `chunk`.
    pub(super) fn encode(&self, chunk: &str, out: &mut Vec<u32>) {
        let normalized = match self.normalizer {
            Some(flags) => flags.normalize(chunk),
            None => chunk.to_owned(),
        };
        for run in normalized.split(char::is_whitespace) {
            let mut start = 0;
            for (at, c) in run.char_indices().filter(|(_, c)| is_punctuation(*c)) {
                self.word(&run[start..at], out);
                start = at + c.len_utf8();
                self.word(&run[at..start], out);
            }
            self.word(&run[start..], out);
        }
    }

    fn word(&self, word: &str, out: &mut Vec<u32>) {
        let before = out.len();
        // A word of so few bytes has no more characters.
        if word.len() > self.max_chars && word.chars().count() > self.max_chars {
            out.push(self.unk);
            return;
        }
        let mut start = 0;
        while start < word.len() {
            let pieces = if start == 0 { &self.first } else { &self.later };
            let mut end = word.floor_char_boundary(start + pieces.longest());
            let id = loop {
                if end <= start {
                    break None;
                }
                if let Some(id) = pieces.get(&word.as_bytes()[start..end]) {
                    break Some(id);
                }
                end = word.floor_char_boundary(end - 1);
            };
            let Some(id) = id else {
                out.truncate(before);
                out.push(self.unk);
                return;
            };
            out.push(id);
            start = end;
        }
    }
}

impl Flags {
    fn normalize(self, chunk: &str) -> String {
        if chunk.bytes().all(|b| b.is_ascii_graphic()) {
            // Nothing to clean, isolate or strip.
            return if self.lowercase { chunk.to_ascii_lowercase() } else { chunk.to_owned() };
        }
        let mut text = String::with_capacity(chunk.len() + 8);
        for c in chunk.chars() {
            if self.clean && (c == '\0' || c == '\u{fffd}' || is_control(c)) {
                continue;
            }
            let c = if self.clean && c.is_whitespace() { ' ' } else { c };
            if self.chinese && is_chinese(u32::from(c)) {
                text.extend([' ', c, ' ']);
            } else {
                text.push(c);
            }
        }
        if self.strip {
            text = text.nfd().map(|(c, _)| c).filter(|c| !c.is_mark_nonspacing()).collect();
        }
        if self.lowercase {
            // Character by character: a final sigma is not special.
            text = text.chars().flat_map(char::to_lowercase).collect();
        }
        text
    }
}

/// Unassigned, control, format and private characters of old Unicode tables, those of the reference.
fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r') && c.is_other()
}

/// Whether each ASCII character is punctuation to BERT.
static ASCII: LazyLock<[bool; 128]> = LazyLock::new(|| {
    std::array::from_fn(|b| {
        char::from(b as u8).is_ascii_punctuation() || char::from(b as u8).is_punctuation()
    })
});

fn is_punctuation(c: char) -> bool {
    match ASCII.get(c as usize) {
        Some(&known) => known,
        None => c.is_punctuation(),
    }
}
