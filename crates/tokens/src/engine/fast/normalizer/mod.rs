//! Normalizers of the fast engines. They produce the same text as the reference, but do not track the origin of
//! characters, which takes most of the reference's time.
//!
//! A step that does not change a text makes no copy. The reference performs the steps that this module does not
//! implement.

pub(super) mod bert;
pub(crate) mod forms;
mod precompiled;

use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer as _};
use unicode_normalization_alignments::char::is_combining_mark;

use self::bert::Bert;
use self::forms::{ComposedPart, Form, composed_parts, write_nfc};
use self::precompiled::Precompiled;
use crate::charsmap::Charsmap;
use crate::error::EncodeError;
use crate::growth::{CANONICAL, CHARACTERS, COMPATIBILITY};
use crate::panics::guarded;

/// A normalizer, as a list of steps.
pub(super) struct Normalizer {
    steps: Vec<NormalizerStep>,
}

enum NormalizerStep {
    Nfc,
    Form(Form),
    Lowercase,
    StripAccents,
    Strip {
        left: bool,
        right: bool,
    },
    Nmt,
    Bert(Bert),
    Precompiled(Box<Precompiled>),
    /// Replaces every occurrence of a non-empty string.
    Replace {
        pattern: String,
        content: String,
    },
    /// Replaces every run of spaces or of white space.
    ReplaceRuns {
        run: Run,
        content: String,
    },
    Other(Box<NormalizerWrapper>),
}

/// The supported regular expressions, which match runs of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// ` {2,}`
    Spaces,
    /// `\s+`
    Whitespace,
}

impl Run {
    /// Returns the runs that `pattern` matches, if it is supported.
    pub(super) fn read(pattern: &str) -> Option<Self> {
        match pattern {
            " {2,}" => Some(Run::Spaces),
            r"\s+" => Some(Run::Whitespace),
            _ => None,
        }
    }

    /// Finds the first run in `text`.
    fn find(self, text: &str) -> Option<(usize, usize)> {
        let is_inside = |c: char| match self {
            Run::Spaces => c == ' ',
            Run::Whitespace => c.is_whitespace(),
        };
        let start = match self {
            Run::Spaces => memchr::memmem::find(text.as_bytes(), b"  ")?,
            Run::Whitespace => text.find(is_inside)?,
        };
        let rest = &text[start..];
        Some((start, start + rest.find(|c| !is_inside(c)).unwrap_or(rest.len())))
    }
}

/// Buffers for [`Normalizer::normalize`].
#[derive(Default)]
pub(super) struct NormalizerBuffers {
    current: String,
    next: String,
}

impl NormalizerBuffers {
    /// Frees buffers that are larger than `most` bytes.
    pub(super) fn trim(&mut self, most: usize) {
        for buffer in [&mut self.current, &mut self.next] {
            if buffer.capacity() > most {
                *buffer = String::new();
            }
        }
    }
}

impl Normalizer {
    /// Collects the steps of `normalizer`.
    pub(super) fn new(normalizer: Option<&NormalizerWrapper>) -> Self {
        let mut steps = Vec::new();
        if let Some(normalizer) = normalizer {
            collect(normalizer, &mut steps);
        }
        Self { steps }
    }

    /// Returns whether the normalizer has no steps.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether the only steps, if any, are NFC.
    pub(super) fn is_nfc(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, NormalizerStep::Nfc))
    }

    /// Returns the parts of `text` that the normalizer changes, in order. `None` if it changes `text` other than by NFC.
    pub(super) fn changes(&self, text: &str, buffers: &mut NormalizerBuffers) -> Option<Vec<ComposedPart>> {
        if self.is_nfc() {
            return Some(if self.is_empty() { Vec::new() } else { composed_parts(text) });
        }
        self.normalize(text, buffers).is_ok_and(|normalized| normalized == text).then(Vec::new)
    }

    /// Returns whether every normalized text is at most a few times as long as the original.
    pub(super) fn is_bounded(&self) -> bool {
        self.steps.iter().all(|step| match step {
            NormalizerStep::Precompiled(_) | NormalizerStep::Other(_) => false,
            NormalizerStep::Replace { pattern, content } => content.len() <= pattern.len(),
            // A run has at least one byte.
            NormalizerStep::ReplaceRuns { content, .. } => content.len() <= 1,
            _ => true,
        })
    }

    /// Normalizes `text`.
    ///
    /// # Errors
    ///
    /// If the reference panics.
    pub(super) fn normalize<'a>(
        &self,
        text: &'a str,
        buffers: &'a mut NormalizerBuffers,
    ) -> Result<&'a str, EncodeError> {
        Ok(self.normalize_within(u64::MAX, text, buffers)?.unwrap_or(text))
    }

    /// Normalizes `text`. Returns `None` if the result of a step might have more than `most` bytes.
    ///
    /// # Errors
    ///
    /// If the reference panics.
    pub(super) fn normalize_within<'a>(
        &self,
        most: u64,
        text: &'a str,
        buffers: &'a mut NormalizerBuffers,
    ) -> Result<Option<&'a str>, EncodeError> {
        let NormalizerBuffers { current, next } = buffers;
        let mut is_changed = false;
        for step in &self.steps {
            let before = if is_changed { current.as_str() } else { text };
            if step.growth().saturating_mul(before.len() as u64) > most {
                return Ok(None);
            }
            next.clear();
            match step.write(before, next) {
                Ok(false) => {}
                Ok(true) => {
                    std::mem::swap(current, next);
                    is_changed = true;
                }
                // Like the reference, continue with the current text.
                Err(EncodeError::Unsupported(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some(if is_changed { current } else { text }))
    }
}

fn collect(normalizer: &NormalizerWrapper, steps: &mut Vec<NormalizerStep>) {
    let other = || NormalizerStep::Other(normalizer.clone().into());
    steps.push(match normalizer {
        NormalizerWrapper::Sequence(parts) => {
            return parts.as_ref().iter().for_each(|part| collect(part, steps));
        }
        NormalizerWrapper::NFC(_) => NormalizerStep::Nfc,
        NormalizerWrapper::NFD(_) => NormalizerStep::Form(Form::Nfd),
        NormalizerWrapper::NFKC(_) => NormalizerStep::Form(Form::Nfkc),
        NormalizerWrapper::NFKD(_) => NormalizerStep::Form(Form::Nfkd),
        NormalizerWrapper::Lowercase(_) => NormalizerStep::Lowercase,
        NormalizerWrapper::StripAccents(_) => NormalizerStep::StripAccents,
        NormalizerWrapper::StripNormalizer(strip) => {
            NormalizerStep::Strip { left: strip.strip_left, right: strip.strip_right }
        }
        NormalizerWrapper::Nmt(_) => NormalizerStep::Nmt,
        NormalizerWrapper::BertNormalizer(bert) => NormalizerStep::Bert(Bert::new(bert)),
        NormalizerWrapper::Precompiled(map) => match Charsmap::of(map) {
            Some(map) => NormalizerStep::Precompiled(Precompiled::new(map).into()),
            None => other(),
        },
        NormalizerWrapper::Replace(replace) => {
            let content = replace.content.clone();
            let file = serde_json::to_value(replace).unwrap_or_default();
            let of = |kind: &str| file.get("pattern")?.get(kind).and_then(Value::as_str);
            match (of("String"), of("Regex").and_then(Run::read)) {
                (Some(pattern), _) if !pattern.is_empty() => {
                    NormalizerStep::Replace { pattern: pattern.to_owned(), content }
                }
                (None, Some(run)) => NormalizerStep::ReplaceRuns { run, content },
                _ => other(),
            }
        }
        NormalizerWrapper::Prepend(_) | NormalizerWrapper::ByteLevel(_) => other(),
    });
}

impl NormalizerStep {
    /// Returns the maximum factor by which the step makes a text longer.
    fn growth(&self) -> u64 {
        match self {
            NormalizerStep::Strip { .. } | NormalizerStep::StripAccents | NormalizerStep::Nmt => 1,
            NormalizerStep::Nfc | NormalizerStep::Form(Form::Nfd) => CANONICAL,
            NormalizerStep::Form(Form::Nfkc | Form::Nfkd) => COMPATIBILITY,
            NormalizerStep::Lowercase | NormalizerStep::Bert(_) => CHARACTERS,
            NormalizerStep::Precompiled(map) => map.growth,
            NormalizerStep::Replace { pattern, content } => {
                content.len().div_ceil(pattern.len()).max(1) as u64
            }
            // A run has at least one byte.
            NormalizerStep::ReplaceRuns { content, .. } => content.len().max(1) as u64,
            NormalizerStep::Other(_) => u64::MAX,
        }
    }

    /// Appends the result of the step to the empty `out`, unless the step does not change `text`. Returns whether it
    /// did.
    fn write(&self, text: &str, out: &mut String) -> Result<bool, EncodeError> {
        Ok(match self {
            NormalizerStep::Nfc => write_nfc(text, out),
            NormalizerStep::Form(form) => form.write(text, out),
            NormalizerStep::Lowercase => write_lowercase(text, out),
            NormalizerStep::StripAccents => write_chars(text, out, |c| (!is_combining_mark(c)).then_some(c)),
            NormalizerStep::Strip { left, right } => {
                let kept = if *left { text.trim_start_matches(char::is_whitespace) } else { text };
                let kept = if *right { kept.trim_end_matches(char::is_whitespace) } else { kept };
                kept.len() < text.len() && {
                    out.push_str(kept);
                    true
                }
            }
            NormalizerStep::Nmt => write_chars(text, out, nmt),
            NormalizerStep::Bert(bert) => bert.write(text, out),
            NormalizerStep::Precompiled(map) => map.write(text, out),
            NormalizerStep::Replace { pattern, content } => {
                let found = memchr::memmem::find_iter(text.as_bytes(), pattern);
                write_replaced(text, out, content, found.map(|start| (start, start + pattern.len())))
            }
            NormalizerStep::ReplaceRuns { run, content } => {
                let mut from = 0;
                let found = std::iter::from_fn(|| {
                    let (start, end) = run.find(&text[from..])?;
                    let found = (from + start, from + end);
                    from = found.1;
                    Some(found)
                });
                write_replaced(text, out, content, found)
            }
            NormalizerStep::Other(normalizer) => {
                let normalized = guarded(|| {
                    let mut normalized = NormalizedString::from(text);
                    normalizer.normalize(&mut normalized)?;
                    Ok(normalized)
                })?;
                out.push_str(normalized.get());
                true
            }
        })
    }
}

/// Appends `text` with the ranges `found` replaced by `content`, unless nothing changes. Returns whether it did.
fn write_replaced(
    text: &str,
    out: &mut String,
    content: &str,
    found: impl Iterator<Item = (usize, usize)>,
) -> bool {
    let mut copied = 0;
    for (start, end) in found {
        if &text[start..end] == content {
            continue;
        }
        out.push_str(&text[copied..start]);
        out.push_str(content);
        copied = end;
    }
    if copied == 0 {
        return false;
    }
    out.push_str(&text[copied..]);
    true
}

/// Appends the results of `each` for the characters of `text`, unless `text` is ASCII and unchanged. Returns whether it
/// did.
fn write_chars(text: &str, out: &mut String, each: impl Fn(char) -> Option<char>) -> bool {
    if text.bytes().all(|byte| byte.is_ascii() && each(char::from(byte)) == Some(char::from(byte))) {
        return false;
    }
    out.extend(text.chars().filter_map(each));
    true
}

/// Appends `text` in lowercase, unless it is ASCII and unchanged. Returns whether it did. Maps character by character,
/// so a final sigma is not special.
fn write_lowercase(text: &str, out: &mut String) -> bool {
    if text.is_ascii() {
        if !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return false;
        }
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        out.extend(text.chars().flat_map(char::to_lowercase));
    }
    true
}

/// Applies the rules of `Nmt` to one character.
fn nmt(c: char) -> Option<char> {
    match u32::from(c) {
        0x0001..=0x0008 | 0x000B | 0x000E..=0x001F | 0x007F | 0x008F | 0x009F => None,
        0x0009
        | 0x000A
        | 0x000C
        | 0x000D
        | 0x1680
        | 0x200B..=0x200F
        | 0x2028
        | 0x2029
        | 0x2581
        | 0xFEFF
        | 0xFFFD => Some(' '),
        _ => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::{precompiled, tricky};

    fn normalizers() -> Vec<NormalizerWrapper> {
        let replace = |kind: &str, pattern: &str, content: &str| json!({"type": "Replace", "pattern": {kind: pattern}, "content": content});
        let strip =
            |left: bool, right: bool| json!({"type": "Strip", "strip_left": left, "strip_right": right});
        let bert = |clean: bool, lowercase: bool| {
            json!({"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": clean,
                "strip_accents": null, "lowercase": lowercase})
        };
        let map = precompiled(&[("\n", " "), ("½", " 1/2"), ("Ａ", "A"), ("e\u{301}", "é"), ("ß", "")]);
        let named = |name: &str| json!({"type": name});
        let list = [
            json!([]),
            json!([named("NFC"), replace("Regex", r"\s+", " "), named("Lowercase")]),
            json!([
                replace("String", "``", "\""),
                replace("String", "''", "\""),
                named("NFKD"),
                named("StripAccents"),
                named("Lowercase"),
                map,
                replace("Regex", " {2,}", " ")
            ]),
            json!([map, strip(false, true), replace("Regex", " {2,}", "\u{2581}")]),
            json!([strip(true, true), named("NFKC")]),
            json!([strip(true, false), named("NFD"), named("StripAccents")]),
            json!([named("Nmt"), named("NFKC"), replace("Regex", " {2,}", " ")]),
            json!([bert(true, true), named("NFC")]),
            json!([bert(false, false)]),
            json!([
                replace("Regex", "[a-z]", "x"),
                replace("String", "a", "aa"),
                replace("String", "the", "")
            ]),
            json!([replace("String", "", "-"), {"type": "Prepend", "prepend": "\u{2581}"}]),
        ];
        let sequence = |parts: &Value| json!({"type": "Sequence", "normalizers": parts});
        list.iter().map(|parts| serde_json::from_value(sequence(parts)).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn texts_are_normalized_as_by_the_reference(text in tricky(), doubled in tricky()) {
            let mut buffers = NormalizerBuffers::default();
            for wrapper in normalizers() {
                let normalizer = Normalizer::new(Some(&wrapper));
                for text in [&text, &format!("{text}  {doubled}\r\n``{text}''{doubled} \t")] {
                    let mut expected = NormalizedString::from(text.as_str());
                    wrapper.normalize(&mut expected).unwrap();
                    prop_assert_eq!(normalizer.normalize(text, &mut buffers).unwrap(), expected.get(), "{:?}", wrapper);
                }
            }
        }
    }

    #[test]
    fn every_character_is_normalized_as_by_the_reference() {
        let mut buffers = NormalizerBuffers::default();
        for wrapper in normalizers() {
            let normalizer = Normalizer::new(Some(&wrapper));
            let texts = (0..0x1_1000).filter_map(char::from_u32).map(|c| format!("a{c}b{c}"));
            for text in texts.collect::<Vec<_>>().chunks(64).map(|texts| texts.concat()) {
                let mut expected = NormalizedString::from(text.as_str());
                wrapper.normalize(&mut expected).unwrap();
                assert_eq!(normalizer.normalize(&text, &mut buffers).unwrap(), expected.get(), "{wrapper:?}");
            }
        }
    }
}
