//! The one error type of the library.
//!
//! An error says **what** went wrong, **where** (file, byte offset or line, shard, row) and, when there is something
//! a person can do, **what to do**. The [`ErrorKind`] is for programs: the command maps it to an exit status, the
//! Python package to an exception class.
//!
//! A defect of one item's bytes is not an error but a [`Reject`](crate::sample::Reject).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::printable::{printable_path, printable_text};

/// Result of every fallible function of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that cannot be: options that contradict each other, two items with one key.
    Usage,
    /// The operating system could not read or write.
    Io,
    /// Bytes of a dataset are not what its manifest, index or format promises.
    Corrupt,
    /// The file is whole but made by a newer version, or uses a feature this build lacks.
    Unsupported,
    /// The run committed nothing: no record came out, too many rejects, a unit failed.
    NotCommitted,
    /// An ordinal, row or byte range that does not exist.
    OutOfRange,
    /// Stopped by a signal; the number is the signal's.
    Interrupted(i32),
    /// A bug in dsconvert or in a library that it uses, to be reported.
    Internal,
}

/// Where it went wrong. Every part is optional; what is known is printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// File or directory.
    pub path: Option<PathBuf>,
    /// Byte offset in that file.
    pub offset: Option<u64>,
    /// Name of the shard.
    pub shard: Option<String>,
    /// Ordinal of the record in its split or, with a shard, in its shard.
    pub row: Option<u64>,
}

/// What a person can do about a bug.
const BUG: &str = "this is a bug in dsconvert: please report it, with this message and the command";

/// An error with its place and its remedy.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    option: Option<&'static str>,
    place: Place,
    help: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` that says `message` (one sentence, no full stop).
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            option: None,
            place: Place::default(),
            help: None,
            source: None,
        }))
    }

    /// A [`ErrorKind::Usage`] error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// A [`ErrorKind::Corrupt`] error.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// A [`ErrorKind::Internal`] error: a state that cannot be, or a panic.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message).help(BUG)
    }

    /// A [`ErrorKind::Io`] error at `path`: `doing` reads as "cannot {doing}". An error of this type that came through the traits of
    /// `std::io` stays what it was.
    pub fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        let source = match source.downcast::<Self>() {
            Ok(error) => return error,
            Err(source) => source,
        };
        Self::new(ErrorKind::Io, format!("cannot {doing}")).at_path(path).caused_by(source)
    }

    /// Names the file.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.place.path = Some(path.into());
        self
    }

    /// Names the option whose value cannot be used, as the library calls it: `text_field`.
    #[must_use]
    pub fn of_option(mut self, option: &'static str) -> Self {
        self.0.option = Some(option);
        self
    }

    /// Names the byte offset.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.place.offset = Some(offset);
        self
    }

    /// Names the shard.
    #[must_use]
    pub fn at_shard(mut self, shard: impl Into<String>) -> Self {
        self.0.place.shard = Some(shard.into());
        self
    }

    /// Names the row.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.0.place.row = Some(row);
        self
    }

    /// Says what the person can do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where it went wrong.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// What the person can do, when there is something.
    pub fn remedy(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Of an error that the caller of the library would have to answer for, although this crate made the value: an
    /// internal error. Others stay as they are.
    #[must_use]
    pub fn never_usage(mut self) -> Self {
        if self.0.kind == ErrorKind::Usage {
            self.0.kind = ErrorKind::Internal;
            self.0.help = Some(BUG.to_owned());
        }
        self
    }

    /// Whether writing failed because the disk or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        self.0.source.as_deref().and_then(|e| e.downcast_ref::<std::io::Error>()).is_some_and(|e| {
            matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, str::to_owned)
    }
}

impl Error {
    /// The error as [`Display`](fmt::Display) shows it, with its option as `name` writes it: `--text-field` on a command
    /// line.
    pub fn with_option_as(&self, name: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut text, name);
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, name: impl Fn(&str) -> String) -> fmt::Result {
        let Inner { message, option, place, source, .. } = &*self.0;
        if let Some(path) = &place.path {
            f.write_str(&printable_path(path))?;
            if let Some(offset) = place.offset {
                write!(f, " at byte {offset}")?;
            }
            f.write_str(": ")?;
        }
        match (&place.shard, place.row) {
            (Some(shard), Some(row)) => write!(f, "shard {shard}, row {row}: ")?,
            (Some(shard), None) => write!(f, "shard {shard}: ")?,
            (None, Some(row)) => write!(f, "record {row}: ")?,
            (None, None) => {}
        }
        if let Some(option) = option {
            write!(f, "{}: ", name(option))?;
        }
        // Messages may quote file names, and may have several lines.
        f.write_str(&printable_text(message))?;
        if let Some(source) = source {
            write!(f, ": {}", printable_text(&source.to_string()))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_and_cause() {
        let e = Error::io("read", Path::new("a/b.jpg"), std::io::Error::other("disk on fire"));
        assert_eq!(e.to_string(), "a/b.jpg: cannot read: disk on fire");
        let through = Error::io("write", Path::new("x"), std::io::Error::other(e));
        assert_eq!(through.to_string(), "a/b.jpg: cannot read: disk on fire");
        let e = Error::corrupt("checksum differs").at_shard("train-000000-00.parquet").at_row(7);
        assert_eq!(e.to_string(), "shard train-000000-00.parquet, row 7: checksum differs");
        assert_eq!(e.kind(), ErrorKind::Corrupt);
        let e = Error::usage("x \u{1b}[2J").at_path("a\nb");
        assert_eq!(e.to_string(), r"a\nb: x \u{1b}[2J");
        let e = Error::usage("no such field").at_path("a").of_option("text_field");
        assert_eq!(e.to_string(), "a: text_field: no such field");
        assert_eq!(e.with_option_as(|name| format!("--{name}")), "a: --text_field: no such field");
    }
}
