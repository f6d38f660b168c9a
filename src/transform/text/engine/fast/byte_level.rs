//! The fast engine for byte-level BPE: hand-written split, cached words, array merges.

use std::marker::PhantomData;
use std::ops::Range;

use serde_json::Value;

use super::added::Stage;
use super::block::Block;
use super::bpe::Bpe;
use super::cache::WordCache;
use super::classes::{Classes, SPACE};
use super::normal::nfc;
use super::split::{Cl100k, Gpt2, Pattern, Split};
use super::{Buffers, Build, Stop, between_words, engine_info, type_of};
use crate::masks::{self, Machine, Work};
use crate::sample::Reject;
use crate::transform::text::Scratch;
use crate::transform::text::engine::{Engine, EngineInfo, Outcome};

/// The regular expressions of the reference give up after a million steps back, which a long run of white space takes,
/// and then the rest of the text is one word. A document with a longer run than this, in bytes, is left to it.
const LONGEST_RUN: usize = 1 << 16;

/// A tokenizer whose every part is known.
pub(super) struct ByteLevel {
    classes: Classes,
    raw: Stage,
    normalized: Stage,
    /// Whether pieces are brought into NFC; otherwise they are taken as they are.
    nfc: bool,
    /// Whether a piece that does not begin with a space gets one.
    add_prefix_space: bool,
    pattern: Pattern,
    bpe: Bpe,
}

impl ByteLevel {
    /// An engine for the tokenizer, or why there is none.
    pub(super) fn new(build: &Build<'_>, bpe: Bpe) -> Result<Self, String> {
        let nfc = match type_of(&build.outline.normalizer) {
            None if build.outline.normalizer.is_null() => false,
            Some("NFC") => true,
            _ => return Err("the normalizer is not a known one".to_owned()),
        };
        let (pattern, add_prefix_space) =
            pre_tokenizer(&build.outline.pre_tokenizer).ok_or("the pre-tokenizer is not a known one")?;
        let (raw, normalized) = Stage::both(build.reference.tokenizer(), build.parse_special)?;
        let classes = Classes::get().ok_or("the Unicode tables cannot be built")?;
        Ok(Self { classes, raw, normalized, nfc, add_prefix_space, pattern, bpe })
    }

    fn piece(&self, piece: &str, buffers: &mut Buffers, out: &mut Vec<u32>) -> Result<(), Stop> {
        let Buffers { words, normalized, prefixed } = buffers;
        let piece = if self.nfc { nfc(piece, normalized) } else { piece };
        self.normalized.encode(piece, out, |text, out| {
            let text = if self.add_prefix_space && !text.starts_with(' ') {
                prefixed.clear();
                prefixed.push(' ');
                prefixed.push_str(text);
                prefixed.as_str()
            } else {
                text
            };
            match self.pattern {
                Pattern::Gpt2 => self.words::<Gpt2>(text, words, out),
                Pattern::Cl100k => self.words::<Cl100k<3>>(text, words, out),
                Pattern::Qwen2 => self.words::<Cl100k<1>>(text, words, out),
            }
        })
    }

    fn words<S: Split>(&self, text: &str, words: &mut WordCache, out: &mut Vec<u32>) -> Result<(), Stop> {
        let Self { classes, bpe, .. } = self;
        masks::run(InWords {
            bytes: text.as_bytes(),
            classes: *classes,
            bpe,
            words,
            out,
            split: PhantomData::<S>,
        })
    }
}

/// Cuts a text into words, and appends the ids of each.
struct InWords<'a, S> {
    bytes: &'a [u8],
    classes: Classes,
    bpe: &'a Bpe,
    words: &'a mut WordCache,
    out: &'a mut Vec<u32>,
    split: PhantomData<S>,
}

impl<S: Split> Work for InWords<'_, S> {
    type Output = Result<(), Stop>;

    #[inline(always)]
    fn on(self, machine: impl Machine) -> Self::Output {
        let Self { bytes, classes, bpe, words, out, .. } = self;
        let mut at = 0;
        while at < bytes.len() {
            let ends = match Block::at(machine, bytes, at) {
                Some(block) => S::starts(&block),
                None => 0,
            };
            if ends != 0 {
                at = words.append_words(bpe, bytes, at, ends, out)?;
                continue;
            }
            let end = S::end(classes, bytes, at);
            if end - at > LONGEST_RUN && is_white(classes, bytes, at) {
                return Err(Stop::NeedsReference);
            }
            words.append(bpe, bytes, at, end, out)?;
            at = end;
        }
        Ok(())
    }
}

/// Whether the word at `at` begins with several characters of white space.
#[cold]
#[inline(never)]
fn is_white(classes: Classes, bytes: &[u8], at: usize) -> bool {
    let Some((first, len)) = classes.at(bytes, at) else { return false };
    first >= SPACE && classes.at(bytes, at + len).is_some_and(|(second, _)| second >= SPACE)
}

impl Engine for ByteLevel {
    fn info(&self) -> EngineInfo {
        engine_info("byte-level BPE")
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, Reject> {
        let before = out.len();
        let buffers = scratch.buffers();
        let result = self.raw.encode(text, out, |piece, out| self.piece(piece, buffers, out));
        buffers.trim();
        super::finish(result, before, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let whole = self.raw.is_across_words() || self.normalized.is_across_words();
        let at = if whole { None } else { between_words(text, from) }?;
        Some(at..at)
    }
}

/// The split pattern of a pre-tokenizer, and whether it puts a space before a piece.
fn pre_tokenizer(value: &Value) -> Option<(Pattern, bool)> {
    let flag = |value: &Value, name: &str, default| value.get(name).map_or(Some(default), Value::as_bool);
    match type_of(value)? {
        "ByteLevel" if flag(value, "use_regex", true)? => {
            Some((Pattern::Gpt2, flag(value, "add_prefix_space", true)?))
        }
        "Sequence" => {
            let [split, byte_level] = value.get("pretokenizers")?.as_array()?.as_slice() else { return None };
            let is = |value: &Value, ty| type_of(value) == Some(ty);
            if !is(split, "Split") || !is(byte_level, "ByteLevel") {
                return None;
            }
            if flag(byte_level, "use_regex", true)? || flag(byte_level, "add_prefix_space", true)? {
                return None;
            }
            // The patterns match everything: keeping the matches or dropping what is between them is the same.
            match (split.get("behavior")?.as_str()?, split.get("invert")?.as_bool()?) {
                ("Isolated", _) | ("Removed", true) => {}
                _ => return None,
            }
            Some((Pattern::known(split.pointer("/pattern/Regex")?.as_str()?)?, false))
        }
        _ => None,
    }
}
