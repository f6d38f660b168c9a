//! Tests of the whole reader on real files of all formats.

mod columns;
mod damage;
mod records;
#[cfg(feature = "remote")]
mod remote;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::Format;
use dsconvert_dataset::sample;
use dsconvert_dataset::schema::Kind;

use super::testing::write;
use super::*;

const SHARDS: &[&[u64]] = &[&[9, 0, 14], &[5], &[]];
const KINDS: [Kind; 3] = [Kind::Images, Kind::Text, Kind::Records];

fn dataset(format: Format, kind: Kind) -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), format, kind, SHARDS).unwrap();
    let dataset = Dataset::open(dir.path()).unwrap();
    (dir, dataset)
}

/// Returns all combinations of format and kind.
pub(super) fn all() -> impl Iterator<Item = (Format, Kind)> {
    Format::ALL.into_iter().flat_map(|format| KINDS.map(|kind| (format, kind)))
}

fn inner(record: Result<Record>) -> sample::Record {
    record.unwrap().into_inner()
}

/// Returns all files below a directory, sorted.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Returns the directory of an intact dataset. It is written only once per process, because every file is fsynced.
pub(super) fn pristine(format: Format, kind: Kind) -> PathBuf {
    static WRITTEN: Mutex<Vec<(Format, Kind, tempfile::TempDir)>> = Mutex::new(Vec::new());
    let mut written = WRITTEN.lock().unwrap();
    if let Some((_, _, dir)) = written.iter().find(|(f, k, _)| (*f, *k) == (format, kind)) {
        return dir.path().to_owned();
    }
    let (dir, _) = dataset(format, kind);
    let path = dir.path().to_owned();
    written.push((format, kind, dir));
    path
}

/// Copies a dataset into a directory where it may be altered.
pub(super) fn copy(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files(from) {
        let to = dir.path().join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
    dir
}
