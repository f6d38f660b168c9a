//! A pass over the items of all units before the first record, or without any: by all threads, in bounded memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;

use super::conversion::TextJob;
use super::feed::{SectionFeed, TextTask};
use super::sources::source::BYTES_HELD_PER_BYTE;
use crate::error::Result;
use crate::pipeline::job::{EngineUse, Feed};
use crate::pipeline::memory::{MemoryPool, Reservation};
use crate::threads;

/// Blocks that hold more than this are read on a thread of their own: documents above 4 MiB.
const OWN_THREAD_BYTES: u64 = (4 * BYTES_HELD_PER_BYTE) << 20;

/// Passes the blocks of all units to `each`, in any order. `doing` describes the work. A block holds its memory until its
/// reservation is dropped, and `each` waits for nothing before that.
pub(super) fn for_each_block(
    job: &TextJob,
    doing: &str,
    workers: &Workers,
    memory: &MemoryPool,
    stop: &Stop,
    each: impl Fn(TextTask, Reservation) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    // A thread waits only while it holds nothing, and others hold memory only while they read, so waiting ends.
    let turn = Mutex::new(());
    let reserve = |bytes| {
        // In turn, because a long document would otherwise wait until no other thread has even a short one.
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        memory.wait_for(bytes)
    };
    // Reads the next block and passes it on, and returns the bytes that it held.
    let pass = |feed: &mut SectionFeed<'_>, expected: u64| -> Result<Option<u64>> {
        let mut held = reserve(expected);
        let Some((task, bytes)) = feed.next()? else { return Ok(None) };
        if bytes > expected {
            drop(held);
            held = reserve(bytes);
        }
        each(task, held)?;
        Ok(Some(bytes))
    };
    let pass_units = || -> Result<()> {
        // The size of a block is known after it was read. Until then, it is assumed to be as large as the last one, and
        // the first to be as large as possible. So a thread reads more than it has reserved only where short documents
        // are followed by a long one.
        let mut expected = job.conversion.recipe.max_document_bytes.saturating_mul(BYTES_HELD_PER_BYTE);
        while let Some(sections) = job.units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut feed = SectionFeed::new(job, sections.clone(), EngineUse::Selected, None)?;
            loop {
                stop.check()?;
                expected = feed.next_bytes().max(expected);
                let bytes = match expected > OWN_THREAD_BYTES {
                    true => threads::on_own_thread("long document", || pass(&mut feed, expected))?,
                    false => pass(&mut feed, expected)?,
                };
                let Some(bytes) = bytes else { break };
                expected = bytes;
            }
        }
        Ok(())
    };
    workers.on_all(doing, stop, pass_units)
}
