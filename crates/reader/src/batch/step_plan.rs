//! The steps of an epoch: which records each micro-batch holds, whatever forms them.

use std::fmt;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::packing::Row;

use super::lengths::Lengths;
use super::options::{BatchOptions, BatchSize, ColumnBudget, Last};
use super::pack::{PackOptions, PackPlan};
use super::plan::{BatchPlan, MicroBatch};
use super::state::{PackState, Position, SavedPlan};

/// Number of steps that may fail one after another before an epoch ends.
const MAX_FAILED_STEPS: u64 = 1024;

/// A pure function that computes each step of an epoch from the state before it. A loader reads nothing else about how
/// records form batches: [`BatchPlan`], [`PackPlan`] and the plan of a [`Mixture`](crate::Mixture) implement it.
pub trait StepPlan: fmt::Debug + Send + Sync {
    /// Returns the state at the start of `epoch`, in the run of a state of this plan or, without one, in a new run.
    ///
    /// # Errors
    ///
    /// Fails if the epoch cannot be reached from that state, or an index cannot be read.
    fn start(&self, run: Option<&SavedPlan>, epoch: u64) -> Result<SavedPlan>;

    /// Returns the state that continues from a saved one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the state belongs to another run, or its position does not exist.
    fn resume(&self, saved: &SavedPlan) -> Result<SavedPlan>;

    /// Returns the number of global steps of the epoch of a state of this plan. It may take a pass over the lengths.
    ///
    /// # Errors
    ///
    /// Same as [`StepPlan::step`].
    fn steps(&self, at: &SavedPlan) -> Result<u64>;

    /// Moves `at`, a state of this plan, to the end of its next step, and returns that step; `None` at the end of the epoch.
    /// After an error, `at` is of no use.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] when the indexes were altered.
    fn step(&self, at: &mut SavedPlan) -> Result<Option<PlannedStep>>;

    /// Returns micro-batch `index` of a step that this plan returned. If steps do not depend on each other, it is computed
    /// only now, so that a rank computes none of the micro-batches of others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when the step has no such micro-batch; [`ErrorKind::Corrupt`] when the indexes were altered.
    fn micro_batch(&self, step: &PlannedStep, index: u64) -> Result<BatchRows> {
        let batch = usize::try_from(index).ok().and_then(|index| step.batches.get(index));
        batch.cloned().ok_or_else(|| no_such_micro_batch(index))
    }

    /// Returns the shares of the sources up to the state `after`, if the plan mixes sources.
    fn shares(&self, after: &SavedPlan) -> Vec<SourceTotals> {
        let _ = after;
        Vec::new()
    }

    /// Returns a step that no epoch reaches if all of its steps fail from `step` on.
    fn failed_end(&self, step: u64) -> u64 {
        step.saturating_add(MAX_FAILED_STEPS)
    }
}

fn no_such_micro_batch(index: u64) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("the step has no micro-batch {index}"))
}

/// A step of an epoch, over all ranks: see [`StepPlan::step`].
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedStep {
    /// Where the step starts.
    pub at: Position,
    /// All micro-batches; empty if [`StepPlan::micro_batch`] computes them from the position.
    pub batches: Vec<BatchRows>,
}

/// Records of one micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchRows {
    /// One record per row.
    Records {
        /// The records.
        batch: MicroBatch,
        /// The epoch of each record; empty if it is that of the step.
        epochs: Vec<u64>,
    },
    /// Rows of several documents.
    Packed {
        /// The rows that hold documents.
        rows: Vec<Row>,
        /// Number of rows after these that hold none.
        filler_rows: u64,
    },
}

/// The share of one source in the steps since the weights changed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SourceTotals {
    /// Name of the source.
    pub name: String,
    /// The requested share.
    pub requested: f64,
    /// The share up to this step.
    pub realized: f64,
    /// Number of passes over the source since the start of training. The last one counts by its share of micro-batches or
    /// records, or of tokens where documents are packed.
    pub epochs: f64,
}

/// How records are grouped into batches.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Batching {
    /// One record per row.
    Records(BatchOptions),
    /// Documents packed into rows of one length; text only.
    Packed(PackOptions),
}

impl Batching {
    /// Plans the steps of `lengths`. The parameters are those of [`BatchPlan::new`].
    ///
    /// # Errors
    ///
    /// Same as [`BatchPlan::new`] and [`PackPlan::new`].
    pub fn plan<L>(
        self,
        dataset: &str,
        lengths: L,
        seed: u64,
        micro_batches: u64,
    ) -> Result<Arc<dyn StepPlan>>
    where
        L: Lengths + fmt::Debug + Send + Sync + 'static,
    {
        Ok(match self {
            Batching::Records(options) => {
                Arc::new(BatchPlan::new(dataset, lengths, options, seed, micro_batches)?)
            }
            Batching::Packed(options) => {
                Arc::new(PackPlan::new(dataset, lengths, options, seed, micro_batches)?)
            }
        })
    }

    /// Returns the length of packed rows; 0 if documents are not packed.
    pub(crate) fn seq_len(&self) -> u64 {
        match self {
            Batching::Records(_) => 0,
            Batching::Packed(packed) => packed.seq_len,
        }
    }

    /// Returns the second budget, if there is one.
    pub(crate) fn budget(&self) -> Option<&ColumnBudget> {
        match self {
            Batching::Records(batches) => batches.budget.as_ref(),
            Batching::Packed(packed) => packed.budget.as_ref(),
        }
    }

    /// Returns what happens to the records at the end of an epoch that do not fill a step.
    pub(crate) fn last(&self) -> Last {
        match self {
            Batching::Records(batches) => batches.last,
            Batching::Packed(packed) => packed.last,
        }
    }

    /// Returns whether the records of a batch follow each other without padding.
    pub(crate) fn is_flat(&self) -> bool {
        matches!(self, Batching::Records(batches) if matches!(batches.size, BatchSize::MaxTokensUnpadded(_)))
    }
}

impl From<BatchOptions> for Batching {
    fn from(options: BatchOptions) -> Self {
        Batching::Records(options)
    }
}

impl From<PackOptions> for Batching {
    fn from(options: PackOptions) -> Self {
        Batching::Packed(options)
    }
}

/// Steps of records do not depend on each other: a state is a position.
impl<L: Lengths + fmt::Debug + Send + Sync> StepPlan for BatchPlan<L> {
    fn start(&self, _run: Option<&SavedPlan>, epoch: u64) -> Result<SavedPlan> {
        self.state(Position { epoch, step: 0 }).map(SavedPlan::Records)
    }

    fn resume(&self, saved: &SavedPlan) -> Result<SavedPlan> {
        let SavedPlan::Records(state) = saved else { return Err(saved.of_other_plan("records")) };
        BatchPlan::resume(self, state)?;
        Ok(saved.clone())
    }

    fn steps(&self, _at: &SavedPlan) -> Result<u64> {
        Ok(BatchPlan::steps(self))
    }

    fn step(&self, at: &mut SavedPlan) -> Result<Option<PlannedStep>> {
        let SavedPlan::Records(state) = at else { return Err(at.of_other_plan("records")) };
        if state.step >= BatchPlan::steps(self) {
            return Ok(None);
        }
        let at = Position { epoch: state.epoch, step: state.step };
        state.step += 1;
        Ok(Some(PlannedStep { at, batches: Vec::new() }))
    }

    fn micro_batch(&self, step: &PlannedStep, index: u64) -> Result<BatchRows> {
        let batch = BatchPlan::micro_batch(self, step.at, index)?;
        Ok(BatchRows::Records { batch, epochs: Vec::new() })
    }
}

/// The rows of a step depend on the windows before it: a state has the position in the documents.
impl<L: Lengths + fmt::Debug + Send + Sync> StepPlan for PackPlan<L> {
    fn start(&self, _run: Option<&SavedPlan>, epoch: u64) -> Result<SavedPlan> {
        Ok(SavedPlan::Packed(PackPlan::start(self, epoch)))
    }

    fn resume(&self, saved: &SavedPlan) -> Result<SavedPlan> {
        self.check_state(packed(saved)?)?;
        Ok(saved.clone())
    }

    fn steps(&self, at: &SavedPlan) -> Result<u64> {
        Ok(self.steps_of(self.rows(packed(at)?.plan.epoch)?))
    }

    fn step(&self, at: &mut SavedPlan) -> Result<Option<PlannedStep>> {
        let SavedPlan::Packed(state) = at else { return Err(at.of_other_plan("packed rows")) };
        let at = Position { epoch: state.plan.epoch, step: state.plan.step };
        let Some(step) = self.step_after(state)? else { return Ok(None) };
        (state.plan.step, state.cursor) = (at.step + 1, step.next);
        let rows = |(rows, filler_rows)| BatchRows::Packed { rows, filler_rows };
        Ok(Some(PlannedStep { at, batches: step.into_micro_batches().into_iter().map(rows).collect() }))
    }

    fn failed_end(&self, _step: u64) -> u64 {
        self.max_steps()
    }
}

fn packed(saved: &SavedPlan) -> Result<&PackState> {
    match saved {
        SavedPlan::Packed(state) => Ok(state),
        _ => Err(saved.of_other_plan("packed rows")),
    }
}
