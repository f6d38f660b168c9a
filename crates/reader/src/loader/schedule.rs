//! Maps tickets to the batches of an epoch, and counts them.
//!
//! A *ticket* is the number of a batch of one rank and epoch, counted from the position where the loader starts.
//! Threads draw tickets in order and make the batches concurrently. [`Schedule::task`] returns the task of a ticket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::Row;

use super::assemble::Assembler;
use super::batch::BatchId;
use super::options::{LabelsFor, LoaderOptions, PackedLayout};
use super::state::LoaderState;
use crate::RecordSource;
use crate::batch::{
    BatchPlan, BatchRows, Batching, Layout, MicroBatch, PackPlan, Position, SavedPlan, SourceTotals,
};
use crate::mixture::{MixturePlan, MixturePrediction};

/// Number of steps that are packed at once. Continuing from a saved cursor packs its window again, so packing several
/// steps at a time costs less.
const PACK_STEPS: usize = 32;

/// Number of steps of a mixture that may fail one after another before its epoch ends.
const MAX_FAILED_STEPS: u64 = 1024;

/// The plan of a loader.
#[derive(Debug)]
pub(super) enum LoaderPlan {
    Records(BatchPlan<Arc<dyn RecordSource>>),
    Packed(PackPlan<Arc<dyn RecordSource>>),
    Mixture(MixturePlan),
}

/// A batch to be made.
#[derive(Debug)]
pub(super) struct BatchTask {
    pub(super) id: BatchId,
    pub(super) rows: BatchRows,
    /// The state after the batch is returned.
    pub(super) after: LoaderState,
}

impl LoaderPlan {
    pub(super) fn new(
        source: &Arc<dyn RecordSource>,
        options: &LoaderOptions,
        micro_batches: u64,
    ) -> Result<Self> {
        if let Some(mixture) = source.mixture() {
            let plan = MixturePlan::new(mixture, &options.batching, options.seed, micro_batches)?;
            return Ok(LoaderPlan::Mixture(plan));
        }
        let (dataset, seed, records) = (source.fingerprint(), options.seed, Arc::clone(source));
        Ok(match options.batching.clone() {
            Batching::Records(batches) => {
                LoaderPlan::Records(BatchPlan::new(&dataset, records, batches, seed, micro_batches)?)
            }
            Batching::Packed(packed) => {
                LoaderPlan::Packed(PackPlan::new(&dataset, records, packed, seed, micro_batches)?)
            }
        })
    }

    /// Returns the state at the start of `epoch` in the run of a state, or else in a new one.
    pub(super) fn start(&self, run: Option<&LoaderState>, epoch: u64) -> Result<LoaderState> {
        let plan = match (self, run.map(|state| &state.plan)) {
            (LoaderPlan::Records(plan), _) => SavedPlan::Records(plan.state(Position { epoch, step: 0 })?),
            (LoaderPlan::Packed(plan), _) => SavedPlan::Packed(plan.start(epoch)),
            (LoaderPlan::Mixture(plan), Some(SavedPlan::Mixture(saved))) => {
                SavedPlan::Mixture(plan.start_of(Some(saved), epoch)?)
            }
            (LoaderPlan::Mixture(plan), _) => SavedPlan::Mixture(plan.start_of(None, epoch)?),
        };
        Ok(LoaderState { plan, micro_batches_done: 0 })
    }

    /// Returns the number of global steps of the epoch of `state`.
    pub(super) fn steps(&self, state: &LoaderState) -> Result<u64> {
        match (self, &state.plan) {
            (LoaderPlan::Records(plan), _) => Ok(plan.steps()),
            (LoaderPlan::Packed(plan), SavedPlan::Packed(saved)) => {
                Ok(plan.steps_of(plan.rows(saved.plan.epoch)?))
            }
            (LoaderPlan::Mixture(plan), SavedPlan::Mixture(saved)) => plan.steps(saved),
            _ => Err(self.other_plan(state)),
        }
    }

    /// Returns the state that continues from a saved one, which must belong to this plan.
    pub(super) fn resume(&self, state: &LoaderState) -> Result<LoaderState> {
        match (self, &state.plan) {
            (LoaderPlan::Records(plan), SavedPlan::Records(saved)) => {
                plan.resume(saved)?;
                state.check_unfinished_step(plan.steps())?;
            }
            (LoaderPlan::Packed(plan), SavedPlan::Packed(saved)) => {
                let mut steps = plan.steps(saved)?;
                // The number of steps is unknown, but whether there is another one takes a single window.
                if state.micro_batches_done > 0 && steps.next().is_none() {
                    state.check_unfinished_step(state.step())?;
                }
            }
            (LoaderPlan::Mixture(plan), SavedPlan::Mixture(saved)) => {
                let saved = plan.resume(saved)?;
                if plan.is_over(&saved) {
                    state.check_unfinished_step(state.step())?;
                }
                return Ok(LoaderState { plan: SavedPlan::Mixture(saved), ..state.clone() });
            }
            _ => return Err(self.other_plan(state)),
        }
        Ok(state.clone())
    }

    fn other_plan(&self, state: &LoaderState) -> Error {
        let own = match self {
            LoaderPlan::Records(_) => "records",
            LoaderPlan::Packed(_) => "packed rows",
            LoaderPlan::Mixture(_) => "a mixture",
        };
        state.plan.of_other_plan(own)
    }

    /// Returns the steps from a state to the end of its epoch, each with the state after it, for plans that compute each step
    /// from the previous one.
    fn steps_from<'a>(&'a self, from: &'a SavedPlan) -> Result<Steps<'a>> {
        Ok(match (self, from) {
            (LoaderPlan::Packed(plan), SavedPlan::Packed(from)) => {
                let rows = |(rows, filler_rows)| BatchRows::Packed { rows, filler_rows };
                Box::new(plan.steps(from)?.map(move |next| {
                    let (step, after) = next?;
                    let batches = step.into_micro_batches().into_iter().map(rows).collect();
                    Ok((batches, SavedPlan::Packed(after)))
                }))
            }
            (LoaderPlan::Mixture(plan), SavedPlan::Mixture(from)) => {
                let mut at = from.clone();
                Box::new(std::iter::from_fn(move || {
                    let next = plan.step(&at).transpose()?;
                    Some(next.map(|(batches, after)| {
                        at = after.clone();
                        (batches, SavedPlan::Mixture(after))
                    }))
                }))
            }
            _ => Box::new(std::iter::empty()),
        })
    }

    /// Returns the number of steps that are computed at once.
    fn steps_at_once(&self) -> usize {
        match self {
            LoaderPlan::Packed(_) => PACK_STEPS,
            _ => 1,
        }
    }

    /// Returns a number of steps that no epoch exceeds, although every step from `step` on fails.
    fn max_steps(&self, step: u64) -> u64 {
        match self {
            LoaderPlan::Packed(plan) => plan.max_steps(),
            _ => step.saturating_add(MAX_FAILED_STEPS),
        }
    }
}

/// The micro-batches of all ranks in each step, with the state after it.
type Steps<'a> = Box<dyn Iterator<Item = Result<(Vec<BatchRows>, SavedPlan)>> + 'a>;

/// The tickets of one rank from one state to the end of its epoch.
#[derive(Debug)]
pub(super) struct Schedule {
    plan: Arc<LoaderPlan>,
    start: LoaderState,
    /// The micro-batches of this rank in each step.
    share: Vec<u64>,
    world_size: u64,
    /// Number of micro-batches of the first step that this rank has done.
    turns: u64,
    known: Mutex<KnownSteps>,
}

impl Schedule {
    pub(super) fn new(plan: Arc<LoaderPlan>, start: LoaderState, layout: Layout) -> Result<Self> {
        let micro_batches = start.plan.state().micro_batches;
        let turns = start.turns(layout, micro_batches)?;
        let share = layout.share(micro_batches)?.collect();
        let next = match &start.plan {
            SavedPlan::Records(_) => None,
            plan => Some(plan.clone()),
        };
        let known = KnownSteps { next, step: start.step(), ready: BTreeMap::new() };
        Ok(Self { plan, start, share, world_size: layout.world_size(), turns, known: Mutex::new(known) })
    }

    /// Returns the epoch.
    pub(super) fn epoch(&self) -> u64 {
        self.start.epoch()
    }

    /// Returns the state at the first ticket.
    pub(super) fn start(&self) -> &LoaderState {
        &self.start
    }

    /// Returns the task of `ticket`, or `None` after the end of the epoch. It may be called once per ticket.
    pub(super) fn task(&self, ticket: u64) -> Result<Option<BatchTask>> {
        let epoch = self.epoch();
        let per_step = self.share.len() as u64;
        let turn = self.turns + ticket;
        let (step, turn_in_step) = (self.start.step() + turn / per_step, turn % per_step);
        let micro_batch = self.share.get(turn_in_step as usize).copied().unwrap_or_default();
        let id = BatchId { epoch, step, micro_batch };
        let ends_step = turn_in_step + 1 == per_step;
        let micro_batches_done = if ends_step { 0 } else { (turn_in_step + 1) * self.world_size };
        match &*self.plan {
            LoaderPlan::Records(plan) => {
                if step >= plan.steps() {
                    return Ok(None);
                }
                let batch = plan.micro_batch(Position { epoch, step }, micro_batch)?;
                let rows = BatchRows::Records { batch, epochs: Vec::new() };
                let state = plan.state(Position { epoch, step: step + u64::from(ends_step) })?;
                let after = LoaderState { plan: SavedPlan::Records(state), micro_batches_done };
                Ok(Some(BatchTask { id, rows, after }))
            }
            plan => {
                let first_turns = if step == self.start.step() { self.turns } else { 0 };
                let Some(known) = self.known_step(plan, step, per_step - first_turns)? else {
                    return Ok(None);
                };
                let rows = known.batches.get(micro_batch as usize).cloned();
                let rows = rows.ok_or_else(|| Error::internal("a step lacks a micro-batch"))?;
                let plan = if ends_step { &known.after } else { &known.before };
                let after = LoaderState { plan: plan.clone(), micro_batches_done };
                Ok(Some(BatchTask { id, rows, after }))
            }
        }
    }

    /// Returns the rows of a step, which are kept until they were requested `uses` times.
    fn known_step(&self, plan: &LoaderPlan, step: u64, uses: u64) -> Result<Option<Arc<KnownStep>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        while known.step <= step {
            let Some(from) = known.next.clone() else { return Ok(None) };
            let (mut steps, at_once) = (0, plan.steps_at_once());
            for item in plan.steps_from(&from)?.take(at_once) {
                let (batches, after) = match item {
                    Ok(found) => found,
                    // The error takes the place of the batch, and the next request continues where planning stopped. If
                    // every request fails, the epoch ends nevertheless.
                    Err(_) if step >= plan.max_steps(known.step) => return Ok(None),
                    Err(error) => return Err(error),
                };
                let Some(before) = known.next.replace(after.clone()) else { return Ok(None) };
                let (entry, number) = (KnownStep { batches, before, after }, known.step);
                known.ready.insert(number, (Arc::new(entry), 0));
                known.step += 1;
                steps += 1;
            }
            if steps < at_once {
                known.next = None;
            }
        }
        let Some((entry, used)) = known.ready.get_mut(&step) else { return Ok(None) };
        *used += 1;
        let (entry, is_last) = (Arc::clone(entry), *used == uses);
        if is_last {
            known.ready.remove(&step);
        }
        Ok(Some(entry))
    }
}

/// A step that was computed from the previous one, with the states before and after it.
#[derive(Debug)]
struct KnownStep {
    batches: Vec<BatchRows>,
    before: SavedPlan,
    after: SavedPlan,
}

/// The steps that are known so far, of plans that compute each step from the previous one.
#[derive(Debug)]
struct KnownSteps {
    /// Where planning continues; `None` after the last step.
    next: Option<SavedPlan>,
    /// The step at that position.
    step: u64,
    /// Steps that were not yet requested by all tickets, with the number of requests.
    ready: BTreeMap<u64, (Arc<KnownStep>, u64)>,
}

/// Totals of all ranks in one global step. Every rank computes the same numbers, without communication.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct LoaderTotals {
    /// Number of rows that hold a record or, when packed, tokens.
    pub rows: u64,
    /// Sum of the lengths.
    pub tokens: u64,
    /// Sum of rows × width; where nothing is padded, that of the lengths.
    pub padded_tokens: u64,
    /// Number of positions with a label, in packed rows.
    pub labels: Option<u64>,
    /// Number of tokens that the loss is computed on: the sum of [`Batch::trained`](super::Batch::trained). `None` for rows
    /// that are packed on disk and do not mark these tokens.
    pub trained: Option<u64>,
    /// The shares of the sources of a [`Mixture`](crate::Mixture) up to this step; empty for other sources.
    pub sources: Vec<SourceTotals>,
}

/// Counts the steps and batches of the epochs of a [`Loader`](super::Loader) and has its plan. It does not depend on the
/// position of the loader, so it can be used while another thread, or the caller of a
/// [`BatchFinisher`](super::BatchFinisher), uses the loader.
#[derive(Debug, Clone)]
pub struct LoaderCounts {
    pub(super) plan: Arc<LoaderPlan>,
    pub(super) assembler: Arc<Assembler>,
    micro_batches: u64,
    world_size: u64,
    /// The start of the epoch whose steps were last counted, and their number.
    known: Arc<Mutex<Option<(LoaderState, u64)>>>,
}

impl LoaderCounts {
    /// Plans the batches of `source`, whose options were checked.
    pub(super) fn new(source: &Arc<dyn RecordSource>, options: &LoaderOptions) -> Result<Self> {
        let world_size = options.layout.world_size();
        let micro_batches = options.micro_batches.unwrap_or(world_size);
        let plan = Arc::new(LoaderPlan::new(source, options, micro_batches)?);
        options.layout.share(micro_batches).map(drop)?;
        let assembler = Arc::new(Assembler::new(source, options)?);
        Ok(Self { plan, assembler, micro_batches, world_size, known: Arc::default() })
    }

    /// Returns the exact number of batches of this rank in the epoch of `state`. For rows packed by best fit, counting
    /// takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes were altered.
    pub fn batches(&self, state: &LoaderState) -> Result<u64> {
        Ok(self.steps(state)?.saturating_mul(self.per_step()))
    }

    /// Returns the number of batches of this rank that are left in the epoch of `state`.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn remaining(&self, state: &LoaderState) -> Result<u64> {
        let turns = state.micro_batches_done / self.world_size;
        let done = state.step().saturating_mul(self.per_step()).saturating_add(turns);
        Ok(self.batches(state)?.saturating_sub(done))
    }

    /// Returns the number of global steps of the epoch of `state`.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn steps(&self, state: &LoaderState) -> Result<u64> {
        let start = self.plan.start(Some(state), state.epoch())?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, steps)) = known.as_ref().filter(|(of, _)| *of == start) {
            return Ok(*steps);
        }
        let steps = self.plan.steps(&start)?;
        *known = Some((start, steps));
        Ok(steps)
    }

    /// Returns the totals of all ranks in step `step` of `epoch`. `start` is a state before it in the same epoch, the closer
    /// the faster. `None` if the epoch of packed rows has no such step.
    ///
    /// # Errors
    ///
    /// Same as [`BatchPlan::totals`] and [`PackPlan::steps`]; if the records mark the tokens to train on, also as
    /// [`RecordSource::get_many`].
    pub fn totals(&self, epoch: u64, step: u64, start: &LoaderState) -> Result<Option<LoaderTotals>> {
        if let LoaderPlan::Records(plan) = &*self.plan {
            let at = Position { epoch, step };
            let batch = |index| plan.micro_batch(at, index);
            let batches = (0..self.micro_batches).map(batch).collect::<Result<Vec<_>>>()?;
            return self.totals_of_records(&batches).map(Some);
        }
        // Batches that could not be made may lie between the start and the step.
        let is_before =
            |next: &Result<(_, SavedPlan)>| matches!(next, Ok((_, after)) if after.state().step <= step);
        let found = self.plan.steps_from(&start.plan)?.find(|next| !is_before(next)).transpose()?;
        let Some((batches, after)) = found else { return Ok(None) };
        let (mut records, mut packed) = (Vec::new(), Vec::new());
        for batch in batches {
            match batch {
                BatchRows::Records { batch, .. } => records.push(batch),
                BatchRows::Packed { rows, .. } => packed.extend(rows),
            }
        }
        let mut totals = match packed.is_empty() {
            true => self.totals_of_records(&records)?,
            false => self.totals_of_rows(&packed)?,
        };
        if let (LoaderPlan::Mixture(plan), SavedPlan::Mixture(after)) = (&*self.plan, &after) {
            totals.sources = plan.totals(after);
        }
        Ok(Some(totals))
    }

    /// Returns what epoch 0 holds, if the source is a mixture. It takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn predict(&self) -> Result<Option<MixturePrediction>> {
        let LoaderPlan::Mixture(plan) = &*self.plan else { return Ok(None) };
        plan.predict(self.pads()).map(Some)
    }

    /// Returns whether rows are padded: not where records are one after another.
    fn pads(&self) -> bool {
        let LoaderOptions { text, batching, .. } = self.assembler.options();
        let is_flash = text.packed == PackedLayout::Flash && self.assembler.is_text();
        !(batching.is_flat() || is_flash)
    }

    fn totals_of_records(&self, batches: &[MicroBatch]) -> Result<LoaderTotals> {
        let sum = |of: fn(&MicroBatch) -> u64| batches.iter().map(of).fold(0u64, u64::saturating_add);
        let tokens = sum(MicroBatch::tokens);
        Ok(LoaderTotals {
            rows: sum(|batch| batch.records.len() as u64),
            tokens,
            padded_tokens: if self.pads() { sum(MicroBatch::padded_tokens) } else { tokens },
            labels: None,
            trained: self.assembler.trained_in_records(batches)?,
            sources: Vec::new(),
        })
    }

    fn totals_of_rows(&self, packed: &[Row]) -> Result<LoaderTotals> {
        let LoaderOptions { text, batching, .. } = self.assembler.options();
        let trained = self.assembler.trained_in_rows(packed)?;
        let labels = match text.labels_in(true) {
            LabelsFor::NextToken | LabelsFor::Megatron => packed.iter().map(Row::labels).sum(),
            LabelsFor::HuggingFace => packed.iter().map(Row::tokens_after_first).sum(),
        };
        let (rows, tokens) = (packed.len() as u64, packed.iter().map(Row::tokens).sum());
        let padded_tokens = if self.pads() { rows.saturating_mul(batching.seq_len()) } else { tokens };
        let labels = Some(trained.unwrap_or(labels));
        Ok(LoaderTotals { rows, tokens, padded_tokens, labels, trained, sources: Vec::new() })
    }

    /// Returns the number of micro-batches of this rank per step.
    fn per_step(&self) -> u64 {
        self.micro_batches / self.world_size
    }

    /// Returns the number of micro-batches of a global step, over all ranks.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches
    }
}
