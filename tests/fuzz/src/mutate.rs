//! Mutations of a file.

use crate::random::Random;
use crate::targets::Input;

/// Maximum number of mutations of one case.
const MAX_MUTATIONS: usize = 4;
/// Maximum length of a range that is moved, copied or removed.
const MAX_RANGE: usize = 256;
/// Maximum number of bytes that a mutant may have beyond its input.
const MAX_GROWTH: usize = 64 << 10;
/// Bytes near the start and the end of a file, where headers and footers are.
const END_BYTES: usize = 1024;

/// Numbers at the limits of integer fields.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x0fff_ffff_ffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// Pieces of JSON, CSV and other text that parsers treat differently.
const WORDS: [&[u8]; 18] = [
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551616",
    b"9007199254740993",
    b"\"\"",
    b"{}",
    b"[]",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r\n",
    b",",
    b"\"",
    b"\0",
];

/// Returns the input and the bytes of a case.
pub(crate) fn mutant(inputs: &[Input], random: &mut Random) -> (usize, Vec<u8>) {
    let input = random.below(inputs.len());
    let mut bytes = inputs.get(input).map(|input| input.bytes.clone()).unwrap_or_default();
    let limit = bytes.len() + MAX_GROWTH;
    for _ in 0..=random.below(MAX_MUTATIONS) {
        mutate(&mut bytes, inputs, random);
    }
    bytes.truncate(limit);
    (input, bytes)
}

fn mutate(bytes: &mut Vec<u8>, inputs: &[Input], random: &mut Random) {
    let at = position(bytes.len(), random);
    let range = at..(at + 1 + random.below(MAX_RANGE)).min(bytes.len());
    match random.below(13) {
        0..=3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        4 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        5 => {
            let byte = [0, 0xff, 0x7f, 0x80][random.below(4)];
            let end = (at + 1 + random.below(16)).min(bytes.len());
            if let Some(range) = bytes.get_mut(at..end) {
                range.fill(byte);
            }
        }
        6 | 7 => {
            let number = match random.below(4) {
                0 => bytes.len() as u64,
                1 => random.next() >> random.below(64),
                _ => random.pick(&NUMBERS).copied().unwrap_or_default(),
            };
            overwrite(bytes, at, number, random);
        }
        8 => drop(bytes.drain(range)),
        9 => {
            let copy = bytes.get(range).unwrap_or_default().to_vec();
            let to = position(bytes.len(), random);
            bytes.splice(to..to, copy);
        }
        10 => {
            let word = random.pick(&WORDS).copied().unwrap_or_default();
            let end = (at + if random.below(2) == 0 { 0 } else { word.len() }).min(bytes.len());
            bytes.splice(at..end, word.iter().copied());
        }
        11 => {
            // A piece of another file, over the same position or another.
            let other = random.pick(inputs).map(|input| &*input.bytes).unwrap_or_default();
            let from = position(other.len(), random);
            let piece =
                other.get(from..(from + 1 + random.below(MAX_RANGE)).min(other.len())).unwrap_or_default();
            let to = if random.below(2) == 0 { from.min(bytes.len()) } else { at };
            let end = (to + piece.len()).min(bytes.len());
            bytes.splice(to..end, piece.iter().copied());
        }
        _ => match random.below(8) {
            0 => bytes.truncate(at),
            // Deep nesting, for parsers that recurse.
            1 => {
                let open = [b"[".as_slice(), b"{\"a\":", b"(", b"\x1c", b"\x91"][random.below(5)];
                let nested = open.repeat(1 << random.below(14));
                bytes.splice(at..at, nested);
            }
            _ => {
                let with = position(bytes.len(), random);
                if with < bytes.len() && at < bytes.len() {
                    bytes.swap(at, with);
                }
            }
        },
    }
}

/// Returns a position in a file of `len` bytes: anywhere, or near an end.
fn position(len: usize, random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(len.min(END_BYTES)),
        1 => len.saturating_sub(1 + random.below(len.min(END_BYTES))),
        _ => random.below(len),
    }
}

/// Overwrites bytes with `number`: as two to eight bytes in either byte order, or as a varint.
fn overwrite(bytes: &mut [u8], at: usize, number: u64, random: &mut Random) {
    let width = [2, 4, 4, 8][random.below(4)];
    let encoded: Vec<u8> = match random.below(3) {
        0 => number.to_le_bytes().into_iter().take(width).collect(),
        1 => number.to_be_bytes().into_iter().skip(8 - width).collect(),
        _ => {
            let mut rest = number;
            let mut varint = Vec::new();
            while rest >= 0x80 {
                varint.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            varint.push(rest as u8);
            varint
        }
    };
    for (to, from) in bytes.iter_mut().skip(at).zip(encoded) {
        *to = from;
    }
}
