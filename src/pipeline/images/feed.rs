//! The tasks of a unit: groups of files, or items of a container.

use std::ops::Range;
use std::sync::Arc;

use super::conversion::ImagesJob;
use super::sources::files::{DuplicateFiles, FileFeed, FilesTask};
use super::sources::source::{ContainerFile, SourceFeed, SourceTask};
use crate::error::Result;
use crate::pipeline::job::Feed;
use crate::source::list::source_file::SourceFile;

/// A task of a conversion of images.
pub enum ImageTask {
    Files(FilesTask),
    Container(Box<dyn SourceTask>),
}

/// The tasks of a unit, which consists of one container or of several files.
enum UnitFeed<'a> {
    Files(Box<FileFeed<'a>>),
    Container(SourceFeed),
}

impl Feed<ImageTask> for UnitFeed<'_> {
    fn next_bytes(&self) -> u64 {
        match self {
            Self::Files(files) => files.next_bytes(),
            Self::Container(container) => container.next_bytes(),
        }
    }

    fn next(&mut self) -> Result<Option<(ImageTask, u64)>> {
        Ok(match self {
            Self::Files(files) => files.next()?.map(|(task, held)| (ImageTask::Files(task), held)),
            Self::Container(container) => {
                container.next()?.map(|(task, held)| (ImageTask::Container(task), held))
            }
        })
    }
}

impl ImagesJob {
    /// Returns the tasks of a unit.
    pub(super) fn feed<'a>(
        &'a self,
        files: Range<usize>,
        duplicates: Option<&'a DuplicateFiles>,
    ) -> Result<Box<dyn Feed<ImageTask> + 'a>> {
        let first = self.file(files.start)?;
        Ok(Box::new(match self.conversion.containers.kind() {
            Some(kind) if self.is_container(&first) => UnitFeed::Container(kind.feed(self.container(first))?),
            _ => UnitFeed::Files(Box::new(FileFeed::new(self, files, duplicates))),
        }))
    }

    /// Returns `file`, which is a container, as it is to be read.
    pub(super) fn container(&self, file: SourceFile) -> ContainerFile<'_> {
        let (planned, recipe) = (self.planned(&file), &self.conversion.recipe);
        ContainerFile { file: Arc::new(file), planned, recipe }
    }
}
