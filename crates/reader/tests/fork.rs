//! Forks while the threads of a loader run: child and parent both continue from the same position.
//!
//! Only the thread that forks exists in the child. Locks that other threads held stay locked there, so a child that
//! waits for one would deadlock. An alarm ends such a child and fails the test.

#![allow(unsafe_code)] // fork has no safe form.
#![allow(clippy::unwrap_used)] // The exception for tests does not cover helpers.
#![cfg(unix)]

mod testing {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs"));
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use dsconvert_reader::Dataset;
use dsconvert_reader::batch::{BatchOptions, BatchSize, Batching, BucketBy, PackOptions};
use dsconvert_reader::format::Format;
use dsconvert_reader::loader::{Batch, Loader, LoaderOptions};
use dsconvert_reader::schema::Kind;

/// Seconds after which a child counts as deadlocked.
const TIMEOUT_SECONDS: u32 = 60;
/// Number of children for each format and kind of batches. Several, because it is a matter of chance whether a lock is
/// held when the process forks.
const CHILDREN: usize = 12;

/// Runs `work` in a child. Returns whether it completed without a panic or a deadlock.
fn in_child(work: impl FnOnce()) -> bool {
    // SAFETY: the child runs on its own copy of the memory, and exits by `_exit`, before any code of the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: these calls touch no memory.
        unsafe { libc::alarm(TIMEOUT_SECONDS) };
        let status = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
        // SAFETY: as above.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

fn loader(dir: &Path, batching: Batching) -> Loader {
    // Opened each time, so that threads open shards and indexes while the process forks.
    let split = Dataset::open(dir).unwrap().split("train").unwrap();
    let options = LoaderOptions { threads: 3, prefetch: Some(6), seed: 3, ..LoaderOptions::new(batching) };
    Loader::new(split, options).unwrap()
}

fn content(batch: Batch) -> (Vec<u64>, Vec<i64>) {
    let ids = batch.array("input_ids").unwrap().as_slice::<i64>().unwrap().to_vec();
    (batch.records().to_vec(), ids)
}

#[test]
fn parent_and_child_both_continue() {
    let shards = [40; 12];
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        testing::write(dir.path(), format, Kind::Text, &[&shards]).unwrap();
        let windows = BatchOptions {
            bucket: BucketBy::Windows { steps: 8 },
            ..BatchOptions::new(BatchSize::BatchSize(6))
        };
        let batchings: [Batching; 3] = [
            windows.into(),
            BatchOptions::new(BatchSize::MaxTokens(64)).into(),
            PackOptions::new(32, 2).into(),
        ];
        for batching in batchings {
            let mut whole = loader(dir.path(), batching.clone());
            let expected: Vec<_> = whole.by_ref().map(|batch| content(batch.unwrap())).collect();
            whole.next_epoch().unwrap();
            let after: Vec<_> = whole.by_ref().map(|batch| content(batch.unwrap())).collect();
            for n in 0..CHILDREN {
                let mut loader = loader(dir.path(), batching.clone());
                let taken = n % 5;
                let first: Vec<_> =
                    loader.by_ref().take(taken).map(|batch| content(batch.unwrap())).collect();
                assert_eq!(first, expected[..taken]);
                let held = loader.next_batch().unwrap();
                let mut check = || {
                    let rest: Vec<_> = loader.by_ref().map(|batch| content(batch.unwrap())).collect();
                    assert_eq!(rest, expected[taken + 1..]);
                    assert_eq!(loader.len().unwrap(), expected.len() as u64);
                    loader.next_epoch().unwrap();
                    let next: Vec<_> = loader.by_ref().take(3).map(|batch| content(batch.unwrap())).collect();
                    assert_eq!(next, after[..3]);
                };
                assert!(in_child(&mut check), "{format}, child {n} of {batching:?}");
                check();
                drop(held);
            }
        }
    }
}
