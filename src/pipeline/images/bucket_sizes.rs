//! The pass over the headers of all images, which counts their sizes before buckets are decided.

use std::sync::{Mutex, PoisonError};

use super::conversion::ImagesJob;
use super::feed::ImageTask;
use super::sources::source::SourceItem;
use crate::error::{Error, Result};
use crate::options::default_threads;
use crate::source::io::broken::Broken;
use crate::source::list::source_file::SourceFile;
use crate::transform::image::{self as transform, BucketCounts, ImageSizes, ImageType};
use crate::writer::outcome::Outcomes;
use crate::writer::stop::Stop;
use crate::writer::workers::Workers;

/// Bytes at the start of a JPEG in which its header usually ends. If it does not, the whole file is read.
const START_BYTES: u64 = 128 << 10;

/// The sizes of images, and the number of those without a readable header.
#[derive(Debug, Default)]
struct FoundSizes {
    sizes: ImageSizes,
    unreadable: u64,
}

impl FoundSizes {
    fn add(&mut self, size: Option<(u32, u32)>) {
        match size {
            Some(size) => *self.sizes.entry(size).or_default() += 1,
            None => self.unreadable += 1,
        }
    }
}

impl ImagesJob {
    /// Leaves out buckets with fewer images than `min_bucket` requests, if it does. The decided buckets become those of the
    /// options. Reads the headers of all images.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub(super) fn decide_buckets(&mut self) -> Result<()> {
        if self.conversion.recipe.image.min_bucket.is_none() {
            return Ok(());
        }
        let FoundSizes { sizes, unreadable } = self.sizes_of_all()?;
        let transform = &mut self.conversion.transform;
        let counts = transform.leave_out_buckets(&sizes);
        let buckets = transform.options().buckets.clone();
        self.header.options["image"]["buckets"] =
            serde_json::to_value(&buckets).map_err(|e| Error::not_serialized("the buckets", e))?;
        self.conversion.recipe.image.buckets = buckets;
        self.summary.buckets = counts.map(|counts| BucketCounts { unreadable, ..counts });
        Ok(())
    }

    /// Counts the images of all buckets by their headers. `None` without buckets.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub(super) fn bucket_counts(&self) -> Result<Option<BucketCounts>> {
        if self.conversion.recipe.image.buckets.is_none() || self.summary.buckets.is_some() {
            return Ok(self.summary.buckets.clone());
        }
        let FoundSizes { sizes, unreadable } = self.sizes_of_all()?;
        let counts = self.conversion.transform.count_buckets(&sizes);
        Ok(counts.map(|counts| BucketCounts { unreadable, ..counts }))
    }

    /// Reads the headers of all main images. The order of the threads does not matter, because sizes are counted.
    fn sizes_of_all(&self) -> Result<FoundSizes> {
        if self.header.reads_stdin() {
            return Err(Error::usage(
                "the images on standard input can be read only once, so their sizes cannot be counted",
            )
            .help("write them to a file first, or leave out `min_bucket`"));
        }
        // Small pieces of work, so that the files of one unit are read by all threads.
        let pieces: Vec<_> = self
            .units
            .iter()
            .flat_map(|unit| match self.file(unit.start).is_ok_and(|first| self.is_container(&first)) {
                true => vec![unit.clone()],
                false => {
                    unit.clone().step_by(PIECE_FILES).map(|at| at..(at + PIECE_FILES).min(unit.end)).collect()
                }
            })
            .collect();
        let all = Mutex::new(FoundSizes::default());
        let workers = Workers::start(default_threads())?;
        workers.for_all(&pieces, "reading the sizes of images", &Stop::default(), |piece| {
            let mut found = FoundSizes::default();
            if self.is_container(&self.file(piece.start)?) {
                self.add_container(piece.clone(), &mut found)?;
            } else {
                for (ordinal, file) in piece.clone().zip(self.files.range(piece.clone())) {
                    self.add_file(ordinal, &file, &mut found)?;
                }
            }
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            for (size, images) in found.sizes {
                *all.sizes.entry(size).or_default() += images;
            }
            all.unreadable += found.unreadable;
            Ok(())
        })?;
        Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn size_in(&self, bytes: &[u8]) -> Option<(u32, u32)> {
        self.conversion.transform.peek(bytes).ok().map(|header| (header.width, header.height))
    }

    /// Adds the size of an image that is a file.
    fn add_file(&self, ordinal: usize, file: &SourceFile, found: &mut FoundSizes) -> Result<()> {
        let detail = self.conversion.detail(ordinal);
        if file.of_field.is_some() || detail.is_some_and(|detail| detail.defect.is_some()) {
            return Ok(());
        }
        if file.member.is_none() {
            // The header of a JPEG is at its start; other types may have parts of theirs at the end.
            let start = self.planned(file).start(START_BYTES)?;
            let is_item = self.is_item(file, detail);
            let is_photo = || transform::is_unreadable_photo(&start, &file.origin);
            if !is_item && !transform::has_signature(&start) && !is_photo() {
                return Ok(());
            }
            if transform::sniff(&start) == Some(ImageType::Jpeg)
                && let Some(size) = self.size_in(&start)
            {
                found.add(Some(size));
                return Ok(());
            }
        }
        match file.read_opened(&self.header.sources, self.header.follow_symlinks, None) {
            Ok(bytes) => found.add(self.size_in(&bytes)),
            Err(Broken::Damaged(_)) => found.add(None),
            Err(Broken::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    /// Adds the sizes of the main images of a container.
    fn add_container(&self, unit: std::ops::Range<usize>, found: &mut FoundSizes) -> Result<()> {
        let context = self.item_context(&|_| false);
        let mut feed = self.feed(unit, None)?;
        while let Some((task, _)) = feed.next()? {
            let ImageTask::Container(mut task) = task else {
                return Err(Error::internal("a container is read as a file"));
            };
            while let Some((_, item)) = task.next(&context, &mut Outcomes::default()) {
                if let SourceItem::Image(item) = item {
                    found.add(self.size_in(&item.bytes));
                }
            }
        }
        Ok(())
    }
}

/// Files that a thread reads at a time.
const PIECE_FILES: usize = 64;
