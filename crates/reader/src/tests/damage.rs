//! Tests of datasets with damaged, missing or foreign files.

use std::path::Path;

use dsconvert_dataset::error::{ErrorKind, Result};
use dsconvert_dataset::format::Format;
use dsconvert_dataset::sample;
use dsconvert_dataset::schema::{INPUT_IDS, Kind};
use dsconvert_dataset::storage::Access;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{all, copy, dataset, files, pristine};
use crate::testing::{record, write};
use crate::{Dataset, OpenOptions, Record, Split};

/// Returns the ordinals of `count` records sorted by length. The first of them is record `first` of the dataset.
fn by_length(kind: Kind, first: u64, count: u64) -> Vec<u64> {
    let length = |i: &u64| match &record(kind, first + i).values[1..4] {
        _ if kind == Kind::Records => record(kind, first + i).canonical_size(),
        [_, sample::Value::UInt(width), sample::Value::UInt(height)] => width * height,
        [sample::Value::Ids(ids), ..] => ids.len() as u64,
        other => panic!("{other:?}"),
    };
    let mut ordinals: Vec<u64> = (0..count).collect();
    ordinals.sort_by_key(length);
    ordinals
}

/// Reads everything in every way and returns the errors. Every record is the right one, or an error.
fn read_all(dir: &Path, kind: Kind, access: Access) -> Vec<dsconvert_dataset::error::Error> {
    let mut errors = Vec::new();
    let dataset = match OpenOptions::new().access(access).open(dir) {
        Ok(dataset) => dataset,
        Err(e) => return vec![e],
    };
    for split in dataset.splits() {
        let first = if split.name() == "validation" { 23 } else { 0 };
        let mut seen = |i: u64, got: Result<Record>| match got {
            Ok(got) => assert_eq!(got.into_inner(), record(kind, first + i), "{} {i}", split.name()),
            Err(e) => errors.push(e),
        };
        for i in 0..split.len().min(100) {
            seen(i, split.get(i));
        }
        for got in split.iter().take(100) {
            seen(got.as_ref().map_or(0, Record::ordinal), got);
        }
        match split.get_many(&[1, 0, 1]) {
            Ok(got) => got.into_iter().for_each(|r| seen(r.ordinal(), Ok(r))),
            Err(e) if split.len() > 1 => errors.push(e),
            Err(_) => {}
        }
        if let (Some(field_index), true) = (split.schema().index_of(INPUT_IDS), split.len() > 1) {
            let mut lent = Vec::new();
            let read = split.lend_ids(&[1, 0, 1], field_index, &mut |all| {
                lent = all.iter().map(|ids| ids.iter().collect::<Vec<_>>()).collect();
            });
            let written = |i| match record(kind, first + i).values.swap_remove(field_index) {
                sample::Value::Ids(ids) => ids.iter().collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            };
            match read {
                Ok(()) => assert_eq!(lent, [1, 0, 1].map(written), "{}", split.name()),
                Err(e) => errors.push(e),
            }
        }
        let sorted = by_length(kind, first, split.len().min(100));
        match split.bucket(0..u64::MAX).and_then(|bucket| bucket.collect::<Result<Vec<_>>>()) {
            Ok(found) => assert_eq!(found, sorted, "{}", split.name()),
            Err(e) => errors.push(e),
        }
        for (rank, expected) in (0..).zip(sorted) {
            match split.by_length(rank) {
                Ok(found) => assert_eq!(found, expected, "{} rank {rank}", split.name()),
                Err(e) => errors.push(e),
            }
        }
    }
    errors
}

#[test]
fn missing_or_longer_files_are_errors() {
    for (format, kind) in all() {
        let (dir, _) = dataset(format, kind);
        assert!(read_all(dir.path(), kind, Access::Map).is_empty());
        for path in files(dir.path()) {
            let bytes = std::fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // The reader does not need these; `verify` checks them.
            let needed = !name.ends_with("rejects.jsonl")
                && !name.starts_with("test.records")
                && !name.contains("-000001-");
            std::fs::remove_file(&path).unwrap();
            assert_eq!(!read_all(dir.path(), kind, Access::Map).is_empty(), needed, "{name}");
            std::fs::write(&path, [&bytes[..], b"\n"].concat()).unwrap();
            assert_eq!(!read_all(dir.path(), kind, Access::Map).is_empty(), needed, "{name}");
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(read_all(dir.path(), kind, Access::Map).is_empty());
    }
}

#[test]
fn swapped_shards_and_indexes_are_errors() {
    for (format, kind) in all() {
        let (dir, _) = dataset(format, kind);
        let (other, _) = dataset(format, kind);
        // The same sizes, but different records.
        let swap = |a: &str, b: &str| {
            let (from, to) = (other.path().join(a), dir.path().join(b));
            let old = std::fs::read(&to).unwrap();
            std::fs::copy(from, &to).unwrap();
            let errors = read_all(dir.path(), kind, Access::Map);
            assert!(!errors.is_empty(), "{format} {a} as {b}");
            std::fs::write(&to, old).unwrap();
        };
        let shard = |split: &str, n: u32| format!("{split}/{split}-{n:06}-00.{}", format.extension());
        swap(&shard("train", 0), &shard("train", 2));
        swap(&shard("validation", 0), &shard("train", 0));
        swap("index/validation.records-0000.arrow", "index/train.records-0000.arrow");
        swap("index/validation.lengths-0000.arrow", "index/train.lengths-0000.arrow");
        swap("index/train.lengths-0000.arrow", "index/train.records-0000.arrow");
        swap("index/train.histogram.arrow", "index/shards.arrow");
        assert!(read_all(dir.path(), kind, Access::Map).is_empty());
    }
}

#[test]
fn an_index_of_another_dataset_is_an_error_even_with_the_right_size() {
    for (format, kind) in all() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(dir.path(), format, kind, &[&[5, 4]]).unwrap();
        write(other.path(), format, kind, &[&[4, 5]]).unwrap();
        let index = "index/train.records-0000.arrow";
        std::fs::copy(other.path().join(index), dir.path().join(index)).unwrap();
        let errors = read_all(dir.path(), kind, Access::Map);
        assert!(errors.iter().any(|e| e.place().shard.is_some() && e.place().row.is_some()), "{errors:?}");
    }
}

#[test]
fn a_newer_dataset_is_refused() {
    let (dir, _) = dataset(Format::Msgpack, Kind::Text);
    let path = dir.path().join("manifest.json");
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, json.replace("\"manifest_version\": 3", "\"manifest_version\": 5")).unwrap();
    assert_eq!(Dataset::open(dir.path()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn an_error_names_shard_and_row() {
    for (format, kind) in all() {
        let (dir, dataset) = dataset(format, kind);
        let shard = dataset.split("train").unwrap().shards()[2].clone();
        let path = dir.path().join(shard.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(7).position(|w| w == b"item-20");
        let Some(at) = at else { continue }; // compressed
        bytes[at + 5] = b'3';
        std::fs::write(&path, bytes).unwrap();
        let train = Dataset::open(dir.path()).unwrap().split("train").unwrap();
        let place = |e: dsconvert_dataset::error::Error| (e.kind(), e.place().shard.clone(), e.place().row);
        let expected = (ErrorKind::Corrupt, Some(shard.name.clone()), Some(11));
        assert_eq!(train.get(20).map_err(place), Err(expected.clone()), "{format}");
        assert_eq!(train.get_many(&[22, 20, 21, 20]).map_err(place), Err(expected.clone()), "{format}");
        let ok: Vec<bool> = train.iter().map(|r| r.is_ok()).collect();
        assert_eq!(ok, (0..23).map(|i| i != 20).collect::<Vec<_>>(), "{format}");
        let unchecked = OpenOptions::new().verify_checksums(false).open(dir.path()).unwrap();
        assert_eq!(unchecked.split("train").unwrap().get(20).unwrap().key(), Some("item-30"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Altering any bytes of any file results in the right record or in an error.
    #[test]
    fn altered_bytes_never_give_a_wrong_record(
        format in prop::sample::select(Format::ALL.to_vec()),
        images: bool,
        mapped: bool,
        file: Index,
        flips in prop::collection::vec((any::<Index>(), 1u8..), 0..4),
        cut in prop::option::of(any::<Index>()),
        keep_size: bool,
    ) {
        let kind = if images { Kind::Images } else { Kind::Text };
        let dir = copy(&pristine(format, kind));
        let files = files(dir.path());
        let path = file.get(&files);
        let mut bytes = std::fs::read(path).unwrap();
        let len = bytes.len();
        if let Some(cut) = cut && len > 0 {
            bytes.truncate(cut.index(len));
            if keep_size {
                bytes.resize(len, 0);
            }
        }
        for (at, xor) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= xor;
            }
        }
        std::fs::write(path, bytes).unwrap();
        let access = if mapped { Access::Map } else { Access::Read };
        read_all(dir.path(), kind, access); // asserts
    }
}

#[test]
fn a_bucket_ends_after_its_first_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), Format::Msgpack, Kind::Text, &[&[30]]).unwrap();
    let path = dir.path().join("index/train.lengths-0000.arrow");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut failed = 0;
    for at in (0..bytes.len()).step_by(8) {
        for bit in [1, 0x80] {
            bytes[at] ^= bit;
            std::fs::write(&path, &bytes).unwrap();
            bytes[at] ^= bit;
            let dataset = OpenOptions::new().verify_checksums(false).open(dir.path()).unwrap();
            let Ok(split) = dataset.split("train") else { continue };
            let Ok(bucket) = split.bucket(0..u64::MAX) else { continue };
            let found: Vec<Result<u64>> = bucket.collect();
            if let Some(first) = found.iter().position(Result::is_err) {
                assert_eq!(first + 1, found.len(), "byte {at}");
                failed += 1;
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

/// Lengths have no checksum of their own, so the index files are hashed before one is returned.
#[test]
fn lengths_of_an_altered_index_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), Format::Msgpack, Kind::Text, &[&[30]]).unwrap();
    let open = |verify| {
        let dataset = OpenOptions::new().verify_checksums(verify).open(dir.path()).unwrap();
        dataset.split("train").unwrap()
    };
    let all_lengths = |split: &Split| -> Result<Vec<u64>> { split.record_index()?.lengths(0..30)?.collect() };
    let ranks = |split: &Split| (0..30).map(|rank| split.by_length(rank)).collect::<Result<Vec<_>>>();
    let runs = |split: &Split| split.histogram()?.collect::<Result<Vec<_>>>();
    let split = open(true);
    let expected = (all_lengths(&split).unwrap(), ranks(&split).unwrap(), runs(&split).unwrap());
    let mut undetected = 0;
    for name in ["records-0000", "lengths-0000", "histogram"] {
        let path = dir.path().join(format!("index/train.{name}.arrow"));
        let mut bytes = std::fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(5) {
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            bytes[at] ^= 1 << (at % 8);
            let split = open(true);
            let lengths = (all_lengths(&split), split.length(3), split.entry(4));
            assert_eq!(lengths.0.is_err(), name == "records-0000", "byte {at}");
            assert_eq!((lengths.1.is_err(), lengths.2.is_err()), (lengths.0.is_err(), lengths.0.is_err()));
            assert!(ranks(&split).is_err() && split.bucket(0..9).is_err() != (name == "records-0000"));
            // Both files of the length index are opened together.
            assert!(runs(&split).is_err() || name != "histogram", "byte {at}");
            assert!(runs(&split).is_ok() || name != "records-0000", "byte {at}");
            // Records have their own checksums, so the index is not hashed for them.
            assert!(
                split.get(5).is_ok_and(|r| r.into_inner() == record(Kind::Text, 5)) || name == "records-0000"
            );
            let unchecked = all_lengths(&open(false));
            undetected += u32::from(unchecked.is_ok_and(|lengths| lengths != expected.0));
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(undetected > 0, "without the checksums, wrong lengths are returned");
    let split = open(true);
    assert_eq!((all_lengths(&split).unwrap(), ranks(&split).unwrap(), runs(&split).unwrap()), expected);
}

/// A file that cannot be read may become readable again, so this is not reported as damage.
#[test]
fn failed_reads_are_io_errors_wherever_they_happen() {
    for format in Format::ALL {
        let dir = copy(&pristine(format, Kind::Text));
        let dataset = OpenOptions::new().access(Access::Read).open(dir.path()).unwrap();
        let shard = dir.path().join(dataset.shards().shards().next().unwrap().path());
        let whole = std::fs::read(&shard).unwrap();
        // Opened anew, because decoded rows of Parquet are kept.
        let open = || {
            let dataset = OpenOptions::new().access(Access::Read).open(dir.path()).unwrap();
            let train = dataset.split("train").unwrap();
            train.open_shard(0).unwrap();
            train
        };
        let mut failed = 0;
        for len in (0..whole.len()).step_by(5) {
            let train = open();
            std::fs::write(&shard, &whole[..len]).unwrap();
            for result in [train.get(3).map(drop), train.get_many(&[1, 7, 3]).map(drop)] {
                if let Err(e) = result {
                    assert_eq!(e.kind(), ErrorKind::Io, "{format}: {len} of {} bytes: {e}", whole.len());
                    failed += 1;
                }
            }
            std::fs::write(&shard, &whole).unwrap();
        }
        assert!(failed > 0, "{format}");
        let train = open();
        std::fs::write(&shard, &whole[..9]).unwrap();
        assert!(train.get(3).is_err(), "{format}");
        std::fs::write(&shard, &whole).unwrap();
        assert_eq!(train.get_many(&[1, 7, 3]).unwrap().len(), 3, "{format}");
    }
}
