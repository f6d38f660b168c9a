//! The fast engine for byte-level BPE: hand-written splitters, cached words, array merges.

use std::marker::PhantomData;
use std::ops::Range;

use super::added::AddedTokens;
use super::block::AsciiBlock;
use super::bpe::{Bpe, InverseAlphabet, byte_alphabet};
use super::buffers::Buffers;
use super::cache::{WordCache, WordEncoder};
use super::classes::{AS_LOWER, AS_UPPER, Classes, LETTER};
use super::engine_parts::EngineParts;
use super::lengths::{TokenLengths, WrittenPiece};
use super::normalizer::Normalizer;
use super::pre_tokenizer::{PatternCut, PreTokenizer, cut};
use super::split::cl100k::Cl100k;
use super::split::deepseek::DeepSeek;
use super::split::gpt2::Gpt2;
use super::split::o200k::O200k;
use super::split::pattern::Pattern;
use super::split::steps::Split;
use super::stop::{EngineStop, finish};
use crate::cuts::Trim;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::masks::{ByteMasks, Kernel, dispatch};
use crate::scratch::Scratch;

/// The engine for byte-level BPE.
pub(super) struct ByteLevel {
    classes: Classes,
    raw: AddedTokens,
    normalized: AddedTokens,
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    words: ByteWords,
    lengths: TokenLengths,
    trim: Trim,
}

impl ByteLevel {
    /// Creates an engine for the tokenizer. The error states why there is none.
    pub(super) fn new(parts: &EngineParts<'_>, bpe: Bpe, lengths: TokenLengths) -> Result<Self, String> {
        let normalizer = Normalizer::new(parts.reference.parts().get_normalizer());
        if !normalizer.is_bounded() {
            return Err("the normalizer is not supported".to_owned());
        }
        let mut pre_tokenizer =
            PreTokenizer::read(&parts.outline.pre_tokenizer).ok_or("the pre-tokenizer is not supported")?;
        let words = ByteWords::new(bpe, std::mem::take(&mut pre_tokenizer.cuts_of_bytes));
        let (raw, normalized) = AddedTokens::both(parts.reference.parts(), parts.parse_special)?;
        let classes = Classes::get(pre_tokenizer.table).ok_or("the Unicode tables cannot be built")?;
        let trim = Trim::of(parts.reference.parts().get_post_processor());
        Ok(Self { classes, raw, normalized, normalizer, pre_tokenizer, words, lengths, trim })
    }

    fn piece(&self, piece: &str, buffers: &mut Buffers, out: &mut Vec<u32>) -> Result<(), EngineStop> {
        let Buffers { words, normalizer, prefixed, .. } = buffers;
        let piece = self.normalizer.normalize(piece, normalizer)?;
        self.normalized.encode(piece, out, |text, _, out| self.between_tokens(text, words, prefixed, out))
    }

    /// Appends the ids of a text between added tokens.
    fn between_tokens(
        &self,
        text: &str,
        words: &mut WordCache,
        prefixed: &mut String,
        out: &mut Vec<u32>,
    ) -> Result<(), EngineStop> {
        let text = if self.is_prefixed(text) {
            prefixed.clear();
            prefixed.push(' ');
            prefixed.push_str(text);
            prefixed.as_str()
        } else {
            text
        };
        self.pre_tokenizer.pieces(text, |piece| self.split(piece, words, out))
    }

    /// Returns whether a space is prepended to a text between added tokens.
    fn is_prefixed(&self, text: &str) -> bool {
        self.pre_tokenizer.add_prefix_space && !text.starts_with(' ')
    }

    /// Appends the ids of a piece, which is split independently of its neighbors.
    fn split(&self, piece: &str, words: &mut WordCache, out: &mut Vec<u32>) -> Result<(), EngineStop> {
        match self.pre_tokenizer.pattern {
            Pattern::Gpt2 => self.words::<Gpt2<false>>(piece, words, out),
            Pattern::Gpt2BetweenNumbers => self.words::<Gpt2<true>>(piece, words, out),
            Pattern::Cl100k => self.words::<Cl100k<3>>(piece, words, out),
            Pattern::Qwen2 => self.words::<Cl100k<1>>(piece, words, out),
            Pattern::O200k => self.words::<O200k<3, true>>(piece, words, out),
            Pattern::Tekken => self.words::<O200k<1, false>>(piece, words, out),
            Pattern::DeepSeek => self.words::<DeepSeek>(piece, words, out),
            Pattern::Whole if piece.is_empty() => Ok(()),
            Pattern::Whole => Ok(words.append(&self.words, piece.as_bytes(), 0, piece.len(), out)?),
        }
    }

    fn words<S: Split>(
        &self,
        text: &str,
        words: &mut WordCache,
        out: &mut Vec<u32>,
    ) -> Result<(), EngineStop> {
        dispatch(InWords {
            bytes: text.as_bytes(),
            classes: self.classes,
            encoder: &self.words,
            words,
            out,
            split: PhantomData::<S>,
        })
    }
}

/// Kernel that splits a text into words and appends their ids.
struct InWords<'a, S> {
    bytes: &'a [u8],
    classes: Classes,
    encoder: &'a ByteWords,
    words: &'a mut WordCache,
    out: &'a mut Vec<u32>,
    split: PhantomData<S>,
}

impl<S: Split> Kernel for InWords<'_, S> {
    type Output = Result<(), EngineStop>;

    #[inline(always)]
    fn run(self, masks: impl ByteMasks) -> Self::Output {
        let Self { bytes, classes, encoder, words, out, .. } = self;
        let mut at = 0;
        while at < bytes.len() {
            let ends = match AsciiBlock::at(masks, bytes, at) {
                Some(block) => S::starts(&block),
                None => 0,
            };
            if ends != 0 {
                at = words.append_words(encoder, bytes, at, ends, out)?;
                continue;
            }
            let end = S::end(classes, bytes, at);
            words.append(encoder, bytes, at, end, out)?;
            at = end;
        }
        Ok(())
    }
}

impl Engine for ByteLevel {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("byte-level BPE")
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let buffers = scratch.buffers();
        let result = self.raw.encode(text, out, |piece, _, out| self.piece(piece, buffers, out));
        buffers.trim();
        finish(result, before, out)
    }

    fn encode_piece(
        &self,
        piece: &str,
        _: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let buffers = scratch.buffers();
        let result = if self.normalizer.is_nfc() {
            let Buffers { words, normalizer, prefixed, .. } = &mut *buffers;
            let piece = self.normalizer.normalize(piece, normalizer)?;
            self.between_tokens(piece, words, prefixed, out)
        } else {
            self.piece(piece, buffers, out)
        };
        buffers.trim();
        finish(result, before, out)
    }

    fn ranges(
        &self,
        text: &str,
        range: Range<usize>,
        ids: &[u32],
        scratch: &mut Scratch,
        out: &mut Vec<Range<u32>>,
    ) -> bool {
        let piece = text.get(range.clone()).unwrap_or_default();
        // A space may be prepended after each added token in the normalized piece.
        let may_add_spaces = self.pre_tokenizer.add_prefix_space && !self.normalized.is_empty();
        if may_add_spaces && !self.normalizer.is_nfc() {
            return false;
        }
        let Some(changes) = self.normalizer.changes(piece, &mut scratch.buffers().normalizer) else {
            return false;
        };
        let has_prefix = self.is_prefixed(piece);
        self.lengths.ranges(&WrittenPiece { text, range, has_prefix, changes }, self.trim, ids, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        if !self.pre_tokenizer.splits_after_letters() || !self.normalizer.is_nfc() {
            return None;
        }
        let bytes = text.as_bytes();
        let mut at = (from..text.len()).find(|&at| text.is_char_boundary(at))?;
        let mut is_after_letter = false;
        while let Some((class, more, len)) = self.classes.both_at(bytes, at) {
            if is_after_letter && self.starts_word(class, more, bytes[at - 1], bytes[at]) {
                return Some(at..at);
            }
            is_after_letter = class == LETTER;
            at += len;
        }
        None
    }
}

impl ByteLevel {
    /// Returns whether a text can be divided before a character that follows a letter: the words on each side do not
    /// depend on the other side. This holds if the character is neither a letter nor attached to one, and no added
    /// token contains both. `class` and `more` are the character's class and flags; `left` and `right` are the bytes
    /// before and after the position.
    fn starts_word(&self, class: u8, more: u8, left: u8, right: u8) -> bool {
        let is_mark = more & (AS_UPPER | AS_LOWER) != 0;
        // A normal form does not change ASCII; other characters may be normalized into a part of a token.
        let is_as_written =
            self.normalizer.is_empty() || self.normalized.is_empty() || (left.is_ascii() && right.is_ascii());
        let is_word = class != LETTER && !is_mark && right != b'\'' && is_as_written;
        let is_prefixed = self.pre_tokenizer.add_prefix_space && right != b' ';
        is_word
            && !is_prefixed
            && [&self.raw, &self.normalized].iter().all(|stage| !stage.is_across(left, right))
    }
}

/// The model, and the cuts applied to words before it. Words may be cut again after the conversion to bytes (Falcon).
struct ByteWords {
    bpe: Bpe,
    /// Cuts of a word whose bytes are written as printable characters. Empty for most tokenizers.
    cuts: Vec<PatternCut>,
    alphabet: [char; 256],
    byte_of: InverseAlphabet,
}

impl ByteWords {
    fn new(bpe: Bpe, cuts: Vec<PatternCut>) -> Self {
        let alphabet = byte_alphabet();
        Self { bpe, cuts, byte_of: InverseAlphabet::new(&alphabet), alphabet }
    }
}

impl WordEncoder for ByteWords {
    #[inline]
    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        if self.cuts.is_empty() {
            return self.bpe.encode_word(word, out);
        }
        let written: String = word.iter().map(|&byte| self.alphabet[byte as usize]).collect();
        let mut bytes = Vec::with_capacity(word.len());
        let result = cut(&self.cuts, &written, &mut |piece| {
            bytes.clear();
            bytes.extend(piece.chars().filter_map(|c| self.byte_of.get(Some(c))));
            Ok(self.bpe.encode_word(&bytes, out)?)
        });
        match result {
            Err(EngineStop::Failed(error)) => Err(error),
            Ok(()) | Err(EngineStop::NeedsReference) => Ok(()),
        }
    }
}
