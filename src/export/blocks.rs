//! Division of records into parts and blocks. Blocks are encoded on many threads and written in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::numbers::{count, plural};
use crate::panics::caught;
use crate::pipeline::Stop;
use crate::reader::RecordSource;
use crate::threads;

/// Bytes of stored records that are encoded together.
pub(super) const BLOCK_BYTES: u64 = 4 << 20;
/// Lengths that are looked up together.
const LOOKED_UP: u64 = 1 << 16;
/// Interval at which a thread that waits for blocks checks for a stop request.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Consecutive records that go to the files of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartRange {
    /// Ordinals in the source.
    pub(super) records: Range<u64>,
    /// Sum of their lengths.
    pub(super) length: u64,
}

/// Divides the records of `source` into `parts` ranges of about the same total length, each of at least one record.
pub(super) fn divide(source: &dyn RecordSource, parts: u64) -> Result<Vec<PartRange>> {
    let lengths = source.lengths();
    let records = lengths.records();
    if parts > records {
        let what = format!(
            "split {:?} has {}, too few for {}",
            source.name(),
            plural(records, "record"),
            plural(parts, "part")
        );
        return Err(Error::usage(what)
            .of_option("parts")
            .help(format!("ask for at most {}", count(records))));
    }
    let mut total = 0u64;
    for run in lengths.runs()? {
        let run = run?;
        total = total.saturating_add(run.length.saturating_mul(run.count));
    }
    if parts == 1 {
        return Ok(vec![PartRange { records: 0..records, length: total }]);
    }
    let target = |part: u64| (u128::from(total) * u128::from(part) / u128::from(parts)) as u64;
    let mut ranges = Vec::new();
    let (mut start, mut before, mut sum) = (0, 0, 0u64);
    let mut found = Vec::new();
    for first in (0..records).step_by(LOOKED_UP as usize) {
        let ordinals: Vec<u64> = (first..records.min(first + LOOKED_UP)).collect();
        found.clear();
        lengths.lengths_of(&ordinals, &mut found)?;
        for (&record, &length) in ordinals.iter().zip(&found) {
            sum = sum.saturating_add(length);
            let (number, end) = (ranges.len() as u64 + 1, record + 1);
            // Every later part needs a record.
            let must_end = records - end == parts - number;
            if number < parts && (must_end || sum >= target(number)) {
                ranges.push(PartRange { records: start..end, length: sum - before });
                (start, before) = (end, sum);
            }
        }
    }
    ranges.push(PartRange { records: start..records, length: sum - before });
    Ok(ranges)
}

/// What the threads of [`in_order`] share.
struct Shared<N, E> {
    /// Returns the next block.
    next: N,
    /// Number of blocks that were taken.
    taken: u64,
    /// Number of blocks that were written.
    written: u64,
    /// Encoded blocks by number.
    ready: BTreeMap<u64, Result<E>>,
    /// Whether no more blocks are taken.
    ended: bool,
}

/// Encodes the blocks that `next` returns on up to `threads` threads, and passes them to `write` on the current thread, in
/// order. At most two blocks per thread are in memory.
///
/// # Errors
///
/// The first error in block order, or that of a stop request.
pub(super) fn in_order<B: Send, E: Send>(
    threads: usize,
    stop: &Stop,
    mut next: impl FnMut() -> Result<Option<B>> + Send,
    encode: impl Fn(B) -> Result<E> + Sync,
    mut write: impl FnMut(E) -> Result<()>,
) -> Result<()> {
    if threads <= 1 {
        while let Some(block) = next()? {
            stop.check()?;
            write(encode(block)?)?;
        }
        return Ok(());
    }
    let window = 2 * threads as u64;
    let shared = Mutex::new(Shared { next, taken: 0, written: 0, ready: BTreeMap::new(), ended: false });
    let (has_room, is_ready) = (Condvar::new(), Condvar::new());
    let work = || {
        loop {
            let mut state = lock(&shared);
            while !state.ended && state.taken >= state.written + window {
                state = has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return;
            }
            let number = state.taken;
            let result = match (state.next)() {
                Ok(None) => {
                    state.ended = true;
                    is_ready.notify_all();
                    has_room.notify_all();
                    return;
                }
                Ok(Some(block)) => {
                    state.taken += 1;
                    drop(state);
                    caught(|| encode(block)).unwrap_or_else(|panic| Err(panic.into_error("encoding records")))
                }
                Err(error) => {
                    state.taken += 1;
                    drop(state);
                    Err(error)
                }
            };
            let mut state = lock(&shared);
            state.ended |= result.is_err();
            state.ready.insert(number, result);
            is_ready.notify_all();
        }
    };
    thread::scope(|scope| {
        // Ends the threads even if this one panics.
        let _end = EndOnDrop { shared: &shared, has_room: &has_room };
        threads::start_up_to(threads, |_| threads::named("export").spawn_scoped(scope, work))?;
        loop {
            let mut state = lock(&shared);
            let block = loop {
                let number = state.written;
                if let Some(block) = state.ready.remove(&number) {
                    break block?;
                }
                if state.ended && number == state.taken {
                    return Ok(());
                }
                state = is_ready.wait_timeout(state, CHECK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
                stop.check()?;
            };
            drop(state);
            stop.check()?;
            write(block)?;
            lock(&shared).written += 1;
            has_room.notify_all();
        }
    })
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct EndOnDrop<'a, N, E> {
    shared: &'a Mutex<Shared<N, E>>,
    has_room: &'a Condvar,
}

impl<N, E> Drop for EndOnDrop<'_, N, E> {
    fn drop(&mut self) {
        lock(self.shared).ended = true;
        self.has_room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_in_order_by_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let mut blocks = 0..1000u64;
            let mut written = Vec::new();
            let encode = |block: u64| {
                // Later blocks are often ready first.
                thread::sleep(Duration::from_micros(block % 5 * 20));
                Ok(block * 2)
            };
            in_order(
                threads,
                &Stop::default(),
                || Ok(blocks.next()),
                encode,
                |block| {
                    written.push(block);
                    Ok(())
                },
            )
            .unwrap();
            assert!(written.into_iter().eq((0..1000).map(|block| block * 2)));
        }
    }

    #[test]
    fn the_first_error_ends_all_threads_after_the_blocks_before_it() {
        let fails = |at: u64, block: u64| match block {
            block if block == at => Err(Error::usage(format!("block {block}"))),
            block => Ok(block),
        };
        for threads in [1, 4] {
            let mut written = 0;
            for (taken, encoded, stored) in [(70, 999, 999), (999, 70, 999), (999, 999, 70)] {
                let (mut number, mut count) = (0, 0);
                let next = || {
                    number += 1;
                    fails(taken, number - 1).map(Some)
                };
                let write = |block| {
                    fails(stored, block)?;
                    count += 1;
                    Ok(())
                };
                let result = in_order(threads, &Stop::default(), next, |block| fails(encoded, block), write);
                assert_eq!(result.unwrap_err().to_string(), "block 70");
                assert_eq!(count, 70);
                written += count;
            }
            assert_eq!(written, 210);
        }
        let stop = Stop::default();
        stop.request(15);
        assert!(in_order(2, &stop, || Ok(Some(1)), Ok, |_: i32| Ok(())).is_err());
        let panics = in_order(
            2,
            &Stop::default(),
            || Ok(Some(1)),
            |_| -> Result<()> { panic!("a test") },
            |()| Ok(()),
        );
        assert!(panics.unwrap_err().to_string().contains("a panic while encoding records"));
    }
}
