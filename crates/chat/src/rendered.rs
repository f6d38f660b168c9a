//! `Rendered`: what a template writes, and what it may cost.

use std::ops::Range;

use crate::value::Source;

/// How a template is rendered.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// The time that `strftime_now` writes, in seconds since 1970, in UTC.
    pub now: Option<i64>,
    /// Steps after which rendering stops with an error. A step is one operation, one item that is visited or compared, or 16
    /// bytes that are read.
    pub steps: u64,
    /// Bytes that may be made: of text, also of that which is not written in the end, and 64 for each item of a list.
    pub bytes: u64,
}

impl Default for RenderOptions {
    fn default() -> RenderOptions {
        RenderOptions { now: None, steps: 4 << 20, bytes: 48 << 20 }
    }
}

/// A run of characters from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The byte after the run. It starts where the previous one ends.
    pub end: usize,
    /// Who wrote it.
    pub source: Source,
    /// The message in whose iteration of the outermost loop over messages the text was written or captured.
    pub turn: Option<u32>,
    /// Whether these are characters of Python's form of a list, an object or `None`.
    pub python_form: bool,
}

/// A rendered chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Runs of characters, which cover the text. Neighbors differ.
    pub pieces: Vec<Piece>,
    /// The byte ranges of the `generation` blocks, in the order in which they ended.
    pub generation: Vec<Range<usize>>,
    /// The steps and the bytes that it took, of those of [`RenderOptions`].
    pub steps: u64,
    /// See `steps`.
    pub bytes: u64,
}
