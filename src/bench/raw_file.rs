//! A file of a benchmark target.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// A file to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFile {
    pub(super) path: PathBuf,
    /// Path relative to the target, separated by `/`; empty if the target is the file itself.
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// Opens a file. Does not wait for a writer if the file was replaced by a FIFO after it was listed.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_fifo_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jpg");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(open(&path).unwrap().read(&mut [0; 8]).unwrap(), 0);
    }
}
