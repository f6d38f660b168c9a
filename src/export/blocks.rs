//! Division of records into parts and blocks. Blocks are encoded on many threads and written in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, PoisonError};
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

/// Divides the records of `source` into `parts` ranges of about the same total length, each of at least one record. Returns
/// the ranges with their total lengths.
pub(super) fn divide(source: &dyn RecordSource, parts: u64) -> Result<Vec<(Range<u64>, u64)>> {
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
        return Ok(vec![(0..records, total)]);
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
                ranges.push((start..end, sum - before));
                (start, before) = (end, sum);
            }
        }
    }
    ranges.push((start..records, sum - before));
    Ok(ranges)
}

/// Encodes the blocks that `next` returns on up to `threads` threads, and passes them to `write` on the current thread, in
/// order. At most two blocks per thread are in memory.
///
/// # Errors
///
/// The first error in block order, or the error of a stop request.
pub(super) fn in_order<B: Send, E: Send>(
    threads: usize,
    stop: &Stop,
    mut next: impl FnMut() -> Result<Option<B>>,
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
    // Each block is sent with the channel that takes its result.
    let (blocks, received) = mpsc::channel::<(B, SyncSender<Result<E>>)>();
    let received = Mutex::new(received);
    let work = || {
        loop {
            let block = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((block, result)) = block else { return };
            let encoded = caught(|| encode(block));
            // After a failure, nobody waits for the result.
            let _ = result.send(encoded.unwrap_or_else(|panic| Err(panic.into_error("encoding records"))));
        }
    };
    thread::scope(|scope| {
        // Dropped when this thread ends, even by a panic. That ends the others.
        let blocks = blocks;
        threads::start_up_to(threads, |_| threads::named("export").spawn_scoped(scope, work))?;
        let (mut results, mut has_next) = (VecDeque::new(), true);
        loop {
            while has_next && results.len() < 2 * threads {
                let (sender, result) = mpsc::sync_channel(1);
                match next() {
                    Ok(Some(block)) => drop(blocks.send((block, sender))),
                    Ok(None) => {
                        has_next = false;
                        break;
                    }
                    // The blocks before are written first.
                    Err(error) => {
                        has_next = false;
                        drop(sender.send(Err(error)));
                    }
                }
                results.push_back(result);
            }
            let Some(result) = results.pop_front() else { return Ok(()) };
            let encoded = loop {
                stop.check()?;
                match result.recv_timeout(CHECK_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    received => break received.map_err(|_| Error::internal("a thread died"))?,
                }
            };
            stop.check()?;
            write(encoded?)?;
        }
    })
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
