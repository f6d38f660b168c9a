//! Conversion of images to records.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;

use super::file_feed::FileFeed;
use super::image_fields::ImageField;
use super::job::ImagesJob;
use super::record::ImageRecord;
use super::sidecars::{self, FileField};
use super::table_feed::TableFeed;
use super::tar_feed::TarFeed;
use super::task::{FilesTask, ImageTask};
use crate::error::Result;
use crate::options::RunOptions;
use crate::panics::contained;
use crate::pipeline::dedup::{DuplicateCandidate, duplicates};
use crate::pipeline::job::{Conversion, Converting, EngineUse, Feed};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::outcome::{ItemOutcome, Outcomes};
use crate::pipeline::shuffle::output_stages;
use crate::pipeline::stage::Stages;
use crate::pipeline::stop::Stop;
use crate::pipeline::workers::Workers;
use crate::printable::printable;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{FieldType, LABEL};
use crate::source::broken::Broken;
use crate::source::labels::unknown_class;
use crate::source::metadata::Labels;
use crate::source::named_files::Detail;
use crate::source::opened::OpenedFile;
use crate::source::skipped::SkippedTypes;
use crate::source::source_file::SourceFile;
use crate::testing::item_panic_point;
use crate::threads;
use crate::transform::image::{
    self as transform, Converted, DEFAULT_KEPT_BYTES, Encode, Geometry, Header, ImageScratch,
};

/// Maximum size of an image file that is read, in bytes. Records have 32-bit offsets, and a larger file, possibly a
/// sparse one, could exhaust memory.
const MAX_FILE_BYTES: u64 = i32::MAX as u64;

/// An image with its metadata.
pub(super) struct ImageItem {
    pub(super) origin: String,
    pub(super) bytes: Bytes,
    pub(super) label: Value,
    /// Values of the fields that only some datasets have.
    pub(super) values: Vec<Value>,
    /// Additional images, one per [`ImageField`] of the job.
    pub(super) further: Vec<Option<Bytes>>,
}

/// What an image is in its item.
#[derive(Clone, Copy)]
enum ImageRole<'a> {
    Main,
    /// An additional image, which is turned like an image with this geometry if it has the same size.
    Further(Option<&'a Geometry>),
}

/// A running conversion of images.
pub(in crate::pipeline) struct ImageConversion<'a> {
    pub(super) job: &'a ImagesJob,
    /// The classes, for labels in Parquet and tar files.
    pub(super) classes: Labels,
    pixels: MemoryPool,
    /// Bytes of buffers that a worker keeps for the next image.
    kept_bytes: usize,
    /// Ordinals of the files that are excluded as duplicates, each with the ordinal of the file that is kept.
    duplicates: OnceLock<BTreeMap<usize, usize>>,
}

impl Conversion for ImageConversion<'_> {
    type Task = ImageTask;
    type Scratch = ImageScratch;

    fn scratch(&self) -> ImageScratch {
        ImageScratch::keeping(self.kept_bytes)
    }

    fn prepare(&self, work: &Path, workers: &Workers, _: &MemoryPool, stop: &Stop) -> Result<()> {
        let job = self.job;
        if job.options.recipe.dedup.is_some() {
            // A file that will be rejected must not replace an equal one.
            let is_usable = |(ordinal, file): &(usize, SourceFile)| {
                let is_unknown = matches!(job.folders.label_of(file), Some((_, None)));
                !is_unknown && job.details.get(*ordinal).is_none_or(|d| d.defect.is_none())
            };
            let candidates =
                (0..).zip(&job.files).filter(|(_, file)| file.of_field.is_none()).filter(is_usable);
            let candidate = |(ordinal, file): (usize, SourceFile)| DuplicateCandidate {
                planned: job.planned(&file),
                ordinal,
                must_begin_as_image: !job.is_item(&file, job.details.get(ordinal)),
            };
            let candidates = candidates.map(candidate).collect();
            let found = duplicates(candidates, work, workers, stop)?;
            self.duplicates.get_or_init(|| found);
        }
        Ok(())
    }

    fn stages(&self, work: &Path) -> Stages {
        output_stages(&self.job.options.recipe.output, work)
    }

    fn open(&self, unit: u32, _engine: EngineUse) -> Result<Box<dyn Feed<ImageTask> + '_>> {
        feed(self.job, self.job.units[unit as usize].clone())
    }

    fn convert(&self, task: ImageTask, scratch: &mut ImageScratch, out: &mut Outcomes) -> Result<Converting> {
        match task {
            ImageTask::Files(task) => self.convert_files(task, scratch, out)?,
            ImageTask::Tar(task) => self.convert_tar(task, scratch, out),
            ImageTask::Table(task) => self.convert_table(task, scratch, out),
        }
        Ok(Converting::Done)
    }
}

/// Returns the tasks of a unit, which consists of one container or of several files.
pub(super) fn feed(job: &ImagesJob, files: Range<usize>) -> Result<Box<dyn Feed<ImageTask> + '_>> {
    let first = job.file(files.start)?;
    Ok(match job.is_container(&first) {
        true if first.is_tar(&job.options.sources) => Box::new(TarFeed::open(job, files.start)?),
        true => Box::new(TableFeed::open(job, files.start)?),
        false => Box::new(FileFeed::new(job, files)),
    })
}

impl<'a> ImageConversion<'a> {
    pub(in crate::pipeline) fn new(job: &'a ImagesJob, run: &RunOptions) -> Result<Self> {
        let shares = Shares::of(run.memory_bytes);
        Ok(Self {
            job,
            classes: Labels::new(job.schema.class_names.clone(), job.labels_are_ordinals)?,
            pixels: shares.images(),
            kept_bytes: shares.kept_by_thread(run.threads).min(DEFAULT_KEPT_BYTES as u64) as usize,
            duplicates: OnceLock::new(),
        })
    }

    /// Converts the files of a task.
    fn convert_files(&self, task: FilesTask, scratch: &mut ImageScratch, out: &mut Outcomes) -> Result<()> {
        let FilesTask { first, files, opened } = task;
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
            let detail = self.job.details.get(ordinal);
            if let Some(defect) = detail.and_then(|d| d.defect.as_deref()) {
                out.list.push(self.rejected(file, defect.clone()));
                continue;
            }
            let is_item = self.job.is_item(file, detail);
            if !is_item && file.member.is_none() && file.bytes > MAX_FILE_BYTES {
                out.skip(SkippedTypes::type_of(&file.origin));
                continue;
            }
            let bytes = match self.read(file, opened(at), out) {
                Ok(bytes) => bytes,
                Err(Broken::Failed(error)) => return Err(error),
                Err(Broken::Damaged(reject)) => {
                    out.list.push(self.rejected(file, reject));
                    continue;
                }
            };
            if !is_item && transform::sniff(&bytes).is_none() && !transform::is_unreadable_photo(&bytes) {
                out.skip(SkippedTypes::type_of(&file.origin));
                continue;
            }
            let split = self.job.split_of(file);
            if let Some(&first) = self.duplicates.get().and_then(|found| found.get(&ordinal)) {
                let (origin, of) = (file.origin.clone(), self.job.file(first)?.origin);
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
                None => self.convert_file(file, detail, split, &bytes, &contents, scratch, out),
            };
            out.list.push(outcome.unwrap_or_else(|reject| self.rejected(file, reject)));
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
        let options = &self.job.options;
        let read = file.read_opened(&options.sources, options.recipe.follow_symlinks, opened);
        out.reading += started.elapsed();
        let bytes = Bytes::from(read?);
        out.add_content(&bytes);
        Ok(bytes)
    }

    fn rejected(&self, file: &SourceFile, reject: Reject) -> ItemOutcome {
        ItemOutcome::Rejected { split: self.job.split_of(file), origin: file.origin.clone(), reject }
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
        scratch: &mut ImageScratch,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        let folder = self.job.folders.label_of(file);
        let label = match &folder {
            Some((class, None)) => return Err(unknown_class(class)),
            Some((_, Some(label))) => Value::Int(i64::from(*label)),
            None => detail.and_then(|d| d.label).map_or(Value::Null, |label| Value::Int(i64::from(label))),
        };
        let mut values = detail.map(|detail| detail.values.to_vec()).unwrap_or_default();
        values.resize(self.job.value_count(), Value::Null);
        if let Some(repeats) = self.job.repeats {
            repeats.set(folder.as_ref().map(|(class, _)| class.as_str()), &mut values);
        }
        let mut further = vec![None; self.job.image_fields.len()];
        for (file, bytes) in contents {
            let field = file.of_field.and_then(|field| self.job.file_fields.get(field as usize));
            let Some(FileField { ty, at }) = field else { continue };
            if *ty == FieldType::Image {
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
        let item = ImageItem { origin: file.origin.clone(), bytes: bytes.clone(), label, values, further };
        self.convert_image(item, split, scratch, out)
    }

    /// Converts an image.
    fn convert_bytes(
        &self,
        bytes: &Bytes,
        role: ImageRole<'_>,
        scratch: &mut ImageScratch,
    ) -> Result<transform::ImageOutcome, Reject> {
        match role {
            ImageRole::Further(like) => self.job.transform.convert_like(bytes, like, scratch),
            ImageRole::Main => self.job.transform.convert(bytes, scratch),
        }
    }

    /// Converts an image like [`Self::convert_bytes`], after reserving the memory that it needs according to its header.
    fn convert_with_reservation(
        &self,
        bytes: &Bytes,
        header: &Header,
        role: ImageRole<'_>,
        scratch: &mut ImageScratch,
    ) -> Result<transform::ImageOutcome, Reject> {
        let _held = self.pixels.wait_for(header.memory_bytes);
        if header.memory_bytes > self.kept_bytes as u64 {
            threads::on_own_thread("large image", || self.convert_bytes(bytes, role, scratch))
        } else {
            self.convert_bytes(bytes, role, scratch)
        }
    }

    /// Converts an additional image of a sample or row whose main image has the geometry `like` and became `main`. A mask
    /// has the size of its image; other images may have their own.
    fn convert_further_image(
        &self,
        field: &ImageField,
        bytes: &Bytes,
        like: &Geometry,
        main: &Converted,
        scratch: &mut ImageScratch,
        out: &mut Outcomes,
    ) -> Result<Bytes, Reject> {
        let ImageField { name, member, ty } = field;
        let has_columns = self.job.image_tables || !self.job.details.is_empty();
        let place = if has_columns { "column" } else { "member" };
        let of_member =
            |reject: Reject| Reject::new(reject.code, format!("the {place} {member:?}: {}", reject.message));
        let header = self.job.transform.peek(bytes).map_err(of_member)?;
        if *ty == FieldType::Mask {
            let _held = self.pixels.wait_for(header.memory_bytes);
            return self.job.transform.convert_mask(bytes, like).map_err(|reject| {
                let help = match reject.code {
                    RejectCode::InvalidValue | RejectCode::Unsupported => {
                        format!("; if it is no mask, name it with `image_fields {name}={member}:image`")
                    }
                    _ => String::new(),
                };
                of_member(Reject::new(reject.code, format!("{}{help}", reject.message)))
            });
        }
        // Images of rows are unrelated files.
        let role = ImageRole::Further((!has_columns).then_some(like));
        let converted = self.convert_with_reservation(bytes, &header, role, scratch);
        match converted.map_err(of_member)? {
            transform::ImageOutcome::Converted(image) => {
                let (size, main) = ((image.width, image.height), (main.width, main.height));
                if self.job.options.recipe.image.encode == Encode::Raw && size != main {
                    let message = format!(
                        "it would have {}×{} pixels, but the image {}×{}, and samples of `encode raw` have no size of \
                         their own; use `resize exact:WxH` or another encoding",
                        size.0, size.1, main.0, main.1
                    );
                    return Err(of_member(Reject::new(RejectCode::InvalidValue, message)));
                }
                note_image(&image, out);
                Ok(image.bytes)
            }
            transform::ImageOutcome::Filtered(_) => {
                Err(Reject::new(RejectCode::InvalidValue, "an additional image was filtered"))
            }
        }
    }

    /// Returns the outcome of an image with its metadata.
    pub(super) fn convert_image(
        &self,
        item: ImageItem,
        split: u16,
        scratch: &mut ImageScratch,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        let ImageItem { origin, bytes, label, mut values, further } = item;
        let bytes = &bytes;
        contained(|| {
            item_panic_point(&origin);
            Ok(())
        })?;
        let header = self.job.transform.peek(bytes)?;
        let image = match self.convert_with_reservation(bytes, &header, ImageRole::Main, scratch)? {
            transform::ImageOutcome::Filtered(reason) => {
                return Ok(ItemOutcome::Filtered { split, origin, reason: reason.name().to_owned() });
            }
            transform::ImageOutcome::Converted(image) => image,
        };
        if image.passthrough {
            out.note("passed_through");
        }
        note_image(&image, out);
        // Fields that only other kinds of sources have.
        values.resize(self.job.value_count(), Value::Null);
        let mut further = further.into_iter();
        for field in &self.job.image_fields {
            values.push(match further.next().flatten() {
                Some(bytes) => {
                    let like = &header.geometry;
                    Value::Bytes(self.convert_further_image(field, &bytes, like, &image, scratch, out)?)
                }
                None => Value::Null,
            });
        }
        let has_labels = self.job.schema.index_of(LABEL).is_some();
        let record = ImageRecord {
            origin,
            image: image.bytes,
            width: image.width,
            height: image.height,
            label: has_labels.then_some(label),
            extra_values: values,
        };
        let converted = record.converted(split);
        converted.check_size()?;
        Ok(ItemOutcome::Converted(converted))
    }
}

/// Counts what is noteworthy about an image or an additional image.
fn note_image(image: &Converted, out: &mut Outcomes) {
    if image.has_several_scans {
        out.note("progressive_kept");
    }
    if image.lenient {
        out.note("damaged_kept");
    }
    if image.lacks_exif {
        out.note("exif_dropped");
    }
}
