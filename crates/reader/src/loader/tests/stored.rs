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
fn arrays_with_one_open_axis_are_padded_to_the_longest_of_a_batch() {
    let ty = |text: &str| FieldType::Array(text.parse().unwrap());
    let fields = vec![
        Field::required("a", ty("array<int16>[?,2]")),
        Field::nullable("b", ty("array<float32>[2,?]")),
        Field::required("c", ty("array<uint8>[?,?]")),
        Field::required("n", FieldType::UInt32),
    ];
    let schema = Schema::records(fields).unwrap().with_indexed(&["n"]).unwrap();
    let a = |i: u64| (0..(i % 4) as i16 * 2).map(|at| at + 1).collect::<Vec<i16>>();
    let b = |i: u64| (0..(i % 3) as u8 * 2).map(|at| f32::from(at) + 0.5).collect::<Vec<f32>>();
    let record = |i: u64| {
        let array = |shape: [u32; 2], bytes: Vec<u8>| {
            sample::Value::Array(sample::ArrayValue::new(shape, bytes.into()))
        };
        let b = match i % 5 {
            4 => sample::Value::Null,
            _ => array([2, (i % 3) as u32], b(i).into_iter().flat_map(f32::to_le_bytes).collect()),
        };
        let a = array([(i % 4) as u32, 2], a(i).into_iter().flat_map(i16::to_le_bytes).collect());
        let key = sample::Value::Text(format!("k{i}").as_str().into());
        sample::Record {
            values: vec![key, a, b, array([1, 1], vec![i as u8]), sample::Value::UInt(i * 7 % 10)],
        }
    };
    let dir = tempfile::tempdir().unwrap();
    testing::write_records(dir.path(), Format::Arrow, schema, &[&[23]], record).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let padded = |names: &[&str], fields: &[&str]| LoaderOptions {
        pad_fields: names.iter().map(|name| (*name).to_owned()).collect(),
        fields: Some(fields.iter().map(|name| (*name).to_owned()).collect()),
        ..batches_of(5)
    };
    let mut rows = 0;
    for batch in all(&mut Loader::new(split.clone(), padded(&["a", "b"], &["a", "b"])).unwrap()) {
        let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "a.lengths", "b", "b.lengths", "b.valid"]);
        let shapes = ["a", "b"].map(|name| batch.array(name).unwrap().shape().to_vec());
        let lengths = ["a", "b"]
            .map(|name| batch.array(&format!("{name}.lengths")).unwrap().as_slice::<i64>().unwrap());
        let [of_a, of_b] = [shapes[0][1], shapes[1][2]];
        assert_eq!(shapes, [vec![batch.rows(), of_a, 2], vec![batch.rows(), 2, of_b]]);
        assert_eq!(lengths.map(|all| *all.iter().max().unwrap() as usize), [of_a, of_b]);
        let numbers = batch.array("a").unwrap().as_slice::<i16>().unwrap();
        let floats = batch.array("b").unwrap().as_slice::<f32>().unwrap();
        let valid = batch.array("b.valid").unwrap().as_slice::<bool>().unwrap();
        for (row, &i) in batch.records().iter().enumerate() {
            rows += 1;
            let mut expected = a(i);
            expected.resize(of_a * 2, 0);
            assert_eq!(numbers[row * of_a * 2..(row + 1) * of_a * 2], expected);
            assert_eq!((valid[row], lengths[0][row]), (i % 5 != 4, (i % 4) as i64));
            let own = if i % 5 == 4 { 0 } else { (i % 3) as usize };
            assert_eq!(lengths[1][row], own as i64);
            for axis in 0..2 {
                let mut expected = b(i)[axis * own..(axis + 1) * own].to_vec();
                expected.resize(of_b, 0.0);
                assert_eq!(floats[(row * 2 + axis) * of_b..(row * 2 + axis + 1) * of_b], expected);
            }
        }
    }
    assert_eq!(rows, 23);
    for (names, fields, why) in [
        (&["c"][..], &["c"][..], "\"c\" cannot be padded: its type is array<uint8>[?,?]"),
        (&["n"], &["n"], "\"n\" cannot be padded: its type is uint32"),
        (&["a"], &["b"], "no field \"a\" to pad"),
        (&["x"], &["b"], "no field \"x\" to pad"),
    ] {
        let refused = Loader::new(split.clone(), padded(names, fields)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

/// Compared with a brute-force sum of the column.
#[test]
fn batches_can_be_measured_by_a_column_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::records(vec![Field::required("patches", FieldType::UInt32)]).unwrap();
    let schema = schema.with_indexed(&["patches"]).unwrap();
    let patches = |i: u64| i * 37 % 50 + 1;
    let record = |i: u64| sample::Record {
        values: vec![sample::Value::Text(format!("k{i}").as_str().into()), sample::Value::UInt(patches(i))],
    };
    testing::write_records(dir.path(), Format::Msgpack, schema, &[&[120, 80]], record).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let measured: Arc<dyn crate::RecordSource> =
        Arc::new(crate::Measured::new(split.clone(), "patches").unwrap());
    assert_ne!(measured.fingerprint(), split.fingerprint());
    let budget = LoaderOptions {
        threads: 2,
        ..LoaderOptions::new(BatchOptions::new(BatchSize::MaxTokensUnpadded(200)))
    };
    let mut seen: Vec<u64> = Vec::new();
    let batches = all(&mut Loader::new(measured, budget).unwrap());
    for batch in &batches {
        let sum: u64 = batch.records().iter().map(|&i| patches(i)).sum();
        assert!(sum <= 200 && batch.tokens() == sum, "{sum}");
        seen.extend(batch.records());
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..200));
    // Buckets of similar sums are nearly full.
    let all: u64 = (0..200).map(patches).sum();
    assert!(batches.len() as u64 <= all.div_ceil(200) * 3 / 2, "{}", batches.len());
    let refused = crate::Measured::new(split, "frames").unwrap_err();
    assert!(
        refused.to_string().contains("no column \"frames\"")
            && refused.remedy() == Some("its columns are patches")
    );
    let text = tempfile::tempdir().unwrap();
    let schema = Schema::text(
        dsconvert_dataset::schema::IdWidth::U16,
        vec![Field::required("patches", FieldType::UInt32)],
    );
    let schema = schema.unwrap().with_indexed(&["patches"]).unwrap();
    let record = |i: u64| {
        let ids = sample::Ids::pack(dsconvert_dataset::schema::IdWidth::U16, &[1]).unwrap();
        let text = |text: &str| sample::Value::Text(text.into());
        sample::Record {
            values: vec![
                text(&format!("{i}")),
                sample::Value::Ids(ids),
                sample::Value::UInt(1),
                text("o"),
                sample::Value::UInt(i),
            ],
        }
    };
    testing::write_records(text.path(), Format::Arrow, schema, &[&[9]], record).unwrap();
    let split = Dataset::open(text.path()).unwrap().split("train").unwrap();
    let measured: Arc<dyn crate::RecordSource> = Arc::new(crate::Measured::new(split, "patches").unwrap());
    assert!(Loader::new(measured, batches_of(3)).unwrap_err().to_string().contains("not by \"patches\""));
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
