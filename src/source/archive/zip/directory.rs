//! The central directory of a zip archive: section 4.3 of the
//! [format specification](https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT), with the Zip64 records.

use std::io::{self, BufReader, Read};

use super::member::{LOCAL_HEADER_BYTES, ZipMember};
use crate::error::{Error, Result};
use crate::source::archive::directory::{ArchiveDirectory, ArchiveEntry};
use crate::source::archive::member::MemberData;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;

/// Maximum size of the end record and the comment that can follow it, in bytes.
const MAX_END_BYTES: u64 = END_BYTES as u64 + u16::MAX as u64;
const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
const END64_BYTES: usize = 56;
const ENTRY_BYTES: usize = 46;
/// Tag of the extra field with 64-bit sizes and offsets.
const ZIP64_TAG: u16 = 1;
/// Bits of the file type in Unix attributes, and the type of a symbolic link.
const TYPE_MASK: u32 = 0xf000;
const LINK_TYPE: u32 = 0xa000;
/// Code of the host system whose file attributes are those of Unix.
const MADE_BY_UNIX: u8 = 3;

/// Location of the central directory.
struct DirectoryLocation {
    start: u64,
    bytes: u64,
    /// Bytes before the archive, which its offsets do not include.
    before: u64,
}

/// Reads the directory of the archive `planned`. Folders have no entries.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not a zip archive, or is damaged.
pub(in crate::source) fn read_directory(planned: &PlannedFile) -> Result<ArchiveDirectory> {
    let opened = planned.open()?;
    let found = find(&opened, planned.bytes).and_then(|location| match location {
        Ok(location) => entries(&opened, &location),
        Err(why) => Ok(Err(why)),
    });
    // Apparent damage may also be a file that is still being written.
    opened.check_unchanged()?;
    match found.map_err(|e| Error::io("read", &planned.path, e))? {
        Ok(entries) => Ok(ArchiveDirectory { entries, damage: None }),
        Err(why) => Err(Error::usage(format!("the zip archive cannot be read: {why}"))
            .at_path(&planned.path)
            .help("test it with unzip -t; an archive that was not downloaded completely has no directory at its end")),
    }
}

/// Description of the damage to an archive.
type DirectoryDamage = String;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn read_at<const N: usize>(file: &OpenedFile, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Finds the directory through the records at the end of the file.
fn find(file: &OpenedFile, length: u64) -> io::Result<Result<DirectoryLocation, DirectoryDamage>> {
    let tail_start = length.saturating_sub(MAX_END_BYTES);
    let mut tail = vec![0; (length - tail_start) as usize];
    file.read_exact_at(&mut tail, tail_start)?;
    let end_of = |at: usize| at + END_BYTES + usize::from(u16_at(&tail, at + 20));
    let is_record = |at: &usize| tail[*at..].starts_with(b"PK\x05\x06") && end_of(*at) <= tail.len();
    let records = || (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev().filter(is_record);
    // The comment of the archive may contain the signature, and other bytes may follow the archive.
    let Some(at) = records().find(|&at| end_of(at) == tail.len()).or_else(|| records().next()) else {
        return Ok(Err("it has no directory at its end".to_owned()));
    };
    let end = &tail[at..];
    let (mut disks, mut bytes, mut start) =
        (u32::from(u16_at(end, 4)), u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
    let mut directory_end = tail_start + at as u64;
    let is_zip64 =
        u16_at(end, 10) == u16::MAX || bytes == u64::from(u32::MAX) || start == u64::from(u32::MAX);
    if is_zip64 && let Some(locator_at) = directory_end.checked_sub(LOCATOR_BYTES as u64) {
        let locator: [u8; LOCATOR_BYTES] = read_at(file, locator_at)?;
        if locator.starts_with(b"PK\x06\x07") {
            // The offset in the locator does not include bytes before the archive.
            let candidates = [Some(u64_at(&locator, 8)), locator_at.checked_sub(END64_BYTES as u64)];
            let Some((end64_at, end64)) = end64(file, &candidates, locator_at)? else {
                return Ok(Err("its Zip64 end record is missing".to_owned()));
            };
            (disks, bytes, start) = (u32_at(&end64, 16), u64_at(&end64, 40), u64_at(&end64, 48));
            directory_end = end64_at;
        }
    }
    if disks != 0 {
        return Ok(Err("it is one part of a multi-part archive".to_owned()));
    }
    let location = directory_end.checked_sub(bytes).and_then(|real| Some((real, real.checked_sub(start)?)));
    Ok(match location {
        Some((start, before)) => Ok(DirectoryLocation { start, bytes, before }),
        None => Err("its directory is larger than the file".to_owned()),
    })
}

/// Returns the Zip64 end record at the first offset in `candidates` that has one before `limit`, with the offset.
fn end64(
    file: &OpenedFile,
    candidates: &[Option<u64>],
    limit: u64,
) -> io::Result<Option<(u64, [u8; END64_BYTES])>> {
    let fits = |at: &u64| at.checked_add(END64_BYTES as u64).is_some_and(|end| end <= limit);
    for at in candidates.iter().flatten().copied().filter(fits) {
        let record: [u8; END64_BYTES] = read_at(file, at)?;
        if record.starts_with(b"PK\x06\x06") {
            return Ok(Some((at, record)));
        }
    }
    Ok(None)
}

/// Reads the entries of the directory at `location`.
fn entries(
    file: &OpenedFile,
    location: &DirectoryLocation,
) -> io::Result<Result<Vec<ArchiveEntry>, DirectoryDamage>> {
    let range = location.start..location.start + location.bytes;
    file.will_read(range.clone()).map_err(io::Error::other)?;
    let mut reader = BufReader::with_capacity(1 << 18, file.reader(range)).take(location.bytes);
    let mut entries = Vec::new();
    let mut header = [0; ENTRY_BYTES];
    while reader.limit() > 0 {
        let number = entries.len() + 1;
        let damage = || Ok(Err(format!("entry {number} of its directory is damaged")));
        if reader.limit() < ENTRY_BYTES as u64 {
            if entries.is_empty() {
                return damage();
            }
            // The rest is the record of a digital signature.
            break;
        }
        reader.read_exact(&mut header)?;
        if !header.starts_with(b"PK\x01\x02") {
            return damage();
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(&header, at)));
        if reader.limit() < (name + extra + comment) as u64 {
            return damage();
        }
        let mut rest = vec![0; name + extra + comment];
        reader.read_exact(&mut rest)?;
        let mut member = ZipMember {
            offset: u64::from(u32_at(&header, 42)),
            compressed: u64::from(u32_at(&header, 20)),
            size: u64::from(u32_at(&header, 24)),
            crc: u32_at(&header, 16),
            method: u16_at(&header, 10),
            is_encrypted: u16_at(&header, 8) & 1 == 1,
        };
        widen(&mut member, &rest[name..name + extra]);
        let offset = member.offset.checked_add(location.before);
        let Some(offset) = offset.filter(|at| at.saturating_add(LOCAL_HEADER_BYTES as u64) <= location.start)
        else {
            return damage();
        };
        member.offset = offset;
        let is_link = header[5] == MADE_BY_UNIX && (u32_at(&header, 38) >> 16) & TYPE_MASK == LINK_TYPE;
        rest.truncate(name);
        entries.push(ArchiveEntry {
            name: rest,
            size: member.size,
            data: (!is_link).then_some(MemberData::Zip(member)),
        });
    }
    separate_with_slashes(&mut entries);
    entries.retain(|entry| !entry.name.ends_with(b"/"));
    Ok(Ok(entries))
}

/// Replaces backslashes in paths if they take the place of slashes in the whole archive, as old versions of .NET wrote
/// them.
fn separate_with_slashes(entries: &mut [ArchiveEntry]) {
    if entries.iter().any(|entry| entry.name.contains(&b'/')) {
        return;
    }
    for byte in entries.iter_mut().flat_map(|entry| &mut entry.name).filter(|byte| **byte == b'\\') {
        *byte = b'/';
    }
}

/// Replaces numbers that do not fit into 32 bits with those of the Zip64 extra field.
fn widen(member: &mut ZipMember, mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (tag, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(mut field) = extra.get(4..4 + length) else { return };
        extra = &extra[4 + length..];
        if tag == ZIP64_TAG {
            for number in [&mut member.size, &mut member.compressed, &mut member.offset] {
                if *number == u64::from(u32::MAX) && field.len() >= 8 {
                    *number = u64_at(field, 0);
                    field = &field[8..];
                }
            }
        }
    }
}
