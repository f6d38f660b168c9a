//! Creation of dataset files and of temporary files, and writing to disk in the background.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::paths::{DirItem, list_dir, lstat, remove_file, sync_dir};
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::threads;

/// Bytes buffered before they are hashed and passed to the kernel. Small enough to stay in the CPU cache.
const BUFFER_BYTES: usize = 128 << 10;
/// Size of the first read when hashing a file. Most hashed files are small, and zeroing a large buffer takes longer
/// than reading them.
const SMALL_BUFFER_BYTES: usize = 4 << 10;

/// A file that does not exist under its final name until [`NewFile::commit`].
///
/// Dropping it without a commit removes the temporary file. [`NewFile::nowhere`] creates no file at all.
#[derive(Debug)]
pub struct NewFile {
    file: Option<File>,
    path: PathBuf,
    temporary: PathBuf,
    buffer: Vec<u8>,
    drained: Drained,
}

/// Data passed to the kernel so far.
#[derive(Debug, Default)]
struct Drained {
    hash: Sha256,
    bytes: u64,
    writeback: Option<Writeback>,
    /// Value of `bytes` when writeback was last requested.
    sent_bytes: u64,
    /// Whether a write failed. The file then has a gap and is never committed, even if the caller ignores the error.
    failed: bool,
}

impl Drained {
    fn add(&mut self, file: Option<&mut File>, path: &Path, data: &[u8]) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write to this file failed"));
        }
        if let Some(file) = file {
            self.failed = true;
            file.write_all(data)?;
            self.failed = false;
        }
        self.hash.update(data);
        self.bytes += data.len() as u64;
        if let Some(writeback) = &self.writeback
            && self.bytes - self.sent_bytes >= EVERY_BYTES
        {
            writeback.send(path);
            self.sent_bytes = self.bytes;
        }
        Ok(())
    }
}

/// Size and hash of a committed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

impl NewFile {
    /// Starts a file that will be named `path`. Replaces the temporary file of a run that died, so no other process may
    /// write the same file: see [`NewFile::create_shared`].
    pub fn create(path: &Path) -> Result<Self> {
        let temporary = temporary_path(path, "");
        // Removed first: opening with truncation would write through a symbolic link placed there by someone else. A
        // read-only file system refuses even to remove what does not exist.
        if lstat(&temporary)?.is_some() {
            std::fs::remove_file(&temporary)
                .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
                .map_err(|e| Error::io("remove the temporary file of an earlier run", &temporary, e))?;
        }
        Self::open(path, temporary)
    }

    /// Starts a file that will be named `path` and that other processes may write at the same time, with equal content.
    /// The temporary file of a process that dies stays until it is removed by [`remove_temporary_files`] or with its
    /// folder.
    pub fn create_shared(path: &Path) -> Result<Self> {
        // Random, because processes on several machines may have the same number.
        let suffix = format!(".{:016x}", random());
        Self::open(path, temporary_path(path, &suffix))
    }

    fn open(path: &Path, temporary: PathBuf) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(|e| Error::io("create the file", path, e))?;
        Ok(Self::new(Some(file), path.to_owned(), temporary))
    }

    /// Writes the file to disk in the background while it grows, so that the commit takes less time.
    #[must_use]
    pub fn with_writeback(mut self, writeback: &Writeback) -> Self {
        self.drained.writeback = Some(writeback.clone());
        self
    }

    /// Creates a file that counts and hashes bytes without storing them, to find out how large a file would be. It
    /// cannot be committed.
    pub fn nowhere() -> Self {
        Self::new(None, PathBuf::new(), PathBuf::new())
    }

    fn new(file: Option<File>, path: PathBuf, temporary: PathBuf) -> Self {
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Self { file, path, temporary, buffer, drained: Drained::default() }
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes written so far.
    pub fn position(&self) -> u64 {
        self.drained.bytes + self.buffer.len() as u64
    }

    /// Returns the SHA-256 of the bytes written so far, in lower-case hexadecimal.
    pub fn sha256(&mut self) -> Result<String> {
        self.flush().map_err(|e| Error::io("write", &self.path, e))?;
        Ok(hex(&self.drained.hash.clone().finalize()))
    }

    /// Makes the file durable under its final name.
    pub fn commit(self) -> Result<Written> {
        self.end(true)
    }

    /// Replaces the first bytes of the file, which stood for what is known only at the end, and makes it durable under its
    /// final name. The file is read again for its hash.
    pub fn commit_with_start(mut self, start: &[u8]) -> Result<Written> {
        let fail = |e| Error::io("write", &self.path, e);
        self.drained.add(self.file.as_mut(), &self.temporary, &self.buffer).map_err(fail)?;
        self.buffer.clear();
        if let Some(file) = &self.file {
            file.write_all_at(start, 0).map_err(fail)?;
        }
        let mut file = File::open(&self.temporary).map_err(fail)?;
        (self.drained.hash, _) = hash_all(&mut file).map_err(fail)?;
        self.end(true)
    }

    /// Gives the file its final name without waiting for the disk: a crash may lose it. For files that are copied
    /// elsewhere.
    pub fn finish(self) -> Result<Written> {
        self.end(false)
    }

    fn end(mut self, durable: bool) -> Result<Written> {
        let fail = |e| Error::io("write", &self.path, e);
        self.drained.add(self.file.as_mut(), &self.temporary, &self.buffer).map_err(fail)?;
        let Some(file) = self.file.take() else {
            return Err(Error::internal("a file that only counts bytes cannot be committed"));
        };
        if durable {
            file.sync_all().map_err(fail)?;
        }
        std::fs::rename(&self.temporary, &self.path).map_err(fail)?;
        if let Some(dir) = self.path.parent().filter(|_| durable) {
            sync_dir(dir)?;
        }
        let Drained { hash, bytes, .. } = std::mem::take(&mut self.drained);
        Ok(Written { bytes, sha256: hex(&hash.finalize()) })
    }
}

impl Write for NewFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + data.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if data.len() >= BUFFER_BYTES {
            self.drained.add(self.file.as_mut(), &self.temporary, data)?;
        } else {
            self.buffer.extend_from_slice(data);
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.drained.add(self.file.as_mut(), &self.temporary, &self.buffer);
        self.buffer.clear();
        result
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Best effort: the next run replaces a leftover file.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Computes the size and SHA-256 of the file at `path`.
pub fn hash_file(path: &Path) -> Result<Written> {
    let hashed = File::open(path).and_then(|mut file| hash_all(&mut file));
    let (hash, bytes) = hashed.map_err(|e| Error::io("read", path, e))?;
    Ok(Written { bytes, sha256: hex(&hash.finalize()) })
}

/// Hashes the rest of `file`. Returns the hash and the number of bytes.
fn hash_all(file: &mut File) -> io::Result<(Sha256, u64)> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; SMALL_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hash, bytes)),
            Ok(n) => {
                hash.update(&buffer[..n]);
                bytes += n as u64;
                if n == SMALL_BUFFER_BYTES {
                    buffer.resize(BUFFER_BYTES, 0);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Writes a small file durably.
pub fn write_file(path: &Path, data: &[u8]) -> Result<Written> {
    write_all(NewFile::create(path)?, path, data)
}

/// Writes a small file durably that other processes may write at the same time, with equal content.
pub fn write_shared_file(path: &Path, data: &[u8]) -> Result<Written> {
    write_all(NewFile::create_shared(path)?, path, data)
}

/// Removes the temporary files that dead processes left in the folder `dir`. The files of a process that still runs are
/// lost, too: its commit fails.
pub fn remove_temporary_files(dir: &Path) -> Result<()> {
    let is_temporary = |item: &DirItem| {
        let name = item.name.as_encoded_bytes();
        item.kind.is_file() && name.starts_with(b".") && name.ends_with(b".tmp")
    };
    list_dir(dir)?.iter().filter(|item| is_temporary(item)).try_for_each(|item| remove_file(&item.path))
}

fn write_all(mut file: NewFile, path: &Path, data: &[u8]) -> Result<Written> {
    file.write_all(data).map_err(|e| Error::io("write", path, e))?;
    file.commit()
}

fn temporary_path(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{suffix}.tmp"))
}

/// Returns 64 random bits: the hash of empty input depends only on the keys of the `RandomState`, which are random.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Encodes `bytes` as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Decodes the output of [`hex`]; `None` for other text.
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let half = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(half(pair[0])? << 4 | half(*pair.get(1)?)?)).collect()
}

/// Creates a file in `dir` for reading and writing, and unlinks it: the kernel frees it whatever happens to the process.
///
/// # Errors
///
/// Returns the error of the operating system, without the path.
pub fn unlinked_file(dir: &Path) -> io::Result<File> {
    // Names collide only until the file is unlinked: with another process, or with a leftover of a dead one.
    for number in 0u32.. {
        let path = dir.join(format!("sort-{number}.tmp"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

// Writing to disk in the background.
//
// The kernel keeps most written data in memory until a process calls `fsync`. The commit of a 256 MiB shard would
// therefore wait for most of a second. A [`Writeback`] syncs the file on its own thread while it grows, so little is
// left for the commit.

/// Number of bytes after which the next part of a file is written to disk.
pub(super) const EVERY_BYTES: u64 = 16 << 20;

/// Queue capacity in files. If the disk is that far behind, more requests would not make it faster.
const QUEUE: usize = 4;

/// Writes growing files to disk. Clones share one thread, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Writeback {
    files: Option<SyncSender<PathBuf>>,
    /// Panic message of the thread.
    bug: Arc<OnceLock<String>>,
}

impl Writeback {
    /// Starts the thread. If that fails, files are written to disk at their commit.
    pub fn start() -> Self {
        let (files, waiting) = sync_channel::<PathBuf>(QUEUE);
        let bug = Arc::new(OnceLock::new());
        let noted = Arc::clone(&bug);
        let thread = threads::named("writeback").spawn(move || {
            let sync = || {
                for path in waiting {
                    // Opens the file separately. The kernel reports a failure once to each open file, and the writer
                    // must receive it at its commit. Nothing depends on the result here.
                    let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.sync_data());
                }
            };
            if let Err(panic) = caught(sync) {
                let _ = noted.set(panic.into_error("writing files to disk").to_string());
            }
        });
        Self { files: thread.is_ok().then_some(files), bug }
    }

    /// Fails if the thread has panicked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind).
    pub fn check(&self) -> Result<()> {
        self.bug.get().map_or(Ok(()), |bug| Err(Error::internal(bug)))
    }

    /// Requests that the data written to the file `path` so far be written to disk. Never blocks.
    pub(super) fn send(&self, path: &Path) {
        if let Some(files) = &self.files {
            // A full queue does no harm: a later call or the commit will write the data.
            let _ = files.try_send(path.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_complete_and_hashed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"ab").unwrap();
        file.write_all(b"c").unwrap();
        assert!(!path.exists());
        let sha256 = file.sha256().unwrap();
        let written = file.commit().unwrap();
        assert_eq!((hash_file(&path).unwrap(), sha256), (written.clone(), written.sha256.clone()));
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(written.bytes, 3);
        assert_eq!(written.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn the_start_of_a_file_can_be_written_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(&[0; 2]).unwrap();
        file.write_all(b"c").unwrap();
        let written = file.commit_with_start(b"ab").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), written), (b"abc".to_vec(), hash_file(&path).unwrap()));
    }

    #[test]
    fn writeback_does_not_change_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut file = NewFile::create(&path).unwrap().with_writeback(&Writeback::start());
        let data: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
        let rounds = 2 * EVERY_BYTES as usize / data.len() + 1;
        (0..rounds).for_each(|_| file.write_all(&data).unwrap());
        let written = file.commit().unwrap();
        assert_eq!(written.bytes, (rounds * data.len()) as u64);
        assert!(std::fs::read(&path).unwrap() == data.repeat(rounds));
    }

    #[test]
    fn a_file_with_a_gap_is_never_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        // A file opened for reading rejects every write.
        std::fs::write(&path, "old").unwrap();
        let mut file =
            NewFile::new(Some(File::open(&path).unwrap()), path.clone(), dir.path().join(".a.tmp"));
        assert!(file.write(&vec![1; BUFFER_BYTES]).is_err());
        file.file = Some(OpenOptions::new().write(true).open(&path).unwrap());
        assert!(file.write(&vec![1; BUFFER_BYTES]).is_err());
        assert!(file.commit().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_file_nowhere_counts_bytes_and_is_never_committed() {
        let mut file = NewFile::nowhere();
        file.write_all(&vec![1; BUFFER_BYTES + 5]).unwrap();
        assert_eq!(file.position(), BUFFER_BYTES as u64 + 5);
        assert!(file.commit().is_err());
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = NewFile::create(&dir.path().join("a")).unwrap();
        file.write_all(&vec![1; 3 * BUFFER_BYTES]).unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn hexadecimal_digits_are_read_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&hex(&bytes)).as_deref(), Some(&bytes[..]));
        assert_eq!(hex(&[0, 0x1f, 0xa0]), "001fa0");
        for other in ["0", "0g", "0A", "é"] {
            assert_eq!(from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(".a.tmp")).unwrap();
        write_file(&dir.path().join("a"), b"new").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn only_temporary_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::mem::forget(NewFile::create_shared(&path("dead")).unwrap());
        write_shared_file(&path("file"), b"x").unwrap();
        std::fs::create_dir(path(".folder.tmp")).unwrap();
        std::os::unix::fs::symlink(path("file"), path(".link.tmp")).unwrap();
        remove_temporary_files(dir.path()).unwrap();
        let left: Vec<_> = list_dir(dir.path()).unwrap().into_iter().map(|item| item.name).collect();
        assert_eq!(left, [".folder.tmp", ".link.tmp", "file"]);
        remove_temporary_files(&path("missing")).unwrap();
    }

    #[test]
    fn a_shared_file_is_written_by_several_processes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("duplicates");
        let mut files = [NewFile::create_shared(&path).unwrap(), NewFile::create_shared(&path).unwrap()];
        files.iter_mut().for_each(|file| file.write_all(b"found").unwrap());
        files.into_iter().for_each(|file| drop(file.commit().unwrap()));
        assert_eq!(std::fs::read(&path).unwrap(), b"found");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
