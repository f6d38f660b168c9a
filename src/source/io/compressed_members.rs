//! Readers of compressed data that consists of several members.
//!
//! A file may consist of consecutive gzip members, zstd frames, or xz or bzip2 streams. Each has its own checksum at
//! its end. The readers record where each member starts in the decompressed bytes, so that the output of a damaged
//! member can be separated from the rest.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bzip2::bufread::BzDecoder;
use liblzma::stream::{Action, Status, Stream as XzStream};

/// Where members start in the decompressed bytes, as far as known.
#[derive(Debug, Clone, Default)]
pub(super) struct MemberStarts(Arc<Mutex<FoundStarts>>);

#[derive(Debug, Default)]
struct FoundStarts {
    starts: Vec<u64>,
    is_ended: bool,
}

impl MemberStarts {
    pub(in crate::source) fn add(&self, start: u64) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !found.is_ended {
            found.starts.push(start);
        }
    }

    /// Ignores further starts, because positions no longer refer to the decompressed bytes.
    pub(super) fn ignore_more(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_ended = true;
    }

    /// Returns the starts that were not taken before, in order.
    pub(in crate::source) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).starts)
    }
}

/// Skips zeros and returns their number.
pub(super) fn skip_zeros(raw: &mut impl BufRead) -> io::Result<u64> {
    let mut zeros = 0;
    loop {
        let input = raw.fill_buf()?;
        let count = input.iter().take_while(|&&byte| byte == 0).count();
        let is_end = count < input.len() || count == 0;
        raw.consume(count);
        zeros += count as u64;
        if is_end {
            return Ok(zeros);
        }
    }
}

/// A decoder of one member.
pub(super) trait MemberDecoder<R>: Read + Sized {
    /// Creates a decoder of the member at the current position of `raw`.
    fn start(raw: R) -> io::Result<Self>;

    /// Returns the input after the member, once its end was read.
    fn rest(self) -> R;

    /// Skips the padding that may follow a member. By default, there is none.
    fn skip_padding(_raw: &mut R) -> io::Result<()> {
        Ok(())
    }
}

/// Reader of a bzip2 stream. The library's own reader drops decoded bytes when it finds damage.
pub(super) struct Bzip2Stream<R> {
    decoder: BzDecoder<R>,
    failure: Option<io::Error>,
}

impl<R: BufRead> MemberDecoder<R> for Bzip2Stream<R> {
    fn start(raw: R) -> io::Result<Self> {
        Ok(Self { decoder: BzDecoder::new(raw), failure: None })
    }

    fn rest(self) -> R {
        self.decoder.into_inner()
    }
}

impl<R: BufRead> Read for Bzip2Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let before = self.decoder.total_out();
        self.decoder.read(buffer).or_else(|error| match (self.decoder.total_out() - before) as usize {
            0 => Err(error),
            // The bytes are in the buffer.
            given => {
                self.failure = Some(error);
                Ok(given)
            }
        })
    }
}

/// Memory limit of the xz decoder, in bytes: twice what its strongest preset needs.
pub(super) const XZ_MEMORY_BYTES: u64 = 128 << 20;
/// First byte of an xz stream.
const XZ_START: u8 = 0xfd;

/// Reader of an xz stream. The library's own reader drops decoded bytes when it finds damage.
pub(super) struct XzMember<R> {
    raw: R,
    stream: XzStream,
    failure: Option<io::Error>,
    is_ended: bool,
}

impl<R: BufRead> MemberDecoder<R> for XzMember<R> {
    fn start(raw: R) -> io::Result<Self> {
        let stream = XzStream::new_stream_decoder(XZ_MEMORY_BYTES, 0)?;
        Ok(Self { raw, stream, failure: None, is_ended: false })
    }

    fn rest(self) -> R {
        self.raw
    }

    /// The length of the padding is a multiple of four.
    fn skip_padding(raw: &mut R) -> io::Result<()> {
        if !skip_zeros(raw)?.is_multiple_of(4) {
            return Err(io::Error::other("the padding between xz streams is not a multiple of 4 bytes"));
        }
        match raw.fill_buf()?.first() {
            Some(&first) if first != XZ_START => Err(io::Error::other("other data follows an xz stream")),
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for XzMember<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while !self.is_ended {
            let input = self.raw.fill_buf()?;
            let is_end = input.is_empty();
            let (taken, given) = (self.stream.total_in(), self.stream.total_out());
            let action = if is_end { Action::Finish } else { Action::Run };
            let status = self.stream.process(input, buffer, action);
            let (taken, given) = (self.stream.total_in() - taken, self.stream.total_out() - given);
            self.raw.consume(taken as usize);
            match status {
                Err(e) if given > 0 => self.failure = Some(e.into()),
                Err(e) => return Err(e.into()),
                Ok(Status::StreamEnd) => self.is_ended = true,
                Ok(_) if given > 0 => {}
                Ok(_) if is_end => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => continue,
            }
            return Ok(given as usize);
        }
        Ok(0)
    }
}

/// Reader of the joined content of consecutive members.
pub(super) struct JoinedMembers<R, M> {
    member: Option<M>,
    /// The input, between members.
    raw: Option<R>,
    starts: MemberStarts,
    produced: u64,
    /// Whether a member has ended, so that padding may follow.
    ended: bool,
}

impl<R: BufRead, M: MemberDecoder<R>> JoinedMembers<R, M> {
    pub(in crate::source) fn new(raw: R, starts: MemberStarts) -> Self {
        Self { member: None, raw: Some(raw), starts, produced: 0, ended: false }
    }
}

impl<R: BufRead, M: MemberDecoder<R>> Read for JoinedMembers<R, M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(raw) = &mut self.raw
                && std::mem::take(&mut self.ended)
                && let Err(error) = M::skip_padding(raw)
            {
                // The member before it is intact.
                self.starts.add(self.produced);
                return Err(error);
            }
            if let Some(mut raw) = self.raw.take() {
                if raw.fill_buf()?.is_empty() {
                    self.raw = Some(raw);
                    return Ok(0);
                }
                self.starts.add(self.produced);
                self.member = Some(M::start(raw)?);
            }
            let Some(member) = &mut self.member else { return Ok(0) };
            let given = match member.read(buffer) {
                Ok(given) => given,
                Err(e) => {
                    // Nothing is read after damage.
                    self.member = None;
                    return Err(e);
                }
            };
            self.produced += given as u64;
            if given > 0 {
                return Ok(given);
            }
            self.raw = self.member.take().map(M::rest);
            self.ended = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::source::io::inflate::GzipMember;
    use crate::source::io::zstd_frames::Frames;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns all bytes of a reader, and where its members start.
    fn read(mut reader: impl Read, starts: &MemberStarts) -> io::Result<(Vec<u8>, Vec<u64>)> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        Ok((bytes, starts.take()))
    }

    #[test]
    fn members_are_read_one_after_the_other() {
        let parts: [&[u8]; 4] = [b"one", b"", &[7; 300_000], b"last"];
        let expected: Vec<u8> = parts.concat();
        let mut reads: Vec<io::Result<(Vec<u8>, Vec<u64>)>> = Vec::new();
        let concat = |compress: &dyn Fn(&[u8]) -> Vec<u8>| {
            parts.iter().flat_map(|part| compress(part)).collect::<Vec<u8>>()
        };
        let starts = MemberStarts::default();
        let bytes = concat(&gzip);
        reads.push(read(JoinedMembers::<_, GzipMember<_>>::new(&bytes[..], starts.clone()), &starts));
        let bytes = concat(&bzip2);
        reads.push(read(JoinedMembers::<_, Bzip2Stream<_>>::new(&bytes[..], starts.clone()), &starts));
        let bytes = concat(&|part| zstd::encode_all(part, 3).unwrap());
        reads.push(read(Frames::new(&bytes[..], starts.clone()).unwrap(), &starts));
        let bytes = concat(&|part| [xz(part), vec![0; 8]].concat());
        reads.push(read(JoinedMembers::<_, XzMember<_>>::new(&bytes[..], starts.clone()), &starts));
        for found in reads {
            let (bytes, starts) = found.unwrap();
            assert!(bytes == expected);
            assert_eq!(starts, [0, 3, 3, 300_003]);
        }
    }

    #[test]
    fn zeros_after_a_gzip_member_are_padding() {
        let starts = MemberStarts::default();
        for zeros in [1, 511, 300_000] {
            let padding = vec![0; zeros];
            let bytes = [gzip(b"one"), padding.clone(), gzip(b"two"), padding].concat();
            let found =
                read(JoinedMembers::<_, GzipMember<_>>::new(&bytes[..], starts.clone()), &starts).unwrap();
            assert_eq!(found, (b"onetwo".to_vec(), vec![0, 3]));
        }
        for bytes in [[&[0], &gzip(b"one")[..]].concat(), [&gzip(b"one")[..], &[0, 1]].concat()] {
            assert!(
                read(JoinedMembers::<_, GzipMember<_>>::new(&bytes[..], starts.clone()), &starts).is_err()
            );
        }
    }

    #[test]
    fn truncated_members_are_an_error() {
        let starts = MemberStarts::default();
        for (name, bytes) in [
            ("gz", gzip(&[1; 9000])),
            ("bz2", bzip2(&[1; 9000])),
            ("zst", zstd::encode_all(&[1u8; 9000][..], 3).unwrap()),
            ("xz", xz(&[1; 9000])),
        ] {
            for cut in 1..bytes.len() {
                let cut = &bytes[..cut];
                let found = match name {
                    "gz" => read(JoinedMembers::<_, GzipMember<_>>::new(cut, starts.clone()), &starts),
                    "bz2" => read(JoinedMembers::<_, Bzip2Stream<_>>::new(cut, starts.clone()), &starts),
                    "zst" => read(Frames::new(cut, starts.clone()).unwrap(), &starts),
                    _ => read(JoinedMembers::<_, XzMember<_>>::new(cut, starts.clone()), &starts),
                };
                assert_eq!(found.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{name} {}", cut.len());
            }
        }
    }

    #[test]
    fn decoded_bytes_are_returned_before_damage_in_bzip2() {
        let text: Vec<u8> = (0..2_000_000u32).map(|i| (i % 1009 * i % 251) as u8).collect();
        let mut bytes = bzip2(&text);
        let at = bytes.len() * 3 / 4;
        bytes[at] ^= 1;
        let kept = |size: usize| {
            let starts = MemberStarts::default();
            let mut reader = JoinedMembers::<_, Bzip2Stream<_>>::new(&bytes[..], starts);
            let (mut kept, mut buffer) = (Vec::new(), vec![0; size]);
            while let Ok(given @ 1..) = reader.read(&mut buffer) {
                kept.extend_from_slice(&buffer[..given]);
            }
            kept
        };
        let by_byte = kept(1);
        assert!(by_byte.len() > 900_000 && by_byte[..900_000] == text[..900_000]);
        assert!(kept(1 << 20) == by_byte && kept(77_777) == by_byte);
    }

    #[test]
    fn other_data_after_the_last_member_is_no_truncation() {
        let starts = MemberStarts::default();
        for garbage in [&b"garbage"[..], b"g", &[0, 0, 0]] {
            let gz = [&gzip(b"one")[..], garbage].concat();
            if garbage[0] != 0 {
                let error = read(JoinedMembers::<_, GzipMember<_>>::new(&gz[..], starts.clone()), &starts)
                    .unwrap_err();
                assert_ne!(error.kind(), io::ErrorKind::UnexpectedEof);
                assert_eq!(starts.take(), [0, 3]);
            }
            let xz = [&xz(b"one")[..], garbage].concat();
            let error =
                read(JoinedMembers::<_, XzMember<_>>::new(&xz[..], starts.clone()), &starts).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(starts.take(), [0, 3], "the damage starts after the intact stream");
        }
    }

    #[test]
    fn all_bytes_are_returned_before_a_checksum_error() {
        let text: Vec<u8> = (0..400_000u32).map(|i| (i % 1009 * i % 251) as u8).collect();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(&text).unwrap();
        let mut zst = encoder.finish().unwrap();
        let mut gz = gzip(&text);
        let at = zst.len() - 1;
        zst[at] ^= 1;
        let at = gz.len() - 8;
        gz[at] ^= 1;
        for size in [1000, 65_536, 131_072, 131_073, 400_000, 500_000] {
            let starts = MemberStarts::default();
            let readers: [Box<dyn Read>; 2] = [
                Box::new(Frames::new(&zst[..], starts.clone()).unwrap()),
                Box::new(JoinedMembers::<_, GzipMember<_>>::new(&gz[..], starts.clone())),
            ];
            for mut reader in readers {
                let (mut bytes, mut buffer) = (Vec::new(), vec![0; size]);
                let error = loop {
                    match reader.read(&mut buffer) {
                        Ok(0) => panic!("the checksum is wrong"),
                        Ok(given) => bytes.extend_from_slice(&buffer[..given]),
                        Err(error) => break error,
                    }
                };
                assert_ne!(error.kind(), io::ErrorKind::UnexpectedEof);
                assert!(bytes == text, "{} bytes with a buffer of {size}", bytes.len());
            }
        }
    }
}
