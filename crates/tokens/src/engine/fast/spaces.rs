//! Cuts at spaces, for pre-tokenizers that split there: finds the spaces at which the two sides are independent in
//! every step of the tokenizer.
//!
//! A space is such a position if it is between two stable characters. The reference's normalizer determines, once per
//! character, whether it is stable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokenizers::{NormalizedString, Normalizer};
use unicode_segmentation::UnicodeSegmentation;

use super::classes::decode;
use super::stop::EngineStop;
use super::words::Words;
use crate::engine::reference::Reference;
use crate::outline::METASPACE;
use crate::panics::guarded;

const UNKNOWN: u8 = 0;
const STABLE: u8 = 1;
const UNSTABLE: u8 = 2;

/// ASCII white space that may separate two words.
const BLANKS: [char; 4] = [' ', '\n', '\t', '\r'];

/// Cuts at spaces between stable characters.
pub(super) struct Spaces {
    reference: Arc<Reference>,
    /// The result for each character in the Basic Multilingual Plane. All threads compute the same values, so no lock
    /// is needed.
    known: Vec<AtomicU8>,
    /// Whether each ASCII character only separates words.
    blank: [bool; 128],
    /// Whether a run of such characters also only separates words.
    collapse: bool,
}

impl Spaces {
    /// Determines the treatment of white space by normalizing sample texts with `reference`.
    pub(super) fn new(reference: Arc<Reference>, words: &Words) -> Self {
        let mut spaces = Self {
            reference,
            known: (0..0x1_0000).map(|_| AtomicU8::new(UNKNOWN)).collect(),
            blank: [false; 128],
            collapse: false,
        };
        let is_metaspace = |text: &str| words.writes_metaspace() && text.chars().eq([METASPACE]);
        let separates = |spaces: &Self, run: &[char]| {
            let text = spaces.normalized(format!("a{}b", run.iter().collect::<String>()));
            let between = text.as_deref().and_then(|text| text.strip_prefix('a')?.strip_suffix('b'));
            between.is_some_and(|between| {
                let is_dropped = words.drops_whitespace() && between.chars().all(char::is_whitespace);
                is_metaspace(between) || between == " " || is_dropped && !between.is_empty()
            })
        };
        for blank in BLANKS {
            let is_blank = separates(&spaces, &[blank]);
            if let Some(known) = spaces.blank.get_mut(blank as usize) {
                *known = is_blank;
            }
        }
        // Tests all pairs and triples, and a long run of all: a normalizer that collapses these collapses any run.
        let blanks: Vec<char> = BLANKS.into_iter().filter(|&c| spaces.is_blank(c as u8)).collect();
        let run: Vec<char> = blanks.iter().copied().cycle().take(16).collect();
        spaces.collapse = separates(&spaces, &run)
            && blanks.iter().all(|&a| {
                blanks.iter().all(|&b| {
                    separates(&spaces, &[a, b]) && blanks.iter().all(|&c| separates(&spaces, &[a, b, c]))
                })
            });
        spaces
    }

    fn is_blank(&self, byte: u8) -> bool {
        self.blank.get(byte as usize).is_some_and(|blank| *blank)
    }

    fn normalized(&self, text: String) -> Option<String> {
        if !self.reference.admits(&text) {
            return None;
        }
        let mut text = NormalizedString::from(text);
        if let Some(normalizer) = self.reference.parts().get_normalizer() {
            guarded(|| normalizer.normalize(&mut text)).ok()?;
        }
        Some(text.get().to_owned())
    }

    fn is_stable(&self, code: u32) -> bool {
        let Some(known) = self.known.get(code as usize) else { return false };
        match known.load(Ordering::Relaxed) {
            UNKNOWN => {
                let stable = char::from_u32(code).is_some_and(|c| self.classify(c));
                known.store(if stable { STABLE } else { UNSTABLE }, Ordering::Relaxed);
                stable
            }
            known => known == STABLE,
        }
    }

    fn classify(&self, c: char) -> bool {
        let apart = |text: String| text.graphemes(true).count() == 2;
        let edge = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || c == METASPACE);
        let Some(text) = self.normalized(c.into()) else { return false };
        !c.is_control()
            && apart(format!("a{c}"))
            && apart(format!("{c}a"))
            && !edge(text.chars().next())
            && !edge(text.chars().next_back())
    }

    /// Calls `chunk` with the byte bounds of each chunk.
    pub(super) fn cut(
        &self,
        text: &str,
        mut chunk: impl FnMut(usize, usize) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let bytes = text.as_bytes();
        let (mut start, mut at) = (0, 0);
        // Whether the character before `at` is stable.
        let mut stable = false;
        while let Some(&first) = bytes.get(at) {
            if first < 0x80 {
                if stable && self.is_blank(first) {
                    let mut next = at + 1;
                    while self.collapse && bytes.get(next).is_some_and(|&b| self.is_blank(b)) {
                        next += 1;
                    }
                    if self.is_stable_at(bytes, next) {
                        chunk(start, at)?;
                        start = next;
                    }
                    at = next;
                    stable = false;
                    continue;
                }
                stable = self.is_stable(u32::from(first));
                at += 1;
            } else {
                let (code, len) = decode(bytes, at, first);
                // Needed only at the end of a word, where the next byte is ASCII.
                stable = bytes.get(at + len).is_some_and(u8::is_ascii) && self.is_stable(code);
                at += len;
            }
        }
        if start < at { chunk(start, at) } else { Ok(()) }
    }

    /// Returns whether a text is cut at `space`, which is between two ASCII letters.
    pub(super) fn is_cut(&self, text: &str, space: &Range<usize>) -> bool {
        let bytes = text.as_bytes();
        self.is_blank(b' ')
            && space.start.checked_sub(1).is_some_and(|before| self.is_stable_at(bytes, before))
            && self.is_stable_at(bytes, space.end)
    }

    fn is_stable_at(&self, bytes: &[u8], at: usize) -> bool {
        match bytes.get(at) {
            None => false,
            Some(&first) if first < 0x80 => self.is_stable(u32::from(first)),
            Some(&first) => self.is_stable(decode(bytes, at, first).0),
        }
    }
}
