//! How a dataset is opened and read.

use std::path::PathBuf;

use dsconvert_dataset::storage::{Access, RemoteOptions};

/// Shards of a split that stay mapped, by default. Maps cost address space, not memory; Linux allows a process 65,530.
pub const DEFAULT_MAPPED_SHARDS: usize = 4096;
/// Shards of a split that stay open when they are not mapped, by default. Systems allow a process 1024 open files, or
/// 256.
pub const DEFAULT_OPEN_SHARDS: usize = 64;

/// Bytes of records that a loop of `get` over a parquet split reads ahead, by default.
pub const DEFAULT_READ_AHEAD_BYTES: u64 = 4 << 20;

/// How a dataset is read.
///
/// ```no_run
/// use dsconvert_reader::OpenOptions;
/// use dsconvert_reader::storage::Access;
///
/// let dataset = OpenOptions::new().access(Access::Read).verify_checksums(false).open("out")?;
/// # Ok::<(), dsconvert_reader::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    pub(super) access: Access,
    verify_checksums: bool,
    open_shards: Option<usize>,
    read_ahead_bytes: u64,
    pub(super) remote: RemoteOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            access: Access::Map,
            verify_checksums: true,
            open_shards: None,
            read_ahead_bytes: DEFAULT_READ_AHEAD_BYTES,
            remote: RemoteOptions::default(),
        }
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether files are mapped ([`Access::Map`], the default) or read. Reading copies, but a file that another process
    /// cuts short is then an error and not the end of this process.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Whether every record is compared with its checksum (the default is that it is).
    #[must_use]
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.verify_checksums = verify;
        self
    }

    /// How many shards of each split stay open. The default is [`DEFAULT_MAPPED_SHARDS`] when mapped, else
    /// [`DEFAULT_OPEN_SHARDS`].
    #[must_use]
    pub fn open_shards(mut self, most: usize) -> Self {
        self.open_shards = Some(most);
        self
    }

    /// Bytes of decoded records that a parquet split may keep when it is asked for one record after another
    /// ([`DEFAULT_READ_AHEAD_BYTES`]); 0 reads nothing ahead. Other formats have no need of it.
    #[must_use]
    pub fn read_ahead_bytes(mut self, bytes: u64) -> Self {
        self.read_ahead_bytes = bytes;
        self
    }

    /// Keeps what is read from object storage in the directory `dir`, for later reads and for all processes of this machine.
    /// Without it, some 256 MiB are kept in memory.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.remote.cache_dir = Some(dir.into());
        self
    }

    /// Bytes that the cache may hold, 64 GiB by default: the least recently opened shards are removed.
    #[must_use]
    pub fn cache_bytes(mut self, most: u64) -> Self {
        self.remote.cache_bytes = Some(most);
        self
    }

    /// Sets an option of the object store, as `endpoint_url`, `region` or `access_key_id`. It comes before the variable of the
    /// environment (`AWS_ENDPOINT_URL`, …).
    #[must_use]
    pub fn storage_option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.remote.settings.push((name.into(), value.into()));
        self
    }

    /// How many shards of a split with `shards` of them stay open.
    pub(super) fn slots(&self, shards: usize) -> usize {
        let most = self.open_shards.unwrap_or(match self.access {
            Access::Map => DEFAULT_MAPPED_SHARDS,
            Access::Read => DEFAULT_OPEN_SHARDS,
        });
        most.min(shards)
    }

    pub(super) fn ahead_bytes(&self) -> u64 {
        self.read_ahead_bytes
    }

    pub(super) fn verifies(&self) -> bool {
        self.verify_checksums
    }
}
