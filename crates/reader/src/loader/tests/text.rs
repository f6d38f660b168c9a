//! Tests of token ids in batches.

use dsconvert_dataset::packing::IGNORE_LABEL;

use super::*;
use crate::batch::PackOptions;

fn ids(split: &Split, record: u64) -> Vec<i64> {
    split.get(record).unwrap().input_ids().unwrap().iter().map(i64::from).collect()
}

#[test]
fn padded_rows_hold_the_ids_of_their_records() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let split = text_split(dir.path(), format);
        let mut loader = Loader::new(split.clone(), batches_of(8)).unwrap();
        assert_eq!(loader.len().unwrap(), 7);
        let mut seen = Vec::new();
        for batch in all(&mut loader) {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["input_ids", "attention_mask", "labels", "lengths"]);
            let [rows, width] = *batch.array("input_ids").unwrap().shape() else { panic!("two dimensions") };
            let column = |name| batch.array(name).unwrap().as_slice::<i64>().unwrap();
            for (row, &record) in batch.records().iter().enumerate() {
                let expected = ids(&split, record);
                let of = |name| column(name)[row * width..][..width].split_at(expected.len());
                assert_eq!(of("input_ids"), (&expected[..], &vec![0; width - expected.len()][..]));
                assert_eq!(of("labels"), (&expected[..], &vec![IGNORE_LABEL; width - expected.len()][..]));
                assert!(of("attention_mask").0.iter().all(|m| *m == 1));
                assert!(of("attention_mask").1.iter().all(|m| *m == 0));
                assert_eq!(column("lengths")[row], expected.len() as i64);
                seen.push(record);
            }
            assert_eq!(rows, batch.records().len());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<u64>>());
    }
}

#[test]
fn packed_rows_hold_every_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Msgpack);
    let options = LoaderOptions { threads: 3, ..LoaderOptions::new(PackOptions::new(16, 3)) };
    let mut loader = Loader::new(split.clone(), options).unwrap();
    let expected = loader.len().unwrap();
    let batches = all(&mut loader);
    assert_eq!(batches.len() as u64, expected);
    let tokens: u64 = batches.iter().map(Batch::tokens).sum();
    assert_eq!(tokens, (0..50).map(|i| i * 7 % 13).sum::<u64>());
    for batch in &batches {
        let rows = batch.rows();
        let column = |name| batch.array(name).unwrap();
        assert_eq!(column("input_ids").shape(), [rows, 16]);
        let ends = column("cu_seqlens").as_slice::<i32>().unwrap();
        assert_eq!((ends[0], *ends.last().unwrap()), (0, rows as i32 * 16));
        let [inputs, labels, positions] =
            ["input_ids", "labels", "position_ids"].map(|name| column(name).as_slice::<i64>().unwrap());
        let mut pieces = batch.records().iter();
        for piece in ends.windows(2) {
            let piece = piece[0] as usize..piece[1] as usize;
            assert!(positions[piece.clone()].iter().copied().eq(0..piece.len() as i64));
            let Some(&record) = (if labels[piece.clone()].iter().all(|l| *l == IGNORE_LABEL)
                && inputs[piece.clone()].iter().all(|id| *id == 0)
            {
                None
            } else {
                pieces.next()
            }) else {
                continue;
            };
            let document = ids(&split, record);
            assert_eq!(&inputs[piece.clone()], &document[..piece.len()]);
            assert_eq!(&labels[piece.clone()][..piece.len() - 1], &document[1..]);
            assert_eq!(labels[piece.end - 1], IGNORE_LABEL);
        }
    }
}

/// A model that shifts labels itself computes its loss on each token except the first of a piece, predicted from the
/// one before it.
#[test]
fn labels_for_models_that_shift_are_all_ids_but_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let batchings: [Batching; 2] =
        [PackOptions::new(16, 3).into(), BatchOptions::new(BatchSize::MaxTokensUnpadded(64)).into()];
    for batching in batchings {
        let text = TextBatchOptions {
            labels_for: Some(LabelsFor::HuggingFace),
            pad_id: 70_000,
            ..TextBatchOptions::default()
        };
        let options = LoaderOptions { text, ..LoaderOptions::new(batching) };
        let mut loader = Loader::new(split.clone(), options).unwrap();
        let mut labeled = 0;
        for batch in all(&mut loader) {
            let column = |name| batch.array(name).unwrap().as_slice::<i64>().unwrap();
            let ends = batch.array("cu_seqlens").unwrap().as_slice::<i32>().unwrap();
            for piece in ends.windows(2) {
                let piece = piece[0] as usize..piece[1] as usize;
                let (ids, labels) = (&column("input_ids")[piece.clone()], &column("labels")[piece]);
                if ids.first().is_some_and(|&id| id == 70_000) {
                    assert!(labels.iter().all(|&label| label == IGNORE_LABEL));
                } else if let ([_, ids @ ..], [first, labels @ ..]) = (ids, labels) {
                    assert_eq!((*first, labels), (IGNORE_LABEL, ids));
                    labeled += labels.len();
                }
            }
        }
        // No document is cut here: each has a label for every token but its first.
        assert_eq!(labeled as u64, (0..50u64).map(|i| (i * 7 % 13).saturating_sub(1)).sum::<u64>());
    }
}
