//! Annotations of images in files of their own: boxes with classes, and captions.
//!
//! They are read when the run is planned, because the classes depend on all of them. Damage that concerns one image rejects
//! this image; everything else is an error of the option `annotations`.

mod coco;
mod coco_images;
mod folders;
mod found;
mod names;
mod voc;
mod yolo;
mod yolo_configuration;

use std::collections::HashSet;
use std::path::PathBuf;

use xxhash_rust::xxh3::xxh3_128;

use self::coco::CocoFile;
use self::coco_images::{CocoEntry, coco_classes, coco_entries};
use self::folders::{AnnotationFolder, FolderResults};
use self::found::{FoundAnnotations, OPTION, add_boxes, contradiction};
use self::names::images_named;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::{SourceSpec, check_local};
use crate::printable::{printable, printable_path};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{BOX_CROWDS, BOX_LABELS, BOXES, Field, FieldType};
use crate::source::io::planned::read_file;
use crate::source::list::detail::Detail;
use crate::source::list::file_list::FileList;
use crate::source::list::source_file::SourceFile;
use crate::source::names::labels::class_ordinals;
use crate::storage::stat;
use crate::warning::Warning;

/// Name of the field with the captions of an image.
const CAPTIONS: &str = "captions";
/// Name of the field of Pascal VOC that is 1 for boxes that are hard to see.
const DIFFICULT: &str = "difficult";

/// What annotations say about the images of a listing.
#[derive(Debug)]
pub struct AnnotatedImages {
    /// One per image. Boxes are not values yet, because they depend on the size of the image.
    pub details: Vec<Detail>,
    /// Fields that the annotations have values for. Those of boxes come first.
    pub fields: Vec<Field>,
    /// The classes of the boxes; empty if there are no boxes.
    pub class_names: Vec<String>,
    /// Hash of the annotations.
    pub content: u128,
    /// Absolute paths of the files with the annotations of single images.
    pub files: HashSet<PathBuf>,
    /// Annotations and images that have no counterpart.
    pub warnings: Vec<Warning>,
}

/// Reads the annotations at `paths` of `images`. Their classes are `classes`, if given.
///
/// # Errors
///
/// Fails if a path has no annotations, or they contradict each other.
pub fn annotate(
    paths: &[PathBuf],
    images: &FileList,
    sources: &[SourceSpec],
    classes: Option<&[String]>,
) -> Result<AnnotatedImages> {
    let (mut coco, mut folders, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for (at, path) in paths.iter().enumerate() {
        check_local(OPTION, path)?;
        let meta = stat(path)?
            .ok_or_else(|| Error::usage("there is no such file or folder").of_option(OPTION).at_path(path))?;
        if meta.is_dir() {
            folders.push(AnnotationFolder::open(at, path, images, sources)?);
            continue;
        }
        let bytes = read_file(path).map_err(|e| e.of_option(OPTION))?;
        hashes.push(xxh3_128(&bytes));
        coco.push((at, path.as_path(), CocoFile::parse(&bytes, path)?));
    }
    let mut warnings = Vec::new();
    let mut class_names = coco_classes(&coco, classes, &mut warnings)?;
    // Numbers of YOLO are those of all classes, so its folders come first.
    folders.sort_by_key(AnnotationFolder::is_voc);
    for folder in &folders {
        folder.add_classes(&mut class_names, classes)?;
    }
    let class_names = class_names.map(|(names, _)| names).unwrap_or_default();
    class_ordinals(&class_names).map_err(|e| e.of_option(OPTION))?;
    let mut found: Vec<FoundAnnotations> = Vec::new();
    found.resize_with(images.len(), FoundAnnotations::default);
    let has_difficult = folders.iter().any(AnnotationFolder::is_voc);
    let (mut has_crowds, mut has_captions) = (false, false);
    for (at, path, file) in coco {
        (has_crowds, has_captions) = (has_crowds || file.has_boxes(), has_captions || file.has_captions());
        let entries = coco_entries(file, path, &class_names, &mut warnings)?;
        let names = entries.iter().map(|entry| entry.name.as_str());
        let (matches, by_last) = images_named(names, path, images, sources)?;
        if let Some((images, example)) = by_last {
            let message = format!(
                "{}: {} named by a path that leads elsewhere, such as {:?}, {} matched by the last part of the name",
                printable_path(path),
                plural(images, "image"),
                printable(&example),
                if images == 1 { "is" } else { "are" }
            );
            let warning = Warning::new("names-matched-by-last", message).with("path", path);
            warnings.push(warning.with("images", images).with("example", example));
        }
        let mut missing = None;
        for (entry, image) in entries.into_iter().zip(matches) {
            match image {
                Some(ordinal) => add_entry(&mut found[ordinal as usize], entry, at, paths)?,
                None => {
                    let (count, _) = missing.get_or_insert((0, entry.name));
                    *count += 1;
                }
            }
        }
        if let Some((images, example)) = missing {
            let message = format!(
                "{}: {} that it lists {} not among the sources, such as {:?}",
                printable_path(path),
                plural(images, "image"),
                if images == 1 { "is" } else { "are" },
                printable(&example)
            );
            let warning = Warning::new("annotated-images-missing", message).with("path", path);
            warnings.push(warning.with("images", images).with("example", example));
        }
    }
    if let (true, true, Some(path)) = (has_crowds, has_difficult, paths.first()) {
        let what =
            "some annotations have boxes of COCO with iscrowd, and others of Pascal VOC with difficult";
        return Err(contradiction(what.to_owned(), path).help("convert them separately"));
    }
    let mut files = HashSet::new();
    let mut results = FolderResults {
        found: &mut found,
        images,
        sources,
        class_names: &class_names,
        paths,
        files: &mut files,
        warnings: &mut warnings,
    };
    for folder in folders {
        hashes.push(folder.add_to(&mut results)?);
    }
    let mut fields = Vec::new();
    if !class_names.is_empty() {
        let crowds = has_crowds.then_some(BOX_CROWDS);
        fields = fields_of_boxes(crowds.into_iter().chain(has_difficult.then_some(DIFFICULT)));
    }
    let per_box = fields.len();
    if has_captions {
        fields.push(Field::nullable(CAPTIONS, FieldType::Json));
    }
    let is_unknown = |(_, found): &(SourceFile, &FoundAnnotations)| {
        found.boxes.is_none() && found.captions.is_none() && found.defect.is_none()
    };
    let mut unknown = images.iter().zip(&found).filter(is_unknown);
    if let Some((first, _)) = unknown.next() {
        let (images, example) = (1 + unknown.count() as u64, first.origin);
        let message = format!(
            "{} without annotations, such as {:?}: the fields of annotations are null there",
            plural(images, "image"),
            printable(&example)
        );
        let warning = Warning::new("images-not-annotated", message);
        warnings.push(warning.with("images", images).with("example", example));
    }
    let detail = |found: FoundAnnotations| {
        let mut values = vec![Value::Null; per_box];
        if has_captions {
            let text = found.captions.and_then(|captions| serde_json::to_string(&captions).ok());
            values.push(text.map_or(Value::Null, |text| Value::Text(text.into())));
        }
        Detail {
            defect: found.defect.map(Box::new),
            label: None,
            values: values.into(),
            boxes: found.boxes.map(|(_, boxes)| Box::new(boxes)),
        }
    };
    let content = match hashes[..] {
        [one] => one,
        _ => xxh3_128(&hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<_>>()),
    };
    let details = found.into_iter().map(detail).collect();
    Ok(AnnotatedImages { details, fields, class_names, content, files, warnings })
}

/// Adds what a COCO file, which is the path at position `at`, says about an image.
fn add_entry(found: &mut FoundAnnotations, entry: CocoEntry, at: usize, paths: &[PathBuf]) -> Result<()> {
    let twice = |found: &FoundAnnotations| found.boxes.as_ref().is_some_and(|(other, _)| *other == at);
    if twice(found) {
        let message = format!("the annotations list {:?} twice", printable(&entry.name));
        found.defect.get_or_insert(Reject::new(RejectCode::AnnotationMismatch, message));
        return Ok(());
    }
    if let Some(boxes) = entry.boxes {
        add_boxes(found, boxes, at, paths, &entry.name)?;
    }
    if let Some(captions) = entry.captions {
        found.captions.get_or_insert_default().extend(captions);
    }
    if let Some(defect) = entry.defect {
        found.defect.get_or_insert(defect);
    }
    Ok(())
}

/// Returns the fields of images with boxes and classes. `numbers` are the names of lists with an integer per box.
pub(crate) fn fields_of_boxes<'a>(numbers: impl Iterator<Item = &'a str>) -> Vec<Field> {
    let boxes = [Field::nullable(BOXES, FieldType::Boxes), Field::nullable(BOX_LABELS, FieldType::BoxLabels)];
    boxes.into_iter().chain(numbers.map(|name| Field::nullable(name, FieldType::BoxInts))).collect()
}
