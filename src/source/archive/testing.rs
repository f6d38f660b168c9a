//! Archives as sources, for tests.

use std::path::Path;

use crate::options::SourceSpec;
use crate::source::io::planned::PlannedFile;
use crate::source::list::expand::ExpandedArchive;
use crate::source::list::source_file::SourceFile;

/// Writes the archive `name`, and returns it as a source of its own.
pub(in crate::source) fn source(
    dir: &Path,
    name: &str,
    bytes: &[u8],
) -> (Vec<SourceSpec>, SourceFile, PlannedFile) {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    let planned = PlannedFile::now(&path).unwrap();
    let file =
        SourceFile { modified_ns: planned.modified_ns, ..SourceFile::for_test("", name, planned.bytes) };
    (vec![SourceSpec { label: name.to_owned(), path }], file, planned)
}

pub(in crate::source) fn origins(found: &ExpandedArchive) -> Vec<&str> {
    found.files.iter().map(|file| file.origin.as_str()).collect()
}
