//! Detection of compression formats, by file extension and by the first bytes.

use serde::{Deserialize, Serialize};

use super::name::strip_extension;
use crate::sample::{Reject, RejectCode};

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// `.gz` (RFC 1952). Consecutive members form one file.
    Gzip,
    /// `.zst` (RFC 8878). Consecutive frames form one file.
    Zstd,
    /// `.xz`. Consecutive streams form one file.
    Xz,
    /// `.bz2`. Consecutive streams form one file.
    Bzip2,
}

/// File extensions.
const EXTENSIONS: [(&str, Compression); 4] = [
    (".gz", Compression::Gzip),
    (".zst", Compression::Zstd),
    (".xz", Compression::Xz),
    (".bz2", Compression::Bzip2),
];

impl Compression {
    /// Number of bytes that [`Self::sniff`] inspects.
    pub const SNIFFED_BYTES: usize = 10;

    /// Returns `name` without its compression extension, and the format of that extension. Case is ignored.
    pub fn of_name(name: &str) -> (&str, Option<Self>) {
        for (extension, compression) in EXTENSIONS {
            if let Some(stem) = strip_extension(name, extension) {
                return (stem, Some(compression));
            }
        }
        (name, None)
    }

    /// Returns the compression format of content that starts with `head`.
    pub fn sniff(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A skippable frame, which may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // The first block starts with the digits of π; an empty file, with the digits of its square root.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }

    /// Returns the file extension of the format.
    pub fn extension(self) -> &'static str {
        EXTENSIONS.iter().find(|(_, c)| *c == self).map_or("", |(extension, _)| extension)
    }

    /// Returns the reject for a file that is compressed although its name does not indicate it.
    pub fn unexpected(self) -> Reject {
        let (name, extension) = (self.name(), self.extension());
        let message = format!("the content is {name} data, but the file name does not end in {extension}");
        Reject::new(RejectCode::UnknownType, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_compression() {
        assert_eq!(Compression::of_name("a.jsonl.GZ"), ("a.jsonl", Some(Compression::Gzip)));
        assert_eq!(Compression::of_name("a.txt"), ("a.txt", None));
        assert_eq!(Compression::of_name("ä.xz"), ("ä", Some(Compression::Xz)));
        assert_eq!(Compression::of_name("€z"), ("€z", None));
        assert_eq!(Compression::of_name(".zst"), ("", Some(Compression::Zstd)));
    }

    #[test]
    fn plain_text_is_not_taken_for_compressed() {
        for text in ["", "B", "BZh9 is a magic number", "Plain", "\u{feff}text"] {
            assert_eq!(Compression::sniff(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Compression::sniff(b"BZh91AY&SY\0"), Some(Compression::Bzip2));
    }
}
