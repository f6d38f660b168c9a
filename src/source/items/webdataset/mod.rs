//! Samples from tar files, as WebDataset writes them: consecutive members with the same path up to the first dot of its
//! last component form one sample.
//!
//! A tar file is read as a stream. Samples before damage in the middle are kept, and the damage itself is one rejected
//! item.

mod members;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use self::members::{MemberBody, TarMember};
use crate::error::Result;
use crate::sample::{Reject, RejectCode};
use crate::source::archive::member_path::{divide, safe_path};
use crate::source::archive::tar::headers::{BLOCK, NoMember, TarDamage};
use crate::source::io::compression::Compression;
use crate::source::io::name::portable_name;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;

/// Maximum total size of the members of one sample, in bytes.
const MAX_SAMPLE_BYTES: u64 = 256 << 20;

/// Members that form one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Path of the members up to the first dot of the last component.
    pub name: String,
    /// The text after that dot in lower case, and the bytes, for each member.
    pub members: Vec<(String, Bytes)>,
    /// Why the sample cannot become a record, if already known.
    pub defect: Option<Reject>,
}

/// The next part of a tar file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextSample {
    /// A sample.
    Sample(Sample),
    /// A part that is rejected: its name (`None` for the tar file itself) and the reason.
    Rejected(Option<String>, Reject),
    /// A member that is not part of a sample, such as a hidden file or a device.
    Skipped,
}

/// Reader of the samples of one tar file, in order.
pub struct Samples {
    stream: Stream,
    /// Parts that were read and not yet returned, with their start offsets in the decompressed data.
    ready: VecDeque<(u64, NextSample)>,
    pending: Option<(u64, Sample)>,
    /// Hashes of the names of all samples so far.
    seen: HashSet<u128>,
    ended: bool,
    /// Starts of compressed members from which nothing has been returned yet.
    members: VecDeque<u64>,
    /// Whether the compressed data is damaged.
    is_corrupt: bool,
    /// Start of the last member that was read.
    last: Option<u64>,
    /// The first sample after a member that starts here or later is not read.
    end: u64,
    /// Whether the first sample may have started before.
    is_partial: bool,
}

impl Samples {
    /// Opens a tar file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or has changed since it was planned.
    pub fn open(planned: &PlannedFile) -> Result<Self> {
        let name = planned.path.to_string_lossy().to_ascii_lowercase();
        let compression = match name.ends_with(".tgz") {
            true => Some(Compression::Gzip),
            false => Compression::of_name(&name).1,
        };
        Ok(Self::of(Stream::open(planned, compression)?))
    }

    /// Opens a part of a tar file without compression. Its samples are those after a member that starts in `part`: each
    /// sample belongs to one part. The first sample of the file belongs to the first part.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_part(planned: &PlannedFile, part: Range<u64>) -> Result<Self> {
        // Headers start at multiples of a block.
        let start = part.start.next_multiple_of(BLOCK as u64);
        let mut stream = Stream::from(planned.open()?, start)?;
        let ended = start > 0 && !members::find_header(&mut stream, part.end)?;
        Ok(Self { end: part.end, is_partial: start > 0, ended, ..Self::of(stream) })
    }

    fn of(stream: Stream) -> Self {
        Self {
            stream,
            ready: VecDeque::new(),
            pending: None,
            seen: HashSet::new(),
            ended: false,
            members: VecDeque::new(),
            is_corrupt: false,
            last: None,
            end: u64::MAX,
            is_partial: false,
        }
    }

    /// Returns the number of bytes of the file up to what was not yet returned. In a compressed file, this is an estimate
    /// before the end.
    pub fn raw_bytes(&self) -> u64 {
        let (read, position) = (self.stream.raw_bytes(), self.stream.position());
        let returned = match self.next_start() {
            None if self.ended => return read,
            next => next.unwrap_or(position),
        };
        if !self.stream.is_compressed() {
            return returned;
        }
        let share = u128::from(read) * u128::from(returned) / u128::from(position.max(1));
        share.min(read.into()) as u64
    }

    /// Returns the start offset in the decompressed data of the first part that was read and not yet returned.
    fn next_start(&self) -> Option<u64> {
        let next = self.ready.front().map(|(start, _)| *start);
        next.or_else(|| self.pending.as_ref().map(|(start, _)| *start))
    }

    /// Returns the start of the last compressed member that contributed bytes to what was returned since the last call;
    /// `None` if no other member started.
    pub fn take_member_start(&mut self) -> Option<u64> {
        self.members.extend(self.stream.take_member_starts());
        let given = match self.next_start() {
            Some(next) => self.members.iter().take_while(|&&start| start < next).count(),
            None if self.ended => self.members.len(),
            None => self.members.iter().take_while(|&&start| start < self.stream.position()).count(),
        };
        self.members.drain(..given).next_back()
    }

    /// Returns whether everything was returned and the compressed data turned out to be damaged, in its last member.
    pub fn ended_corrupt(&self) -> bool {
        self.ended && self.ready.is_empty() && self.is_corrupt
    }

    /// Returns the next sample or other part, with its start offset in the decompressed data; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns operating-system errors, never damage to the file.
    pub fn read(&mut self) -> Result<Option<(u64, NextSample)>> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(Some(found));
            }
            if self.ended {
                return Ok(None);
            }
            let start = self.stream.position();
            match members::next(&mut self.stream, MAX_SAMPLE_BYTES) {
                Ok(member) => self.member(member),
                Err(NoMember::Failed(error)) => return Err(error),
                Err(NoMember::End) => {
                    self.stream.check_unchanged()?;
                    self.end();
                }
                Err(NoMember::Damaged(mut damage)) => {
                    if !damage.is_corrupt && self.stream.is_compressed() {
                        // Damaged compressed data may first show up as a damaged header.
                        match members::drain(&mut self.stream) {
                            Err(NoMember::Failed(error)) => return Err(error),
                            Err(NoMember::Damaged(found)) => damage.is_corrupt = found.is_corrupt,
                            Ok(()) | Err(NoMember::End) => {}
                        }
                    }
                    self.stream.check_unchanged()?;
                    self.damaged(start, damage);
                }
            }
        }
    }

    fn end(&mut self) {
        self.flush();
        self.ended = true;
    }

    fn damaged(&mut self, start: u64, damage: TarDamage) {
        self.is_corrupt = damage.is_corrupt;
        let message = match damage.code {
            RejectCode::Unsupported => damage.why,
            _ => format!("the tar file is broken: {}", damage.why),
        };
        let reject = Reject::new(damage.code, message);
        let name = damage.member.as_deref().and_then(safe_path).map(|path| divide(&path).0.to_owned());
        // The sample that is cut off is incomplete; a sample before it is complete.
        self.pending = self.pending.take().filter(|(_, pending)| Some(&pending.name) != name.as_ref());
        self.end();
        self.push(start, NextSample::Rejected(name, reject));
    }

    /// Adds a part to those that are returned, unless it belongs to the previous part of the file.
    fn push(&mut self, start: u64, found: NextSample) {
        if !std::mem::take(&mut self.is_partial) {
            self.ready.push_back((start, found));
        }
    }

    fn member(&mut self, member: TarMember) {
        let start = member.start;
        let is_last = self.last.replace(start).is_some_and(|last| last >= self.end);
        if is_last && !self.continues(&member) {
            return self.end();
        }
        if matches!(member.body, MemberBody::Folder) {
            self.is_partial &= self.pending.is_some();
            return;
        }
        let unsafe_path = |why: &str| {
            let name = portable_name(OsStr::from_bytes(&member.name));
            NextSample::Rejected(Some(name), Reject::new(RejectCode::UnsafePath, why))
        };
        let Some(path) = safe_path(&member.name) else {
            self.push(start, unsafe_path("the path of the member leads out of the tar file"));
            return;
        };
        let (name, extension) = divide(&path);
        let (bytes, too_large) = match member.body {
            MemberBody::File(bytes) => (bytes, None),
            MemberBody::TooLarge(size) => (Vec::new(), Some(size)),
            MemberBody::Link => {
                self.push(start, unsafe_path("the member is a link"));
                return;
            }
            MemberBody::Folder | MemberBody::Other => return self.push(start, NextSample::Skipped),
        };
        let last = name.rsplit('/').next().unwrap_or_default();
        if last.is_empty() || last.starts_with("__") || last.starts_with('.') {
            return self.push(start, NextSample::Skipped);
        }
        if self.pending.as_ref().is_none_or(|(_, pending)| pending.name != name) {
            self.flush();
        }
        let (_, sample) = self.pending.get_or_insert_with(|| {
            (start, Sample { name: name.to_owned(), members: Vec::new(), defect: None })
        });
        let held: u64 = sample.members.iter().map(|(_, b)| b.len() as u64).sum();
        let size = too_large.unwrap_or(bytes.len() as u64);
        let defect = if held.saturating_add(size) > MAX_SAMPLE_BYTES {
            let message = format!("the sample is larger than {MAX_SAMPLE_BYTES} bytes");
            Some(Reject::new(RejectCode::TooLarge, message))
        } else if sample.members.iter().any(|(e, _)| *e == extension) {
            Some(Reject::new(RejectCode::Corrupt, format!("the member {path:?} occurs twice")))
        } else {
            sample.members.push((extension, Bytes::from(bytes)));
            None
        };
        sample.defect = sample.defect.take().or(defect);
    }

    /// Moves the completed sample to the queue.
    fn flush(&mut self) {
        let Some((start, sample)) = self.pending.take() else { return };
        let found = if self.seen.insert(xxh3_128(sample.name.as_bytes())) {
            NextSample::Sample(sample)
        } else {
            let message = "the sample occurs twice in the tar file; the first one is kept. If these are further members of \
                           that sample, write them next to each other, with `tar --sort=name`";
            NextSample::Rejected(Some(sample.name), Reject::new(RejectCode::Corrupt, message))
        };
        self.push(start, found);
    }

    /// Returns whether a member is part of the sample before it.
    fn continues(&self, member: &TarMember) -> bool {
        let is_file = matches!(member.body, MemberBody::File(_) | MemberBody::TooLarge(_));
        let path = safe_path(&member.name).filter(|_| is_file);
        let name = path.as_deref().map(|path| divide(path).0);
        self.pending.as_ref().is_some_and(|(_, pending)| Some(pending.name.as_str()) == name)
    }
}
