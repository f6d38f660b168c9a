//! Images in tar files. Each tar file is a unit, which its feed reads as a stream.

use std::sync::Arc;

use super::job::ImagesJob;
use super::task::{BYTES_HELD_PER_BYTE, ImageTask, TASK_BYTES, TarTask};
use crate::error::Result;
use crate::pipeline::job::Feed;
use crate::source::source_file::SourceFile;
use crate::source::webdataset::{NextSample, Samples};

/// Maximum number of samples per task.
const TASK_SAMPLES: usize = 8;

/// Feed of the samples of a tar file.
pub(super) struct TarFeed {
    file: Arc<SourceFile>,
    samples: Samples,
    /// Bytes of the tar file that are already in tasks.
    fed: u64,
}

impl TarFeed {
    pub(super) fn open(job: &ImagesJob, file: SourceFile) -> Result<Self> {
        let samples = Samples::open(&job.planned(&file))?;
        Ok(Self { file: Arc::new(file), samples, fed: 0 })
    }
}

impl Feed<ImageTask> for TarFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(ImageTask, u64)>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        while found.len() < TASK_SAMPLES && bytes < TASK_BYTES {
            let Some(next) = self.samples.read()? else { break };
            if let (_, NextSample::Sample(sample)) = &next {
                bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            }
            found.push(next);
        }
        let read = self.samples.raw_bytes().max(self.fed);
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        let (member, damaged) = (self.samples.take_member_start(), self.samples.ended_corrupt());
        let tar = TarTask { file: Arc::clone(&self.file), found, source_bytes, member, damaged };
        Ok((!tar.found.is_empty()).then_some((ImageTask::Tar(tar), bytes * BYTES_HELD_PER_BYTE)))
    }
}
