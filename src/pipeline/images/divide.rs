//! Division of the listing into units, and of units into tasks.

use std::borrow::Borrow;
use std::ops::Range;

use crate::source::source_file::SourceFile;

/// Divides the listing into ranges of at most `max_files` files and about `max_bytes` bytes. The files of an item stay together. Files for which `alone`
/// returns true have their own range.
pub(super) fn divide(
    files: impl Iterator<Item = impl Borrow<SourceFile>>,
    max_files: usize,
    max_bytes: u64,
    alone: impl Fn(&SourceFile) -> bool,
) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let (mut start, mut end, mut bytes, mut was_alone) = (0, 0, 0, false);
    for file in files {
        let file = file.borrow();
        // The files of an item stay together.
        let may_end = file.of_field.is_none();
        let is_alone = may_end && alone(file);
        let is_full = is_alone || was_alone || end - start == max_files || bytes + file.bytes > max_bytes;
        if end > start && is_full && may_end {
            units.push(start..end);
            (start, bytes) = (end, 0);
        }
        (end, was_alone) = (end + 1, is_alone);
        bytes += file.bytes;
    }
    if start < end {
        units.push(start..end);
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_the_listing_and_respect_both_limits() {
        let files = [5, 1, 1, 1, 9, 1].map(|bytes| SourceFile::for_test("x", "x", bytes));
        assert_eq!(divide(files.iter(), 3, 6, |_| false), [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(divide(files.iter(), 2, 100, |_| false), [0..2, 2..4, 4..6]);
        assert_eq!(divide(files.iter(), 9, 100, |f| f.bytes > 4), [0..1, 1..4, 4..5, 5..6]);
        assert!(divide(files[..0].iter(), 2, 100, |_| false).is_empty());
    }
}
