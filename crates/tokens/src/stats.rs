//! What happened to one text.

use std::ops::Range;

/// What happened to one text; see [`Tokenizer::encode`](crate::Tokenizer::encode).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodeStats {
    /// Strings of special tokens in the text, whether they became those tokens or not.
    pub special_in_text: u64,
    /// The text itself begins with the token that was added before it.
    pub doubled_bos: bool,
    /// The text itself ends with the token that was added after it.
    pub doubled_eos: bool,
    /// The ids come from the reference.
    pub by_reference: bool,
    /// The segments that a long text was divided into, in order; none when it was encoded as a whole.
    pub segments: Vec<Segment>,
}

/// A segment of a long text. The ids of segments, concatenated, are the ids of the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its bytes in the text. A space between two segments may belong to neither.
    pub text: Range<usize>,
    /// Its ids among those of the text, counted with what is added before it.
    pub ids: Range<usize>,
}
