//! The file of a YOLO dataset, such as `data.yaml`: names of classes, and the shape of keypoints.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::io::encoding::to_utf8;
use crate::source::io::encoding::without_bom;
use crate::source::io::planned::read_file;
use crate::storage::{for_each_entry, stat};

/// Files with one class name per line.
pub(super) const LISTS: [&str; 2] = ["classes.txt", "obj.names"];
/// Files that are read first, of those with one of [`EXTENSIONS`].
const CONFIGURATIONS: [&str; 3] = ["data.yaml", "data.yml", "dataset.yaml"];
const EXTENSIONS: [&str; 2] = [".yaml", ".yml"];
/// Maximum size of a file with another name, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of values of a keypoint shape.
const MAX_KEYPOINTS: usize = 10_000;

/// The keypoints after the box of each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeypointShape {
    pub(super) points: usize,
    /// 2 for x and y, or 3 with the visibility.
    pub(super) dimensions: usize,
}

impl KeypointShape {
    /// Returns how many numbers the keypoints of a box are.
    pub(super) fn numbers(self) -> usize {
        self.points * self.dimensions
    }

    /// Returns whether the number at `at`, counted after the class, is the visibility of a keypoint.
    pub(super) fn is_visibility(self, at: usize) -> bool {
        self.dimensions == 3 && at >= 4 && at < 4 + self.numbers() && (at - 4) % 3 == 2
    }
}

/// Returns the folders in which the files of the labels in `folder` may be: itself and the two above it.
fn folders_of(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    folders.extend(folder.parent().map(Path::to_owned));
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folders.extend(whole.ancestors().nth(2).map(Path::to_owned));
    folders
}

/// Returns the configurations in a folder with their text: those with a usual name first, then others by name.
fn configurations(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut names = Vec::new();
    if stat(folder)?.is_some_and(|meta| meta.is_dir()) || folder.as_os_str().is_empty() {
        let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let fail = |e| Error::io("list the folder", listed, e);
        for_each_entry(listed, fail, |entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if EXTENSIONS.iter().any(|extension| name.ends_with(extension)) {
                names.push(name);
            }
            Ok(())
        })?;
    }
    let rank =
        |name: &String| CONFIGURATIONS.iter().position(|known| known == name).unwrap_or(CONFIGURATIONS.len());
    names.sort_by(|a, b| rank(a).cmp(&rank(b)).then(a.cmp(b)));
    let mut found = Vec::new();
    for name in names {
        let path = folder.join(&name);
        let is_usual = rank(&name) < CONFIGURATIONS.len();
        if !is_usual && stat(&path)?.is_none_or(|meta| meta.len() > MAX_BYTES) {
            continue;
        }
        let text = match text_of(&path) {
            Err(_) if !is_usual => None,
            text => text?,
        };
        let says = |text: &String| value_of(text, NAMES).is_some() || value_of(text, KEYPOINTS).is_some();
        found.extend(text.filter(|text| is_usual || says(text)).map(|text| (path, text)));
    }
    Ok(found)
}

const NAMES: &str = "names:";
const KEYPOINTS: &str = "kpt_shape:";

/// Returns the rest of the line that starts with `key`.
fn value_of<'t>(yaml: &'t str, key: &str) -> Option<&'t str> {
    yaml.lines().map(without_comment).find_map(|line| line.strip_prefix(key).map(str::trim))
}

/// Returns the shape of the keypoints of the labels in `folder`; `None` if they have none.
///
/// # Errors
///
/// Fails if a file cannot be read, or says something else than another one.
pub(super) fn keypoint_shape(folder: &Path) -> Result<Option<KeypointShape>> {
    for folder in folders_of(folder) {
        let mut found: Option<(PathBuf, KeypointShape)> = None;
        let configurations = configurations(&folder)?;
        let is_here = !configurations.is_empty();
        for (path, text) in configurations {
            if value_of(&text, KEYPOINTS).is_none() {
                continue;
            }
            let shape = shape_in(&text).ok_or_else(|| {
                let help =
                    "expected kpt_shape: [N, 2] or [N, 3], the number of keypoints and of their values";
                Error::usage("the shape of keypoints in this file cannot be read")
                    .of_option("annotations")
                    .at_path(&path)
                    .help(help)
            })?;
            match &found {
                Some((other, known)) if *known != shape => {
                    let what = format!(
                        "its kpt_shape differs from that of {}: [{}, {}] and [{}, {}]",
                        crate::printable::printable_path(other),
                        shape.points,
                        shape.dimensions,
                        known.points,
                        known.dimensions
                    );
                    return Err(Error::usage(what)
                        .of_option("annotations")
                        .at_path(&path)
                        .help("put the file of each dataset in a folder with its labels only"));
                }
                Some(_) => {}
                None => found = Some((path, shape)),
            }
        }
        if is_here {
            return Ok(found.map(|(_, shape)| shape));
        }
    }
    Ok(None)
}

/// Returns the value of `kpt_shape` in a YAML file.
fn shape_in(yaml: &str) -> Option<KeypointShape> {
    let value = value_of(yaml, KEYPOINTS)?;
    let numbers: Vec<usize> = if value.is_empty() {
        let after = yaml.lines().map(without_comment).skip_while(|line| !line.starts_with(KEYPOINTS)).skip(1);
        let items =
            after.map(str::trim).filter(|line| !line.is_empty()).map_while(|line| line.strip_prefix('-'));
        items.map(|item| item.trim().parse()).collect::<Result<_, _>>().ok()?
    } else {
        let inner = value.strip_prefix(['[', '(']).and_then(|rest| rest.strip_suffix([']', ')']))?;
        inner.split(',').map(|item| item.trim().parse()).collect::<Result<_, _>>().ok()?
    };
    match numbers[..] {
        [points @ 1..=MAX_KEYPOINTS, dimensions @ 2..=3] => Some(KeypointShape { points, dimensions }),
        _ => None,
    }
}

/// Returns the class names beside the labels in `folder`; `None` if there is no such file.
///
/// # Errors
///
/// Fails if a file of class names cannot be read.
pub(super) fn class_names(folder: &Path) -> Result<Option<Vec<String>>> {
    for folder in folders_of(folder) {
        for name in LISTS {
            if let Some(text) = text_of(&folder.join(name))? {
                let names = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
                return Ok(Some(names.collect()));
            }
        }
        for (path, text) in configurations(&folder)? {
            let is_other = !CONFIGURATIONS.iter().any(|name| path.ends_with(name));
            if is_other && value_of(&text, NAMES).is_none() {
                continue;
            }
            let names = names_in(&text).ok_or_else(|| {
                Error::usage("the class names in this file cannot be read")
                    .of_option("annotations")
                    .at_path(&path)
                    .help(
                        "expected names: [a, b], or a line - NAME or NUMBER: NAME for each class; or give the names with \
                         `classes`",
                    )
            })?;
            let count = value_of(&text, "nc:").and_then(|count| count.parse::<usize>().ok());
            if let Some(count) = count.filter(|count| *count != names.len()) {
                return Err(Error::usage(format!("nc is {count}, but there are {} names", names.len()))
                    .of_option("annotations")
                    .at_path(&path)
                    .help("correct one of them, or give the names with `classes`"));
            }
            return Ok(Some(names));
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
    let value = lines.find_map(|line| line.strip_prefix(NAMES).map(str::trim))?;
    let mut items: Vec<String> = Vec::new();
    if value.is_empty() {
        let is_item = |line: &&str| line.starts_with([' ', '-', '\t']) || line.trim().is_empty();
        for line in lines.take_while(is_item).map(str::trim).filter(|line| !line.is_empty()) {
            items.push(line.strip_prefix("- ").unwrap_or(line).trim().to_owned());
        }
        let is_list =
            yaml.lines().skip_while(|line| !line.starts_with(NAMES)).nth(1)?.trim().starts_with('-');
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
    fn shapes_are_lists_of_two_numbers() {
        let of = |yaml: &str| shape_in(yaml).map(|shape| (shape.points, shape.dimensions));
        for (yaml, expected) in [
            ("nc: 1\nkpt_shape: [17, 3] # number, dimensions\n", Some((17, 3))),
            ("kpt_shape:\n  - 4\n  - 2\nnames: [a]\n", Some((4, 2))),
            ("kpt_shape:\n- 4\n- 2\n", Some((4, 2))),
            ("kpt_shape: [17]", None),
            ("kpt_shape: [17, 4]", None),
            ("kpt_shape: [0, 3]", None),
            ("kpt_shape: 17", None),
        ] {
            assert_eq!(of(yaml), expected, "{yaml}");
        }
        let three = KeypointShape { points: 2, dimensions: 3 };
        let visible: Vec<usize> = (0..12).filter(|&at| three.is_visibility(at)).collect();
        assert_eq!(visible, [6, 9]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(yaml in "(names:|kpt_shape:|[a-c01:\\[\\]{}'\", \n#-]){0,40}") {
            prop_assert!(names_in(&yaml).is_none_or(|names| !names.is_empty()));
            prop_assert!(shape_in(&yaml).is_none_or(|shape| shape.numbers() >= 2));
        }
    }
}
