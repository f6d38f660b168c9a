//! Multipart uploads.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::super::new_file::{Written, hex};
use super::super::object_url::ObjectUrl;
use super::client::retry_truncated;
use super::failure::failure;
use super::runtime;
use crate::error::Result;

/// Initial size of a piece in bytes. Stores accept pieces of at least 5 MiB, and up to 10,000 of them.
const PIECE_BYTES: usize = 8 << 20;
/// Number of pieces after which the piece size doubles. 1,000 of 8 MiB, 1,000 of 16 MiB, and so on exceed 5 TiB, the
/// maximum size of an object.
const PIECES_PER_SIZE: usize = 1000;
/// Maximum pieces being sent at a time. Writing blocks until one of them is done.
const MAX_IN_FLIGHT: usize = 4;

/// An object being uploaded. It appears, complete, when [`Upload::finish`] returns. If dropped before, it never
/// appears, and its pieces are removed if the store can be reached.
pub struct Upload {
    url: ObjectUrl,
    client: Arc<dyn ObjectStore>,
    key: Key,
    /// Started with the second piece, because a single piece is sent with one request.
    pieces: Option<Pieces>,
    piece: Vec<u8>,
    sent: usize,
    bytes: u64,
    sha256: Sha256,
}

struct Pieces {
    upload: Box<dyn MultipartUpload>,
    in_flight: JoinSet<object_store::Result<()>>,
}

impl Upload {
    pub(super) fn start(url: ObjectUrl, client: Arc<dyn ObjectStore>, key: Key) -> Self {
        let sha256 = Sha256::new();
        Self { url, client, key, pieces: None, piece: Vec::new(), sent: 0, bytes: 0, sha256 }
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES << (self.sent / PIECES_PER_SIZE).min(8)
    }

    /// Sends the current piece. Blocks while the maximum number of pieces is in flight.
    fn send(&mut self) -> Result<()> {
        let payload = PutPayload::from(std::mem::take(&mut self.piece));
        self.sent += 1;
        let (client, key) = (Arc::clone(&self.client), self.key.clone());
        let started = self.pieces.take();
        let sent = runtime::current()?.wait(async move {
            let mut pieces = match started {
                Some(pieces) => pieces,
                None => Pieces {
                    upload: retry_truncated(|| client.put_multipart(&key)).await?,
                    in_flight: JoinSet::new(),
                },
            };
            while pieces.in_flight.len() >= MAX_IN_FLIGHT {
                if let Some(done) = pieces.in_flight.join_next().await
                    && let Err(e) = flat(done)
                {
                    pieces.abort().await;
                    return Err(e);
                }
            }
            pieces.in_flight.spawn(pieces.upload.put_part(payload));
            Ok(pieces)
        })?;
        self.pieces = Some(sent.map_err(|e| failure("upload", &self.url, e))?);
        Ok(())
    }

    /// Waits until the object exists and returns its size and hash.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) if a piece could not be sent. The object then does not exist, unless only
    /// the answer to the last request was lost.
    pub fn finish(mut self) -> Result<Written> {
        let fail = |e| failure("upload", &self.url, e);
        let last = PutPayload::from(std::mem::take(&mut self.piece));
        let (client, key) = (Arc::clone(&self.client), self.key.clone());
        match self.pieces.take() {
            None => {
                let put = runtime::current()?
                    .wait(async move { retry_truncated(|| client.put(&key, last.clone())).await })?;
                put.map(drop).map_err(fail)?;
            }
            Some(mut pieces) => {
                let done = runtime::current()?.wait(async move {
                    if last.content_length() > 0 {
                        pieces.in_flight.spawn(pieces.upload.put_part(last));
                    }
                    while let Some(done) = pieces.in_flight.join_next().await {
                        if let Err(e) = flat(done) {
                            pieces.abort().await;
                            return Err(e);
                        }
                    }
                    let completed = pieces.upload.complete().await.map(|_| ());
                    if completed.is_err() {
                        pieces.abort().await;
                    }
                    completed
                })?;
                done.map_err(fail)?;
            }
        }
        Ok(Written { bytes: self.bytes, sha256: hex(&std::mem::take(&mut self.sha256).finalize()) })
    }
}

impl Pieces {
    async fn abort(&mut self) {
        self.in_flight.abort_all();
        // The pieces belong to no object. If this fails, the lifecycle rules of the bucket remove them.
        let _ = self.upload.abort().await;
    }
}

fn flat(done: Result<object_store::Result<()>, tokio::task::JoinError>) -> object_store::Result<()> {
    done?
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece_bytes = self.piece_bytes();
        if self.piece.len() >= piece_bytes {
            self.send().map_err(io::Error::other)?;
        }
        let taken = bytes.len().min(piece_bytes - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        self.sha256.update(&bytes[..taken]);
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut pieces) = self.pieces.take()
            && let Ok(runtime) = runtime::current()
        {
            runtime.spawn(async move { pieces.abort().await });
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("url", &self.url).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
