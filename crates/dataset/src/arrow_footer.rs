//! Footers of Arrow IPC files, for shards and indexes.

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Endianness, MetadataVersion, root_as_footer_with_opts};
use arrow_schema::Schema;
use flatbuffers::VerifierOptions;

use crate::error::{Error, ErrorKind, Result};
use crate::storage::Blob;

/// First bytes of an Arrow IPC file: six bytes of signature and two of padding.
pub(crate) const ARROW_MAGIC: &[u8; 8] = b"ARROW1\0\0";

/// End of the file, after the 4-byte size of the footer.
const TAIL: &[u8; 6] = b"ARROW1";

/// The checked footer of an Arrow IPC file.
#[derive(Debug)]
pub(crate) struct ArrowFooter {
    /// The schema, which is authoritative.
    pub(crate) schema: Schema,
    /// Format version that the headers of all record batches must have.
    pub(crate) version: MetadataVersion,
    /// Locations of the record batches, which may lie outside the file.
    pub(crate) batches: Vec<BatchLocation>,
    /// Position of the footer in the file: the end of the record batches.
    pub(crate) start: u64,
    /// Whether the file has dictionaries.
    pub(crate) has_dictionaries: bool,
}

/// Location of a record batch: its header, directly followed by its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLocation {
    pub(crate) offset: u64,
    pub(crate) header_bytes: u64,
    pub(crate) body_bytes: u64,
}

impl ArrowFooter {
    /// Reads the footer of `blob`.
    pub(crate) fn read(blob: &Blob) -> Result<Self> {
        let bad = |why: &str| Error::corrupt(why).at_path(blob.path());
        let tail_bytes = 4 + TAIL.len() as u64;
        let ends = blob.len().checked_sub(tail_bytes).filter(|&end| end >= ARROW_MAGIC.len() as u64);
        let Some(end) = ends else { return Err(bad("the file is too short for an Arrow file")) };
        let tail = blob.read(end, tail_bytes)?;
        let Some((size, magic)) = tail.split_first_chunk::<4>() else {
            return Err(bad("the file is truncated"));
        };
        if magic != TAIL || blob.read(0, ARROW_MAGIC.len() as u64)? != ARROW_MAGIC.as_slice() {
            return Err(bad("the file is not an Arrow file, or it is truncated"));
        }
        let size = u64::from(u32::from_le_bytes(*size));
        let start = end.checked_sub(size).ok_or_else(|| bad("the Arrow footer is longer than the file"))?;
        let bytes = blob.read(start, size)?;
        let damaged = "the Arrow footer is damaged";
        let footer = root_as_footer_with_opts(&flatbuffer_limits(&bytes), &bytes)
            .map_err(|e| bad(damaged).caused_by(e))?;
        let fields = footer.schema().ok_or_else(|| bad("the Arrow footer has no schema"))?;
        if fields.endianness() != Endianness::Little {
            return Err(
                Error::new(ErrorKind::Unsupported, "the Arrow file is big-endian").at_path(blob.path())
            );
        }
        let schema = try_fb_to_schema(fields).map_err(|e| bad(damaged).caused_by(e))?;
        let batches = footer.recordBatches().into_iter().flatten().map(|block| {
            Some(BatchLocation {
                offset: u64::try_from(block.offset()).ok()?,
                header_bytes: u64::try_from(block.metaDataLength()).ok()?,
                body_bytes: u64::try_from(block.bodyLength()).ok()?,
            })
        });
        let batches = batches
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| bad("a record batch has a negative offset or size"))?;
        let has_dictionaries = footer.dictionaries().is_some_and(|list| !list.is_empty());
        Ok(Self { schema, version: footer.version(), batches, start, has_dictionaries })
    }
}

/// Returns limits for verifying the flatbuffer `bytes`. A flatbuffer may refer to one table many times; the limits keep
/// the work proportional to its size.
pub fn flatbuffer_limits(bytes: &[u8]) -> VerifierOptions {
    VerifierOptions {
        max_tables: 64 + bytes.len() / 8,
        max_apparent_size: 4096 + bytes.len() * 4,
        ..VerifierOptions::default()
    }
}
