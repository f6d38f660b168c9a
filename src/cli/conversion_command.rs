//! Execution of `images`, `text` and `plan`: plans the conversion, then previews, stores or runs it.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::common::{COMMITTED, RunArgs};
use super::flags::{shown, with_flags};
use super::progress::with_progress;
use super::{Ending, lengths, print, summary};
use crate::error::{Error, Result};
use crate::options::{RunOptions, SourceSpec};
use crate::panics;
use crate::pipeline::{
    Conversion, Job, PlanSummary, Predicted, Stop, check_excluded, check_inputs, check_output,
};
use crate::reader::batch::BatchSize;
use crate::report::RunReport;
use crate::storage::ObjectUrl;
use crate::testing::panic_point;

/// A conversion whose arguments are parsed, and whose sources are not listed yet.
pub(super) struct ConversionCommand<'a> {
    pub(super) out: Option<&'a Path>,
    pub(super) run: &'a RunArgs,
    pub(super) stop: &'a Stop,
    /// The sources that are searched for files. They must not overlap with the output; of others, only the files
    /// themselves must not be in it.
    pub(super) searched: Vec<SourceSpec>,
    /// Files that options name for the run to read: option and path.
    pub(super) inputs: Vec<(&'static str, PathBuf)>,
    /// Datasets whose items are left out.
    pub(super) excluded: Vec<PathBuf>,
    /// Batches whose padding is shown after the run, if records have lengths.
    pub(super) batches: Option<BatchSize>,
}

impl ConversionCommand<'_> {
    /// Plans with `plan`, then previews, stores or runs the job.
    pub(super) fn exec<C: Predicted>(self, plan: impl FnOnce() -> Result<Job<C>>) -> Result<Ending> {
        let options = self.run.options(self.out)?;
        self.run.check_report(self.out)?;
        if !self.run.dry_run {
            check_output(&options, &self.searched)?;
            self.check_inputs(&options)?;
        }
        panic_point("plan");
        let started = Instant::now();
        // Never dropped: the process ends soon, and a tokenizer holds hundreds of thousands of strings.
        let job = ManuallyDrop::new(plan()?);
        let plan = job.summary();
        let planning = started.elapsed();
        if !self.run.verbosity.is_quiet() {
            summary::warnings(&plan.warnings).into_iter().for_each(print::warning);
        }
        if self.run.dry_run {
            self.preview(&*job, &plan, &options)
        } else if self.run.plan_only {
            self.store(&*job, &plan, &options)
        } else {
            self.convert(&*job, &plan, &options, planning)
        }
    }

    /// Refuses files and datasets for the run to read that the run would replace.
    fn check_inputs(&self, options: &RunOptions) -> Result<()> {
        check_inputs(options, &self.inputs)?;
        check_excluded(options, &self.excluded)
    }

    /// Prints what would be done and, as a warning, why it would be refused. With `--sample`, prints a prediction.
    fn preview<C: Predicted>(
        &self,
        job: &Job<C>,
        plan: &PlanSummary,
        options: &RunOptions,
    ) -> Result<Ending> {
        print::out(&summary::plan(plan))?;
        if let Some(buckets) = job.buckets()? {
            print::out(&summary::buckets(&buckets))?;
        }
        if let Err(error) = job.check_items() {
            warn_of_refusal(&error);
        }
        if self.out.is_some()
            && let Err(error) = self.check_inputs(options).and_then(|()| job.check_start(options))
        {
            warn_of_refusal(&error);
        }
        if let Some(sample) = self.run.sample {
            let prediction = job.predict(sample, options, self.stop)?;
            print::out(&summary::prediction(&prediction, options.threads, plan))?;
        }
        Ok(Ending::Success)
    }

    /// Stores the plan for other processes.
    fn store<C: Conversion>(&self, job: &Job<C>, plan: &PlanSummary, options: &RunOptions) -> Result<Ending> {
        let level = self.run.verbosity.level();
        let units =
            with_progress(plan.items, level, self.stop, |progress, stop| job.store(options, progress, stop))?;
        if !self.run.verbosity.is_quiet() {
            for option in self.run.not_planned() {
                print::warning(format!("{option} is not part of a plan: give it to dsconvert merge"));
            }
            print::summary(&summary::stored(units, plan, &options.out), "the plan is stored");
        }
        Ok(Ending::Success)
    }

    /// Converts everything and commits the dataset. The `planning` took that long.
    fn convert<C: Conversion>(
        &self,
        job: &Job<C>,
        plan: &PlanSummary,
        options: &RunOptions,
        planning: Duration,
    ) -> Result<Ending> {
        let started = Instant::now();
        let level = self.run.verbosity.level();
        let (outcome, report) = with_progress(plan.items, level, self.stop, |progress, stop| {
            let outcome = job.run(options, progress, stop)?;
            let report = RunReport::new(&outcome, options, progress, planning, planning + started.elapsed());
            Ok((outcome, report))
        })?;
        self.run.report.write(&report, COMMITTED);
        if self.run.report.shows_summary(&self.run.verbosity) {
            let mut text = summary::report(&outcome, plan, &options.out, started.elapsed());
            text.push_str(&summary::times(&report));
            // The lengths come from the indexes, which are not kept locally once they are uploaded.
            let batches = self.batches.filter(|_| !ObjectUrl::is_url(&options.out));
            let lengths =
                || batches.map_or(Ok(String::new()), |size| lengths::text(&outcome, &options.out, size));
            match panics::caught(lengths) {
                Ok(Ok(lengths)) => text.push_str(&lengths),
                Ok(Err(error)) => print::warning(format!("the lengths cannot be shown: {}", shown(&error))),
                Err(panic) => print::error(&panic.into_error("summarizing the lengths")),
            }
            text.push_str(&summary::next_step(&options.out));
            summary::late_warnings(&outcome, &plan.warnings).into_iter().for_each(print::warning);
            print::summary(&text, COMMITTED);
        }
        let rejects = outcome.manifest.counts.rejected > 0;
        Ok(if self.run.strict && rejects { Ending::Rejects } else { Ending::Success })
    }
}

/// Prints a warning that the run which a dry run shows would be refused with `error`.
fn warn_of_refusal(error: &Error) {
    let tip = error.remedy().map(|tip| format!("; {}", with_flags(tip))).unwrap_or_default();
    print::warning(format!("the run would be refused: {}{tip}", shown(error)));
}
