//! Rewrites a JSON array as lines of JSON, byte by byte: commas between elements become line ends, and line ends within
//! elements become spaces. No byte is added or removed. Offsets therefore stay those of the file, and no element has to
//! fit into memory.

/// State of the rewriting between calls.
#[derive(Debug, Default)]
pub(super) struct ArrayLines {
    position: ArrayPosition,
    /// Number of open brackets and braces inside the array.
    depth: u64,
    is_escaped: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ArrayPosition {
    /// Before the first character that is not whitespace.
    #[default]
    Start,
    /// The file is not an array: its lines stay unchanged.
    Lines,
    /// In the array, outside strings.
    Element,
    /// In a string in the array.
    String,
    /// After the array.
    End,
}

impl ArrayLines {
    /// Rewrites the next bytes of the file. Returns the number of bytes before the first non-whitespace byte after the
    /// array, or of all bytes if there is none.
    pub(super) fn rewrite(&mut self, bytes: &mut [u8]) -> usize {
        if self.position == ArrayPosition::Lines {
            return bytes.len();
        }
        for at in 0..bytes.len() {
            let byte = &mut bytes[at];
            match self.position {
                ArrayPosition::Start => match *byte {
                    // Whitespace or a byte order mark.
                    b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf => *byte = b' ',
                    b'[' => (*byte, self.position) = (b' ', ArrayPosition::Element),
                    _ => {
                        self.position = ArrayPosition::Lines;
                        return bytes.len();
                    }
                },
                ArrayPosition::Element => match *byte {
                    b'"' => self.position = ArrayPosition::String,
                    b'[' | b'{' => self.depth += 1,
                    b']' if self.depth == 0 => (*byte, self.position) = (b' ', ArrayPosition::End),
                    b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                    b',' if self.depth == 0 => *byte = b'\n',
                    b'\r' | b'\n' => *byte = b' ',
                    _ => {}
                },
                ArrayPosition::String => match *byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.position = ArrayPosition::Element,
                    _ => {}
                },
                ArrayPosition::End if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') => *byte = b' ',
                ArrayPosition::End => return at,
                ArrayPosition::Lines => {}
            }
        }
        bytes.len()
    }

    /// Returns whether the array has started and not ended.
    pub(in crate::source) fn is_open(&self) -> bool {
        matches!(self.position, ArrayPosition::Element | ArrayPosition::String)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str, step: usize) -> (String, usize, bool) {
        let (mut array, mut bytes, mut kept) = (ArrayLines::default(), text.as_bytes().to_vec(), 0);
        for part in bytes.chunks_mut(step) {
            let here = array.rewrite(part);
            kept += here;
            if here < part.len() {
                break;
            }
        }
        (String::from_utf8(bytes).unwrap(), kept, array.is_open())
    }

    #[test]
    fn elements_become_lines_of_the_same_bytes() {
        let text = " [\n  {\"a\": \"x, ]\\\"}\",\r\n   \"b\": [1, {\"c\": 2}]},\n  3 ,\"[\"\n]\n";
        let lines = "     {\"a\": \"x, ]\\\"}\",     \"b\": [1, {\"c\": 2}]}\n   3 \n\"[\"   ";
        for step in 1..=text.len() {
            assert_eq!(rewritten(text, step), (lines.to_owned(), text.len(), false), "{step}");
        }
    }

    #[test]
    fn other_files_are_unchanged_and_trailing_bytes_are_reported() {
        for text in ["{\"a\": 1}\n{\"a\": [2,\n3]}\n", "  x[1,2]", ""] {
            assert_eq!(rewritten(text, 5), (text.trim_start_matches('x').to_owned(), text.len(), false));
        }
        assert_eq!(rewritten("[1,2] \n{}", 100).1, 7);
        assert!(rewritten("[1,\"]", 1).2 && rewritten("[1,[2]", 2).2);
    }
}
