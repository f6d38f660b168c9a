//! Packing at read time: the documents of an epoch are packed in order, window by window, into rows of one length.
//!
//! The rows of a step depend on the windows before it, so each step is computed from the previous one. A state stores
//! the start of the current window, so resuming takes as long as packing one window.

mod rows;
#[cfg(test)]
mod tests;

#[cfg(doc)]
use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::{MAX_SEQ_LEN, Packing, Row};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use self::rows::{KEPT_WINDOWS, PackedWindows, RowSource};
use super::bucket::CheckedRuns;
use super::layout::check_micro_batches;
use super::lengths::Lengths;
use super::options::{ALGORITHM, ColumnBudget, Last, MAX_WINDOW_RECORDS, Shuffle, json_digest};
use super::order::Epoch;
use super::state::{PackCursor, PackState, PlanState, Position, damaged_state};
use crate::range::check_in_range;

/// Number of documents that are packed together with [`Packing::Concat`], and their minimum with
/// [`Packing::BestFit`], unless [`PackOptions::window`] is set.
pub const DEFAULT_PACK_WINDOW: u64 = 4096;

/// Number of rows of a default window with [`Packing::BestFit`]. One of them is not full, on average by half.
pub const DEFAULT_PACK_ROWS: u64 = 256;

/// Maximum number of documents of a default window with [`Packing::BestFit`], which bounds its memory to about 60 MB.
pub const MAX_DEFAULT_PACK_WINDOW: u64 = 1 << 21;

/// How records are packed into rows. The rows of an epoch depend on all fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackOptions {
    /// Number of inputs, and of labels, per row.
    pub seq_len: u64,
    /// A second budget, which holds for every row. Documents are then whole, and none may exceed a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<ColumnBudget>,
    /// How documents are assigned to rows.
    pub packing: Packing,
    /// Minimum number of documents that are packed together. More are added until they fill a row. `None`:
    /// [`DEFAULT_PACK_WINDOW`] and, with [`Packing::BestFit`], more until they fill [`DEFAULT_PACK_ROWS`] rows, but at
    /// most [`MAX_DEFAULT_PACK_WINDOW`].
    pub window: Option<u64>,
    /// Rows per micro-batch.
    pub batch_size: u64,
    /// The order of documents. Unless this is [`Shuffle::None`], the rows of each window are shuffled, too.
    pub shuffle: Shuffle,
    /// What happens to the rows at the end of an epoch that do not fill a step.
    pub last: Last,
}

impl PackOptions {
    /// Creates the default options for rows of `seq_len`, with `batch_size` rows per micro-batch: best fit, full
    /// shuffle.
    pub fn new(seq_len: u64, batch_size: u64) -> Self {
        Self {
            seq_len,
            budget: None,
            packing: Packing::BestFit,
            window: None,
            batch_size,
            shuffle: Shuffle::Full,
            last: Last::Short,
        }
    }

    /// Checks all numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] naming the option.
    pub fn check(&self) -> Result<()> {
        check_in_range("seq_len", self.seq_len, 1..=MAX_SEQ_LEN)?;
        check_in_range("batch_size", self.batch_size, 1..=MAX_SEQ_LEN / self.seq_len)?;
        check_in_range("pack_window", self.window.unwrap_or(1), 1..=MAX_WINDOW_RECORDS)?;
        self.shuffle.check()?;
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.check()?;
        if self.packing == Packing::Concat {
            return Err(budget
                .does_not_apply("with `packing \"concat\"`, documents are cut")
                .help("use `packing \"best_fit\"`"));
        }
        Ok(())
    }

    /// Returns whether a window of `documents` with `tokens` is complete.
    pub(crate) fn completes_window(&self, documents: u64, tokens: u64) -> bool {
        // A window of fewer than `seq_len` tokens cannot fill a row.
        tokens >= self.seq_len
            && match self.window {
                Some(window) => documents >= window,
                // The last row is half full: with a whole number of rows, it would often have a single document.
                None => {
                    documents >= MAX_DEFAULT_PACK_WINDOW
                        || documents >= DEFAULT_PACK_WINDOW
                            && tokens >= self.seq_len * DEFAULT_PACK_ROWS - self.seq_len / 2
                }
            }
    }
}

/// Rows of one global step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedStep {
    /// Global step in the epoch.
    pub step: u64,
    /// The rows of all micro-batches.
    pub rows: Vec<Row>,
    /// Number of rows that already occurred in this epoch ([`Last::Wrap`]); they are the last ones.
    pub repeated: u64,
    /// Where the next step starts.
    pub next: PackCursor,
    /// Number of rows that each micro-batch is filled up to, with [`Last::Pad`].
    filled_to: u64,
    micro_batches: u64,
}

impl PackedStep {
    /// Returns the rows of micro-batch `index`. A short step is divided as evenly as possible: the first micro-batches
    /// get one more row.
    pub fn micro_batch(&self, index: u64) -> &[Row] {
        let rows = self.rows.len() as u64;
        let (each, more) = (rows / self.micro_batches, rows % self.micro_batches);
        let start = index.saturating_mul(each).saturating_add(index.min(more));
        let end = start.saturating_add(each + u64::from(index < more));
        self.rows.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Returns the number of rows without documents after those of micro-batch `index` ([`Last::Pad`]).
    pub fn filler_rows(&self, index: u64) -> u64 {
        self.filled_to.saturating_sub(self.micro_batch(index).len() as u64)
    }

    /// Returns the rows of each micro-batch, and its number of rows without documents after them.
    pub(crate) fn into_micro_batches(self) -> Vec<(Vec<Row>, u64)> {
        let count = |index| (self.micro_batch(index).len(), self.filler_rows(index));
        let counts: Vec<(usize, u64)> = (0..self.micro_batches).map(count).collect();
        let mut rows = self.rows.into_iter();
        counts.into_iter().map(|(count, filler)| (rows.by_ref().take(count).collect(), filler)).collect()
    }
}

/// A pure function of (lengths, options, seed, epoch, state) that computes which pieces of which records each packed
/// row holds. It needs memory for two windows and one step.
///
/// ```
/// use dsconvert_reader::batch::{LengthsInMemory, PackOptions, PackPlan};
///
/// let lengths = LengthsInMemory::new((0..1000).map(|i| 20 + i % 300).collect());
/// let plan = PackPlan::new("fingerprint", lengths, PackOptions::new(512, 4), 42, 2)?;
/// let mut saved = None;
/// for step in plan.steps(&plan.start(0))? {
///     let (step, state) = step?;
///     assert!(step.rows.iter().all(|row| row.tokens() <= 512));
///     if step.step == 3 {
///         saved = Some(state);
///     }
/// }
/// let (resumed, _) = plan.steps(&saved.unwrap_or_else(|| plan.start(0)))?.next().transpose()?.unwrap();
/// assert_eq!(resumed.step, 4);
/// # Ok::<(), dsconvert_reader::error::Error>(())
/// ```
#[derive(Debug)]
pub struct PackPlan<L> {
    lengths: L,
    options: PackOptions,
    start: PlanState,
    /// Sum of the lengths.
    tokens: u64,
    windows: PackedWindows,
}

impl<L: Lengths> PackPlan<L> {
    /// Creates a plan for the records of `lengths`; otherwise the same as [`BatchPlan::new`](super::BatchPlan::new).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when an option is invalid; [`ErrorKind::Corrupt`] when the lengths are inconsistent.
    pub fn new(
        dataset: &str,
        lengths: L,
        options: PackOptions,
        seed: u64,
        micro_batches: u64,
    ) -> Result<Self> {
        options.check()?;
        check_micro_batches(micro_batches)?;
        let (digest, tokens) = digest(&lengths)?;
        let digest = match &options.budget {
            Some(budget) => check_documents(&lengths, options.seq_len, budget, &digest)?,
            None => digest,
        };
        let options = match (options.window, options.packing) {
            // All rows are full, however many documents a window has.
            (None, Packing::Concat) => PackOptions { window: Some(DEFAULT_PACK_WINDOW), ..options },
            _ => options,
        };
        let start = PlanState {
            version: ALGORITHM,
            dataset: dataset.to_owned(),
            lengths: digest,
            options: json_digest("the options", &(ALGORITHM, &options))?,
            seed,
            micro_batches,
            epoch: 0,
            step: 0,
        };
        Ok(Self { lengths, options, start, tokens, windows: PackedWindows::new(KEPT_WINDOWS) })
    }

    /// Returns the options.
    pub fn options(&self) -> &PackOptions {
        &self.options
    }

    /// Returns the number of tokens of an epoch.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the number of rows of `epoch`, before [`Last`] is applied. With [`Packing::Concat`], it is the same in
    /// every epoch and takes no time. With [`Packing::BestFit`], all lengths are looked up and packed.
    ///
    /// # Errors
    ///
    /// Same as the items of [`PackPlan::steps`].
    pub fn rows(&self, epoch: u64) -> Result<u64> {
        if self.options.packing == Packing::Concat {
            return Ok(self.tokens.div_ceil(self.options.seq_len));
        }
        let mut rows = self.rows_from(epoch, PackCursor::default());
        let mut count = 0;
        while rows.open()? {
            count += rows.skip_window();
        }
        Ok(count)
    }

    /// Returns the number of global steps of an epoch of `rows` rows.
    pub fn steps_of(&self, rows: u64) -> u64 {
        match self.options.last {
            Last::Drop => rows / self.rows_per_step(),
            _ => rows.div_ceil(self.rows_per_step()),
        }
    }

    /// Returns a number of steps that no epoch exceeds, without packing it: all rows but the last are at least half full.
    pub(crate) fn max_steps(&self) -> u64 {
        if self.options.budget.is_some() {
            // Every row has a document.
            return self.lengths.records().div_ceil(self.rows_per_step());
        }
        let rows = self.tokens.div_ceil(self.options.seq_len).saturating_mul(2).saturating_add(1);
        rows.div_ceil(self.rows_per_step())
    }

    /// Returns the state before the first step of `epoch`.
    pub fn start(&self, epoch: u64) -> PackState {
        PackState { plan: PlanState { epoch, ..self.start.clone() }, cursor: PackCursor::default() }
    }

    /// Returns the steps from `from` to the end of its epoch, each with the state after it. The iterator ends after the
    /// first error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when the state belongs to another dataset, seed, number of micro-batches or set of options,
    /// or its position does not exist.
    pub fn steps(
        &self,
        from: &PackState,
    ) -> Result<impl Iterator<Item = Result<(PackedStep, PackState)>> + '_> {
        self.check_state(from)?;
        let mut at = Position { epoch: from.plan.epoch, step: from.plan.step };
        let mut rows = self.rows_from(at.epoch, from.cursor);
        let mut done = false;
        Ok(std::iter::from_fn(move || {
            if done {
                return None;
            }
            let step = self.next_step(at, &mut rows).transpose();
            done = !matches!(step, Some(Ok(_)));
            at.step += 1;
            step.map(|step| {
                step.map(|step| {
                    let plan = PlanState { epoch: at.epoch, step: at.step, ..self.start.clone() };
                    let state = PackState { plan, cursor: step.next };
                    (step, state)
                })
            })
        }))
    }

    /// Checks that a saved state belongs to the run of this plan, and that its position exists.
    pub(super) fn check_state(&self, from: &PackState) -> Result<()> {
        self.start.check_same_run(&from.plan)?;
        if from.cursor.document > self.lengths.records() {
            let what = format!(
                "the state points at document {} of {}",
                from.cursor.document,
                self.lengths.records()
            );
            return Err(damaged_state(what));
        }
        // Every step has at least one token.
        if from.plan.step > self.tokens {
            let what = format!("the state has {} steps of {} tokens done", from.plan.step, self.tokens);
            return Err(damaged_state(what));
        }
        // Each step moves the cursor, and nothing else does.
        if (from.plan.step == 0) != (from.cursor == PackCursor::default()) {
            let PackCursor { document, token, row } = from.cursor;
            return Err(damaged_state(format!(
                "the state has {} steps done, but points at document {document}, token {token}, row {row}",
                from.plan.step
            )));
        }
        Ok(())
    }

    /// Returns the step after `from`, a state of this plan. Its window is usually kept from the step before.
    pub(super) fn step_after(&self, from: &PackState) -> Result<Option<PackedStep>> {
        let at = Position { epoch: from.plan.epoch, step: from.plan.step };
        self.next_step(at, &mut self.rows_from(at.epoch, from.cursor))
    }

    /// Returns the row at a position of `epoch`, the position after it, and whether the epoch ends after it. `None` if there is
    /// no such row.
    pub(crate) fn row(&self, epoch: u64, cursor: PackCursor) -> Result<Option<(Row, PackCursor, bool)>> {
        let mut rows = self.rows_from(epoch, cursor);
        let Some(row) = rows.next()? else { return Ok(None) };
        let ends = !rows.open()?;
        Ok(Some((row, rows.cursor(), ends)))
    }

    fn rows_per_step(&self) -> u64 {
        self.options.batch_size * self.start.micro_batches
    }

    fn next_step(&self, at: Position, source: &mut RowSource<'_, L>) -> Result<Option<PackedStep>> {
        let wanted = self.rows_per_step();
        let mut rows = Vec::new();
        while (rows.len() as u64) < wanted
            && let Some(row) = source.next()?
        {
            rows.push(row);
        }
        let missing = wanted - rows.len() as u64;
        if rows.is_empty() || (missing > 0 && self.options.last == Last::Drop) {
            return Ok(None);
        }
        let next = source.cursor();
        let mut repeated = 0;
        if self.options.last == Last::Wrap && missing > 0 {
            repeated = missing;
            let first = || self.rows_from(at.epoch, PackCursor::default());
            let mut again = first();
            while (rows.len() as u64) < wanted {
                match again.next()? {
                    Some(row) => rows.push(row),
                    None => again = first(),
                }
            }
        }
        let filled_to = if self.options.last == Last::Pad { self.options.batch_size } else { 0 };
        let micro_batches = self.start.micro_batches;
        Ok(Some(PackedStep { step: at.step, rows, repeated, next, filled_to, micro_batches }))
    }

    /// Returns the rows of `epoch` from a position on.
    fn rows_from(&self, epoch: u64, cursor: PackCursor) -> RowSource<'_, L> {
        let epoch = Epoch { seed: self.start.seed, epoch };
        RowSource::new(&self.lengths, &self.options, &self.windows, epoch, cursor)
    }
}

/// Checks that no document exceeds a budget on its own. Returns the XXH3-128 of `digest`, that of the lengths, and of what each
/// document has of the column.
fn check_documents<L: Lengths>(
    lengths: &L,
    seq_len: u64,
    budget: &ColumnBudget,
    digest: &str,
) -> Result<String> {
    let mut hash = Xxh3::new();
    hash.update(digest.as_bytes());
    let (mut over, mut first) = (0, None);
    for record in 0..lengths.records() {
        let count = budget.of(lengths, record)?;
        hash.update(&count.to_le_bytes());
        if count > budget.max || lengths.length_of(record)? > seq_len {
            over += 1;
            first.get_or_insert(record);
        }
    }
    match first {
        None => Ok(format!("{:032x}", hash.digest128())),
        Some(first) => Err(budget
            .exceeded(lengths, ("seq_len", seq_len), over, first)?
            .help("raise the budget: with two of them, documents are packed whole")),
    }
}

/// Returns the XXH3-128 of the histogram, and the sum of the lengths.
fn digest<L: Lengths>(lengths: &L) -> Result<(String, u64)> {
    let mut runs = CheckedRuns::new(lengths)?;
    let mut digest = Xxh3::new();
    let mut tokens = 0u64;
    while let Some(run) = runs.next()? {
        digest.update(&run.length.to_le_bytes());
        digest.update(&run.count.to_le_bytes());
        tokens = run
            .length
            .checked_mul(run.count)
            .and_then(|sum| tokens.checked_add(sum))
            .ok_or_else(|| Error::corrupt("the sum of the lengths overflows 64 bits"))?;
    }
    Ok((format!("{:032x}", digest.digest128()), tokens))
}
