//! Conversion of images to records.

use bytes::Bytes;
use dsconvert_writer::outcome::{ConvertedRecord, ItemOutcome, Outcomes};

use super::conversion::{ImageConversion, ImagesJob};
use super::image_field_names::MemberField;
use super::sources::source::{ImageItem, ItemContext, SourceItem, SourceTask};
use crate::panics::contained;
use crate::pipeline::job::{ItemSplit, excluded};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::pipeline::split_group::group_of;
use crate::sample::{Record, Reject, RejectCode, Value, pack_box_numbers, pack_boxes, pack_pair};
use crate::schema::{FieldType, LABEL, ORIGIN};
use crate::source::list::boxes::ImageBoxes;
use crate::testing::item_panic_point;
use crate::threads;
use crate::transform::image::{
    self as transform, BoxUnits, Converted, DEFAULT_KEPT_BYTES, Encode, FurtherImage, Geometry, Header,
    ImageScratch,
};

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
    /// Returns what determines the items of containers. `excludes` returns whether an excluded dataset has a key.
    pub(super) fn item_context<'a>(&'a self, excludes: &'a dyn Fn(&str) -> bool) -> ItemContext<'a> {
        ItemContext { roles: &self.conversion.roles, classes: &self.conversion.classes, excludes }
    }

    /// Converts items of a container, and counts the converted ones with bytes from the last compressed member.
    pub(super) fn convert_items(
        &self,
        mut task: Box<dyn SourceTask>,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) {
        out.source_bytes += task.source_bytes();
        let splits = self.split_of(task.file());
        let mut member = task.member();
        let excludes = |key: &str| self.excludes_key(key);
        let context = self.item_context(&excludes);
        while let Some((start, item)) = task.next(&context, out) {
            if let Some(member) = &mut member {
                member.start_item(start);
            }
            let outcome = match item {
                SourceItem::Skipped(ty) => {
                    out.skip(ty);
                    continue;
                }
                SourceItem::Excluded(origin) => excluded(&origin, splits.of(&origin), out),
                SourceItem::Rejected(origin, reject) => {
                    ItemOutcome::Rejected { split: splits.of(&origin), origin, reject }
                }
                SourceItem::Image(item) => {
                    let origin = item.origin.clone();
                    let split = splits.of(&origin);
                    let converted = self.convert_image(*item, split, worker, out);
                    converted.unwrap_or_else(|reject| ItemOutcome::Rejected { split, origin, reject })
                }
            };
            if let Some(member) = &mut member {
                member.converted += u64::from(matches!(outcome, ItemOutcome::Converted(_)));
            }
            out.list.push(outcome);
        }
        if let Some(member) = member {
            out.member = member;
        }
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
        let ImageConversion { transform, containers, details, recipe, .. } = &self.conversion;
        let is_companion = !recipe.companion.is_empty();
        let (place, are_related) = match containers.kind() {
            _ if is_companion => ("companion", true),
            Some(kind) if details.is_empty() => (kind.place(), kind.are_related()),
            // Images that rows of metadata name are unrelated files.
            _ => ("column", false),
        };
        let of_member =
            |reject: Reject| Reject::new(reject.code, format!("the {place} {member:?}: {}", reject.message));
        let header = transform.peek(bytes).map_err(of_member)?;
        if *ty == FieldType::Mask {
            let _held = worker.pixels.wait_for(header.memory_bytes);
            return transform.convert_mask(bytes, like).map_err(|reject| {
                let help = match reject.code {
                    RejectCode::InvalidValue | RejectCode::Unsupported if is_companion => {
                        "; if it is not a mask, write :image after its pattern".to_owned()
                    }
                    RejectCode::InvalidValue | RejectCode::Unsupported => {
                        format!("; if it is not a mask, name it with `image_fields {name}={member}:image`")
                    }
                    _ => String::new(),
                };
                of_member(Reject::new(reject.code, format!("{}{help}", reject.message)))
            });
        }
        let further = FurtherImage { main: like, turns_with_main: are_related };
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
        let split = self.split_of_group(&item)?.unwrap_or(split);
        let mut noted = Outcomes::default();
        let outcome = self.convert_noted(item, split, worker, &mut noted)?;
        noted.notes.into_iter().for_each(|(name, count)| out.count(name, count));
        Ok(outcome)
    }

    /// Returns the split of an item, if a field decides it.
    fn split_of_group(&self, item: &ImageItem) -> Result<Option<u16>, Reject> {
        let (Some(name), Some(spec)) = (&self.conversion.recipe.split_by, &self.header.output.split) else {
            return Ok(None);
        };
        let schema = &self.header.schema;
        let first = schema.index_of(ORIGIN).map_or(0, |origin| origin + 1);
        let at = schema.index_of(name).and_then(|at| at.checked_sub(first));
        let group = group_of(name, at.and_then(|at| item.values.get(at)))?;
        Ok(Some(ItemSplit::ByKey(spec, self.header.output.seed).of(&group)))
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
