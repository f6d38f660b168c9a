//! Maps tickets to the batches of an epoch, and counts them.
//!
//! A *ticket* is the number of a batch of one rank and epoch, counted from the position where the loader starts.
//! Threads draw tickets in order and make the batches concurrently. [`Schedule::task`] returns the task of a ticket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use dsconvert_dataset::error::Result;
use dsconvert_dataset::packing::Row;

use super::assemble::Assembler;
use super::batch::BatchId;
use super::completions;
use super::options::{LabelsFor, LoaderOptions, PackedLayout};
use super::state::LoaderState;
use crate::RecordSource;
use crate::batch::{BatchRows, Layout, MicroBatch, PlannedStep, SavedPlan, SourceTotals, StepPlan};
use crate::mixture::{MixturePrediction, predict};

/// A batch to be made.
#[derive(Debug)]
pub(super) struct BatchTask {
    pub(super) id: BatchId,
    pub(super) rows: BatchRows,
    /// The state after the batch is returned.
    pub(super) after: LoaderState,
}

/// Returns the plan of the batches of `source`.
fn plan_of(
    source: &Arc<dyn RecordSource>,
    options: &LoaderOptions,
    micro_batches: u64,
) -> Result<Arc<dyn StepPlan>> {
    let (batching, seed) = (&options.batching, options.seed);
    source.step_plan(batching, seed, micro_batches).unwrap_or_else(|| {
        batching.clone().plan(&source.fingerprint(), Arc::clone(source), seed, micro_batches)
    })
}

/// The tickets of one rank from one state to the end of its epoch.
#[derive(Debug)]
pub(super) struct Schedule {
    plan: Arc<dyn StepPlan>,
    start: LoaderState,
    /// The micro-batches of this rank in each step.
    share: Vec<u64>,
    world_size: u64,
    /// Number of micro-batches of the first step that this rank has done.
    turns: u64,
    known: Mutex<KnownSteps>,
}

impl Schedule {
    pub(super) fn new(plan: Arc<dyn StepPlan>, start: LoaderState, layout: Layout) -> Result<Self> {
        let micro_batches = start.plan.state().micro_batches;
        let turns = start.turns(layout, micro_batches)?;
        let share = layout.share(micro_batches)?.collect();
        let known = KnownSteps { next: Some(start.plan.clone()), step: start.step(), ready: BTreeMap::new() };
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
        let first_turns = if step == self.start.step() { self.turns } else { 0 };
        let Some(known) = self.known_step(step, per_step - first_turns)? else { return Ok(None) };
        let rows = self.plan.micro_batch(&known.planned, micro_batch)?;
        let plan = if ends_step { &known.after } else { &known.before };
        let after = LoaderState { plan: plan.clone(), micro_batches_done };
        Ok(Some(BatchTask { id, rows, after }))
    }

    /// Returns a step, which is kept until it was requested `uses` times.
    fn known_step(&self, step: u64, uses: u64) -> Result<Option<Arc<KnownStep>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        while known.step <= step {
            let Some(before) = known.next.clone() else { return Ok(None) };
            let mut after = before.clone();
            match self.plan.step(&mut after) {
                Ok(Some(planned)) => {
                    known.next = Some(after.clone());
                    let (entry, number) = (KnownStep { planned, before, after }, known.step);
                    known.ready.insert(number, (Arc::new(entry), 0));
                    known.step += 1;
                }
                Ok(None) => known.next = None,
                // The error takes the place of the batch, and the next request continues where planning stopped. If every
                // request fails, the epoch ends nevertheless.
                Err(_) if step >= self.plan.failed_end(known.step) => return Ok(None),
                Err(error) => return Err(error),
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

/// A step, with the states before and after it.
#[derive(Debug)]
struct KnownStep {
    planned: PlannedStep,
    before: SavedPlan,
    after: SavedPlan,
}

/// The steps that are known so far. Each is computed from the state after the previous one.
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
    /// Sums of what the records have of columns of the record index: those that the dataset names, such as `patches`, and that
    /// of the second budget. A document that is cut counts where it ends.
    pub columns: BTreeMap<String, u64>,
    /// The shares of the sources of a [`Mixture`](crate::Mixture) up to this step; empty for other sources.
    pub sources: Vec<SourceTotals>,
}

/// Counts the steps and batches of the epochs of a [`Loader`](super::Loader) and has its plan. It does not depend on the
/// position of the loader, so it can be used while another thread, or the caller of a
/// [`BatchFinisher`](super::BatchFinisher), uses the loader.
#[derive(Debug, Clone)]
pub struct LoaderCounts {
    pub(super) plan: Arc<dyn StepPlan>,
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
        let plan = plan_of(source, options, micro_batches)?;
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
        let start = LoaderState::start(&*self.plan, Some(state), state.epoch())?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, steps)) = known.as_ref().filter(|(of, _)| *of == start) {
            return Ok(*steps);
        }
        let steps = self.plan.steps(&start.plan)?;
        *known = Some((start, steps));
        Ok(steps)
    }

    /// Returns the totals of all ranks in step `step` of the epoch of `start`, a state before it, the closer the faster. `None`
    /// if the epoch has no such step.
    ///
    /// # Errors
    ///
    /// Same as [`StepPlan::step`] and [`StepPlan::micro_batch`]; if the records mark the tokens to train on, also as
    /// [`RecordSource::get_many`].
    pub fn totals(&self, step: u64, start: &LoaderState) -> Result<Option<LoaderTotals>> {
        let mut after = start.plan.clone();
        // Batches that could not be made may lie between the start and the step.
        let planned = loop {
            let Some(planned) = self.plan.step(&mut after)? else { return Ok(None) };
            if planned.at.step >= step {
                break planned;
            }
        };
        let (mut records, mut packed) = (Vec::new(), Vec::new());
        for index in 0..self.micro_batches {
            match self.plan.micro_batch(&planned, index)? {
                BatchRows::Records { batch, .. } => records.push(batch),
                BatchRows::Packed { rows, .. } => packed.extend(rows),
            }
        }
        let totals = match packed.is_empty() {
            true => self.totals_of_records(&records)?,
            false => self.totals_of_rows(&packed)?,
        };
        let pieces = packed.iter().flat_map(|row| &row.pieces).filter(|piece| piece.ends);
        let records = records.iter().flat_map(|batch| &batch.records).copied();
        let columns =
            self.columns(&records.chain(pieces.map(|piece| piece.document)).collect::<Vec<u64>>())?;
        Ok(Some(LoaderTotals { columns, sources: self.plan.shares(&after), ..totals }))
    }

    fn columns(&self, records: &[u64]) -> Result<BTreeMap<String, u64>> {
        let source = self.assembler.source();
        let budget = self.assembler.options().batching.budget().map(|budget| &budget.column);
        let names: BTreeSet<&String> = source.schema().indexed.iter().chain(budget).collect();
        let mut sums = BTreeMap::new();
        for name in names {
            let mut sum = 0u64;
            for &record in records {
                sum = sum.saturating_add(source.lengths().column_of(record, name)?.unwrap_or(0));
            }
            sums.insert(name.clone(), sum);
        }
        Ok(sums)
    }

    /// Returns what epoch 0 holds, if the source is a mixture. It takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn predict(&self) -> Result<Option<MixturePrediction>> {
        let ends = &self.assembler.properties().part_ends;
        let seq_len = self.assembler.options().batching.seq_len();
        predict(&*self.plan, self.micro_batches, ends, self.pads(), seq_len)
    }

    /// Returns whether rows are padded: not where records are one after another.
    fn pads(&self) -> bool {
        let LoaderOptions { text, batching, .. } = self.assembler.options();
        let is_flash = text.packed == PackedLayout::Flash && self.assembler.is_text();
        !(batching.is_flat() || is_flash)
    }

    fn totals_of_records(&self, batches: &[MicroBatch]) -> Result<LoaderTotals> {
        let sum = |of: fn(&MicroBatch) -> u64| batches.iter().map(of).fold(0u64, u64::saturating_add);
        let sides = self.assembler.sides() as u64;
        let tokens = match sides {
            0 => sum(MicroBatch::tokens),
            _ => completions::tokens(&**self.assembler.source(), batches)?,
        };
        Ok(LoaderTotals {
            rows: sum(|batch| batch.records.len() as u64).saturating_mul(sides.max(1)),
            tokens,
            padded_tokens: if self.pads() { sum(MicroBatch::padded_tokens) } else { tokens },
            labels: None,
            trained: self.assembler.trained_in_records(batches)?,
            ..LoaderTotals::default()
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
        Ok(LoaderTotals { rows, tokens, padded_tokens, labels, trained, ..LoaderTotals::default() })
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
