//! Storing a planned conversion, and reading it in another process.

use std::path::Path;

use super::job::{Conversion, Job};
use super::job_file::{JOB_NAME, JobReader, JobWriter, OpenedJob};
use super::plan_summary::PlanSummary;
use crate::error::{Error, Result};
use crate::manifest::TOKENIZER_NAME;
use crate::storage::{ObjectUrl, hex, write_shared_file};

/// Stores `job` in the working directory, with the identity `plan`.
pub(super) fn store<C: Conversion>(job: &Job<C>, plan: &str, work: &Path) -> Result<()> {
    if let Some(json) = job.conversion.tokenizer_json() {
        write_shared_file(&work.join(TOKENIZER_NAME), json)?;
    }
    let mut header = job.header.clone();
    plan.clone_into(&mut header.plan);
    header.listing = header.plan_of(&job.files).listing();
    // Parts may run in another current directory.
    for source in header.sources.iter_mut().filter(|source| !ObjectUrl::is_url(&source.path)) {
        source.path =
            std::path::absolute(&source.path).map_err(|e| Error::io("resolve the path", &source.path, e))?;
    }
    header.exclude.make_absolute()?;
    let path = work.join(JOB_NAME);
    let mut file = JobWriter::create(path)?;
    file.line(&header)?;
    job.files.blocks().try_for_each(|block| file.line(&hex(&block)))?;
    file.line(&(&job.units, &job.named_splits))?;
    job.conversion.write(&mut file)?;
    file.finish()
}

/// Reads the rest of a stored job, after [`open`](super::job_file::open).
pub(super) fn read<C: Conversion>(opened: OpenedJob, file: &mut JobReader) -> Result<Job<C>> {
    let OpenedJob { header, files, tokenizer_json } = opened;
    let (units, named_splits) = file.line()?;
    let conversion = C::read(tokenizer_json, file)?;
    Ok(Job::new(header, files, units, named_splits, PlanSummary::default(), conversion))
}
