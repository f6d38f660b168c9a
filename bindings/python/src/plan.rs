//! Python handle for batch plans, with which users batch their own datasets.

use std::sync::Arc;

use dsconvert::error::{Error, Result};
use dsconvert::reader::RecordSource;
use dsconvert::reader::batch::{
    BatchPlan, ImageShape, Layout, Lengths, LengthsInMemory, Position, Runs, SavedPlan,
};
use dsconvert::reader::loader::LoaderState;
use pyo3::prelude::*;

use crate::dataset::Split;
use crate::error::raise;
use crate::interrupt::detached;
use crate::options::sampler_options;

/// Help for a value that is not a state.
pub(crate) const NOT_A_STATE: &str =
    "pass what state_dict() returned; if this is it, the state is damaged: restore another one";

/// Records, tokens, padded tokens, and the column of the second budget with its sum.
type PlanTotals = (u64, u64, u64, Option<(String, u64)>);

/// Source of the lengths of a plan.
#[derive(Debug)]
enum LengthSource {
    Records(Arc<dyn RecordSource>),
    Memory(LengthsInMemory),
}

impl LengthSource {
    fn lengths(&self) -> &dyn Lengths {
        match self {
            LengthSource::Records(source) => source,
            LengthSource::Memory(lengths) => lengths,
        }
    }
}

impl Lengths for LengthSource {
    fn records(&self) -> u64 {
        self.lengths().records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.lengths().record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.lengths().length_of(record)
    }

    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        self.lengths().lengths_of(records, out)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        self.lengths().shape_of(record)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        self.lengths().column_of(record, name)
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.lengths().runs()
    }
}

/// Python argument that provides the lengths of a plan.
#[derive(FromPyObject)]
pub(crate) enum LengthArgument<'py> {
    Split(Bound<'py, Split>),
    Lengths(Vec<u64>),
}

/// Batch plan: the records of each batch, as a function of lengths, options, seed, epoch and step.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Plan {
    plan: BatchPlan<LengthSource>,
    /// Whether the lengths are in object storage, so that a batch may wait for requests.
    is_remote: bool,
}

#[pymethods]
impl Plan {
    /// Creates a plan. `options` is a JSON object of the given options.
    #[new]
    fn new(py: Python<'_>, source: LengthArgument<'_>, options: &str) -> PyResult<Self> {
        let (dataset, source) = match source {
            LengthArgument::Split(split) => {
                let source = split.get().source();
                if source.properties().is_mixture {
                    let error = Error::usage("a BatchSampler does not mix datasets");
                    return Err(raise(error.help("use a Loader; or sample each dataset by itself")));
                }
                (source.fingerprint(), LengthSource::Records(Arc::clone(source)))
            }
            LengthArgument::Lengths(lengths) => {
                let lengths = LengthsInMemory::new(lengths);
                (format!("lengths in memory, {}", lengths.fingerprint()), LengthSource::Memory(lengths))
            }
        };
        let is_remote = matches!(&source, LengthSource::Records(source) if source.is_remote());
        detached(py, is_remote, || {
            let (mut batches, seed, micro_batches) = sampler_options(options)?;
            if let LengthSource::Records(source) = &source {
                batches = batches.for_records_of(&**source);
            }
            let micro_batches = micro_batches.unwrap_or(1);
            BatchPlan::new(&dataset, source, batches, seed, micro_batches)
                .map(|plan| Self { plan, is_remote })
        })
    }

    /// Global steps per epoch.
    #[getter]
    fn steps(&self) -> u64 {
        self.plan.steps()
    }

    /// Returns the ordinals of the records of micro-batch `index` of a step.
    fn batch(&self, py: Python<'_>, epoch: u64, step: u64, index: u64) -> PyResult<Vec<u64>> {
        let at = Position { epoch, step };
        detached(py, self.is_remote, || self.plan.micro_batch(at, index).map(|batch| batch.records))
    }

    /// Returns the records, tokens and padded tokens of a step, over all ranks, and the sum of the column of the second budget.
    fn totals(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<PlanTotals> {
        let totals = detached(py, self.is_remote, || self.plan.totals(Position { epoch, step }))?;
        let column = self.plan.options().budget.as_ref().map(|budget| budget.column.clone());
        Ok((totals.records, totals.tokens, totals.padded_tokens, column.zip(totals.column)))
    }

    /// Returns the numbers of records that `epoch` delivers, repeats, drops, …, with their names.
    fn counts(&self, epoch: u64) -> Vec<(&'static str, u64)> {
        let counts = self.plan.counts(epoch);
        vec![
            ("records", counts.records),
            ("delivered", counts.delivered),
            ("repeated", counts.repeated),
            ("filler_rows", counts.filler_rows),
            ("dropped", counts.dropped),
            ("oversize", counts.oversize),
        ]
    }

    /// Returns the state of a loader, as JSON, after `micro_batches_done` micro-batches of a step.
    fn state(&self, epoch: u64, step: u64, micro_batches_done: u64) -> PyResult<String> {
        let plan = SavedPlan::Records(self.plan.state(Position { epoch, step }).map_err(raise)?);
        let state = LoaderState { plan, micro_batches_done };
        serde_json::to_string(&state).map_err(|e| raise(Error::not_serialized("the state", e)))
    }

    /// Returns the epoch and step where a saved state continues, and the number of micro-batches that a rank has done in
    /// that step.
    fn resume(&self, state: &str, rank_layout: (u64, u64, u64)) -> PyResult<(u64, u64, u64)> {
        let not_a_state = || Error::usage("this is not the state of a batch sampler").help(NOT_A_STATE);
        let state: LoaderState =
            serde_json::from_str(state).map_err(|e| raise(not_a_state().caused_by(e)))?;
        let SavedPlan::Records(plan) = &state.plan else { return Err(raise(not_a_state())) };
        let at = self.plan.resume(plan).map_err(raise)?;
        let (rank, world_size, replication) = rank_layout;
        let layout = Layout::replicated(rank, world_size, replication).map_err(raise)?;
        let turns = state.turns(layout, plan.micro_batches).map_err(raise)?;
        state.check_unfinished_step(self.plan.steps()).map_err(raise)?;
        Ok((at.epoch, at.step, turns))
    }
}

/// Returns which of the `micro_batches` of a step belong to process `rank` of `world_size`, in order. Groups of
/// `replication` adjacent processes share the same ones.
#[pyfunction]
pub(crate) fn share(rank: i64, world_size: i64, replication: i64, micro_batches: i64) -> PyResult<Vec<u64>> {
    let share = || {
        let rank = non_negative("rank", rank)?;
        let world_size = non_negative("world_size", world_size)?;
        let layout = Layout::replicated(rank, world_size, non_negative("replication", replication)?)?;
        Ok(layout.share(non_negative("micro_batches", micro_batches)?)?.collect())
    };
    share().map_err(raise)
}

fn non_negative(name: &str, number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| Error::usage(format!("{name} is {number}: it cannot be negative")))
}
