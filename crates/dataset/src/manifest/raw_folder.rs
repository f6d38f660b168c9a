//! Recognition of folders that could be converted, for the error about a directory that is not a dataset.

use std::fs::DirEntry;
use std::path::Path;

use crate::storage::for_each_entry;

const IMAGES: [&str; 9] = ["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif"];
const TEXTS: [&str; 6] = ["txt", "jsonl", "ndjson", "csv", "tsv", "md"];
/// Maximum number of entries that are looked at, in all folders.
const MAX_ENTRIES: u32 = 1000;
/// Levels of folders: split, class, and one more.
const MAX_DEPTH: u32 = 3;

#[derive(Default)]
struct Found {
    entries: u32,
    images: u32,
    texts: u32,
}

/// Returns how to convert the files in `dir`, if most of them are images or texts by their names.
pub(super) fn how_to_convert(dir: &Path) -> Option<String> {
    let mut found = Found::default();
    count(dir, MAX_DEPTH, &mut found);
    let (content, command) = match (found.images, found.texts) {
        (0, 0) => return None,
        (images, texts) if images >= texts => ("images", "images"),
        _ => ("texts", "text"),
    };
    Some(format!(
        "it is a folder of {content}: convert it first, with `dsconvert {command} FOLDER --out DIRECTORY`, and open that \
         directory"
    ))
}

fn count(dir: &Path, depth: u32, found: &mut Found) {
    let mut folders = Vec::new();
    let note = |entry: &DirEntry| {
        found.entries += 1;
        let path = entry.path();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        found.images += u32::from(IMAGES.contains(&extension.as_str()));
        found.texts += u32::from(TEXTS.contains(&extension.as_str()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(path);
        }
        if found.entries < MAX_ENTRIES { Ok(()) } else { Err(()) }
    };
    // What cannot be listed is not needed: the error about the directory is reported in any case.
    let is_listed = for_each_entry(dir, |_| (), note).is_ok();
    if is_listed && depth > 1 {
        folders.iter().for_each(|folder| count(folder, depth - 1, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(files: &[&str]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        how_to_convert(dir.path())
    }

    #[test]
    fn folders_of_images_and_texts_are_recognized() {
        let images = |files: &[&str]| help(files).is_some_and(|help| help.contains("`dsconvert images "));
        assert!(
            images(&["a.JPG", "b.txt"])
                && images(&["train/cat/1.png"])
                && images(&["x/README.md", "x/y/1.webp"])
        );
        assert!(help(&["a.jsonl", "b.txt", "c.png"]).unwrap().contains("`dsconvert text "));
        assert_eq!(help(&[]), None);
        assert_eq!(help(&["model.bin", "a/b/c/d/1.png"]), None);
        assert_eq!(how_to_convert(Path::new("/nonexistent")), None);
    }

    #[test]
    fn large_folders_are_not_listed_completely() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MAX_ENTRIES + 10 {
            std::fs::write(dir.path().join(format!("{n}.png")), "").unwrap();
        }
        let mut found = Found::default();
        count(dir.path(), MAX_DEPTH, &mut found);
        assert_eq!(found.entries, MAX_ENTRIES);
    }
}
