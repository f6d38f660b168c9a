//! Reader of zstd data that consists of several frames.

use std::io::{self, BufRead, Read};

use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::compressed_members::MemberStarts;

/// Minimum number of bytes from which the decoder can interpret the start of a frame.
const FRAME_START_BYTES: usize = 5;
/// Largest window that the decoder accepts, as a power of two: 128 MiB. It is the default of the library. A larger one
/// would need that much memory for each file that is read, which `memory` does not cover.
const MAX_WINDOW_LOG: u32 = 27;
/// Maximum size of the header of a frame.
const MAX_HEADER_BYTES: usize = 18;

/// Reader of consecutive zstd frames.
pub(super) struct Frames<R> {
    raw: R,
    decoder: zstd::stream::raw::Decoder<'static>,
    starts: MemberStarts,
    produced: u64,
    /// Whether the last frame is complete and no other has started.
    between: bool,
    /// Bytes up to the end of the block; no more are decoded at once. If the checksum after the last block is wrong,
    /// the library drops all output of that call.
    wanted: usize,
    /// Whether the decoder may have more output of the last block, without input. It is flushed in a separate call, for
    /// the same reason.
    flushing: bool,
    /// The first bytes of the current frame.
    head: Vec<u8>,
}

/// Returns the size of the window that the header of a frame declares, in bytes.
fn window_bytes(head: &[u8]) -> Option<u64> {
    /// Sizes of the identifier of the dictionary and of the content size, by the bits that select them.
    const DICTIONARY: [usize; 4] = [0, 1, 2, 4];
    const CONTENT_SIZE: [usize; 4] = [1, 2, 4, 8];
    let descriptor = *head.get(4)?;
    let is_single_segment = descriptor & 1 << 5 != 0;
    if !is_single_segment {
        let window = head.get(5)?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let at = 5 + DICTIONARY[usize::from(descriptor & 3)];
    let size = head.get(at..at + CONTENT_SIZE[usize::from(descriptor >> 6)])?;
    let mut bytes = [0; 8];
    bytes[..size.len()].copy_from_slice(size);
    // Sizes of two bytes start at 256, but are too small to matter.
    Some(u64::from_le_bytes(bytes))
}

/// Returns the identifier of the dictionary that the header of a frame names, if any.
fn dictionary_id(head: &[u8]) -> Option<u32> {
    const BYTES: [usize; 4] = [0, 1, 2, 4];
    let descriptor = *head.get(4)?;
    let has_window = descriptor & 1 << 5 == 0;
    let at = 5 + usize::from(has_window);
    let id = head.get(at..at + BYTES[usize::from(descriptor & 3)])?;
    let mut bytes = [0; 4];
    bytes[..id.len()].copy_from_slice(id);
    Some(u32::from_le_bytes(bytes)).filter(|&id| id != 0)
}

/// Returns the error for a frame that was compressed with a dictionary.
fn needs_dictionary(id: u32) -> io::Error {
    let message = format!(
        "a zstd frame needs the dictionary {id}; decompress the file with `zstd -d -D DICTIONARY`, and use the result"
    );
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Returns the error for a frame whose window is too large. Its kind, `Unsupported`, distinguishes it from damage.
fn large_window(bytes: u64) -> io::Error {
    let message = format!(
        "a zstd frame has a window of {} MiB, more than {} MiB; compress the file again with `zstd --long={MAX_WINDOW_LOG}`, \
         or decompress it with `zstd -d --long=31`",
        bytes.div_ceil(1 << 20),
        (1u64 << MAX_WINDOW_LOG) >> 20
    );
    io::Error::new(io::ErrorKind::Unsupported, message)
}

impl<R: BufRead> Frames<R> {
    pub(in crate::source) fn new(raw: R, starts: MemberStarts) -> io::Result<Self> {
        let mut decoder = zstd::stream::raw::Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        let (between, flushing) = (true, false);
        Ok(Self {
            raw,
            decoder,
            starts,
            produced: 0,
            between,
            wanted: FRAME_START_BYTES,
            flushing,
            head: Vec::new(),
        })
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.raw.fill_buf()?;
            let is_end = input.is_empty();
            if buffer.is_empty() || (is_end && self.between) {
                return Ok(0);
            }
            if self.between {
                self.starts.add(self.produced);
                self.decoder.reinit()?;
                self.head.clear();
                (self.between, self.wanted) = (false, FRAME_START_BYTES);
            }
            let flushing = std::mem::take(&mut self.flushing);
            let block = &input[..if flushing { 0 } else { input.len().min(self.wanted) }];
            let (mut source, mut target) = (InBuffer::around(block), OutBuffer::around(&mut *buffer));
            self.head.extend(block.iter().take(MAX_HEADER_BYTES - self.head.len()));
            let hint = self.decoder.run(&mut source, &mut target).map_err(|e| {
                let window = window_bytes(&self.head).filter(|&bytes| bytes > 1 << MAX_WINDOW_LOG);
                match (window, dictionary_id(&self.head)) {
                    (Some(bytes), _) => large_window(bytes),
                    (None, Some(id)) => needs_dictionary(id),
                    (None, None) => e,
                }
            })?;
            let (taken, given) = (source.pos(), target.pos());
            self.raw.consume(taken);
            self.produced += given as u64;
            (self.between, self.wanted) = (hint == 0, hint.max(1));
            self.flushing = given == buffer.len();
            if given > 0 {
                return Ok(given);
            }
            if is_end && !self.between && !flushing {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn frames_with_a_dictionary_are_unsupported() {
        // Magic number, descriptor with an identifier of one byte, window, identifier, and a last block of one raw byte.
        let bytes = [0x28, 0xb5, 0x2f, 0xfd, 1, 0, 7, (1 << 3) | 1, 0, 0, b'x'];
        let error = Frames::new(&bytes[..], MemberStarts::default())
            .unwrap()
            .read_to_end(&mut Vec::new())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("the dictionary 7"), "{error}");
    }

    #[test]
    fn zstd_windows_above_128_mib_are_unsupported() {
        let starts = MemberStarts::default();
        for (log, mib) in [(27, None), (28, Some(256)), (31, Some(2048))] {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.write_all(b"text").unwrap();
            let bytes = [zstd::encode_all(&b"first"[..], 1).unwrap(), encoder.finish().unwrap()].concat();
            let mut read = Vec::new();
            let found = Frames::new(&bytes[..], starts.clone()).unwrap().read_to_end(&mut read);
            match mib {
                None => assert_eq!((found.unwrap(), &read[..]), (9, &b"firsttext"[..])),
                Some(mib) => {
                    let error = found.unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                    assert!(error.to_string().contains(&format!("a window of {mib} MiB")), "{error}");
                }
            }
        }
        // A single segment has no window descriptor: its window is the content.
        let head = [0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000, 0, 0, 0, 16];
        assert_eq!(window_bytes(&head), Some(1 << 28));
    }
}
