//! Statistics of encoding one text.

use std::ops::Range;

/// Statistics of one text, returned by [`Tokenizer::encode`](crate::Tokenizer::encode).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodeStats {
    /// Number of special-token strings in the text, whether or not they were encoded as those tokens.
    pub special_in_text: u64,
    /// Whether the first id of the text itself is the token that was added before it.
    pub doubled_bos: bool,
    /// Whether the last id of the text itself is the token that was added after it.
    pub doubled_eos: bool,
    /// Whether the reference produced the ids.
    pub by_reference: bool,
    /// The segments of a long text, in order; empty if it was encoded as a whole.
    pub segments: Vec<Segment>,
}

/// A segment of a long text. The ids of segments, concatenated, are the ids of the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Byte range in the text. A space between two segments may belong to neither.
    pub text: Range<usize>,
    /// Range of its ids, counted with the ids added before the text.
    pub ids: Range<usize>,
}
