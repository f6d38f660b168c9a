//! Positions at which most engines can divide a text.

/// Returns the first position at or after `from` that is between an ASCII letter and a space followed by an ASCII
/// letter. No engine that calls this function has words, chunks or lookahead across such a position, and no normalizer
/// changes one side because of the other. An added token crosses it only if the token contains such a position itself.
pub(crate) fn between_words(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let spaces = memchr::memchr_iter(b' ', bytes.get(from..)?);
    spaces.map(|at| from + at).find(|&at| at > 0 && is_letter(at - 1) && is_letter(at + 1))
}
