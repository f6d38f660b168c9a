//! Base64 with the standard alphabet of RFC 4648.

use std::borrow::Cow;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// In place of the value of a byte that is no digit.
const NONE: u8 = 0xff;

const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < DIGITS.len() {
        values[DIGITS[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Returns `bytes` as Base64, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// Returns the bytes of `text`, in which ASCII white space is ignored and padding may be missing; `None` if it is not
/// Base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = match text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        true => Cow::Owned(text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>()),
        false => Cow::Borrowed(text.as_bytes()),
    };
    let digits = match &text[..] {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in chunk {
            let value = VALUES[usize::from(*digit)];
            if value == NONE {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        let bits = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        match chunk.len() {
            1 => return None,
            length => out.extend_from_slice(bits.get(1..length)?),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_are_encoded_and_decoded() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, expected) in cases {
            assert_eq!(encode(text.as_bytes()), expected);
            assert_eq!(decode(expected).as_deref(), Some(text.as_bytes()));
            assert_eq!(decode(expected.trim_end_matches('=')).as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(encode(&[0xff, 0xef, 0xbf]), "/++/");
        assert_eq!(decode("Zm\n 9v").as_deref(), Some(&b"foo"[..]));
        for wrong in ["Z", "Zm9vZ", "a-_b", "Zg==Zg==", "=", "===="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
    }
}
