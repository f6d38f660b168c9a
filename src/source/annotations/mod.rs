//! Annotations of images in files of their own: boxes with classes, and captions.
//!
//! They are read when the run is planned, because the classes depend on all of them. Damage that concerns one image rejects
//! this image; everything else is an error of the option `annotations`.

mod coco;
mod names;
mod yolo;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use self::coco::{CocoBox, CocoFile, CocoId};
use self::names::images_named;
use super::file_list::FileList;
use super::labels::class_ordinals;
use super::named_files::Detail;
use super::read_file;
use super::source_file::SourceFile;
use super::warning::Warning;
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::printable::{printable, printable_path};
use crate::sample::{PixelBox, Reject, RejectCode, Value};
use crate::schema::{BOX_CROWDS, BOX_LABELS, BOXES, Field, FieldType};
use crate::storage::stat;

/// Name of the field with the captions of an image.
const CAPTIONS: &str = "captions";
const OPTION: &str = "annotations";

/// The boxes of an image, as its annotations state them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageBoxes {
    /// Width and height of the image according to its annotations.
    pub size: Option<(u32, u32)>,
    /// Whether the numbers are fractions of the size rather than pixels.
    pub are_fractions: bool,
    /// The boxes.
    pub list: BoxList,
    /// Number of boxes that are those around polygons.
    pub polygons: u64,
}

/// Boxes with their classes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoxList {
    /// x and y of the top left and bottom right corners.
    #[serde(serialize_with = "to_bits", deserialize_with = "from_bits")]
    pub boxes: Vec<PixelBox>,
    /// The class of each box.
    pub labels: Vec<u32>,
    /// For each of the first boxes, 1 if it is around a crowd. The others are not.
    pub crowds: Vec<i64>,
}

impl BoxList {
    fn push(&mut self, corners: PixelBox, label: u32, crowd: i64) {
        self.boxes.push(corners);
        self.labels.push(label);
        if crowd != 0 {
            self.crowds.resize(self.labels.len() - 1, 0);
            self.crowds.push(crowd);
        }
    }
}

impl ImageBoxes {
    fn fractions(list: BoxList) -> Self {
        Self { size: None, are_fractions: true, list, polygons: 0 }
    }
}

/// Numbers as their bits, because JSON has no infinities.
fn to_bits<S: Serializer>(boxes: &[PixelBox], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(boxes.iter().map(|corners| corners.map(f32::to_bits)))
}

fn from_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PixelBox>, D::Error> {
    let bits = Vec::<[u32; 4]>::deserialize(deserializer)?;
    Ok(bits.into_iter().map(|corners| corners.map(f32::from_bits)).collect())
}

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

/// What was found about one image.
#[derive(Debug, Default)]
struct FoundAnnotations {
    /// The boxes, and the position of the path that they come from.
    boxes: Option<(usize, ImageBoxes)>,
    captions: Option<Vec<String>>,
    defect: Option<Reject>,
}

/// The image of a COCO file, with its annotations.
struct CocoEntry {
    name: String,
    boxes: Option<ImageBoxes>,
    captions: Option<Vec<String>>,
    defect: Option<Reject>,
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
            folders.push((at, path.as_path()));
            continue;
        }
        let bytes = read_file(path).map_err(|e| e.of_option(OPTION))?;
        hashes.push(xxh3_128(&bytes));
        coco.push((at, path.as_path(), CocoFile::parse(&bytes, path)?));
    }
    let mut class_names = coco_classes(&coco, classes)?;
    for (_, folder) in &folders {
        let names = match classes {
            Some(classes) => classes.to_vec(),
            None => yolo_classes(folder)?,
        };
        match &class_names {
            Some((known, from)) if *known != names => {
                let what = format!(
                    "its classes differ from those of {}: {} and {}",
                    printable_path(from),
                    shown(&names),
                    shown(known)
                );
                return Err(contradiction(what, folder));
            }
            Some(_) => {}
            None => class_names = Some((names, folder.to_path_buf())),
        }
    }
    let class_names = class_names.map(|(names, _)| names).unwrap_or_default();
    class_ordinals(&class_names).map_err(|e| e.of_option(OPTION))?;
    let mut found: Vec<FoundAnnotations> = Vec::new();
    found.resize_with(images.len(), FoundAnnotations::default);
    let mut warnings = Vec::new();
    let (mut has_crowds, mut has_captions) = (false, false);
    for (at, path, file) in coco {
        (has_crowds, has_captions) = (has_crowds || file.has_boxes(), has_captions || file.has_captions());
        let entries = coco_entries(file, path, &class_names, &mut warnings)?;
        let names = entries.iter().map(|entry| entry.name.as_str());
        let matches = images_named(names, path, images, sources)?;
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
            warnings.push(Warning::AnnotatedImagesMissing { path: path.to_owned(), images, example });
        }
    }
    let mut files = HashSet::new();
    for (at, folder) in &folders {
        let content =
            add_folder(&mut found, (*at, folder), images, sources, (&class_names, paths), &mut files)?;
        hashes.push(content);
    }
    let mut fields = Vec::new();
    if !class_names.is_empty() {
        fields.push(Field::nullable(BOXES, FieldType::Boxes));
        fields.push(Field::nullable(BOX_LABELS, FieldType::BoxLabels));
        if has_crowds {
            fields.push(Field::nullable(BOX_CROWDS, FieldType::BoxInts));
        }
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
        warnings.push(Warning::ImagesNotAnnotated { images, example });
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

/// The class names, and the path that they come from.
type NamedClasses = Option<(Vec<String>, PathBuf)>;

/// Returns the names of the categories of all files, in the order of their ids, or `classes` if given. Returns `None` if no
/// file has boxes.
fn coco_classes(files: &[(usize, &Path, CocoFile)], classes: Option<&[String]>) -> Result<NamedClasses> {
    let mut names: BTreeMap<&CocoId, (&str, &Path)> = BTreeMap::new();
    let mut ids: HashMap<&str, &CocoId> = HashMap::new();
    let boxed = || files.iter().filter(|(_, _, file)| file.has_boxes());
    for (_, path, file) in boxed() {
        for category in &file.categories {
            let (id, name) = (&category.id, category.name.as_str());
            let (known, from) = names.entry(id).or_insert((name, path));
            if *known != name {
                let what = format!(
                    "the category {id} is {:?}, but {:?} in {}",
                    printable(name),
                    printable(known),
                    printable_path(from)
                );
                return Err(contradiction(what, path));
            }
            let known = ids.entry(name).or_insert(id);
            if *known != id {
                let what = format!("the categories {known} and {id} are both called {:?}", printable(name));
                return Err(contradiction(what, path));
            }
        }
    }
    let Some((_, path, _)) = boxed().next() else { return Ok(None) };
    let names: Vec<String> = names.values().map(|(name, _)| (*name).to_owned()).collect();
    if names.is_empty() {
        return Err(Error::usage("the file has boxes, but no categories").of_option(OPTION).at_path(path));
    }
    let Some(classes) = classes else { return Ok(Some((names, path.to_path_buf()))) };
    if let Some(name) = names.iter().find(|name| !classes.contains(name)) {
        let what = format!("the category {:?} is not among `classes`: {}", printable(name), shown(classes));
        return Err(Error::usage(what)
            .of_option(OPTION)
            .at_path(path)
            .help("list all categories, or leave out `classes`"));
    }
    Ok(Some((classes.to_vec(), path.to_path_buf())))
}

/// Returns the class names of a folder of labels.
fn yolo_classes(folder: &Path) -> Result<Vec<String>> {
    yolo::class_names(folder)?.ok_or_else(|| {
        Error::usage("there are no class names for the labels in this folder")
            .of_option(OPTION)
            .at_path(folder)
            .help(
                "put a data.yaml or classes.txt in it or beside it, or give the names with `classes`; COCO annotations are .json \
                 files, named one by one",
            )
    })
}

/// Returns the images of a COCO file with their annotations.
fn coco_entries(
    file: CocoFile,
    path: &Path,
    classes: &[String],
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CocoEntry>> {
    let (has_boxes, has_captions) = (file.has_boxes(), file.has_captions());
    let ordinals: HashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let class =
        |category: &coco::CocoCategory| Some((category.id.clone(), *ordinals.get(category.name.as_str())?));
    let labels: HashMap<CocoId, u32> = file.categories.iter().filter_map(class).collect();
    let mut by_id: HashMap<CocoId, usize> = HashMap::with_capacity(file.images.len());
    let mut entries: Vec<CocoEntry> = Vec::with_capacity(file.images.len());
    for image in file.images {
        let size = image.width.zip(image.height);
        let boxes = ImageBoxes { size, are_fractions: false, list: BoxList::default(), polygons: 0 };
        if let Some(other) = by_id.insert(image.id, entries.len()) {
            let what = format!(
                "two images have the same id: {:?} and {:?}",
                printable(&entries[other].name),
                printable(&image.file_name)
            );
            return Err(contradiction(what, path));
        }
        entries.push(CocoEntry {
            name: image.file_name,
            boxes: has_boxes.then_some(boxes),
            captions: has_captions.then(Vec::new),
            defect: None,
        });
    }
    let mut orphans = None;
    for annotation in file.annotations {
        let Some(entry) = by_id.get(&annotation.image_id).and_then(|&at| entries.get_mut(at)) else {
            let (count, _) = orphans.get_or_insert_with(|| (0, annotation.image_id.to_string()));
            *count += 1;
            continue;
        };
        if let (Some(captions), Some(caption)) = (&mut entry.captions, annotation.caption) {
            captions.push(caption);
        }
        let (Some(boxes), Some(CocoBox(numbers))) = (&mut entry.boxes, annotation.bbox) else { continue };
        let label = annotation.category_id.as_ref().map(|id| labels.get(id).copied());
        let Some(Some(label)) = label else {
            let what = match annotation.category_id {
                Some(id) => format!("a box has the category {id}, which the annotations do not define"),
                None => "a box has no category".to_owned(),
            };
            entry.defect.get_or_insert(Reject::new(RejectCode::UnknownLabel, what));
            continue;
        };
        // Boxes without four numbers are dropped, and counted, when the image is converted.
        let corners = numbers.map_or([f32::NAN; 4], |[x, y, width, height]| {
            [x, y, x + width, y + height].map(|number| number as f32)
        });
        boxes.list.push(corners, label, annotation.iscrowd.0);
    }
    for list in entries.iter_mut().filter_map(|entry| Some(&mut entry.boxes.as_mut()?.list)) {
        list.boxes.shrink_to_fit();
        list.labels.shrink_to_fit();
    }
    if let Some((annotations, example)) = orphans {
        warnings.push(Warning::AnnotationsWithoutImage { path: path.to_owned(), annotations, example });
    }
    Ok(entries)
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

fn add_boxes(
    found: &mut FoundAnnotations,
    boxes: ImageBoxes,
    at: usize,
    paths: &[PathBuf],
    name: &str,
) -> Result<()> {
    if let Some((other, _)) = &found.boxes {
        let other = paths.get(*other).map(|path| printable_path(path)).unwrap_or_default();
        let what = format!("the image {:?} has boxes here and in {other}", printable(name));
        let path = paths.get(at).map_or(Path::new(""), PathBuf::as_path);
        return Err(contradiction(what, path));
    }
    found.boxes = Some((at, boxes));
    Ok(())
}

/// Adds the labels in a folder, which is the path at the given position. Adds the files that are read to `files`, and returns
/// the hash of their content.
fn add_folder(
    found: &mut [FoundAnnotations],
    (at, folder): (usize, &Path),
    images: &FileList,
    sources: &[SourceSpec],
    (class_names, paths): (&[String], &[PathBuf]),
    files: &mut HashSet<PathBuf>,
) -> Result<u128> {
    let mut hash = Xxh3::new();
    let mut read = 0;
    for (image, found) in images.iter().zip(found) {
        let relative = match image.is_named() {
            true => PathBuf::from(image.name(sources)),
            false => image.relative.clone(),
        };
        let mut list = Ok(ImageBoxes::fractions(BoxList::default()));
        for path in yolo::label_paths(folder, &relative) {
            if !stat(&path)?.is_some_and(|meta| meta.is_file()) {
                continue;
            }
            let bytes = read_file(&path).map_err(|e| e.of_option(OPTION))?;
            hash.update(image.origin.as_bytes());
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
            list = yolo::parse(bytes, class_names.len());
            files.insert(std::path::absolute(&path).unwrap_or(path));
            read += 1;
            break;
        }
        match list {
            Ok(boxes) => add_boxes(found, boxes, at, paths, &image.origin)?,
            Err(reject) => {
                found.defect.get_or_insert(reject);
            }
        }
    }
    if read == 0 {
        return Err(Error::usage("no file in this folder is beside or parallel to an image")
            .of_option(OPTION)
            .at_path(folder)
            .help(
                "the labels of SRC/train/a.jpg are in train/a.txt of this folder; a folder named images in the path of an image \
                 may be labels in that of its labels; COCO annotations are .json files, named one by one",
            ));
    }
    Ok(hash.digest128())
}

/// Returns the first names, for messages.
fn shown(names: &[String]) -> String {
    let more = if names.len() > 5 { format!(", … ({} in all)", names.len()) } else { String::new() };
    let names: Vec<String> = names.iter().take(5).map(|name| format!("{:?}", printable(name))).collect();
    format!("{}{more}", names.join(", "))
}

fn contradiction(what: String, path: &Path) -> Error {
    Error::usage(what)
        .of_option(OPTION)
        .at_path(path)
        .help("the annotations contradict each other: leave out or correct one of them")
}
