//! Headers of Parquet pages, in the compact protocol of Thrift.

use crate::format::thrift::{FALSE, STRUCT, TRUE, Thrift};

/// The checked fields of a page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Size of the header itself, in bytes.
    pub(super) header_bytes: u64,
    /// Size of the decompressed page, in bytes.
    pub(super) decoded_bytes: u64,
    /// Size of the page as stored after the header, in bytes.
    pub(super) stored_bytes: u64,
    /// Code of the encoding of the values; `None` for pages that are not data pages.
    pub(super) encoding: Option<i64>,
    /// Offset in the header of the flag `is_compressed` of a page of version 2, if the flag is false.
    pub(super) uncompressed_flag: Option<u64>,
}

/// Returns the flag of a compressed page: `flag`, which is false, as true. It is the type of a Thrift field.
pub(in crate::source) fn as_compressed(flag: u8) -> u8 {
    (flag & 0xf0) | TRUE
}

impl PageHeader {
    /// Parses the header at the start of `bytes`. Returns `None` if there is none, or if it extends beyond `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        /// Thrift field ids.
        const DECODED: i16 = 2;
        const STORED: i16 = 3;
        const DATA: i16 = 5;
        const DATA_V2: i16 = 8;
        let mut thrift = Thrift::new(bytes);
        let (mut decoded, mut stored, mut encoding, mut uncompressed_flag) = (None, None, None, None);
        let mut field = 0;
        while let Some(ty) = thrift.field(&mut field)? {
            match (field, ty) {
                (DECODED, _) => decoded = Some(thrift.number(ty)?),
                (STORED, _) => stored = Some(thrift.number(ty)?),
                (DATA, STRUCT) => encoding = Some(data_header(&mut thrift, 2)?.0),
                (DATA_V2, STRUCT) => {
                    let (code, flag) = data_header(&mut thrift, 4)?;
                    encoding = Some(code);
                    uncompressed_flag = flag;
                }
                _ => thrift.skip(ty)?,
            }
        }
        Some(Self {
            header_bytes: thrift.position() as u64,
            decoded_bytes: u64::try_from(decoded?).ok()?,
            stored_bytes: u64::try_from(stored?).ok()?,
            encoding,
            uncompressed_flag,
        })
    }
}

/// Reads the struct of a data page to its end. Returns the number in its field `wanted`, and the position of the flag
/// `is_compressed` if it is there and false.
fn data_header(thrift: &mut Thrift<'_>, wanted: i16) -> Option<(i64, Option<u64>)> {
    /// Field of the flag in pages of version 2. In version 1, the field does not exist or holds a struct.
    const IS_COMPRESSED: i16 = 7;
    let (mut found, mut flag, mut field) = (None, None, 0);
    loop {
        let start = thrift.position();
        let Some(ty) = thrift.field(&mut field)? else { break };
        if field == wanted {
            found = Some(thrift.number(ty)?);
        } else {
            if field == IS_COMPRESSED && ty == FALSE {
                flag = Some(start as u64);
            }
            thrift.skip(ty)?;
        }
    }
    Some((found?, flag))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_and_other_fields_are_skipped() {
        // type 0, 300 bytes decoded, 100 stored; a data page header with 7 values and statistics of two texts.
        let header = [
            0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c,
            0x18, 1, b'z', 0x18, 1, b'a', 0, 0, 0, 99,
        ];
        let expected = PageHeader {
            header_bytes: 27,
            decoded_bytes: 300,
            stored_bytes: 100,
            encoding: Some(0),
            uncompressed_flag: None,
        };
        assert_eq!(PageHeader::parse(&header), Some(expected));
        for end in 0..27 {
            assert_eq!(PageHeader::parse(&header[..end]), None, "{end}");
        }
        assert_eq!(PageHeader::parse(&[0x25, 1, 0x15, 2, 0]), None, "a negative size");
    }

    #[test]
    fn the_flag_of_an_uncompressed_page_is_found() {
        // type 3, 9 bytes; a header of version 2: 1 value, 0 nulls, 1 row, encoding 0, levels of 0 bytes, not compressed.
        let mut header = vec![
            0x15, 6, 0x15, 18, 0x15, 18, 0x5c, 0x15, 2, 0x15, 0, 0x15, 2, 0x15, 0, 0x15, 0, 0x15, 0, 0x12, 0,
            0,
        ];
        assert_eq!(PageHeader::parse(&header).unwrap().uncompressed_flag, Some(19));
        header[19] = as_compressed(header[19]);
        assert_eq!(header[19], 0x11);
        assert_eq!(PageHeader::parse(&header).unwrap().uncompressed_flag, None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(header) = PageHeader::parse(&bytes) {
                prop_assert!(header.header_bytes <= bytes.len() as u64);
            }
        }
    }
}
