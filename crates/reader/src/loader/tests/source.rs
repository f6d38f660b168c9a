//! Tests of a source that is not a split: two splits, concatenated.

use dsconvert_dataset::schema::{DType, Schema};

use super::engine::options;
use super::*;
use crate::batch::{
    BatchPlan, BatchRows, Last, Layout, Lengths, PackOptions, PackPlan, PlannedStep, Position, StepPlan,
};
use crate::{ClassNames, Concatenated, ReadIds, Record};

/// A source under another fingerprint.
#[derive(Debug, Clone)]
struct Renamed(Arc<dyn RecordSource>, String);

impl RecordSource for Renamed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn fingerprint(&self) -> String {
        self.1.clone()
    }

    fn schema(&self) -> &Schema {
        self.0.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self.0.lengths()
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.0.get_many(records)
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        self.0.lend_ids(records, field_index, read)
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self(self.0.reopened(), self.1.clone()))
    }
}

/// Returns 50 records as one split, and as two splits that are concatenated. Both have the same fingerprint.
fn same_records(dir: &Path, kind: Kind) -> (Split, Arc<dyn RecordSource>) {
    let (whole, parts) = (dir.join("whole"), dir.join("parts"));
    for (path, splits) in [(&whole, &[&[50][..]][..]), (&parts, &[&[20, 9], &[21]])] {
        std::fs::create_dir(path).unwrap();
        testing::write(path, Format::Arrow, kind, splits).unwrap();
    }
    let whole = Dataset::open(&whole).unwrap().split("train").unwrap();
    let parts = Dataset::open(&parts).unwrap();
    let part = |name: &str| (name.to_owned(), parts.split(name).unwrap().into());
    let concatenated = Concatenated::new(["train", "validation"].map(part).to_vec(), ClassNames::Equal);
    let fingerprint = whole.fingerprint();
    (whole, Arc::new(Renamed(Arc::new(concatenated.unwrap()), fingerprint)))
}

/// Returns the elements of the arrays of a batch.
fn numbers(batch: &Batch) -> Vec<String> {
    let arrays = batch.columns().filter_map(|(name, _)| batch.array(name));
    let elements = arrays.map(|array| match array.dtype() {
        DType::Bool => format!("{:?}", array.as_slice::<bool>().unwrap()),
        DType::Int32 => format!("{:?}", array.as_slice::<i32>().unwrap()),
        DType::Int64 => format!("{:?}", array.as_slice::<i64>().unwrap()),
        DType::Float64 => format!("{:?}", array.as_slice::<f64>().unwrap()),
        other => panic!("{other}"),
    });
    elements.collect()
}

/// Returns the batches of two epochs. `forks`: after one batch, the loader behaves as in the child of a fork.
fn batches(source: impl Into<Arc<dyn RecordSource>>, options: LoaderOptions, forks: bool) -> Vec<String> {
    let mut loader = Loader::new(source, options).unwrap();
    let mut found = vec![format!("{:?} {:?}", loader.len().unwrap(), loader.state())];
    for epoch in 0..2 {
        loader.set_epoch(epoch).unwrap();
        while let Some(batch) = loader.next_batch().unwrap() {
            found.push(format!("{batch:?} {:?} {:?}", numbers(&batch), loader.state()));
            if let Some(engine) = loader.engine.as_mut().filter(|_| forks && found.len() == 2) {
                engine.pretend_fork();
            }
        }
    }
    found
}

#[test]
fn another_source_of_the_same_records_gives_the_same_batches() {
    for kind in [Kind::Text, Kind::Images] {
        let dir = tempfile::tempdir().unwrap();
        let (whole, concatenated) = same_records(dir.path(), kind);
        let mut batchings: Vec<Batching> = vec![
            BatchOptions::new(BatchSize::BatchSize(4)).into(),
            BatchOptions::new(BatchSize::MaxTokens(if kind == Kind::Text { 24 } else { 2000 })).into(),
        ];
        if kind == Kind::Text {
            batchings.push(BatchOptions::new(BatchSize::MaxTokensUnpadded(24)).into());
            batchings.push(PackOptions::new(10, 2).into());
        }
        for batching in batchings {
            for (threads, rank) in [(0, 0), (3, 1)] {
                let options = LoaderOptions {
                    layout: Layout::new(rank, 2).unwrap(),
                    image: ImageBatchOptions { decode: false, ..ImageBatchOptions::default() },
                    ..options(batching.clone(), threads)
                };
                let expected = batches(whole.clone(), options.clone(), false);
                assert!(expected.len() > 3, "{kind:?} {batching:?}");
                assert_eq!(batches(Arc::clone(&concatenated), options.clone(), false), expected);
                assert_eq!(batches(Arc::clone(&concatenated), options, true), expected);
            }
        }
    }
}

/// Columns that are read from records, and from lengths alone.
#[test]
fn another_source_fills_any_column() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, concatenated) = same_records(dir.path(), Kind::Text);
    for names in [&["key", "note", "input_ids"][..], &["lengths"], &["score", "length"]] {
        let fields = Some(names.iter().map(|&name| name.to_owned()).collect());
        let options = LoaderOptions { fields, ..batches_of(7) };
        let found = batches(Arc::clone(&concatenated), options.clone(), false);
        assert_eq!(found, batches(whole.clone(), options, false));
    }
}

#[test]
fn the_plans_of_another_source_continue_those_of_a_split() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, concatenated) = same_records(dir.path(), Kind::Text);
    let fingerprint = whole.fingerprint();
    let (at, batching) = (Position { epoch: 1, step: 2 }, BatchOptions::new(BatchSize::MaxTokens(24)));
    let split = BatchPlan::new(&fingerprint, whole.clone(), batching.clone(), 7, 2).unwrap();
    let other = BatchPlan::new(&fingerprint, Arc::clone(&concatenated), batching, 7, 2).unwrap();
    assert_eq!(other.resume(&split.state(at).unwrap()).unwrap(), at);
    assert_eq!(other.micro_batch(at, 1).unwrap(), split.micro_batch(at, 1).unwrap());

    let packing = PackOptions::new(10, 2);
    let split = PackPlan::new(&fingerprint, whole, packing.clone(), 7, 2).unwrap();
    let other = PackPlan::new(&fingerprint, concatenated, packing, 7, 2).unwrap();
    let (_, after) = split.steps(&split.start(0)).unwrap().next().unwrap().unwrap();
    let rest = |plan: Vec<Result<(crate::batch::PackedStep, crate::batch::PackState)>>| {
        plan.into_iter().map(|step| format!("{:?}", step.unwrap())).collect::<Vec<_>>()
    };
    let expected = rest(split.steps(&after).unwrap().collect());
    assert!(expected.len() > 3);
    assert_eq!(rest(other.steps(&after).unwrap().collect()), expected);
}

/// A source that loses a record.
#[derive(Debug, Clone)]
struct Short(Arc<dyn RecordSource>);

impl RecordSource for Short {
    fn name(&self) -> &str {
        "short"
    }

    fn fingerprint(&self) -> String {
        self.0.fingerprint()
    }

    fn schema(&self) -> &Schema {
        self.0.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self.0.lengths()
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.0.get_many(&records[1..])
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.clone())
    }
}

#[test]
fn a_missing_record_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_, concatenated) = same_records(dir.path(), Kind::Text);
    for batching in
        [BatchOptions::new(BatchSize::BatchSize(4)).into(), Batching::from(PackOptions::new(10, 2))]
    {
        let source: Arc<dyn RecordSource> = Arc::new(Short(Arc::clone(&concatenated)));
        let error = Loader::new(source, options(batching, 0)).unwrap().next_batch().unwrap_err();
        assert!(error.to_string().contains("records instead of"), "{error}");
    }
}

/// Two splits of 29 and 21 records, concatenated.
fn two_sources(dir: &Path) -> Arc<dyn RecordSource> {
    testing::write(dir, Format::Arrow, Kind::Text, &[&[20, 9], &[21]]).unwrap();
    let dataset = Dataset::open(dir).unwrap();
    let part = |name: &str| (name.to_owned(), dataset.split(name).unwrap().into());
    Arc::new(Concatenated::new(["train", "validation"].map(part).to_vec(), ClassNames::Equal).unwrap())
}

#[test]
fn packed_rows_name_the_source_of_every_piece_of_cu_seqlens() {
    let dir = tempfile::tempdir().unwrap();
    let source = two_sources(dir.path());
    for (labels_for, last) in
        [(None, Last::Short), (None, Last::Pad), (Some(LabelsFor::Megatron), Last::Short)]
    {
        let text = TextBatchOptions { labels_for, ..TextBatchOptions::default() };
        let fields = ["cu_seqlens", "source", "position_ids"].map(str::to_owned).to_vec();
        let packing = PackOptions { last, ..PackOptions::new(10, 4) };
        let options = LoaderOptions { text, fields: Some(fields), ..options(packing, 0) };
        let mut loader = Loader::new(Arc::clone(&source), options).unwrap();
        let (mut padding, mut batches) = (0, 0);
        while let Some(batch) = loader.next_batch().unwrap() {
            let ends = batch.array("cu_seqlens").and_then(|a| a.as_slice::<i32>()).unwrap();
            let sources = batch.array("source").and_then(|a| a.as_slice::<i32>()).unwrap();
            if labels_for.is_none() {
                assert_eq!(sources.len(), ends.len() - 1);
                let tokens: i32 = ends
                    .windows(2)
                    .zip(sources)
                    .filter(|(_, of)| **of >= 0)
                    .map(|(end, _)| end[1] - end[0])
                    .sum();
                // Padding is what no record fills.
                assert_eq!(tokens as u64, batch.tokens());
            }
            let of_records: Vec<i32> = sources.iter().copied().filter(|of| *of >= 0).collect();
            let expected: Vec<i32> = batch.records().iter().map(|&record| i32::from(record >= 29)).collect();
            assert_eq!(of_records, expected);
            padding += sources.len() - of_records.len();
            batches += 1;
        }
        assert!(batches > 3 && (padding > 0) == labels_for.is_none(), "{padding}");
    }
}

#[test]
fn totals_count_no_padding_where_records_are_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let source = two_sources(dir.path());
    for (batching, is_padded) in [
        (BatchOptions::new(BatchSize::MaxTokensUnpadded(24)), false),
        (BatchOptions::new(BatchSize::MaxTokens(24)), true),
    ] {
        let mut loader = Loader::new(Arc::clone(&source), options(batching, 0)).unwrap();
        let (mut tokens, mut padded) = (0, 0);
        while let Some(batch) = loader.next_batch().unwrap() {
            let totals = loader.totals().unwrap().unwrap();
            let elements = batch.array("input_ids").unwrap().shape().iter().product::<usize>();
            assert_eq!(totals.padded_tokens, elements as u64);
            (tokens, padded) = (tokens + totals.tokens, padded + totals.padded_tokens);
        }
        assert_eq!(padded > tokens, is_padded, "{padded} of {tokens}");
    }
}

/// Records of which the source itself makes batches: each record twice, one after another.
#[derive(Debug, Clone)]
struct Doubled(Arc<dyn RecordSource>);

#[derive(Debug)]
struct DoubledPlan(Arc<dyn StepPlan>);

impl StepPlan for DoubledPlan {
    fn start(&self, run: Option<&SavedPlan>, epoch: u64) -> Result<SavedPlan> {
        self.0.start(run, epoch)
    }

    fn resume(&self, saved: &SavedPlan) -> Result<SavedPlan> {
        self.0.resume(saved)
    }

    fn steps(&self, at: &SavedPlan) -> Result<u64> {
        self.0.steps(at)
    }

    fn step(&self, at: &mut SavedPlan) -> Result<Option<PlannedStep>> {
        self.0.step(at)
    }

    fn micro_batch(&self, step: &PlannedStep, index: u64) -> Result<BatchRows> {
        let mut rows = self.0.micro_batch(step, index)?;
        if let BatchRows::Records { batch, .. } = &mut rows {
            batch.records = batch.records.iter().flat_map(|&record| [record; 2]).collect();
            batch.lengths = batch.lengths.iter().flat_map(|&length| [length; 2]).collect();
        }
        Ok(rows)
    }
}

impl RecordSource for Doubled {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn fingerprint(&self) -> String {
        format!("doubled/{}", self.0.fingerprint())
    }

    fn schema(&self) -> &Schema {
        self.0.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self.0.lengths()
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.0.get_many(records)
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self(self.0.reopened()))
    }

    fn inner(&self) -> Option<&dyn RecordSource> {
        Some(&*self.0)
    }

    fn step_plan(
        &self,
        batching: &Batching,
        seed: u64,
        micro_batches: u64,
    ) -> Option<Result<Arc<dyn StepPlan>>> {
        let plan = batching.clone().plan(&self.fingerprint(), Arc::clone(&self.0), seed, micro_batches);
        Some(plan.map(|plan| Arc::new(DoubledPlan(plan)) as Arc<dyn StepPlan>))
    }
}

#[test]
fn a_source_can_plan_its_own_batches() {
    let dir = tempfile::tempdir().unwrap();
    let source: Arc<dyn RecordSource> = text_split(dir.path(), Format::Msgpack).into();
    let options = |threads| LoaderOptions { threads, ..batches_of(4) };
    let mut plain = Loader::new(Arc::clone(&source), options(0)).unwrap();
    let mut doubled = Loader::new(Arc::new(Doubled(source)) as Arc<dyn RecordSource>, options(2)).unwrap();
    assert_eq!(doubled.len().unwrap(), plain.len().unwrap());
    for batch in all(&mut plain) {
        let twice: Vec<u64> = batch.records().iter().flat_map(|&record| [record; 2]).collect();
        assert_eq!(doubled.next_batch().unwrap().unwrap().records(), twice);
        assert_eq!(doubled.totals().unwrap().unwrap().tokens, 2 * batch.tokens());
    }
    assert!(doubled.next_batch().unwrap().is_none());
    // A state of another kind of plan is refused by the plan.
    let packed =
        Loader::new(Arc::clone(doubled.source()), LoaderOptions::new(PackOptions::new(10, 2))).unwrap();
    let refused = doubled.restore(&packed.state()).unwrap_err().to_string();
    assert!(refused.contains("the state was saved for packed rows, not for records"), "{refused}");
}
