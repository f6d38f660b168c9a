//! Conversion of pieces to ids: a run of unknown characters becomes one id, or the ids of its bytes.

/// Receives the pieces of a text in order.
pub(super) struct PieceSink<'a> {
    unknown: u32,
    /// The ids of single bytes, if the model has byte fallback.
    bytes: Option<&'a [u32; 256]>,
    after_unknown: bool,
    out: &'a mut Vec<u32>,
}

impl<'a> PieceSink<'a> {
    /// Creates a sink that appends ids to `out`.
    pub(super) fn new(unknown: u32, bytes: Option<&'a [u32; 256]>, out: &'a mut Vec<u32>) -> Self {
        Self { unknown, bytes, after_unknown: false, out }
    }

    /// Returns the id of unknown pieces.
    pub(super) fn unknown(&self) -> u32 {
        self.unknown
    }

    /// Adds the next piece.
    #[inline]
    pub(super) fn push(&mut self, id: u32, piece: &[u8]) {
        let is_unknown = id == self.unknown;
        match self.bytes {
            Some(bytes) if is_unknown => self.out.extend(piece.iter().map(|&byte| bytes[usize::from(byte)])),
            _ if is_unknown && self.after_unknown => {}
            _ => self.out.push(id),
        }
        self.after_unknown = is_unknown;
    }
}
