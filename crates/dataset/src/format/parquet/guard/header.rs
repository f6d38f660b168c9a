//! Page headers, fully parsed before the `parquet` crate parses them.
//!
//! A header is accepted only in the form that dsconvert writes: known fields, in order, with the declared types. Both
//! parsers therefore see the same numbers, and no other part of the header can make the crate allocate memory.

use crate::format::thrift::{FALSE, STRUCT, TRUE, Thrift};

/// Upper bound on the size of a header in this form.
pub(super) const MAX_HEADER_BYTES: u64 = 64;

// Page types.
const DATA_PAGE: u32 = 0;
const DICTIONARY_PAGE: u32 = 2;

// Encodings.
pub(in crate::format::parquet) const PLAIN: u32 = 0;
pub(super) const PLAIN_DICTIONARY: u32 = 2;
const RLE: u32 = 3;
pub(super) const RLE_DICTIONARY: u32 = 8;
pub(super) const BYTE_STREAM_SPLIT: u32 = 9;

/// Header of a dictionary page or a version 1 data page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format::parquet) struct PageHeader {
    pub(super) is_dictionary: bool,
    /// Size of the header itself in bytes.
    pub(super) header_bytes: u64,
    /// Size of the decompressed page in bytes.
    pub(super) decoded_bytes: u64,
    /// Size of the stored page after the header in bytes.
    pub(super) stored_bytes: u64,
    /// Number of values, including nulls.
    pub(in crate::format::parquet) values: u64,
    pub(in crate::format::parquet) encoding: u32,
}

impl PageHeader {
    /// Parses the header at the start of `bytes`. Returns `None` if it is damaged or not in the form that dsconvert
    /// writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut thrift = Thrift::new(bytes);
        let mut field = 0;
        let page_type = thrift.count(&mut field, 1)?;
        let decoded_bytes = thrift.count(&mut field, 2)?;
        let stored_bytes = thrift.count(&mut field, 3)?;
        if thrift.field(&mut field)?? != STRUCT {
            return None;
        }
        let is_dictionary = match (field, page_type) {
            (5, DATA_PAGE) => false,
            (7, DICTIONARY_PAGE) => true,
            _ => return None,
        };
        let mut inner = 0;
        let values = thrift.count(&mut inner, 1)?;
        let encoding = thrift.count(&mut inner, 2)?;
        if is_dictionary {
            match thrift.field(&mut inner)? {
                None => {}
                // The optional `is_sorted` flag.
                Some(TRUE | FALSE) if inner == 3 && thrift.field(&mut inner)?.is_none() => {}
                Some(_) => return None,
            }
        } else {
            let levels = [thrift.count(&mut inner, 3)?, thrift.count(&mut inner, 4)?];
            if levels != [RLE, RLE] || thrift.field(&mut inner)?.is_some() {
                return None;
            }
        }
        thrift.field(&mut field)?.is_none().then(|| Self {
            is_dictionary,
            header_bytes: thrift.position() as u64,
            decoded_bytes: decoded_bytes.into(),
            stored_bytes: stored_bytes.into(),
            values: values.into(),
            encoding,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data page, 300 bytes decoded, 100 stored; 7 values, plain encoding, RLE levels.
    const DATA: [u8; 22] = [
        0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 99, 99,
        99,
    ];

    #[test]
    fn headers_are_parsed_completely() {
        let expected = PageHeader {
            is_dictionary: false,
            header_bytes: 19,
            decoded_bytes: 300,
            stored_bytes: 100,
            values: 7,
            encoding: PLAIN,
        };
        assert_eq!(PageHeader::parse(&DATA), Some(expected));
        for end in 0..19 {
            assert_eq!(PageHeader::parse(&DATA[..end]), None, "{end}");
        }
        let dictionary = [0x15, 4, 0x15, 8, 0x15, 8, 0x4c, 0x15, 2, 0x15, 4, 0x12, 0, 0];
        let header = PageHeader::parse(&dictionary).unwrap();
        assert!(header.is_dictionary && header.values == 1 && header.encoding == PLAIN_DICTIONARY);
    }

    #[test]
    fn other_forms_are_rejected() {
        let with = |at: usize, byte: u8| {
            let mut header = DATA;
            header[at] = byte;
            PageHeader::parse(&header)
        };
        assert_eq!(with(1, 4), None, "a dictionary page with the header of a data page");
        assert_eq!(with(4, 0x05).unwrap().decoded_bytes, 364);
        assert_eq!(with(8, 0x3c), None, "an index page");
        assert_eq!(with(10, 13), None, "a negative number of values");
        assert_eq!(with(14, 8), None, "bit-packed levels");
        assert_eq!(with(17, 0x18), None, "statistics");
    }
}
