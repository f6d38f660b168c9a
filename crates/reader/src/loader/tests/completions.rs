//! Tests of batches of preference data.

use dsconvert_dataset::sample::{self, ArrayValue, Ids};
use dsconvert_dataset::schema::{Field, FieldType, IdWidth, Schema};

use super::*;
use crate::batch::{Last, Layout, PackOptions};
use crate::{ClassNames, Concatenated, RecordSource};

fn ids(first: u32, count: u64) -> sample::Value {
    let ids: Vec<u32> = (0..count as u32).map(|at| first + at).collect();
    sample::Value::Ids(Ids::pack(IdWidth::U16, &ids).unwrap())
}

/// The lengths of prompt, chosen and rejected of pair `i`.
fn lengths(i: u64) -> [u64; 3] {
    [1 + i % 4, 1 + i * 7 % 13, 1 + i * 5 % 11]
}

/// Writes 40 pairs, each with a margin. Every fifth one has a token of its chosen completion that is not trained.
fn pairs(dir: &Path, format: Format) -> Split {
    let schema = Schema::pairs(IdWidth::U16, vec![Field::nullable("margin", FieldType::Float64)]).unwrap();
    let record = |i: u64| {
        let [prompt, chosen, rejected] = lengths(i);
        let marks = i.is_multiple_of(5).then(|| (0..chosen).map(|at| u8::from(at != 0)).collect::<Vec<u8>>());
        let masks = |marks: Vec<u8>| sample::Value::Array(ArrayValue::new([chosen as u32], marks.into()));
        let values = vec![
            sample::Value::Text(format!("pair-{i}").as_str().into()),
            ids(100, prompt),
            sample::Value::UInt(2 * prompt + chosen + rejected),
            sample::Value::Text("source".into()),
            ids(1000, chosen),
            ids(2000, rejected),
            marks.map_or(sample::Value::Null, masks),
            sample::Value::Null,
            sample::Value::UInt(prompt + chosen.max(rejected)),
            sample::Value::Float(i as f64 / 8.0),
        ];
        sample::Record { values }
    };
    testing::write_records(dir, format, schema, &[&[25, 15]], record).unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

/// The rows of a batch without padding, each with its completion mask.
fn rows(batch: &Batch) -> Vec<(Vec<i64>, Vec<i64>)> {
    let array = |name| batch.array(name).unwrap().as_slice::<i64>().unwrap();
    let width = batch.array("input_ids").unwrap().shape()[1];
    let (ids, masks) = (array("input_ids"), array("completion_mask"));
    let lengths = array("lengths");
    (0..batch.rows())
        .map(|row| {
            let tokens = row * width..row * width + lengths[row] as usize;
            (ids[tokens.clone()].to_vec(), masks[tokens].to_vec())
        })
        .collect()
}

fn expected(i: u64, is_chosen: bool) -> (Vec<i64>, Vec<i64>) {
    let [prompt, chosen, rejected] = lengths(i);
    let (first, count) = if is_chosen { (1000, chosen) } else { (2000, rejected) };
    let ids = (100..100 + prompt as i64).chain(first..first + count as i64).collect();
    let mark = |at| i64::from(!(is_chosen && i.is_multiple_of(5) && at == 0));
    (ids, (0..prompt).map(|_| 0).chain((0..count).map(mark)).collect())
}

#[test]
fn both_rows_of_a_pair_are_in_one_batch_of_one_rank() {
    for (format, order) in [(Format::Arrow, PairOrder::Stacked), (Format::Parquet, PairOrder::Alternating)] {
        let dir = tempfile::tempdir().unwrap();
        let split = pairs(dir.path(), format);
        let mut seen = Vec::new();
        for rank in 0..2 {
            let text = TextBatchOptions { pairs: order, ..TextBatchOptions::default() };
            let fields = ["input_ids", "completion_mask", "labels", "lengths", "margin"];
            let options = LoaderOptions {
                layout: Layout::new(rank, 2).unwrap(),
                text,
                fields: Some(fields.map(str::to_owned).to_vec()),
                ..batches_of(3)
            };
            for batch in all(&mut Loader::new(split.clone(), options).unwrap()) {
                let (rows, count) = (rows(&batch), batch.rows() / 2);
                let margins = batch.array("margin").unwrap().as_slice::<f64>().unwrap();
                assert_eq!((margins.len(), batch.records().len()), (count, 2 * count));
                for (at, margin) in margins.iter().enumerate() {
                    let [chosen, rejected] = match order {
                        PairOrder::Stacked => [at, count + at],
                        PairOrder::Alternating => [2 * at, 2 * at + 1],
                    };
                    let i = (margin * 8.0) as u64;
                    assert_eq!((&rows[chosen], &rows[rejected]), (&expected(i, true), &expected(i, false)));
                    assert_eq!([batch.records()[chosen], batch.records()[rejected]], [i, i]);
                    seen.push(i);
                }
                // The first token of a row is never a label, and others are where they are trained.
                let labels = batch.array("labels").unwrap().as_slice::<i64>().unwrap();
                let trained = rows.iter().map(|(_, mask)| mask.iter().skip(1).sum::<i64>()).sum::<i64>();
                assert_eq!(labels.iter().filter(|label| **label != -100).count() as i64, trained);
                assert_eq!(batch.trained(), Some(trained as u64));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<u64>>());
    }
}

#[test]
fn pairs_of_several_datasets_are_loaded_as_one() {
    let (one, two, third) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let split =
        |dir: &tempfile::TempDir| -> Arc<dyn RecordSource> { Arc::new(pairs(dir.path(), Format::Arrow)) };
    let sources = vec![("a".to_owned(), split(&one)), ("b".to_owned(), split(&two))];
    let both: Arc<dyn RecordSource> = Arc::new(Concatenated::new(sources, ClassNames::Equal).unwrap());
    let fields = ["input_ids", "completion_mask", "labels", "lengths", "source"].map(str::to_owned);
    let options = LoaderOptions {
        fields: Some(fields.to_vec()),
        ..LoaderOptions::new(BatchOptions::new(BatchSize::MaxTokens(120)))
    };
    let mut seen = Vec::new();
    let mut loader = Loader::new(both, options).unwrap();
    for batch in all(&mut loader) {
        let shape = batch.array("input_ids").unwrap().shape().to_vec();
        assert!(shape[0] * shape[1] <= 120, "{shape:?}");
        let sources = batch.array("source").unwrap().as_slice::<i32>().unwrap().to_vec();
        for ((row, found), source) in rows(&batch).into_iter().enumerate().zip(sources) {
            let record = batch.records()[row];
            assert_eq!(source, i32::from(record >= 40));
            assert_eq!(found, expected(record % 40, row < batch.rows() / 2));
            seen.push(record);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..80).flat_map(|record| [record, record]).collect::<Vec<u64>>());
    // Completions with a label are other records.
    let schema = Schema::unpaired(IdWidth::U16, Vec::new()).unwrap();
    let record = |_| sample::Record {
        values: vec![
            sample::Value::Text("k".into()),
            ids(1, 2),
            sample::Value::UInt(5),
            sample::Value::Text("o".into()),
            ids(7, 3),
            sample::Value::Null,
            sample::Value::Bool(true),
        ],
    };
    testing::write_records(third.path(), Format::Arrow, schema, &[&[1]], record).unwrap();
    let labeled = Dataset::open(third.path()).unwrap().split("train").unwrap();
    let sources =
        vec![("a".to_owned(), split(&one)), ("c".to_owned(), Arc::new(labeled) as Arc<dyn RecordSource>)];
    let error = Concatenated::new(sources, ClassNames::Equal).unwrap_err().to_string();
    assert!(error.contains("chosen_ids"), "{error}");
}

#[test]
fn a_budget_counts_both_rows_with_padding() {
    let dir = tempfile::tempdir().unwrap();
    let split = pairs(dir.path(), Format::Arrow);
    for multiple in [1, 8] {
        let batching =
            BatchOptions { pad_to_multiple_of: multiple, ..BatchOptions::new(BatchSize::MaxTokens(96)) };
        let mut loader =
            Loader::new(split.clone(), LoaderOptions { threads: 0, ..LoaderOptions::new(batching) }).unwrap();
        let (mut tokens, mut most) = (0, 0);
        while let Some(batch) = loader.next_batch().unwrap() {
            let shape = batch.array("input_ids").unwrap().shape().to_vec();
            assert!(shape[0] * shape[1] <= 96 && (shape[1] as u64).is_multiple_of(multiple), "{shape:?}");
            assert!(multiple > 1 || shape[1] as u64 == batch.max_len());
            let totals = loader.totals().unwrap().unwrap();
            assert_eq!((totals.rows, totals.tokens), (shape[0] as u64, batch.tokens()));
            assert_eq!(totals.padded_tokens, (shape[0] * shape[1]) as u64);
            assert_eq!(totals.trained, batch.trained());
            tokens += batch.tokens();
            most = most.max(shape[0] * shape[1]);
        }
        assert_eq!(tokens, (0..40).map(|i| split.length(i).unwrap()).sum::<u64>());
        assert!(most > 60);
    }
}

#[test]
fn what_does_not_fit_pairs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let split = pairs(dir.path(), Format::Arrow);
    let refused = |options: LoaderOptions| Loader::new(split.clone(), options).unwrap_err().to_string();
    let padded = BatchOptions { last: Last::Pad, ..BatchOptions::new(BatchSize::BatchSize(2)) };
    assert!(refused(LoaderOptions::new(padded)).contains("last \"pad\""));
    assert!(refused(LoaderOptions::new(PackOptions::new(64, 1))).contains("seq_len"));
    let flat = BatchOptions::new(BatchSize::MaxTokensUnpadded(64));
    assert!(refused(LoaderOptions::new(flat)).contains("max_tokens_unpadded"));
    let text = TextBatchOptions { packed: PackedLayout::Flash, ..TextBatchOptions::default() };
    assert!(refused(LoaderOptions { text, ..batches_of(2) }).contains("flash"));
}

#[test]
fn completions_with_a_label_are_rows() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::unpaired(IdWidth::U32, vec![]).unwrap();
    let record = |i: u64| {
        let list = |first, count| sample::Value::Ids(Ids::pack(IdWidth::U32, &vec![first; count]).unwrap());
        let values = vec![
            sample::Value::Text(format!("k{i}").as_str().into()),
            list(7, 2),
            sample::Value::UInt(3 + i),
            sample::Value::Text("source".into()),
            list(9, 1 + i as usize),
            sample::Value::Null,
            sample::Value::Bool(i.is_multiple_of(2)),
        ];
        sample::Record { values }
    };
    testing::write_records(dir.path(), Format::Parquet, schema, &[&[6]], record).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    for batch in all(&mut Loader::new(split, batches_of(4)).unwrap()) {
        let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
        assert_eq!(names, ["input_ids", "attention_mask", "completion_mask", "labels", "lengths", "label"]);
        let labels = batch.array("label").unwrap().as_slice::<bool>().unwrap();
        for (row, record) in batch.records().iter().enumerate() {
            assert_eq!(labels[row], record.is_multiple_of(2));
            assert_eq!(rows(&batch)[row].1.iter().sum::<i64>() as u64, 1 + record);
        }
    }
}

#[test]
fn prompts_are_returned_as_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::prompts(vec![Field::nullable("answer", FieldType::Int64)]).unwrap();
    let record = |i: u64| sample::Record {
        values: vec![
            sample::Value::Text(format!("k{i}").as_str().into()),
            sample::Value::Text(format!("[{i}]").as_str().into()),
            sample::Value::UInt(3 + i),
            sample::Value::Text("source".into()),
            sample::Value::Int(i as i64),
        ],
    };
    for format in Format::ALL {
        let dir = dir.path().join(format.extension());
        std::fs::create_dir(&dir).unwrap();
        testing::write_records(&dir, format, schema.clone(), &[&[6]], record).unwrap();
        let split = Dataset::open(&dir).unwrap().split("train").unwrap();
        for batch in all(&mut Loader::new(split, batches_of(4)).unwrap()) {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["key", "prompt", "length", "origin", "answer", "answer.valid"]);
            let answers = batch.array("answer").unwrap().as_slice::<i64>().unwrap();
            assert_eq!(answers, batch.records().iter().map(|record| *record as i64).collect::<Vec<_>>());
        }
    }
}
