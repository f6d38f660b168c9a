//! Tests of stored fields in batches.

use dsconvert_dataset::sample;
use dsconvert_dataset::schema::{Field, FieldType, Schema};

use super::*;
use crate::batch::Last;

#[test]
fn stored_fields_become_arrays_and_lists() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let split = text_split(dir.path(), format);
        let names = ["key", "note", "score", "length", "lengths"];
        let fields = Some(names.map(str::to_owned).to_vec());
        let mut loader = Loader::new(split.clone(), LoaderOptions { fields, ..batches_of(7) }).unwrap();
        for batch in all(&mut loader) {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["key", "note", "score", "score.valid", "length", "lengths"]);
            let (Some(Column::Texts(keys)), Some(Column::Texts(notes))) =
                (batch.get("key"), batch.get("note"))
            else {
                panic!("{batch:?}")
            };
            let scores = batch.array("score").unwrap().as_slice::<f64>().unwrap();
            assert!(batch.array("score.valid").unwrap().as_slice::<bool>().unwrap().iter().all(|v| *v));
            let lengths = ["length", "lengths"].map(|n| batch.array(n).unwrap().as_slice::<i64>().unwrap());
            assert_eq!(lengths[0], lengths[1]);
            for (row, &ordinal) in batch.records().iter().enumerate() {
                let record = split.get(ordinal).unwrap();
                assert_eq!(keys[row].as_ref().map(|t| t.as_str()), record.key());
                assert_eq!(notes[row].as_ref().map(|t| t.as_str()), record.text("note"));
                assert_eq!(Some(scores[row]), record.float("score"));
                assert_eq!(Some(lengths[0][row]), record.length().map(i64::from));
            }
        }
    }
}

#[test]
fn images_can_stay_encoded_and_labels_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    testing::write(dir.path(), Format::Arrow, Kind::Images, &[&[12]]).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let image = ImageBatchOptions { decode: false, ..ImageBatchOptions::default() };
    let mut loader = Loader::new(split.clone(), LoaderOptions { image, ..batches_of(5) }).unwrap();
    let mut missing = 0;
    for batch in all(&mut loader) {
        let Some(Column::Bytes(images)) = batch.get("image") else { panic!("{batch:?}") };
        let labels = batch.array("label").unwrap().as_slice::<i64>().unwrap();
        for (row, &ordinal) in batch.records().iter().enumerate() {
            let record = split.get(ordinal).unwrap();
            assert_eq!(images[row].as_ref(), record.image());
            assert_eq!(labels[row], record.label().map_or(-100, |label| label as i64));
            missing += u32::from(labels[row] == -100);
        }
    }
    assert_eq!(missing, 3);
}

#[test]
fn batches_of_records_have_all_their_fields() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        testing::write(dir.path(), format, Kind::Records, &[&[20, 13]]).unwrap();
        let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
        let batching = BatchOptions { last: Last::Pad, ..BatchOptions::new(BatchSize::BatchSize(7)) };
        let mut loader =
            Loader::new(split.clone(), LoaderOptions { threads: 2, ..LoaderOptions::new(batching) }).unwrap();
        let mut seen = 0;
        for batch in all(&mut loader) {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["key", "number", "blob", "note", "score", "score.valid", "valid"]);
            let numbers = batch.array("number").unwrap().as_slice::<i64>().unwrap();
            let Some(Column::Bytes(blobs)) = batch.get("blob") else { panic!("{batch:?}") };
            for (row, &ordinal) in batch.records().iter().enumerate() {
                let record = split.get(ordinal).unwrap();
                assert_eq!(
                    (Some(numbers[row]), blobs[row].as_ref()),
                    (record.integer("number"), record.bytes("blob"))
                );
                assert_eq!(split.length(ordinal).unwrap(), record.into_inner().canonical_size());
            }
            seen += batch.records().len();
        }
        assert_eq!(seen, 33);
        let packed = LoaderOptions::new(crate::batch::PackOptions::new(8, 1));
        let refused = Loader::new(split, packed).unwrap_err();
        assert!(refused.to_string().contains("records cannot be packed"), "{refused}");
    }
}

#[test]
fn batches_of_arrays_are_stacked_if_their_shape_is_fixed() {
    let ty = |text: &str| FieldType::Array(text.parse().unwrap());
    let fields = vec![
        Field::required("mel", ty("array<float16>[2,3]")),
        Field::nullable("frames", ty("array<int16>[?,2]")),
        Field::required("tags", FieldType::Texts),
    ];
    let schema = Schema::records(fields).unwrap();
    let record = |i: u64| {
        let array = |shape: &[u32]| {
            let numbers = shape.iter().product::<u32>();
            let bytes = (0..numbers as u16).flat_map(|at| (at + i as u16).to_le_bytes()).collect::<Vec<u8>>();
            sample::Value::Array(sample::ArrayValue::new(shape, bytes.into()))
        };
        let frames = if i % 4 == 3 { sample::Value::Null } else { array(&[(i % 4) as u32, 2]) };
        let tags = sample::Value::Texts((0..i % 3).map(|at| format!("tag {at}").as_str().into()).collect());
        sample::Record {
            values: vec![sample::Value::Text(format!("k{i}").as_str().into()), array(&[2, 3]), frames, tags],
        }
    };
    for format in [Format::Arrow, Format::Parquet] {
        let dir = tempfile::tempdir().unwrap();
        testing::write_records(dir.path(), format, schema.clone(), &[&[9]], record).unwrap();
        let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
        for batch in all(&mut Loader::new(split, batches_of(4)).unwrap()) {
            let mel = batch.array("mel").unwrap();
            assert_eq!(mel.shape(), [batch.rows(), 2, 3]);
            let Some(Column::Arrays(frames)) = batch.get("frames") else { panic!("{batch:?}") };
            assert!(matches!(batch.get("tags"), Some(Column::TextLists(_))));
            for (row, &ordinal) in batch.records().iter().enumerate() {
                assert_eq!(
                    frames[row].as_ref().map(|frames| frames.shape().to_vec()),
                    match ordinal % 4 {
                        3 => None,
                        rows => Some(vec![rows as usize, 2]),
                    }
                );
            }
        }
    }
}

#[test]
fn only_selected_fields_can_be_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Parquet).select(&["score"]).unwrap();
    for last in [Last::Short, Last::Pad] {
        let batching = BatchOptions { last, ..BatchOptions::new(BatchSize::BatchSize(5)) };
        let error = Loader::new(split.clone(), LoaderOptions::new(batching)).unwrap_err();
        assert!(error.to_string().contains("only score are selected"), "no default field is left: {error}");
    }
    let none = LoaderOptions { fields: Some(Vec::new()), ..batches_of(5) };
    let mut loader = Loader::new(split.clone(), none).unwrap();
    assert_eq!(loader.next_batch().unwrap().unwrap().columns().len(), 0, "as requested");
    let fields = Some(vec!["input_ids".to_owned()]);
    assert!(Loader::new(split, LoaderOptions { fields, ..batches_of(5) }).is_err());
}
