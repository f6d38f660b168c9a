//! Helpers shared by the tests of several sidecar files.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::table::Geometry;
use super::{IndexFile, Segment};
use crate::error::{Error, ErrorKind};
use crate::storage::{Access, Blob};

/// Limits so small that a few rows need several files.
pub(super) const SMALL: Geometry = Geometry { batch_rows: 4, segment_rows: 8 };

/// Cases of a property test in which every case writes files. Each file is fsynced, which is slow.
pub(super) const CASES_WITH_FILES: u32 = 48;

/// Opens the written `files`.
pub(super) fn segments(dataset: &Path, files: &[IndexFile], access: Access) -> Vec<Segment> {
    let open = |file: &IndexFile| {
        let blob = Blob::open(&dataset.join(&file.path), access, Some(file.bytes)).unwrap();
        Segment { blob, records: file.records }
    };
    files.iter().map(open).collect()
}

/// Maps a written file.
pub(super) fn segment(dataset: &Path, file: &IndexFile) -> Segment {
    segments(dataset, std::slice::from_ref(file), Access::Map).remove(0)
}

/// Creates a segment that exists only in memory.
pub(super) fn segment_of(bytes: Vec<u8>, records: u64) -> Segment {
    Segment { blob: Blob::from_bytes(Path::new("altered.arrow"), Bytes::from(bytes)), records }
}

/// Damage to the bytes of a file.
#[derive(Debug, Clone)]
pub(super) struct Alteration {
    cut: Option<Index>,
    flips: Vec<(Index, u8)>,
}

/// Generates an alteration that XORs a few bytes and sometimes truncates the file.
pub(super) fn any_alteration() -> impl Strategy<Value = Alteration> {
    let flips = prop::collection::vec((any::<Index>(), 1u8..), 0..5);
    (prop::option::weighted(0.2, any::<Index>()), flips).prop_map(|(cut, flips)| Alteration { cut, flips })
}

impl Alteration {
    /// Returns a damaged copy of `bytes`.
    pub(super) fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        let len = self.cut.map_or(bytes.len(), |cut| cut.index(bytes.len()));
        let mut bytes = bytes[..len].to_vec();
        for (at, xor) in self.flips.iter().filter(|_| len > 0) {
            bytes[at.index(len)] ^= xor;
        }
        bytes
    }
}

/// Returns whether `error` reports a damaged file and names it.
pub(super) fn reports_damaged_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) && error.place().path.is_some()
}
