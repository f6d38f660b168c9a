//! Encoding of whole texts. Long texts are encoded segment by segment, with the help of idle threads of the current
//! thread pool.
//!
//! The engine determines where a text can be divided ([`Engine::divide`]). The ids depend neither on the division nor
//! on the thread that encodes a segment. The `u32` ids of an engine may need more memory than the caller's [`IdSink`],
//! so the ids of a long text never all exist at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::fast::between_words::between_words;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::id_set::IdSet;
use crate::ids::IdSink;
use crate::panics::caught;
use crate::scratch::Scratch;
use crate::stats::Segment;

/// Target size of a segment in bytes; shorter texts are never divided.
pub(crate) const SEGMENT_BYTES: usize = 1 << 16;

/// Maximum capacity that a thread's id buffer keeps between texts.
const KEPT_IDS: usize = 1 << 20;

/// Maximum number of finished segments per thread that are not yet appended to the output. Without a limit, threads
/// that encode faster than one thread appends would hold all `u32` ids of a text.
const AHEAD_PER_THREAD: usize = 4;

/// Assumed minimum number of bytes per id, for reserving capacity for the ids of a text or a segment.
const BYTES_PER_ID: usize = 2;

/// The first and the last id of the text itself, without added tokens, and its segments.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) first: Option<u32>,
    pub(crate) last: Option<u32>,
    pub(crate) segments: Vec<Segment>,
}

impl Ends {
    fn add(&mut self, ids: &[u32]) {
        self.first = self.first.or(ids.first().copied());
        self.last = ids.last().copied().or(self.last);
    }
}

/// Ids of a segment; `None` if the engine declines it.
type SegmentIds = Result<Option<Vec<u32>>, EncodeError>;

/// A text divided into segments, which several threads may encode.
struct DividedText<'a> {
    engine: &'a dyn Engine,
    text: &'a str,
    segments: Vec<Range<usize>>,
    /// The first segment that no thread has started.
    next: AtomicUsize,
    /// Finished segments that are not yet appended to the output.
    finished: Mutex<BTreeMap<usize, SegmentIds>>,
    /// Scratches of the helpers that are not running.
    helpers: Mutex<Vec<Scratch>>,
    max_ahead: usize,
}

impl<'a> DividedText<'a> {
    fn new(engine: &'a dyn Engine, text: &'a str, scratch: &Scratch) -> Self {
        let (mut segments, mut at) = (Vec::new(), 0);
        while text.len() - at > SEGMENT_BYTES
            && let Some(gap) = engine.divide(&text[at..], SEGMENT_BYTES)
        {
            segments.push(at..at + gap.start);
            at += gap.end;
        }
        segments.push(at..text.len());
        let helpers: Vec<_> = (1..segments.len()).take(helpers()).map(|_| scratch.sibling()).collect();
        Self {
            engine,
            text,
            segments,
            next: AtomicUsize::new(0),
            finished: Mutex::default(),
            max_ahead: AHEAD_PER_THREAD * (helpers.len() + 1),
            helpers: Mutex::new(helpers),
        }
    }

    /// Returns whether finished segments have to be appended before another one is encoded.
    fn is_full(&self) -> bool {
        lock(&self.finished).len() >= self.max_ahead
    }

    /// Returns the scratch of a helper that is not running, if one is useful.
    fn idle_helper(&self) -> Option<Scratch> {
        let is_useful = self.next.load(Ordering::Relaxed) < self.segments.len() && !self.is_full();
        is_useful.then(|| lock(&self.helpers).pop()).flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits a long text between words if `divides` is set; otherwise returns it whole.
pub(crate) fn cut_between_words(text: &str, divides: bool) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at =
            (divides && text.len() > SEGMENT_BYTES).then(|| between_words(text, SEGMENT_BYTES)).flatten();
        let (part, remaining) =
            at.and_then(|at| text.split_at_checked(at)).map_or((text, None), |(a, b)| (a, Some(b)));
        rest = remaining;
        Some(part)
    })
}

/// Encoder of texts with the ids that surround every text and the ids that must not occur in it.
pub(crate) struct SegmentEncoder<'a> {
    /// Ids added before and after every text.
    pub(crate) prefix: &'a [u32],
    pub(crate) suffix: &'a [u32],
    /// Control tokens that a text must not produce.
    pub(crate) hidden: &'a IdSet,
}

/// Returns the number of other threads in the current thread pool; 0 outside of a pool.
fn helpers() -> usize {
    rayon::current_thread_index().map_or(0, |_| rayon::current_num_threads() - 1)
}

impl SegmentEncoder<'_> {
    /// Appends all ids to `out`, or returns `None` if the engine declines the text. In that case and on an error, the
    /// caller removes the ids appended so far.
    pub(crate) fn encode(
        &self,
        engine: &dyn Engine,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<Option<Ends>, EncodeError> {
        if text.len() > SEGMENT_BYTES {
            let divided = DividedText::new(engine, text, scratch);
            if divided.segments.len() > 1 {
                return self.encode_divided(&divided, scratch, out);
            }
        }
        let mut ids = std::mem::take(&mut scratch.ids);
        ids.clear();
        ids.extend_from_slice(self.prefix);
        let outcome = engine.encode(text, scratch, &mut ids);
        let ends = match outcome {
            Ok(Outcome::Done) => {
                let mut ends = Ends::default();
                let body = ids.get(self.prefix.len()..).unwrap_or_default();
                ends.add(body);
                self.check_hidden(body).map(|()| {
                    ids.extend_from_slice(self.suffix);
                    Some(ends)
                })
            }
            Ok(Outcome::Declined) => Ok(None),
            Err(error) => Err(error),
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
        divided: &DividedText<'_>,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<Option<Ends>, EncodeError> {
        let start = out.count();
        out.reserve(divided.text.len() / BYTES_PER_ID);
        out.append(self.prefix)?;
        let (mut ends, mut next_segment) = (Ends::default(), 0);
        // Appends finished segments in order. The first failed segment is always reached, because all segments before
        // it were started before it.
        let mut flush = || -> Result<bool, EncodeError> {
            loop {
                let Some(result) = lock(&divided.finished).remove(&next_segment) else { return Ok(true) };
                let Some(ids) = result? else { return Ok(false) };
                ends.add(&ids);
                let from = out.count() - start;
                out.append(&ids)?;
                let text = divided.segments.get(next_segment).cloned().unwrap_or_default();
                ends.segments.push(Segment { text, ids: from..out.count() - start });
                next_segment += 1;
            }
        };
        let mut encode_own = |scratch: &mut Scratch, start_helpers: &dyn Fn()| {
            let mut can_continue = Ok(true);
            while matches!(can_continue, Ok(true)) {
                start_helpers();
                if !self.encode_next(divided, scratch) {
                    break;
                }
                can_continue = flush();
                // A helper is encoding the next segment to append. It never blocks, so this loop ends soon.
                while matches!(can_continue, Ok(true)) && divided.is_full() {
                    std::thread::yield_now();
                    can_continue = flush();
                }
            }
            divided.next.store(divided.segments.len(), Ordering::Relaxed);
            can_continue
        };
        let has_helpers = !lock(&divided.helpers).is_empty();
        let can_continue = match has_helpers {
            false => encode_own(scratch, &|| {}),
            // Idle threads run the helpers. A helper returns when there is currently nothing to encode.
            true => rayon::in_place_scope(|scope| {
                encode_own(scratch, &|| {
                    while let Some(mut scratch) = divided.idle_helper() {
                        scope.spawn(move |_| {
                            while !divided.is_full() && self.encode_next(divided, &mut scratch) {}
                            lock(&divided.helpers).push(scratch);
                        });
                    }
                })
            }),
        }?;
        if !can_continue || !flush()? {
            return Ok(None);
        }
        out.append(self.suffix)?;
        Ok(Some(ends))
    }

    /// Encodes the next segment; returns false if none is left.
    fn encode_next(&self, divided: &DividedText<'_>, scratch: &mut Scratch) -> bool {
        let at = divided.next.fetch_add(1, Ordering::Relaxed);
        let Some(text) = divided.segments.get(at).and_then(|segment| divided.text.get(segment.clone()))
        else {
            return false;
        };
        let mut ids = Vec::with_capacity(text.len() / BYTES_PER_ID);
        let encoded = caught(|| divided.engine.encode(text, scratch, &mut ids)).unwrap_or_else(|panic| {
            scratch.renew();
            Err(EncodeError::Panicked(panic))
        });
        let result = encoded.and_then(|outcome| match outcome {
            Outcome::Done => self.check_hidden(&ids).map(|()| Some(ids)),
            Outcome::Declined => Ok(None),
        });
        if !matches!(result, Ok(Some(_))) {
            divided.next.store(divided.segments.len(), Ordering::Relaxed);
        }
        lock(&divided.finished).insert(at, result);
        true
    }

    /// Returns an error if `ids` contain a control token that the text must not produce.
    fn check_hidden(&self, ids: &[u32]) -> Result<(), EncodeError> {
        if !self.hidden.is_empty() && ids.iter().any(|&id| self.hidden.contains(id)) {
            return Err(EncodeError::HiddenName);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::info::EngineInfo;

    /// Engine whose ids are bytes, which counts the texts it has encoded.
    struct Counting(Arc<AtomicUsize>);

    impl Engine for Counting {
        fn info(&self) -> EngineInfo {
            EngineInfo { name: "counting".to_owned(), version: String::new() }
        }

        fn encode(&self, text: &str, _: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
            out.extend(text.bytes().map(u32::from));
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::Done)
        }

        fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
            (from < text.len()).then_some(from..from)
        }
    }

    /// Sink that appends slowly, and records how many segments were encoded and not yet appended.
    struct SlowSink {
        encoded: Arc<AtomicUsize>,
        appended: usize,
        max_ahead: usize,
        ids: Vec<u32>,
    }

    impl IdSink for SlowSink {
        fn count(&self) -> usize {
            self.ids.len()
        }

        fn append(&mut self, ids: &[u32]) -> Result<(), EncodeError> {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.max_ahead = self.max_ahead.max(self.encoded.load(Ordering::Relaxed) - self.appended);
            self.appended += usize::from(!ids.is_empty());
            self.ids.extend_from_slice(ids);
            Ok(())
        }

        fn truncate(&mut self, count: usize) {
            self.ids.truncate(count);
        }

        fn reserve(&mut self, _: usize) {}
    }

    #[test]
    fn helpers_stay_within_the_limit_of_finished_segments() {
        let text: String = ('a'..='z').cycle().take(300 * SEGMENT_BYTES).collect();
        let (threads, hidden) = (3, IdSet::new(&[]));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let encoder = SegmentEncoder { prefix: &[], suffix: &[], hidden: &hidden };
        let encoded = Arc::new(AtomicUsize::new(0));
        let engine = Counting(Arc::clone(&encoded));
        let mut sink = SlowSink { encoded, appended: 0, max_ahead: 0, ids: Vec::new() };
        let ends = pool.install(|| encoder.encode(&engine, &text, &mut Scratch::new(0), &mut sink));
        assert_eq!(ends.unwrap().unwrap().segments.len(), 300);
        assert!(sink.ids.iter().copied().eq(text.bytes().map(u32::from)));
        // Every thread may exceed the limit by the segment that it is encoding.
        let most = (AHEAD_PER_THREAD + 1) * threads;
        assert!(sink.max_ahead <= most, "{} segments", sink.max_ahead);
    }
}
