//! Comparison of ids with the reference. Long texts are compared in windows, because the reference needs about 150
//! bytes of memory per byte of text.
//!
//! A window is a run of consecutive segments that shares its last segment with the next window. Therefore every
//! boundary between segments lies inside a window. Only at its two ends does a window rely on the engine, which
//! determines where a text can be divided.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::EncodeError;
use crate::ids::IdSource;
use crate::scratch::Scratch;
use crate::segments::SEGMENT_BYTES;
use crate::stats::{EncodeStats, Segment};
use crate::tokenizer::Tokenizer;

/// Number of segments in a window.
const WINDOW_SEGMENTS: usize = 4;

/// Maximum size in bytes of a document that is compared as a whole although it could be divided.
const WHOLE_BYTES: usize = WINDOW_SEGMENTS * SEGMENT_BYTES;

/// The result of [`Tokenizer::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Number of bytes encoded by the reference.
    pub bytes: u64,
    /// Whether a selected text or window was not compared, because it is above
    /// [`max_reference_bytes`](crate::TokenizerOptions::max_reference_bytes) or beyond the
    /// [limit](EncodeError::PatternLimit) of a regular expression.
    pub too_long: bool,
    /// Whether all compared ids equal those of the reference.
    pub is_right: bool,
}

impl Tokenizer {
    /// Returns whether [`TokenizerOptions::verify`](crate::TokenizerOptions::verify) selects the text identified by
    /// `key_hash` (64 well-mixed bits). Always false if the tokenizer has no fast engine.
    pub fn should_verify(&self, key_hash: u64) -> bool {
        self.fast.is_some() && self.options.verify.selects(key_hash)
    }

    /// Compares `ids` with the reference. `ids` and `stats` are the results of [`encode`](Self::encode) for `text`.
    ///
    /// [`TokenizerOptions::verify`](crate::TokenizerOptions::verify) and `key_hash`, 64 well-mixed bits that identify
    /// the text, select whether the text, or which windows of a long text, are compared. Most calls compare nothing and
    /// cost almost nothing.
    pub fn verify(
        &self,
        key_hash: u64,
        text: &str,
        ids: &(impl IdSource + ?Sized),
        stats: &EncodeStats,
        scratch: &mut Scratch,
    ) -> Verified {
        let mut verified = Verified { bytes: 0, too_long: false, is_right: true };
        if stats.by_reference {
            return verified;
        }
        if text.len() <= WHOLE_BYTES || stats.segments.len() < 2 {
            if self.should_verify(key_hash) && verified.admit(self, text) {
                let mut expected = Vec::new();
                let encoded = self.encode_reference(text, scratch, &mut expected).map(drop);
                verified.compare(text, encoded, || {
                    ids.id_count() == expected.len() && ids.is_equal(0..expected.len(), &expected)
                });
            }
            return verified;
        }
        for (number, window) in windows(&stats.segments).enumerate() {
            let hash = match number {
                0 => key_hash,
                _ => xxh3_64_with_seed(&key_hash.to_le_bytes(), number as u64),
            };
            let text = text.get(window.text).unwrap_or_default();
            if self.should_verify(hash) && verified.admit(self, text) {
                // Nothing is added around a window.
                let mut expected = Vec::new();
                let encoded = self.reference.engine().encode(text, scratch, &mut expected).map(drop);
                verified.compare(text, encoded, || ids.is_equal(window.ids, &expected));
            }
        }
        verified
    }
}

impl Verified {
    /// Returns whether the reference may encode `text`, and counts its bytes or records that it is too long.
    pub(crate) fn admit(&mut self, tokenizer: &Tokenizer, text: &str) -> bool {
        let may = tokenizer.is_for_reference(text);
        match may {
            true => self.bytes += text.len() as u64,
            false => self.too_long = true,
        }
        may
    }

    /// Records the result for `text`, which the reference has `encoded`.
    pub(crate) fn compare(
        &mut self,
        text: &str,
        encoded: Result<(), EncodeError>,
        is_equal: impl FnOnce() -> bool,
    ) {
        match encoded {
            Ok(()) => self.is_right &= is_equal(),
            // A hand-written splitter has no such limit.
            Err(EncodeError::PatternLimit(_)) => {
                self.bytes -= text.len() as u64;
                self.too_long = true;
            }
            Err(_) => self.is_right = false,
        }
    }
}

/// Returns the windows of a document with more than one segment.
fn windows(segments: &[Segment]) -> impl Iterator<Item = Segment> {
    let last = segments.len().saturating_sub(1);
    (0..last).step_by(WINDOW_SEGMENTS - 1).filter_map(move |from| {
        let (first, last) = (segments.get(from)?, segments.get((from + WINDOW_SEGMENTS - 1).min(last))?);
        Some(Segment { text: first.text.start..last.text.end, ids: first.ids.start..last.ids.end })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fast::split::pattern::CL100K;
    use crate::testing::{PAGE, bpe, bpe_with_pattern, bytes, unigram};
    use crate::{EngineChoice, TokenizerOptions, Verify};

    fn all(max_reference_bytes: Option<u64>) -> TokenizerOptions {
        TokenizerOptions { verify: Verify::All, max_reference_bytes, ..Default::default() }
    }

    #[test]
    fn windows_overlap_by_a_segment_and_cover_all_segments() {
        let segment = |n: usize| Segment { text: 10 * n..10 * n + 9, ids: 3 * n..3 * n + 3 };
        for count in 2..20 {
            let segments: Vec<Segment> = (0..count).map(segment).collect();
            let windows: Vec<Segment> = windows(&segments).collect();
            assert_eq!(windows.first().map(|w| (w.text.start, w.ids.start)), Some((0, 0)));
            assert_eq!(windows.last().map(|w| (w.text.end, w.ids.end)), Some((10 * count - 1, 3 * count)));
            for pair in windows.windows(2) {
                assert_eq!(
                    (pair[0].text.end, pair[0].ids.end),
                    (pair[1].text.start + 9, pair[1].ids.start + 3)
                );
            }
            assert!(windows.iter().all(|w| w.ids.len() <= 3 * WINDOW_SEGMENTS));
        }
    }

    #[test]
    fn a_long_document_is_compared_completely_in_windows() {
        let text = PAGE.repeat(7 * WHOLE_BYTES / 4 / PAGE.len());
        for value in [bpe(), unigram()] {
            let mut options = all(Some(2 * WHOLE_BYTES as u64));
            options.add_eos = value == bpe();
            let tokenizer = Tokenizer::from_json(bytes(&value), options).unwrap();
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert!(stats.segments.len() > WINDOW_SEGMENTS);
            let mut verify = |ids: &[u32]| tokenizer.verify(7, &text, ids, &stats, &mut scratch);
            let verified = verify(&ids);
            assert!(verified.is_right && !verified.too_long && verified.bytes > text.len() as u64);
            let windows: Vec<Segment> = windows(&stats.segments).collect();
            assert_eq!(windows.len(), 2);
            for at in [0, windows[0].ids.end, windows[1].ids.end - 1] {
                let mut wrong = ids.clone();
                wrong[at] ^= 1;
                assert!(!verify(&wrong).is_right, "{at}");
            }
        }
    }

    #[test]
    fn texts_beyond_the_limit_of_the_regular_expression_are_encoded_but_not_compared() {
        let tokenizer =
            Tokenizer::from_json(bytes(&bpe_with_pattern(CL100K, true)), all(Some(u64::MAX))).unwrap();
        let (text, mut ids) = (format!("a{}b", " ".repeat(10_000_100)), Vec::new());
        let mut scratch = tokenizer.scratch();
        let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
        assert!(!stats.by_reference && ids.len() > 2);
        let verified = tokenizer.verify(0, &text, &ids, &stats, &mut scratch);
        assert_eq!(verified, Verified { bytes: 0, too_long: true, is_right: true });
    }

    #[test]
    fn texts_that_are_too_long_for_the_reference_are_not_compared() {
        let text = "thedog".repeat(100_000);
        let mut ids = Vec::new();
        for most in [text.len() as u64 - 1, text.len() as u64] {
            let tokenizer = Tokenizer::from_json(bytes(&bpe()), all(Some(most))).unwrap();
            let mut scratch = tokenizer.scratch();
            ids.clear();
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            let verified = tokenizer.verify(0, &text, &ids, &stats, &mut scratch);
            let fits = most == text.len() as u64;
            assert_eq!((verified.too_long, verified.bytes > 0, verified.is_right), (!fits, fits, true));

            let options = TokenizerOptions { engine: EngineChoice::Reference, ..all(Some(most)) };
            let tokenizer = Tokenizer::from_json(bytes(&bpe()), options).unwrap();
            match tokenizer.encode(&text, &mut scratch, &mut Vec::new()) {
                Ok(_) => assert!(fits),
                Err(error) => {
                    assert_eq!(error, EncodeError::TooLarge { bytes: text.len() as u64, limit: most });
                    assert!(!fits && error.to_string().contains("`max_reference_bytes`"), "{error}");
                }
            }
        }
    }
}
