//! The plan of a mixture: which records of which sources each micro-batch holds.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::packing::Row;
use xxhash_rust::xxh3::Xxh3;

use super::options::{Exhausted, Mix, MixtureEpoch, MixtureOptions, MixtureUnit, OnChange, Segment};
use crate::batch::{
    ALGORITHM, BatchOptions, BatchPlan, BatchRows, BatchSize, Batching, BucketBy, MAX_BATCH_RECORDS,
    MicroBatch, MixtureState, PackCursor, PackOptions, PackPlan, PlanState, PlannedStep, Position, SavedPlan,
    SourceState, SourceTotals, StepPlan, damaged_state, json_digest, source_seed,
};
use crate::recent::Recent;
use crate::{Concatenated, RecordSource};

/// Maximum number of epochs that are gone through to find the start of a later one.
const MAX_EPOCHS_AHEAD: u64 = 10_000;

/// Factor of weights that are too large: less than 2⁶⁴ for the size of a source, and for the number of sources.
const OVERFLOW_SCALE: f64 = 1.0 / ((1u128 << 127) as f64 * 2.0);

/// Number of ends of epochs that are kept.
const KEPT_EPOCHS: usize = 4;

/// A pure function of (lengths, options, seed, state) that computes the next step of a mixture. It needs memory for the plans
/// of the sources and one step.
#[derive(Debug)]
pub(super) struct MixturePlan {
    sources: Vec<PlannedSource>,
    options: MixtureOptions,
    segments: Vec<Segment>,
    batching: Batching,
    micro_batches: u64,
    start: MixtureState,
    /// The number of steps of each epoch, by its start, and the start of the next one.
    ends: Recent<MixtureState, (u64, MixtureState)>,
}

#[derive(Debug)]
struct PlannedSource {
    name: String,
    source: Arc<dyn RecordSource>,
    units: Units,
    /// Ordinal of its first record.
    first: u64,
    /// Whether its records mark the tokens to train on.
    has_masks: bool,
}

/// The plan of a source, whose micro-batches, records or rows are drawn one by one.
#[derive(Debug)]
enum Units {
    Batches(BatchPlan<Arc<dyn RecordSource>>),
    Records(BatchPlan<Arc<dyn RecordSource>>),
    Rows(PackPlan<Arc<dyn RecordSource>>),
}

impl MixturePlan {
    pub(super) fn new(
        records: &Concatenated,
        options: &MixtureOptions,
        segments: &[Segment],
        batching: &Batching,
        seed: u64,
        micro_batches: u64,
    ) -> Result<Self> {
        let mut sources: Vec<PlannedSource> = Vec::new();
        for (index, (name, source)) in records.sources().enumerate() {
            let units = Units::new(source, batching, options.mix, source_seed(seed, index as u64));
            let units = units.map_err(|e| of_dataset(name, e))?;
            let first = sources.last().map_or(0, |last| last.first + last.source.lengths().records());
            let has_masks = source.schema().masks_field().is_some();
            let planned =
                PlannedSource { name: name.to_owned(), source: Arc::clone(source), units, first, has_masks };
            planned.check(options.unit)?;
            sources.push(planned);
        }
        // Checks `micro_batches`, too.
        crate::batch::Layout::SINGLE.share(micro_batches).map(drop)?;
        let sizes = match options.unit {
            MixtureUnit::Epochs => sources.iter().map(PlannedSource::tokens).collect::<Result<Vec<u64>>>()?,
            _ => vec![1; sources.len()],
        };
        let segments: Vec<Segment> = segments.iter().map(|s| normalized(s, &sizes)).collect();
        let mut lengths = Xxh3::new();
        let mut inner = None;
        for source in &sources {
            let state = source.units.state()?;
            lengths.update(state.lengths.as_bytes());
            inner.get_or_insert((state.options, source.units.mode()));
        }
        let batch_size = match batching {
            Batching::Packed(packed) => packed.batch_size,
            Batching::Records(_) => 0,
        };
        let own = (ALGORITHM, options.unit, inner, batch_size);
        let weights: Vec<(u64, Vec<u64>)> = segments
            .iter()
            .map(|segment| (segment.start, segment.weights.iter().map(|w| w.to_bits()).collect()))
            .collect();
        let ends = (&weights, options.exhausted, options.epoch);
        let plan = PlanState {
            version: ALGORITHM,
            dataset: records.fingerprint(),
            lengths: format!("{:032x}", lengths.digest128()),
            options: json_digest("the options", &own)?,
            seed,
            micro_batches,
            epoch: 0,
            step: 0,
        };
        let fresh = vec![SourceState::default(); sources.len()];
        let start = MixtureState {
            plan,
            weights: json_digest("the weights", &ends)?,
            steps: 0,
            tokens: 0,
            sources: fresh.clone(),
            start: fresh,
        };
        let (options, batching, ends) = (options.clone(), batching.clone(), Recent::new(KEPT_EPOCHS));
        Ok(Self { sources, options, segments, batching, micro_batches, start, ends })
    }

    /// Returns the state at the start of `epoch` in the run of `state`; without one, in a new run.
    pub(super) fn start_of(&self, state: Option<&MixtureState>, epoch: u64) -> Result<MixtureState> {
        let mut at = match state.filter(|state| state.plan.epoch <= epoch) {
            Some(state) if state.plan.epoch == epoch => return Ok(epoch_start(state)),
            Some(state) => state.clone(),
            None => self.start.clone(),
        };
        if epoch - at.plan.epoch > MAX_EPOCHS_AHEAD {
            let what =
                format!("epoch {epoch} is more than {MAX_EPOCHS_AHEAD} epochs after epoch {}", at.plan.epoch);
            return Err(Error::new(ErrorKind::OutOfRange, what)
                .help("where the sources of a mixture are in an epoch is found by going through the epochs before it"));
        }
        while at.plan.epoch < epoch {
            at = self.end_of(&at)?.1;
        }
        Ok(at)
    }

    /// Returns the number of steps of the epoch of `state`, and the start of the next epoch.
    fn end_of(&self, state: &MixtureState) -> Result<(u64, MixtureState)> {
        if let Some(end) = self.ends.get(&epoch_start(state)) {
            return Ok(end);
        }
        let mut at = state.clone();
        while self.advance(&mut at)?.is_some() {}
        Ok((at.plan.step, self.next_epoch(&at)))
    }

    /// Returns the number of global steps of the epoch of `state`.
    pub(super) fn steps_of(&self, state: &MixtureState) -> Result<u64> {
        match self.options.epoch {
            Some(MixtureEpoch::Steps(steps)) => Ok(steps),
            _ => Ok(self.end_of(state)?.0),
        }
    }

    /// Returns the state at the start of the epoch after the one that ends at `end`.
    fn next_epoch(&self, end: &MixtureState) -> MixtureState {
        let mut sources = end.sources.clone();
        for source in &mut sources {
            source.has_ended = false;
            if self.options.exhausted != Exhausted::Never && source.cursor != PackCursor::default() {
                source.epoch += 1;
                (source.cursor, source.tokens) = (PackCursor::default(), 0);
            }
        }
        let plan = PlanState { epoch: end.plan.epoch.saturating_add(1), step: 0, ..end.plan.clone() };
        MixtureState { plan, tokens: 0, start: sources.clone(), sources, ..end.clone() }
    }

    /// Returns whether the epoch ends before the next step.
    fn is_over(&self, at: &MixtureState) -> bool {
        match (self.options.exhausted, self.options.epoch) {
            (Exhausted::Never, Some(MixtureEpoch::Steps(steps))) => at.plan.step >= steps,
            (Exhausted::Never, Some(MixtureEpoch::Tokens(tokens))) => at.tokens >= tokens,
            (Exhausted::FirstExhausted, _) => at.sources.iter().any(|source| source.has_ended),
            (Exhausted::Never | Exhausted::AllExhausted, _) => {
                let weights = self.weights(at.steps);
                at.sources.iter().zip(weights).all(|(source, &weight)| source.has_ended || weight == 0.0)
            }
        }
    }

    /// Returns the weights in global step `step`.
    fn weights(&self, step: u64) -> &[f64] {
        let at = self.segments.partition_point(|segment| segment.start <= step);
        at.checked_sub(1).and_then(|at| self.segments.get(at)).map_or(&[], |segment| &segment.weights)
    }

    /// Returns the state that continues from a saved one, with the weights of this plan.
    pub(super) fn resumed(&self, saved: &MixtureState) -> Result<MixtureState> {
        self.start.plan.check_same_run(&saved.plan)?;
        let count = self.sources.len();
        if saved.sources.len() != count || saved.start.len() != count || saved.steps < saved.plan.step {
            return Err(damaged_state("the state has the positions of other sources".to_owned()));
        }
        for states in [&saved.sources, &saved.start] {
            self.sources.iter().zip(states).try_for_each(|(source, state)| source.check_position(state))?;
        }
        if saved.weights == self.start.weights {
            return Ok(saved.clone());
        }
        if self.options.on_change == OnChange::Refuse {
            return Err(Error::usage("the state was saved with other weights, another schedule or other ends of epochs").help(
                "resume with the weights of the first start; or set on_change to \"continue\", which keeps the positions \
                 in the datasets",
            ));
        }
        let anew = |sources: &[SourceState]| {
            sources.iter().map(|source| SourceState { used: 0, ..source.clone() }).collect()
        };
        Ok(MixtureState {
            weights: self.start.weights.clone(),
            sources: anew(&saved.sources),
            start: anew(&saved.start),
            ..saved.clone()
        })
    }

    /// Moves `at` to the end of the next step, and returns its micro-batches; `None` at the end of the epoch. After an error,
    /// the state is of no use.
    pub(super) fn advance(&self, at: &mut MixtureState) -> Result<Option<Vec<BatchRows>>> {
        if self.is_over(at) {
            let start = epoch_start(at);
            if self.ends.get(&start).is_none() {
                self.ends.keep(start, (at.plan.step, self.next_epoch(at)));
            }
            return Ok(None);
        }
        if self.segments.iter().any(|segment| segment.start == at.steps) {
            at.sources.iter_mut().for_each(|source| source.used = 0);
        }
        let weights = self.weights(at.steps);
        let batch = |index| self.micro_batch_of(index, weights, at);
        let batches = (0..self.micro_batches).map(batch).collect::<Result<Vec<_>>>()?;
        at.plan.step += 1;
        at.steps = at.steps.saturating_add(1);
        Ok(Some(batches))
    }

    fn micro_batch_of(&self, index: u64, weights: &[f64], at: &mut MixtureState) -> Result<BatchRows> {
        match &self.batching {
            Batching::Packed(packed) => {
                let mut rows = Vec::new();
                for _ in 0..packed.batch_size {
                    let number = most_due(weights, &at.sources);
                    let unit = self.draw(number, at)?;
                    self.consume(number, at, &unit);
                    if let UnitRows::Row(row) = unit.rows {
                        rows.push(row);
                    }
                }
                Ok(BatchRows::Packed { rows, filler_rows: 0 })
            }
            Batching::Records(options) => self.records(index, options, weights, at),
        }
    }

    fn records(
        &self,
        index: u64,
        options: &BatchOptions,
        weights: &[f64],
        at: &mut MixtureState,
    ) -> Result<BatchRows> {
        let step = at.plan.step;
        let (mut records, mut lengths, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
        let mut filled = Filled::default();
        loop {
            let number = most_due(weights, &at.sources);
            let unit = self.draw(number, at)?;
            match &unit.rows {
                UnitRows::Batch(batch) => {
                    let epochs = vec![unit.epoch; batch.records.len()];
                    let batch = MicroBatch { step, index, ..batch.clone() };
                    self.consume(number, at, &unit);
                    return Ok(BatchRows::Records { batch, epochs });
                }
                &UnitRows::Record { record, length } => {
                    let with = filled.with(length);
                    if !records.is_empty() && !with.fits(options) {
                        break;
                    }
                    filled = with;
                    records.push(record);
                    lengths.push(length);
                    epochs.push(unit.epoch);
                    self.consume(number, at, &unit);
                    if matches!(options.size, BatchSize::BatchSize(n) if records.len() as u64 >= n) {
                        break;
                    }
                }
                UnitRows::Row(_) => break, // never: rows are packed
            }
        }
        let width = options.width(filled.longest);
        let batch =
            MicroBatch { step, index, bucket: 0, shape: None, records, lengths, filler_rows: 0, width };
        Ok(BatchRows::Records { batch, epochs })
    }

    /// Returns what the source `number` delivers next.
    fn draw(&self, number: usize, at: &MixtureState) -> Result<Unit> {
        let found = self.sources.get(number).zip(at.sources.get(number));
        let Some((source, state)) = found else { return Err(Error::internal("there is no such source")) };
        source.next(state, self.options.unit)
    }

    fn consume(&self, number: usize, at: &mut MixtureState, unit: &Unit) {
        at.tokens = at.tokens.saturating_add(unit.tokens);
        if let Some(source) = at.sources.get_mut(number) {
            source.used = source.used.saturating_add(unit.cost);
            source.cursor = unit.next;
            if matches!(unit.rows, UnitRows::Row(_)) {
                source.tokens = source.tokens.saturating_add(unit.tokens);
            }
            if unit.ends {
                source.epoch = source.epoch.saturating_add(1);
                (source.cursor, source.tokens) = (PackCursor::default(), 0);
                source.has_ended = true;
            }
        }
    }

    /// Returns the shares after the step that led to `after`.
    pub(super) fn totals(&self, after: &MixtureState) -> Vec<SourceTotals> {
        let weights = self.weights(after.steps.saturating_sub(1));
        let total: u64 = after.sources.iter().fold(0, |sum, source| sum.saturating_add(source.used));
        let sources = self.sources.iter().zip(&after.sources).zip(weights);
        let totals = sources.map(|((planned, state), &requested)| SourceTotals {
            name: planned.name.clone(),
            requested,
            realized: state.used as f64 / total.max(1) as f64,
            epochs: state.epoch as f64 + planned.done_of_pass(state),
        });
        totals.collect()
    }
}

impl StepPlan for MixturePlan {
    fn start(&self, run: Option<&SavedPlan>, epoch: u64) -> Result<SavedPlan> {
        self.start_of(run.map(mixed).transpose()?, epoch).map(SavedPlan::Mixture)
    }

    fn resume(&self, saved: &SavedPlan) -> Result<SavedPlan> {
        self.resumed(mixed(saved)?).map(SavedPlan::Mixture)
    }

    fn steps(&self, at: &SavedPlan) -> Result<u64> {
        self.steps_of(mixed(at)?)
    }

    fn step(&self, at: &mut SavedPlan) -> Result<Option<PlannedStep>> {
        let SavedPlan::Mixture(state) = at else { return Err(at.of_other_plan("a mixture")) };
        let at = Position { epoch: state.plan.epoch, step: state.plan.step };
        Ok(self.advance(state)?.map(|batches| PlannedStep { at, batches }))
    }

    fn shares(&self, after: &SavedPlan) -> Vec<SourceTotals> {
        mixed(after).map_or_else(|_| Vec::new(), |after| self.totals(after))
    }
}

fn mixed(saved: &SavedPlan) -> Result<&MixtureState> {
    match saved {
        SavedPlan::Mixture(state) => Ok(state),
        _ => Err(saved.of_other_plan("a mixture")),
    }
}

/// Returns the state at the start of the epoch of `state`.
fn epoch_start(state: &MixtureState) -> MixtureState {
    MixtureState {
        plan: PlanState { step: 0, ..state.plan.clone() },
        steps: state.steps.saturating_sub(state.plan.step),
        tokens: 0,
        sources: state.start.clone(),
        ..state.clone()
    }
}

/// Returns the number of the source with the largest `weight · total − used`; among equals, the first. The operations are
/// those of Megatron's `build_blending_indices`, in 64-bit floating point, so all machines choose the same source.
fn most_due(weights: &[f64], sources: &[SourceState]) -> usize {
    let total: u64 = sources.iter().fold(0, |sum, source| sum.saturating_add(source.used));
    let total = total.max(1) as f64;
    let mut best = None;
    for (number, (&weight, source)) in weights.iter().zip(sources).enumerate() {
        let due = weight * total - source.used as f64;
        if weight > 0.0 && best.is_none_or(|(most, _)| due > most) {
            best = Some((due, number));
        }
    }
    best.map_or(0, |(_, number)| number)
}

/// Records of a micro-batch that is being filled.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    records: u64,
    longest: u64,
    /// Sum of the lengths, as if an empty record had a token, so that any number of them ends.
    tokens: u64,
}

impl Filled {
    fn with(self, length: u64) -> Self {
        Self {
            records: self.records + 1,
            longest: self.longest.max(length),
            tokens: self.tokens.saturating_add(length.max(1)),
        }
    }

    fn fits(self, options: &BatchOptions) -> bool {
        self.records <= MAX_BATCH_RECORDS
            && match options.size {
                BatchSize::BatchSize(most) => self.records <= most,
                BatchSize::MaxTokens(most) => options.padded(self.records, self.longest) <= most,
                BatchSize::MaxTokensUnpadded(most) => self.tokens <= most,
            }
    }
}

/// Multiplies each weight by the size of its source, and divides the products by their sum, which is added in order.
fn normalized(segment: &Segment, sizes: &[u64]) -> Segment {
    let products = |scale: f64| -> Vec<f64> {
        segment.weights.iter().zip(sizes).map(|(weight, &size)| weight * scale * size as f64).collect()
    };
    // A power of two changes no ratio. It is needed only for weights whose products or sum exceed the range of numbers, so
    // that the order of all others stays the same.
    let found =
        [1.0, OVERFLOW_SCALE].map(products).into_iter().find(|all| all.iter().sum::<f64>().is_finite());
    let mut weights = found.unwrap_or_default();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    Segment { start: segment.start, weights }
}

/// Adds the name of a dataset to an error about its plan.
fn of_dataset(name: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::Usage {
        return error;
    }
    let named = Error::usage(format!("the dataset {name:?}: {error}"));
    match error.remedy() {
        Some(remedy) => named.help(remedy.to_owned()),
        None => named,
    }
}

/// What a source delivers at once.
struct Unit {
    rows: UnitRows,
    /// Epoch of the source.
    epoch: u64,
    tokens: u64,
    /// In the unit of the weights.
    cost: u64,
    /// The position after it, unless the pass ends.
    next: PackCursor,
    /// Whether the pass ends after it.
    ends: bool,
}

enum UnitRows {
    Batch(MicroBatch),
    Record { record: u64, length: u64 },
    Row(Row),
}

impl PlannedSource {
    /// Checks that the source delivers something.
    fn check(&self, unit: MixtureUnit) -> Result<()> {
        let nothing = |what: String, help: &str| Err(Error::usage(what).help(help.to_owned()));
        if self.units.count(&*self.source) == 0 {
            let what = format!("the dataset {:?} fills no micro-batch", self.name);
            return nothing(
                what,
                "leave it out, use smaller batches, or keep the records that do not fill one",
            );
        }
        let is_packed = matches!(self.units, Units::Rows(_));
        if (is_packed || unit != MixtureUnit::Records) && self.tokens()? == 0 {
            return nothing(format!("the dataset {:?} has no tokens", self.name), "leave it out");
        }
        if unit == MixtureUnit::Trained && self.has_masks {
            let lengths = self.source.lengths();
            for record in 0..lengths.records() {
                if lengths.trained_of(record)? > 0 {
                    return Ok(());
                }
            }
            return nothing(format!("the dataset {:?} has no tokens to train on", self.name), "leave it out");
        }
        Ok(())
    }

    /// Returns the number of tokens of a pass, after truncation.
    fn tokens(&self) -> Result<u64> {
        let mut tokens = 0u64;
        for run in self.source.lengths().runs()? {
            let run = run?;
            let length = match &self.units {
                Units::Batches(plan) | Units::Records(plan) => plan.options().delivered(run.length),
                Units::Rows(_) => run.length,
            };
            tokens = tokens.saturating_add(length.saturating_mul(run.count));
        }
        Ok(tokens)
    }

    /// Returns the share of its pass that is done.
    fn done_of_pass(&self, state: &SourceState) -> f64 {
        let (done, all) = match &self.units {
            Units::Rows(plan) => (state.tokens, plan.tokens()),
            units => (state.cursor.document, units.count(&*self.source)),
        };
        done as f64 / all.max(1) as f64
    }

    /// Checks that a position exists.
    fn check_position(&self, state: &SourceState) -> Result<()> {
        let PackCursor { document, token, row } = state.cursor;
        let count = self.units.count(&*self.source);
        let is_possible = match &self.units {
            Units::Rows(plan) => state.tokens <= plan.tokens(),
            Units::Batches(_) | Units::Records(_) => (token, row, state.tokens) == (0, 0, 0),
        };
        if document < count && is_possible {
            return Ok(());
        }
        Err(damaged_state(format!(
            "the state points at number {document} of the {count} that the dataset {:?} has",
            self.name
        )))
    }

    fn next(&self, at: &SourceState, unit: MixtureUnit) -> Result<Unit> {
        let done = at.cursor.document;
        let next = PackCursor { document: done + 1, ..PackCursor::default() };
        match &self.units {
            Units::Batches(plan) => {
                let mut batch = plan.micro_batch(Position { epoch: at.epoch, step: done }, 0)?;
                let mut cost = 0u64;
                for (&record, &length) in batch.records.iter().zip(&batch.lengths) {
                    cost = cost.saturating_add(self.cost(unit, record, length)?);
                }
                batch.records.iter_mut().for_each(|record| *record += self.first);
                let ends = done + 1 >= plan.steps();
                let tokens = batch.tokens();
                Ok(Unit { rows: UnitRows::Batch(batch), epoch: at.epoch, tokens, cost, next, ends })
            }
            Units::Records(plan) => {
                let (record, length) = plan.single_record(at.epoch, done)?;
                let cost = self.cost(unit, record, length)?;
                let ends = done + 1 >= plan.single_records();
                let rows = UnitRows::Record { record: record + self.first, length };
                Ok(Unit { rows, epoch: at.epoch, tokens: length, cost, next, ends })
            }
            Units::Rows(plan) => {
                let Some((mut row, next, ends)) = plan.row(at.epoch, at.cursor)? else {
                    return Err(damaged_state(format!(
                        "the dataset {:?} has no row at its position",
                        self.name
                    )));
                };
                let tokens = row.tokens();
                let cost = match unit {
                    MixtureUnit::Records => 1,
                    MixtureUnit::Tokens | MixtureUnit::Epochs => tokens,
                    MixtureUnit::Trained => {
                        let mut cost = 0u64;
                        for piece in &row.pieces {
                            // The parts of a document add up to its whole.
                            let end = self.cost(unit, piece.document, piece.start + piece.len)?;
                            cost += end - self.cost(unit, piece.document, piece.start)?;
                        }
                        cost
                    }
                };
                row.pieces.iter_mut().for_each(|piece| piece.document += self.first);
                Ok(Unit { rows: UnitRows::Row(row), epoch: at.epoch, tokens, cost, next, ends })
            }
        }
    }

    /// Returns the cost of the first `length` tokens of a record.
    fn cost(&self, unit: MixtureUnit, record: u64, length: u64) -> Result<u64> {
        match unit {
            MixtureUnit::Records => Ok(1),
            MixtureUnit::Trained if self.has_masks => {
                let lengths = self.source.lengths();
                let (trained, whole) = (lengths.trained_of(record)?, lengths.length_of(record)?);
                Ok((u128::from(trained) * u128::from(length) / u128::from(whole.max(1))) as u64)
            }
            _ => Ok(length),
        }
    }
}

impl Units {
    fn new(source: &Arc<dyn RecordSource>, batching: &Batching, mix: Option<Mix>, seed: u64) -> Result<Self> {
        let (dataset, records) = (source.fingerprint(), Arc::clone(source));
        let refused = |mix: &str, why: &str, help: &str| {
            Err(Error::usage(format!("`mix {mix:?}` does not apply: {why}")).help(help.to_owned()))
        };
        match batching {
            Batching::Packed(_) if mix == Some(Mix::Batch) => {
                refused("batch", "packed rows are mixed one by one", "leave it out, or leave out `seq_len`")
            }
            Batching::Packed(packed) => {
                let one = PackOptions { batch_size: 1, ..packed.clone() };
                Ok(Units::Rows(PackPlan::new(&dataset, records, one, seed, 1)?))
            }
            Batching::Records(options) => {
                let plan = BatchPlan::new(&dataset, records, options.clone(), seed, 1)?;
                match (mix, options.bucket == BucketBy::None) {
                    (Some(Mix::Record), false) => refused(
                        "record",
                        "records that are drawn one by one have no buckets",
                        "set `bucket` to \"none\", pack documents with `seq_len`, or set `mix` to \"batch\"",
                    ),
                    (Some(Mix::Record) | None, true) => match &options.budget {
                        Some(budget) => Err(budget
                            .does_not_apply("the records of a mixture are drawn one by one")
                            .help("use buckets by length, pack documents with `seq_len`, or set `mix` to \"batch\"")),
                        None => Ok(Units::Records(plan)),
                    },
                    (Some(Mix::Batch), _) | (None, false) => Ok(Units::Batches(plan)),
                }
            }
        }
    }

    /// Returns the state of the plan of the source at its start.
    fn state(&self) -> Result<PlanState> {
        match self {
            Units::Batches(plan) | Units::Records(plan) => plan.state(Position::default()),
            Units::Rows(plan) => Ok(plan.start(0).plan),
        }
    }

    fn mode(&self) -> &'static str {
        match self {
            Units::Batches(_) => "batches",
            Units::Records(_) => "records",
            Units::Rows(_) => "rows",
        }
    }

    /// Returns the number of positions of a pass: micro-batches, records, or documents to be packed.
    fn count(&self, source: &dyn RecordSource) -> u64 {
        match self {
            Units::Batches(plan) => plan.steps(),
            Units::Records(plan) => plan.single_records(),
            Units::Rows(_) => source.lengths().records(),
        }
    }
}
