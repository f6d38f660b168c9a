//! Runs of files: units and tasks.

use std::ops::Range;

use crate::source::walk::SourceFile;

/// Cuts the listing into runs of at most `max_files` files and about `max_bytes` bytes; some files stand alone.
pub(super) fn divide(
    files: &[SourceFile],
    max_files: usize,
    max_bytes: u64,
    alone: impl Fn(&SourceFile) -> bool,
) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, file) in files.iter().enumerate() {
        let apart = i > start && (alone(file) || alone(&files[i - 1]));
        if i > start && (apart || i - start == max_files || bytes + file.bytes > max_bytes) {
            units.push(start..i);
            (start, bytes) = (i, 0);
        }
        bytes += file.bytes;
    }
    if start < files.len() {
        units.push(start..files.len());
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_the_listing_and_respect_both_limits() {
        let files: Vec<_> = [5, 1, 1, 1, 9, 1]
            .into_iter()
            .map(|bytes| SourceFile {
                source: 0,
                relative: "x".into(),
                origin: "x".into(),
                bytes,
                modified_ns: 0,
                etag: None,
                member: None,
            })
            .collect();
        assert_eq!(divide(&files, 3, 6, |_| false), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(&files, 2, 100, |_| false), [0..2, 2..4, 4..6]);
        assert_eq!(divide(&files, 9, 100, |f| f.bytes > 4), [0..1, 1..4, 4..5, 5..6]);
        assert!(divide(&[], 2, 100, |_| false).is_empty());
    }
}
