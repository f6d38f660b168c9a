//! The vocabulary of a SentencePiece model, and the conversion of pieces to ids.

use std::collections::HashMap;

use ahash::RandomState;

use super::proto::{ModelProto, PieceType};

/// One entry of the vocabulary.
pub(super) struct VocabPiece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: PieceType,
}

impl VocabPiece {
    /// Returns whether text can match this piece directly, not as an unknown character or one of its bytes.
    pub(super) fn is_textual(&self) -> bool {
        matches!(self.kind, PieceType::Normal | PieceType::UserDefined | PieceType::Unused)
    }
}

/// The vocabulary, with the same checks as in SentencePiece.
pub(super) struct Pieces {
    /// All pieces, indexed by id.
    pub(super) all: Vec<VocabPiece>,
    /// Pieces that text can match directly.
    textual: HashMap<Box<[u8]>, u32, RandomState>,
    /// All other pieces.
    reserved: HashMap<Box<[u8]>, u32, RandomState>,
    /// The id of unknown characters.
    pub(super) unknown: u32,
    /// The ids of single bytes, if the model has byte fallback.
    pub(super) bytes: Option<Box<[u32; 256]>>,
}

impl Pieces {
    /// Reads the vocabulary of `model`. The error describes the problem.
    pub(super) fn new(model: &ModelProto, byte_fallback: bool) -> Result<Self, String> {
        let (mut textual, mut reserved) = (HashMap::default(), HashMap::default());
        let mut all = Vec::with_capacity(model.pieces.len());
        let mut unknown = None;
        let mut bytes = [None; 256];
        for (id, proto) in (0u32..).zip(&model.pieces) {
            let kind = PieceType::try_from(proto.kind.unwrap_or(PieceType::Normal as i32));
            let kind = kind.map_err(|e| format!("its piece {id} is of an unknown type: {e}"))?;
            let piece = VocabPiece { text: proto.piece().to_owned(), score: proto.score(), kind };
            if piece.text.is_empty() {
                return Err(format!("its piece {id} is empty"));
            }
            let map = if piece.is_textual() { &mut textual } else { &mut reserved };
            if map.insert(piece.text.as_bytes().into(), id).is_some() {
                return Err(format!("it has the piece {:?} twice", piece.text));
            }
            match kind {
                PieceType::Unknown if unknown.replace(id).is_some() => {
                    return Err("it has two pieces for unknown characters".to_owned());
                }
                PieceType::Byte => {
                    let byte = byte_of(&piece.text).filter(|_| byte_fallback);
                    let byte =
                        byte.ok_or_else(|| format!("it has the unexpected byte piece {:?}", piece.text))?;
                    bytes[usize::from(byte)] = Some(id);
                }
                _ => {}
            }
            all.push(piece);
        }
        let bytes = byte_fallback.then(|| all_bytes(&bytes)).transpose()?;
        let unknown = unknown.ok_or("it has no piece for unknown characters")?;
        Ok(Self { all, textual, reserved, unknown, bytes })
    }

    /// Returns the id of a piece that text can match directly.
    pub(super) fn textual(&self, piece: &[u8]) -> Option<u32> {
        self.textual.get(piece).copied()
    }

    /// Returns the id of any piece, or the id of unknown characters if there is no such piece.
    pub(super) fn id(&self, piece: &[u8]) -> u32 {
        self.reserved.get(piece).or_else(|| self.textual.get(piece)).copied().unwrap_or(self.unknown)
    }

    /// Returns the piece with this id.
    pub(super) fn get(&self, id: u32) -> Option<&VocabPiece> {
        self.all.get(id as usize)
    }
}

fn all_bytes(found: &[Option<u32>; 256]) -> Result<Box<[u32; 256]>, String> {
    let mut ids = Box::new([0; 256]);
    for (byte, (id, found)) in ids.iter_mut().zip(found).enumerate() {
        *id = found.ok_or_else(|| format!("it has no piece for the byte {byte:#04x}"))?;
    }
    Ok(ids)
}

/// Returns the byte represented by `<0xNN>`.
fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_upper =
        digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
    is_upper.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Receives the pieces of a text in order, and appends their ids: a run of unknown characters becomes one id, or the ids of
/// its bytes.
pub(super) struct PieceSink<'a> {
    /// The id of unknown pieces.
    pub(super) unknown: u32,
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
