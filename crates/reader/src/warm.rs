//! Cache warming: fetches the records of a batch from object storage with concurrent requests.

use std::thread;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::Placed;

use super::split::{Located, Split};

/// Maximum concurrent requests for one batch.
const MAX_REQUESTS: usize = 16;

impl Split {
    /// Reads records, sorted by their position on disk, so that they are cached afterwards. Errors are ignored: they
    /// occur again when the records are actually read.
    pub(super) fn warm(&self, wanted: &[(Located, usize)]) {
        let share = wanted.len().div_ceil(MAX_REQUESTS);
        thread::scope(|scope| {
            for part in wanted.chunks(share.max(1)) {
                // If no thread can be started, this part is fetched when it is read.
                let _ = thread::Builder::new().name("fetch".to_owned()).spawn_scoped(scope, || {
                    for of_shard in part.chunk_by(|(a, _), (b, _)| a.entry.shard == b.entry.shard) {
                        let _ = self.touch(of_shard);
                    }
                });
            }
        });
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
