//! Loads batches for a training loop: threads read, decode and assemble them, in order and ahead of the consumer.
//!
//! A [`Loader`] combines a [`RecordSource`], usually a [`Split`], a batch plan ([`BatchOptions`] or [`PackOptions`]) and a pool of threads in this
//! process. The records of a batch, the order of batches and every random choice depend on the plan, the seed and the
//! epoch, never on threads.
//!
//! ```
//! # mod testing { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs")); }
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! # testing::write(path, dsconvert_dataset::format::Format::Arrow, dsconvert_dataset::schema::Kind::Text, &[&[40, 30]])?;
//! use dsconvert_reader::Dataset;
//! use dsconvert_reader::batch::{BatchOptions, BatchSize};
//! use dsconvert_reader::loader::{Loader, LoaderOptions};
//!
//! let train = Dataset::open(path)?.split("train")?;
//! let batches = BatchOptions::new(BatchSize::MaxTokens(64));
//! let mut loader = Loader::new(train, LoaderOptions { seed: 42, threads: 2, ..LoaderOptions::new(batches) })?;
//! let mut left = loader.len()?;
//! while let Some(batch) = loader.next_batch()? {
//!     let ids = batch.array("input_ids").and_then(|ids| ids.as_slice::<i64>()).unwrap_or_default();
//!     assert!(ids.len() <= 64);
//!     left -= 1;
//! }
//! assert_eq!(left, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/reference/loader.md` is the reference.

mod added;
mod array;
mod assemble;
mod augment;
mod batch;
mod batch_field;
mod boxes;
mod completions;
mod drops;
mod element;
mod engine;
mod fields;
mod handoff;
mod image;
mod joined;
mod options;
mod packed;
mod padded;
mod pieces;
mod pool;
mod schedule;
mod state;
mod stored;
#[cfg(test)]
mod tests;
mod text;
mod vision;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use array::Array;
pub use batch::{Batch, BatchId, BlankRow, Column};
pub use element::{BHalf, Element, Half};
pub use fields::{ATTENTION_MASK, LENGTHS, POSITION_IDS, SOURCE, VALID};
pub use handoff::{Claim, Handoff};
pub use image::decode_image;
pub use options::{
    Channels, Crop, DEFAULT_PREFETCH_MARGIN, DropField, IdType, ImageBatchOptions, ImageLayout, LabelsFor,
    LoaderOptions, MAX_CROP, MAX_PREFETCH, MAX_THREADS, PackedLayout, PadSide, PairOrder, PatchType,
    StoredPacking, TextBatchOptions, Undecodable, VisionBatchOptions,
};
pub use schedule::{LoaderCounts, LoaderTotals};
pub use state::LoaderState;

use dsconvert_dataset::error::{Error, ErrorKind, Result};

use self::engine::{BatchEngine, FailedBatch, MadeBatch};
#[cfg(doc)]
use super::Split;
#[cfg(doc)]
use super::batch::{BatchOptions, PackOptions};
use super::{MixturePrediction, RecordSource};

/// The last stage of making a batch: see [`Loader::finish_with`]. A function from batch to batch is one.
pub trait BatchFinisher: Send + Sync {
    /// Returns the batch that replaces `batch`.
    ///
    /// # Errors
    ///
    /// The error replaces the batch as if the batch could not be made. After an error of the kind
    /// [`ErrorKind::Interrupted`], a loader without threads makes the batch again when it is requested the next time.
    fn finish(&self, batch: Batch) -> Result<Batch>;

    /// Does `work`, all the work of one thread of the loader. Override it to prepare the thread, and to tidy up after it.
    fn run_thread(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

impl<F: Fn(Batch) -> Result<Batch> + Send + Sync> BatchFinisher for F {
    fn finish(&self, batch: Batch) -> Result<Batch> {
        self(batch)
    }
}

/// The result of [`Loader::next_within`].
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Box<Batch>),
    /// The epoch is over.
    Done,
    /// The next batch is not ready yet.
    NotYet,
}

/// Loads the batches of one source for one rank, epoch after epoch.
///
/// * Threads start when the first batch is requested, not before. They belong to the loader and end with it: dropping
///   it waits for the records in progress, no matter what was consumed.
/// * When all batches of an epoch are in progress, threads continue with the next epoch, as far as the prefetch allows,
///   so that its first batches are ready when it starts. If no other epoch follows soon, [`Loader::stop`] ends them.
/// * After `fork`, a loader continues in the child from the same position, with its own threads.
/// * A batch owns its memory, which is not overwritten before the batch is dropped.
/// * As an [`Iterator`], a loader returns the rest of the epoch.
pub struct Loader {
    counts: LoaderCounts,
    finisher: Option<Arc<dyn BatchFinisher>>,
    /// State after the last batch that was returned.
    at: LoaderState,
    /// State after the batch that failed since then.
    after_failed: Option<LoaderState>,
    /// The last batch that was returned, and the state before the first batch of its step or, if the batch before that
    /// failed, before the failed one.
    last: Option<(BatchId, LoaderState)>,
    /// Number of rows returned without their image.
    blank_rows: u64,
    /// Whether `at` was restored and no batch was requested since, so that [`Loader::set_epoch`] to its epoch changes
    /// nothing.
    restored: bool,
    engine: Option<BatchEngine>,
}

impl Loader {
    /// Creates a loader at the start of epoch 0. Reads no records and starts no threads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when an option is invalid, a field does not exist, the
    /// ranks cannot share the micro-batches, a record exceeds the budget and the policy forbids it, or stored rows
    /// would be packed again; `Unsupported` when images have to be decoded but this build cannot; `Corrupt` when the
    /// indexes were altered.
    pub fn new(source: impl Into<Arc<dyn RecordSource>>, options: LoaderOptions) -> Result<Self> {
        let source = source.into();
        options.check()?;
        let (source, options) = completions::for_batches(source, options)?;
        let options = vision::for_source(options.for_source(&source)?, &*source)?;
        vision::check_layout(&options, &*source)?;
        let counts = LoaderCounts::new(&source, &options)?;
        Ok(Self {
            at: LoaderState::start(&*counts.plan, None, 0)?,
            counts,
            finisher: None,
            after_failed: None,
            last: None,
            blank_rows: 0,
            restored: false,
            engine: None,
        })
    }

    /// Calls `finisher` with every batch on the thread that made it, while other threads make other batches. Its result
    /// replaces the batch. Its error replaces the batch as if the batch could not be made. Order and states stay the
    /// same.
    #[must_use]
    pub fn finish_with(mut self, finisher: Arc<dyn BatchFinisher>) -> Self {
        self.engine = None;
        self.finisher = Some(finisher);
        self
    }

    /// Returns the next batch of this rank, or `None` when the epoch is over, until [`Loader::set_epoch`] or
    /// [`Loader::next_epoch`] starts another.
    ///
    /// # Errors
    ///
    /// An error takes the place of a batch that could not be made. The next call continues after it, and only then does
    /// the state count the failed batch. `Error::place` names the record. The kinds are those of [`Split::get`];
    /// `Corrupt` or `Unsupported` when a record does not decode and [`Undecodable::Error`] is set; `Usage` when images
    /// differ in size and there is no crop.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        Ok(self.take_made(None)?.and_then(|made| self.hand_out(made)))
    }

    /// Same as [`Loader::next_batch`], but waits no longer than `wait`, for callers that must check signals from time
    /// to time. With 0 threads, it always waits until the batch is ready.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::next_batch`].
    pub fn next_within(&mut self, wait: Duration) -> Result<Next> {
        match self.take_made(Instant::now().checked_add(wait))? {
            Some(made) => Ok(self.hand_out(made).map_or(Next::Done, |batch| Next::Batch(Box::new(batch)))),
            None => Ok(Next::NotYet),
        }
    }

    fn take_made(&mut self, deadline: Option<Instant>) -> Result<Option<MadeBatch>> {
        // Also if the epoch is over or the batch fails: `set_epoch` starts over once an iteration has started.
        self.restored = false;
        if self.engine.as_ref().is_some_and(BatchEngine::is_foreign) {
            self.leave_parent()?;
        }
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(BatchEngine::start(&self.counts, self.finisher.clone(), self.at.clone())?),
        };
        engine.take(deadline).transpose().map_err(|FailedBatch { error, task }| {
            if let Some(task) = task {
                self.after_failed = Some(task.after);
            }
            error
        })
    }

    /// Notes that a batch is returned or, at the end of the epoch, that the last one failed.
    fn hand_out(&mut self, made: MadeBatch) -> Option<Batch> {
        let failed = self.after_failed.take();
        let (batch, after) = made.unzip();
        let before = after.or(failed).map(|after| std::mem::replace(&mut self.at, after));
        if let Some(batch) = &batch {
            let (id, last) = (batch.id(), self.last.take());
            let is_same_step = |last: &BatchId| (last.epoch, last.step) == (id.epoch, id.step);
            let start = last.filter(|(last, _)| is_same_step(last)).map(|(_, start)| start);
            self.last = start.or(before).map(|start| (id, start));
            self.blank_rows += batch.blank_rows().len() as u64;
        }
        batch
    }

    /// Replaces everything shared with the parent after a fork, because the parent's threads may have held locks that
    /// are never released in this process.
    fn leave_parent(&mut self) -> Result<()> {
        self.engine = None;
        let counts = LoaderCounts::new(&self.source().reopened(), self.options())?;
        std::mem::forget(std::mem::replace(&mut self.counts, counts));
        Ok(())
    }

    /// Returns the exact number of batches of this rank in the whole current epoch. For rows packed by best fit,
    /// counting takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes were altered.
    pub fn len(&self) -> Result<u64> {
        self.counts.batches(&self.at)
    }

    /// Returns whether an epoch has no batches.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the number of batches of this rank that are left in the epoch.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`].
    pub fn remaining(&self) -> Result<u64> {
        self.counts.remaining(&self.at)
    }

    /// Returns the number of global steps of the current epoch.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`].
    pub fn steps(&self) -> Result<u64> {
        self.counts.steps(&self.at)
    }

    /// Returns the totals of all ranks in the step of the last batch, for example to normalize a loss. `None` before the
    /// first batch, and after [`Loader::restore`].
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::totals`].
    pub fn totals(&self) -> Result<Option<LoaderTotals>> {
        match &self.last {
            Some((id, start)) => self.counts.totals(id.step, start),
            None => Ok(None),
        }
    }

    /// Returns what epoch 0 holds, over all ranks, if the source is a [`Mixture`](crate::Mixture). No records are read, but it
    /// takes a pass over their lengths.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`].
    pub fn predict(&self) -> Result<Option<MixturePrediction>> {
        self.counts.predict()
    }

    /// Returns the counts of batches, which can be used while the loader is in use.
    pub fn counts(&self) -> &LoaderCounts {
        &self.counts
    }

    /// Returns the number of rows of this rank that were returned without their image since the loader was created
    /// ([`Undecodable::Blank`]). Not part of the state.
    pub fn blank_rows(&self) -> u64 {
        self.blank_rows
    }

    /// Returns the current epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.at.epoch()
    }

    /// Moves to the start of `epoch`. After [`Loader::restore`] to a position in the same epoch, it changes nothing until
    /// a batch is requested, so that a training loop that starts each epoch with it can be resumed.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`].
    pub fn set_epoch(&mut self, epoch: u64) -> Result<()> {
        if self.restored && epoch == self.epoch() {
            return Ok(());
        }
        let start = LoaderState::start(&*self.counts.plan, Some(&self.at), epoch)?;
        // If it is the next epoch, threads may have started on it.
        let engine = self.engine.take().filter(|_| self.epoch().checked_add(1) == Some(epoch));
        self.go_to(start);
        self.engine = engine.and_then(|mut engine| engine.next_epoch(epoch).then_some(engine));
        Ok(())
    }

    /// Moves to the start of the epoch after the current one.
    ///
    /// # Errors
    ///
    /// Same as [`Loader::len`]; [`ErrorKind::OutOfRange`](dsconvert_dataset::error::ErrorKind) after the last possible
    /// epoch, `u64::MAX`.
    pub fn next_epoch(&mut self) -> Result<()> {
        let next = self.epoch().checked_add(1).ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("there is no epoch after {}", self.epoch()))
        })?;
        self.restored = false;
        self.set_epoch(next)
    }

    /// Ends the threads and discards the batches they have prepared. Requesting the next batch starts new threads.
    pub fn stop(&mut self) {
        self.engine = None;
    }

    /// Returns the state: which batches were returned so far. Batches that are only prepared do not count.
    pub fn state(&self) -> LoaderState {
        self.at.clone()
    }

    /// Moves to the position of a saved state. The layout may differ from that of the state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when the state belongs to another dataset, split,
    /// seed, set of options or number of micro-batches, or to a step started by an incompatible number of ranks, or its
    /// position does not exist. After an error, the loader is unchanged.
    pub fn restore(&mut self, state: &LoaderState) -> Result<()> {
        let resumed = state.resumed(&*self.counts.plan)?;
        state.turns(self.options().layout, self.micro_batches()).map(drop)?;
        self.go_to(resumed);
        (self.restored, self.last) = (true, None);
        Ok(())
    }

    fn go_to(&mut self, state: LoaderState) {
        self.engine = None;
        self.after_failed = None;
        self.at = state;
        self.restored = false;
    }

    /// Returns the source that is read.
    pub fn source(&self) -> &Arc<dyn RecordSource> {
        self.counts.assembler.source()
    }

    /// Returns the options of the loader.
    pub fn options(&self) -> &LoaderOptions {
        self.counts.assembler.options()
    }

    /// Returns the number of micro-batches of a global step, over all ranks.
    pub fn micro_batches(&self) -> u64 {
        self.counts.micro_batches()
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("source", self.source()).field("at", &self.at).finish_non_exhaustive()
    }
}
