//! Checks of the listed sources that images and text share.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::printable::printable_path;
use crate::source::file_list::SourceFiles;
use crate::source::named_files::ENCODED_NAMES;
use crate::source::source_file::SourceFile;
use crate::source::splits::Splits;

/// Refuses two files with the same origin: files with the same path in sources with the same label, and files whose names
/// become equal because one of them is not UTF-8 and is percent-encoded.
pub(super) fn check_origins(files: SourceFiles<'_>, sources: &[SourceSpec]) -> Result<()> {
    if sources.len() < 2 && files.iter().all(|file| file.relative.to_str().is_some()) {
        return Ok(());
    }
    let hash = |file: &SourceFile| xxh3_64(file.origin.as_bytes());
    let mut hashes: Vec<u64> = files.iter().map(|file| hash(&file)).collect();
    hashes.sort_unstable();
    let repeated: HashSet<u64> =
        hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    if repeated.is_empty() {
        return Ok(());
    }
    drop(hashes);
    let mut sorted: Vec<_> = files.iter().filter(|file| repeated.contains(&hash(file))).collect();
    sorted.sort_by(|a, b| a.origin.cmp(&b.origin));
    let Some(pair) = sorted.windows(2).find(|pair| pair[0].origin == pair[1].origin) else { return Ok(()) };
    let (a, b) = (&pair[0], &pair[1]);
    let path = |file: &SourceFile| {
        // With the member of an archive.
        let root = &sources[file.source as usize].path;
        let path = if file.is_named() { root.clone() } else { root.join(&file.relative) };
        printable_path(&path).to_string()
    };
    Err(match a.source == b.source {
        true => Error::usage(format!("two files have the key {:?}: {} and {}", a.origin, path(a), path(b)))
            .help(ENCODED_NAMES),
        false => Error::usage(format!(
            "two sources contain a file with the key {:?}: {} and {}",
            a.origin,
            path(a),
            path(b)
        ))
        .help("give one source another label, as LABEL=PATH, or list the path only once"),
    })
}

/// Returns the error for `--split` on sources whose names already define splits. `--layout` with the value `other`
/// ignores those names.
pub(super) fn splits_twice(given: &Splits, other: &str) -> Error {
    let names = given.names.join(", ");
    Error::usage(format!(
        "`split` cannot be used: the sources already define the splits {names} {}",
        given.by
    ))
    .help(format!("leave out `split`, or ignore the existing splits with `layout {other}`"))
}
