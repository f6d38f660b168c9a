//! What a kind of conversion has to say; the scheduler and the units do the rest.

use std::path::Path;

use super::outcome::Outcomes;
use super::stage::Stages;
use super::stop::Stop;
use super::workers::Workers;
use crate::error::Result;

/// A planned conversion: the tasks of a unit, and what a task becomes. Outcomes name splits by ordinal.
///
/// The outcomes of a unit depend on the plan and the items alone. Tasks of a unit are fed in order, converted in any
/// order on any thread, and their outcomes written in the order they were fed.
pub(super) trait Conversion: Sync {
    /// A piece of work of about a millisecond to a second.
    type Task: Send;
    /// Buffers and caches of one worker.
    type Scratch: Send;

    /// What a worker keeps from task to task.
    fn scratch(&self) -> Self::Scratch;

    /// What needs to see all sources before the first unit. `work` is a folder for what does not fit in memory.
    fn prepare(&self, _work: &Path, _workers: &Workers, _stop: &Stop) -> Result<()> {
        Ok(())
    }

    /// What the records of a unit pass before they are written.
    fn stages(&self) -> Stages;

    /// The tasks of `unit`, in order. A unit that asked to be redone is opened with `careful`.
    fn open(&self, unit: u32, careful: bool) -> Result<Box<dyn Feed<Self::Task> + '_>>;

    /// Does `task`.
    ///
    /// # Errors
    ///
    /// Only for failures that are not the fault of an item's bytes: the unit fails.
    fn convert(
        &self,
        task: Self::Task,
        scratch: &mut Self::Scratch,
        out: &mut Outcomes,
    ) -> Result<Converting>;
}

/// How a task went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Converting {
    /// The outcomes are there.
    Done,
    /// The unit has to be done again from its beginning, carefully: a fast engine was caught in a difference.
    RedoUnit,
}

/// Tasks of one unit, in order.
pub(super) trait Feed<T>: Send {
    /// Bytes that the next task will hold until its outcomes are written, as far as known.
    fn next_bytes(&self) -> u64;

    /// The next task and the bytes it holds; `None` at the end.
    fn next(&mut self) -> Result<Option<(T, u64)>>;
}
