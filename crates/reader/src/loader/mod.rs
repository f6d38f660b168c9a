//! Batches for a training loop: read, decoded and put together by threads, in order, ahead of who asks.
//!
//! A [`Loader`] is a [`Split`], a plan of batches ([`BatchOptions`] or [`PackOptions`]) and a pool of
//! threads in this process. Which records a batch holds, in which order batches come, and every random choice depend on
//! the plan, the seed and the epoch: never on threads.
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
//! `docs/reference/loader.md` is the guide.

mod array;
mod assemble;
#[cfg(feature = "decode")]
mod augment;
mod batch;
mod element;
mod engine;
mod fields;
mod image;
mod options;
mod packed;
mod pool;
mod schedule;
mod single;
mod state;
mod stored;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use array::Array;
pub use batch::{Batch, BatchId, BlankRow, Column};
pub use element::{DType, Element};
pub use options::{
    Batching, Channels, Crop, DEFAULT_PREFETCH_MARGIN, IdType, ImageLayout, ImageOptions, LabelsFor,
    LoaderOptions, MAX_CROP, MAX_PREFETCH, MAX_THREADS, PadSide, StoredPacking, TextOptions, Undecodable,
};
pub use single::decode_image;
pub use state::{LoaderState, SavedPlan};

use dsconvert_dataset::error::{Error, Result};

use self::assemble::Assembler;
use self::engine::{Engine, Made};
use self::schedule::LoaderPlan;
use super::Split;
#[cfg(doc)]
use super::batch::{BatchOptions, PackOptions};
use super::batch::{BatchPlan, PackPlan};

/// The last stage of making a batch: see [`Loader::finish_with`].
pub type BatchFinisher = dyn Fn(Batch) -> Result<Batch> + Send + Sync;

/// What [`Loader::next_within`] found.
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Box<Batch>),
    /// The epoch is over.
    Done,
    /// It is not ready yet.
    NotYet,
}

/// Batches of one split for one rank, epoch after epoch.
///
/// * Threads start with the first batch that is asked for, not before. They belong to the loader and end with it:
///   dropping it waits for the records they are at, no matter what was consumed.
/// * When all batches of an epoch are in the making, threads go on with the next epoch, as far as the prefetch reaches,
///   so that it begins with batches that are ready. [`Loader::stop`] ends them where no other epoch follows soon.
/// * A loader that goes to another process by `fork` goes on there, from where it stood, with threads of its own.
/// * A batch owns its memory. It is not written again before it is dropped.
/// * As an [`Iterator`], it gives the rest of the epoch.
pub struct Loader {
    split: Split,
    options: LoaderOptions,
    micro_batches: u64,
    plan: Arc<LoaderPlan>,
    assembler: Arc<Assembler>,
    finisher: Option<Arc<BatchFinisher>>,
    /// What was handed out.
    at: LoaderState,
    /// Rows that came without their image.
    blank_rows: u64,
    /// Whether `at` was just restored, so that [`Loader::set_epoch`] to its epoch changes nothing.
    restored: bool,
    engine: Option<Engine>,
    /// Steps of an epoch, once counted.
    steps: Mutex<Option<(u64, u64)>>,
}

impl Loader {
    /// A loader at the start of epoch 0. Reads no record and starts no thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when an option is wrong, a field is not there, the ranks cannot
    /// share the micro-batches, a record exceeds the budget and may not, or stored rows would be packed again;
    /// `Unsupported` when images are to be decoded by a build that cannot; `Corrupt` when the indexes are not what they
    /// were.
    pub fn new(split: Split, options: LoaderOptions) -> Result<Self> {
        options.check()?;
        let options = options.for_split(&split)?;
        let micro_batches = options.micro_batches.unwrap_or(options.layout.world_size());
        let plan = Arc::new(LoaderPlan::new(&split, &options, micro_batches)?);
        options.layout.share(micro_batches).map(drop)?;
        let assembler = Arc::new(Assembler::new(&split, &options)?);
        let at = plan.start(0)?;
        Ok(Self {
            split,
            options,
            micro_batches,
            plan,
            assembler,
            finisher: None,
            at,
            blank_rows: 0,
            restored: false,
            engine: None,
            steps: Mutex::new(None),
        })
    }

    /// Calls `finisher` for every batch, on the thread that made it, while other threads make others. Its result takes the
    /// place of the batch, and its error the place of a batch that could not be made. Order and states stay the same.
    #[must_use]
    pub fn finish_with(mut self, finisher: Arc<BatchFinisher>) -> Self {
        self.engine = None;
        self.finisher = Some(finisher);
        self
    }

    /// The next batch of this rank; `None` when the epoch is over, until [`Loader::set_epoch`] or
    /// [`Loader::next_epoch`] begins another.
    ///
    /// # Errors
    ///
    /// In the place of a batch that could not be made; the next call goes on behind it, and the state counts it only
    /// then. The place of the error names the record. Kinds as in [`Split::get`], and `Corrupt` or `Unsupported` when a
    /// record does not decode and [`Undecodable::Error`] holds, `Usage` when images differ in size and there is no crop.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        match self.take_made(None)? {
            Some(made) => self.hand_out(made),
            None => Ok(None),
        }
    }

    /// As [`Loader::next_batch`], but waits no longer than `wait`: for callers that must look at signals now and then.
    /// With 0 threads it always waits.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_batch`].
    pub fn next_within(&mut self, wait: Duration) -> Result<Next> {
        match self.take_made(Instant::now().checked_add(wait))? {
            Some(made) => Ok(self.hand_out(made)?.map_or(Next::Done, |batch| Next::Batch(Box::new(batch)))),
            None => Ok(Next::NotYet),
        }
    }

    fn take_made(&mut self, deadline: Option<Instant>) -> Result<Option<Made>> {
        if self.engine.as_ref().is_some_and(Engine::is_foreign) {
            self.leave_parent()?;
        }
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => {
                let (assembler, plan) = (Arc::clone(&self.assembler), Arc::clone(&self.plan));
                let (threads, in_flight) = (self.options.threads, self.options.in_flight());
                let layout = self.options.layout;
                let (at, finisher) = (self.at.clone(), self.finisher.clone());
                none.insert(Engine::start(assembler, finisher, plan, at, layout, threads, in_flight)?)
            }
        };
        engine.take(deadline).transpose()
    }

    fn hand_out(&mut self, made: Made) -> Result<Option<Batch>> {
        Ok(made.map(|(batch, after)| {
            self.at = after;
            self.restored = false;
            self.blank_rows += batch.blank_rows().len() as u64;
            batch
        }))
    }

    /// In a process that was forked: locks of the parent's threads may be held for ever, so nothing of them is used.
    fn leave_parent(&mut self) -> Result<()> {
        self.engine = None;
        let split = self.split.detached();
        std::mem::forget(std::mem::replace(&mut self.split, split));
        let plan = LoaderPlan::new(&self.split, &self.options, self.micro_batches)?;
        std::mem::forget(std::mem::replace(&mut self.plan, Arc::new(plan)));
        let assembler = Assembler::new(&self.split, &self.options)?;
        std::mem::forget(std::mem::replace(&mut self.assembler, Arc::new(assembler)));
        Ok(())
    }

    /// Number of batches of this rank in a whole epoch, the current one. Exact. For packed rows of best fit, counting
    /// takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes are not what they were.
    pub fn len(&self) -> Result<u64> {
        Ok(self.steps()? * self.per_step())
    }

    /// Whether an epoch has no batch.
    ///
    /// # Errors
    ///
    /// As [`Loader::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Number of batches of this rank that are left in the epoch.
    ///
    /// # Errors
    ///
    /// As [`Loader::len`].
    pub fn remaining(&self) -> Result<u64> {
        let done =
            self.at.step() * self.per_step() + self.at.micro_batches_done / self.options.layout.world_size();
        Ok(self.len()?.saturating_sub(done))
    }

    /// Number of global steps of the current epoch.
    ///
    /// # Errors
    ///
    /// As [`Loader::len`].
    pub fn steps(&self) -> Result<u64> {
        let epoch = self.epoch();
        let mut known = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, steps)) = known.filter(|(of, _)| *of == epoch) {
            return Ok(steps);
        }
        let steps = self.plan.steps(epoch)?;
        *known = Some((epoch, steps));
        Ok(steps)
    }

    /// Micro-batches that this rank does in a step.
    fn per_step(&self) -> u64 {
        self.micro_batches / self.options.layout.world_size()
    }

    /// Rows that were handed out without their image since the loader was made ([`Undecodable::Blank`]), on this rank.
    /// No part of the state.
    pub fn blank_rows(&self) -> u64 {
        self.blank_rows
    }

    /// The current epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.at.epoch()
    }

    /// Goes to the start of `epoch`. Directly after [`Loader::restore`] to a place in this very epoch it changes
    /// nothing, so that a training loop that begins each epoch with it can be resumed.
    ///
    /// # Errors
    ///
    /// As [`Loader::len`].
    pub fn set_epoch(&mut self, epoch: u64) -> Result<()> {
        if self.restored && epoch == self.epoch() {
            return Ok(());
        }
        let start = self.plan.start(epoch)?;
        // Threads have begun it already, if it is the next one.
        let engine = self.engine.take().filter(|_| self.epoch().checked_add(1) == Some(epoch));
        self.go_to(start);
        self.engine = engine.and_then(|mut engine| engine.next_epoch(epoch).then_some(engine));
        Ok(())
    }

    /// Goes to the start of the epoch after the current one.
    ///
    /// # Errors
    ///
    /// As [`Loader::len`].
    pub fn next_epoch(&mut self) -> Result<()> {
        self.restored = false;
        self.set_epoch(self.epoch() + 1)
    }

    /// Ends the threads and forgets what they have prepared. The next batch that is asked for starts others.
    pub fn stop(&mut self) {
        self.engine = None;
    }

    /// What was handed out so far. Batches that are only prepared do not count.
    pub fn state(&self) -> LoaderState {
        self.at.clone()
    }

    /// Goes to where a saved state was. The layout may be another one than that of the state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when it is a state of another dataset or split, of other options,
    /// seed or number of micro-batches, or of a step that other ranks had begun; `OutOfRange` when there is no such
    /// step. The loader is then where it was.
    pub fn restore(&mut self, state: &LoaderState) -> Result<()> {
        self.plan.check(state)?;
        state.turns(self.options.layout, self.micro_batches).map(drop)?;
        self.go_to(state.clone());
        self.restored = true;
        Ok(())
    }

    fn go_to(&mut self, state: LoaderState) {
        self.engine = None;
        self.at = state;
        self.restored = false;
    }

    /// The split that is read.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The options it was made with.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Micro-batches of a global step, over all ranks.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches
    }

    /// The plan behind it: what any step holds, on any rank, for example to normalise a loss. `None` for packed rows.
    pub fn batch_plan(&self) -> Option<&BatchPlan<Split>> {
        match &*self.plan {
            LoaderPlan::Records(plan) => Some(plan),
            LoaderPlan::Packed(_) => None,
        }
    }

    /// The plan behind packed rows.
    pub fn pack_plan(&self) -> Option<&PackPlan<Split>> {
        match &*self.plan {
            LoaderPlan::Packed(plan) => Some(plan),
            LoaderPlan::Records(_) => None,
        }
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
        f.debug_struct("Loader").field("split", &self.split).field("at", &self.at).finish_non_exhaustive()
    }
}
