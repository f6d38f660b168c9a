//! Reads the members of a tar file, one after the other.
//!
//! The `tar` crate parses the fields of the headers. Its iterator is not used, because it borrows the archive, accepts
//! a missing end-of-archive marker, and does not report which member is damaged.

use std::borrow::Cow;

use ::tar::{EntryType, Header};

use crate::sample::RejectCode;
use crate::source::stream::{Broken, Stream};

const BLOCK: usize = 512;
/// Maximum size of the body of an extension header (GNU long name or PAX), in bytes.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// Maximum number of bytes allocated before any of them is read.
const RESERVED_BYTES: u64 = 1 << 20;
/// Maximum number of bytes read after the end of an archive to find another one, and to verify the checksums of
/// compressed data.
const MAX_TRAILER_BYTES: u64 = 64 << 20;

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

/// The reason why there is no further member.
pub(super) enum NoMember {
    End,
    Failed(crate::error::Error),
    Damaged(TarDamage),
}

/// Damage after which nothing more can be read from a tar file.
pub(super) struct TarDamage {
    /// Name of the damaged member.
    pub(super) member: Option<Vec<u8>>,
    /// Code of the reject.
    pub(super) code: RejectCode,
    /// Description in one sentence.
    pub(super) why: String,
    /// Whether the compressed data is damaged, in which case bytes decompressed earlier may be wrong.
    pub(super) is_corrupt: bool,
}

impl From<Broken> for NoMember {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Failed(error) => NoMember::Failed(error),
            Broken::Damaged(reject) => NoMember::Damaged(TarDamage {
                member: None,
                code: match reject.code {
                    RejectCode::Unsupported => RejectCode::Unsupported,
                    _ => RejectCode::Truncated,
                },
                is_corrupt: reject.code == RejectCode::Corrupt,
                why: reject.message,
            }),
        }
    }
}

impl NoMember {
    /// Returns damage to the tar file itself.
    fn damaged(why: &str) -> Self {
        NoMember::Damaged(TarDamage {
            member: None,
            code: RejectCode::Truncated,
            why: why.to_owned(),
            is_corrupt: false,
        })
    }
}

/// Returns the next member. Files of more than `max_bytes` bytes are skipped. Archives that were joined with `cat` are read
/// as one, as with `tar --ignore-zeros`.
pub(super) fn next(stream: &mut Stream, max_bytes: u64) -> Result<TarMember, NoMember> {
    let mut start = stream.position();
    let mut pax = Pax::default();
    loop {
        let mut block = [0; BLOCK];
        if stream.fill(&mut block)? < BLOCK {
            return Err(NoMember::damaged("it has no end-of-archive marker"));
        }
        if block == [0; BLOCK] {
            block = next_archive(stream)?;
            start = stream.position() - BLOCK as u64;
        }
        let header = Header::from_byte_slice(&block);
        let size = match (pax.size, header.entry_size()) {
            (Some(size), _) | (None, Ok(size)) if is_whole(&block, header) => size,
            _ => return Err(NoMember::damaged("one of its headers is damaged")),
        };
        match header.entry_type() {
            EntryType::GNULongName => {
                let mut name = read_extension(stream, size)?;
                name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
                pax.name = Some(name);
            }
            EntryType::XHeader => {
                let body = read_extension(stream, size)?;
                pax.read(&body).ok_or_else(|| NoMember::damaged("one of its extended headers is damaged"))?;
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => skip(stream, size)?,
            kind => {
                let name = pax.name.take().map_or_else(|| header.path_bytes(), Cow::Owned).into_owned();
                if kind == EntryType::GNUSparse {
                    skip_sparse_headers(stream, &block)?;
                }
                let kind = if pax.is_sparse { EntryType::GNUSparse } else { kind };
                return body(stream, kind, size, max_bytes)
                    .map(|body| TarMember { start, name: name.clone(), body })
                    .map_err(|stop| match stop {
                        NoMember::Damaged(damage) => {
                            NoMember::Damaged(TarDamage { member: Some(name), ..damage })
                        }
                        other => other,
                    });
            }
        }
    }
}

/// What the extended headers before a member say about it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pax {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Pax {
    /// Reads the records of a pax header, `LENGTH KEY=VALUE` and a line feed, where the length counts the whole record.
    /// Values are arbitrary bytes. Returns `None` if a record is damaged.
    fn read(&mut self, mut body: &[u8]) -> Option<()> {
        while !body.is_empty() {
            let space = body.iter().position(|&byte| byte == b' ')?;
            let length: usize = std::str::from_utf8(&body[..space]).ok()?.parse().ok()?;
            let record = body.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&byte| byte == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" if !self.is_sparse => self.name = Some(value.to_vec()),
                b"size" => self.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                b"GNU.sparse.name" => (self.name, self.is_sparse) = (Some(value.to_vec()), true),
                _ => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
            body = &body[length..];
        }
        Some(())
    }
}

/// Skips the blocks with further segments of a sparse member in the old GNU format, which follow its `header`.
fn skip_sparse_headers(stream: &mut Stream, header: &[u8; BLOCK]) -> Result<(), NoMember> {
    /// Positions of the byte that tells whether such a block follows, in the header and in these blocks.
    const IN_HEADER: usize = 482;
    const IN_BLOCK: usize = 504;
    let mut follows = header[IN_HEADER] != 0;
    while follows {
        let mut block = [0; BLOCK];
        if stream.fill(&mut block)? < BLOCK {
            return Err(cut_off());
        }
        follows = block[IN_BLOCK] != 0;
    }
    Ok(())
}

/// Returns whether the header matches its checksum.
fn is_whole(block: &[u8; BLOCK], header: &Header) -> bool {
    /// Position of the checksum itself, whose bytes count as spaces.
    const SUM: std::ops::Range<usize> = 148..156;
    let bytes = block.iter().enumerate();
    let sum: u32 = bytes.map(|(i, &b)| u32::from(if SUM.contains(&i) { b' ' } else { b })).sum();
    header.cksum().is_ok_and(|stored| stored == sum)
}

fn body(stream: &mut Stream, kind: EntryType, size: u64, max_bytes: u64) -> Result<MemberBody, NoMember> {
    let skipped = match kind {
        EntryType::Regular | EntryType::Continuous if size <= max_bytes => {
            return Ok(MemberBody::File(read(stream, size)?));
        }
        EntryType::Regular | EntryType::Continuous => MemberBody::TooLarge(size),
        // The size in the header of a link is that of its target.
        EntryType::Symlink | EntryType::Link => return Ok(MemberBody::Link),
        EntryType::Directory => MemberBody::Folder,
        _ => MemberBody::Other,
    };
    skip(stream, size)?;
    Ok(skipped)
}

fn read_extension(stream: &mut Stream, size: u64) -> Result<Vec<u8>, NoMember> {
    if size > MAX_EXTENSION_BYTES {
        return Err(NoMember::damaged("one of its extended headers is too long"));
    }
    read(stream, size)
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
    skip_exactly(stream, padding(size))?;
    Ok(bytes)
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

fn skip(stream: &mut Stream, size: u64) -> Result<(), NoMember> {
    skip_exactly(stream, size)?;
    skip_exactly(stream, padding(size))
}

fn skip_exactly(stream: &mut Stream, mut bytes: u64) -> Result<(), NoMember> {
    let mut buffer = [0; 8 * BLOCK];
    while bytes > 0 {
        let step = bytes.min(buffer.len() as u64);
        if stream.fill(&mut buffer[..step as usize])? as u64 != step {
            return Err(cut_off());
        }
        bytes -= step;
    }
    Ok(())
}

fn cut_off() -> NoMember {
    NoMember::damaged("it ends in the middle of a member")
}

/// Skips the zeros after the end of an archive, and returns the first header of the next archive.
fn next_archive(stream: &mut Stream) -> Result<[u8; BLOCK], NoMember> {
    let mut block = [0; BLOCK];
    for _ in 0..MAX_TRAILER_BYTES / BLOCK as u64 {
        let filled = stream.fill(&mut block)?;
        if block[..filled].iter().any(|&byte| byte != 0) {
            return match filled == BLOCK && is_whole(&block, Header::from_byte_slice(&block)) {
                true => Ok(block),
                false => Err(NoMember::damaged("there is data after its end that is not another archive")),
            };
        }
        if filled < BLOCK {
            break;
        }
    }
    Err(NoMember::End)
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
