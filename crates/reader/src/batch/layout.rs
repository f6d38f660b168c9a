//! Assigns micro-batches to ranks.

use dsconvert_dataset::error::{Error, Result};

use super::options::MAX_MICRO_BATCHES;
use crate::range::check_in_range;

/// A data-parallel rank and the number of ranks. It may change at any step of an epoch: the records of a step do not
/// depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rank: u64,
    world_size: u64,
}

impl Layout {
    /// The only rank.
    pub const SINGLE: Self = Self { rank: 0, world_size: 1 };

    /// Creates the layout of rank `rank` of `world_size`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when there is no such rank.
    pub fn new(rank: u64, world_size: u64) -> Result<Self> {
        check_in_range("world_size", world_size, 1..=MAX_MICRO_BATCHES)?;
        if rank >= world_size {
            return Err(Error::usage(format!("there is no rank {rank} in a world of {world_size}"))
                .help("ranks are counted from 0"));
        }
        Ok(Self { rank, world_size })
    }

    /// Creates the layout of process `rank` of `world_size`, when each group of `replication` adjacent processes forms
    /// one model replica (tensor or pipeline parallelism) and must see identical batches.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when there is no such rank or `replication` does not
    /// divide `world_size`.
    pub fn replicated(rank: u64, world_size: u64, replication: u64) -> Result<Self> {
        let process = Self::new(rank, world_size)?;
        check_in_range("replication", replication, 1..=MAX_MICRO_BATCHES)?;
        if !world_size.is_multiple_of(replication) {
            return Err(Error::usage(format!(
                "world_size {world_size} is not a multiple of replication {replication}"
            )));
        }
        Self::new(process.rank / replication, world_size / replication)
    }

    /// Returns the rank.
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(self) -> u64 {
        self.world_size
    }

    /// Returns the micro-batches of this rank in a step of `micro_batches`, in order: every `world_size`-th, starting
    /// with its rank. Micro-batches that ranks process at the same time are therefore adjacent in the step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when the ranks would not get the same number, or the
    /// number is out of range.
    pub fn share(self, micro_batches: u64) -> Result<impl Iterator<Item = u64> + Clone + use<>> {
        let Self { rank, world_size } = self;
        // Callers collect the result, so the number is checked before any plan checks it.
        check_micro_batches(micro_batches)?;
        if !micro_batches.is_multiple_of(world_size) {
            let what =
                format!("{micro_batches} micro-batches per step cannot be shared by {world_size} ranks");
            return Err(Error::usage(what).help(
                "the number of micro-batches is fixed at the first start: choose a world size that divides it",
            ));
        }
        Ok((0..micro_batches / world_size).map(move |turn| turn * world_size + rank))
    }
}

/// Checks the number of micro-batches of a global step.
pub(super) fn check_micro_batches(micro_batches: u64) -> Result<()> {
    check_in_range("the number of micro-batches per step", micro_batches, 1..=MAX_MICRO_BATCHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_micro_batches() {
        let share = |rank, world| Layout::new(rank, world).unwrap().share(6).unwrap().collect::<Vec<_>>();
        assert_eq!(share(0, 2), [0, 2, 4]);
        assert_eq!(share(1, 2), [1, 3, 5]);
        assert_eq!(share(5, 6), [5]);
        assert!(Layout::new(0, 4).unwrap().share(6).is_err());
        for micro_batches in [0, MAX_MICRO_BATCHES + 1, 1 << 45, 1 << 62] {
            let error = Layout::SINGLE.share(micro_batches).map(drop).unwrap_err();
            assert!(error.to_string().contains("not between 1 and 1048576"), "{error}");
        }
    }

    #[test]
    fn invalid_layouts_are_refused() {
        assert!(Layout::new(2, 2).unwrap_err().to_string().contains("no rank 2"));
        assert!(Layout::new(0, 0).is_err());
        assert!(Layout::replicated(0, 6, 4).is_err());
        assert!(Layout::replicated(0, 6, 0).is_err());
    }

    #[test]
    fn processes_of_one_model_replica_share_a_rank() {
        let ranks: Vec<u64> = (0..6).map(|r| Layout::replicated(r, 6, 2).unwrap().rank()).collect();
        assert_eq!(ranks, [0, 0, 1, 1, 2, 2]);
        assert_eq!(Layout::replicated(5, 6, 2).unwrap().world_size(), 3);
    }
}
