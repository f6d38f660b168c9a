//! From pieces to ids: runs of unknown characters are one id, or bytes.

/// Receives the pieces of a text in order.
pub(super) struct PieceSink<'a> {
    unknown: u32,
    /// The ids of single bytes, when unknown characters become bytes.
    bytes: Option<&'a [u32; 256]>,
    after_unknown: bool,
    out: &'a mut Vec<u32>,
}

impl<'a> PieceSink<'a> {
    /// Appends ids to `out`.
    pub(super) fn new(unknown: u32, bytes: Option<&'a [u32; 256]>, out: &'a mut Vec<u32>) -> Self {
        Self { unknown, bytes, after_unknown: false, out }
    }

    /// The id of unknown pieces.
    pub(super) fn unknown(&self) -> u32 {
        self.unknown
    }

    /// The next piece.
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
