//! Options for opening and reading a dataset.

use std::path::PathBuf;

use dsconvert_dataset::storage::{Access, RemoteOptions};

/// Default number of shards of a split that stay mapped. Maps cost address space, not memory; Linux allows 65,530 per
/// process.
pub const DEFAULT_MAPPED_SHARDS: usize = 4096;
/// Default number of shards of a split that stay open when they are not mapped. Systems commonly limit a process to
/// 1024 or 256 open files.
pub const DEFAULT_OPEN_SHARDS: usize = 64;

/// Default size in bytes of the records that sequential calls of `get` on a Parquet split read ahead.
pub const DEFAULT_READ_AHEAD_BYTES: u64 = 4 << 20;

/// Options for opening and reading a dataset.
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
    pub(super) verify_checksums: bool,
    open_shards: Option<usize>,
    pub(super) read_ahead_bytes: u64,
    pub(super) remote: RemoteOptions,
    pub(super) companions: Vec<PathBuf>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            access: Access::Map,
            verify_checksums: true,
            open_shards: None,
            read_ahead_bytes: DEFAULT_READ_AHEAD_BYTES,
            remote: RemoteOptions::default(),
            companions: Vec::new(),
        }
    }
}

impl OpenOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether files are mapped ([`Access::Map`], the default) or read. Reading copies, but a file that another
    /// process truncates then causes an error instead of ending this process.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets whether every record is compared with its checksum (default: true).
    #[must_use]
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.verify_checksums = verify;
        self
    }

    /// Sets how many shards of each split stay open. The default is [`DEFAULT_MAPPED_SHARDS`] if files are mapped,
    /// otherwise [`DEFAULT_OPEN_SHARDS`].
    #[must_use]
    pub fn open_shards(mut self, most: usize) -> Self {
        self.open_shards = Some(most);
        self
    }

    /// Sets the size in bytes of the decoded records that a Parquet split may keep when consecutive records are
    /// requested (default: [`DEFAULT_READ_AHEAD_BYTES`]). 0 disables read-ahead. Other formats do not need it.
    #[must_use]
    pub fn read_ahead_bytes(mut self, bytes: u64) -> Self {
        self.read_ahead_bytes = bytes;
        self
    }

    /// Caches what is read from object storage in the directory `dir`, for later reads and for all processes on this
    /// machine. Without it, about 256 MiB are cached in memory.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.remote.cache_dir = Some(dir.into());
        self
    }

    /// Sets the maximum size of the cache in bytes (default: 64 GiB). The least recently opened shards are removed.
    #[must_use]
    pub fn cache_bytes(mut self, most: u64) -> Self {
        self.remote.cache_bytes = Some(most);
        self
    }

    /// Sets an option of the object store, such as `endpoint_url`, `region` or `access_key_id`. It takes precedence
    /// over the environment variable (`AWS_ENDPOINT_URL`, …).
    #[must_use]
    pub fn storage_option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.remote.settings.push((name.into(), value.into()));
        self
    }

    /// Adds the fields of the companion at `path`, a directory or URL: a dataset with further fields for the records, in their
    /// order. It is opened with the same options.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "the option is called `add` in Python and on the command line, too"
    )]
    pub fn add(mut self, path: impl Into<PathBuf>) -> Self {
        self.companions.push(path.into());
        self
    }

    pub(super) fn without_companions(mut self) -> Self {
        self.companions.clear();
        self
    }

    /// Returns how many of the `shards` shards of a split stay open.
    pub(super) fn slots(&self, shards: usize) -> usize {
        let most = self.open_shards.unwrap_or(match self.access {
            Access::Map => DEFAULT_MAPPED_SHARDS,
            Access::Read => DEFAULT_OPEN_SHARDS,
        });
        most.min(shards)
    }
}
