//! Strings of JSON, 64 bytes at a time with AVX2. `pulp`'s token proves that the CPU has AVX2, so the intrinsics are safe
//! to call.

use std::borrow::Cow;

/// Reads the content of a string, which starts after its opening quote. Returns it with the rest of the line after its
/// closing quote; `None` if it is not a valid string, or if the CPU does not support AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) fn read(line: &str) -> Option<(Cow<'_, str>, &str)> {
    let v3 = pulp::x86::V3::try_new()?;
    v3.vectorize(avx2::ReadString { v3, line })
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn read(_: &str) -> Option<(Cow<'_, str>, &str)> {
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::__m256i;
    use std::borrow::Cow;

    use pulp::x86::V3;

    /// Bytes that are examined at once.
    const WINDOW: usize = 64;

    /// Maximum number of bytes allocated at first for what follows the first escape of a string. The rest of the line may
    /// be much longer than the string.
    const FIRST_BYTES: usize = 16 << 10;

    pub(super) struct ReadString<'a> {
        pub(super) v3: V3,
        pub(super) line: &'a str,
    }

    impl<'a> pulp::NullaryFnOnce for ReadString<'a> {
        type Output = Option<(Cow<'a, str>, &'a str)>;

        #[inline(always)]
        fn call(self) -> Self::Output {
            let Self { v3, line } = self;
            let bytes = line.as_bytes();
            let mut at = 0;
            loop {
                let plain = plain_bytes(v3, &window(bytes, at));
                at += plain;
                if plain < WINDOW {
                    break;
                }
            }
            if *bytes.get(at)? == b'"' {
                return Some((Cow::Borrowed(&line[..at]), &line[at + 1..]));
            }
            let mut text = vec![0; bytes.len().min(at + FIRST_BYTES) + 2 * WINDOW];
            let mut len = at;
            text[..len].copy_from_slice(&bytes[..at]);
            loop {
                match *bytes.get(at)? {
                    b'"' => break,
                    b'\\' => {
                        let (sequence, char) = unescape(&line[at + 1..], text.get_mut(len..)?)?;
                        at += 1 + sequence;
                        len += char;
                    }
                    // A control character, or the end of the line.
                    _ => return None,
                }
                loop {
                    // Copying a whole window, of which only the plain bytes count, is faster than copying a number of
                    // bytes.
                    if text.len() < len + 2 * WINDOW {
                        text.resize(2 * text.len(), 0);
                    }
                    let window = window(bytes, at);
                    let plain = plain_bytes(v3, &window);
                    *text.get_mut(len..)?.first_chunk_mut()? = window;
                    at += plain;
                    len += plain;
                    if plain < WINDOW {
                        break;
                    }
                }
            }
            text.truncate(len);
            Some((Cow::Owned(String::from_utf8(text).ok()?), &line[at + 1..]))
        }
    }

    /// Returns the bytes from `at` on. After the end they are 0, which is in no string.
    #[inline(always)]
    fn window(bytes: &[u8], at: usize) -> [u8; WINDOW] {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(window) => *window,
            None => {
                let mut window = [0; WINDOW];
                window[..rest.len()].copy_from_slice(rest);
                window
            }
        }
    }

    /// Returns how many bytes come before the first quote, backslash or control character.
    #[inline(always)]
    fn plain_bytes(v3: V3, window: &[u8; WINDOW]) -> usize {
        let V3 { avx, avx2, .. } = v3;
        let stops = |bytes| {
            let quotes = avx2._mm256_cmpeq_epi8(bytes, avx._mm256_set1_epi8(b'"'.cast_signed()));
            let backslashes = avx2._mm256_cmpeq_epi8(bytes, avx._mm256_set1_epi8(b'\\'.cast_signed()));
            // The last control character is 0x1f.
            let controls = avx2._mm256_min_epu8(bytes, avx._mm256_set1_epi8(0x1f));
            let controls = avx2._mm256_cmpeq_epi8(bytes, controls);
            let stops = avx2._mm256_or_si256(avx2._mm256_or_si256(quotes, backslashes), controls);
            u64::from(avx2._mm256_movemask_epi8(stops).cast_unsigned())
        };
        let [first, second]: [__m256i; 2] = pulp::cast(*window);
        (stops(first) | stops(second) << 32).trailing_zeros() as usize
    }

    /// The characters of escape sequences of two bytes, by the second byte. All other entries are 0.
    const ESCAPES: [u8; 256] = {
        let mut escapes = [0; 256];
        let pairs = *b"\"\"\\\\//b\x08f\x0cn\nr\rt\t";
        let mut i = 0;
        while i < pairs.len() {
            escapes[pairs[i] as usize] = pairs[i + 1];
            i += 2;
        }
        escapes
    };

    /// Writes the character of the escape sequence at the start of `rest`, after its backslash, to the start of `text`.
    /// Returns the sizes of the sequence and of the character in bytes.
    #[inline(always)]
    fn unescape(rest: &str, text: &mut [u8]) -> Option<(usize, usize)> {
        let kind = *rest.as_bytes().first()?;
        match ESCAPES[usize::from(kind)] {
            0 if kind == b'u' => {
                let (char, bytes) = unescape_unicode(&rest[1..])?;
                let char = char.encode_utf8(text.get_mut(..4)?).len();
                Some((1 + bytes, char))
            }
            0 => None,
            char => {
                *text.first_mut()? = char;
                Some((1, 1))
            }
        }
    }

    /// Returns the character of the hexadecimal digits at the start of `rest`, and the size of the sequence.
    fn unescape_unicode(rest: &str) -> Option<(char, usize)> {
        let first = hex_digits(rest.get(..4)?)?;
        if let Some(char) = char::from_u32(first.into()) {
            return Some((char, 4));
        }
        let second = hex_digits(rest.get(4..)?.strip_prefix("\\u")?.get(..4)?)?;
        let char = char::decode_utf16([first, second]).next()?.ok()?;
        Some((char, 10))
    }

    fn hex_digits(digits: &str) -> Option<u16> {
        // `from_str_radix` also accepts a sign.
        digits.chars().try_fold(0, |number: u16, digit| Some(number << 4 | digit.to_digit(16)? as u16))
    }
}
