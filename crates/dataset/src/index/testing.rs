//! What the tests of several sidecars need.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::table::Geometry;
use super::{IndexFile, Segment};
use crate::error::{Error, ErrorKind};
use crate::storage::{Access, Blob};

/// Cuts so small that a few rows take several files.
pub(super) const SMALL: Geometry = Geometry { batch_rows: 4, segment_rows: 8 };

/// Cases of a property whose every case writes files: each is fsynced, which takes its time.
pub(super) const CASES_WITH_FILES: u32 = 48;

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

/// What can happen to the bytes of a file.
#[derive(Debug, Clone)]
pub(super) struct Alteration {
    cut: Option<Index>,
    flips: Vec<(Index, u8)>,
}

/// A few bytes xored, and sometimes the end cut off.
pub(super) fn any_alteration() -> impl Strategy<Value = Alteration> {
    let flips = prop::collection::vec((any::<Index>(), 1u8..), 0..5);
    (prop::option::weighted(0.2, any::<Index>()), flips).prop_map(|(cut, flips)| Alteration { cut, flips })
}

impl Alteration {
    pub(super) fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let len = self.cut.map_or(bytes.len(), |cut| cut.index(bytes.len()));
        let mut bytes = bytes[..len].to_vec();
        for (at, xor) in self.flips.iter().filter(|_| len > 0) {
            bytes[at.index(len)] ^= xor;
        }
        bytes
    }
}

/// Whether an error says that the bytes of a file are wrong, and of which.
pub(super) fn is_of_the_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) && error.place().path.is_some()
}
