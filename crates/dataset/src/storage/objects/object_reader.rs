//! File-like reading of one object.

use std::fmt;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path as Key;

use super::super::object::Object;
use super::bucket::{Bucket, key};
use super::fetch::fetch;
use super::runtime;
use crate::error::{Error, Result};

/// Maximum bytes per request.
const PIECE_BYTES: u64 = 4 << 20;
/// Minimum bytes of a request outside the announced range.
const MIN_REQUEST_BYTES: u64 = 64 << 10;
/// Growth factor of sequential requests: a request is this much larger than the one that ends where it starts.
const GROWTH: u64 = 4;
/// Number of announced pieces that are requested before they are read.
const PREFETCHED_PIECES: usize = 2;
/// Default limit for bytes held in memory; see [`ObjectReader::hold`].
const HELD_BYTES: u64 = 4 * PIECE_BYTES;

/// An object with known metadata, opened for reading. Opening sends no request.
///
/// Requests have at most 4 MiB, so a lost connection costs little. Bytes announced with [`Self::will_read`] are
/// requested ahead. Every response must come from the object that was opened; if it has been replaced, reading fails.
pub struct ObjectReader {
    object: Arc<Object>,
    client: Arc<dyn ObjectStore>,
    key: Key,
    state: Mutex<ReadState>,
}

struct ReadState {
    pieces: Vec<ObjectPiece>,
    /// The last announced range. `requested` is where its part not yet requested starts.
    announced: Range<u64>,
    requested: u64,
    /// Whether announced bytes are requested ahead.
    requests_ahead: bool,
    /// Position of [`ObjectReader::read_next`].
    position: u64,
    held_bytes: u64,
    time: u64,
}

/// Bytes of the object that are in memory or being fetched.
struct ObjectPiece {
    range: Range<u64>,
    content: Content,
    /// Time of last use.
    used: u64,
}

enum Content {
    Received(Bytes),
    /// Receives the response.
    Pending(Receiver<Result<Bytes>>),
}

impl ObjectReader {
    /// Opens `object`, which is in `bucket`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the environment does not describe the store.
    pub fn open(bucket: &Bucket, object: Object) -> Result<Self> {
        let (client, key) = (bucket.client()?, key(&object.url)?);
        let state = ReadState {
            pieces: Vec::new(),
            announced: 0..0,
            requested: 0,
            requests_ahead: true,
            position: 0,
            held_bytes: HELD_BYTES,
            time: 0,
        };
        Ok(Self { object: Arc::new(object), client, key, state: Mutex::new(state) })
    }

    /// Returns the metadata of the opened object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Announces that `range` will be read from its start on, so its bytes are requested ahead.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses to start a thread.
    pub fn will_read(&self, range: Range<u64>) -> Result<()> {
        let mut state = self.lock();
        if !state.requests_ahead {
            return Ok(());
        }
        state.announced = range.start..range.end.min(self.object.bytes);
        state.requested = range.start;
        self.request_ahead(&mut state, range.start)
    }

    /// Requests only bytes that are read, because a caller will read little. Announcements are ignored; sequential requests
    /// still grow.
    pub fn request_nothing_ahead(&self) {
        self.lock().requests_ahead = false;
    }

    /// Keeps up to `bytes` bytes in memory after they were read, so they can be read again.
    pub fn hold(&self, bytes: u64) {
        self.lock().held_bytes = bytes;
    }

    /// Returns at least one and at most `most` bytes from `offset` on, or no bytes at the end of the object.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) if the bytes cannot be read or the object has been replaced.
    pub fn bytes_at(&self, offset: u64, most: usize) -> Result<Bytes> {
        if offset >= self.object.bytes || most == 0 {
            return Ok(Bytes::new());
        }
        let mut state = self.lock();
        let at = match state.find(offset) {
            Some(at) => at,
            None => {
                let range = state.missing(offset, most as u64, self.object.bytes);
                self.request(&mut state, range)?;
                state.pieces.len() - 1
            }
        };
        self.request_ahead(&mut state, offset)?;
        state.time += 1;
        let now = state.time;
        let piece = &mut state.pieces[at];
        piece.used = now;
        if let Content::Pending(receiver) = &piece.content {
            let lost = |_| Err(Error::internal("a request to object storage ended without a result"));
            match receiver.recv().unwrap_or_else(lost) {
                Ok(bytes) => piece.content = Content::Received(bytes),
                Err(error) => {
                    state.pieces.swap_remove(at);
                    return Err(error);
                }
            }
        }
        let (start, bytes) = match &piece.content {
            Content::Received(bytes) => (piece.range.start, bytes.clone()),
            Content::Pending(_) => return Err(Error::internal("a piece of an object was not received")),
        };
        state.drop_old(offset);
        let from = (offset - start) as usize;
        Ok(bytes.slice(from..bytes.len().min(from.saturating_add(most))))
    }

    /// Reads bytes from `offset` on into `buffer` and returns their number.
    ///
    /// # Errors
    ///
    /// Same as [`Self::bytes_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.bytes_at(offset, buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Reads the bytes after those of the last call. If nothing is announced, announces the whole object.
    ///
    /// # Errors
    ///
    /// Same as [`Self::bytes_at`].
    pub fn read_next(&self, buffer: &mut [u8]) -> Result<usize> {
        let position = {
            let mut state = self.lock();
            if state.announced.is_empty() && state.requests_ahead {
                state.announced = 0..self.object.bytes;
            }
            state.position
        };
        let read = self.read_at(buffer, position)?;
        self.lock().position = position + read as u64;
        Ok(read)
    }

    fn request(&self, state: &mut ReadState, range: Range<u64>) -> Result<()> {
        let runtime = runtime::current()?;
        let (sender, receiver) = sync_channel(1);
        let (client, key, object) = (Arc::clone(&self.client), self.key.clone(), Arc::clone(&self.object));
        let wanted = range.clone();
        runtime.spawn(async move {
            // The reader may have been dropped.
            let _ = sender.send(fetch(runtime, &*client, &key, &object, wanted).await);
        });
        state.time += 1;
        let used = state.time;
        state.pieces.push(ObjectPiece { range, content: Content::Pending(receiver), used });
        Ok(())
    }

    /// Requests announced bytes that follow `offset`.
    fn request_ahead(&self, state: &mut ReadState, offset: u64) -> Result<()> {
        if !state.announced.contains(&offset) {
            return Ok(());
        }
        let current = state.find(offset);
        if let Some(at) = current {
            state.requested = state.requested.max(state.pieces[at].range.end);
        }
        let is_ahead =
            |piece: &&ObjectPiece| piece.range.start > offset && state.announced.contains(&piece.range.start);
        let mut ahead = state.pieces.iter().filter(is_ahead).count();
        let most = if current.is_some() { PREFETCHED_PIECES } else { PREFETCHED_PIECES + 1 };
        while ahead < most && state.requested < state.announced.end {
            if let Some(at) = state.find(state.requested) {
                state.requested = state.pieces[at].range.end;
                continue;
            }
            let start = state.requested;
            let end = state.before_next(start, (start + PIECE_BYTES).min(state.announced.end));
            self.request(state, start..end)?;
            state.requested = end;
            ahead += 1;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ReadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadState {
    /// Returns the index of the piece that contains the byte at `offset`.
    fn find(&self, offset: u64) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.range.contains(&offset))
    }

    /// Returns `end`, or the start of the next piece after `start` if that is smaller.
    fn before_next(&self, start: u64, end: u64) -> u64 {
        self.pieces.iter().map(|piece| piece.range.start).filter(|&next| next > start).fold(end, u64::min)
    }

    /// Returns the range to request for `most` bytes at `offset`, which is in no piece.
    fn missing(&self, offset: u64, most: u64, total: u64) -> Range<u64> {
        let most = most.min(PIECE_BYTES);
        if self.announced.contains(&offset) {
            let end = (offset + PIECE_BYTES).min(self.announced.end.max(offset + most)).min(total);
            return offset..self.before_next(offset, end);
        }
        let before = self.pieces.iter().find(|piece| piece.range.end == offset);
        let grown = before.map_or(0, |piece| (piece.range.end - piece.range.start) * GROWTH);
        let end = (offset + grown.clamp(MIN_REQUEST_BYTES, PIECE_BYTES).max(most)).min(total);
        // A read at the end of the object is a footer, whose start is not yet known.
        let passed = self.pieces.iter().map(|piece| piece.range.end).filter(|&passed| passed <= offset);
        let start = if end == total {
            offset.min(total.saturating_sub(MIN_REQUEST_BYTES)).max(passed.max().unwrap_or(0))
        } else {
            offset
        };
        start..self.before_next(offset, end)
    }

    /// Drops the least recently used pieces if they exceed the limit. Pieces that will still be read are kept.
    fn drop_old(&mut self, offset: u64) {
        let size = |piece: &ObjectPiece| piece.range.end - piece.range.start;
        let mut sum: u64 = self.pieces.iter().map(size).sum();
        while sum > self.held_bytes {
            let is_done = |piece: &ObjectPiece| {
                let is_ahead = piece.range.start > offset && self.announced.contains(&piece.range.start);
                !is_ahead && !piece.range.contains(&offset)
            };
            let done = self.pieces.iter().enumerate().filter(|(_, piece)| is_done(piece));
            let Some((oldest, _)) = done.min_by_key(|(_, piece)| piece.used) else { break };
            sum -= size(&self.pieces.swap_remove(oldest));
        }
    }
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectReader").field("object", &self.object).finish_non_exhaustive()
    }
}
