//! The error type shared by all dsconvert crates.
//!
//! An error describes **what** went wrong, **where** (file, byte offset or line, shard, row) and, if a person can fix
//! it, **what to do**. [`ErrorKind`] is for programs: the command maps it to an exit status, the Python package to an
//! exception class.
//!
//! Messages and help texts name options as in the library, in backquotes; see [`option_names`](crate::option_names).
//!
//! A defect in the bytes of one item is not an error but a [`Reject`](crate::sample::Reject).

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::option_names::respell_options;
use crate::printable::{printable_path, printable_text};

/// Result of the library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Invalid input from the caller: for example contradictory options or two items with the same key.
    Usage,
    /// The operating system failed to read or write.
    Io,
    /// The bytes of a dataset contradict its manifest, index or format.
    Corrupt,
    /// The file is intact but was written by a newer version or uses a feature that this build lacks.
    Unsupported,
    /// The run committed nothing: it produced no record, had too many rejects, or a unit failed.
    NotCommitted,
    /// The run committed nothing, because other datasets already have all items.
    NothingNew,
    /// The requested ordinal, row or byte range does not exist.
    OutOfRange,
    /// Stopped by the signal with this number.
    Interrupted(i32),
    /// A bug in dsconvert or in one of its dependencies; users should report it.
    Internal,
}

/// Location of an error. Every part is optional; the known parts are printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// File or directory.
    pub path: Option<PathBuf>,
    /// Byte offset in `path`.
    pub offset: Option<u64>,
    /// Name of the shard.
    pub shard: Option<String>,
    /// Ordinal of the record: within `shard` if that is set, otherwise within its split.
    pub row: Option<u64>,
}

/// Help text of [`ErrorKind::Internal`] errors.
pub const BUG_HELP: &str = "this is a bug in dsconvert: please report it, with this message and the command";

/// Start of the messages of [`missing_feature`].
const MISSING_FEATURE: &str = "this build lacks the feature";

/// Returns whether `message`, of an error or a reject, is one of [`missing_feature`].
pub fn is_missing_feature(message: &str) -> bool {
    message.starts_with(MISSING_FEATURE)
}

/// Returns the message for `what`, which needs the feature `feature` of Cargo.toml, and how to install it.
pub fn missing_feature(what: &str, feature: &str) -> String {
    format!(
        "{MISSING_FEATURE} {feature:?}, which {what} needs; in a checkout of dsconvert, `cargo install \
         --locked --path . --features {feature}` installs it"
    )
}

/// An error with its location and help text.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    option: Option<&'static str>,
    place: Place,
    help: Option<String>,
    is_unavailable: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error of `kind` with `message` (one sentence, no full stop). Options in it are in backquotes.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            option: None,
            place: Place::default(),
            help: None,
            is_unavailable: false,
            source: None,
        }))
    }

    /// Creates an [`ErrorKind::Usage`] error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Creates an [`ErrorKind::Corrupt`] error.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates the [`ErrorKind::Unsupported`] error for `what`, which needs the feature `feature` that this build lacks.
    pub fn missing_feature(what: &str, feature: &str) -> Self {
        Self::new(ErrorKind::Unsupported, missing_feature(what, feature))
    }

    /// Creates an [`ErrorKind::Internal`] error, for an impossible state or a panic.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message).help(BUG_HELP)
    }

    /// Creates the [`ErrorKind::Internal`] error for `what` that cannot be written as JSON. Only a bug causes this: the
    /// library serializes its own types to memory.
    pub fn not_serialized(what: &str, source: serde_json::Error) -> Self {
        Self::internal(format!("cannot serialize {what}")).caused_by(source)
    }

    /// Creates an [`ErrorKind::Io`] error at `path`; `doing` completes "cannot {doing}".
    ///
    /// If `source` wraps an [`Error`] that passed through `std::io` traits, returns that error unchanged.
    pub fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        let source = match source.downcast::<Self>() {
            Ok(error) => return error,
            Err(source) => source,
        };
        // Too many files are open in this process, or on this machine.
        let is_limit_reached = matches!(Errno::from_io_error(&source), Some(Errno::MFILE | Errno::NFILE));
        let error = Self::new(ErrorKind::Io, format!("cannot {doing}")).at_path(path).caused_by(source);
        match is_limit_reached {
            true => error.help("raise the limit on open files (`ulimit -n`), or use fewer threads"),
            false => error,
        }
    }

    /// Sets the file.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.place.path = Some(path.into());
        self
    }

    /// Sets the option whose value is invalid, under its library name: `text_field`.
    #[must_use]
    pub fn of_option(mut self, option: &'static str) -> Self {
        self.0.option = Some(option);
        self
    }

    /// Sets the byte offset.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.place.offset = Some(offset);
        self
    }

    /// Sets the shard.
    #[must_use]
    pub fn at_shard(mut self, shard: impl Into<String>) -> Self {
        self.0.place.shard = Some(shard.into());
        self
    }

    /// Sets the row.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.0.place.row = Some(row);
        self
    }

    /// Sets the help text. Options in it are in backquotes, as in the message.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Sets the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Marks the error as one that says nothing about the data: the store did not respond, or refused the request.
    #[must_use]
    pub fn unavailable(mut self) -> Self {
        self.0.is_unavailable = true;
        self
    }

    /// Returns whether the data could not be read because its store did not respond or refused the request, or because
    /// the operating system could not read an existing file.
    pub fn is_unavailable(&self) -> bool {
        self.0.is_unavailable || (self.0.kind == ErrorKind::Io && self.cause().is_some_and(is_unreadable))
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns where the error occurred.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Returns the option that the error is about, if any.
    pub fn option(&self) -> Option<&'static str> {
        self.0.option
    }

    /// Returns the help text, if any.
    pub fn remedy(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Turns a usage error into an internal error and leaves other kinds unchanged. Use it where dsconvert itself
    /// supplied the invalid value, so the caller is not to blame.
    #[must_use]
    pub fn never_usage(mut self) -> Self {
        if self.0.kind == ErrorKind::Usage {
            self.0.kind = ErrorKind::Internal;
            self.0.help = Some(BUG_HELP.to_owned());
        }
        self
    }

    /// Returns whether a write failed because the disk or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        self.cause().is_some_and(|e| {
            matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        })
    }

    /// Returns the error of the operating system that caused this one.
    fn cause(&self) -> Option<&std::io::Error> {
        self.0.source.as_deref().and_then(|e| e.downcast_ref())
    }
}

/// Returns whether the operating system could not read a file that may be intact. Not so if there is no file: nothing, or
/// a folder, a link or a socket in its place.
fn is_unreadable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    let is_no_file = matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidFilename);
    // Without a number, the error is that of a library: the data ended early, for example. A disk that cannot read a file
    // (EIO) is damage.
    let number = Errno::from_io_error(error);
    number.is_some_and(|number| !is_no_file && ![Errno::LOOP, Errno::NXIO, Errno::IO].contains(&number))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

/// Returns how to write the option with a library name, or `None` if there is no such option.
type Spelling<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Error {
    /// Formats the error like [`Display`](fmt::Display), with options written as `spelling` returns them, for example
    /// `--text-field` on a command line. Options for which it returns `None` keep their library names.
    ///
    /// Applies to the option at fault, to the options in the message, and to causes that are themselves an [`Error`].
    /// Other causes are unchanged, because they may contain any text in backquotes.
    pub fn with_options_as(&self, spelling: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, Some(&spelling));
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, spelling: Option<Spelling<'_>>) -> fmt::Result {
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
            let spelled = spelling.and_then(|spelling| spelling(option));
            write!(f, "{}: ", spelled.as_deref().unwrap_or(option))?;
        }
        // Messages may quote file names and may span several lines.
        match spelling {
            Some(spelling) => f.write_str(&printable_text(&respell_options(message, spelling)))?,
            None => f.write_str(&printable_text(message))?,
        }
        if let Some(source) = source {
            f.write_str(": ")?;
            match source.downcast_ref::<Self>() {
                Some(error) => error.write(f, spelling)?,
                None => f.write_str(&printable_text(&source.to_string()))?,
            }
        }
        Ok(())
    }
}

/// Ends an iterator after its first error.
pub fn until_error<T>(results: impl Iterator<Item = Result<T>>) -> impl Iterator<Item = Result<T>> {
    chain_until_error(std::iter::once(Ok(results)))
}

/// Chains the items of all groups in order, up to and including the first error.
pub(crate) fn chain_until_error<T, G: Iterator<Item = Result<T>>>(
    mut groups: impl Iterator<Item = Result<G>>,
) -> impl Iterator<Item = Result<T>> {
    let mut current: Option<G> = None;
    let mut failed = false;
    std::iter::from_fn(move || {
        while !failed {
            if let Some(item) = current.as_mut().and_then(Iterator::next) {
                failed = item.is_err();
                return Some(item);
            }
            match groups.next()? {
                Ok(group) => current = Some(group),
                Err(e) => {
                    failed = true;
                    return Some(Err(e));
                }
            }
        }
        None
    })
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
    fn display_shows_location_option_and_cause() {
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
        assert_eq!(e.with_options_as(flag), "a: --text-field: no such field");
    }

    #[test]
    fn files_that_exist_but_cannot_be_read_are_unavailable() {
        let error = |number: Errno| Error::io("open", Path::new("a"), number.into());
        assert!(
            [Errno::ACCESS, Errno::PERM, Errno::STALE, Errno::MFILE]
                .into_iter()
                .all(|number| error(number).is_unavailable())
        );
        let damaged = [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::NAMETOOLONG,
            Errno::LOOP,
            Errno::NXIO,
            Errno::IO,
        ];
        assert!(!damaged.into_iter().any(|number| error(number).is_unavailable()));
        let early = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert!(!Error::io("read", Path::new("a"), early).is_unavailable());
        // A damaged file is damaged even if it cannot be read any more.
        assert!(!Error::corrupt("bad").caused_by(std::io::Error::from(Errno::ACCESS)).is_unavailable());
    }

    #[test]
    fn a_value_that_cannot_be_serialized_is_a_bug() {
        // A key that is not a string.
        let failed = serde_json::to_string(&std::collections::BTreeMap::from([((), 1)])).unwrap_err();
        let e = Error::not_serialized("the plan", failed);
        assert_eq!((e.kind(), e.remedy()), (ErrorKind::Internal, Some(BUG_HELP)));
        assert_eq!(e.to_string(), "cannot serialize the plan: key must be a string");
    }

    /// Returns the flag of one of two options.
    fn flag(option: &str) -> Option<String> {
        ["text_field", "resume"].contains(&option).then(|| format!("--{}", option.replace('_', "-")))
    }

    #[test]
    fn options_are_respelled_in_messages_and_in_causes_of_this_type() {
        let foreign = std::io::Error::other("unknown field `resume`");
        let inner = Error::corrupt("`resume=verify` failed").at_path("`resume`").caused_by(foreign);
        let e = Error::usage("use `text_field b`, not `row`").of_option("out").caused_by(inner);
        let expected =
            "out: use `text_field b`, not `row`: `resume`: `resume=verify` failed: unknown field `resume`";
        assert_eq!(e.to_string(), expected);
        let expected =
            "out: use --text-field b, not `row`: `resume`: --resume=verify failed: unknown field `resume`";
        assert_eq!(e.with_options_as(flag), expected);
    }
}
