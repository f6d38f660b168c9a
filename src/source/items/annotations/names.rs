//! The images that annotations name.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::found::OPTION;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::printable::printable;
use crate::source::list::file_list::FileList;
use crate::storage::folder_of;

/// How well a name fits an image, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is the path of the image from the folder of the annotations on, or its absolute path.
    FromAnnotations,
    /// It is the path from a source on.
    FromSource,
    /// It is the end of the path.
    End,
}

/// The best image for a name, and another one that fits as well.
type BestImage = Option<(Fit, u32, Option<u32>)>;

/// Number of names that are matched by their last component, and one of them.
type MatchedByLast = Option<(u64, String)>;

/// Returns the ordinal of the image of each of `names` in the file of annotations at `path`, if there is one. A name that
/// leads out of the folder, as those of another machine, is matched by its last component if only one name and one image have
/// it.
///
/// # Errors
///
/// Fails if a name fits several images equally well.
pub(super) fn images_named<'n>(
    names: impl Iterator<Item = &'n str>,
    path: &Path,
    images: &FileList,
    sources: &[SourceSpec],
) -> Result<(Vec<Option<u32>>, MatchedByLast)> {
    // Programs on Windows write backslashes.
    let clean = |name: &str| name.replace('\\', "/").trim_start_matches("./").to_owned();
    // With the first image of this last component, and whether there are more.
    let mut same_last: HashMap<String, (u32, bool)> = HashMap::new();
    let names: Vec<String> = names.map(clean).collect();
    let mut by_last: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        by_last.entry(last(name)).or_default().push(at);
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute(folder_of(path));
    let roots: Vec<PathBuf> = sources.iter().map(|source| absolute(&source.path)).collect();
    let mut best: Vec<BestImage> = vec![None; names.len()];
    for (image, ordinal) in images.iter().zip(0..) {
        let name = image.name(sources);
        let Some(candidates) = by_last.get(last(&name)) else { continue };
        if candidates.iter().any(|&at| leads_out(&names[at])) {
            same_last
                .entry(last(&name).to_owned())
                .and_modify(|(_, more)| *more = true)
                .or_insert((ordinal, false));
        }
        let root = &roots[image.source as usize];
        let whole = if image.is_named() { root.clone() } else { root.join(&image.relative) };
        let relative = if image.is_named() { Path::new(&name) } else { &image.relative };
        for &at in candidates {
            let wanted = Path::new(&names[at]);
            let fit = match () {
                () if folder.join(wanted) == whole => Fit::FromAnnotations,
                () if relative == wanted => Fit::FromSource,
                () if is_end(relative, wanted) => Fit::End,
                () => continue,
            };
            best[at] = match best[at] {
                Some((known, ..)) if known < fit => best[at],
                Some((known, first, _)) if known == fit => Some((known, first, Some(ordinal))),
                _ => Some((fit, ordinal, None)),
            };
        }
    }
    let image = |(at, best): (usize, BestImage)| match best {
        Some((_, first, Some(other))) => Err(ambiguous(&names[at], path, images, [first, other])),
        Some((_, ordinal, None)) => Ok(Some(ordinal)),
        None => Ok(None),
    };
    let mut found: Vec<Option<u32>> = best.into_iter().enumerate().map(image).collect::<Result<_>>()?;
    let mut matched = MatchedByLast::None;
    for (place, name) in found.iter_mut().zip(&names) {
        let is_one = by_last.get(last(name)).is_some_and(|names| names.len() == 1);
        if let (None, true, true, Some(&(ordinal, false))) =
            (*place, is_one, leads_out(name), same_last.get(last(name)))
        {
            *place = Some(ordinal);
            matched.get_or_insert_with(|| (0, name.clone())).0 += 1;
        }
    }
    Ok((found, matched))
}

/// Returns whether a name refers to a file elsewhere: it is absolute, starts with the letter of a drive, or goes up.
fn leads_out(name: &str) -> bool {
    let is_drive = matches!(name.as_bytes(), [letter, b':', b'/', ..] if letter.is_ascii_alphabetic());
    is_drive || name.starts_with('/') || name.split('/').any(|part| part == "..")
}

fn ambiguous(name: &str, path: &Path, images: &FileList, found: [u32; 2]) -> Error {
    let [first, other] =
        found.map(|ordinal| images.get(ordinal as usize).map(|image| image.origin).unwrap_or_default());
    let what = format!(
        "the name {:?} fits several images: {:?} and {:?}",
        printable(name),
        printable(&first),
        printable(&other)
    );
    Error::usage(what).of_option(OPTION).at_path(path).help(
        "names are relative to the folder of the annotations, or to a source; convert the folders separately, or move the \
         annotations beside their images",
        )
}

/// Returns the last part of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns whether `end` consists of the last parts of `path`.
fn is_end(path: &Path, end: &Path) -> bool {
    let (path, end) = (path.as_os_str().as_bytes(), end.as_os_str().as_bytes());
    let before = path.strip_suffix(end);
    before.is_some_and(|before| before.last() == Some(&b'/')) && !end.starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::list::source_file::SourceFile;

    fn matched(json: &str, names: &[&str]) -> Result<Vec<Option<u32>>> {
        let files = ["train/a.jpg", "train/b.jpg", "valid/a.jpg", "valid/deep/c.jpg", "c.jpg"];
        let file = |name: &&str| SourceFile::for_test(name, &format!("s/{name}"), 1);
        let images: FileList = files.iter().map(file).collect();
        let sources = [SourceSpec { label: "s".into(), path: "/data/s".into() }];
        images_named(names.iter().copied(), Path::new(json), &images, &sources).map(|(found, _)| found)
    }

    #[test]
    fn names_are_relative_to_the_annotations_or_a_source_or_ends_of_paths() {
        let of = |json, name| matched(json, &[name]).map(|found| found[0]);
        assert_eq!(of("/data/s/train/x.json", "a.jpg").unwrap(), Some(0));
        assert_eq!(of("/data/s/valid/x.json", "./a.jpg").unwrap(), Some(2));
        assert_eq!(of("/elsewhere/x.json", "train\\a.jpg").unwrap(), Some(0));
        assert_eq!(of("/elsewhere/x.json", "b.jpg").unwrap(), Some(1));
        assert_eq!(of("/elsewhere/x.json", "c.jpg").unwrap(), Some(4));
        assert_eq!(of("/elsewhere/x.json", "deep/c.jpg").unwrap(), Some(3));
        assert_eq!(of("/elsewhere/x.json", "eep/c.jpg").unwrap(), None);
        assert_eq!(of("/elsewhere/x.json", "/data/s/valid/a.jpg").unwrap(), Some(2));
        assert_eq!(of("/elsewhere/x.json", "d.jpg").unwrap(), None);
        let error = of("/elsewhere/x.json", "a.jpg").unwrap_err().to_string();
        assert!(error.contains("s/train/a.jpg") && error.contains("s/valid/a.jpg"), "{error}");
    }

    #[test]
    fn names_of_other_machines_are_matched_by_their_last_component_if_it_is_unique() {
        let of = |names: &[&str]| matched("/elsewhere/x.json", names).unwrap();
        assert_eq!(of(&["..\\..\\images\\b.jpg"]), [Some(1)]);
        assert_eq!(of(&["C:\\data\\b.jpg", "/home/me/other/b.jpg"]), [None, None]);
        assert_eq!(of(&["D:\\set\\a.jpg", "x/b.jpg"]), [None, None]);
    }
}
