//! Names of images, class folders and lists that suggest another reading than the one that the layout gives them.
//!
//! The reading stays the one of `datasets`: these functions only find what a warning names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::doubtful_classes::or_no_labels;
use super::folder_words::{is_container, is_mask};
use super::labels::Folders;
use super::layout::SplitBy;
use super::split_levels::folders;
use crate::options::{SourceSpec, SplitName};
use crate::printable::printable;
use crate::source::list::file_list::{ChosenFiles, FileList};
use crate::source::list::source_file::SourceFile;
use crate::storage::ObjectUrl;
use crate::warning::{Warning, quoted};

/// Last words of the names of masks, and of other images that belong to the image whose name is the rest.
const MASK_ENDINGS: [&str; 16] = [
    "mask",
    "masks",
    "masklabel",
    "seg",
    "segm",
    "segmentation",
    "label",
    "labels",
    "labelids",
    "instanceids",
    "gt",
    "groundtruth",
    "matte",
    "trimap",
    "annotation",
    "depth",
];
/// The same for images rather than masks.
const CONTROL_ENDINGS: [&str; 5] = ["condlabel", "cond", "conditioning", "control", "canny"];
/// Characters before the last word of a name.
const SEPARATORS: [char; 4] = ['-', '_', '.', ' '];
/// Number of names per ending that are compared with those of images.
const MAX_NAMES: usize = 4096;

/// The last word of the names of masks or control images.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    /// With the character before it and the extension: `-masklabel.png`.
    text: String,
    is_control: bool,
}

/// Returns the part of the path of an image before its ending, and the ending, if it has one of a mask or control image.
fn ending(path: &Path) -> Option<(&str, Ending)> {
    let path = path.to_str()?;
    let name = &path[path.rfind('/').map_or(0, |slash| slash + 1)..];
    let stem = &name[..name.rfind('.')?];
    let at = stem.rfind(SEPARATORS).filter(|at| *at > 0)?;
    let word = stem[at + 1..].to_ascii_lowercase();
    let is_control = CONTROL_ENDINGS.contains(&&*word);
    let is_known = is_control || MASK_ENDINGS.contains(&&*word);
    let rest = &path[..path.len() - name.len() + at];
    is_known.then(|| (rest, Ending { text: name[at..].to_owned(), is_control }))
}

/// Warns if `images` are named like masks or control images of others beside them: `cat-masklabel.png` beside `cat.jpg`.
pub fn masks_beside(images: &ChosenFiles<'_>) -> Option<Warning> {
    // The hashes of the paths that images of the first masks of each ending have, without their extension.
    let mut wanted: BTreeMap<Ending, HashSet<u128>> = BTreeMap::new();
    let hash = |source: u32, stem: &str| xxh3_128_with_seed(stem.as_bytes(), source.into());
    for file in images.iter() {
        if let Some((stem, ending)) = ending(&file.relative) {
            let known = wanted.entry(ending).or_default();
            if known.len() < MAX_NAMES {
                known.insert(hash(file.source, stem));
            }
        }
    }
    let mut found: BTreeMap<Ending, String> = BTreeMap::new();
    for file in images.iter() {
        if wanted.is_empty() {
            break;
        }
        let Some(stem) = file.relative.to_str().and_then(|path| Some(path.rsplit_once('.')?.0)) else {
            continue;
        };
        let own = hash(file.source, stem);
        wanted.retain(|ending, stems| {
            let is_image = stems.contains(&own);
            if is_image {
                found.insert(ending.clone(), file.origin.clone());
            }
            !is_image
        });
    }
    let (_, image) = found.first_key_value()?;
    let image = image.clone();
    let pattern = |ending: &Ending| {
        let text = &ending.text;
        let word = text[1..].split('.').next().unwrap_or_default().to_ascii_lowercase();
        let kind = if ending.is_control { ":image" } else { "" };
        format!("{word}={{dir}}/{{stem}}{text}{kind}")
    };
    let endings: Vec<String> = found.keys().map(|ending| ending.text.clone()).collect();
    let companion = found.keys().map(pattern).collect::<Vec<_>>().join(",");
    let message = format!(
        "images whose names end with {} are converted like all others, although they are beside images with the same names, \
         such as {:?}; to make them fields, use `companion {companion}` (with ? at the end of a pattern if some images have \
         no such file)",
        quoted(&endings),
        printable(&image)
    );
    let warning = Warning::new("masks-beside-images", message).with("endings", endings);
    Some(warning.with("image", image).with("companion", companion))
}

/// Last words of the names of folders that are parts of one set, if a number or a letter follows.
const PARTS: [&str; 14] = [
    "part", "parts", "batch", "chunk", "shard", "fold", "volume", "vol", "disc", "disk", "section", "subset",
    "block", "piece",
];
/// The same, if a number follows: `images_001`.
const HOLDERS: [&str; 10] =
    ["images", "image", "imgs", "img", "photos", "pictures", "jpegs", "data", "folder", "dir"];

/// Returns what precedes the number or letter in the name of a part of a set, in lower case.
fn part_of(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let (rest, is_number) = match rest.len() < name.len() {
        true => (rest, true),
        false => {
            let (rest, letter) = name.split_at_checked(name.len().checked_sub(2)?)?;
            let mut letter = letter.chars();
            let is_letter = letter.next().is_some_and(|c| SEPARATORS.contains(&c))
                && letter.next().is_some_and(|c| c.is_ascii_lowercase());
            is_letter.then_some((rest, false))?
        }
    };
    let rest = rest.trim_end_matches(SEPARATORS);
    let word = &rest[rest.rfind(|c: char| !c.is_ascii_alphabetic()).map_or(0, |at| at + 1)..];
    (PARTS.contains(&word) || (is_number && HOLDERS.contains(&word))).then(|| rest.to_owned())
}

/// Returns whether `name` is a year, or a date that starts with one: `2024`, `2024-05`, `2024_05_31`.
fn is_date(name: &str) -> bool {
    let mut parts = name.split(SEPARATORS);
    let is_number =
        |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_year = parts.next().is_some_and(|year| is_number(year, 4) && ("1800".."2200").contains(&year));
    is_year && parts.clone().count() <= 2 && parts.all(|part| is_number(part, 2))
}

impl Folders {
    /// Warns if all classes are folders that are named like parts of one set, or like dates.
    pub fn warn_of_parts(&mut self, images: &ChosenFiles<'_>) {
        let Some(classes) = self.class_names.as_ref().filter(|classes| classes.len() > 1) else { return };
        let parts: BTreeSet<Option<String>> = classes.iter().map(|class| part_of(class)).collect();
        let are_parts = parts.len() == 1 && !parts.contains(&None);
        let are_dates = classes.iter().all(|class| is_date(class));
        if self.warns_of("equal-class-folders") || !(are_parts || are_dates) {
            return;
        }
        let hold_folders = images.iter().any(|file| {
            let path = folders(&file);
            path.len() > self.class_level(&path) + 1
        });
        let like = if are_dates { "dates" } else { "parts of one set" };
        let other = match hold_folders {
            true => "to make the folders in them classes, name them as sources",
            false => "`metadata FILE` takes labels from the column \"label\" of a table",
        };
        let names = quoted(classes);
        let message =
            format!("the folders {names} are classes, although they are named like {like}; {other}");
        let warning = Warning::new("part-classes", message)
            .with("folders", classes)
            .with("are_dates", are_dates)
            .with("hold_folders", hold_folders);
        self.warnings.push(or_no_labels(warning));
    }
}

/// Number of folders in class folders that are compared.
const MAX_NESTED: usize = 4096;

impl Folders {
    /// Warns if no class folder holds an image of its own, but two folders on average, each with another name:
    /// `a/airfield`, `a/alley`. These may be the classes.
    pub fn warn_of_nested(&mut self, images: &ChosenFiles<'_>) {
        let Some(classes) = self.class_names.as_ref().filter(|classes| classes.len() > 1) else { return };
        if self.warns_of("equal-class-folders") || self.warns_of("part-classes") {
            return;
        }
        let mut inner: BTreeSet<(String, String)> = BTreeSet::new();
        for file in images.first_in_folders() {
            let path = folders(&file);
            let level = self.class_level(&path);
            // An image in no class folder is not in one of several either.
            if path.len() < level + 2 || is_container(&path[level + 1]) || is_mask(&path[level + 1], true) {
                return;
            }
            inner.insert((path[level].clone(), path[level + 1].clone()));
            if inner.len() > MAX_NESTED {
                break;
            }
        }
        let names = inner.iter().map(|(_, folder)| folder).collect::<BTreeSet<_>>().len();
        if inner.len() >= 2 * classes.len()
            && names == inner.len()
            && let Some((class, folder)) = inner.pop_first()
        {
            let example = format!("{class}/{folder}");
            let message = format!(
                "the folders {} are the classes, although all images are in folders in them, such as {example:?}; to make \
                 the latter classes, name the former as sources",
                quoted(classes)
            );
            let warning = Warning::new("nested-classes", message);
            self.warnings.push(or_no_labels(warning.with("classes", classes).with("example", example)));
        }
    }
}

/// Number of lists that are examined.
const MAX_LISTS: usize = 8;
/// Bytes at the start of a list that are read.
const LIST_BYTES: usize = 4096;

/// Warns if there are lists of the images of a split, such as `meta/train.txt`, although nothing determines splits.
pub fn unused_lists(
    files: &FileList,
    images: &ChosenFiles<'_>,
    by: SplitBy,
    sources: &[SourceSpec],
    follow_symlinks: bool,
) -> Option<Warning> {
    if by != SplitBy::Nothing {
        return None;
    }
    // The path of each list with the first name in it, as the end of a path without extension.
    let mut lists: Vec<(String, Vec<u8>)> = Vec::new();
    for file in files.iter().filter(|file| is_list(file) && !ObjectUrl::is_url(&file.path(sources))) {
        if lists.len() == MAX_LISTS {
            break;
        }
        let start = file.planned(sources, follow_symlinks).start(LIST_BYTES as u64).unwrap_or_default();
        if let Some(name) = first_name(&start) {
            lists.push((file.path(sources).to_string_lossy().into_owned(), name));
        }
    }
    if lists.is_empty() {
        return None;
    }
    let mut found = vec![false; lists.len()];
    for image in images.iter() {
        let path = image.relative.as_os_str().as_bytes();
        for ((_, name), found) in lists.iter().zip(&mut found).filter(|(_, found)| !**found) {
            *found = ends_with_name(path, name);
        }
        if found.iter().all(|found| *found) {
            break;
        }
    }
    let named = lists.into_iter().zip(found).filter(|(_, found)| *found);
    let lists: Vec<String> = named.map(|((list, _), _)| list).collect();
    if lists.is_empty() {
        return None;
    }
    let names: Vec<String> = lists.iter().map(|list| printable(list).into_owned()).collect();
    let names = quoted(&names);
    let message = format!("everything is in one split, and lists of images such as {names} are not read");
    Some(Warning::new("lists-unused", message).with("lists", lists).remedy(
        "files_from",
        "FILE",
        "converts only the images in a list",
    ))
}

/// Returns whether a file is named like a list of a split.
fn is_list(file: &SourceFile) -> bool {
    let name = file.origin.rsplit('/').next().unwrap_or_default();
    let stem = name.strip_suffix(".txt").or_else(|| name.strip_suffix(".lst"));
    let is_split = |stem: &str| {
        let others: String = stem.to_ascii_lowercase().replace("trainval", "train");
        SplitName::of(&others).is_some()
            || ["trainlist", "testlist", "vallist"].iter().any(|start| others.starts_with(start))
    };
    file.member.is_none() && !file.is_named() && stem.is_some_and(is_split)
}

/// Returns the first name in a list, without folders above it that are not part of the paths of images.
fn first_name(list: &[u8]) -> Option<Vec<u8>> {
    let line = list.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty())?;
    // A label may follow the name.
    let name = line.split(|&byte| matches!(byte, b' ' | b'\t' | b',')).next()?;
    let name = name.strip_prefix(b"./").unwrap_or(name);
    (!name.is_empty()).then(|| name.to_vec())
}

/// Returns whether `path` ends with the components of `name`, or its last ones do, with or without an extension.
fn ends_with_name(path: &[u8], name: &[u8]) -> bool {
    let dot = path.iter().rposition(|&byte| byte == b'.').unwrap_or(path.len());
    let is_end = |path: &[u8], name: &[u8]| {
        path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
    };
    is_end(path, name) || is_end(&path[..dot], name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::names::layout::FolderLayout;
    use crate::source::names::split_levels::SplitNames;

    fn files(paths: &[&str]) -> FileList {
        paths.iter().map(|path| SourceFile::for_test(path, &format!("s/{path}"), 1)).collect()
    }

    #[test]
    fn masks_are_recognized_beside_their_images() {
        let found = |paths: &[&str]| masks_beside(&ChosenFiles::all(&files(paths)));
        let companion =
            |paths: &[&str]| found(paths).unwrap().value("companion").as_str().unwrap().to_owned();
        assert_eq!(
            companion(&["cat1-condlabel.png", "cat1-masklabel.png", "cat1.jpg"]),
            "condlabel={dir}/{stem}-condlabel.png:image,masklabel={dir}/{stem}-masklabel.png"
        );
        assert_eq!(companion(&["a/x.tif", "a/x_mask.tif", "b/y.tif"]), "mask={dir}/{stem}_mask.tif");
        assert_eq!(companion(&["a (1).png", "a (1)_mask.png"]), "mask={dir}/{stem}_mask.png");
        // No image beside them.
        assert_eq!(found(&["a/x_mask.png", "b/x.jpg", "face_mask.jpg"]), None);
        assert_eq!(found(&["mask.png", "x.jpg", "x-large.jpg", "_mask.png"]), None);
    }

    fn warned(paths: &[&str]) -> Option<(bool, bool)> {
        let list = files(paths);
        let images = ChosenFiles::all(&list);
        let folders = Folders::of(&images, FolderLayout::Auto, SplitNames::OfImages).unwrap();
        let mut folders = folders.with_classes(&images, FolderLayout::Auto, None).unwrap();
        folders.warn_of_parts(&images);
        let warning = folders.warnings.iter().find(|warning| warning.code == "part-classes")?;
        Some((warning.value("are_dates").as_bool()?, warning.value("hold_folders").as_bool()?))
    }

    #[test]
    fn classes_may_be_parts_of_one_set_or_dates() {
        for (paths, expected) in [
            (&["HAM_images_part_1/a.jpg", "HAM_images_part_2/b.jpg"][..], Some((false, false))),
            (&["part_A/a.jpg", "part_B/b.jpg"], Some((false, false))),
            (&["images_001/images/a.jpg", "images_002/images/b.jpg"], Some((false, true))),
            (&["batch1/cat/a.jpg", "batch2/dog/b.jpg"], Some((false, true))),
            (&["2023/cat/a.jpg", "2024/dog/b.jpg"], Some((true, true))),
            (&["2024-05/a.jpg", "2024-06-01/b.jpg"], Some((true, false))),
            // Classes.
            (&["c0/a.jpg", "c1/b.jpg"], None),
            (&["n01440764/a.jpg", "n01443537/b.jpg"], None),
            (&["0/a.jpg", "1/b.jpg"], None),
            (&["apart_1/a.jpg", "part_2/b.jpg"], None),
            (&["part_1/a.jpg", "cat/b.jpg"], None),
            (&["image_a/a.jpg", "image_b/b.jpg"], None),
            (&["1234/a.jpg", "5678/b.jpg"], None),
            (&["part_1/a.jpg"], None),
        ] {
            assert_eq!(warned(paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn classes_may_be_inside_others() {
        let nested = |paths: &[&str]| {
            let list = files(paths);
            let images = ChosenFiles::all(&list);
            let folders = Folders::of(&images, FolderLayout::Auto, SplitNames::OfImages).unwrap();
            let mut folders = folders.with_classes(&images, FolderLayout::Auto, None).unwrap();
            folders.warn_of_nested(&images);
            let warning = folders.warnings.iter().find(|warning| warning.code == "nested-classes")?;
            Some(warning.value("example").as_str()?.to_owned())
        };
        let example = nested(&["a/airfield/1.jpg", "a/alley/1.jpg", "b/bar/out/1.jpg", "b/beach/1.jpg"]);
        assert_eq!(example.as_deref(), Some("a/airfield"));
        let example = nested(&["train/a/x/1.jpg", "train/a/y/1.jpg", "test/b/z/1.jpg", "test/b/w/1.jpg"]);
        assert_eq!(example.as_deref(), Some("a/x"));
        for paths in [
            &["cat/1.jpg", "cat/x/1.jpg", "dog/y/1.jpg"][..],
            &["cat/images/1.jpg", "dog/images/1.jpg", "dog/masks/1.png"],
            &["cat/x/1.jpg", "dog/y/1.jpg"],
            &["cat/x/1.jpg", "cat/y/1.jpg", "dog/x/1.jpg", "dog/z/1.jpg"],
            &["a/x/1.jpg", "a/y/1.jpg"],
        ] {
            assert_eq!(nested(paths), None, "{paths:?}");
        }
    }

    #[test]
    fn lists_name_images() {
        assert_eq!(first_name(b"\n./apple_pie/1000\nx").unwrap(), b"apple_pie/1000");
        assert_eq!(first_name(b"images/a.jpg 3\n").unwrap(), b"images/a.jpg");
        assert_eq!(first_name(b" \n"), None);
        assert!(ends_with_name(b"images/apple_pie/1000.jpg", b"apple_pie/1000"));
        assert!(ends_with_name(b"images/a.jpg", b"images/a.jpg") && ends_with_name(b"x/a.jpg", b"a"));
        assert!(!ends_with_name(b"images/xa.jpg", b"a") && !ends_with_name(b"images/a.jpg", b"b/a"));
        for (name, expected) in [
            ("s/meta/train.txt", true),
            ("s/ImageSets/Main/trainval.txt", true),
            ("s/testlist01.txt", true),
            ("s/val_list.txt", true),
            ("s/classes.txt", false),
            ("s/train.csv", false),
        ] {
            assert_eq!(is_list(&SourceFile::for_test(&name[2..], name, 1)), expected, "{name}");
        }
    }
}
