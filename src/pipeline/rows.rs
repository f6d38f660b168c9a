//! Rows for the record index, stored next to the shards of a unit until the commit.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// A row for the record index, before the number of its shard in the dataset is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowEntry {
    /// Ordinal of the shard in its unit and split.
    pub shard: u32,
    pub position: u64,
    pub bytes: u64,
    pub length: u64,
    pub crc32c: u32,
    pub width: u32,
    pub height: u32,
}

impl RowEntry {
    pub(super) const BYTES: usize = 40;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..8].copy_from_slice(&self.position.to_le_bytes());
        out[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.length.to_le_bytes());
        out[24..28].copy_from_slice(&self.shard.to_le_bytes());
        out[28..32].copy_from_slice(&self.crc32c.to_le_bytes());
        out[32..36].copy_from_slice(&self.width.to_le_bytes());
        out[36..40].copy_from_slice(&self.height.to_le_bytes());
        out
    }

    pub(super) fn from_bytes(row: &[u8; Self::BYTES]) -> Self {
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| row[at + i]));
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| row[at + i]));
        Self {
            position: u64_at(0),
            bytes: u64_at(8),
            length: u64_at(16),
            shard: u32_at(24),
            crc32c: u32_at(28),
            width: u32_at(32),
            height: u32_at(36),
        }
    }
}

/// Returns the name of the file with the rows of a split.
pub(super) fn rows_name(split: &str) -> String {
    format!("{split}.rows")
}

/// Calls `each` with all rows of a split of a unit, in order.
pub(super) fn for_each_row(
    path: &Path,
    records: u64,
    mut each: impl FnMut(RowEntry) -> Result<()>,
) -> Result<()> {
    if records == 0 {
        return Ok(());
    }
    let fail = |e| Error::io("read", path, e);
    // Most units are large. For many small units, allocating buffers of full size would dominate.
    let bytes = usize::try_from(records).unwrap_or(usize::MAX).saturating_mul(RowEntry::BYTES);
    let mut file = BufReader::with_capacity(bytes.min(1 << 18), File::open(path).map_err(fail)?);
    let mut row = [0; RowEntry::BYTES];
    for _ in 0..records {
        file.read_exact(&mut row).map_err(fail)?;
        each(RowEntry::from_bytes(&row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let row =
            RowEntry { shard: 1, position: 2 << 32, bytes: 3, length: 4, crc32c: 5, width: 6, height: 7 };
        assert_eq!(RowEntry::from_bytes(&row.to_bytes()), row);
    }
}
