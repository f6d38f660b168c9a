//! The ids of a document: of a long one piece by piece, on as many threads as have nothing else to do.
//!
//! Where a text can be divided is for the engine to say ([`Engine::divide`]), and the ids are the same however it is
//! divided and whoever encodes the pieces. Ids as engines make them take much more memory than ids as they are kept, so a
//! long document is never there as a whole in that form.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::engine::{Engine, Outcome, fast};
use super::{Scratch, Tokenizer};
use crate::panics::caught;
use crate::sample::{PackedIds, Reject, RejectCode};
use crate::threads;

/// Bytes of a piece; a shorter text is never divided.
pub(super) const PIECE_BYTES: usize = 1 << 16;

/// Most ids that the buffer of a thread has room for when nothing is encoded.
const KEPT_IDS: usize = 1 << 20;

/// Bytes of text that an id stands for, or more, as room is made for the ids of a document or a piece.
const BYTES_PER_ID: usize = 2;

/// Takes the ids of a document.
pub trait IdSink {
    /// Number of ids taken.
    fn count(&self) -> usize;

    /// Takes more ids.
    ///
    /// # Errors
    ///
    /// A reject, when one cannot be kept.
    fn append(&mut self, ids: &[u32]) -> Result<(), Reject>;

    /// Keeps the first `count` ids.
    fn cut_back(&mut self, count: usize);

    /// Makes room for `more` ids.
    fn make_room(&mut self, more: usize);
}

impl IdSink for Vec<u32> {
    fn count(&self) -> usize {
        self.len()
    }

    fn append(&mut self, ids: &[u32]) -> Result<(), Reject> {
        self.extend_from_slice(ids);
        Ok(())
    }

    fn cut_back(&mut self, count: usize) {
        self.truncate(count);
    }

    fn make_room(&mut self, more: usize) {
        self.reserve(more);
    }
}

impl IdSink for PackedIds {
    fn count(&self) -> usize {
        self.len()
    }

    fn append(&mut self, ids: &[u32]) -> Result<(), Reject> {
        let beyond =
            || Reject::new(RejectCode::Unsupported, "the tokenizer gave an id beyond its largest one");
        self.push(ids).then_some(()).ok_or_else(beyond)
    }

    fn cut_back(&mut self, count: usize) {
        self.truncate(count);
    }

    fn make_room(&mut self, more: usize) {
        self.reserve(more);
    }
}

/// A piece of a long document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes in the text.
    pub text: Range<usize>,
    /// Its ids among those of the document, what is added around it included.
    pub ids: Range<usize>,
}

/// The first and the last id of the text itself, and what it was divided into.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) first: Option<u32>,
    pub(super) last: Option<u32>,
    pub(super) pieces: Vec<Piece>,
}

impl Ends {
    fn add(&mut self, ids: &[u32]) {
        self.first = self.first.or(ids.first().copied());
        self.last = ids.last().copied().or(self.last);
    }
}

/// The ids of a piece; `None` when the engine declines it.
type Made = Result<Option<Vec<u32>>, Reject>;

/// A text that several threads encode.
struct Divided<'a> {
    engine: &'a dyn Engine,
    text: &'a str,
    pieces: Vec<Range<usize>>,
    /// The first piece that nobody has begun.
    next: AtomicUsize,
    /// Pieces that are done and not given away.
    made: Mutex<BTreeMap<usize, Made>>,
}

impl<'a> Divided<'a> {
    fn new(engine: &'a dyn Engine, text: &'a str) -> Self {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while text.len() - at > PIECE_BYTES
            && let Some(gap) = engine.divide(&text[at..], PIECE_BYTES)
        {
            pieces.push(at..at + gap.start);
            at += gap.end;
        }
        pieces.push(at..text.len());
        Self { engine, text, pieces, next: AtomicUsize::new(0), made: Mutex::default() }
    }

    /// Pieces that nobody has begun.
    fn left(&self) -> usize {
        self.pieces.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<usize, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text, cut between words if it `divides`.
pub(super) fn between_words(text: &str, divides: bool) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at =
            (divides && text.len() > PIECE_BYTES).then(|| fast::between_words(text, PIECE_BYTES)).flatten();
        let (piece, behind) =
            at.and_then(|at| text.split_at_checked(at)).map_or((text, None), |(a, b)| (a, Some(b)));
        rest = behind;
        Some(piece)
    })
}

impl Tokenizer {
    /// Appends all ids to `out`; `None` when the engine declines. What is appended then, or with a reject, is to be cut
    /// back.
    pub(super) fn encode_whole_or_pieces(
        &self,
        engine: &dyn Engine,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<Option<Ends>, Reject> {
        if text.len() > PIECE_BYTES {
            let divided = Divided::new(engine, text);
            if divided.pieces.len() > 1 {
                return self.encode_divided(&divided, scratch, out);
            }
        }
        let mut ids = std::mem::take(&mut scratch.ids);
        ids.clear();
        ids.extend_from_slice(&self.prefix);
        let outcome = engine.encode(text, scratch, &mut ids);
        let ends = match outcome {
            Ok(Outcome::Done) => {
                let mut ends = Ends::default();
                let body = ids.get(self.prefix.len()..).unwrap_or_default();
                ends.add(body);
                self.check_hidden(body).map(|()| {
                    ids.extend_from_slice(&self.suffix);
                    Some(ends)
                })
            }
            Ok(Outcome::Declined) => Ok(None),
            Err(reject) => Err(reject),
        };
        let appended = match &ends {
            Ok(Some(_)) => out.append(&ids),
            _ => Ok(()),
        };
        ids.clear();
        ids.shrink_to(KEPT_IDS);
        scratch.ids = ids;
        appended.and(ends)
    }

    fn encode_divided(
        &self,
        divided: &Divided<'_>,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<Option<Ends>, Reject> {
        let begin = out.count();
        out.make_room(divided.text.len() / BYTES_PER_ID);
        out.append(&self.prefix)?;
        let (mut ends, mut given) = (Ends::default(), 0);
        // Gives away what is next, as far as it is done. The first piece that failed is always come to: those before it
        // were begun before it.
        let mut give = || -> Result<bool, Reject> {
            loop {
                let Some(made) = divided.made().remove(&given) else { return Ok(true) };
                let Some(ids) = made? else { return Ok(false) };
                ends.add(&ids);
                let from = out.count() - begin;
                out.append(&ids)?;
                let text = divided.pieces.get(given).cloned().unwrap_or_default();
                ends.pieces.push(Piece { text, ids: from..out.count() - begin });
                given += 1;
            }
        };
        let going_on = std::thread::scope(|scope| {
            let mut helpers = 0;
            let mut going_on = Ok(true);
            while matches!(going_on, Ok(true)) && self.encode_next(divided, scratch) {
                while helpers < scratch.idle.load(Ordering::Relaxed).min(divided.left()) {
                    let help = || {
                        let mut scratch = self.scratch();
                        while self.encode_next(divided, &mut scratch) {}
                    };
                    if threads::named("pieces").spawn_scoped(scope, help).is_err() {
                        break;
                    }
                    helpers += 1;
                }
                going_on = give();
            }
            divided.next.store(divided.pieces.len(), Ordering::Relaxed);
            going_on
        })?;
        if !going_on || !give()? {
            return Ok(None);
        }
        out.append(&self.suffix)?;
        Ok(Some(ends))
    }

    /// Encodes the next piece; false when there is none.
    fn encode_next(&self, divided: &Divided<'_>, scratch: &mut Scratch) -> bool {
        let at = divided.next.fetch_add(1, Ordering::Relaxed);
        let Some(piece) = divided.pieces.get(at).and_then(|piece| divided.text.get(piece.clone())) else {
            return false;
        };
        let mut ids = Vec::with_capacity(piece.len() / BYTES_PER_ID);
        let encoded = caught(|| divided.engine.encode(piece, scratch, &mut ids)).unwrap_or_else(|panic| {
            scratch.renew();
            Err(panic.into_reject())
        });
        let made = encoded.and_then(|outcome| match outcome {
            Outcome::Done => self.check_hidden(&ids).map(|()| Some(ids)),
            Outcome::Declined => Ok(None),
        });
        if !matches!(made, Ok(Some(_))) {
            divided.next.store(divided.pieces.len(), Ordering::Relaxed);
        }
        divided.made().insert(at, made);
        true
    }

    /// Control tokens that the text must not become.
    fn check_hidden(&self, ids: &[u32]) -> Result<(), Reject> {
        if !self.hidden.is_empty() && ids.iter().any(|&id| self.hidden.contains(id)) {
            let message = "the text spells the hidden name of a control token";
            return Err(Reject::new(RejectCode::SpecialToken, message));
        }
        Ok(())
    }
}
