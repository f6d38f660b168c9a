//! Thrift compact protocol, used by Parquet footers, page indexes and page headers.
//!
//! The `parquet` crate allocates according to lengths claimed in these bytes, so this parser validates them first. It
//! allocates nothing and rejects whatever the specification does not allow.
//!
//! Format: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

/// Maximum nesting depth of structs and lists.
const MAX_DEPTH: usize = 16;

/// Type code of a boolean field that is true.
pub const TRUE: u8 = 1;
/// Type code of a boolean field that is false.
pub const FALSE: u8 = 2;
/// Type code of a 32-bit integer.
pub const I32: u8 = 5;
/// Type code of a list.
pub const LIST: u8 = 9;
/// Type code of a struct.
pub const STRUCT: u8 = 12;

/// Reads values from the start of a byte slice. Methods return `None` for damaged or truncated bytes.
pub struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Thrift<'a> {
    /// Creates a reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads an unsigned varint of at most ten bytes.
    pub fn varint(&mut self) -> Option<u64> {
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

    fn advance(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    /// Reads the header of the next field of a struct: sets `field` to its number and returns its type. The inner
    /// `None` marks the end of the struct.
    #[allow(clippy::option_option)]
    pub fn field(&mut self, field: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => i16::try_from(zigzag(self.varint()?)).ok()?,
            step => field.checked_add(i16::from(step))?,
        };
        Some(Some(head & 15))
    }

    /// Reads the value of a 16-, 32- or 64-bit integer field.
    pub fn number(&mut self, ty: u8) -> Option<i64> {
        matches!(ty, 4..=6).then_some(())?;
        self.varint().map(zigzag)
    }

    /// Reads the next field of a struct, which must be number `expected` and a non-negative 32-bit integer.
    pub fn count(&mut self, field: &mut i16, expected: i16) -> Option<u32> {
        let ty = self.field(field)??;
        if *field != expected || ty != I32 {
            return None;
        }
        let value = i32::try_from(self.number(ty)?).ok()?;
        u32::try_from(value).ok()
    }

    /// Reads the header of a list: the item type and the number of items, which cannot exceed the remaining bytes.
    pub fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let left = self.bytes.len() - self.at;
        (length <= left as u64).then_some((head & 15, length))
    }

    /// Skips the value of a field of type `ty`.
    pub fn skip(&mut self, ty: u8) -> Option<()> {
        self.skip_nested(ty, MAX_DEPTH)
    }

    fn skip_nested(&mut self, ty: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match ty {
            // No bytes follow: the type encodes the value.
            TRUE | FALSE => Some(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            8 => self.varint().and_then(|length| self.advance(length)),
            LIST | 10 => {
                let (item, length) = self.list()?;
                // Inside a list, a boolean is a separate byte.
                let item = if matches!(item, TRUE | FALSE) { 3 } else { item };
                (0..length).try_for_each(|_| self.skip_nested(item, depth))
            }
            STRUCT => {
                let mut field = 0;
                while let Some(ty) = self.field(&mut field)? {
                    self.skip_nested(ty, depth)?;
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
    fn values_are_skipped_and_lengths_are_checked() {
        // A struct: a binary of 2 bytes, a list of 2 integers, a struct with a boolean.
        let bytes = [0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x1c, 0x11, 0, 0];
        let mut thrift = Thrift::new(&bytes);
        assert_eq!((thrift.skip(STRUCT), thrift.position()), (Some(()), bytes.len()));
        for end in 0..bytes.len() {
            assert_eq!(Thrift::new(&bytes[..end]).skip(STRUCT), None, "{end}");
        }
        let long_binary = [0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x30, 0];
        assert_eq!(Thrift::new(&long_binary).skip(STRUCT), None);
        let long_list = [0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert_eq!(Thrift::new(&long_list).skip(STRUCT), None);
        assert_eq!(Thrift::new(&[0x1c; 10_000]).skip(STRUCT), None, "too deep");
        assert_eq!(Thrift::new(&[0x15, 1]).count(&mut 0, 1), None, "a negative count");
        assert_eq!(Thrift::new(&[0x15, 0x80, 0x80, 0x80, 0x80, 0x40]).count(&mut 0, 1), None, "35 bits");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut thrift = Thrift::new(&bytes);
            let _ = thrift.skip(STRUCT);
            prop_assert!(thrift.position() <= bytes.len());
        }
    }
}
