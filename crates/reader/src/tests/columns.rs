//! Tests of selected columns.

use dsconvert_dataset::format::Format;
use dsconvert_dataset::schema::{INPUT_IDS, Kind};

use super::{all, dataset};
use crate::testing::{self, write};
use crate::{Dataset, OpenOptions};

#[test]
fn only_selected_columns_are_returned_in_the_requested_order() {
    for (format, kind) in all() {
        let (_dir, dataset) = dataset(format, kind);
        let train = dataset.split("train").unwrap().select(&["score", "key"]).unwrap();
        let got = train.get(3).unwrap();
        assert_eq!(got.values().len(), 2);
        assert_eq!((got.key(), got.float("score")), (Some("item-3"), Some(3.0 / 8.0)));
        assert_eq!(train.get_many(&[3]).unwrap()[0], got);
        assert_eq!(train.iter().nth(3).unwrap().unwrap(), got);
        assert_eq!(train.schema().fields[0].name, "score");
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
            for fields in [&["key"][..], &["score", "note"], &[largest_field(kind)]] {
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
                    let stored = testing::record(kind, record.ordinal()).values;
                    let index = |f: &&str| schema.index_of(f).unwrap();
                    let expected: Vec<_> = fields.iter().map(|f| stored[index(f)].clone()).collect();
                    assert_eq!(record.values(), expected, "{format} {kind:?} byte {at}");
                }
            }
        }
        assert!(refused > 0);
    }
}

/// Returns the field with most of the bytes.
fn largest_field(kind: Kind) -> &'static str {
    match kind {
        Kind::Images => dsconvert_dataset::schema::IMAGE,
        Kind::Text => INPUT_IDS,
        Kind::Records => "blob",
    }
}

/// Damage to a column is detected when it is read, so columns whose damage is not detected were not read.
#[test]
fn without_checksums_unselected_parquet_columns_are_not_decoded() {
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
                // Damage to these columns may go undetected here. Checksums cover whole records, so the checked read
                // then fails.
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
            let stored = testing::record(Kind::Text, *i);
            let expected: Vec<_> =
                fields.iter().map(|f| stored.values[open().schema().index_of(f).unwrap()].clone()).collect();
            assert_eq!(record.values(), expected);
        }
    }
}
