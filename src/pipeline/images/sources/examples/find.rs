//! Search for TFRecord files with images in the sources, and for the features that are images, labels, boxes and fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::records::{Example, Feature, NextRecord, Records};
use super::{BoxFeatures, Examples, SIDES, classes_in, holds_examples};
use crate::error::{Error, Result};
use crate::options::default_threads;
use crate::pipeline::images::found::{FoundContainers, FoundImages};
use crate::pipeline::images::image_field_names::{MemberField, is_mask_name};
use crate::pipeline::images::image_fields::{
    ImageInspector, ImageRoles, begins_as_image, columns_left_out, main_image_chosen, main_rank,
    type_in_column,
};
use crate::pipeline::images::options::ImagesOptions;
use crate::pipeline::images::sources::Containers;
use crate::recipe::{ImageFields, is_reserved};
use crate::schema::{BOX_CROWDS, FieldType, IMAGE, LABEL};
use crate::source::io::planned::read_file;
use crate::source::items::annotations::fields_of_boxes;
use crate::source::items::box_fields::boxes_not_moved;
use crate::source::items::metadata::columns::KeptField;
use crate::source::items::metadata::labels::Labels;
use crate::source::list::file_list::FileList;
use crate::source::list::source_file::SourceFile;
use crate::source::names::layout::FolderLayout;
use crate::source::table::missing_field::{missing, quoted, suggestion};
use crate::storage::{ObjectUrl, folder_of, stat};
use crate::transform::image::has_image_extension;
use crate::warning::Warning;
use crate::writer::stop::Stop;
use crate::writer::workers::Workers;

/// Number of examples that are inspected at the start of the first file, and of each other one.
const FIRST_EXAMPLES: u64 = 1024;
const OTHER_EXAMPLES: u64 = 16;
/// Number of examples whose images are inspected.
const INSPECTED_IMAGES: usize = 16;
/// Names of features with the main image, in the order of preference.
const MAIN_NAMES: [&str; 3] = ["image/encoded", IMAGE, "image_raw"];
/// Names of features with the label of an image: of TensorFlow Datasets, and names and numbers of TensorFlow's models.
const LABEL_NAMES: [&str; 3] = [LABEL, "image/class/text", "image/class/label"];
/// Features of objects, which have as many values as an image has boxes.
const OBJECTS: &str = "image/object/";
/// The file in which TensorFlow Datasets lists the names of the feature `label`.
const LABEL_LIST: &str = "label.labels.txt";

/// What the inspected examples show.
#[derive(Default)]
struct SeenFeatures {
    features: BTreeMap<String, SeenFeature>,
    /// The first examples.
    first: Vec<Example>,
}

/// What the inspected values of a feature have in common.
#[derive(Default)]
struct SeenFeature {
    bytes: bool,
    floats: bool,
    ints: bool,
    is_list: bool,
    is_no_text: bool,
    /// Number of values, and of those that are images.
    values: usize,
    images: usize,
}

impl SeenFeatures {
    fn add(&mut self, example: Example) {
        for (name, feature) in example.iter() {
            let seen = self.features.entry(name.to_owned()).or_default();
            seen.is_list |= feature.len() != 1;
            match feature {
                Feature::Floats(_) => seen.floats = true,
                Feature::Ints(_) => seen.ints = true,
                Feature::Bytes(values) => {
                    seen.bytes = true;
                    for value in values {
                        let is_image = begins_as_image(value, "");
                        seen.values += 1;
                        seen.images += usize::from(is_image);
                        seen.is_no_text |= is_image || std::str::from_utf8(value).is_err();
                    }
                }
            }
        }
        if self.first.len() < INSPECTED_IMAGES {
            self.first.push(example);
        }
    }
}

impl SeenFeatures {
    fn names(&self) -> Vec<&str> {
        self.features.keys().map(String::as_str).collect()
    }

    /// Returns the feature that `option` names.
    fn named(&self, option: &'static str, name: &str) -> Result<&SeenFeature> {
        self.features.get(name).ok_or_else(|| missing("feature", option, name, &self.names()))
    }
}

impl SeenFeature {
    fn is_image(&self) -> bool {
        self.images > 0 && 2 * self.images >= self.values
    }

    /// Returns the type of a field with the values; `None` if they have no common one.
    fn ty(&self) -> Option<FieldType> {
        match self {
            Self { bytes: true, floats: false, ints: false, is_no_text: true, .. } => None,
            Self { is_list: true, bytes, floats, ints, .. }
                if u8::from(*bytes) + u8::from(*floats) + u8::from(*ints) == 1 =>
            {
                Some(FieldType::Json)
            }
            Self { bytes: true, floats: false, ints: false, .. } => Some(FieldType::String),
            Self { bytes: false, floats: true, ints: false, .. } => Some(FieldType::Float32),
            Self { bytes: false, floats: false, ints: true, .. } => Some(FieldType::Int64),
            _ => None,
        }
    }
}

/// Finds the TFRecord files with images among `files`. Returns `None` if there are none.
///
/// # Errors
///
/// Fails if a file cannot be read, or options name features that there are not.
pub(in crate::pipeline::images) fn find_examples(
    files: &FileList,
    options: &ImagesOptions,
) -> Result<Option<FoundContainers>> {
    let follow = options.recipe.follow_symlinks;
    let (mut seen, mut sound, mut others) = (SeenFeatures::default(), Vec::new(), BTreeSet::new());
    for (at, file) in files.iter().enumerate().filter(|(_, file)| holds_examples(file, &options.sources)) {
        let mut records = Records::open(&file.planned(&options.sources, follow))?;
        if !records.starts_with_record()? {
            // The names of other files may end like those of shards. A damaged TFRecord file is rejected with the others.
            others.insert(at);
            continue;
        }
        let wanted = if sound.is_empty() { FIRST_EXAMPLES } else { OTHER_EXAMPLES };
        for _ in 0..wanted {
            let Some((_, record)) = records.read()? else { break };
            let NextRecord::Data(data) = record else { continue };
            if let Ok(example) = Example::parse(data) {
                seen.add(example);
            }
        }
        sound.push(file);
    }
    // Files without a sound start are rejected, unless only the number of a shard says what they are.
    let is_sure =
        |at: &usize| files.get(*at).is_some_and(|file| file.origin.to_ascii_lowercase().contains(".tf"));
    let has_damaged = others.iter().any(is_sure);
    others.retain(|at| !is_sure(at));
    let is_item =
        |f: SourceFile| has_image_extension(&f.origin) || f.archive_kind(&options.sources).is_some();
    let has_others = || files.iter().any(is_item);
    let Some(first) = sound.first().filter(|_| !seen.features.is_empty()) else {
        let containers = Containers::Examples(Examples::default());
        let images = FoundImages { containers, ..FoundImages::default() };
        let is_damaged = has_damaged || !sound.is_empty();
        return Ok((is_damaged && !has_others()).then_some(FoundContainers { images, others }));
    };
    let path = first.path(&options.sources);
    let at_path = |e: Error| e.at_path(&path);
    let Some(chosen) = ChosenImages::of(&seen, &options.recipe.image_fields).map_err(at_path)? else {
        if has_others() {
            return Ok(None);
        }
        let names = seen.names();
        let what = format!(
            "no feature of the examples in this TFRecord file is an image; there are {}",
            quoted(&names)
        );
        return Err(at_path(
            Error::usage(what).help("`image_fields NAME` names one; pixels without a header cannot be read"),
        ));
    };
    found(&seen, &sound, chosen, options)
        .map_err(at_path)
        .map(|images| Some(FoundContainers { images, others }))
}

/// The features with images.
struct ChosenImages {
    main: String,
    fields: Vec<MemberField>,
    left_out: Vec<String>,
    warning: Option<Warning>,
}

impl ChosenImages {
    /// Chooses the main image and the further ones. Returns `None` if no feature has images.
    fn of(seen: &SeenFeatures, option: &ImageFields) -> Result<Option<Self>> {
        let listed: &[_] = if let ImageFields::Listed(listed) = option { listed } else { &[] };
        let is_candidate = |seen: &SeenFeature| seen.is_image() && !seen.is_list;
        let mut names: Vec<&str> = seen
            .features
            .iter()
            .filter(|(_, seen)| is_candidate(seen))
            .map(|(name, _)| name.as_str())
            .collect();
        for image in listed {
            match seen.features.get(&image.member) {
                Some(seen) if seen.bytes && !seen.is_list => {}
                _ if names.is_empty() => return Ok(None),
                _ => {
                    let what = format!(
                        "there is no feature {:?} with one image in each example; those with one are {}",
                        image.member,
                        quoted(&names)
                    );
                    return Err(Error::usage(what).of_option("image_fields").help(suggestion(
                        "image_fields",
                        &image.member,
                        &names,
                    )));
                }
            }
            if !names.contains(&image.member.as_str()) {
                names.push(&image.member);
            }
        }
        let of_list = |name: &str| listed.iter().find(|image| image.member == name);
        let rank = |name: &&str| {
            let named = of_list(name).is_some_and(|image| image.name.as_deref() == Some(IMAGE));
            let known = MAIN_NAMES.iter().position(|known| known == name).unwrap_or(MAIN_NAMES.len());
            let last = name.rsplit('/').next().unwrap_or_default();
            (!named, of_list(name).is_some(), known, main_rank(last), is_mask_name(name), (*name).to_owned())
        };
        names.sort_by_key(rank);
        let Some((&main, further)) = names.split_first() else { return Ok(None) };
        let is_usual = MAIN_NAMES.contains(&main)
            || main_rank(main.rsplit('/').next().unwrap_or_default()) < main_rank("")
            || of_list(main).is_some();
        let is_kept = |name: &&&str| match option {
            ImageFields::Auto => true,
            ImageFields::None => false,
            ImageFields::Listed(_) => of_list(name).is_some(),
        };
        let (kept, dropped): (Vec<&str>, Vec<&str>) = further.iter().partition(|name| is_kept(name));
        let inspector = ImageInspector::new()?;
        let mut fields = Vec::new();
        for name in kept {
            let image = |example: &Example, name: &str| match example.get(name) {
                Some(Feature::Bytes(values)) => values.first().cloned(),
                _ => None,
            };
            let look = |bytes: Bytes| inspector.look(&bytes);
            let looks: Vec<_> = seen
                .first
                .iter()
                .filter_map(|example| Some((look(image(example, name)?), image(example, main).map(look))))
                .collect();
            let found = type_in_column(name, looks.iter().map(|(image, main)| (image, main.as_ref())));
            let listed = of_list(name);
            let ty = listed.and_then(|image| image.ty).unwrap_or(found);
            let given = listed.and_then(|image| image.name.clone());
            let stem = name.strip_suffix("/encoded").unwrap_or(name);
            fields.push(field(name, given, stem, ty));
        }
        let others =
            || fields.iter().map(|field| field.member.clone()).chain(dropped.iter().map(|n| (*n).to_owned()));
        let is_unclear = !is_usual && others().any(|name| !is_mask_name(&name));
        let warning = is_unclear.then(|| main_image_chosen(main, &others().collect::<Vec<_>>()));
        let left_out = dropped.into_iter().map(str::to_owned).collect();
        Ok(Some(Self { main: main.to_owned(), fields, left_out, warning }))
    }
}

/// Returns the field of the feature `member`, with a name that the user has `given`, or one that follows from `stem`.
fn field(member: &str, given: Option<String>, stem: &str, ty: FieldType) -> MemberField {
    let name = given.unwrap_or_else(|| {
        let name = stem.replace('/', "_");
        if is_reserved(&name) { format!("{name}_{}", ty.name()) } else { name }
    });
    MemberField { name, member: member.to_owned(), ty }
}

/// Returns the fields of the features that `keep_fields` names.
fn kept_members(seen: &SeenFeatures, kept: &[KeptField]) -> Result<Vec<MemberField>> {
    let of = |keep: &KeptField| {
        let feature = seen.named("keep_fields", &keep.member)?;
        let ty = keep.ty.or_else(|| feature.ty()).unwrap_or(FieldType::Binary);
        Ok(field(&keep.member, keep.name.clone(), &keep.member, ty))
    };
    kept.iter().map(of).collect()
}

/// Returns the images of `files` with the features that belong to them.
fn found(
    seen: &SeenFeatures,
    files: &[SourceFile],
    chosen: ChosenImages,
    options: &ImagesOptions,
) -> Result<FoundImages> {
    let ChosenImages { main, fields: image_fields, mut left_out, warning } = chosen;
    let mut images = FoundImages { warnings: warning.into_iter().collect(), ..FoundImages::default() };
    let mut used: BTreeSet<String> =
        image_fields.iter().map(|field| field.member.clone()).chain([main.clone()]).collect();
    let (recipe, given) = (&options.recipe, options.recipe.classes.as_deref());
    if let Some(name) = &recipe.label_field {
        seen.named("label_field", name)?;
    }
    let takes_classes = matches!(recipe.layout, FolderLayout::Auto | FolderLayout::Flat);
    let objects = Objects::of(seen);
    // A dataset has one list of classes.
    let boxes = objects.as_ref().filter(|_| takes_classes && recipe.label_field.is_none());
    let label = match (&recipe.label_field, boxes) {
        (Some(name), _) => Some(name.as_str()),
        (None, Some(_)) => None,
        (None, None) => LABEL_NAMES.into_iter().find(|name| seen.features.contains_key(*name)),
    };
    let declared = if label == Some(LABEL) { declared_classes(files, options)? } else { None };
    let mut box_features = None;
    if let Some(objects) = boxes {
        let labels = labels_of(files, objects.class, options)?;
        let classes = Labels::of(labels.keys().map(String::as_str), given)?;
        check_start(&classes, given, objects.class, &labels)?;
        images.box_classes = classes.names().to_vec();
        let features = objects.features(classes);
        used.extend(objects.used().map(str::to_owned));
        images.fields.extend(features.fields.iter().cloned());
        box_features = Some(features);
    } else if objects.is_some() || seen.features.keys().any(|name| name.ends_with("bbox")) {
        let field = seen
            .features
            .keys()
            .find(|name| name.ends_with("bbox"))
            .map_or("image/object/bbox", String::as_str);
        images.warnings.push(boxes_not_moved(field));
    }
    if let Some(name) = label {
        used.insert(name.to_owned());
        let classes = match (&declared, given) {
            (Some(_), Some(given)) => Labels::new(given.to_vec(), false)?,
            (Some(declared), None) => Labels::new(declared.clone(), false)?,
            (None, given) => {
                let labels = labels_of(files, name, options)?;
                let classes = Labels::of(labels.keys().map(String::as_str), given)?;
                check_start(&classes, given, name, &labels)?;
                let of_class = |(label, at): (&String, &BTreeSet<usize>)| {
                    let class = classes.ordinal(label).ok()?;
                    Some(at.iter().map(move |at| (files[*at].clone(), class)).collect::<Vec<_>>())
                };
                images.labeled = labels.iter().filter_map(of_class).flatten().collect();
                classes
            }
        };
        images.labels_are_ordinals = classes.by_ordinal();
        images.class_names = Some(classes.into_names());
    }
    let mut members = Vec::new();
    if let Some(kept) = &recipe.keep_fields {
        members = kept_members(seen, kept)?;
    } else {
        for (name, seen) in seen.features.iter().filter(|(name, _)| !used.contains(*name)) {
            // The values of objects would not follow their boxes, some of which may be dropped.
            match seen.ty().filter(|_| boxes.is_none() || !name.starts_with(OBJECTS)) {
                Some(ty) => members.push(field(name, None, name, ty)),
                None => left_out.push(name.clone()),
            }
        }
    }
    if !left_out.is_empty() {
        images.warnings.push(columns_left_out(&left_out));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = members.iter().chain(&image_fields).find(|field| !names.insert(&field.name)) {
        return Err(Error::usage(format!("two features would be the field {:?}", twice.name))
            .of_option("keep_fields")
            .help(format!("choose a name: `keep_fields NAME={}`", twice.member)));
    }
    images.fields.extend(members.iter().chain(&image_fields).map(MemberField::field));
    images.described_members = if recipe.keep_fields.is_some() { members.clone() } else { Vec::new() };
    images.left_out = left_out;
    let is_described = main != MAIN_NAMES[0] || !image_fields.is_empty();
    images.roles = ImageRoles { main: is_described.then(|| main.clone()), fields: image_fields };
    images.containers = Containers::Examples(Examples {
        image: Some(main),
        members,
        label: label.map(str::to_owned),
        declared,
        boxes: box_features,
        known: seen.features.keys().cloned().collect(),
    });
    Ok(images)
}

/// The features of the objects in images, if they have the names of TensorFlow's Object Detection API.
struct Objects {
    class: &'static str,
    /// The feature that marks crowds or difficult objects, and its field.
    crowd: Option<(&'static str, &'static str)>,
    mask: Option<&'static str>,
}

impl Objects {
    fn of(seen: &SeenFeatures) -> Option<Self> {
        let has = |name: &&str| seen.features.contains_key(*name);
        let class = ["image/object/class/text", "image/object/class/label"].into_iter().find(has);
        let marks = [("image/object/is_crowd", BOX_CROWDS), ("image/object/difficult", "difficult")];
        let crowd = marks.into_iter().find(|(name, _)| has(name));
        let mask = Some("image/object/mask").filter(has);
        Some(Self { class: class.filter(|_| SIDES.iter().all(has))?, crowd, mask })
    }

    /// Returns the names of the features that are read.
    fn used(&self) -> impl Iterator<Item = &'static str> {
        SIDES.into_iter().chain([self.class]).chain(self.crowd.map(|(name, _)| name)).chain(self.mask)
    }

    fn features(&self, classes: Labels) -> BoxFeatures {
        let fields = fields_of_boxes(self.crowd.map(|(_, name)| name).into_iter());
        BoxFeatures {
            class: self.class.to_owned(),
            classes,
            crowd: self.crowd.map(|(feature, field)| (feature.to_owned(), field.to_owned())),
            mask: self.mask.map(str::to_owned),
            fields,
        }
    }
}

/// Returns the distinct classes in a feature, each with the positions of the files that have it. Reads all files.
///
/// # Errors
///
/// Fails if a file cannot be read. Damage is reported when the file is converted.
fn labels_of(
    files: &[SourceFile],
    name: &str,
    options: &ImagesOptions,
) -> Result<BTreeMap<String, BTreeSet<usize>>> {
    let all: Mutex<BTreeMap<String, BTreeSet<usize>>> = Mutex::default();
    let positions: Vec<usize> = (0..files.len()).collect();
    let workers = Workers::start(default_threads())?;
    workers.for_all(&positions, "reading the classes of TFRecord files", &Stop::default(), |&at| {
        let planned = files[at].planned(&options.sources, options.recipe.follow_symlinks);
        let (mut records, mut found) = (Records::open(&planned)?, BTreeSet::new());
        while let Some((_, record)) = records.read()? {
            let NextRecord::Data(data) = record else { continue };
            let Ok(example) = Example::parse(data) else { continue };
            let labels = example.get(name).and_then(|feature| classes_in(name, feature).ok());
            found.extend(labels.into_iter().flatten().filter(|label| !label.is_empty()));
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        for label in found {
            all.entry(label).or_default().insert(at);
        }
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Refuses `given` classes for numbers that count from 1, as in label maps: each would get the name of the next one.
fn check_start(
    classes: &Labels,
    given: Option<&[String]>,
    name: &str,
    labels: &BTreeMap<String, BTreeSet<usize>>,
) -> Result<()> {
    let Some(given) = given.filter(|_| classes.by_ordinal()) else { return Ok(()) };
    let has = |number: usize| labels.contains_key(&number.to_string());
    if has(0) || !has(given.len()) {
        return Ok(());
    }
    let what = format!(
        "the numbers in the feature {name:?} count from 1 to {}, and `classes` lists {} names, the first of which is that of 0",
        given.len(),
        given.len()
    );
    Err(Error::usage(what)
        .of_option("classes")
        .help("add a line at the start of the list for the number 0, such as background"))
}

/// Returns the names of labels that TensorFlow Datasets lists beside the files, if it does.
///
/// # Errors
///
/// Fails if the lists of several folders differ.
fn declared_classes(files: &[SourceFile], options: &ImagesOptions) -> Result<Option<Vec<String>>> {
    let mut declared: Option<(PathBuf, Vec<String>)> = None;
    let paths: BTreeSet<PathBuf> =
        files.iter().map(|file| folder_of(&file.path(&options.sources)).join(LABEL_LIST)).collect();
    for path in paths {
        if ObjectUrl::is_url(&path) || stat(&path)?.is_none() {
            continue;
        }
        let bytes = read_file(&path)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::usage("the list of labels is not UTF-8").at_path(&path))?;
        let names: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        match &declared {
            Some((other, known)) if *known != names => {
                let what = format!("the names of labels differ from those in {}", other.display());
                return Err(Error::usage(what).at_path(&path).help("convert the folders separately"));
            }
            Some(_) => {}
            None => declared = Some((path, names)),
        }
    }
    Ok(declared.map(|(_, names)| names))
}
