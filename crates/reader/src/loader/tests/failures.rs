//! Tests of loaders with altered files, missing files, and panics.

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::packing::Packing;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::assemble::Assembler;
use super::engine::{ids, options};
use super::*;
use crate::batch::{PackOptions, Shuffle};
use crate::tests::files;

/// Gives the loader an assembler that was changed.
fn with_assembler(loader: &mut Loader, change: impl FnOnce(&mut Assembler)) {
    let mut assembler = Assembler::new(loader.source(), loader.options()).unwrap();
    change(&mut assembler);
    loader.counts.assembler = Arc::new(assembler);
}

#[test]
fn an_error_replaces_its_batch_and_names_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Msgpack);
    // Alter a byte in the middle of the first shard.
    let shard = dir.path().join("train").join(&split.shards()[0].name);
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&shard, bytes).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    for threads in [0, 2] {
        let mut loader = Loader::new(split.clone(), LoaderOptions { threads, ..batches_of(5) }).unwrap();
        let (mut good, mut errors) = (0, 0);
        loop {
            let before = loader.state();
            match loader.next_batch() {
                Ok(Some(_)) => good += 1,
                Ok(None) => break,
                Err(error) => {
                    errors += 1;
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    let place = error.place();
                    assert!(place.shard.is_some() && place.row.is_some(), "{error}");
                    assert_eq!(loader.state(), before, "a failed batch is not counted");
                }
            }
        }
        assert_eq!((good, errors), (9, 1));
    }
}

#[test]
fn the_end_of_an_epoch_counts_a_last_batch_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for threads in [0, 2] {
        let mut loader = Loader::new(split.clone(), LoaderOptions { threads, ..batches_of(5) }).unwrap();
        with_assembler(&mut loader, |assembler| assembler.panic_at_step = Some(9));
        assert_eq!(loader.by_ref().filter(Result::is_ok).count(), 9);
        assert_eq!(loader.state().step(), 10);
        assert_eq!(loader.remaining().unwrap(), 0);
    }
}

#[test]
fn a_panic_while_making_a_batch_is_an_error_and_the_loader_continues() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for threads in [0, 1, 3] {
        let mut loader = Loader::new(split.clone(), LoaderOptions { threads, ..batches_of(5) }).unwrap();
        with_assembler(&mut loader, |assembler| assembler.panic_at_step = Some(4));
        let good: Vec<bool> = loader.by_ref().map(|batch| batch.is_ok()).collect();
        assert_eq!(good, (0..10).map(|n| n != 4).collect::<Vec<_>>());
        loader.next_epoch().unwrap();
        assert!(loader.next_batch().unwrap().is_some());
    }
}

#[test]
fn a_panic_between_batches_is_an_error_of_every_later_call() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let mut loader = Loader::new(split, LoaderOptions { threads: 2, ..batches_of(5) }).unwrap();
    with_assembler(&mut loader, |assembler| assembler.panic_between_batches = true);
    // The caller makes batches as well, so many epochs may end before the threads have failed: on a busy machine, printing
    // their backtraces takes seconds.
    let failed = std::iter::from_fn(|| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        Some(loader.next_batch().and_then(|batch| if batch.is_none() { loader.next_epoch() } else { Ok(()) }))
    });
    let error = failed.take(600).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("deliberate test failure"), "{error}");
    assert!(loader.next_batch().is_err());
}

#[test]
fn packing_continues_after_an_error() {
    let dir = tempfile::tempdir().unwrap();
    testing::write(dir.path(), Format::Arrow, Kind::Text, &[&[400]]).unwrap();
    let open = || crate::OpenOptions::new().access(dsconvert_dataset::storage::Access::Read);
    let split = open().open(dir.path()).unwrap().split("train").unwrap();
    let batching = PackOptions { window: Some(4), shuffle: Shuffle::None, ..PackOptions::new(10, 1) };
    let expected: Vec<_> =
        all(&mut Loader::new(split.clone(), options(batching.clone(), 0)).unwrap()).iter().map(ids).collect();
    assert!(expected.len() > 100);
    for threads in [0, 3] {
        let mut loader = Loader::new(split.clone(), options(batching.clone(), threads)).unwrap();
        let mut found = vec![ids(&loader.next_batch().unwrap().unwrap())];
        // The index is truncated until the failed batches include some whose steps were not packed before.
        let index = files(&dir.path().join("index"));
        let whole: Vec<Vec<u8>> = index.iter().map(|file| std::fs::read(file).unwrap()).collect();
        index.iter().for_each(|file| std::fs::write(file, b"").unwrap());
        let mut errors = 0;
        while errors < 50 {
            match loader.next_batch() {
                Ok(batch) => found.push(ids(&batch.unwrap())),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    errors += 1;
                }
            }
        }
        index.iter().zip(&whole).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
        loop {
            match loader.next_batch() {
                Ok(Some(batch)) => found.push(ids(&batch)),
                Ok(None) => break,
                Err(_) => errors += 1, // made before the index was restored
            }
        }
        assert!(errors <= 51 + loader.options().in_flight(), "{threads}");
        assert_eq!(found.len() + errors, expected.len(), "{threads}");
        assert!(found.iter().all(|batch| expected.contains(batch)), "{threads}");
        assert_eq!(found.last(), expected.last(), "{threads}");
    }
}

/// The record index is needed to pack every step.
#[test]
fn a_loop_over_packed_rows_that_skips_errors_ends() {
    let dir = tempfile::tempdir().unwrap();
    testing::write(dir.path(), Format::Arrow, Kind::Text, &[&[400]]).unwrap();
    for (packing, threads) in [(Packing::BestFit, 0), (Packing::BestFit, 3), (Packing::Concat, 2)] {
        let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
        let batching = PackOptions { packing, ..PackOptions::new(10, 1) };
        let whole = all(&mut Loader::new(split, options(batching.clone(), 0)).unwrap()).len();
        let access = dsconvert_dataset::storage::Access::Read;
        let open =
            || crate::OpenOptions::new().access(access).open(dir.path()).unwrap().split("train").unwrap();
        let mut loader = Loader::new(open(), options(batching, threads)).unwrap();
        let index = files(&dir.path().join("index"));
        let contents: Vec<Vec<u8>> = index.iter().map(|file| std::fs::read(file).unwrap()).collect();
        index.iter().for_each(|file| std::fs::write(file, b"").unwrap());
        let errors = std::iter::from_fn(|| loader.next_batch().transpose())
            .take(10 * whole)
            .filter(Result::is_err)
            .count();
        assert!((1..=2 * whole + 1).contains(&errors), "{packing:?}: {errors} errors, {whole} batches");
        index.iter().zip(&contents).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    }
}

/// Alters bytes of one file of a dataset.
pub(super) fn alter(dir: &Path, file: Index, flips: Vec<(Index, u8)>) {
    let files = files(dir);
    let path = file.get(&files);
    let mut bytes = std::fs::read(path).unwrap();
    for (at, xor) in flips {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
        }
    }
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Altering any byte of any file results in the right tokens of the right records, or in an error.
    #[test]
    fn altered_files_never_give_wrong_tokens(
        format in prop::sample::select(Format::ALL.to_vec()),
        file: Index,
        flips in prop::collection::vec((any::<Index>(), 1u8..), 1..4),
        batching in prop::sample::select(vec![
            Batching::from(PackOptions::new(16, 2)),
            BatchOptions::new(BatchSize::BatchSize(4)).into(),
            BatchOptions { shuffle: Shuffle::None, ..BatchOptions::new(BatchSize::MaxTokens(30)) }.into(),
            BatchOptions::new(BatchSize::MaxTokensUnpadded(30)).into(),
        ]),
    ) {
        let dir = crate::tests::copy(&crate::tests::pristine(format, Kind::Text));
        alter(dir.path(), file, flips);
        let opened = Dataset::open(dir.path()).and_then(|dataset| dataset.split("train"));
        let packed = matches!(batching, Batching::Packed(_));
        let Ok(loader) = opened.and_then(|split| Loader::new(split, options(batching, 1))) else { return Ok(()) };
        let mut seen = std::collections::BTreeSet::new();
        for batch in loader.take(100).flatten() {
            let found = batch.array("input_ids").unwrap().as_slice::<i64>().unwrap();
            let labels = batch.array("labels").unwrap().as_slice::<i64>().unwrap();
            if packed {
                // Token k of record i is 1009 k + i: labels are the next tokens.
                for (token, label) in found.iter().zip(labels).filter(|(_, label)| **label != -100) {
                    prop_assert_eq!((token + 1009) % 65_536, *label);
                }
                continue;
            }
            let is_flat = batch.array("cu_seqlens").is_some();
            let width = found.len() / batch.rows().max(1);
            let mut start = 0;
            for (row, record) in batch.records().iter().enumerate() {
                prop_assert!(seen.insert(*record), "record {} twice", record);
                let ids = testing::record(Kind::Text, *record).values[1].clone();
                let dsconvert_dataset::sample::Value::Ids(ids) = ids else { panic!("no ids") };
                let row = if is_flat { &found[start..] } else { &found[row * width..] };
                prop_assert!(row.len() >= ids.len());
                prop_assert!(row.iter().copied().zip(ids.iter()).all(|(a, b)| a == i64::from(b)));
                start += ids.len();
            }
        }
    }
}
