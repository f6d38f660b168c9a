//! Images that are files, read in groups.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use dsconvert_writer::outcome::{ItemOutcome, Outcomes};
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;

use super::source::{BYTES_HELD_PER_BYTE, ImageItem, TASK_BYTES};
use crate::error::Result;
use crate::options::is_remote;
use crate::pipeline::dedup::{DuplicateCandidate, duplicates};
use crate::pipeline::images::conversion::ImagesJob;
use crate::pipeline::images::convert::ImageWorker;
use crate::pipeline::images::sidecars::{self, FileField};
use crate::pipeline::job::{Feed, excluded};
use crate::printable::printable;
use crate::sample::{Reject, RejectCode, Value};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;
use crate::source::list::detail::Detail;
use crate::source::list::file_list::Iter;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::source::names::labels::unknown_class;
use crate::transform::image as transform;

/// Maximum size of an image file that is read, in bytes. Records have 32-bit offsets, and a larger file, possibly a
/// sparse one, could exhaust memory.
const MAX_FILE_BYTES: u64 = i32::MAX as u64;

/// Ordinals of the files that are left out as duplicates, each with the ordinal of the file that is kept.
pub(in crate::pipeline::images) type DuplicateFiles = BTreeMap<usize, usize>;

/// A task with whole files.
#[derive(Default)]
pub struct FilesTask {
    /// Ordinal of the first file.
    pub(in crate::pipeline::images) first: usize,
    pub(in crate::pipeline::images) files: Vec<SourceFile>,
    /// One per file, or empty: opened files in object storage, whose bytes are downloaded while other tasks are
    /// converted.
    pub(in crate::pipeline::images) opened: Vec<Option<OpenedFile>>,
    /// The duplicates among the files, each with the file that is kept.
    pub(in crate::pipeline::images) duplicates: DuplicateFiles,
}

/// Divides the listing into ranges of at most `max_files` files and about `max_bytes` bytes. The files of an item stay together. Files for which `alone`
/// returns true have their own range.
pub(in crate::pipeline::images) fn divide(
    files: impl Iterator<Item = impl Borrow<SourceFile>>,
    max_files: usize,
    max_bytes: u64,
    alone: impl Fn(&SourceFile) -> bool,
) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut end, mut bytes, mut was_alone) = (0, 0, 0, false);
    for file in files {
        let file = file.borrow();
        // The files of an item stay together.
        let may_end = file.of_field.is_none();
        let is_alone = may_end && alone(file);
        let is_full = is_alone || was_alone || end - start == max_files || bytes + file.bytes > max_bytes;
        if end > start && is_full && may_end {
            units.push(start..end);
            (start, bytes) = (end, 0);
        }
        (end, was_alone) = (end + 1, is_alone);
        bytes += file.bytes;
    }
    if start < end {
        units.push(start..end);
    }
    units
}

/// Maximum number of files per task.
const TASK_FILES: usize = 8;

/// Feed of a unit of files, in groups.
pub(in crate::pipeline::images) struct FileFeed<'a> {
    job: &'a ImagesJob,
    /// Ordinal of the next file, which is the first of the next task.
    next: usize,
    files: Iter<'a>,
    tasks: std::vec::IntoIter<PlannedTask>,
    duplicates: Option<&'a DuplicateFiles>,
}

impl<'a> FileFeed<'a> {
    pub(in crate::pipeline::images) fn new(
        job: &'a ImagesJob,
        files: Range<usize>,
        duplicates: Option<&'a DuplicateFiles>,
    ) -> Self {
        let tasks = divide(job.files.range(files.clone()), TASK_FILES, TASK_BYTES, |_| false);
        let mut sizes = job.files.range(files.clone()).map(|file| file.bytes);
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|task| PlannedTask {
                held: sizes.by_ref().take(task.len()).sum::<u64>() * BYTES_HELD_PER_BYTE,
                files: task.len(),
            })
            .collect();
        Self { job, next: files.start, files: job.files.range(files), tasks: tasks.into_iter(), duplicates }
    }
}

/// A task that is not yet created.
struct PlannedTask {
    /// Bytes that the task holds.
    held: u64,
    /// Number of files.
    files: usize,
}

impl Feed<FilesTask> for FileFeed<'_> {
    fn next_bytes(&self) -> u64 {
        self.tasks.as_slice().first().map_or(0, |task| task.held)
    }

    fn next(&mut self) -> Result<Option<(FilesTask, u64)>> {
        Ok(self.tasks.next().map(|task| {
            let files: Vec<_> = self.files.by_ref().take(task.files).collect();
            let first = self.next;
            self.next += files.len();
            let duplicates = self.duplicates.into_iter().flat_map(|found| found.range(first..self.next));
            let duplicates = duplicates.map(|(&file, &kept)| (file, kept)).collect();
            let opened = self.job.open_all_ahead(first, &files);
            (FilesTask { first, files, opened, duplicates }, task.held)
        }))
    }
}

impl ImagesJob {
    /// Finds the files that are equal to an earlier one.
    pub(in crate::pipeline::images) fn find_duplicates(
        &self,
        work: &Path,
        workers: &Workers,
        stop: &Stop,
    ) -> Result<DuplicateFiles> {
        // A file that will be rejected must not replace an equal one.
        let is_usable = |(ordinal, file): &(usize, SourceFile)| {
            let is_unknown = matches!(self.conversion.folders.label_of(file), Some((_, None)));
            !is_unknown && self.conversion.detail(*ordinal).is_none_or(|d| d.defect.is_none())
        };
        let candidate = |(ordinal, file): (usize, SourceFile)| DuplicateCandidate {
            planned: self.planned(&file),
            ordinal,
            must_begin_as_image: !self.is_item(&file, self.conversion.detail(ordinal)),
        };
        duplicates(self.items().filter(is_usable).map(candidate).collect(), work, workers, stop)
    }

    /// Converts the files of a task.
    pub(in crate::pipeline::images) fn convert_files(
        &self,
        task: FilesTask,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<()> {
        let FilesTask { first, files, opened, duplicates } = task;
        let opened = |at: usize| opened.get(at).and_then(Option::as_ref);
        let mut next = 0;
        while let Some(file) = files.get(next) {
            let at = next;
            next += 1;
            // The files of its fields follow.
            let more = files[next..].iter().take_while(|file| file.of_field.is_some()).count();
            next += more;
            out.source_bytes += files[at..next].iter().map(|file| file.bytes).sum::<u64>();
            let ordinal = first + at;
            let split = self.split_of_file(file);
            // Neither read nor looked at otherwise, even if it does not exist any more.
            if self.excludes_key(&file.origin) {
                let outcome = excluded(&file.origin, split, out);
                out.list.push(outcome);
                continue;
            }
            let detail = self.conversion.detail(ordinal);
            if let Some(defect) = detail.and_then(|d| d.defect.as_deref()) {
                out.list.push(rejected(file, split, defect.clone()));
                continue;
            }
            let is_item = self.is_item(file, detail);
            if !is_item && file.member.is_none() && file.bytes > MAX_FILE_BYTES {
                out.skip(SkippedTypes::type_of(&file.origin));
                continue;
            }
            let bytes = match self.read(file, opened(at), out) {
                Ok(bytes) => bytes,
                Err(Broken::Failed(error)) => return Err(error),
                Err(Broken::Damaged(reject)) => {
                    out.list.push(rejected(file, split, reject));
                    continue;
                }
            };
            if !is_item
                && !transform::has_signature(&bytes)
                && !transform::is_unreadable_photo(&bytes, &file.origin)
            {
                out.skip(SkippedTypes::type_of(&file.origin));
                continue;
            }
            if let Some(&first) = duplicates.get(&ordinal) {
                let (origin, of) = (file.origin.clone(), self.file(first)?.origin);
                out.list.push(ItemOutcome::Duplicate { split, origin, of });
                continue;
            }
            let mut contents = Vec::new();
            let mut damage = None;
            for (file, at) in files[at + 1..next].iter().zip(at + 1..) {
                match self.read(file, opened(at), out) {
                    Ok(bytes) => contents.push((file, bytes)),
                    Err(Broken::Failed(error)) => return Err(error),
                    Err(Broken::Damaged(reject)) => {
                        let message = format!("{:?}: {}", printable(&file.origin), reject.message);
                        damage.get_or_insert(Reject::new(reject.code, message));
                    }
                }
            }
            let outcome = match damage {
                Some(reject) => Err(reject),
                None => self.convert_file(file, detail, split, &bytes, &contents, worker, out),
            };
            out.list.push(outcome.unwrap_or_else(|reject| rejected(file, split, reject)));
        }
        Ok(())
    }

    /// Reads a file, which `opened` may already hold.
    fn read(
        &self,
        file: &SourceFile,
        opened: Option<&OpenedFile>,
        out: &mut Outcomes,
    ) -> Result<Bytes, Broken> {
        if file.member.is_none() && file.bytes > MAX_FILE_BYTES {
            let message =
                format!("the file has {} bytes, more than the limit of {MAX_FILE_BYTES}", file.bytes);
            return Err(Broken::Damaged(Reject::new(RejectCode::TooLarge, message)));
        }
        let started = Instant::now();
        let read = file.read_opened(&self.header.sources, self.header.follow_symlinks, opened);
        out.reading += started.elapsed();
        let bytes = Bytes::from(read?);
        out.add_content(&bytes);
        Ok(bytes)
    }

    /// Returns the outcome of a file, with the files of its fields and their `contents`.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one item")]
    fn convert_file(
        &self,
        file: &SourceFile,
        detail: Option<&Detail>,
        split: u16,
        bytes: &Bytes,
        contents: &[(&SourceFile, Bytes)],
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        let folder = self.conversion.folders.label_of(file);
        let label = match &folder {
            Some((class, None)) => return Err(unknown_class(class)),
            Some((_, Some(label))) => Value::Int(i64::from(*label)),
            None => detail.and_then(|d| d.label).map_or(Value::Null, |label| Value::Int(i64::from(label))),
        };
        let mut values = detail.map(|detail| detail.values.to_vec()).unwrap_or_default();
        values.resize(self.conversion.values, Value::Null);
        if let Some(repeats) = self.conversion.repeats {
            repeats.set(folder.as_ref().map(|(class, _)| class.as_str()), &mut values);
        }
        let mut further = vec![None; self.conversion.roles.fields.len()];
        for (file, bytes) in contents {
            let field = file.of_field.and_then(|field| self.conversion.file_fields.get(field as usize));
            let Some(FileField { ty, at }) = field else { continue };
            if ty.is_image_file() {
                further[*at] = Some(bytes.clone());
                continue;
            }
            values[*at] = sidecars::value(file, *ty, bytes)?;
            let is_blank = match &values[*at] {
                Value::Text(text) => text.as_str().trim_ascii().is_empty(),
                _ => true,
            };
            // Those without a byte are counted when the run is planned.
            if !bytes.is_empty() && is_blank {
                out.note("blank_sidecars");
            }
        }
        let boxes = detail.and_then(|detail| detail.boxes.clone());
        let item =
            ImageItem { origin: file.origin.clone(), bytes: bytes.clone(), label, values, further, boxes };
        self.convert_image(item, split, worker, out)
    }

    /// Requests the bytes of `files` in advance if the sources are in object storage. `first` is the ordinal of the
    /// first file.
    pub(in crate::pipeline::images) fn open_all_ahead(
        &self,
        first: usize,
        files: &[SourceFile],
    ) -> Vec<Option<OpenedFile>> {
        if !is_remote(&self.header.sources) {
            return Vec::new();
        }
        let is_intact = |ordinal: usize| self.conversion.detail(ordinal).is_none_or(|d| d.defect.is_none());
        let mut is_excluded = false;
        let open = |(ordinal, file): (usize, &SourceFile)| {
            // The files of its fields follow an item.
            if file.of_field.is_none() {
                is_excluded = self.excludes_key(&file.origin);
            }
            (!is_excluded && is_intact(ordinal)).then(|| self.open_ahead(file)).flatten()
        };
        (first..).zip(files).map(open).collect()
    }
}

fn rejected(file: &SourceFile, split: u16, reject: Reject) -> ItemOutcome {
    ItemOutcome::Rejected { split, origin: file.origin.clone(), reject }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_the_listing_and_respect_both_limits() {
        let files = [5, 1, 1, 1, 9, 1].map(|bytes| SourceFile::for_test("x", "x", bytes));
        assert_eq!(divide(files.iter(), 3, 6, |_| false), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(files.iter(), 2, 100, |_| false), [0..2, 2..4, 4..6]);
        assert_eq!(divide(files.iter(), 9, 100, |f| f.bytes > 4), [0..1, 1..4, 4..5, 5..6]);
        assert!(divide(files[..0].iter(), 2, 100, |_| false).is_empty());
    }
}
