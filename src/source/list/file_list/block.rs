//! Compressed blocks of source files.
//!
//! Names are stored as differences from the previous name, numbers as variable-length integers, and modification times
//! as differences. Names and numbers are compressed separately, because the digits of random numbers compress badly
//! next to text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use zstd::bulk::Decompressor;

use crate::source::archive::member::{ArchiveMember, MemberData};
use crate::source::archive::tar::member::TarMember;
use crate::source::archive::zip::member::ZipMember;
use crate::source::list::source_file::SourceFile;

/// Maximum size of each part of a block from another process, in bytes.
const MAX_PART_BYTES: usize = 64 << 20;
/// Speed matters more than the last few percent of compression.
const LEVEL: i32 = 1;
/// The origin ends with the relative path.
const RELATIVE_IN_ORIGIN: u64 = 1;
const HAS_ETAG: u64 = 2;
const HAS_MEMBER: u64 = 4;
const HAS_FIELD: u64 = 8;
/// Kinds of members.
const IN_ZIP: u64 = 0;
const IN_TAR: u64 = 1;
const DAMAGE: u64 = 2;

/// Encoded files that are not yet compressed.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenBlock {
    names: Vec<u8>,
    numbers: Vec<u8>,
    origin: String,
    modified_ns: i128,
}

impl OpenBlock {
    pub(super) fn push(&mut self, file: &SourceFile) {
        let (names, numbers) = (&mut self.names, &mut self.numbers);
        let relative = file.relative.as_os_str().as_bytes();
        let in_origin = file.origin.as_bytes().ends_with(relative);
        let flags = [
            (in_origin, RELATIVE_IN_ORIGIN),
            (file.etag.is_some(), HAS_ETAG),
            (file.member.is_some(), HAS_MEMBER),
            (file.of_field.is_some(), HAS_FIELD),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum::<u64>();
        put(names, flags);
        put(names, u64::from(file.source));
        let shared = shared_prefix(&self.origin, &file.origin);
        put(names, shared as u64);
        put_bytes(names, &file.origin.as_bytes()[shared..]);
        if in_origin {
            // Counted from the start, so that it is the same for neighbors whose names differ in length.
            put(names, (file.origin.len() - relative.len()) as u64);
        } else {
            put_bytes(names, relative);
        }
        if let Some(etag) = &file.etag {
            put_bytes(names, etag.as_bytes());
        }
        if let Some(member) = &file.member {
            put_member(names, numbers, member);
        }
        if let Some(field) = file.of_field {
            put(names, u64::from(field));
        }
        put(numbers, file.bytes);
        put_wide(numbers, zigzag(file.modified_ns.wrapping_sub(self.modified_ns)));
        self.origin.clone_from(&file.origin);
        self.modified_ns = file.modified_ns;
    }

    /// Returns the files as a compressed block, and starts anew.
    pub(super) fn seal(&mut self) -> Box<[u8]> {
        let mut bytes = Vec::new();
        put_part(&mut bytes, &self.names);
        put_part(&mut bytes, &self.numbers);
        self.names.clear();
        self.numbers.clear();
        self.origin.clear();
        self.modified_ns = 0;
        bytes.into_boxed_slice()
    }

    /// Resets `reader` to the first of these files.
    pub(super) fn read(&self, reader: &mut BlockReader) {
        reader.start();
        reader.names.extend_from_slice(&self.names);
        reader.numbers.extend_from_slice(&self.numbers);
    }
}

/// Reader of the files of a block.
#[derive(Default)]
pub(super) struct BlockReader {
    /// Shared by all blocks that are read: creating one takes longer than decompressing a block.
    unpacker: Option<Decompressor<'static>>,
    names: Vec<u8>,
    numbers: Vec<u8>,
    at_name: usize,
    at_number: usize,
    origin: String,
    modified_ns: i128,
    source: u32,
    /// Where the relative path starts in the origin; `None`: it is in `relative`.
    relative_at: Option<usize>,
    relative: PathBuf,
    pub(super) bytes: u64,
    etag: Option<String>,
    member: Option<Box<ArchiveMember>>,
    of_field: Option<u32>,
}

impl BlockReader {
    fn start(&mut self) {
        self.names.clear();
        self.numbers.clear();
        self.origin.clear();
        (self.at_name, self.at_number, self.modified_ns) = (0, 0, 0);
    }

    /// Starts at the first file of the compressed block `bytes`. Returns `None` if they are not a valid block.
    pub(super) fn open(&mut self, mut bytes: &[u8]) -> Option<()> {
        self.start();
        take_part(&mut bytes, &mut self.unpacker, &mut self.names)?;
        take_part(&mut bytes, &mut self.unpacker, &mut self.numbers)?;
        bytes.is_empty().then_some(())
    }

    /// Reads the next file into `self`. Returns `None` at the end, and if the bytes are invalid.
    pub(super) fn advance(&mut self) -> Option<()> {
        let names = &mut &self.names[self.at_name..];
        let numbers = &mut &self.numbers[self.at_number..];
        let flags = take(names)?;
        self.source = u32::try_from(take(names)?).ok()?;
        let shared = usize::try_from(take(names)?).ok()?;
        let more = std::str::from_utf8(take_bytes(names)?).ok()?;
        if !self.origin.is_char_boundary(shared) {
            return None;
        }
        self.origin.truncate(shared);
        self.origin.push_str(more);
        self.relative_at = None;
        if flags & RELATIVE_IN_ORIGIN != 0 {
            let at = usize::try_from(take(names)?).ok()?;
            self.origin.as_bytes().get(at..)?;
            self.relative_at = Some(at);
        } else {
            self.relative = PathBuf::from(OsStr::from_bytes(take_bytes(names)?));
        }
        self.etag = match flags & HAS_ETAG {
            0 => None,
            _ => Some(std::str::from_utf8(take_bytes(names)?).ok()?.to_owned()),
        };
        self.member = match flags & HAS_MEMBER {
            0 => None,
            _ => Some(Box::new(take_member(names, numbers)?)),
        };
        self.of_field = match flags & HAS_FIELD {
            0 => None,
            _ => Some(u32::try_from(take(names)?).ok()?),
        };
        self.bytes = take(numbers)?;
        self.modified_ns = self.modified_ns.wrapping_add(unzigzag(take_wide(numbers)?));
        self.at_name = self.names.len() - names.len();
        self.at_number = self.numbers.len() - numbers.len();
        Some(())
    }

    /// Returns the last file that was read.
    pub(super) fn file(&self) -> SourceFile {
        let relative = self.relative_at.and_then(|at| self.origin.as_bytes().get(at..));
        SourceFile {
            source: self.source,
            relative: relative
                .map_or_else(|| self.relative.clone(), |bytes| PathBuf::from(OsStr::from_bytes(bytes))),
            origin: self.origin.clone(),
            bytes: self.bytes,
            modified_ns: self.modified_ns,
            etag: self.etag.clone(),
            member: self.member.clone(),
            of_field: self.of_field,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at_name == self.names.len() && self.at_number == self.numbers.len()
    }
}

/// Returns the length of the common prefix of two names in bytes, up to whole characters.
fn shared_prefix(before: &str, name: &str) -> usize {
    let same = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|&at| before.is_char_boundary(at) && name.is_char_boundary(at)).unwrap_or(0)
}

/// Appends the lengths of a part before and after compression, and the part. A part that compression does not shrink is
/// stored uncompressed.
fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    let packed = zstd::bulk::compress(part, LEVEL).ok().filter(|packed| packed.len() < part.len());
    let stored = packed.as_deref().unwrap_or(part);
    put(out, part.len() as u64);
    put_bytes(out, stored);
}

fn take_part(
    bytes: &mut &[u8],
    unpacker: &mut Option<Decompressor<'static>>,
    part: &mut Vec<u8>,
) -> Option<()> {
    let length = usize::try_from(take(bytes)?).ok().filter(|&length| length <= MAX_PART_BYTES)?;
    let stored = take_bytes(bytes)?;
    if stored.len() == length {
        part.extend_from_slice(stored);
        return Some(());
    }
    let unpacker = match unpacker {
        Some(unpacker) => unpacker,
        None => unpacker.insert(Decompressor::new().ok()?),
    };
    part.reserve(length);
    unpacker.decompress_to_buffer(stored, part).ok().filter(|&unpacked| unpacked == length).map(drop)
}

fn put_member(names: &mut Vec<u8>, numbers: &mut Vec<u8>, member: &ArchiveMember) {
    let ArchiveMember { archive_parts, root_parts, archive_bytes, data } = member;
    put(names, u64::from(*archive_parts));
    put(names, u64::from(*root_parts));
    put(numbers, *archive_bytes);
    match data {
        MemberData::Zip(ZipMember { offset, compressed, size, crc, method, is_encrypted }) => {
            put(names, IN_ZIP);
            put(names, u64::from(*is_encrypted));
            put(names, u64::from(*method));
            for number in [*offset, *compressed, *size, u64::from(*crc)] {
                put(numbers, number);
            }
        }
        MemberData::Tar(TarMember { offset, size }) => {
            put(names, IN_TAR);
            put(numbers, *offset);
            put(numbers, *size);
        }
        MemberData::Damage(why) => {
            put(names, DAMAGE);
            put_bytes(names, why.as_bytes());
        }
    }
}

fn take_member(names: &mut &[u8], numbers: &mut &[u8]) -> Option<ArchiveMember> {
    let mut number = || take(numbers);
    Some(ArchiveMember {
        archive_parts: u32::try_from(take(names)?).ok()?,
        root_parts: u32::try_from(take(names)?).ok()?,
        archive_bytes: number()?,
        data: match take(names)? {
            IN_ZIP => MemberData::Zip(ZipMember {
                is_encrypted: take(names)? != 0,
                method: u16::try_from(take(names)?).ok()?,
                offset: number()?,
                compressed: number()?,
                size: number()?,
                crc: u32::try_from(number()?).ok()?,
            }),
            IN_TAR => MemberData::Tar(TarMember { offset: number()?, size: number()? }),
            DAMAGE => MemberData::Damage(std::str::from_utf8(take_bytes(names)?).ok()?.to_owned()),
            _ => return None,
        },
    })
}

/// Appends `number` as a LEB128 varint.
fn put(out: &mut Vec<u8>, number: u64) {
    put_wide(out, u128::from(number));
}

fn put_wide(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    // Most numbers are small.
    match bytes.split_first()? {
        (&byte, rest) if byte < 0x80 => {
            *bytes = rest;
            Some(u64::from(byte))
        }
        _ => u64::try_from(take_wide(bytes)?).ok(),
    }
}

fn take_wide(bytes: &mut &[u8]) -> Option<u128> {
    let (mut number, mut shift) = (0u128, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u128::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Maps small numbers of either sign to small unsigned numbers.
fn zigzag(number: i128) -> u128 {
    ((number << 1) ^ (number >> 127)).cast_unsigned()
}

fn unzigzag(number: u128) -> i128 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}
