//! The SentencePiece normalizer, applied before a text is divided into pieces.

use super::proto::{NormalizerSpec, TrainerSpec};
use crate::charsmap::Charsmap;
use crate::engine::trie::{NO_PIECE, Trie};

/// U+2581, which represents a space.
pub(super) const SPACE_SYMBOL: &[u8] = "\u{2581}".as_bytes();

/// Normalizer that replaces characters, and collapses and marks white space.
pub(super) struct SentencePieceNormalizer {
    charsmap: Option<Charsmap>,
    /// The user-defined symbols, which are not normalized.
    symbols: Trie,
    has_symbols: bool,
    /// Bytes that stay unchanged, whatever follows them.
    is_plain: [bool; 256],
    dummy_prefix: bool,
    remove_extra: bool,
    /// Replacement of a space.
    space: &'static [u8],
    as_suffix: bool,
}

impl SentencePieceNormalizer {
    /// Creates the normalizer of a model with the user-defined `symbols`. The error describes the problem.
    pub(super) fn new(
        spec: &NormalizerSpec,
        trainer: &TrainerSpec,
        symbols: &[&[u8]],
    ) -> Result<Self, String> {
        let blob = spec.precompiled_charsmap();
        let charsmap = (!blob.is_empty()).then(|| Charsmap::new(blob)).transpose()?;
        let mut trie = Trie::new();
        let mut is_plain: [bool; 256] = std::array::from_fn(|byte| byte < 0x80 && byte != usize::from(b' '));
        for symbol in symbols {
            trie.insert(symbol, 0).ok_or("it has too many user-defined symbols")?;
            if let Some(&first) = symbol.first() {
                is_plain[usize::from(first)] = false;
            }
        }
        if let Some(charsmap) = &charsmap {
            for (byte, plain) in (0u8..=255).zip(&mut is_plain) {
                *plain &= !charsmap.has_root(byte);
            }
        }
        Ok(Self {
            charsmap,
            symbols: trie,
            has_symbols: !symbols.is_empty(),
            is_plain,
            dummy_prefix: spec.add_dummy_prefix(),
            remove_extra: spec.remove_extra_whitespaces(),
            space: if spec.escape_whitespaces() { SPACE_SYMBOL } else { b" " },
            as_suffix: trainer.treat_whitespace_as_suffix(),
        })
    }

    /// Returns the length in bytes of the longest user-defined symbol that `text` starts with; 0 if there is none.
    pub(super) fn symbol(&self, text: &[u8]) -> usize {
        if !self.has_symbols {
            return 0;
        }
        let (mut node, mut longest) = (Trie::ROOT, 0);
        for (i, &byte) in text.iter().enumerate() {
            let Some((next, id)) = self.symbols.step(node, byte) else { break };
            node = next;
            if id != NO_PIECE {
                longest = i + 1;
            }
        }
        longest
    }

    /// Normalizes the start of `text`. Returns the result, and the number of bytes consumed.
    fn prefix<'t>(&'t self, text: &'t [u8]) -> (&'t [u8], usize) {
        match self.symbol(text) {
            0 => {}
            length => return (&text[..length], length),
        }
        if let Some(found) = self.charsmap.as_ref().and_then(|map| map.longest(text)) {
            return found;
        }
        let length = char_len(text);
        match std::str::from_utf8(&text[..length]) {
            Ok(_) => (&text[..length], length),
            // A rule of the character map ended inside a character.
            Err(_) => ("\u{fffd}".as_bytes(), 1),
        }
    }

    /// Replaces the content of `out` with the normalized `text`. Stops early once it has more than `most` bytes.
    pub(super) fn normalize(&self, text: &str, most: u64, out: &mut Vec<u8>) {
        out.clear();
        let mut rest = text.as_bytes();
        while self.remove_extra && !rest.is_empty() {
            let (written, length) = self.prefix(rest);
            if written != b" " {
                break;
            }
            rest = &rest[length..];
        }
        if rest.is_empty() {
            return;
        }
        out.reserve(rest.len() + rest.len() / 2);
        if self.dummy_prefix && !self.as_suffix {
            out.extend_from_slice(self.space);
        }
        let mut after_space = self.remove_extra;
        while !rest.is_empty() {
            let plain = rest.iter().take_while(|&&byte| self.is_plain[usize::from(byte)]).count();
            if plain > 0 {
                out.extend_from_slice(&rest[..plain]);
                rest = &rest[plain..];
                after_space = false;
                continue;
            }
            let (mut written, length) = self.prefix(rest);
            while after_space && let Some(shorter) = written.strip_prefix(b" ") {
                written = shorter;
            }
            if let Some(&last) = written.last() {
                self.push(written, out);
                after_space = last == b' ';
            }
            if out.len() as u64 > most {
                return;
            }
            rest = &rest[length..];
            after_space &= self.remove_extra;
        }
        while self.remove_extra && out.ends_with(self.space) {
            out.truncate(out.len() - self.space.len());
        }
        if self.dummy_prefix && self.as_suffix {
            out.extend_from_slice(self.space);
        }
    }

    fn push(&self, written: &[u8], out: &mut Vec<u8>) {
        for part in written.split_inclusive(|&byte| byte == b' ') {
            match part.strip_suffix(b" ") {
                Some(before) => {
                    out.extend_from_slice(before);
                    out.extend_from_slice(self.space);
                }
                None => out.extend_from_slice(part),
            }
        }
    }
}

/// Returns the length of the first character of `text` according to its first byte, at most the length of `text`.
#[inline]
pub(super) fn char_len(text: &[u8]) -> usize {
    let length = match text.first() {
        None => 0,
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        Some(_) => 1,
    };
    length.min(text.len())
}
