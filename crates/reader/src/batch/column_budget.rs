//! A second budget: besides tokens, it counts a column of the record index, such as the patches of images.
//!
//! A batch plan ranks its records by one number. With two budgets, this is the larger of the two shares that a record takes of
//! a batch, expressed in tokens. A batch of records of at most that share keeps both budgets, so buckets, steps, states and
//! all policies stay those of a plan with one budget.

use dsconvert_dataset::error::{Error, Result};

use super::lengths::{Lengths, LengthsInMemory};
use super::options::{BatchOptions, BatchSize, ColumnBudget, MAX_BATCH_TOKENS, Oversize};
use crate::range::check_in_range;

impl ColumnBudget {
    /// Checks the maximum.
    pub(super) fn check(&self) -> Result<()> {
        check_in_range(&format!("the budget for {:?}", self.column), self.max, 1..=MAX_BATCH_TOKENS)
    }

    /// Returns how much a record has of the column.
    pub(super) fn of<L: Lengths + ?Sized>(&self, lengths: &L, record: u64) -> Result<u64> {
        lengths.column_of(record, &self.column)?.ok_or_else(|| {
            let what = format!("the record index has no column {:?}, which the budget counts", self.column);
            Error::usage(what).help(
                "name one of its columns; each dataset needs it, and records that have nothing of it count 0",
            )
        })
    }

    pub(crate) fn does_not_apply(&self, why: &str) -> Error {
        Error::usage(format!("the budget for {:?} does not apply: {why}", self.column))
    }

    /// Returns an error about `over` records that exceed one of the budgets on their own. `first` is one of them.
    pub(super) fn exceeded<L: Lengths + ?Sized>(
        &self,
        lengths: &L,
        tokens: (&str, u64),
        over: u64,
        first: u64,
    ) -> Result<Error> {
        let (name, cap) = tokens;
        let key = lengths.key_of(first).map(|key| format!(" with the key {key:?}")).unwrap_or_default();
        let what = format!(
            "{over} of {} records exceed a budget: `{name}` allows {cap} tokens, and the budget for {:?} is {}; the \
             first{key} has {} tokens and {}",
            lengths.records(),
            self.column,
            self.max,
            lengths.length_of(first)?,
            self.of(lengths, first)?
        );
        Ok(Error::usage(what).at_row(first))
    }
}

/// Returns the share of each record of a micro-batch with two budgets, in tokens of the first; `None` with one budget.
///
/// With `cap` tokens and a maximum `max` of the column, a record of `length` tokens that has `count` of the column takes
/// max(length, ⌈count × cap ÷ max⌉). A batch of `n` records of at most `share` has n × share ≤ cap, so its records have at
/// most n × share × max ÷ cap ≤ max of the column.
///
/// # Errors
///
/// Fails if a record exceeds a budget and the policy forbids it, or an index cannot be read.
pub(super) fn shares<L: Lengths>(lengths: &L, options: &BatchOptions) -> Result<Option<LengthsInMemory>> {
    let (Some(budget), Some(cap)) = (&options.budget, options.cap()) else { return Ok(None) };
    let mut shares = Vec::new();
    let (mut over, mut first) = (0, None);
    for record in 0..lengths.records() {
        let (length, count) = (lengths.length_of(record)?, budget.of(lengths, record)?);
        let share = (u128::from(count) * u128::from(cap)).div_ceil(u128::from(budget.max.max(1)));
        let share = length.max(u64::try_from(share).unwrap_or(u64::MAX));
        if share > cap {
            over += 1;
            first.get_or_insert(record);
        }
        shares.push(share);
    }
    if let Some(first) = first
        && options.oversize == Oversize::Error
    {
        let name = match options.size {
            BatchSize::MaxTokensUnpadded(_) => "max_tokens_unpadded",
            _ => "max_tokens",
        };
        let policies = options.applicable_policies(false);
        let error = budget.exceeded(lengths, (name, cap), over, first)?;
        return Err(error.help(match policies.is_empty() {
            true => "raise the budget".to_owned(),
            false => format!("set `oversize` to {}, or raise the budget", policies.join(" or ")),
        }));
    }
    Ok(Some(LengthsInMemory::new(shares)))
}
