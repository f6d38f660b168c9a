//! What the headers of Parquet pages claim, looked at before a decoder allocates for it.
//!
//! A page is decoded as a whole, and its header says how large it becomes. Nothing else bounds that, so the headers of a
//! column are walked first. They are written in the compact protocol of Thrift.

/// Deepest nesting of structs in a header.
const MAX_DEPTH: usize = 8;

/// What matters of a page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) header_bytes: u64,
    /// Bytes of the page when it is decompressed.
    pub(super) decoded_bytes: u64,
    /// Bytes of the page as it is stored behind the header.
    pub(super) stored_bytes: u64,
}

impl PageHeader {
    /// Reads the header that `bytes` begin with; `None` when it is none, or goes on after them.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        /// Ordinals of the fields.
        const DECODED: i64 = 2;
        const STORED: i64 = 3;
        let mut thrift = Thrift { bytes, at: 0 };
        let (mut decoded, mut stored) = (None, None);
        let mut field = 0;
        while let Some(ty) = thrift.field(&mut field)? {
            match field {
                DECODED => decoded = Some(thrift.number(ty)?),
                STORED => stored = Some(thrift.number(ty)?),
                _ => thrift.skip(ty, 0)?,
            }
        }
        Some(Self {
            header_bytes: thrift.at as u64,
            decoded_bytes: u64::try_from(decoded?).ok()?,
            stored_bytes: u64::try_from(stored?).ok()?,
        })
    }
}

struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    /// The type of the next field, whose ordinal goes to `field`; an inner `None` at the end of the struct.
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => zigzag(self.varint()?),
            step => field.checked_add(i64::from(step))?,
        };
        Some(Some(head & 15))
    }

    /// A field of 16, 32 or 64 bits.
    fn number(&mut self, ty: u8) -> Option<i64> {
        matches!(ty, 4..=6).then_some(())?;
        self.varint().map(zigzag)
    }

    fn skip(&mut self, ty: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match ty {
            // true, false: nothing follows.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => self.varint().and_then(|length| self.pass(length)),
            9 | 10 => {
                let head = self.byte()?;
                let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                // Each item takes a byte at least.
                (length <= self.bytes.len() as u64).then_some(())?;
                // In a list, a boolean is a byte of its own.
                let item = if matches!(head & 15, 1 | 2) { 3 } else { head & 15 };
                (0..length).try_for_each(|_| self.skip(item, depth + 1))
            }
            12 => {
                let mut field = 0;
                while let Some(ty) = self.field(&mut field)? {
                    self.skip(ty, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_and_the_rest_is_passed_over() {
        // type 0, 300 bytes decoded, 100 stored; a data page header with 7 values and statistics of two texts.
        let header = [
            0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c,
            0x18, 1, b'z', 0x18, 1, b'a', 0, 0, 0, 99,
        ];
        let expected = PageHeader { header_bytes: 27, decoded_bytes: 300, stored_bytes: 100 };
        assert_eq!(PageHeader::parse(&header), Some(expected));
        for end in 0..27 {
            assert_eq!(PageHeader::parse(&header[..end]), None, "{end}");
        }
        assert_eq!(PageHeader::parse(&[0x25, 1, 0x15, 2, 0]), None, "a negative size");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_trouble(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(header) = PageHeader::parse(&bytes) {
                prop_assert!(header.header_bytes <= bytes.len() as u64);
            }
        }
    }
}
