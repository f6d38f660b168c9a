//! Cache warming: fetches the records of a batch from object storage with concurrent requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::Placed;
use dsconvert_dataset::storage::interrupt;
use dsconvert_dataset::threads;

use super::split::{Located, Split};

/// Maximum concurrent requests for one batch.
const MAX_REQUESTS: usize = 16;

impl Split {
    /// Reads records, sorted by their position on disk, so that they are cached afterwards. Errors of single records are
    /// ignored: they occur again when the records are actually read.
    ///
    /// # Errors
    ///
    /// Fails if the store does not respond or the caller was interrupted.
    pub(super) fn warm(&self, wanted: &[(Located, usize)]) -> Result<()> {
        let share = wanted.len().div_ceil(MAX_REQUESTS);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for part in wanted.chunks(share.max(1)) {
                let (sender, stop) = (sender.clone(), Arc::clone(&stop));
                let fetch = move || {
                    let stopped = move || stop.load(Ordering::Relaxed);
                    let _ = sender.send(interrupt::interruptible(stopped, || self.touch_all(part)));
                };
                // If no thread can be started, this part is fetched when it is read.
                let _ = threads::named("fetch").spawn_scoped(scope, fetch);
            }
            drop(sender);
            let mut result = Ok(());
            loop {
                match receiver.recv_timeout(interrupt::INTERVAL) {
                    Ok(Ok(())) => {}
                    // The first error ends the other requests.
                    Ok(Err(e)) => {
                        stop.store(true, Ordering::Relaxed);
                        result = result.and(Err(e));
                    }
                    Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {
                        if let Err(e) = interrupt::check() {
                            stop.store(true, Ordering::Relaxed);
                            result = Err(e);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return result,
                }
            }
        })
    }

    /// Reads records, sorted by their position on disk, and discards them.
    fn touch_all(&self, wanted: &[(Located, usize)]) -> Result<()> {
        for of_shard in wanted.chunk_by(|(a, _), (b, _)| a.entry.shard == b.entry.shard) {
            let _ = self.state.dataset.unless_outage(self.touch(of_shard))?;
        }
        Ok(())
    }

    /// Reads records of one shard and discards them.
    fn touch(&self, wanted: &[(Located, usize)]) -> Result<()> {
        let Some((first, _)) = wanted.first() else { return Ok(()) };
        let reader = self.open_shard(first.entry.shard)?;
        let mut placed: Vec<Placed> = wanted.iter().map(|(found, _)| found.entry.placed()).collect();
        placed.dedup();
        self.read_many(&*reader, &placed).map(drop)
    }
}
