//! Comparing what was encoded with the reference: whole documents, and windows of long ones, because the reference takes
//! some 150 bytes of memory for each byte of its text.
//!
//! A window is some pieces of a document in a row, and shares its last piece with the next window. So the reference sees
//! every place where pieces meet from both sides; only where a window itself begins and ends does it rely on what the
//! engine says of the places where a text can be divided.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::pieces::{PIECE_BYTES, Piece};
use super::{EncodeStats, Scratch, Tokenizer};
use crate::sample::Ids;

/// Pieces of a window.
const WINDOW_PIECES: usize = 4;

/// Bytes of the longest document that is compared as a whole although it could be divided.
const WHOLE_BYTES: usize = WINDOW_PIECES * PIECE_BYTES;

/// What became of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Bytes that the reference encoded.
    pub bytes: u64,
    /// Something was chosen that is longer than what the reference may encode, and could not be divided.
    pub too_long: bool,
    /// The ids were those of the reference wherever it was asked.
    pub is_right: bool,
}

impl Tokenizer {
    /// Whether the document whose key hashes to `key_hash` (64 well-mixed bits) is to be checked with
    /// [`matches_reference`](Self::matches_reference). Never, when the reference makes the ids anyway.
    pub fn should_verify(&self, key_hash: u64) -> bool {
        self.fast.is_some() && self.options.verify.selects(key_hash)
    }

    /// Whether the reference gives exactly `ids` for `text`; a text that the reference rejects gives no ids.
    pub fn matches_reference(
        &self,
        text: &str,
        ids: impl IntoIterator<Item = u32>,
        scratch: &mut Scratch,
    ) -> bool {
        let mut expected = Vec::new();
        self.encode_reference(text, scratch, &mut expected).is_ok() && ids.into_iter().eq(expected)
    }

    /// Compares the `ids` that [`encode`](Self::encode) gave for `text`, and said `stats` of, with the reference, as much
    /// of them as [`verify`](super::TokenizerOptions::verify) asks for. `key_hash` (64 well-mixed bits) decides what that
    /// is.
    pub fn verify(
        &self,
        key_hash: u64,
        text: &str,
        ids: &Ids,
        stats: &EncodeStats,
        scratch: &mut Scratch,
    ) -> Verified {
        let mut verified = Verified { bytes: 0, too_long: false, is_right: true };
        if stats.by_reference {
            return verified;
        }
        if text.len() <= WHOLE_BYTES || stats.pieces.len() < 2 {
            if self.should_verify(key_hash) && verified.may_ask(self, text) {
                verified.is_right = self.matches_reference(text, ids.iter(), scratch);
            }
            return verified;
        }
        for (number, window) in windows(&stats.pieces).enumerate() {
            let hash = match number {
                0 => key_hash,
                _ => xxh3_64_with_seed(&key_hash.to_le_bytes(), number as u64),
            };
            let text = text.get(window.text).unwrap_or_default();
            if self.should_verify(hash) && verified.may_ask(self, text) {
                let ids = ids.copy_of(window.ids);
                verified.is_right &= ids.is_some_and(|ids| self.is_encoded_by_reference(text, &ids, scratch));
            }
        }
        verified
    }

    /// Whether the reference gives exactly `ids` for a part of a text, around which nothing is added.
    fn is_encoded_by_reference(&self, text: &str, ids: &Ids, scratch: &mut Scratch) -> bool {
        let mut expected = Vec::new();
        self.reference.engine().encode(text, scratch, &mut expected).is_ok() && ids.iter().eq(expected)
    }
}

impl Verified {
    /// Counts `text`, if the reference may encode it.
    fn may_ask(&mut self, tokenizer: &Tokenizer, text: &str) -> bool {
        let may = tokenizer.is_for_reference(text);
        match may {
            true => self.bytes += text.len() as u64,
            false => self.too_long = true,
        }
        may
    }
}

/// The windows of a document of more than one piece.
fn windows(pieces: &[Piece]) -> impl Iterator<Item = Piece> {
    let last = pieces.len().saturating_sub(1);
    (0..last).step_by(WINDOW_PIECES - 1).filter_map(move |from| {
        let (first, last) = (pieces.get(from)?, pieces.get((from + WINDOW_PIECES - 1).min(last))?);
        Some(Piece { text: first.text.start..last.text.end, ids: first.ids.start..last.ids.end })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::RejectCode;
    use crate::transform::text::testing::{PAGE, bpe, bytes, unigram};
    use crate::transform::text::{EngineChoice, TokenizerOptions, Verify};

    fn all(max_reference_bytes: Option<u64>) -> TokenizerOptions {
        TokenizerOptions { verify: Verify::All, max_reference_bytes, ..Default::default() }
    }

    #[test]
    fn windows_share_a_piece_and_leave_none_out() {
        let piece = |n: usize| Piece { text: 10 * n..10 * n + 9, ids: 3 * n..3 * n + 3 };
        for count in 2..20 {
            let pieces: Vec<Piece> = (0..count).map(piece).collect();
            let windows: Vec<Piece> = windows(&pieces).collect();
            assert_eq!(windows.first().map(|w| (w.text.start, w.ids.start)), Some((0, 0)));
            assert_eq!(windows.last().map(|w| (w.text.end, w.ids.end)), Some((10 * count - 1, 3 * count)));
            for pair in windows.windows(2) {
                assert_eq!(
                    (pair[0].text.end, pair[0].ids.end),
                    (pair[1].text.start + 9, pair[1].ids.start + 3)
                );
            }
            assert!(windows.iter().all(|w| w.ids.len() <= 3 * WINDOW_PIECES));
        }
    }

    #[test]
    fn a_long_document_is_compared_window_by_window_and_all_of_it() {
        let text = PAGE.repeat(7 * WHOLE_BYTES / 4 / PAGE.len());
        for value in [bpe(), unigram()] {
            let mut options = all(Some(2 * WHOLE_BYTES as u64));
            options.add_eos = value == bpe();
            let tokenizer = Tokenizer::from_json(bytes(&value), options).unwrap();
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert!(stats.pieces.len() > WINDOW_PIECES);
            let mut verify = |ids: &[u32]| {
                let packed = Ids::pack(tokenizer.id_width(), ids).unwrap();
                tokenizer.verify(7, &text, &packed, &stats, &mut scratch)
            };
            let verified = verify(&ids);
            assert!(verified.is_right && !verified.too_long && verified.bytes > text.len() as u64);
            let windows: Vec<Piece> = windows(&stats.pieces).collect();
            assert_eq!(windows.len(), 2);
            for at in [0, windows[0].ids.end, windows[1].ids.end - 1] {
                let mut wrong = ids.clone();
                wrong[at] ^= 1;
                assert!(!verify(&wrong).is_right, "{at}");
            }
        }
    }

    #[test]
    fn what_is_too_long_for_the_reference_is_not_compared_and_not_left_to_it() {
        let text = "thedog".repeat(100_000);
        let mut ids = Vec::new();
        for most in [text.len() as u64 - 1, text.len() as u64] {
            let tokenizer = Tokenizer::from_json(bytes(&bpe()), all(Some(most))).unwrap();
            let mut scratch = tokenizer.scratch();
            ids.clear();
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            let packed = Ids::pack(tokenizer.id_width(), &ids).unwrap();
            let verified = tokenizer.verify(0, &text, &packed, &stats, &mut scratch);
            let fits = most == text.len() as u64;
            assert_eq!((verified.too_long, verified.bytes > 0, verified.is_right), (!fits, fits, true));

            let options = TokenizerOptions { engine: EngineChoice::Reference, ..all(Some(most)) };
            let tokenizer = Tokenizer::from_json(bytes(&bpe()), options).unwrap();
            match tokenizer.encode(&text, &mut scratch, &mut Vec::new()) {
                Ok(_) => assert!(fits),
                Err(reject) => {
                    assert_eq!((fits, reject.code), (false, RejectCode::TooLarge));
                    assert!(reject.message.contains("--max-reference-bytes"), "{}", reject.message);
                }
            }
        }
    }
}
