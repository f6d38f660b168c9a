//! Places where most engines can divide a text.

/// The first place from `from` on between a letter and a space that another letter follows, all of ASCII; it is before
/// the space. No engine that uses it has a word or a chunk across it or looks across it, no normalizer changes one side
/// because of the other, and an added token lies across it only if it contains such a place itself.
pub(crate) fn between_words(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let spaces = memchr::memchr_iter(b' ', bytes.get(from..)?);
    spaces.map(|at| from + at).find(|&at| at > 0 && is_letter(at - 1) && is_letter(at + 1))
}
