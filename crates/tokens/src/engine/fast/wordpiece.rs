//! Hand-written WordPiece model: greedy longest match.

use std::sync::LazyLock;

use tokenizers::Model as _;
use tokenizers::models::wordpiece::WordPiece as Model;
use unicode_categories::UnicodeCategories;

use super::bytemap::ByteMap;

/// A WordPiece model.
pub(super) struct WordPiece {
    /// Every token, for the start of a word.
    first: ByteMap,
    /// Tokens that continue a word, without their prefix.
    later: ByteMap,
    unk: u32,
    max_chars: usize,
}

impl WordPiece {
    /// Builds the tables of `model`; `None` if its unknown token is not in the vocabulary.
    pub(super) fn new(model: &Model) -> Option<Self> {
        let vocab = model.get_vocab();
        let prefix = model.continuing_subword_prefix.as_str();
        let later = vocab.iter().filter_map(|(token, &id)| Some((token.strip_prefix(prefix)?, id)));
        Some(Self {
            later: ByteMap::new(later),
            first: ByteMap::new(vocab.iter().map(|(token, &id)| (token, id))),
            unk: *vocab.get(&model.unk_token)?,
            max_chars: model.max_input_chars_per_word,
        })
    }

    /// Appends the ids of `word`.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) {
        let before = out.len();
        // Characters need to be counted only if there are more bytes than the limit.
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

/// Whether each ASCII character is punctuation according to BERT.
static ASCII: LazyLock<[bool; 128]> = LazyLock::new(|| {
    std::array::from_fn(|b| {
        char::from(b as u8).is_ascii_punctuation() || char::from(b as u8).is_punctuation()
    })
});

/// Returns whether a character is punctuation according to `BertPreTokenizer` and `Punctuation`.
pub(super) fn is_punctuation(c: char) -> bool {
    match ASCII.get(c as usize) {
        Some(&known) => known,
        None => c.is_punctuation(),
    }
}
