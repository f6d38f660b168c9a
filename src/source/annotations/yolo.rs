//! Labels of YOLO: a folder of text files, one per image, with a box per line as fractions of the image.

use std::path::{Component, Path, PathBuf};

use super::{BoxList, ImageBoxes};
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::source::encoding::to_utf8;
use crate::source::{read_file, without_bom};
use crate::storage::stat;

/// Extension of the files.
const EXTENSION: &str = "txt";
/// Folder of images, and that of their labels beside it, as Ultralytics finds it.
const IMAGES: &str = "images";
const LABELS: &str = "labels";
/// Files with one class name per line.
const LISTS: [&str; 2] = ["classes.txt", "obj.names"];
/// Files with class names in `names`.
const CONFIGURATIONS: [&str; 3] = ["data.yaml", "data.yml", "dataset.yaml"];
/// Largest number that is a fraction, as Ultralytics tolerates it.
const LARGEST: f64 = 1.01;

/// Returns the paths of the file of an image, in order of preference, below the folder of annotations.
pub(super) fn label_paths(folder: &Path, image: &Path) -> Vec<PathBuf> {
    let path = image.with_extension(EXTENSION);
    let mut paths = vec![folder.join(&path)];
    let parts: Vec<Component<'_>> = path.components().collect();
    let is_images = |part: &Component<'_>| part.as_os_str() == IMAGES;
    if let Some(at) = parts[..parts.len().saturating_sub(1)].iter().rposition(is_images) {
        let (before, after): (PathBuf, PathBuf) =
            (parts[..at].iter().collect(), parts[at + 1..].iter().collect());
        paths.push(folder.join(before).join(LABELS).join(&after));
        paths.push(folder.join(after));
    }
    paths
}

/// Parses the labels of an image, whose classes are numbers below `classes`.
pub(super) fn parse(bytes: Vec<u8>, classes: usize) -> Result<ImageBoxes, Reject> {
    let text = to_utf8(bytes, None)?;
    let text = std::str::from_utf8(without_bom(&text)).map_err(|e| Reject::not_utf8("its labels", &e))?;
    let mut list = BoxList::default();
    let mut polygons = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let invalid = |code, what: String| Reject::new(code, format!("line {number} of its labels {what}"));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some((class, rest)) = words.split_first() else { continue };
        let wrong = |word: &str| {
            invalid(RejectCode::InvalidValue, format!("has {word:?}, not a fraction of the image"))
        };
        let fraction = |word: &&str| {
            let number = word.parse::<f64>().ok().filter(|number| (0.0..=LARGEST).contains(number));
            number.ok_or_else(|| wrong(word))
        };
        let numbers = rest.iter().map(fraction).collect::<Result<Vec<f64>, Reject>>()?;
        let corners = match numbers[..] {
            [x, y, width, height] => [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0],
            // A polygon: the box around it.
            [_, _, _, _, _, _, ..] if numbers.len().is_multiple_of(2) => {
                polygons += 1;
                let (xs, ys) = (|| numbers.iter().step_by(2), || numbers.iter().skip(1).step_by(2));
                let least =
                    |numbers: &mut dyn Iterator<Item = &f64>| numbers.fold(f64::INFINITY, |a, &b| a.min(b));
                let most = |numbers: &mut dyn Iterator<Item = &f64>| numbers.fold(0.0f64, |a, &b| a.max(b));
                [least(&mut xs()), least(&mut ys()), most(&mut xs()), most(&mut ys())]
            }
            _ => {
                let what = format!(
                    "has {} numbers; expected the class, and x, y, width and height, or the points of a polygon",
                    words.len()
                );
                return Err(invalid(RejectCode::InvalidValue, what));
            }
        };
        // Some programs write classes as 0.0.
        let class_number = class.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && *number >= 0.0);
        let class_number = class_number.ok_or_else(|| {
            invalid(RejectCode::InvalidValue, format!("has the class {class:?}, which is not a number"))
        })?;
        if class_number >= classes as f64 {
            let what = format!("has the class {class}, but there are {classes} classes, numbered from 0");
            return Err(invalid(RejectCode::UnknownLabel, what));
        }
        list.push(corners.map(|number| number as f32), class_number as u32, 0);
    }
    Ok(ImageBoxes { polygons, ..ImageBoxes::fractions(list) })
}

/// Returns the class names beside the labels in `folder`; `None` if there is no such file.
///
/// # Errors
///
/// Fails if a file of class names cannot be read.
pub(super) fn class_names(folder: &Path) -> Result<Option<Vec<String>>> {
    let folders = [Some(folder), folder.parent()];
    for folder in folders.into_iter().flatten() {
        for name in LISTS {
            if let Some(text) = text_of(&folder.join(name))? {
                let names = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
                return Ok(Some(names.collect()));
            }
        }
        for name in CONFIGURATIONS {
            let path = folder.join(name);
            if let Some(text) = text_of(&path)? {
                return names_in(&text).map(Some).ok_or_else(|| {
                    Error::usage("the class names in this file cannot be read")
                        .of_option("annotations")
                        .at_path(&path)
                        .help(
                            "expected names: [a, b], or a line - NAME or NUMBER: NAME for each class; or give the names with \
                             `classes`",
                        )
                });
            }
        }
    }
    Ok(None)
}

/// Returns the text of a file, if it exists.
fn text_of(path: &Path) -> Result<Option<String>> {
    if !stat(path)?.is_some_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let not_text = || Error::usage("this file is not UTF-8").of_option("annotations").at_path(path);
    let bytes = to_utf8(read_file(path)?, None).map_err(|_| not_text())?;
    String::from_utf8(without_bom(&bytes).to_vec()).map(Some).map_err(|_| not_text())
}

/// Returns the value of `names` in a YAML file: a list or a mapping of 0, 1, …, in one line or in several.
fn names_in(yaml: &str) -> Option<Vec<String>> {
    let mut lines = yaml.lines().map(without_comment);
    let value = lines.find_map(|line| line.strip_prefix("names:").map(str::trim))?;
    let mut items: Vec<String> = Vec::new();
    if value.is_empty() {
        let is_item = |line: &&str| line.starts_with([' ', '-', '\t']) || line.trim().is_empty();
        for line in lines.take_while(is_item).map(str::trim).filter(|line| !line.is_empty()) {
            items.push(line.strip_prefix("- ").unwrap_or(line).trim().to_owned());
        }
        let is_list =
            yaml.lines().skip_while(|line| !line.starts_with("names:")).nth(1)?.trim().starts_with('-');
        return named(items, !is_list);
    }
    let (inner, is_mapping) = match (value.as_bytes().first()?, value.as_bytes().last()?) {
        (b'[', b']') => (&value[1..value.len() - 1], false),
        (b'{', b'}') => (&value[1..value.len() - 1], true),
        _ => return None,
    };
    let mut quote = None;
    let mut item = String::new();
    for c in inner.chars() {
        match (quote, c) {
            (None, ',') => items.push(std::mem::take(&mut item).trim().to_owned()),
            (None, '\'' | '"') => {
                quote = Some(c);
                item.push(c);
            }
            (Some(open), c) => {
                if open == c {
                    quote = None;
                }
                item.push(c);
            }
            (None, c) => item.push(c),
        }
    }
    if !item.trim().is_empty() {
        items.push(item.trim().to_owned());
    }
    named(items, is_mapping)
}

/// Returns a line without a comment, which starts at `#` after a space.
fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    line.find(" #").map_or(line, |at| &line[..at]).trim_end()
}

/// Returns the names of items, which start with their number if `is_mapping`.
fn named(items: Vec<String>, is_mapping: bool) -> Option<Vec<String>> {
    let name = |(number, item): (usize, String)| {
        let item = match is_mapping {
            true => item.split_once(':').filter(|(key, _)| key.trim().parse() == Ok(number))?.1,
            false => &item,
        };
        let item = item.trim();
        let quoted = |quote: char| item.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        match (quoted('"'), quoted('\'')) {
            (Some(inner), _) | (_, Some(inner)) if !inner.contains(['\\', '\'', '"']) => {
                Some(inner.to_owned())
            }
            (None, None)
                if !item.is_empty() && !item.starts_with(['[', '{', '&', '*', '|', '>', '"', '\'']) =>
            {
                Some(item.to_owned())
            }
            _ => None,
        }
    };
    let names: Option<Vec<String>> = items.into_iter().enumerate().map(name).collect();
    names.filter(|names| !names.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_lists_or_mappings() {
        let names = |yaml: &str| names_in(yaml).map(|names| names.join("|"));
        for (yaml, expected) in [
            ("nc: 2\nnames: [cat, 'a, dog', \"x y\"]\n", "cat|a, dog|x y"),
            (
                "path: .\nnames:\n  0: person\n  1: bicycle # two wheels\n  2: 'hot dog'\n\ntrain: images\n",
                "person|bicycle|hot dog",
            ),
            ("names:\n- cat\n- traffic light\nnc: 2\n", "cat|traffic light"),
            ("names: {0: cat, 1: dog}", "cat|dog"),
        ] {
            assert_eq!(names(yaml).as_deref(), Some(expected), "{yaml}");
        }
        for wrong in
            ["nc: 2", "names: 3", "names:\n  1: a\n  0: b\n", "names: []", "names: [[a]]", "names:\n"]
        {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_are_boxes_or_polygons() {
        let of = |text: &str| parse(text.as_bytes().to_vec(), 3);
        let found = of("0 0.5 0.5 0.25 0.5\n\n2.0 0.1 0.2 0.3 0.1 0.2 0.4\r\n").unwrap();
        assert_eq!(found.list.boxes, [[0.375, 0.25, 0.625, 0.75], [0.1, 0.1, 0.3, 0.4]]);
        assert_eq!((found.list.labels, found.polygons), (vec![0, 2], 1));
        assert_eq!(of("").unwrap().list, BoxList::default());
        for (text, code, what) in [
            ("0 0.5 0.5 0.25", RejectCode::InvalidValue, "has 4 numbers"),
            ("0 0.5 0.5 0.25 0.5 0.9", RejectCode::InvalidValue, "has 6 numbers"),
            ("0 0.5 0.5 0.25 1.5", RejectCode::InvalidValue, "\"1.5\""),
            ("0 0.5 0.5 0.25 0.5\n0 0.5 -0.5 0.25 0.5", RejectCode::InvalidValue, "line 2"),
            ("0 nan 0.5 0.25 0.5", RejectCode::InvalidValue, "\"nan\""),
            ("cat 0.5 0.5 0.25 0.5", RejectCode::InvalidValue, "\"cat\""),
            ("-1 0.5 0.5 0.25 0.5", RejectCode::InvalidValue, "\"-1\""),
            ("3 0.5 0.5 0.25 0.5", RejectCode::UnknownLabel, "3 classes"),
        ] {
            let reject = of(text).unwrap_err();
            assert!(reject.code == code && reject.message.contains(what), "{text}: {reject:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_rejected(text in "([0-2. \n-]|nan|1e9){0,60}", yaml in "(names:|[a-c01:\\[\\]{}'\", \n#-]){0,40}") {
            if let Ok(found) = parse(text.into_bytes(), 3) {
                prop_assert_eq!(found.list.boxes.len(), found.list.labels.len());
                prop_assert!(found.list.labels.iter().all(|&label| label < 3));
                prop_assert!(found.list.boxes.iter().flatten().all(|number| number.is_finite()));
            }
            prop_assert!(names_in(&yaml).is_none_or(|names| !names.is_empty()));
        }
    }

    #[test]
    fn labels_are_beside_images_or_in_a_parallel_folder() {
        let paths = |image: &str| {
            let paths = label_paths(Path::new("d"), Path::new(image));
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(paths("train/a.b.jpg"), "d/train/a.b.txt");
        assert_eq!(
            paths("x/images/train/a.jpg"),
            "d/x/images/train/a.txt d/x/labels/train/a.txt d/train/a.txt"
        );
        assert_eq!(paths("images"), "d/images.txt");
    }
}
