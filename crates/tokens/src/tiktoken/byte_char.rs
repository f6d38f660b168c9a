//! The printable characters that represent bytes in a `tokenizer.json`.

/// Returns the printable character that represents a byte: the byte itself, or a character from U+0100 on if the byte
/// is white space or invisible.
pub(super) fn byte_char(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match is_printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&other| !is_printable(other)).count() as u32;
            char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}
