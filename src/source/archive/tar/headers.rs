//! The headers in a tar file.
//!
//! The `tar` crate parses the fields of the headers. Its iterator is not used, because it borrows the archive, accepts
//! a missing end-of-archive marker, and does not report which member is damaged.

use std::borrow::Cow;

use ::tar::{EntryType, Header};

use crate::sample::RejectCode;
use crate::source::io::broken::Broken;

pub(in crate::source) const BLOCK: usize = 512;
/// Maximum size of the body of an extension header (GNU long name or PAX), in bytes.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// Maximum number of bytes read after the end of an archive to find another one, and to verify the checksums of
/// compressed data.
pub(in crate::source) const MAX_TRAILER_BYTES: u64 = 64 << 20;

/// The bytes of a tar file, in order.
pub(in crate::source) trait TarInput {
    /// Fills `buffer` with as many bytes as are left, and returns their number.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken>;

    /// Skips `bytes` bytes, or as many as are left, and returns their number.
    fn skip(&mut self, bytes: u64) -> Result<u64, Broken>;

    /// Returns the number of bytes that were read or skipped.
    fn position(&self) -> u64;
}

/// A member without its content, which follows.
pub(in crate::source) struct TarHeader {
    /// Position of its first header.
    pub(in crate::source) start: u64,
    pub(in crate::source) name: Vec<u8>,
    pub(in crate::source) kind: EntryType,
    pub(in crate::source) size: u64,
}

/// The reason why there is no further member.
pub(in crate::source) enum NoMember {
    End,
    Failed(crate::error::Error),
    Damaged(TarDamage),
}

/// Damage after which nothing more can be read from a tar file.
pub(in crate::source) struct TarDamage {
    /// Name of the damaged member.
    pub(in crate::source) member: Option<Vec<u8>>,
    /// Code of the reject.
    pub(in crate::source) code: RejectCode,
    /// Description in one sentence.
    pub(in crate::source) why: String,
    /// Whether the compressed data is damaged, in which case bytes decompressed earlier may be wrong.
    pub(in crate::source) is_corrupt: bool,
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
    pub(in crate::source) fn damaged(why: &str) -> Self {
        NoMember::Damaged(TarDamage {
            member: None,
            code: RejectCode::Truncated,
            why: why.to_owned(),
            is_corrupt: false,
        })
    }
}

/// Returns the header of the next member. Archives that were joined with `cat` are read as one, as with
/// `tar --ignore-zeros`.
pub(in crate::source) fn next_header(input: &mut impl TarInput) -> Result<TarHeader, NoMember> {
    let mut start = input.position();
    let mut pax = Pax::default();
    loop {
        let mut block = [0; BLOCK];
        if input.fill(&mut block)? < BLOCK {
            return Err(NoMember::damaged("it has no end-of-archive marker"));
        }
        if block == [0; BLOCK] {
            block = next_archive(input)?;
            start = input.position() - BLOCK as u64;
        }
        let header = Header::from_byte_slice(&block);
        let size = match (pax.size, header.entry_size()) {
            (Some(size), _) | (None, Ok(size)) if is_whole(&block, header) => size,
            _ => return Err(NoMember::damaged("one of its headers is damaged")),
        };
        match header.entry_type() {
            EntryType::GNULongName => {
                let mut name = read_extension(input, size)?;
                name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
                pax.name = Some(name);
            }
            EntryType::XHeader => {
                let body = read_extension(input, size)?;
                pax.read(&body).ok_or_else(|| NoMember::damaged("one of its extended headers is damaged"))?;
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => {
                skip_member(input, size)?;
            }
            kind => {
                let name = pax.name.take().map_or_else(|| header.path_bytes(), Cow::Owned).into_owned();
                if kind == EntryType::GNUSparse {
                    skip_sparse_headers(input, &block)?;
                }
                let kind = if pax.is_sparse { EntryType::GNUSparse } else { kind };
                return Ok(TarHeader { start, name, kind, size });
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
fn skip_sparse_headers(input: &mut impl TarInput, header: &[u8; BLOCK]) -> Result<(), NoMember> {
    /// Positions of the byte that tells whether such a block follows, in the header and in these blocks.
    const IN_HEADER: usize = 482;
    const IN_BLOCK: usize = 504;
    let mut follows = header[IN_HEADER] != 0;
    while follows {
        let mut block = [0; BLOCK];
        if input.fill(&mut block)? < BLOCK {
            return Err(cut_off());
        }
        follows = block[IN_BLOCK] != 0;
    }
    Ok(())
}

/// Returns whether `block` is a header: it has one as its checksum says, and is not the end of an archive.
pub(in crate::source) fn is_header(block: &[u8]) -> bool {
    block.try_into().is_ok_and(|block: &[u8; BLOCK]| {
        *block != [0; BLOCK] && is_whole(block, Header::from_byte_slice(block))
    })
}

/// Returns whether the header matches its checksum.
fn is_whole(block: &[u8; BLOCK], header: &Header) -> bool {
    /// Position of the checksum itself, whose bytes count as spaces.
    const SUM: std::ops::Range<usize> = 148..156;
    let bytes = block.iter().enumerate();
    let sum: u32 = bytes.map(|(i, &b)| u32::from(if SUM.contains(&i) { b' ' } else { b })).sum();
    header.cksum().is_ok_and(|stored| stored == sum)
}

fn read_extension(input: &mut impl TarInput, size: u64) -> Result<Vec<u8>, NoMember> {
    if size > MAX_EXTENSION_BYTES {
        return Err(NoMember::damaged("one of its extended headers is too long"));
    }
    let mut bytes = vec![0; size as usize];
    if (input.fill(&mut bytes)? as u64) < size {
        return Err(cut_off());
    }
    skip_padding(input, size)?;
    Ok(bytes)
}

/// Returns the number of bytes between the end of a member of `size` bytes and the next header.
fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// Skips the content of a member of `size` bytes, and the padding after it.
pub(in crate::source) fn skip_member(input: &mut impl TarInput, size: u64) -> Result<(), NoMember> {
    skip_exactly(input, size)?;
    skip_exactly(input, padding(size))
}

/// Skips the padding after a member of `size` bytes.
pub(in crate::source) fn skip_padding(input: &mut impl TarInput, size: u64) -> Result<(), NoMember> {
    skip_exactly(input, padding(size))
}

fn skip_exactly(input: &mut impl TarInput, bytes: u64) -> Result<(), NoMember> {
    if input.skip(bytes)? == bytes { Ok(()) } else { Err(cut_off()) }
}

pub(in crate::source) fn cut_off() -> NoMember {
    NoMember::damaged("it ends in the middle of a member")
}

/// Skips the zeros after the end of an archive, and returns the first header of the next archive.
fn next_archive(input: &mut impl TarInput) -> Result<[u8; BLOCK], NoMember> {
    let mut block = [0; BLOCK];
    for _ in 0..MAX_TRAILER_BYTES / BLOCK as u64 {
        let filled = input.fill(&mut block)?;
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
