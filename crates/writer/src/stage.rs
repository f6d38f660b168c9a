//! Stages between the conversion of items and the shards of a unit.

use super::outcome::ConvertedRecord;
use crate::error::Result;

/// Receiver of the records of a stage: the next stage, or the shards.
pub type NextStage<'a> = dyn FnMut(ConvertedRecord) -> Result<()> + 'a;

/// Result of a call of [`Stage::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// All records were passed on.
    Yes,
    /// Some records were passed on, and others are left. A run can stop between the calls.
    NotYet,
}

/// A stage that processes the records of one unit in order. It may hold records back, reorder them, or combine them
/// into other records. Its output depends only on these records.
pub trait Stage: Send {
    /// Takes a record, and passes on the records that are ready.
    fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()>;

    /// Passes on records that were held back, after the last record. Called until all of them were passed on.
    fn finish(&mut self, next: &mut NextStage<'_>) -> Result<Finished>;

    /// Returns counts for the manifest, after [`Stage::finish`].
    fn notes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The stages of a unit, one after another; usually none.
#[derive(Default)]
pub struct Stages {
    stages: Vec<Box<dyn Stage>>,
    /// Number of stages, from the first one, that have passed on all records.
    finished: usize,
}

impl Stages {
    /// Appends `stage`, if there is one.
    pub fn and(mut self, stage: Option<impl Stage + 'static>) -> Self {
        self.stages.extend(stage.map(|stage| Box::new(stage) as Box<dyn Stage>));
        self
    }

    /// Passes a record through the stages.
    pub fn push(&mut self, converted: ConvertedRecord, out: &mut NextStage<'_>) -> Result<()> {
        pass(&mut self.stages, converted, out)
    }

    /// Passes on records that were held back, as [`Stage::finish`] does.
    pub fn finish(&mut self, out: &mut NextStage<'_>) -> Result<Finished> {
        while let Some((stage, later)) = self.stages[self.finished..].split_first_mut() {
            if stage.finish(&mut |converted| pass(later, converted, out))? == Finished::NotYet {
                return Ok(Finished::NotYet);
            }
            self.finished += 1;
        }
        Ok(Finished::Yes)
    }

    /// Returns the counts of all stages.
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.stages.iter().flat_map(|stage| stage.notes())
    }
}

fn pass(stages: &mut [Box<dyn Stage>], converted: ConvertedRecord, out: &mut NextStage<'_>) -> Result<()> {
    match stages.split_first_mut() {
        None => out(converted),
        Some((stage, later)) => stage.push(converted, &mut |converted| pass(later, converted, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Record, Value};

    /// Stage that delays records by a given number of records.
    struct Delay(usize, Vec<ConvertedRecord>);

    impl Stage for Delay {
        fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()> {
            self.1.push(converted);
            if self.1.len() > self.0 { next(self.1.remove(0)) } else { Ok(()) }
        }

        // One record at a time.
        fn finish(&mut self, next: &mut NextStage<'_>) -> Result<Finished> {
            if self.1.is_empty() {
                return Ok(Finished::Yes);
            }
            next(self.1.remove(0))?;
            Ok(Finished::NotYet)
        }

        fn notes(&self) -> Vec<(&'static str, u64)> {
            vec![("delay", self.0 as u64)]
        }
    }

    #[test]
    fn records_held_back_pass_through_the_later_stages() {
        for delays in [&[][..], &[0], &[3], &[2, 5], &[5, 2, 1]] {
            let mut stages = Stages::default();
            for &delay in delays {
                stages = stages.and(Some(Delay(delay, Vec::new())));
            }
            let mut seen = Vec::new();
            let mut out = |converted: ConvertedRecord| {
                seen.push(converted.length);
                Ok(())
            };
            for length in 0..10 {
                let record = Record { values: vec![Value::UInt(length)] };
                stages.push(ConvertedRecord::new(0, record, length), &mut out).unwrap();
            }
            while stages.finish(&mut out).unwrap() == Finished::NotYet {}
            assert_eq!(seen, (0..10).collect::<Vec<_>>(), "{delays:?}");
            assert_eq!(stages.notes().count(), delays.len());
        }
    }
}
