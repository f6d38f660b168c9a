//! Repetition and definition levels in the RLE/bit-packed hybrid encoding of data pages.
//!
//! A level that repeats at least eight times from a group boundary on becomes a run. All other levels are bit-packed in
//! groups of eight. These choices match those of the `parquet` crate, because the bytes of a shard must not depend on
//! the dsconvert release.
//!
//! Format: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>

/// Number of levels in a bit-packed group.
const GROUP: usize = 8;

/// Maximum groups per header, so that the header fits in one byte.
const MAX_GROUPS: usize = 63;

/// Encoder for the levels of one page.
#[derive(Debug)]
pub(super) struct Levels {
    /// Bits per level.
    width: usize,
    encoded: Vec<u8>,
    /// Levels to bit-pack: whole groups, then possibly a partial one.
    packed: Vec<u8>,
    /// The last level. `repeated` counts how often it occurred since the last group boundary or in the current run.
    level: u8,
    repeated: usize,
}

impl Levels {
    /// Creates an encoder for levels of `width` bits, at most 8.
    pub(super) fn new(width: usize) -> Self {
        let packed = Vec::with_capacity(GROUP * (MAX_GROUPS + 1));
        Self { width, encoded: Vec::new(), packed, level: 0, repeated: 0 }
    }

    /// Adds `level` `count` times.
    pub(super) fn add(&mut self, level: u8, count: usize) {
        for left in (1..=count).rev() {
            if self.repeated >= GROUP && self.level == level {
                self.repeated += left;
                return;
            }
            self.add_one(level);
        }
    }

    fn add_one(&mut self, level: u8) {
        if level != self.level {
            if self.repeated >= GROUP {
                self.end_run();
            }
            self.level = level;
            self.repeated = 0;
        }
        self.repeated += 1;
        self.packed.push(level);
        if !self.packed.len().is_multiple_of(GROUP) {
            return;
        }
        if self.repeated >= GROUP {
            // The group starts a run.
            self.packed.truncate(self.packed.len() - GROUP);
            self.end_packed();
        } else {
            self.repeated = 0;
            if self.packed.len() >= GROUP * MAX_GROUPS {
                self.end_packed();
            }
        }
    }

    /// Appends the encoded levels, prefixed with their size in bytes, to `into` and resets the encoder.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        let partial = self.packed.len() % GROUP;
        let only_partial = self.packed.len() == partial;
        if self.repeated > 0 && only_partial && (self.repeated == partial || partial == 0) {
            self.end_run();
        } else {
            let filled = self.packed.len().next_multiple_of(GROUP);
            self.packed.resize(filled, 0);
            self.end_packed();
        }
        // The levels of a page take less space than its values, which have fewer than 2^31 bytes.
        into.extend((self.encoded.len() as u32).to_le_bytes());
        into.append(&mut self.encoded);
        (self.level, self.repeated) = (0, 0);
    }

    fn end_run(&mut self) {
        let mut header = self.repeated << 1;
        while header >= 0x80 {
            self.encoded.push(header as u8 | 0x80);
            header >>= 7;
        }
        self.encoded.extend([header as u8, self.level]);
        self.packed.clear();
        self.repeated = 0;
    }

    fn end_packed(&mut self) {
        if self.packed.is_empty() {
            return;
        }
        self.encoded.push((self.packed.len() / GROUP) as u8 * 2 + 1);
        for group in self.packed.chunks(GROUP) {
            let bits = group.iter().rev().fold(0u64, |bits, &level| bits << self.width | u64::from(level));
            self.encoded.extend_from_slice(&bits.to_le_bytes()[..self.width]);
        }
        self.packed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(width: usize, levels: &[(u8, usize)]) -> Vec<u8> {
        let mut encoder = Levels::new(width);
        let mut bytes = Vec::new();
        // A preceding page must not affect this one.
        encoder.add(1, 5);
        encoder.take(&mut bytes);
        bytes.clear();
        levels.iter().for_each(|&(level, count)| encoder.add(level, count));
        encoder.take(&mut bytes);
        bytes
    }

    #[test]
    fn levels_are_split_into_runs_and_bit_packed_groups() {
        assert_eq!(encoded(2, &[]), [0, 0, 0, 0]);
        assert_eq!(encoded(2, &[(3, 300)]), [3, 0, 0, 0, 0xd8, 0x04, 3]);
        assert_eq!(encoded(2, &[(3, 5)]), [2, 0, 0, 0, 10, 3]);
        // 0 1 1 1 1 1 1 1 is one group; 0 and 1 start another.
        assert_eq!(encoded(1, &[(0, 1), (1, 7), (0, 1), (1, 1)]), [3, 0, 0, 0, 5, 0xfe, 0x02]);
        // A run starts at a group boundary.
        assert_eq!(encoded(1, &[(0, 1), (1, 100)]), [5, 0, 0, 0, 3, 0xfe, 0xba, 0x01, 1]);
    }
}
