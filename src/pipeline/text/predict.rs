//! Prediction of a run, from a sample of documents that is converted in memory.
//!
//! Files of the same kind (format and compression) form a stratum; files that are one document each are counted, not
//! estimated. The sample of a stratum consists of chunks, in hash order: byte ranges of line-based files, row groups of
//! Parquet files, and other files as a whole, but only their first blocks are read. So the sample is the same in every
//! run with one seed, and a larger sample contains every smaller one.

use std::sync::Arc;
use std::time::Instant;

use dsconvert_writer::stop::Stop;

use super::conversion::{TextConversion, TextJob};
use super::feed::TextTask;
use super::plan::{FileSection, TextFile};
use super::sources::source::{Extent, SectionReader};
use super::sources::source_of;
use crate::error::Result;
use crate::pipeline::predict::{
    Predicted, Prediction, SampleRun, SampleSize, SampleTask, Stratum, StratumUnit, UnitPart, total_length,
    unit_parts,
};
use crate::source::io::broken::Broken;
use crate::source::io::encoding::{MARK_BYTES, is_marked};
use crate::source::items::text::kind::FileKind;
use crate::source::list::source_file::SourceFile;

/// Bytes of a chunk in a line-based file. A chunk holds few documents, so that a sample has many chunks.
const CHUNK_BYTES: u64 = 16 << 10;
/// Minimum size of a sample, so that it fills several pages of each column and has enough chunks to show their spread.
const MIN_BYTES: f64 = (1 << 20) as f64;
/// Number of blocks read from all whole-file sections of a stratum together.
const BLOCKS: u64 = 16;
/// Minimum number of blocks read from each of these sections.
const MIN_BLOCKS: u64 = 4;

/// The sections of the files of one kind, which form a stratum.
struct SectionGroup {
    kind: FileKind,
    sections: Vec<usize>,
    /// Cumulative number of chunks up to and including each section.
    ends: Vec<u64>,
    /// Sum of [`TextJob::size`].
    size: SampleSize,
    source_bytes: u64,
}

impl Predicted for TextConversion {
    fn predict(job: &TextJob, items: u64, sample: SampleRun<'_, Self>, stop: &Stop) -> Result<Prediction> {
        job.prediction(items, sample, stop)
    }
}

impl TextJob {
    /// See [`Predicted::predict`].
    fn prediction(
        &self,
        items: u64,
        sampled: SampleRun<'_, TextConversion>,
        stop: &Stop,
    ) -> Result<Prediction> {
        let full_row = self.conversion.recipe.shape().pack.map(|(tokens, _)| u64::from(tokens));
        let mut sampled = sampled.packing(full_row);
        let groups = self.groups();
        let source_bytes: u64 = groups.iter().map(|group| group.source_bytes).sum();
        let mut strata = Vec::new();
        for group in &groups {
            let share = group.source_bytes as f64 / source_bytes.max(1) as f64;
            let wanted = (items as f64 * share).ceil() as u64;
            // A file without text is a document, too: a reject.
            let unit = if self.are_documents(group) { StratumUnit::Items } else { StratumUnit::Bytes };
            let mut stratum = sampled.stratum(unit, group.size)?;
            let chunks = group.ends.last().copied().unwrap_or(0);
            let least = (wanted, MIN_BYTES * share);
            stratum.convert_chunks(chunks, least, |chunk| self.tasks(group, chunk), stop)?;
            strata.push(stratum.finish()?);
        }
        let strata: Vec<&Stratum> = strata.iter().collect();
        let mut prediction = sampled.prediction(&strata, &self.unit_parts(&groups, &strata));
        prediction.tokens = Some(total_length(&strata));
        Ok(prediction)
    }

    /// Groups the sections by the kind of their file.
    fn groups(&self) -> Vec<SectionGroup> {
        let mut groups: Vec<SectionGroup> = Vec::new();
        for (ordinal, section) in self.conversion.sections.iter().enumerate() {
            let kind = self.conversion.details[section.file].kind;
            let at = groups.iter().position(|group| group.kind == kind).unwrap_or_else(|| {
                groups.push(SectionGroup {
                    kind,
                    sections: Vec::new(),
                    ends: Vec::new(),
                    size: SampleSize::default(),
                    source_bytes: 0,
                });
                groups.len() - 1
            });
            let group = &mut groups[at];
            group.sections.push(ordinal);
            group.ends.push(group.ends.last().copied().unwrap_or(0) + chunks(section));
            group.size = group.size.plus(self.size(section));
            group.source_bytes += section.source_bytes;
        }
        groups
    }

    /// Returns whether the files of a group are one document each.
    fn are_documents(&self, group: &SectionGroup) -> bool {
        group
            .sections
            .first()
            .is_some_and(|&first| self.conversion.is_document(self.conversion.detail_of(first)))
    }

    /// Returns the size of a section in its stratum: bytes of the file or, for Parquet, decoded bytes of the columns. A
    /// document is counted as one, however long it is.
    fn size(&self, section: &FileSection) -> SampleSize {
        let detail = &self.conversion.details[section.file];
        let amount = match section.extent {
            Extent::Groups(_) => section.weight as f64,
            _ => section.source_bytes as f64,
        };
        let places = if self.conversion.is_document(detail) { 1.0 } else { amount };
        SampleSize { amount, places }
    }

    /// Returns the tasks of a chunk.
    fn tasks(&self, group: &SectionGroup, chunk: u64) -> Result<Vec<SampleTask<TextTask>>> {
        let at = group.ends.partition_point(|&end| end <= chunk);
        let ordinal = group.sections[at];
        let section = &self.conversion.sections[ordinal];
        let number = chunk - at.checked_sub(1).map_or(0, |before| group.ends[before]);
        let started = Instant::now();
        let file = &Arc::new(self.file(section.file)?);
        match &section.extent {
            Extent::Lines(bytes) => {
                let start = bytes.start + number * CHUNK_BYTES;
                let range = start..(start + CHUNK_BYTES).min(bytes.end);
                let places = (range.end - range.start) as f64;
                if is_marked(&self.planned(file).start(MARK_BYTES as u64)?) {
                    // It is read as a whole, by its first section.
                    return match range.start {
                        0 => self.first_blocks(ordinal, section, file, BLOCKS),
                        _ => Ok(Vec::new()),
                    };
                }
                let mut reader =
                    self.reader(&FileSection { extent: Extent::Lines(range), ..section.clone() }, file)?;
                let (mut tasks, mut amount) = (Vec::new(), 0.0);
                while let Some(block) = reader.next()? {
                    amount += block.source_bytes as f64;
                    tasks.push(TextTask::of(block, ordinal, file));
                }
                let size = SampleSize { amount, places };
                Ok(vec![SampleTask { size, seconds: started.elapsed().as_secs_f64(), tasks }])
            }
            Extent::Groups(groups) => self.row_group(ordinal, section, file, groups.start + number as usize),
            Extent::Whole => {
                let blocks = MIN_BLOCKS.max(BLOCKS / group.sections.len().max(1) as u64);
                self.first_blocks(ordinal, section, file, blocks)
            }
        }
    }

    /// Returns a task with the first rows of a row group.
    fn row_group(
        &self,
        ordinal: usize,
        section: &FileSection,
        file: &Arc<SourceFile>,
        group: usize,
    ) -> Result<Vec<SampleTask<TextTask>>> {
        let started = Instant::now();
        let TextFile { kind, columns, .. } = &self.conversion.details[section.file];
        let sizes = match source_of(kind.format).weigh(&self.planned(file), columns.as_ref(), group) {
            Ok(sizes) => sizes,
            Err(Broken::Failed(error)) => return Err(error),
            Err(Broken::Damaged(_)) => None,
        };
        let (rows, bytes) = sizes.unwrap_or((0, section.weight));
        let mut reader =
            self.reader(&FileSection { extent: Extent::Groups(group..group + 1), ..section.clone() }, file)?;
        let Some(block) = reader.next()? else { return Ok(Vec::new()) };
        let size = match block.items.rows() {
            Some(taken) if rows > 0 => bytes as f64 * taken as f64 / rows as f64,
            _ => bytes as f64,
        };
        let size = SampleSize::of(size);
        let seconds = started.elapsed().as_secs_f64();
        Ok(vec![SampleTask { size, seconds, tasks: vec![TextTask::of(block, ordinal, file)] }])
    }

    /// Returns the first `limit` blocks of a file that is read from its start. Blocks without source bytes belong to
    /// the previous block: they are further rows of the same record batch.
    fn first_blocks(
        &self,
        ordinal: usize,
        section: &FileSection,
        file: &Arc<SourceFile>,
        limit: u64,
    ) -> Result<Vec<SampleTask<TextTask>>> {
        let mut reader = self.reader(section, file)?;
        let mut tasks: Vec<SampleTask<TextTask>> = Vec::new();
        loop {
            let started = Instant::now();
            let Some(block) = reader.next()? else { return Ok(tasks) };
            let is_document = self.conversion.is_document(&self.conversion.details[section.file]);
            let amount = block.source_bytes as f64;
            let size = SampleSize { amount, places: if is_document { 1.0 } else { amount } };
            let seconds = started.elapsed().as_secs_f64();
            let count = tasks.len() as u64;
            match tasks.last_mut().filter(|_| block.source_bytes == 0) {
                Some(last) => {
                    last.seconds += seconds;
                    last.tasks.push(TextTask::of(block, ordinal, file));
                }
                None if count == limit => return Ok(tasks),
                None => {
                    tasks.push(SampleTask { size, seconds, tasks: vec![TextTask::of(block, ordinal, file)] })
                }
            }
        }
    }

    fn reader(&self, section: &FileSection, file: &Arc<SourceFile>) -> Result<Box<dyn SectionReader + '_>> {
        self.open_section(section, file, None)
    }

    /// Returns the expected records of all splits of all units.
    fn unit_parts(&self, groups: &[SectionGroup], strata: &[&Stratum]) -> Vec<UnitPart> {
        let sections = &self.conversion.sections;
        let mut stratum_of = vec![0; sections.len()];
        for (stratum, group) in groups.iter().enumerate() {
            group.sections.iter().for_each(|&section| stratum_of[section] = stratum);
        }
        let splits: Vec<_> = self
            .files
            .range(0..self.conversion.details.len())
            .map(|file| self.split_of(&file).of_file())
            .collect();
        let piece = |ordinal: usize| {
            let section = &sections[ordinal];
            (stratum_of[ordinal], self.size(section), splits[section.file])
        };
        unit_parts(&self.units, self.header.splits.len(), strata, |unit| unit.map(piece))
    }
}

/// Returns the number of chunks in a section.
fn chunks(section: &FileSection) -> u64 {
    match &section.extent {
        Extent::Whole => 1,
        Extent::Lines(bytes) => (bytes.end - bytes.start).div_ceil(CHUNK_BYTES),
        Extent::Groups(groups) => groups.len() as u64,
    }
}

#[cfg(test)]
mod tests;
