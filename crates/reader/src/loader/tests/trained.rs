//! Tests of records that mark the tokens to train on.

use dsconvert_dataset::packing::{IGNORE_LABEL, Packing};
use dsconvert_dataset::schema::ASSISTANT_MASKS;
use proptest::prelude::*;

use super::*;
use crate::batch::{BatchRows, Last, Layout, Oversize, PackOptions};
use crate::testing::{Document, InMemory};

/// A document and the range of its tokens that is used.
type Used = (usize, std::ops::Range<usize>);

/// Returns the labels of the positions of a piece, from their definitions.
fn labels_of((ids, masks): &Document, piece: std::ops::Range<usize>, labels_for: LabelsFor) -> Vec<i64> {
    let first = piece.start;
    let label = |at: usize| {
        let token = if labels_for == LabelsFor::HuggingFace { at } else { at + 1 };
        let is_label = token > first && token < ids.len() && masks[token] == 1;
        if is_label { ids[token].into() } else { IGNORE_LABEL }
    };
    piece.map(label).collect()
}

/// Returns the pieces of each row of the next batch of a loader that has one rank and one micro-batch per step.
fn rows_of_next(loader: &Loader) -> Option<Vec<Vec<Used>>> {
    let (plan, mut at) = (&*loader.counts.plan, loader.state().plan);
    let step = plan.step(&mut at).unwrap()?;
    Some(match plan.micro_batch(&step, 0).unwrap() {
        BatchRows::Records { batch, .. } => {
            let rows = batch.records.iter().zip(&batch.lengths);
            rows.map(|(&record, &length)| vec![(record as usize, 0..length as usize)]).collect()
        }
        BatchRows::Packed { rows, .. } => {
            let range = |range: std::ops::Range<u64>| range.start as usize..range.end as usize;
            let piece =
                |piece: &dsconvert_dataset::packing::Piece| (piece.document as usize, range(piece.inputs()));
            rows.iter().map(|row| row.pieces.iter().map(piece).collect()).collect()
        }
    })
}

fn any_documents() -> impl Strategy<Value = Vec<Document>> {
    let tokens = prop::collection::vec((1u32..100_000, 0u8..2), 0..12);
    prop::collection::vec(tokens, 1..30)
        .prop_map(|documents| documents.into_iter().map(|tokens| tokens.into_iter().unzip()).collect())
}

fn any_batching() -> impl Strategy<Value = Batching> {
    let truncated = |size| BatchOptions { oversize: Oversize::Truncate, ..BatchOptions::new(size) };
    let packed = (1u64..14, 1u64..4, any::<bool>(), 1u64..9).prop_map(|(seq_len, rows, concat, window)| {
        let packing = if concat { Packing::Concat } else { Packing::BestFit };
        PackOptions { packing, window: Some(window), ..PackOptions::new(seq_len, rows) }.into()
    });
    prop_oneof![
        (1u64..6).prop_map(|rows| BatchOptions::new(BatchSize::BatchSize(rows)).into()),
        (4u64..40).prop_map(move |tokens| truncated(BatchSize::MaxTokens(tokens)).into()),
        (4u64..40).prop_map(move |tokens| truncated(BatchSize::MaxTokensUnpadded(tokens)).into()),
        packed,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any documents, masks, batching and layout.
    #[test]
    fn labels_follow_from_the_records_and_the_plan(
        documents in any_documents(),
        batching in any_batching(),
        labels_for in prop::sample::select(vec![LabelsFor::HuggingFace, LabelsFor::NextToken, LabelsFor::Megatron]),
        flash: bool,
        left: bool,
    ) {
        let is_megatron = labels_for == LabelsFor::Megatron;
        let is_flat = matches!(&batching, Batching::Records(b) if matches!(b.size, BatchSize::MaxTokensUnpadded(_)));
        prop_assume!(!is_megatron || !is_flat);
        let text = TextBatchOptions {
            labels_for: Some(labels_for),
            packed: if flash && !is_megatron { PackedLayout::Flash } else { PackedLayout::Rows },
            pad_side: if left && !is_megatron { PadSide::Left } else { PadSide::Right },
            ..TextBatchOptions::default()
        };
        let one_row = is_flat || text.packed == PackedLayout::Flash;
        let from_left = text.pad_side == PadSide::Right || matches!(batching, Batching::Packed(_));
        let is_concat = matches!(&batching, Batching::Packed(_));
        let options = LoaderOptions { text, threads: 0, ..LoaderOptions::new(batching) };
        let mut masked = Loader::new(Arc::new(InMemory::new(&documents, true)) as Arc<dyn RecordSource>, options.clone()).unwrap();
        let mut all_labels = 0;
        while let Some(rows) = rows_of_next(&masked) {
            let batch = masked.next_batch().unwrap().unwrap();
            let labels = batch.array("labels").unwrap();
            let (shape, labels) = (labels.shape().to_vec(), labels.as_slice::<i64>().unwrap());
            let of_row = |row: &Vec<Used>| -> Vec<i64> {
                row.iter().flat_map(|(at, piece)| labels_of(&documents[*at], piece.clone(), labels_for)).collect()
            };
            let mut expected: Vec<i64> = Vec::new();
            for row in &rows {
                let row = of_row(row);
                let padding = if one_row { 0 } else { shape[1] - row.len() };
                let padding = vec![IGNORE_LABEL; padding];
                let (before, after) = if from_left { (row, padding) } else { (padding, row) };
                expected.extend(before.into_iter().chain(after));
            }
            prop_assert_eq!(labels, &expected[..]);
            let trained = expected.iter().filter(|label| **label != IGNORE_LABEL).count() as u64;
            prop_assert_eq!(batch.trained(), Some(trained));
            prop_assert_eq!(masked.totals().unwrap().unwrap().trained, Some(trained));
            if let Some(mask) = batch.array("loss_mask") {
                let expected: Vec<f32> = labels.iter().map(|label| if *label == IGNORE_LABEL { 0.0 } else { 1.0 }).collect();
                prop_assert_eq!(mask.as_slice::<f32>().unwrap(), &expected[..]);
            }
            all_labels += trained;
        }
        if is_concat && labels_for != LabelsFor::HuggingFace {
            // No label is lost where a document is cut.
            let ones = documents.iter().map(|(_, masks)| masks.iter().skip(1).map(|&mask| u64::from(mask)).sum::<u64>());
            prop_assert_eq!(all_labels, ones.sum::<u64>());
        }
        // Without masks, all tokens are trained on.
        let ones: Vec<Document> = documents.iter().map(|(ids, _)| (ids.clone(), vec![1; ids.len()])).collect();
        let ones = Loader::new(Arc::new(InMemory::new(&ones, true)) as Arc<dyn RecordSource>, options.clone()).unwrap();
        let mut plain = Loader::new(Arc::new(InMemory::new(&documents, false)) as Arc<dyn RecordSource>, options).unwrap();
        for masked in ones {
            let (masked, batch) = (masked.unwrap(), plain.next_batch().unwrap().unwrap());
            prop_assert_eq!(batch.trained(), masked.trained());
            prop_assert_eq!(plain.totals().unwrap().unwrap().trained, masked.trained());
            if one_row || !from_left || is_concat || labels_for != LabelsFor::HuggingFace {
                let labels = |batch: &Batch| batch.array("labels").unwrap().as_slice::<i64>().unwrap().to_vec();
                prop_assert_eq!(labels(&batch), labels(&masked));
            }
        }
        prop_assert!(plain.next_batch().unwrap().is_none());
    }
}

#[test]
fn totals_are_those_of_all_ranks_also_after_a_resume() {
    let documents: Vec<Document> = (0..41)
        .map(|i| ((0..i % 13).collect(), (0..i % 13).map(|at| u8::from(at % 3 != 1)).collect()))
        .collect();
    let source: Arc<dyn RecordSource> = Arc::new(InMemory::new(&documents, true));
    for batching in
        [BatchOptions::new(BatchSize::BatchSize(3)).into(), Batching::from(PackOptions::new(10, 2))]
    {
        let of_rank = |rank| {
            let layout = Layout::new(rank, 2).unwrap();
            let options =
                LoaderOptions { layout, micro_batches: Some(4), ..LoaderOptions::new(batching.clone()) };
            Loader::new(Arc::clone(&source), options).unwrap()
        };
        let (mut ranks, mut sums, mut totals) = ([of_rank(0), of_rank(1)], Vec::new(), Vec::new());
        assert_eq!(ranks[0].totals().unwrap(), None);
        let mut states = Vec::new();
        while let Some(batch) = ranks[0].next_batch().unwrap() {
            let other = ranks[1].next_batch().unwrap().unwrap();
            sums.resize(batch.id().step as usize + 1, 0);
            *sums.last_mut().unwrap() += batch.trained().unwrap() + other.trained().unwrap();
            assert_eq!(ranks[0].totals().unwrap(), ranks[1].totals().unwrap());
            totals.resize(sums.len(), 0);
            *totals.last_mut().unwrap() = ranks[0].totals().unwrap().unwrap().trained.unwrap();
            states.push((ranks[0].state(), ranks[0].totals().unwrap()));
        }
        assert!(sums.len() > 2 && sums.iter().sum::<u64>() > 50);
        assert_eq!(totals, sums);
        for pair in states.windows(2) {
            let [(state, _), (after, totals)] = pair else { panic!("two states") };
            let mut resumed = of_rank(1);
            resumed.restore(state).unwrap();
            assert_eq!(resumed.totals().unwrap(), None);
            resumed.next_batch().unwrap().unwrap();
            assert_eq!((&resumed.state(), resumed.totals().unwrap()), (after, totals.clone()));
        }
    }
}

#[test]
fn wrong_masks_and_options_that_do_not_apply_are_refused() {
    let documents: Vec<Document> = vec![(vec![5, 6, 7], vec![0, 1, 1]), (vec![8, 9], vec![0, 1])];
    let source = || InMemory::new(&documents, true).short();
    for batching in
        [BatchOptions::new(BatchSize::BatchSize(2)).into(), Batching::from(PackOptions::new(9, 2))]
    {
        let options = LoaderOptions { threads: 0, ..LoaderOptions::new(batching) };
        for fields in [None, Some(vec![ASSISTANT_MASKS.to_owned()])] {
            let options = LoaderOptions { fields, ..options.clone() };
            let mut loader = Loader::new(Arc::new(source()) as Arc<dyn RecordSource>, options).unwrap();
            let error = loader.next_batch().unwrap_err();
            assert_eq!((error.kind(), error.place().row), (ErrorKind::Corrupt, Some(1)), "{error}");
            assert!(error.to_string().contains("2 tokens, but 1 values in \"assistant_masks\""), "{error}");
        }
    }
    let text = |packed, labels_for, pad_side| TextBatchOptions {
        packed,
        labels_for,
        pad_side,
        ..TextBatchOptions::default()
    };
    let megatron = Some(LabelsFor::Megatron);
    let rows = || BatchOptions::new(BatchSize::BatchSize(2));
    for (text, batches, message) in [
        (
            text(PackedLayout::Flash, None, PadSide::Right),
            BatchOptions { last: Last::Pad, ..rows() },
            "last \"pad\"",
        ),
        (text(PackedLayout::Flash, megatron, PadSide::Right), rows(), "packed \"flash\" does not apply"),
        (text(PackedLayout::Rows, megatron, PadSide::Left), rows(), "pad_side \"left\" does not apply"),
        (
            text(PackedLayout::Rows, megatron, PadSide::Right),
            BatchOptions::new(BatchSize::MaxTokensUnpadded(9)),
            "max_tokens_unpadded does not apply",
        ),
    ] {
        let options = LoaderOptions { text, ..LoaderOptions::new(batches) };
        let error = Loader::new(Arc::new(InMemory::new(&documents, true)) as Arc<dyn RecordSource>, options)
            .unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(message), "{error}");
    }
}
