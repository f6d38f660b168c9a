//! Deduplication of files: a pass over their bytes before the first unit.
//!
//! Only files with the same size as another file are read. Their SHA-256 are sorted on disk. SHA-256 has no known
//! collisions, accidental or crafted, so files with equal hashes are considered equal without reading them again. Of
//! equal files, the first in record order is kept.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::source::io::planned::{PlannedFile, begins_as_any_image};
use crate::storage::{NewFile, hash_file, lstat};
use crate::writer::SORT_BYTES;
use crate::writer::stop::Stop;
use crate::writer::workers::Workers;

/// Name of the file with the pairs of equal files, in the working directory.
pub(super) const DUPLICATE_PAIRS_NAME: &str = "duplicates";
/// Name of the file with its SHA-256. It is written after the pairs, which are not used without it.
pub(super) const DUPLICATE_PAIRS_HASH_NAME: &str = "duplicates.sha256";
const HASH_BYTES: usize = 32;
/// Size of a row: hash and ordinal of a file, big-endian, so that equal files are adjacent and in order when sorted.
const ROW_BYTES: usize = HASH_BYTES + 8;

/// A file that may be the same as another one.
pub(super) struct DuplicateCandidate {
    pub(super) planned: PlannedFile,
    /// Position in record order.
    pub(super) ordinal: usize,
    /// Whether the file has to begin like an image, because it is not named like one. Otherwise, it is skipped.
    pub(super) must_begin_as_image: bool,
}

/// The ordinals of all duplicates, each with the ordinal of the file that is kept.
type DuplicateMap = BTreeMap<usize, usize>;

/// Returns the duplicates among `files`. They are stored in the folder `work`, as are temporary files that do not fit
/// in memory. Duplicates found by an earlier attempt at the same plan are reused.
///
/// # Errors
///
/// Fails if a file cannot be read or has changed since it was planned, or if the run is stopped.
pub(super) fn duplicates(
    files: Vec<DuplicateCandidate>,
    work: &Path,
    workers: &Workers,
    stop: &Stop,
) -> Result<DuplicateMap> {
    let path = work.join(DUPLICATE_PAIRS_NAME);
    if is_stored(&path)? {
        return read_stored(&path);
    }
    let found = find(files, work, workers, stop)?;
    let mut file = NewFile::create_shared(&path)?;
    for (&duplicate, &first) in &found {
        let pair = [duplicate as u64, first as u64].map(u64::to_be_bytes);
        file.write_all(pair.as_flattened()).map_err(|e| Error::io("write", &path, e))?;
    }
    store(file)?;
    Ok(found)
}

/// Makes a file of duplicates durable, then writes a file with its SHA-256, without which it is not reused. Several
/// parts may do this at the same time: what they find is the same.
pub(super) fn store(file: NewFile) -> Result<()> {
    let path = digest_path(file.path());
    let written = file.commit()?;
    let mut digest = NewFile::create_shared(&path)?;
    digest.write_all(written.sha256.as_bytes()).map_err(|e| Error::io("write", &path, e))?;
    digest.commit()?;
    Ok(())
}

/// Returns whether an earlier attempt at the same plan has stored the file `path`, and the file is unaltered.
pub(super) fn is_stored(path: &Path) -> Result<bool> {
    let digest = digest_path(path);
    match std::fs::read(&digest) {
        Ok(sha256) => Ok(lstat(path)?.is_some() && hash_file(path)?.sha256.as_bytes() == sha256),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("read", &digest, e)),
    }
}

fn digest_path(path: &Path) -> PathBuf {
    path.with_extension("sha256")
}

/// Reads the stored duplicates of an earlier attempt.
fn read_stored(path: &Path) -> Result<DuplicateMap> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("read the duplicates", path, e))?;
    let numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number) as usize);
    let numbers: Vec<usize> = numbers.collect();
    Ok(numbers.as_chunks::<2>().0.iter().map(|&[duplicate, first]| (duplicate, first)).collect())
}

fn find(
    mut files: Vec<DuplicateCandidate>,
    work: &Path,
    workers: &Workers,
    stop: &Stop,
) -> Result<DuplicateMap> {
    let mut of_size: HashMap<u64, u64> = HashMap::new();
    files.iter().for_each(|file| *of_size.entry(file.planned.bytes).or_default() += 1);
    files.retain(|file| of_size.get(&file.planned.bytes).is_some_and(|files| *files > 1));
    let mut sort = ExternalSort::<ROW_BYTES>::new(work, SORT_BYTES);
    hash_all(&files, &mut sort, workers, stop)?;
    let mut found = BTreeMap::new();
    let mut first: Option<[u8; ROW_BYTES]> = None;
    let ordinal =
        |row: &[u8; ROW_BYTES]| u64::from_be_bytes(std::array::from_fn(|i| row[HASH_BYTES + i])) as usize;
    for row in sort.finish()? {
        let row = row?;
        match first.filter(|first| first[..HASH_BYTES] == row[..HASH_BYTES]) {
            None => first = Some(row),
            Some(first) => drop(found.insert(ordinal(&row), ordinal(&first))),
        }
    }
    Ok(found)
}

/// Hashes all files. The order of the threads does not matter, because the rows are sorted.
fn hash_all(
    files: &[DuplicateCandidate],
    sort: &mut ExternalSort<ROW_BYTES>,
    workers: &Workers,
    stop: &Stop,
) -> Result<()> {
    let sort = Mutex::new(sort);
    workers.for_all(files, "looking for duplicates", stop, |file| {
        if file.must_begin_as_image && !begins_as_any_image(&file.planned)? {
            return Ok(());
        }
        let mut row = [0; ROW_BYTES];
        row[..HASH_BYTES].copy_from_slice(&file.planned.hash()?);
        row[HASH_BYTES..].copy_from_slice(&(file.ordinal as u64).to_be_bytes());
        sort.lock().unwrap_or_else(PoisonError::into_inner).push(row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_first_of_equal_files_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let contents = ["aa", "b", "ab", "aa", "b", "ccc", "aa"];
        let files = || {
            let one = |(ordinal, content): (usize, &&str)| {
                let path = dir.path().join(ordinal.to_string());
                std::fs::write(&path, content).unwrap();
                DuplicateCandidate {
                    planned: PlannedFile::now(&path).unwrap(),
                    ordinal,
                    must_begin_as_image: false,
                }
            };
            contents.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let expected = BTreeMap::from([(3, 0), (4, 1), (6, 0)]);
        for threads in [1, 3] {
            let workers = &Workers::start(threads).unwrap();
            let work = tempfile::tempdir().unwrap();
            assert_eq!(duplicates(files(), work.path(), workers, &Stop::default()).unwrap(), expected);
            // A second attempt reuses the stored result and reads no files,
            assert_eq!(duplicates(Vec::new(), work.path(), workers, &Stop::default()).unwrap(), expected);
            // unless the stored file was altered.
            for damaged in [&[][..], &[0; 48]] {
                std::fs::write(work.path().join(DUPLICATE_PAIRS_NAME), damaged).unwrap();
                assert_eq!(duplicates(files(), work.path(), workers, &Stop::default()).unwrap(), expected);
            }
            std::fs::remove_file(work.path().join(DUPLICATE_PAIRS_HASH_NAME)).unwrap();
            assert_eq!(duplicates(files(), work.path(), workers, &Stop::default()).unwrap(), expected);
        }
        let (workers, stop) = (&Workers::start(1).unwrap(), Stop::default());
        stop.request(2);
        let stopped = duplicates(files(), dir.path(), workers, &stop).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted(2));
        let mut changed = files();
        changed[0].planned.bytes = 1;
        assert_eq!(
            duplicates(changed, dir.path(), workers, &Stop::default()).unwrap_err().kind(),
            ErrorKind::Io
        );
    }
}
