//! Plans which records form which batch.
//!
//! A [`BatchPlan`] is a pure function: from the lengths of the records, the options, a seed, an epoch and a step, it
//! computes the records of every micro-batch of the step directly, without a list of batches. Every rank can therefore
//! compute the batches of all ranks, a saved state is a few numbers, and the number of workers does not change the
//! batches.
//!
//! * All micro-batches of a step come from one bucket of similar lengths, so no rank waits for another. (With buckets by
//!   shape, each micro-batch comes from one bucket.)
//! * A token budget holds for every batch, padding included.
//! * With [`Last::Short`], every record occurs exactly once per epoch, over all ranks.
//!
//! `docs/reference/batching.md` specifies the algorithm.

mod bucket;
mod column_budget;
mod cuttings;
mod estimate;
mod layout;
mod lengths;
mod options;
mod order;
mod pack;
mod permute;
mod plan;
mod shape;
mod state;
mod step_plan;
#[cfg(test)]
mod tests;

pub use bucket::Bucket;
pub use estimate::{Padding, SIMULATED_RECORDS, packed_padding, padding};
pub use layout::Layout;
pub use lengths::{ImageShape, Lengths, LengthsInMemory, Runs};
pub(crate) use lengths::{look_up, no_such_record, runs_of};
pub(crate) use options::json_digest;
pub use options::{
    ALGORITHM, BatchOptions, BatchSize, Boundaries, BucketBy, ColumnBudget, DEFAULT_BLOCK_RECORDS,
    DEFAULT_FIRST_BOUND, DEFAULT_GROUP_BLOCKS, DEFAULT_MAX_WASTE, DEFAULT_RATIO, DEFAULT_WINDOW_STEPS, Last,
    MAX_BATCH_RECORDS, MAX_BATCH_TOKENS, MAX_BOUNDARIES, MAX_MAX_WASTE, MAX_MICRO_BATCHES,
    MAX_WINDOW_RECORDS, Oversize, Shuffle,
};
pub use pack::{
    DEFAULT_PACK_ROWS, DEFAULT_PACK_WINDOW, MAX_DEFAULT_PACK_WINDOW, PackOptions, PackPlan, PackedStep,
};
pub(crate) use permute::{Purpose, key, source_seed};
pub use plan::{BatchPlan, Counts, MicroBatch, StepTotals};
pub(crate) use state::damaged_state;
pub use state::{MixtureState, PackCursor, PackState, PlanState, Position, SavedPlan, SourceState};
pub use step_plan::{BatchRows, Batching, PlannedStep, SourceTotals, StepPlan};
