//! Reads the members of a tar file, one after the other.

use ::tar::EntryType;

use crate::error::Result;
use crate::source::archive::tar::headers::{
    BLOCK, MAX_TRAILER_BYTES, NoMember, TarDamage, TarHeader, TarInput, cut_off, is_header, next_header,
    skip_member, skip_padding,
};
use crate::source::io::broken::Broken;
use crate::source::io::stream::Stream;

/// Maximum number of bytes allocated before any of them is read.
const RESERVED_BYTES: u64 = 1 << 20;

/// The content that a header describes.
#[derive(Debug)]
pub(super) enum MemberBody {
    File(Vec<u8>),
    /// A file that is too large to be read, with its size in bytes.
    TooLarge(u64),
    Link,
    Folder,
    /// A device, a sparse file, or any other type.
    Other,
}

pub(super) struct TarMember {
    /// Position of its first header in the decompressed data.
    pub(super) start: u64,
    pub(super) name: Vec<u8>,
    pub(super) body: MemberBody,
}

impl TarInput for Stream {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        Self::fill(self, buffer)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64, Broken> {
        let mut buffer = [0; 8 * BLOCK];
        let mut skipped = 0;
        while skipped < bytes {
            let step = (bytes - skipped).min(buffer.len() as u64);
            let filled = Self::fill(self, &mut buffer[..step as usize])? as u64;
            skipped += filled;
            if filled < step {
                break;
            }
        }
        Ok(skipped)
    }

    fn position(&self) -> u64 {
        Self::position(self)
    }
}

/// Returns the next member. Files of more than `max_bytes` bytes are skipped.
pub(super) fn next(stream: &mut Stream, max_bytes: u64) -> Result<TarMember, NoMember> {
    let TarHeader { start, name, kind, size } = next_header(stream)?;
    match body(stream, kind, size, max_bytes) {
        Ok(body) => Ok(TarMember { start, name, body }),
        Err(NoMember::Damaged(damage)) => Err(NoMember::Damaged(TarDamage { member: Some(name), ..damage })),
        Err(other) => Err(other),
    }
}

/// Skips to the first block with a header, up to `end`. Returns whether there is one.
pub(super) fn find_header(stream: &mut Stream, end: u64) -> Result<bool> {
    let mut block = [0; BLOCK];
    while stream.position() < end {
        match stream.peek(BLOCK)? {
            found if found.len() < BLOCK => return Ok(false),
            found if is_header(found) => return Ok(true),
            _ => {
                if let Err(broken) = stream.fill(&mut block) {
                    return broken.damage().map(|_| false);
                }
            }
        }
    }
    Ok(false)
}

fn body(stream: &mut Stream, kind: EntryType, size: u64, max_bytes: u64) -> Result<MemberBody, NoMember> {
    let skipped = match kind {
        EntryType::Regular | EntryType::Continuous if size <= max_bytes => {
            return Ok(MemberBody::File(read(stream, size)?));
        }
        EntryType::Regular | EntryType::Continuous => MemberBody::TooLarge(size),
        // The size in the header of a link is the size of its target.
        EntryType::Symlink | EntryType::Link => return Ok(MemberBody::Link),
        EntryType::Directory => MemberBody::Folder,
        _ => MemberBody::Other,
    };
    skip_member(stream, size)?;
    Ok(skipped)
}

/// Reads the bytes of a member, without the padding of its last block.
fn read(stream: &mut Stream, size: u64) -> Result<Vec<u8>, NoMember> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let start = bytes.len();
        let step = (size - start as u64).min(RESERVED_BYTES.max(start as u64));
        bytes.resize(start + step as usize, 0);
        if stream.fill(&mut bytes[start..])? as u64 != step {
            return Err(cut_off());
        }
    }
    skip_padding(stream, size)?;
    Ok(bytes)
}

/// Reads the bytes after damage, because the checksum of compressed data comes last.
pub(super) fn drain(stream: &mut Stream) -> Result<(), NoMember> {
    let mut buffer = [0; 8 * BLOCK];
    let mut drained = 0;
    while drained < MAX_TRAILER_BYTES {
        match stream.fill(&mut buffer)? {
            0 => break,
            n => drained += n as u64,
        }
    }
    Ok(())
}
