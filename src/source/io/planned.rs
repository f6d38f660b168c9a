//! Source files as recorded in the plan. All source files are opened and read through this module.
//!
//! Only regular files are read, and opening a FIFO or a device never blocks.
//!
//! A source may change while it is read. Its size and modification time are compared with the plan when it is opened,
//! and again after its last byte was read. No record therefore mixes two states of a file. A change is a failure to
//! read the file, never a defect of an item. For objects, the entity tag is compared with every response of the store.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::opened::OpenedFile;
use super::retry::retried;
use crate::decode::{has_signature, is_unreadable_photo};
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::{count, plural};
use crate::storage::objects::{Bucket, Object, ObjectReader};
use crate::storage::{ObjectUrl, open_file};

/// Buffer size for reading a file in pieces, in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Help for a source that cannot be read.
const READ_HELP: &str = "make the file readable";
/// Paths of inherited files, which may be pipes that a shell has opened.
const INHERITED: [&str; 3] = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];
/// Bytes inspected at the start of a file whose name does not indicate its type.
const SNIFFED_BYTES: u64 = 4096;
/// Help for a source that changed.
pub(super) const CHANGED_HELP: &str = "do not change the sources during a run; start again with `overwrite`";

/// A source file as it was when the run was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Path, or URL of an object.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Entity tag of an object, if its store provides one.
    pub etag: Option<String>,
    /// Whether `path` may be a symbolic link.
    pub follow_symlinks: bool,
}

/// Returns the modification time, in nanoseconds since 1970.
pub(in crate::source) fn modified_ns(meta: &Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

impl PlannedFile {
    /// Returns the current state of the file at `path`. Follows links.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such file, or it is not a regular file.
    pub fn now(path: &Path) -> Result<Self> {
        let meta = retried(|| std::fs::metadata(path)).map_err(|e| Error::io("examine the file", path, e))?;
        check_regular(path, &meta)?;
        Ok(Self::of(path, &meta))
    }

    /// Returns the current state of the file or object at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none, or it is not a regular file.
    pub fn now_or_object(path: &Path) -> Result<Self> {
        let Some(url) = ObjectUrl::parse(path)? else { return Self::now(path) };
        Self::of_url(&url)?.ok_or_else(|| Error::usage("there is no such object").at_path(path))
    }

    fn of(path: &Path, meta: &Metadata) -> Self {
        let modified_ns = modified_ns(meta);
        Self { path: path.to_owned(), bytes: meta.len(), modified_ns, etag: None, follow_symlinks: true }
    }

    /// Returns the current state of the object at `url`; `None` if there is none.
    pub(in crate::source) fn of_url(url: &ObjectUrl) -> Result<Option<Self>> {
        Ok(Bucket::of(url)?.head(url)?.map(|object| Self::of_object(&object)))
    }

    /// Returns an object as it was listed.
    pub(in crate::source) fn of_object(object: &Object) -> Self {
        Self {
            path: object.url.as_path().to_owned(),
            bytes: object.bytes,
            modified_ns: object.modified_ns,
            etag: object.etag.clone(),
            follow_symlinks: true,
        }
    }

    /// Opens the object at `url`. Sends no request.
    fn object(&self, url: ObjectUrl) -> Result<ObjectReader> {
        let object =
            Object { bytes: self.bytes, modified_ns: self.modified_ns, etag: self.etag.clone(), url };
        ObjectReader::open(&Bucket::of(&object.url)?, object)
    }

    /// Opens the file.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Io`] if the file cannot be opened, is not a regular file, or has changed since it was
    /// planned.
    pub fn open(&self) -> Result<OpenedFile> {
        if let Some(url) = ObjectUrl::parse(&self.path)? {
            return Ok(OpenedFile::object(self, self.object(url)?));
        }
        let file = open(&self.path, self.follow_symlinks)?;
        let meta = file.metadata().map_err(|e| Error::io("examine the file", &self.path, e))?;
        check_regular(&self.path, &meta)?;
        self.check(&meta)?;
        Ok(OpenedFile::local(self, file, &meta))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Io`] if the file cannot be read, no longer exists, or has changed. This is never a defect
    /// of the item.
    pub fn read(&self) -> Result<Vec<u8>> {
        let opened = self.open().map_err(with_help)?;
        self.read_opened(&opened)
    }

    /// Opens a file in object storage and requests `range`, so that later reads need not wait. Returns `None` for local files,
    /// and if the file cannot be opened; the next attempt to open it reports the error.
    pub fn open_ahead(&self, range: Range<u64>) -> Option<OpenedFile> {
        if !ObjectUrl::is_url(&self.path) {
            return None;
        }
        let opened = self.open().ok()?;
        opened.will_read(range).ok()?;
        Some(opened)
    }

    /// As [`Self::read`], for a file that is already open.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_opened(&self, opened: &OpenedFile) -> Result<Vec<u8>> {
        let fail = |e| with_help(Error::io("read", &self.path, e));
        // One byte more than planned, so that the read at the end of the file does not grow the buffer.
        let mut bytes = Vec::new();
        let capacity = usize::try_from(self.bytes).unwrap_or(usize::MAX).saturating_add(1);
        bytes.try_reserve_exact(capacity).map_err(|_| fail(io::ErrorKind::OutOfMemory.into()))?;
        let limit = self.bytes.saturating_add(1);
        while (bytes.len() as u64) < limit {
            let left = limit - bytes.len() as u64;
            if retried(|| opened.take(left).read_to_end(&mut bytes)).map_err(fail)? == 0 {
                break;
            }
        }
        if bytes.len() as u64 != self.bytes {
            return Err(self.resized(bytes.len() as u64));
        }
        opened.check_unchanged()?;
        Ok(bytes)
    }

    /// Reads the first bytes of the file, at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn start(&self, max_bytes: u64) -> Result<Vec<u8>> {
        let opened = self.open()?;
        let mut start = Vec::new();
        let range = 0..max_bytes.min(self.bytes);
        opened.reader(range).read_to_end(&mut start).map_err(|e| Error::io("read", &self.path, e))?;
        Ok(start)
    }

    /// Returns the SHA-256 of the file.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn hash(&self) -> Result<[u8; 32]> {
        let opened = self.open()?;
        let mut piece = vec![0; PIECE_BYTES];
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        loop {
            match retried(|| opened.read_next(&mut piece)).map_err(|e| Error::io("read", &self.path, e))? {
                0 if bytes == self.bytes => {
                    opened.check_unchanged()?;
                    return Ok(hash.finalize().into());
                }
                0 => return Err(self.resized(bytes)),
                n => {
                    hash.update(&piece[..n]);
                    bytes += n as u64;
                }
            }
        }
    }

    pub(in crate::source) fn check(&self, now: &Metadata) -> Result<()> {
        if now.len() != self.bytes {
            return Err(self.resized(now.len()));
        }
        if modified_ns(now) != self.modified_ns {
            return Err(changed(&self.path, "the file was written to after the run was planned"));
        }
        Ok(())
    }

    pub(in crate::source) fn resized(&self, now: u64) -> Error {
        let planned = plural(self.bytes, "byte");
        let what = format!("the file had {planned} when the run was planned and has {} now", count(now));
        changed(&self.path, what)
    }
}

/// Returns whether `error` says that a source changed after the run was planned.
pub fn is_source_change(error: &Error) -> bool {
    error.remedy() == Some(CHANGED_HELP)
}

pub(in crate::source) fn changed(path: &Path, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, what).at_path(path).help(CHANGED_HELP)
}

/// Reads the whole of a file that is not part of a plan, such as a list of files, a table or a tokenizer. Inherited
/// pipes (such as `/dev/fd/63`, which a shell creates for `<(…)`) are read to their end.
///
/// # Errors
///
/// Returns [`ErrorKind::Io`] if the file cannot be read, is not a regular file, or changes while it is read.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    if let Some(url) = ObjectUrl::parse(path)? {
        return match PlannedFile::of_url(&url)? {
            Some(planned) => planned.read(),
            None => Err(Error::usage("there is no such object").at_path(path)),
        };
    }
    let inherited = INHERITED.iter().any(|name| path.starts_with(name));
    if inherited && !std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return std::fs::read(path).map_err(|e| Error::io("read", path, e));
    }
    let file = open(path, true)?;
    let meta = file.metadata().map_err(|e| Error::io("examine the file", path, e))?;
    check_regular(path, &meta)?;
    drop(file);
    PlannedFile::of(path, &meta).read()
}

/// Returns whether the error means that the name leads to no file.
pub(crate) fn names_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
    ) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn with_help(error: Error) -> Error {
    if error.remedy().is_none() { error.help(READ_HELP) } else { error }
}

fn open(path: &Path, follow_symlinks: bool) -> Result<File> {
    retried(|| open_file(path, follow_symlinks)).map_err(|e| {
        let is_link = !follow_symlinks && e.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let is_device = e.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        match (is_link, is_device) {
            (true, _) => {
                changed(path, "the file was a regular file when the run was planned and is a link now")
            }
            (false, true) => not_regular(path),
            (false, false) => Error::io("open", path, e),
        }
    })
}

fn check_regular(path: &Path, meta: &Metadata) -> Result<()> {
    if meta.is_file() { Ok(()) } else { Err(not_regular(path)) }
}

fn not_regular(path: &Path) -> Error {
    Error::new(ErrorKind::Io, "this is not a regular file, but a folder, FIFO, socket or device")
        .at_path(path)
        .help("name regular files; to read from a pipe, redirect it to standard input and name -")
}

/// Returns whether the first bytes of a file are those of an image.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_image(path: &Path) -> Result<bool> {
    Ok(has_signature(&PlannedFile::now(path)?.start(SNIFFED_BYTES)?))
}

/// As [`begins_as_image`], but also accepts HEIC, JPEG XL and JPEG 2000 images, raw photographs, and AVIF images in a build
/// without their decoder.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_any_image(file: &PlannedFile) -> Result<bool> {
    let start = file.start(SNIFFED_BYTES)?;
    Ok(has_signature(&start) || is_unreadable_photo(&start, &file.path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn file(dir: &Path, content: &str) -> PlannedFile {
        let path = dir.join("a");
        std::fs::write(&path, content).unwrap();
        PlannedFile::now(&path).unwrap()
    }

    fn set_time(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[track_caller]
    fn fails<T: std::fmt::Debug>(result: Result<T>, what: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains(what), "{error}");
    }

    #[test]
    fn a_file_that_changed_since_the_plan_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let planned = file(dir.path(), "hello");
        assert_eq!(planned.read().unwrap(), b"hello");
        assert_eq!(planned.hash().unwrap(), <[u8; 32]>::from(Sha256::digest(b"hello")));
        // The same size, but a different time.
        std::fs::write(&planned.path, "world").unwrap();
        set_time(&planned.path, SystemTime::now() + Duration::from_secs(5));
        fails(planned.read(), "written to");
        fails(planned.hash(), "written to");
        std::fs::write(&planned.path, "longer than before").unwrap();
        fails(planned.read(), "had 5 bytes");
        std::fs::remove_file(&planned.path).unwrap();
        fails(planned.read(), "cannot open");
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_fails_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let planned = file(dir.path(), "hello");
        let opened = planned.open().unwrap();
        opened.check_unchanged().unwrap();
        std::fs::write(&planned.path, "world").unwrap();
        set_time(&planned.path, SystemTime::now() + Duration::from_secs(5));
        fails(opened.check_unchanged(), "written to");
        // Another file of the same size and time in its place.
        let planned = file(dir.path(), "hello");
        let opened = planned.open().unwrap();
        let other = dir.path().join("b");
        std::fs::write(&other, "world").unwrap();
        set_time(&other, std::fs::metadata(&planned.path).unwrap().modified().unwrap());
        std::fs::rename(&other, &planned.path).unwrap();
        fails(opened.check_unchanged(), "replaced");
        let opened = PlannedFile::now(&planned.path).unwrap().open().unwrap();
        std::fs::remove_file(&planned.path).unwrap();
        fails(opened.check_unchanged(), "examine the file");
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let planned = file(dir.path(), "");
        std::fs::remove_file(&planned.path).unwrap();
        mknodat(CWD, &planned.path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fails(planned.read(), "regular file");
        fails(read_file(&planned.path), "regular file");
        fails(crate::source::io::planned::begins_as_image(&planned.path), "regular file");
        std::fs::remove_file(&planned.path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&planned.path).unwrap();
        fails(planned.read(), "regular file");
        fails(read_file(Path::new("/dev/zero")), "regular file");
        fails(PlannedFile::now(Path::new("/dev/zero")), "regular file");
    }

    #[test]
    fn a_file_that_became_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let planned = PlannedFile { follow_symlinks: false, ..file(dir.path(), "hello") };
        let other = dir.path().join("b");
        std::fs::rename(&planned.path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &planned.path).unwrap();
        fails(planned.read(), "link");
        assert_eq!(PlannedFile { follow_symlinks: true, ..planned }.read().unwrap(), b"hello");
    }
}
