//! Byte-level BPE of words that may be cut again after the conversion to bytes (Falcon).

use super::bpe::{Bpe, InverseAlphabet, byte_alphabet};
use super::cache::WordEncoder;
use super::pre_tokenizer::{PatternCut, cut};
use super::stop::EngineStop;
use crate::error::EncodeError;

/// The model, and the cuts applied to words before it.
pub(super) struct ByteWords {
    bpe: Bpe,
    /// Cuts of a word whose bytes are written as printable characters. Empty for most tokenizers.
    cuts: Vec<PatternCut>,
    alphabet: [char; 256],
    byte_of: InverseAlphabet,
}

impl ByteWords {
    pub(super) fn new(bpe: Bpe, cuts: Vec<PatternCut>) -> Self {
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
