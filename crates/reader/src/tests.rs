//! Tests of the reader as a whole, on real files of all formats.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dsconvert_dataset::error::{ErrorKind, Result};
use dsconvert_dataset::format::Format;
use dsconvert_dataset::sample;
use dsconvert_dataset::schema::{INPUT_IDS, Kind};
use dsconvert_dataset::storage::Access;
use proptest::prelude::*;
use proptest::sample::Index;

use super::testing::{record, write};
use super::*;

const SHARDS: &[&[u64]] = &[&[9, 0, 14], &[5], &[]];
const KINDS: [Kind; 2] = [Kind::Images, Kind::Text];

fn dataset(format: Format, kind: Kind) -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), format, kind, SHARDS).unwrap();
    let dataset = Dataset::open(dir.path()).unwrap();
    (dir, dataset)
}

/// All formats and kinds.
pub(super) fn all() -> impl Iterator<Item = (Format, Kind)> {
    Format::ALL.into_iter().flat_map(|format| KINDS.map(|kind| (format, kind)))
}

fn inner(record: Result<Record>) -> sample::Record {
    record.unwrap().into_inner()
}

#[test]
fn records_come_back_one_by_one_in_batches_and_in_order() {
    for (format, kind) in all() {
        for access in [Access::Map, Access::Read] {
            let (dir, _) = dataset(format, kind);
            let dataset = OpenOptions::new().access(access).open_shards(1).open(dir.path()).unwrap();
            let mut first = 0;
            for (name, records) in [("train", 23u64), ("validation", 5)] {
                let split = dataset.split(name).unwrap();
                let expected: Vec<_> = (first..first + records).map(|i| record(kind, i)).collect();
                first += records;
                assert_eq!(split.len(), records);
                for (i, expected) in (0..).zip(&expected) {
                    assert_eq!(&inner(split.get(i)), expected, "{format} {kind:?} {i}");
                }
                assert_eq!(split.iter().map(inner).collect::<Vec<_>>(), expected);
                assert_eq!(split.iter().size_hint().1, Some(records as usize));
                assert_eq!(split.iter_range(2..4).unwrap().map(inner).collect::<Vec<_>>(), expected[2..4]);
                assert_eq!(split.iter_range(..=1).unwrap().map(inner).collect::<Vec<_>>(), expected[..2]);
                let wanted = [4, 0, 4, records - 1, 2, 2, 0];
                let many: Vec<_> = split.get_many(&wanted).unwrap();
                assert_eq!(many.iter().map(Record::ordinal).collect::<Vec<_>>(), wanted);
                for (record, i) in many.into_iter().zip(wanted) {
                    assert_eq!(record.into_inner(), expected[i as usize]);
                }
                assert!(split.get_many(&[]).unwrap().is_empty());
            }
        }
    }
}

#[test]
fn what_is_not_there_is_out_of_range_or_a_usage_error() {
    let (_dir, dataset) = dataset(Format::Msgpack, Kind::Text);
    let train = dataset.split("train").unwrap();
    let kind = |e: dsconvert_dataset::error::Error| e.kind();
    for i in [23, u64::MAX] {
        assert_eq!(train.get(i).map_err(kind), Err(ErrorKind::OutOfRange));
        assert_eq!(train.get_many(&[0, i]).map_err(kind), Err(ErrorKind::OutOfRange));
        assert_eq!(train.entry(i).map_err(kind), Err(ErrorKind::OutOfRange));
        assert_eq!(train.length(i).map_err(kind), Err(ErrorKind::OutOfRange));
        assert_eq!(train.by_length(i).map_err(kind), Err(ErrorKind::OutOfRange));
        assert_eq!(train.iter_range(..=i).err().map(kind), Some(ErrorKind::OutOfRange));
    }
    assert!(train.get(23).unwrap_err().to_string().contains("split \"train\" has 23 records"));
    let e = dataset.split("dev").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Usage);
    assert_eq!(e.remedy(), Some("its splits are test, train, validation"));
    let e = train.select(&["key", "image"]).unwrap_err();
    assert!(e.remedy().is_some_and(|help| help.contains("input_ids")), "{e}");
    let empty = dataset.split("test").unwrap();
    assert!(empty.is_empty());
    assert_eq!(empty.iter().count(), 0);
    assert_eq!(empty.bucket(0..u64::MAX).unwrap().count(), 0);
    assert_eq!(empty.get(0).map_err(kind), Err(ErrorKind::OutOfRange));
}

#[test]
fn a_directory_that_is_no_dataset_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Dataset::open(dir.path()).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(Dataset::open(dir.path().join("nowhere")).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn selected_columns_come_alone_and_in_the_order_asked_for() {
    for (format, kind) in all() {
        let (_dir, dataset) = dataset(format, kind);
        let train = dataset.split("train").unwrap().select(&["origin", "key"]).unwrap();
        let got = train.get(3).unwrap();
        assert_eq!(got.values().len(), 2);
        assert_eq!((got.key(), got.origin()), (Some("item-3"), Some("source/1.txt")));
        assert_eq!(train.get_many(&[3]).unwrap()[0], got);
        assert_eq!(train.iter().nth(3).unwrap().unwrap(), got);
        assert_eq!(train.schema().fields[0].name, "origin");
    }
}

/// The checksum covers whole records, so damage to a field that was not selected is an error too.
#[test]
fn selected_columns_are_checked_like_whole_records() {
    for (format, kind) in all() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), format, kind, &[&[30]]).unwrap();
        let open = || Dataset::open(dir.path()).unwrap().split("train").unwrap();
        let shard = dir.path().join("train").join(&open().shards()[0].name);
        let mut bytes = std::fs::read(&shard).unwrap();
        let rows: Vec<u64> = (0..30).collect();
        let schema = open().schema().clone();
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(97) {
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&shard, &bytes).unwrap();
            bytes[at] ^= 1 << (at % 8);
            for fields in [&["key"][..], &["score", "note"], &[kind_field(kind)]] {
                let split = open().select(fields).unwrap();
                let some = split.iter().chain([split.get(7)]).chain(match split.get_many(&rows) {
                    Ok(records) => records.into_iter().map(Ok).collect::<Vec<_>>(),
                    Err(e) => vec![Err(e)],
                });
                for record in some {
                    let Ok(record) = record else {
                        refused += 1;
                        continue;
                    };
                    let stored = super::testing::record(kind, record.ordinal()).values;
                    let place = |f: &&str| schema.index_of(f).unwrap();
                    let expected: Vec<_> = fields.iter().map(|f| stored[place(f)].clone()).collect();
                    assert_eq!(record.values(), expected, "{format} {kind:?} byte {at}");
                }
            }
        }
        assert!(refused > 0);
    }
}

/// The field with most of the bytes.
fn kind_field(kind: Kind) -> &'static str {
    match kind {
        Kind::Images => dsconvert_dataset::schema::IMAGE,
        Kind::Text => INPUT_IDS,
    }
}

/// Lengths have no checksum of their own: the files of the indexes are hashed before one is returned.
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
    let mut unnoticed = 0;
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
            // Records have checksums of their own, and need no other.
            assert!(
                split.get(5).is_ok_and(|r| r.into_inner() == record(Kind::Text, 5)) || name == "records-0000"
            );
            let unchecked = all_lengths(&open(false));
            unnoticed += u32::from(unchecked.is_ok_and(|lengths| lengths != expected.0));
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(unnoticed > 0, "without the checksums, wrong lengths are returned");
    let split = open(true);
    assert_eq!((all_lengths(&split).unwrap(), ranks(&split).unwrap(), runs(&split).unwrap()), expected);
}

/// Damage in a column shows when it is read, so what does not show it was not read.
#[test]
fn without_checksums_columns_that_are_left_out_of_parquet_are_not_decoded() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), Format::Parquet, Kind::Text, &[&[200]]).unwrap();
    let open = || {
        let dataset = OpenOptions::new().verify_checksums(false).open(dir.path()).unwrap();
        dataset.split("train").unwrap()
    };
    let checked = || Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let shard = dir.path().join("train").join(&open().shards()[0].name);
    let whole = std::fs::read(&shard).unwrap();
    let rows: Vec<u64> = (0..200).rev().collect();
    let (mut spared, mut hit) = (0, 0);
    for at in (4..whole.len() / 2).step_by(101) {
        let mut bytes = whole.clone();
        bytes[at..][..8].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&shard, bytes).unwrap();
        let all = checked().get_many(&rows);
        let some = open().select(&["score", "key"]).unwrap().get_many(&rows);
        match some {
            Ok(records) => {
                spared += u32::from(all.is_err());
                // Checksums cover whole records: damage to these columns may pass unseen, and then all of them fail.
                if all.is_ok() {
                    assert!(records.iter().all(|r| r.float("score") == Some(r.ordinal() as f64 / 8.0)));
                }
            }
            Err(_) => hit += 1,
        }
    }
    assert!(spared > 0 && hit > 0, "{spared} spared, {hit} hit");
    std::fs::write(&shard, &whole).unwrap();
    for fields in [&[][..], &["note"], &["length", "input_ids"]] {
        let selected = open().select(fields).unwrap();
        for (record, i) in selected.get_many(&rows).unwrap().iter().zip(&rows) {
            let stored = super::testing::record(Kind::Text, *i);
            let expected: Vec<_> =
                fields.iter().map(|f| stored.values[open().schema().index_of(f).unwrap()].clone()).collect();
            assert_eq!(record.values(), expected);
        }
    }
}

#[test]
fn reading_ahead_changes_nothing() {
    for (format, kind) in all() {
        let path = pristine(format, kind);
        for bytes in [0, 1, 300, u64::MAX] {
            let dataset = OpenOptions::new().read_ahead_bytes(bytes).open(&path).unwrap();
            let train = dataset.split("train").unwrap();
            let keys = train.select(&["key"]).unwrap();
            for i in [0, 1, 2, 3, 3, 9, 8, 9, 10, 11, 12, 2, 3, 20, 21, 22, 0] {
                assert_eq!(inner(train.get(i)), record(kind, i));
                assert_eq!(keys.get(i).unwrap().values(), &record(kind, i).values[..1]);
            }
            assert!(train.get(23).is_err());
        }
    }
}

#[test]
fn lengths_find_records() {
    for kind in KINDS {
        let (_dir, dataset) = dataset(Format::Msgpack, kind);
        let split = dataset.split("validation").unwrap();
        let mut sorted: Vec<(u64, u64)> = (0..5).map(|i| (split.length(i).unwrap(), i)).collect();
        sorted.sort_unstable();
        for (rank, &(length, ordinal)) in (0..).zip(&sorted) {
            assert_eq!(split.by_length(rank).unwrap(), ordinal);
            let bucket: Vec<u64> = split.bucket(length..length + 1).unwrap().map(Result::unwrap).collect();
            assert!(bucket.contains(&ordinal));
        }
        let shorter: Vec<u64> = split.bucket(0..sorted[3].0).unwrap().map(Result::unwrap).collect();
        assert_eq!(shorter, sorted[..3].iter().map(|s| s.1).collect::<Vec<_>>());
        assert_eq!(split.histogram().unwrap().map(|run| run.unwrap().count).sum::<u64>(), 5);
        assert_eq!(split.info().unwrap().length.max, sorted[4].0);
    }
}

#[test]
fn many_threads_share_a_split() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Split>();
    shared::<Dataset>();
    shared::<Record>();
    let (dir, _) = dataset(Format::Msgpack, Kind::Text);
    let dataset = OpenOptions::new().access(Access::Read).open_shards(1).open(dir.path()).unwrap();
    let train = dataset.split("train").unwrap();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let train = &train;
            scope.spawn(move || {
                for i in 0..200 {
                    let i = (i * 11 + t) % 23;
                    assert_eq!(inner(train.get(i)), record(Kind::Text, i));
                }
            });
        }
    });
}

/// All files of a directory, sorted.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Where a whole dataset is; written once, since every written file waits for the disk.
pub(super) fn pristine(format: Format, kind: Kind) -> PathBuf {
    static WRITTEN: Mutex<Vec<(Format, Kind, tempfile::TempDir)>> = Mutex::new(Vec::new());
    let mut written = WRITTEN.lock().unwrap();
    if let Some((_, _, dir)) = written.iter().find(|(f, k, _)| (*f, *k) == (format, kind)) {
        return dir.path().to_owned();
    }
    let (dir, _) = dataset(format, kind);
    let path = dir.path().to_owned();
    written.push((format, kind, dir));
    path
}

/// A copy that may be altered.
pub(super) fn copy(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files(from) {
        let to = dir.path().join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
    dir
}

/// The ordinals of `count` records, the first of which is record `first` of all, sorted by length.
fn by_length(kind: Kind, first: u64, count: u64) -> Vec<u64> {
    let length = |i: &u64| match &record(kind, first + i).values[1..4] {
        [_, sample::Value::UInt(width), sample::Value::UInt(height)] => width * height,
        [sample::Value::Ids(ids), ..] => ids.len() as u64,
        other => panic!("{other:?}"),
    };
    let mut ordinals: Vec<u64> = (0..count).collect();
    ordinals.sort_by_key(length);
    ordinals
}

/// Reads everything in every way. Each record is the right one, or an error.
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
        if let (Some(place), true) = (split.schema().index_of(INPUT_IDS), split.len() > 1) {
            let lent = split.with_ids(&[1, 0, 1], place, |all| {
                all.iter().map(|one| (one.record, one.ids.iter().collect::<Vec<_>>())).collect::<Vec<_>>()
            });
            let written = |i| match record(kind, first + i).values.swap_remove(place) {
                sample::Value::Ids(ids) => (i, ids.iter().collect()),
                other => panic!("{other:?}"),
            };
            match lent {
                Ok(lent) => assert_eq!(lent, [1, 0, 1].map(written), "{}", split.name()),
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
fn a_file_that_is_missing_longer_or_of_another_dataset_is_an_error() {
    for (format, kind) in all() {
        let (dir, _) = dataset(format, kind);
        assert!(read_all(dir.path(), kind, Access::Map).is_empty());
        for path in files(dir.path()) {
            let bytes = std::fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // The reader has no need of these: `verify` looks at them.
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
fn shards_and_indexes_that_changed_places_are_errors() {
    for (format, kind) in all() {
        let (dir, _) = dataset(format, kind);
        let (other, _) = dataset(format, kind);
        // The same sizes, other records.
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
fn an_index_of_another_dataset_is_an_error_even_when_its_size_fits() {
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
    std::fs::write(&path, json.replace("\"manifest_version\": 2", "\"manifest_version\": 3")).unwrap();
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

    /// Any file, any bytes: the right record or an error.
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
