//! Arrow files and streams, which are read from their start.

use super::batches::{BatchSection, BatchSource, check_type};
use super::source::{ExaminedFile, FilePlan, SectionFile, SectionReader, TextSource, wanted_columns};
use crate::error::Result;
use crate::source::io::broken::Broken;
use crate::source::io::encoding::TextEncoding;
use crate::source::io::stream::Stream;
use crate::source::table::NextRows;
use crate::source::table::arrow::Batches;

/// An Arrow file or stream.
pub(super) struct ArrowFile;

impl TextSource for ArrowFile {
    fn plan(&self, file: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        let stream = file.file.stream_start(file.sources, file.recipe.follow_symlinks, None)?;
        let columns = file.columns(Batches::open(stream)?.schema())?;
        Ok(FilePlan { columns: Some(columns), ..FilePlan::default() })
    }

    fn open<'a>(&'static self, mut section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        let mut batches = Batches::open(section.stream(self)?)?;
        let (columns, types) = wanted_columns(section.context.recipe).columns(batches.schema())?;
        for (field, ty) in section.context.fields.iter().zip(types) {
            check_type(&field.name, ty, field.ty)?;
        }
        let (roots, columns) = columns.alone();
        batches.select(roots);
        Ok(Box::new(BatchSection::new(batches, columns, section.task_bytes)))
    }

    fn may_hold_ids(&self) -> bool {
        true
    }

    fn decoded(&self, stream: Stream, _: Option<TextEncoding>) -> Stream {
        stream
    }

    fn has_encoding(&self) -> bool {
        false
    }
}

impl BatchSource for Batches {
    fn read(&mut self) -> Result<Option<NextRows>> {
        Self::read(self)
    }

    fn raw_bytes(&self) -> u64 {
        Self::raw_bytes(self)
    }

    fn check_unchanged(&self) -> Result<()> {
        Self::check_unchanged(self)
    }
}
