//! Steps between the conversion of items and the shards of a unit.

use super::outcome::Converted;
use crate::error::Result;

/// Where a stage puts its records: the next stage, or the shards.
pub(super) type Next<'a> = dyn FnMut(Converted) -> Result<()> + 'a;

/// A step that sees the records of one unit in their order. It may hold records back, put them in another order, or make
/// other records of them. What it gives on depends on these records alone.
pub(super) trait Stage: Send {
    /// Takes a record, and gives on those that are ready.
    fn push(&mut self, converted: Converted, next: &mut Next<'_>) -> Result<()>;

    /// Gives on what was held back, after the last record.
    fn finish(&mut self, next: &mut Next<'_>) -> Result<()>;

    /// Counts for the manifest, after [`Stage::finish`].
    fn notes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The stages of a unit, one after another; usually none.
#[derive(Default)]
pub(super) struct Stages(Vec<Box<dyn Stage>>);

impl Stages {
    /// With another stage at the end, if there is one.
    pub(super) fn and(mut self, stage: Option<impl Stage + 'static>) -> Self {
        self.0.extend(stage.map(|stage| Box::new(stage) as Box<dyn Stage>));
        self
    }

    /// Lets a record pass.
    pub(super) fn push(&mut self, converted: Converted, out: &mut Next<'_>) -> Result<()> {
        pass(&mut self.0, converted, out)
    }

    /// Lets all that was held back pass.
    pub(super) fn finish(&mut self, out: &mut Next<'_>) -> Result<()> {
        let mut left = &mut self.0[..];
        while let Some((stage, later)) = left.split_first_mut() {
            stage.finish(&mut |converted| pass(later, converted, out))?;
            left = later;
        }
        Ok(())
    }

    /// The counts of all stages.
    pub(super) fn notes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().flat_map(|stage| stage.notes())
    }
}

fn pass(stages: &mut [Box<dyn Stage>], converted: Converted, out: &mut Next<'_>) -> Result<()> {
    match stages.split_first_mut() {
        None => out(converted),
        Some((stage, later)) => stage.push(converted, &mut |converted| pass(later, converted, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Record, Value};

    /// Holds back a number of records.
    struct Delay(usize, Vec<Converted>);

    impl Stage for Delay {
        fn push(&mut self, converted: Converted, next: &mut Next<'_>) -> Result<()> {
            self.1.push(converted);
            if self.1.len() > self.0 { next(self.1.remove(0)) } else { Ok(()) }
        }

        fn finish(&mut self, next: &mut Next<'_>) -> Result<()> {
            self.1.drain(..).try_for_each(next)
        }

        fn notes(&self) -> Vec<(&'static str, u64)> {
            vec![("delay", self.0 as u64)]
        }
    }

    #[test]
    fn what_a_stage_gives_on_at_the_end_passes_the_later_ones() {
        for delays in [&[][..], &[0], &[3], &[2, 5], &[5, 2, 1]] {
            let mut stages = Stages::default();
            for &delay in delays {
                stages = stages.and(Some(Delay(delay, Vec::new())));
            }
            let mut seen = Vec::new();
            let mut out = |converted: Converted| {
                seen.push(converted.length);
                Ok(())
            };
            for length in 0..10 {
                let record = Record { values: vec![Value::UInt(length)] };
                stages.push(Converted::new(0, record, length), &mut out).unwrap();
            }
            stages.finish(&mut out).unwrap();
            assert_eq!(seen, (0..10).collect::<Vec<_>>(), "{delays:?}");
            assert_eq!(stages.notes().count(), delays.len());
        }
    }
}
