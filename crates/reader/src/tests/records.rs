//! Tests of the records of an intact dataset.

use dsconvert_dataset::error::{ErrorKind, Result};
use dsconvert_dataset::format::Format;
use dsconvert_dataset::schema::Kind;
use dsconvert_dataset::storage::Access;

use super::{KINDS, all, dataset, inner, pristine};
use crate::testing::record;
use crate::{Dataset, OpenOptions, Record, Split};

#[test]
fn get_get_many_and_iter_return_the_written_records() {
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
fn missing_records_splits_and_fields_are_errors() {
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
fn directories_without_a_dataset_are_io_errors() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Dataset::open(dir.path()).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(Dataset::open(dir.path().join("nowhere")).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn read_ahead_returns_the_same_records() {
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
