//! The interface between a kind of conversion and the scheduler.

use std::path::Path;

use super::memory::MemoryPool;
use super::outcome::Outcomes;
use super::stage::Stages;
use super::stop::Stop;
use super::workers::Workers;
use crate::error::Result;

/// A planned conversion: provides the tasks of a unit and converts them to outcomes. Outcomes refer to splits by
/// ordinal.
///
/// The outcomes of a unit depend only on the plan and the items. The tasks of a unit are fed in order, converted in any
/// order on any thread, and their outcomes written in the order in which the tasks were fed.
pub(super) trait Conversion: Sync {
    /// A piece of work that takes about a millisecond to a second.
    type Task: Send;
    /// Buffers and caches of one worker, kept from task to task.
    type Scratch: Send;

    /// Creates the scratch of a worker.
    fn scratch(&self) -> Self::Scratch;

    /// Does the work that needs all sources before the first unit. `work` is a folder for data that does not fit in
    /// memory, and `memory` the share of tasks.
    fn prepare(&self, _work: &Path, _workers: &Workers, _memory: &MemoryPool, _stop: &Stop) -> Result<()> {
        Ok(())
    }

    /// Returns the stages that the records of a unit pass through before they are written. `work` is a folder for
    /// temporary files.
    fn stages(&self, work: &Path) -> Stages;

    /// Opens `unit` and returns its tasks, in order. They are converted with `engine`.
    fn open(&self, unit: u32, engine: EngineUse) -> Result<Box<dyn Feed<Self::Task> + '_>>;

    /// Converts `task`.
    ///
    /// # Errors
    ///
    /// Fails only for reasons other than the bytes of an item; the whole unit fails then.
    fn convert(
        &self,
        task: Self::Task,
        scratch: &mut Self::Scratch,
        out: &mut Outcomes,
    ) -> Result<Converting>;
}

/// Result of converting a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Converting {
    /// All outcomes of the task were produced.
    Done,
    /// The unit must be redone from its start with [`EngineUse::Reference`], because the output of a fast engine
    /// differed from the reference.
    RedoUnit,
}

/// The engine that converts a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineUse {
    /// The engine that the options select, which may be a fast one.
    Selected,
    /// The reference engine: an earlier attempt found that the output of the fast engine differs.
    Reference,
}

/// The tasks of one unit, in order.
pub(super) trait Feed<T>: Send {
    /// Returns how many bytes the next task will hold until its outcomes are written, as far as known.
    fn next_bytes(&self) -> u64;

    /// Returns the next task and the bytes it holds; `None` at the end.
    fn next(&mut self) -> Result<Option<(T, u64)>>;
}
