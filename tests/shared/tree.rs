//! The contents of a directory, to compare the output of several runs.

use std::collections::BTreeMap;
use std::path::Path;

/// Files by relative path.
pub type Tree = BTreeMap<String, Vec<u8>>;

/// Reads every file below `dir`.
pub fn tree(dir: &Path) -> Tree {
    let mut files = Tree::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}
