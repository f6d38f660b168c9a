//! The files in a tar file, found by their headers.

use std::ops::Range;

use ::tar::EntryType;

use super::EXTENSION;
use super::headers::{NoMember, TarDamage, TarHeader, TarInput, next_header, skip_member};
use super::member::TarMember;
use crate::error::{Error, Result};
use crate::source::archive::directory::{ArchiveDirectory, ArchiveEntry};
use crate::source::archive::member::MemberData;
use crate::source::archive::member_path::{divide, safe_path};
use crate::source::io::broken::Broken;
use crate::source::io::name::strip_extension;
use crate::source::io::opened::OpenedFile;
use crate::source::io::planned::PlannedFile;

/// Bytes read at a time: a page, because the content of a member usually follows its header.
const BUFFER_BYTES: usize = 4096;
/// Number of skipped bytes after which the bytes that are requested ahead of them are of no use.
const FAR_BYTES: u64 = 8 << 20;
/// Extensions of members that describe the image of their sample.
const DESCRIPTIONS: [&str; 3] = ["cls", "json", "txt"];

/// Reads the headers in the tar file `planned`.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or changes while it is read.
pub(in crate::source) fn read_directory(planned: &PlannedFile) -> Result<ArchiveDirectory> {
    let opened = planned.open()?;
    // In object storage, a request for each header would take longer than to download the content of small files.
    opened.will_read(0..opened.bytes())?;
    let found = directory(&mut TarFile::new(&opened, 0..opened.bytes()));
    let found = found.and_then(|found| with_nested(&opened, found));
    // Apparent damage may also be a file that is still being written.
    opened.check_unchanged()?;
    found
}

/// Returns the name of the first file in the tar file `planned` if it is itself a tar file, without its extension.
///
/// # Errors
///
/// Returns an error if the file cannot be read. Damage is not reported.
pub fn first_nested(planned: &PlannedFile) -> Result<Option<String>> {
    let opened = planned.open()?;
    let mut file = TarFile::new(&opened, 0..opened.bytes());
    let mut entries = Vec::new();
    while entries.is_empty() {
        match read_entry(&mut file, &mut entries) {
            Ok(()) => {}
            Err(NoMember::Failed(error)) => return Err(error),
            Err(NoMember::End | NoMember::Damaged(_)) => break,
        }
    }
    let name =
        entries.first().filter(|entry| nested(entry).is_some()).and_then(|entry| safe_path(&entry.name));
    Ok(name.map(|name| strip_extension(&name, EXTENSION).unwrap_or(&name).to_owned()))
}

/// Returns the range of a tar file in a tar file.
fn nested(entry: &ArchiveEntry) -> Option<Range<u64>> {
    let is_tar =
        |name| std::str::from_utf8(name).is_ok_and(|name| strip_extension(name, EXTENSION).is_some());
    match &entry.data {
        Some(MemberData::Tar(TarMember { offset, size })) if is_tar(&entry.name) => {
            Some(*offset..offset.checked_add(*size)?)
        }
        Some(MemberData::Tar(_) | MemberData::Zip(_) | MemberData::Damage(_)) | None => None,
    }
}

/// Replaces tar files in the tar file `opened` by the files in them, as if they were folders.
fn with_nested(opened: &OpenedFile, found: ArchiveDirectory) -> Result<ArchiveDirectory> {
    let mut entries = Vec::with_capacity(found.entries.len());
    for entry in found.entries {
        let Some(range) = nested(&entry) else {
            entries.push(entry);
            continue;
        };
        let end = range.end.min(opened.bytes());
        let inside = directory(&mut TarFile::new(opened, range.start..end))?;
        let folder = &entry.name[..entry.name.len() - EXTENSION.len()];
        for ArchiveEntry { name, size, data } in inside.entries {
            // What follows the nested tar file is not part of a file in it.
            let is_whole = |data: &MemberData| match data {
                MemberData::Tar(member) => !member.is_cut_off(end),
                MemberData::Zip(_) | MemberData::Damage(_) => false,
            };
            let data = data.filter(|data| is_whole(data) && safe_path(&name).is_some());
            entries.push(ArchiveEntry { name: [folder, b"/", &name].concat(), size, data });
        }
        // If the nested tar file is cut off, so is the one around it.
        if let Some(why) = inside.damage.filter(|_| end == range.end) {
            let data = Some(MemberData::Damage(why));
            entries.push(ArchiveEntry { name: entry.name, size: 0, data });
        }
    }
    Ok(ArchiveDirectory { entries, ..found })
}

fn directory(file: &mut TarFile<'_>) -> Result<ArchiveDirectory> {
    let mut entries = Vec::new();
    loop {
        match read_entry(file, &mut entries) {
            Ok(()) => {}
            Err(NoMember::End) => return Ok(ArchiveDirectory { entries, damage: None }),
            Err(NoMember::Failed(error)) => return Err(error),
            Err(NoMember::Damaged(TarDamage { why, .. })) => {
                return Ok(ArchiveDirectory { entries, damage: Some(why) });
            }
        }
    }
}

/// Appends the next member, unless it is a folder. A member that is cut off is appended before the damage is returned.
fn read_entry(file: &mut TarFile<'_>, entries: &mut Vec<ArchiveEntry>) -> Result<(), NoMember> {
    let TarHeader { name, kind, size, .. } = next_header(file)?;
    let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
    // Before POSIX, folders were files whose names end with a slash.
    let is_folder = kind == EntryType::Directory || (is_file && name.ends_with(b"/"));
    if !is_folder {
        let data = is_file.then(|| MemberData::Tar(TarMember { offset: file.position(), size }));
        // The size in the header of a file that is cut off may be any number.
        let size = size.min(file.end.saturating_sub(file.position()));
        entries.push(ArchiveEntry { name, size, data });
    }
    match kind {
        // The size in the header of a link is the size of its target.
        EntryType::Symlink | EntryType::Link => Ok(()),
        _ => skip_member(file, size),
    }
}

/// Returns whether any of `entries` is an image next to a description of it: the members of a sample in a WebDataset.
pub(in crate::source) fn has_samples(entries: &[ArchiveEntry], is_image: &dyn Fn(&str) -> bool) -> bool {
    let (mut sample, mut has_image, mut is_described) = (String::new(), false, false);
    for entry in entries.iter().filter(|entry| entry.data.is_some()) {
        let Some(path) = safe_path(&entry.name) else { continue };
        let (name, extension) = divide(&path);
        if name != sample {
            (sample, has_image, is_described) = (name.to_owned(), false, false);
        }
        has_image |= is_image(path.rsplit('/').next().unwrap_or_default());
        is_described |= DESCRIPTIONS.contains(&extension.as_str());
        if has_image && is_described {
            return true;
        }
    }
    false
}

/// Reader of the headers in a tar file.
struct TarFile<'a> {
    opened: &'a OpenedFile,
    position: u64,
    /// End of the tar file, which may be part of another.
    end: u64,
    /// The bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
}

impl<'a> TarFile<'a> {
    fn new(opened: &'a OpenedFile, range: Range<u64>) -> Self {
        Self { opened, position: range.start, end: range.end, buffer: Vec::new(), start: range.start }
    }

    /// Returns the buffered bytes at the position, after reading them if there are none. They are empty at the end.
    fn buffered(&mut self) -> Result<&[u8], Broken> {
        let is_buffered = (self.start..self.start + self.buffer.len() as u64).contains(&self.position);
        if !is_buffered {
            let left = self.end.saturating_sub(self.position);
            self.buffer.resize(left.min(BUFFER_BYTES as u64) as usize, 0);
            self.start = self.position;
            let read = self.opened.read_exact_at(&mut self.buffer, self.position);
            read.map_err(|e| Error::io("read", self.opened.path(), e))?;
        }
        Ok(&self.buffer[(self.position - self.start) as usize..])
    }
}

impl TarInput for TarFile<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = self.buffered()?;
            if bytes.is_empty() {
                break;
            }
            let step = bytes.len().min(buffer.len() - filled);
            buffer[filled..filled + step].copy_from_slice(&bytes[..step]);
            filled += step;
            self.position += step as u64;
        }
        Ok(filled)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64, Broken> {
        let skipped = bytes.min(self.end.saturating_sub(self.position));
        self.position += skipped;
        if skipped > FAR_BYTES {
            self.opened.will_read(self.position..self.end)?;
        }
        Ok(skipped)
    }

    fn position(&self) -> u64 {
        self.position
    }
}
