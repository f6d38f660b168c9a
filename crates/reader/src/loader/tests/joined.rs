//! Tests of packed rows whose documents have images.

use bytes::Bytes;
use dsconvert_dataset::packing::Packing;
use dsconvert_dataset::sample::{ArrayValue, Ids, Record, Value};
use dsconvert_dataset::schema::{Field, FieldType, IdWidth, Schema};
use dsconvert_dataset::storage::Access;
use proptest::prelude::*;

use super::*;
use crate::OpenOptions;
use crate::batch::{ColumnBudget, Last, Oversize, PackOptions};

const FIELDS: [&str; 4] = ["input_ids", "images", "image_grids", "patches"];

/// Record `i` has `i * 7 % 40 + 1` tokens, up to three images, and patches of one to three rows of each.
fn record(i: u64) -> Record {
    let length = i * 7 % 40 + 1;
    let ids: Vec<u32> = (0..length).map(|k| (i * 100 + k + 1) as u32).collect();
    let images: Vec<Bytes> = (0..i % 4).map(|k| Bytes::from(format!("image {k} of {i}"))).collect();
    let grids: Vec<i32> = (0..i % 4).flat_map(|k| [1, 2 + k as i32 % 3, 2 + i as i32 % 5]).collect();
    let patches: i32 = grids.chunks_exact(3).map(|grid| grid.iter().product::<i32>()).sum();
    let bytes: Vec<u8> = grids.iter().flat_map(|side| side.to_le_bytes()).collect();
    Record {
        values: vec![
            Value::Text(format!("item-{i}").as_str().into()),
            Value::Ids(Ids::pack(IdWidth::U32, &ids).unwrap()),
            Value::UInt(length),
            Value::Text(format!("{i}.txt").as_str().into()),
            Value::Files(images),
            Value::Array(ArrayValue::new([(i % 4) as u32, 3], bytes.into())),
            Value::UInt(patches as u64),
        ],
    }
}

fn split(dir: &Path, format: Format) -> Split {
    let schema = Schema::text(IdWidth::U32, Vec::new()).unwrap().with_images().unwrap();
    testing::write_records(dir, format, schema, &[&[40, 60]], record).unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

fn packed(budget: Option<u64>, fields: &[&str]) -> LoaderOptions {
    let budget = budget.map(|max| ColumnBudget { column: "patches".to_owned(), max });
    let rows = PackOptions { budget, last: Last::Pad, ..PackOptions::new(90, 3) };
    let fields = Some(fields.iter().map(|name| (*name).to_owned()).collect());
    LoaderOptions { fields, threads: 2, ..LoaderOptions::new(rows) }
}

#[test]
fn packed_rows_have_the_images_of_their_documents() {
    for format in [Format::Arrow, Format::Parquet] {
        let dir = tempfile::tempdir().unwrap();
        let split = split(dir.path(), format);
        let (mut seen, mut with_images) = (Vec::new(), 0);
        for budget in [None, Some(80)] {
            let mut loader = Loader::new(split.clone(), packed(budget, &FIELDS)).unwrap();
            let counts = loader.counts().clone();
            let mut start = loader.state();
            while let Some(batch) = loader.next_batch().unwrap() {
                let (Some(Column::FileLists(images)), Some(Column::Arrays(grids))) =
                    (batch.get("images"), batch.get("image_grids"))
                else {
                    panic!("{batch:?}")
                };
                let patches = batch.array("patches").unwrap().as_slice::<i64>().unwrap();
                let ids = batch.array("input_ids").unwrap().as_slice::<i64>().unwrap();
                assert_eq!((images.len(), grids.len(), patches.len(), ids.len()), (3, 3, 3, 270));
                let mut documents = batch.records().iter().map(|&at| record(at));
                for row in 0..batch.rows() - batch.filler_rows() {
                    // The documents of the row, in order.
                    let (mut at, mut files, mut sides, mut sum) = (row * 90, Vec::new(), Vec::new(), 0);
                    while at < (row + 1) * 90 && (at == row * 90 || ids[at] != 0) {
                        let document = documents.next().unwrap();
                        let [
                            _,
                            Value::Ids(own),
                            _,
                            _,
                            Value::Files(own_files),
                            Value::Array(own_grids),
                            Value::UInt(own_patches),
                        ] = &document.values[..]
                        else {
                            panic!("{document:?}")
                        };
                        assert!(own.iter().map(i64::from).eq(ids[at..at + own.len()].iter().copied()));
                        at += own.len();
                        files.extend_from_slice(own_files);
                        sides.extend_from_slice(own_grids.as_bytes());
                        sum += *own_patches as i64;
                    }
                    with_images += usize::from(!files.is_empty());
                    assert_eq!(images[row].as_ref(), Some(&files));
                    let grid = grids[row].as_ref().unwrap();
                    assert_eq!(grid.shape(), [files.len(), 3]);
                    let stored: Vec<u8> =
                        grid.as_slice::<i32>().unwrap().iter().flat_map(|side| side.to_le_bytes()).collect();
                    assert_eq!(stored, sides);
                    assert_eq!(patches[row], sum);
                    assert!(budget.is_none_or(|max| sum as u64 <= max));
                }
                assert!(documents.next().is_none());
                assert!(images[batch.rows() - batch.filler_rows()..].iter().all(Option::is_none));
                let totals = counts.totals(batch.id().step, &start).unwrap().unwrap();
                assert_eq!(totals.columns["patches"], patches.iter().sum::<i64>() as u64);
                seen.extend_from_slice(batch.records());
                start = loader.state();
            }
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq((0..200).map(|at| at / 2)));
        assert!(with_images > 40);
    }
}

#[test]
fn documents_with_images_are_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path(), Format::Arrow);
    let rows = |seq_len, packing| PackOptions { packing, ..PackOptions::new(seq_len, 1) };
    let refused =
        |rows: PackOptions| Loader::new(split.clone(), LoaderOptions::new(rows)).unwrap_err().to_string();
    let short = refused(rows(30, Packing::BestFit));
    assert!(short.contains("records exceed a budget: `seq_len` allows 30 tokens"), "{short}");
    // Also where the fields of images are not selected.
    let selected = split.select(&["input_ids", "key"]).unwrap();
    let selected = Loader::new(selected, LoaderOptions::new(rows(30, Packing::BestFit))).unwrap_err();
    assert!(selected.to_string().contains("exceed a budget"), "{selected}");
    let cut = refused(rows(90, Packing::Concat));
    assert!(cut.contains("cut"), "{cut}");
    let truncated =
        BatchOptions { oversize: Oversize::Truncate, ..BatchOptions::new(BatchSize::MaxTokens(30)) };
    let truncated = Loader::new(split.clone(), LoaderOptions::new(truncated)).unwrap_err();
    assert!(truncated.to_string().contains("a record with images is never cut"), "{truncated}");
    let error = Loader::new(split, packed(Some(80), &["input_ids", "key"])).unwrap_err();
    assert!(error.to_string().contains("\"key\" is a field of single records"), "{error}");
}

#[test]
fn fields_of_documents_that_may_be_cut_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fields = vec![Field::required("count", FieldType::UInt32)];
    let schema = Schema::text(IdWidth::U32, fields).unwrap().with_indexed(&["count"]).unwrap();
    let of = |i| {
        let mut values = record(i).values;
        values.truncate(4);
        values.push(Value::UInt(i));
        Record { values }
    };
    testing::write_records(dir.path(), Format::Arrow, schema, &[&[20]], of).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let error = Loader::new(split.clone(), packed(None, &["input_ids", "count"])).unwrap_err();
    assert!(error.remedy().unwrap().contains("second budget"), "{error}");
    let budget = Some(ColumnBudget { column: "count".to_owned(), max: 50 });
    let rows = PackOptions { budget, ..PackOptions::new(90, 1) };
    let fields = Some(vec!["count".to_owned()]);
    let loader = Loader::new(split, LoaderOptions { fields, ..LoaderOptions::new(rows) }).unwrap();
    let counts = loader.map(|batch| batch.unwrap().array("count").unwrap().as_slice::<i64>().unwrap()[0]);
    let counts: Vec<i64> = counts.collect();
    assert_eq!(counts.iter().sum::<i64>(), (0..20).sum::<i64>());
    assert!(counts.into_iter().all(|count| count <= 50));
}

/// Reads an epoch of packed rows and one of padded batches, and returns their records; an error ends an epoch.
fn read_all(split: Split) -> Result<Vec<Vec<u64>>, Error> {
    let budget = || Some(ColumnBudget { column: "patches".to_owned(), max: 80 });
    let rows = PackOptions { budget: budget(), ..PackOptions::new(90, 3) };
    let padded = BatchOptions {
        budget: budget(),
        oversize: Oversize::Drop,
        ..BatchOptions::new(BatchSize::MaxTokens(120))
    };
    let mut found = Vec::new();
    for batching in [Batching::from(rows), padded.into()] {
        let fields = Some(FIELDS.map(str::to_owned).to_vec());
        let loader =
            Loader::new(split.clone(), LoaderOptions { fields, threads: 0, ..LoaderOptions::new(batching) })?;
        for batch in loader.take(200) {
            found.push(batch?.records().to_vec());
        }
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A column of the record index that was altered is an error, or at least does no harm if checksums are off.
    #[test]
    fn a_damaged_column_is_an_error(
        at: prop::sample::Index, mask in 1u8.., access in prop::sample::select(vec![Access::Map, Access::Read]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let expected = read_all(split(dir.path(), Format::Arrow)).unwrap();
        prop_assert!(expected.len() > 20);
        let path = dir.path().join("index/train.records-0000.arrow");
        let mut bytes = std::fs::read(&path).unwrap();
        // The last column, which has `patches`: the last third of the file, with the footer.
        let start = bytes.len() / 3 * 2;
        let at = start + at.index(bytes.len() - start);
        bytes[at] ^= mask;
        std::fs::write(&path, bytes).unwrap();
        let open = |is_checked: bool| {
            OpenOptions::new().access(access).verify_checksums(is_checked).open(dir.path())?.split("train")
        };
        let checked = open(true).and_then(read_all);
        prop_assert_eq!(checked.unwrap_err().kind(), ErrorKind::Corrupt);
        // Every record exists, and an epoch ends.
        for batch in open(false).and_then(read_all).into_iter().flatten() {
            prop_assert!(batch.iter().all(|record| *record < 100));
        }
    }
}
