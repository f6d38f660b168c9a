//! Borrows token ids from the shards without copying them, and fetches the records of a batch from object storage.
//!
//! The values of a [`Record`] are reference-counted views, and threads that read from one memory map contend for its
//! count. Code that only copies ids into a batch borrows them instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::format::{Placed, ShardReader};
use dsconvert_dataset::sample::{Ids, Value};
use dsconvert_dataset::schema::INPUT_IDS;
use dsconvert_dataset::storage::interrupt;
use dsconvert_dataset::threads;

use super::record::{ReadIds, check_record};
use super::source::ids_in;
use super::split::{Located, Split};

impl Split {
    /// Calls `visit` with the token ids of each of `records`, in that order, borrowed from memory if the format allows.
    /// Threads that only copy ids do not contend for reference counts, as they would with a [`Record`](crate::Record). Records are
    /// checked as in [`Split::get`].
    ///
    /// # Errors
    ///
    /// Same as [`Split::get_many`]; [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when the split has no
    /// token ids.
    pub fn visit_ids(&self, records: &[u64], mut visit: impl FnMut(Ids<&[u8]>)) -> Result<()> {
        let field_index = self.schema().index_of(INPUT_IDS);
        let field_index =
            field_index.ok_or_else(|| Error::usage("the records have no field \"input_ids\""))?;
        self.lend_ids(records, field_index, &mut |all| all.iter().cloned().for_each(&mut visit))
    }

    /// Calls `read` once with the token ids in the field at `field_index` of `records`, in that order. Records are
    /// checked as in [`Split::get`].
    ///
    /// # Errors
    ///
    /// Same as [`Split::get_many`]; [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when a record has no ids in
    /// that field.
    pub(super) fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        if let Some(joined) = self.joined() {
            return joined.lend_ids(records, field_index, read);
        }
        // From object storage, whole records are fetched together.
        if let Some(stored) = self.stored_index(field_index)
            && !self.state.dataset.location.is_remote()
        {
            let found = self.locate_all(records)?;
            let shards: Vec<_> = found.chunk_by(|(a, _), (b, _)| a.entry.shard == b.entry.shard).collect();
            if let Some(readers) = self.lending_readers(&shards)?
                && let Some(ids) = self.lent_ids(&shards, &readers, stored)
            {
                read(&ids);
                return Ok(());
            }
        }
        read(&ids_in(&self.get_many(records)?, field_index)?);
        Ok(())
    }

    /// Opens `shards`, whose values can be borrowed while the readers exist. Returns `None` if they cannot, before all are
    /// open: there may be more shards than files that may be open at once.
    fn lending_readers(&self, shards: &[&[(Located, usize)]]) -> Result<Option<Vec<Arc<dyn ShardReader>>>> {
        let mut readers = Vec::with_capacity(shards.len());
        for (found, _) in shards.iter().filter_map(|of_shard| of_shard.first()) {
            let reader = self.open_shard(found.entry.shard)?;
            if !reader.can_lend() {
                return Ok(None);
            }
            readers.push(reader);
        }
        Ok(Some(readers))
    }

    /// Returns the ids of located records in the requested order, if all of them can be borrowed and pass their checks.
    /// `readers` are the readers of `shards`.
    fn lent_ids<'a>(
        &self,
        shards: &[&[(Located, usize)]],
        readers: &'a [Arc<dyn ShardReader>],
        field_index: usize,
    ) -> Option<Vec<Ids<&'a [u8]>>> {
        let dataset = &self.state.dataset;
        let fields = dataset.schema.fields.len();
        let mut lent = vec![None; shards.iter().map(|of_shard| of_shard.len()).sum()];
        for (of_shard, reader) in shards.iter().zip(readers) {
            let placed: Vec<Placed> = of_shard.iter().map(|(found, _)| found.entry.placed()).collect();
            let mut values = Vec::with_capacity(placed.len() * fields);
            if !reader.lend(&placed, &mut values) || values.len() != placed.len() * fields {
                return None;
            }
            for ((found, slot), values) in of_shard.iter().zip(values.chunks_exact(fields.max(1))) {
                if dataset.options.verify_checksums {
                    check_record(&dataset.schema, &found.entry, values).ok()?;
                }
                let Some(Value::Ids(ids)) = values.get(field_index) else { return None };
                *lent.get_mut(*slot)? = Some(ids.clone());
            }
        }
        lent.into_iter().collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::testing::{record, write};
    use dsconvert_dataset::format::Format;
    use dsconvert_dataset::schema::Kind;
    use dsconvert_dataset::storage::Access;

    /// Ids are borrowed where the mapped shard stores them contiguously. Elsewhere, they are copied.
    #[test]
    fn ids_are_borrowed_from_mapped_arrow_and_msgpack() {
        for format in Format::ALL {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), format, Kind::Text, &[&[9, 3], &[5]]).unwrap();
            for access in [Access::Map, Access::Read] {
                let dataset = OpenOptions::new().access(access).open(dir.path()).unwrap();
                let train = dataset.split("train").unwrap();
                let field_index = train.schema().index_of(INPUT_IDS).unwrap();
                let found = train.locate_all(&[11, 2, 11]).unwrap();
                let (reader, placed) = (train.open_shard(0).unwrap(), [found[0].0.entry.placed(); 2]);
                let mut values = Vec::new();
                let can_lend = access == Access::Map && matches!(format, Format::Arrow | Format::Msgpack);
                assert_eq!(reader.lend(&placed, &mut values), can_lend, "{format} {access:?}");
                assert_eq!(reader.can_lend(), can_lend, "{format} {access:?}");
                for split in [train.select(&["origin", INPUT_IDS]).unwrap(), train] {
                    let field_index = if split.schema().fields.len() == 2 { 1 } else { field_index };
                    split
                        .lend_ids(&[11, 2, 11], field_index, &mut |all| {
                            assert_eq!(all.len(), 3);
                            for (i, ids) in [11, 2, 11].into_iter().zip(all) {
                                let Value::Ids(written) = &record(Kind::Text, i).values[1] else {
                                    panic!("no ids")
                                };
                                assert_eq!(ids, &written.lend(), "{format} {access:?} {i}");
                            }
                        })
                        .unwrap();
                    let mut visited = Vec::new();
                    split.visit_ids(&[11, 2], |ids| visited.push(ids.iter().collect::<Vec<_>>())).unwrap();
                    let stored = |i| split.get(i).unwrap().input_ids().unwrap().iter().collect::<Vec<_>>();
                    assert_eq!(visited, [11, 2].map(stored));
                    assert!(split.lend_ids(&[2, 99], field_index, &mut |_| ()).is_err());
                    let no_ids = split.lend_ids(&[2], 0, &mut |_| ());
                    assert!(no_ids.is_err_and(|e| e.to_string().contains("no token ids")));
                }
            }
        }
    }
}
