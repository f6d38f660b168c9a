//! Conversion of images to records.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;

use super::feed::{
    DuplicateFiles, FileFeed, FilesTask, ImageTask, TableFeed, TableTask, TarFeed, TarTask, TaskRows,
};
use super::image_field_names::MemberField;
use super::image_fields::{ImageRoles, is_image};
use super::job::{ImageConversion, ImagesJob};
use super::sidecars::{self, FileField};
use super::tar_fields::{CLASS, text_of};
use crate::error::Result;
use crate::panics::contained;
use crate::pipeline::dedup::{DuplicateCandidate, duplicates};
use crate::pipeline::job::{Feed, excluded};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::outcome::{ConvertedRecord, ItemOutcome, MemberCount, Outcomes};
use crate::pipeline::stop::Stop;
use crate::pipeline::workers::Workers;
use crate::printable::printable;
use crate::sample::{Record, Reject, RejectCode, Value, pack_box_numbers, pack_boxes, pack_pair};
use crate::schema::{FieldType, LABEL};
use crate::source::io::broken::Broken;
use crate::source::io::opened::OpenedFile;
use crate::source::items::image_table::{ImageColumns, ImageRow};
use crate::source::items::webdataset::{NextSample, Sample};
use crate::source::list::boxes::ImageBoxes;
use crate::source::list::detail::Detail;
use crate::source::list::skipped::{self, SkippedTypes};
use crate::source::list::source_file::SourceFile;
use crate::source::names::labels::unknown_class;
use crate::testing::item_panic_point;
use crate::threads;
use crate::transform::image::{
    self as transform, BoxUnits, Converted, DEFAULT_KEPT_BYTES, Encode, FurtherImage, Geometry, Header,
    ImageScratch,
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
    /// Additional images, one per [`MemberField`] of the job.
    pub(super) further: Vec<Option<Bytes>>,
    /// Boxes from annotations.
    pub(super) boxes: Option<Box<ImageBoxes>>,
}

/// What a worker keeps from image to image.
pub struct ImageWorker {
    images: ImageScratch,
    /// Memory for images while they are decoded and resized, shared with the other workers.
    pixels: MemoryPool,
    /// Bytes of buffers that are kept for the next image.
    kept_bytes: u64,
}

impl ImageWorker {
    pub(super) fn new(memory: &Shares) -> Self {
        let kept_bytes = memory.kept_by_thread.min(DEFAULT_KEPT_BYTES as u64);
        Self { images: ImageScratch::keeping(kept_bytes as usize), pixels: memory.images.clone(), kept_bytes }
    }
}

impl ImagesJob {
    /// Finds the files that are equal to an earlier one.
    pub(super) fn find_duplicates(
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

    /// Returns the tasks of a unit, which consists of one container or of several files.
    pub(super) fn feed<'a>(
        &'a self,
        files: Range<usize>,
        duplicates: Option<&'a DuplicateFiles>,
    ) -> Result<Box<dyn Feed<ImageTask> + 'a>> {
        let first = self.file(files.start)?;
        Ok(match self.is_container(&first) {
            true if first.is_tar(&self.header.sources) => Box::new(TarFeed::open(self, first)?),
            true => Box::new(TableFeed::open(self, first)?),
            false => Box::new(FileFeed::new(self, files, duplicates)),
        })
    }

    /// Converts the files of a task.
    pub(super) fn convert_files(
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
                out.list.push(self.rejected(file, defect.clone()));
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
                    out.list.push(self.rejected(file, reject));
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
        let read = file.read_opened(&self.header.sources, self.header.follow_symlinks, opened);
        out.reading += started.elapsed();
        let bytes = Bytes::from(read?);
        out.add_content(&bytes);
        Ok(bytes)
    }

    /// Returns the split of a file that is one item. All records of one image are in the same split.
    pub(super) fn split_of_file(&self, file: &SourceFile) -> u16 {
        self.split_of(file).of(file.file_origin())
    }

    fn rejected(&self, file: &SourceFile, reject: Reject) -> ItemOutcome {
        ItemOutcome::Rejected { split: self.split_of_file(file), origin: file.origin.clone(), reject }
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

    /// Converts the main image of an item, or an additional one.
    fn convert_bytes(
        &self,
        bytes: &Bytes,
        further: Option<FurtherImage<'_>>,
        worker: &mut ImageWorker,
    ) -> Result<transform::ImageOutcome, Reject> {
        match further {
            Some(further) => self.conversion.transform.convert_further(bytes, further, &mut worker.images),
            None => self.conversion.transform.convert(bytes, &mut worker.images),
        }
    }

    /// Converts an image like [`Self::convert_bytes`], after reserving the memory that it needs according to its header.
    fn convert_with_reservation(
        &self,
        bytes: &Bytes,
        header: &Header,
        further: Option<FurtherImage<'_>>,
        worker: &mut ImageWorker,
    ) -> Result<transform::ImageOutcome, Reject> {
        let _held = worker.pixels.wait_for(header.memory_bytes);
        if header.memory_bytes > worker.kept_bytes {
            threads::on_own_thread("large image", || self.convert_bytes(bytes, further, worker))
        } else {
            self.convert_bytes(bytes, further, worker)
        }
    }

    /// Converts an additional image of a sample or row whose main image has the geometry `like` and became `main`. A mask
    /// has the size of its image; other images may have their own.
    fn convert_further_image(
        &self,
        field: &MemberField,
        bytes: &Bytes,
        like: &Geometry,
        main: &Converted,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<Bytes, Reject> {
        let MemberField { name, member, ty } = field;
        let ImageConversion { transform, image_tables, details, recipe, .. } = &self.conversion;
        let is_companion = !recipe.companion.is_empty();
        let has_columns = !is_companion && (*image_tables || !details.is_empty());
        let place = match (is_companion, has_columns) {
            (true, _) => "companion",
            (false, true) => "column",
            (false, false) => "member",
        };
        let of_member =
            |reject: Reject| Reject::new(reject.code, format!("the {place} {member:?}: {}", reject.message));
        let header = transform.peek(bytes).map_err(of_member)?;
        if *ty == FieldType::Mask {
            let _held = worker.pixels.wait_for(header.memory_bytes);
            return transform.convert_mask(bytes, like).map_err(|reject| {
                let help = match reject.code {
                    RejectCode::InvalidValue | RejectCode::Unsupported if is_companion => {
                        "; if it is no mask, write :image after its pattern".to_owned()
                    }
                    RejectCode::InvalidValue | RejectCode::Unsupported => {
                        format!("; if it is no mask, name it with `image_fields {name}={member}:image`")
                    }
                    _ => String::new(),
                };
                of_member(Reject::new(reject.code, format!("{}{help}", reject.message)))
            });
        }
        // Images of rows are unrelated files.
        let further = FurtherImage { main: like, turns_with_main: !has_columns };
        let converted = self.convert_with_reservation(bytes, &header, Some(further), worker);
        match converted.map_err(of_member)? {
            transform::ImageOutcome::Converted(image) => {
                let (size, main) = ((image.width, image.height), (main.width, main.height));
                if recipe.image.encode == Encode::Raw && size != main {
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

    /// Returns the outcome of an image with its metadata. Notes about a rejected image are not counted.
    pub(super) fn convert_image(
        &self,
        item: ImageItem,
        split: u16,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        let mut noted = Outcomes::default();
        let outcome = self.convert_noted(item, split, worker, &mut noted)?;
        noted.notes.into_iter().for_each(|(name, count)| out.count(name, count));
        Ok(outcome)
    }

    /// Returns the outcome of an image, and counts in `out` what is noteworthy about it.
    fn convert_noted(
        &self,
        item: ImageItem,
        split: u16,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        let ImageItem { origin, bytes, label, mut values, further, boxes } = item;
        let bytes = &bytes;
        contained(|| {
            item_panic_point(&origin);
            Ok(())
        })?;
        let header = self.conversion.transform.peek(bytes)?;
        let image = match self.convert_with_reservation(bytes, &header, None, worker)? {
            transform::ImageOutcome::Filtered(reason) => {
                return Ok(ItemOutcome::Filtered { split, origin, reason: reason.name().to_owned() });
            }
            transform::ImageOutcome::Converted(image) => image,
        };
        if self.excluded.get().is_some_and(|items| items.has_image(&image.bytes, image.width, image.height)) {
            return Ok(excluded(&origin, split, out));
        }
        if image.passthrough {
            out.note("passed_through");
        }
        note_image(&image, out);
        // Fields that only other kinds of sources have.
        values.resize(self.conversion.values, Value::Null);
        let per_box = self.header.schema.per_box().count();
        if let Some(lists) = values.get_mut(..per_box).filter(|lists| !lists.is_empty()) {
            set_boxes(boxes.as_deref(), &header.geometry, lists, out)?;
        }
        let mut further = further.into_iter();
        for field in &self.conversion.roles.fields {
            values.push(match further.next().flatten() {
                Some(bytes) => {
                    let like = &header.geometry;
                    Value::Bytes(self.convert_further_image(field, &bytes, like, &image, worker, out)?)
                }
                None => Value::Null,
            });
        }
        if self.conversion.recipe.image.buckets.is_some() {
            let too_large = || Reject::new(RejectCode::TooLarge, "a side has more than 2,147,483,647 pixels");
            let pairs = header.geometry.pairs().ok_or_else(too_large)?;
            values.extend(pairs.map(|pair| Value::Bytes(pack_pair(pair))));
        }
        // The order of the fields of a record is defined only here.
        let name = || Value::Text(origin.as_str().into());
        let (width, height) = (u64::from(image.width), u64::from(image.height));
        let mut record = vec![name(), Value::Bytes(image.bytes), Value::UInt(width), Value::UInt(height)];
        record.extend(self.header.schema.index_of(LABEL).map(|_| label));
        record.push(name());
        record.extend(values);
        let converted = ConvertedRecord::new(split, Record { values: record }, width * height);
        converted.check_size()?;
        Ok(ItemOutcome::Converted(converted))
    }
}

/// Sets the values of an image that are those of its boxes, and counts what is noteworthy about them.
fn set_boxes(
    boxes: Option<&ImageBoxes>,
    geometry: &Geometry,
    values: &mut [Value],
    out: &mut Outcomes,
) -> Result<(), Reject> {
    let Some(ImageBoxes { size, are_fractions, is_upright, list, extras }) = boxes else {
        out.note("images_without_annotations");
        return Ok(());
    };
    let units = match (are_fractions, is_upright, size) {
        (true, ..) => BoxUnits::Fractions,
        (false, true, None) => BoxUnits::UprightPixels,
        (false, ..) => BoxUnits::Pixels(*size),
    };
    let placed = geometry.place_boxes(&list.boxes, units)?;
    let kept = || placed.kept.iter().map(|(at, _)| *at);
    let labels = kept().map(|at| list.labels.get(at).copied().map_or(0, i64::from));
    let crowds = kept().map(|at| list.crowds.get(at).copied().unwrap_or_default());
    let lists = [
        pack_boxes(placed.kept.iter().map(|(_, corners)| *corners)),
        pack_box_numbers(labels),
        pack_box_numbers(crowds),
    ];
    for (value, list) in values.iter_mut().zip(lists) {
        *value = Value::Bytes(list);
    }
    for (name, count) in [
        ("boxes_invalid", placed.invalid),
        ("boxes_outside", placed.outside),
        ("images_without_boxes", u64::from(placed.kept.is_empty())),
        ("boxes_assumed_upright", u64::from(placed.is_ambiguous && !placed.kept.is_empty())),
    ]
    .into_iter()
    .chain(extras.notes())
    {
        if count > 0 {
            out.count(name, count);
        }
    }
    Ok(())
}

/// Counts what is noteworthy about an image or an additional image.
fn note_image(image: &Converted, out: &mut Outcomes) {
    let noted = [
        ("progressive_kept", image.has_several_scans),
        ("damaged_kept", image.lenient),
        ("exif_dropped", image.lacks_exif),
        ("odd_sample_range", image.has_odd_range),
    ];
    for (name, count) in
        [("tiff_pages_left_out", image.further_pages), ("tiff_channels_left_out", image.further_channels)]
    {
        if count > 0 {
            out.count(name, count);
        }
    }
    let noted = noted.into_iter().filter(|(_, happened)| *happened).map(|(name, _)| name);
    noted.chain(image.tolerated.iter().map(|tolerated| tolerated.note())).for_each(|name| out.note(name));
}

impl ImagesJob {
    /// Converts samples, and counts the converted ones with bytes from the last compressed member.
    pub(super) fn convert_tar(&self, task: TarTask, worker: &mut ImageWorker, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes;
        let mut member = MemberCount { start: task.member, damaged: task.damaged, ..MemberCount::default() };
        for (start, found) in task.found {
            member.start_item(start);
            let before = out.list.len();
            self.convert_tar_item(&task.file, found, worker, out);
            for outcome in &out.list[before..] {
                if matches!(outcome, ItemOutcome::Converted(_)) {
                    member.converted += 1;
                }
            }
        }
        out.member = member;
    }

    /// Adds the outcome of a sample, or of a rejected or skipped part of the file.
    fn convert_tar_item(
        &self,
        file: &SourceFile,
        found: NextSample,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) {
        let origin_of = |name: &str| format!("{}#{name}", file.origin);
        let (origin, item) = match found {
            NextSample::Skipped => {
                out.skip(skipped::MEMBER.to_owned());
                return;
            }
            NextSample::Rejected(name, reject) => {
                (name.map_or_else(|| file.origin.clone(), |name| origin_of(&name)), Err(reject))
            }
            NextSample::Sample(sample) => {
                let origin = origin_of(&sample.name);
                out.add_content(origin.as_bytes());
                for (extension, bytes) in &sample.members {
                    out.add_content(extension.as_bytes());
                    out.add_content(bytes);
                }
                let item = self.image_item(&origin, sample, out);
                (origin, item)
            }
        };
        let split = self.split_of(file).of(&origin);
        let converted = match item {
            Ok(None) => {
                out.skip(skipped::MEMBER.to_owned());
                return;
            }
            Ok(Some(_)) if self.excludes_key(&origin) => Ok(excluded(&origin, split, out)),
            Ok(Some(item)) => self.convert_image(item, split, worker, out),
            Err(reject) => Err(reject),
        };
        out.list.push(converted.unwrap_or_else(|reject| ItemOutcome::Rejected { split, origin, reject }));
    }

    /// Returns the image of a sample and its fields; `None` if it has neither. Counts members that are left out.
    pub(super) fn image_item(
        &self,
        origin: &str,
        sample: Sample,
        out: &mut Outcomes,
    ) -> Result<Option<ImageItem>, Reject> {
        if let Some(defect) = sample.defect {
            return Err(defect);
        }
        let ImageConversion { members, roles, classes, labels_in_samples, .. } = &self.conversion;
        let ImageRoles { main, fields: image_fields } = roles;
        let mut values = vec![Value::Null; members.len()];
        let mut label = Value::Null;
        let mut images: Vec<(String, Bytes)> = Vec::new();
        let mut further: Vec<Option<Bytes>> = vec![None; image_fields.len()];
        let mut left_out = Vec::new();
        let mut has_fields = false;
        for (member, bytes) in sample.members {
            if member == CLASS && *labels_in_samples {
                label = Value::Int(i64::from(classes.name_or_ordinal(text_of(&member, &bytes)?.trim())?));
                has_fields = true;
            } else if let Some(field) = members.iter().position(|field| field.member == member) {
                values[field] = members[field].value(&bytes)?;
                has_fields = true;
            } else if let Some(field) = image_fields.iter().position(|field| field.member == member) {
                further[field] = Some(bytes);
                has_fields = true;
            } else if main
                .as_ref()
                .map_or_else(|| is_image(&member) || transform::has_signature(&bytes), |main| *main == member)
            {
                images.push((member, bytes));
            } else {
                has_fields |= is_image(&member);
                left_out.push(member);
            }
        }
        let mut images = images.into_iter();
        match (images.next(), images.next()) {
            (Some((_, bytes)), None) => {
                for member in left_out {
                    out.skip(SkippedTypes::type_of(&format!("x.{member}")));
                    out.note("members_left_out");
                }
                Ok(Some(ImageItem { origin: origin.to_owned(), bytes, label, values, further, boxes: None }))
            }
            (Some((one, _)), Some((other, _))) => Err(Reject::new(
                RejectCode::Unsupported,
                format!(
                    "the sample has more than one image: {one:?} and {other:?}; list those that are fields in \
                     `image_fields`"
                ),
            )),
            _ if has_fields => Err(Reject::new(
                RejectCode::MissingField,
                "the sample has no image; if it is elsewhere in the tar file, write the members of a sample next to each \
                 other, with `tar --sort=name`",
            )),
            _ => Ok(None),
        }
    }
}

impl ImagesJob {
    /// Converts the rows of a task.
    pub(super) fn convert_table(&self, task: TableTask, worker: &mut ImageWorker, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes();
        let file = &*task.file;
        match task.found {
            TaskRows::Broken { row, reject } => {
                let origin = row.map_or_else(|| file.origin.clone(), |row| format!("{}#{row}", file.origin));
                let split = self.split_of(file).of(&origin);
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
            }
            TaskRows::Rows(batch) => {
                for row in batch.images() {
                    let origin = format!("{}#{}", file.origin, row.number);
                    let split = self.split_of(file).of(&origin);
                    let converted = self.convert_row(&origin, row, &batch.columns, split, worker, out);
                    let outcome =
                        converted.unwrap_or_else(|reject| ItemOutcome::Rejected { split, origin, reject });
                    out.list.push(outcome);
                }
            }
        }
    }

    fn convert_row(
        &self,
        origin: &str,
        row: ImageRow,
        columns: &ImageColumns,
        split: u16,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        out.add_content(origin.as_bytes());
        out.add_content(row.label.to_string().as_bytes());
        row.values.iter().for_each(|value| out.add_content(&bytes_of(value)));
        let (bytes, further) = row.images?;
        out.add_content(&bytes);
        further.iter().flatten().for_each(|bytes| out.add_content(bytes));
        if self.excludes_key(origin) {
            return Ok(excluded(origin, split, out));
        }
        if row.left_out > 0 {
            out.count("images_left_out", row.left_out);
        }
        let label = match columns.class_of(&row.label)? {
            Some(class) => Value::Int(self.conversion.classes.ordinal(&class)?.into()),
            None => Value::Null,
        };
        let (mut values, mut boxes) = (row.values, None);
        if let Some(reader) = &self.conversion.row_boxes {
            boxes = reader.read(&values)?.map(Box::new);
            values.splice(..0, reader.fields().iter().map(|_| Value::Null));
        }
        let item = ImageItem { origin: origin.to_owned(), bytes, label, values, further, boxes };
        self.convert_image(item, split, worker, out)
    }
}

/// Returns the bytes of a value that are added to the content hash.
fn bytes_of(value: &Value) -> Bytes {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Value::Int(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::UInt(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Float(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Bool(flag) => Bytes::copy_from_slice(&[u8::from(*flag)]),
        _ => Bytes::new(),
    }
}
