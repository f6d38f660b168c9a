//! What the tests of several sidecars need.

use std::path::Path;

use bytes::Bytes;
use proptest::sample::Index;

use super::table::Geometry;
use super::{IndexFile, Segment};
use crate::storage::{Access, Blob};

/// Cuts so small that a few rows take several files.
pub(super) const SMALL: Geometry = Geometry { batch_rows: 4, segment_rows: 8 };

/// The written `files`, opened.
pub(super) fn segments(dataset: &Path, files: &[IndexFile], access: Access) -> Vec<Segment> {
    let open = |file: &IndexFile| {
        let blob = Blob::open(&dataset.join(&file.path), access, Some(file.bytes)).unwrap();
        Segment { blob, records: file.records }
    };
    files.iter().map(open).collect()
}

/// A written file, mapped.
pub(super) fn segment(dataset: &Path, file: &IndexFile) -> Segment {
    segments(dataset, std::slice::from_ref(file), Access::Map).remove(0)
}

/// A file that exists in memory only.
pub(super) fn segment_of(bytes: Vec<u8>, records: u64) -> Segment {
    Segment { blob: Blob::from_bytes(Path::new("altered.arrow"), Bytes::from(bytes)), records }
}

/// The bytes of `path`, cut short and with bytes xored.
pub(super) fn altered(path: &Path, flips: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    for (at, xor) in flips {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
        }
    }
    bytes
}
