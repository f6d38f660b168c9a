//! Boxes of the ISO base media file format (ISO/IEC 14496-12), and the fields inside them.

use crate::error::{Error, Result};

/// The type of a box, an item or a reference: four characters.
pub(crate) type FourCc = [u8; 4];

/// A box: its type and its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BmffBox<'a> {
    pub(crate) kind: FourCc,
    pub(crate) content: &'a [u8],
}

/// Returns a type for messages, with unprintable characters escaped.
pub(crate) fn name(kind: FourCc) -> String {
    kind.escape_ascii().to_string()
}

/// Reads fields in order from the content of a box.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// The type of the box, for messages.
    kind: FourCc,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(kind: FourCc, content: &'a [u8]) -> Self {
        Self { rest: content, kind }
    }

    /// Returns the fields of a full box, with its version and flags.
    pub(crate) fn versioned(kind: FourCc, content: &'a [u8]) -> Result<(Self, u8, u32)> {
        let mut fields = Self::new(kind, content);
        let word = fields.u32()?;
        Ok((fields, (word >> 24) as u8, word & 0x00ff_ffff))
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.too_short())?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.too_short())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn too_short(&self) -> Error {
        Error::corrupt(format!("its box `{}` is too short", name(self.kind)))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn four(&mut self) -> Result<FourCc> {
        self.array()
    }

    /// Reads 16 or, if `is_wide`, 32 bits.
    pub(crate) fn u16_or_u32(&mut self, is_wide: bool) -> Result<u32> {
        if is_wide { self.u32() } else { Ok(self.u16()?.into()) }
    }

    /// Reads an integer of 0, 4 or 8 bytes; of 0 bytes, it is 0.
    pub(crate) fn sized(&mut self, bytes: u8) -> Result<u64> {
        match bytes {
            0 => Ok(0),
            4 => Ok(self.u32()?.into()),
            8 => self.u64(),
            _ => Err(Error::corrupt(format!("its box `{}` has fields of {bytes} bytes", name(self.kind)))),
        }
    }

    /// Returns the bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the boxes that are left.
    pub(crate) fn boxes(&self) -> Boxes<'a> {
        Boxes { rest: self.rest, is_file: false }
    }
}

/// The boxes of a file or of a box, in order.
#[derive(Debug, Clone)]
pub(crate) struct Boxes<'a> {
    rest: &'a [u8],
    is_file: bool,
}

impl<'a> Boxes<'a> {
    pub(crate) fn of_file(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_file: true }
    }

    /// Returns the first box of the type `kind`.
    pub(crate) fn find(mut self, kind: &FourCc) -> Result<Option<BmffBox<'a>>> {
        self.find_map(|found| match found {
            Ok(found) if found.kind != *kind => None,
            found => Some(found),
        })
        .transpose()
    }

    fn read(&mut self) -> Result<BmffBox<'a>> {
        let is_file = self.is_file;
        let cut = |kind: Option<FourCc>| match kind {
            Some(kind) if is_file => Error::truncated(format_args!("its box `{}`", name(kind))),
            None if is_file => Error::truncated("the header of a box"),
            Some(kind) => {
                Error::corrupt(format!("its box `{}` goes beyond the end of its parent", name(kind)))
            }
            None => Error::corrupt("the header of a box goes beyond the end of its parent"),
        };
        let (size, rest) = self.rest.split_first_chunk().ok_or_else(|| cut(None))?;
        let (kind, mut rest) = rest.split_first_chunk().ok_or_else(|| cut(None))?;
        let length = match u32::from_be_bytes(*size) {
            // Up to the end.
            0 => rest.len() as u64,
            1 => {
                let (large, after) = rest.split_first_chunk().ok_or_else(|| cut(Some(*kind)))?;
                rest = after;
                u64::from_be_bytes(*large).checked_sub(16).ok_or_else(|| cut(Some(*kind)))?
            }
            size => u64::from(size).checked_sub(8).ok_or_else(|| {
                Error::corrupt(format!(
                    "its box `{}` declares {size} bytes, fewer than its header has",
                    name(*kind)
                ))
            })?,
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
        let (content, rest) = rest.split_at(length.ok_or_else(|| cut(Some(*kind)))?);
        self.rest = rest;
        Ok(BmffBox { kind: *kind, content })
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = Result<BmffBox<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}
