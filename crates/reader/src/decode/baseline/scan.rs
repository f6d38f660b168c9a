//! Entropy-coded data, ready to be read as a stream of bits.

use super::NotOurs;

/// Zero bytes behind the data, so that eight bytes can be read anywhere.
pub(super) const PADDING: usize = 16;

/// The data of a scan without stuffing, a zero byte behind each `ff`, and cut where it restarts.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Each part with [`PADDING`] behind it.
    data: Vec<u8>,
    /// Where each part ends, with its padding.
    ends: Vec<usize>,
}

impl Scan {
    /// Bytes of the buffers.
    pub(super) fn kept_bytes(&self) -> usize {
        self.data.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Takes over `scan`, which must end with the end of the image: no other scan.
    pub(super) fn read(&mut self, scan: &[u8]) -> Result<(), NotOurs> {
        self.data.clear();
        self.ends.clear();
        self.data.reserve(scan.len() + PADDING);
        let mut rest = scan;
        loop {
            let at = find_ff(rest).ok_or(NotOurs)?;
            match rest.get(at + 1) {
                Some(0) => self.data.extend_from_slice(&rest[..=at]),
                Some(0xd9) => {
                    self.end_part(&rest[..at]);
                    return Ok(());
                }
                // Restarts are numbered from 0 to 7, again and again.
                Some(&marker) if usize::from(marker) == 0xd0 + self.ends.len() % 8 => {
                    self.end_part(&rest[..at])
                }
                _ => return Err(NotOurs),
            }
            rest = &rest[at + 2..];
        }
    }

    fn end_part(&mut self, last: &[u8]) {
        self.data.extend_from_slice(last);
        self.data.extend_from_slice(&[0; PADDING]);
        self.ends.push(self.data.len());
    }

    /// The parts from first to last, each with [`PADDING`] behind it.
    pub(super) fn parts(&self) -> Parts<'_> {
        Parts { data: &self.data, ends: &self.ends, start: 0 }
    }
}

/// See [`Scan::parts`].
#[derive(Debug)]
pub(super) struct Parts<'a> {
    data: &'a [u8],
    /// Of the parts that are left.
    ends: &'a [usize],
    start: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&end, ends) = self.ends.split_first()?;
        let part = self.data.get(self.start..end);
        (self.start, self.ends) = (end, ends);
        part
    }
}

/// The position of the first `ff`, eight bytes at a time.
fn find_ff(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    for word in bytes.as_chunks::<8>().0 {
        // The lowest byte that was ff is zero when inverted, and borrows first.
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
    fn stuffing_is_taken_out() {
        let mut out = Scan::default();
        let scan = [1, 2, 0xff, 0, 3, 4, 5, 6, 7, 8, 9, 0xff, 0, 0xff, 0, 0xff, 0xd9, 7];
        assert_eq!(out.read(&scan), Ok(()));
        let parts: Vec<&[u8]> = out.parts().collect();
        assert_eq!(parts, [[&[1, 2, 0xff, 3, 4, 5, 6, 7, 8, 9, 0xff, 0xff][..], &[0; PADDING]].concat()]);
        assert_eq!(out.read(&[1, 2, 3]), Err(NotOurs));
        for at in 0..20 {
            let mut bytes = vec![0xfe; 20];
            bytes[at] = 0xff;
            assert_eq!(find_ff(&bytes), Some(at));
        }
    }

    #[test]
    fn it_is_cut_at_restarts_in_their_order() {
        let mut out = Scan::default();
        assert_eq!(out.read(&[1, 0xff, 0xd0, 2, 0xff, 0, 0xff, 0xd1, 0xff, 0xd9]), Ok(()));
        let parts: Vec<usize> = out.parts().map(|part| part.len() - PADDING).collect();
        assert_eq!(parts, [1, 2, 0]);
        for wrong in [&[1, 0xff, 0xd1, 2, 0xff, 0xd9][..], &[1, 0xff, 0xd0, 2, 0xff, 0xd0, 3, 0xff, 0xd9]] {
            assert_eq!(out.read(wrong), Err(NotOurs));
        }
    }
}
