//! Tests of stored fields in batches.

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
