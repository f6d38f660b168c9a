//! Characters as Python classifies and changes them.

/// Whitespace as Python's `str.isspace` and `\s` define it.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}
