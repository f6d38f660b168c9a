//! The images of COCO files with their annotations, and the classes of all files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use super::coco::{CocoBox, CocoCategory, CocoFile, CocoId};
use super::found::{NamedClasses, OPTION, contradiction, shown};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::printable::{printable, printable_path};
use crate::sample::{Reject, RejectCode};
use crate::source::list::boxes::{BoxExtras, BoxList, ImageBoxes};
use crate::warning::Warning;

/// Returns the names of the categories of all files, or `classes` if given: in the order of their ids if the files agree about
/// these, otherwise in the order of the files. Returns `None` if no file has boxes.
pub(super) fn coco_classes(
    files: &[(usize, &Path, CocoFile)],
    classes: Option<&[String]>,
    warnings: &mut Vec<Warning>,
) -> Result<NamedClasses> {
    let (mut by_id, mut by_name) = (BTreeMap::new(), HashMap::new());
    let (mut in_order, mut renumbered) = (Vec::new(), None);
    let boxed = || files.iter().filter(|(_, _, file)| file.has_boxes());
    for (_, path, file) in boxed() {
        let own = categories(file, path, files)?;
        for (&id, &name) in &own {
            let other_name = *by_id.entry(id).or_insert(name) != name;
            if !by_name.contains_key(name) {
                in_order.push(name);
            }
            let other_id = *by_name.entry(name).or_insert(id) != id;
            if other_name || other_id {
                renumbered.get_or_insert((*path, name));
            }
        }
    }
    let Some((_, path, _)) = boxed().next() else { return Ok(None) };
    let names: Vec<String> = match renumbered {
        None => by_id.values().map(|name| (*name).to_owned()).collect(),
        Some((path, name)) => {
            let message = format!(
                "{}: the ids of its categories differ from those of the files before it, such as that of {:?}: categories \
                 are joined by name",
                printable_path(path),
                printable(name)
            );
            let warning = Warning::new("categories-renumbered", message);
            warnings.push(warning.with("path", path).with("category", name));
            in_order.into_iter().map(str::to_owned).collect()
        }
    };
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

/// Returns the ids and names of the categories of a file, which is one of `files`. Of several ids with one name, only the one
/// that annotations have is returned: some programs list the group of all categories as one more.
fn categories<'f>(
    file: &'f CocoFile,
    path: &Path,
    files: &[(usize, &Path, CocoFile)],
) -> Result<BTreeMap<&'f CocoId, &'f str>> {
    let mut names: BTreeMap<&CocoId, &str> = BTreeMap::new();
    for category in &file.categories {
        let (id, name) = (&category.id, category.name.as_str());
        let known = *names.entry(id).or_insert(name);
        if known != name {
            let what = format!("the category {id} is {:?} and {:?}", printable(name), printable(known));
            return Err(contradiction(what, path));
        }
    }
    let mut ids: HashMap<&str, &CocoId> = HashMap::new();
    let mut twice: Vec<(&CocoId, &CocoId)> = Vec::new();
    for (id, name) in &names {
        if let Some(known) = ids.insert(name, id) {
            twice.push((known, id));
        }
    }
    if twice.is_empty() {
        return Ok(names);
    }
    let used: HashSet<&CocoId> = file.annotations.iter().filter_map(|a| a.category_id.as_ref()).collect();
    let used_anywhere: HashSet<&CocoId> = files
        .iter()
        .flat_map(|(_, _, file)| &file.annotations)
        .filter_map(|a| a.category_id.as_ref())
        .collect();
    for (one, other) in twice {
        if used.contains(one) && used.contains(other) {
            let name = printable(names.get(one).copied().unwrap_or_default());
            let what = format!("the categories {one} and {other} are both called {name:?}");
            return Err(contradiction(what, path));
        }
        let is_used = |id: &CocoId| (used.contains(id), used_anywhere.contains(id));
        names.remove(if is_used(other) > is_used(one) { one } else { other });
    }
    Ok(names)
}

/// The image of a COCO file, with its annotations.
pub(super) struct CocoEntry {
    pub(super) name: String,
    pub(super) boxes: Option<ImageBoxes>,
    pub(super) captions: Option<Vec<String>>,
    pub(super) defect: Option<Reject>,
}

/// Returns the images of a COCO file with their annotations.
pub(super) fn coco_entries(
    file: CocoFile,
    path: &Path,
    classes: &[String],
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CocoEntry>> {
    let (has_boxes, has_captions) = (file.has_boxes(), file.has_captions());
    let ordinals: HashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let class = |category: &CocoCategory| Some((category.id.clone(), *ordinals.get(category.name.as_str())?));
    let labels: HashMap<CocoId, u32> = file.categories.iter().filter_map(class).collect();
    let mut by_id: HashMap<CocoId, usize> = HashMap::with_capacity(file.images.len());
    let mut entries: Vec<CocoEntry> = Vec::with_capacity(file.images.len());
    for image in file.images {
        let size = image.width.zip(image.height);
        let boxes = ImageBoxes {
            size,
            are_fractions: false,
            is_upright: false,
            list: BoxList::default(),
            extras: BoxExtras::default(),
        };
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
        if let (Some(captions), Some(caption)) = (&mut entry.captions, &annotation.caption) {
            captions.push(caption.clone());
        }
        let (Some(boxes), Some(CocoBox(numbers))) = (&mut entry.boxes, &annotation.bbox) else { continue };
        annotation.add_extras(&mut boxes.extras);
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
        let message = format!(
            "{}: {} of images that it does not list {} left out, such as the image with the id {}",
            printable_path(path),
            plural(annotations, "annotation"),
            if annotations == 1 { "is" } else { "are" },
            printable(&example)
        );
        let warning = Warning::new("annotations-without-image", message).with("path", path);
        warnings.push(warning.with("annotations", annotations).with("example", example));
    }
    Ok(entries)
}
