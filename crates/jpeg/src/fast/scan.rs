//! Entropy-coded segments, prepared for bitwise reading.

use super::request::Declined;

/// Zero bytes after a segment, so that eight bytes can be read at any position.
pub(super) const PADDING: usize = 16;

/// The entropy-coded segments of a scan, without byte stuffing (the zero after each `ff`).
#[derive(Debug, Default)]
pub(super) struct ScanData {
    /// The segments, each followed by [`PADDING`].
    data: Vec<u8>,
    /// The end of each segment, including its padding.
    ends: Vec<usize>,
}

impl ScanData {
    /// Returns the size in bytes of the buffers.
    pub(super) fn kept_bytes(&self) -> usize {
        self.data.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Copies `scan`, whose data must be followed by the end of the image, not by another scan. Returns the bytes after
    /// the end of the image.
    pub(super) fn read<'a>(&mut self, scan: &'a [u8]) -> Result<&'a [u8], Declined> {
        self.copy(scan).strip_prefix(&[0xff, 0xd9]).ok_or(Declined)
    }

    /// Copies the entropy-coded data of one of several scans, without anything after it.
    pub(super) fn read_segments(&mut self, scan: &[u8]) -> Result<(), Declined> {
        if self.copy(scan).is_empty() { Ok(()) } else { Err(Declined) }
    }

    /// Copies the segments of `scan` up to the first marker other than the expected restart marker. Returns the bytes
    /// from that marker on.
    fn copy<'a>(&mut self, scan: &'a [u8]) -> &'a [u8] {
        self.data.clear();
        self.ends.clear();
        self.data.reserve(scan.len() + PADDING);
        let mut rest = scan;
        loop {
            let at = find_ff(rest).unwrap_or(rest.len());
            match rest.get(at + 1) {
                Some(0) => self.data.extend_from_slice(&rest[..=at]),
                // Restart markers count from 0 to 7 repeatedly.
                Some(&marker) if usize::from(marker) == 0xd0 + self.ends.len() % 8 => {
                    self.end_segment(&rest[..at])
                }
                _ => {
                    self.end_segment(&rest[..at]);
                    return &rest[at..];
                }
            }
            rest = &rest[at + 2..];
        }
    }

    fn end_segment(&mut self, last: &[u8]) {
        self.data.extend_from_slice(last);
        self.data.extend_from_slice(&[0; PADDING]);
        self.ends.push(self.data.len());
    }

    /// Returns the segments from first to last, each followed by [`PADDING`].
    pub(super) fn segments(&self) -> Segments<'_> {
        Segments { data: &self.data, ends: &self.ends, start: 0 }
    }
}

/// Iterator over the segments of a [`ScanData`].
#[derive(Debug)]
pub(super) struct Segments<'a> {
    data: &'a [u8],
    /// Ends of the remaining segments.
    ends: &'a [usize],
    start: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&end, ends) = self.ends.split_first()?;
        let segment = self.data.get(self.start..end);
        (self.start, self.ends) = (end, ends);
        segment
    }
}

/// Returns the position of the first `ff`. Searches eight bytes at a time.
fn find_ff(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    for word in bytes.as_chunks::<8>().0 {
        // The lowest ff byte becomes zero when inverted, and is the first to borrow.
        let inverted = !u64::from_le_bytes(*word);
        let zeros = inverted.wrapping_sub(LOW) & !inverted & (LOW << 7);
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(|&byte| byte == 0xff).map(|n| at + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_stuffing_is_removed() {
        let mut out = ScanData::default();
        let scan = [1, 2, 0xff, 0, 3, 4, 5, 6, 7, 8, 9, 0xff, 0, 0xff, 0, 0xff, 0xd9, 7];
        assert_eq!(out.read(&scan), Ok(&[7][..]));
        let segments: Vec<&[u8]> = out.segments().collect();
        assert_eq!(segments, [[&[1, 2, 0xff, 3, 4, 5, 6, 7, 8, 9, 0xff, 0xff][..], &[0; PADDING]].concat()]);
        assert_eq!(out.read(&[1, 2, 3]), Err(Declined));
        for at in 0..20 {
            let mut bytes = vec![0xfe; 20];
            bytes[at] = 0xff;
            assert_eq!(find_ff(&bytes), Some(at));
        }
    }

    #[test]
    fn scans_are_split_at_restart_markers_in_order() {
        let mut out = ScanData::default();
        assert_eq!(out.read(&[1, 0xff, 0xd0, 2, 0xff, 0, 0xff, 0xd1, 0xff, 0xd9]), Ok(&[][..]));
        let segments: Vec<usize> = out.segments().map(|segment| segment.len() - PADDING).collect();
        assert_eq!(segments, [1, 2, 0]);
        for wrong in [&[1, 0xff, 0xd1, 2, 0xff, 0xd9][..], &[1, 0xff, 0xd0, 2, 0xff, 0xd0, 3, 0xff, 0xd9]] {
            assert_eq!(out.read(wrong), Err(Declined));
        }
    }
}
