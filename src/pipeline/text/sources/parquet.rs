//! Parquet files, which are divided between row groups.

use super::batches::{BatchSection, BatchSource};
use super::source::{
    Division, ExaminedFile, Extent, FilePlan, SectionFile, SectionReader, SingleBlock, TextSource,
};
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::encoding::TextEncoding;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::source::items::text::columns::TextColumns;
use crate::source::table::NextRows;
use crate::source::table::parquet::{Groups, ParquetFile};

/// A Parquet file.
pub(super) struct ParquetTable;

impl TextSource for ParquetTable {
    fn plan(&self, file: &ExaminedFile<'_>) -> Result<FilePlan, Broken> {
        if file.file.member.is_some() {
            let message = "Parquet files in zip archives are not supported: unpack the archive";
            return Err(Reject::new(RejectCode::Unsupported, message).into());
        }
        let table = ParquetFile::open(file.planned)?;
        let found = file.columns(table.schema())?;
        let groups = table.groups(&found.columns.alone().0);
        let file_bytes = u128::from(file.file.bytes);
        let (mut start, mut bytes, mut ranges) = (0, 0u64, Vec::new());
        for end in 1..=groups.len() {
            bytes = bytes.saturating_add(groups[end - 1].1);
            let next = groups.get(end).map_or(u64::MAX, |group| group.1);
            if bytes.saturating_add(next) > file.section_bytes {
                let share = |group: usize| file_bytes * group as u128 / groups.len() as u128;
                ranges.push((start..end, bytes, (share(end) - share(start)) as u64));
                (start, bytes) = (end, 0);
            }
        }
        Ok(FilePlan { columns: Some(found), division: Division::Groups(ranges), beside: None })
    }

    fn open<'a>(&'static self, section: SectionFile<'a>) -> Result<Box<dyn SectionReader + 'a>, Broken> {
        let table = ParquetFile::open(&section.planned)?;
        let (Extent::Groups(groups), Some(columns)) = (section.extent, section.columns) else {
            return Ok(SingleBlock::none());
        };
        let (roots, columns) = columns.alone();
        let max_bytes = section.context.recipe.max_document_bytes;
        let groups = Groups::new(table, roots, groups, max_bytes).limited_by("max_document_bytes");
        let rows = GroupRows { groups, source_bytes: section.source_bytes };
        Ok(Box::new(BatchSection::new(rows, columns, section.task_bytes)))
    }

    fn may_hold_ids(&self) -> bool {
        true
    }

    fn weigh(
        &self,
        file: &PlannedFile,
        columns: Option<&TextColumns>,
        group: usize,
    ) -> Result<Option<(u64, u64)>, Broken> {
        let Some(columns) = columns else { return Ok(None) };
        Ok(ParquetFile::open(file)?.groups(&columns.alone().0).get(group).copied())
    }

    fn decoded(&self, stream: Stream, _: Option<TextEncoding>) -> Stream {
        stream
    }

    fn has_encoding(&self) -> bool {
        false
    }

    fn check_stdin(&self) -> Result<()> {
        let message =
            "a Parquet file is read from its end, but standard input can only be read from its start";
        Err(Error::usage(message).help("write it to a file first"))
    }
}

/// The rows of row groups.
struct GroupRows {
    groups: Groups,
    /// Bytes of the file attributed to them.
    source_bytes: u64,
}

impl BatchSource for GroupRows {
    fn read(&mut self) -> Result<Option<NextRows>> {
        self.groups.read()
    }

    fn raw_bytes(&self) -> u64 {
        self.source_bytes
    }

    fn check_unchanged(&self) -> Result<()> {
        self.groups.check_unchanged()
    }
}
