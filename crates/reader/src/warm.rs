//! Fetching the records of a batch from object storage, many requests at a time.

use std::thread;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::Placed;

use super::split::{Located, Split};

/// Requests that are under way at a time, for one batch. The time of each is mostly waiting.
const AT_ONCE: usize = 16;

impl Split {
    /// Reads records, sorted by their place on disk, so that they are at hand afterwards. Failures show when the records are read
    /// for good.
    pub(super) fn warm(&self, wanted: &[(Located, usize)]) {
        let share = wanted.len().div_ceil(AT_ONCE);
        thread::scope(|scope| {
            for part in wanted.chunks(share.max(1)) {
                // Without a thread, the part is fetched when it is read.
                let _ = thread::Builder::new().name("fetch".to_owned()).spawn_scoped(scope, || {
                    for of_shard in part.chunk_by(|(a, _), (b, _)| a.entry.shard == b.entry.shard) {
                        let _ = self.touch(of_shard);
                    }
                });
            }
        });
    }

    /// Reads records of one shard, and forgets them.
    fn touch(&self, wanted: &[(Located, usize)]) -> Result<()> {
        let Some((first, _)) = wanted.first() else { return Ok(()) };
        let reader = self.open_shard(first.entry.shard)?;
        let mut placed: Vec<Placed> = wanted.iter().map(|(found, _)| found.entry.placed()).collect();
        placed.dedup();
        self.read_many(&*reader, &placed).map(drop)
    }
}
