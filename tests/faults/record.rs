//! Recordings of the calls by which a run changed its files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::{Content, Disk};

/// A call that changed something. Paths are relative to the recorded directory, whose own path is empty.
#[derive(Debug, Clone)]
pub enum Op {
    /// The file exists now, whether it was created or only opened.
    Create(String),
    Write {
        path: String,
        at: usize,
        data: Vec<u8>,
    },
    SetLength(String, usize),
    /// `fsync` or `fdatasync` of a file or a directory.
    Sync(String),
    Rename(String, String),
    Unlink(String),
    MakeDir(String),
    RemoveDir(String),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { path, at, data } => write!(f, "write {path}, {} bytes at {at}", data.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Recorded calls of a case.
pub struct Recording {
    pub name: String,
    /// Initial content of the disk, which is durable.
    pub initial: Content,
    pub ops: Vec<Op>,
    /// Number of calls before the first power cut.
    pub first_cut: usize,
    /// Number of steps that had ended with exit status 0, by the number of calls.
    pub ends: BTreeMap<usize, usize>,
}

impl Recording {
    /// Returns the number of steps that had succeeded after `cut` calls.
    pub fn steps_done(&self, cut: usize) -> usize {
        self.ends.range(..=cut).map(|(_, &done)| done).max().unwrap_or_default()
    }

    /// Returns the content of the disk after all calls, without a power cut.
    pub fn replayed(&self) -> Content {
        let mut disk = Disk::new(&self.initial);
        self.ops.iter().for_each(|op| disk.apply(op));
        disk.content()
    }
}

/// Creates a new log beside `disk`.
pub fn log_of(disk: &Path) -> PathBuf {
    let log = disk.with_extension("log");
    let _ = std::fs::remove_file(&log);
    std::fs::write(&log, "").unwrap();
    log
}

/// Reads the log that `record.c` wrote for calls below `dir`. The last record may be cut off if the process was killed.
pub fn read_ops(log: &Path, dir: &Path) -> Vec<Op> {
    let bytes = std::fs::read(log).unwrap();
    let mut left = &bytes[..];
    let mut ops = Vec::new();
    while let Some((op, rest)) = next_op(left, dir.to_str().unwrap()) {
        ops.extend(op);
        left = rest;
    }
    ops
}

/// Returns the first call in `log`, and the rest of the log. A call on a deleted file is `None`.
fn next_op<'a>(log: &'a [u8], dir: &str) -> Option<(Option<Op>, &'a [u8])> {
    let (&kind, log) = log.split_first()?;
    let (path, log) = next_path(log, dir)?;
    let (second, log) = next_path(log, dir)?;
    let (at, log) = log.split_first_chunk()?;
    let (length, log) = log.split_first_chunk()?;
    let (at, length) = (usize::from_ne_bytes(*at), usize::from_ne_bytes(*length));
    let (data, log) = log.split_at_checked(length)?;
    if path.ends_with(" (deleted)") {
        return Some((None, log));
    }
    let op = match kind {
        b'c' => Op::Create(path),
        b'w' => Op::Write { path, at, data: data.to_vec() },
        b'l' => Op::SetLength(path, at),
        b's' => Op::Sync(path),
        b'r' => Op::Rename(path, second),
        b'u' => Op::Unlink(path),
        b'm' => Op::MakeDir(path),
        b'd' => Op::RemoveDir(path),
        kind => panic!("unknown kind of record: {kind}"),
    };
    Some((Some(op), log))
}

fn next_path<'a>(log: &'a [u8], dir: &str) -> Option<(String, &'a [u8])> {
    let (length, log) = log.split_first_chunk()?;
    let (path, log) = log.split_at_checked(usize::from(u16::from_ne_bytes(*length)))?;
    let path = std::str::from_utf8(path).unwrap();
    Some((path.strip_prefix(dir).unwrap_or(path).trim_matches('/').to_owned(), log))
}
