//! How datasets in object storage are read.

use std::path::PathBuf;

/// How a dataset in object storage is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Settings of the store that come before those of the environment, as `("endpoint_url", "http://localhost:9000")`.
    pub settings: Vec<(String, String)>,
    /// Directory that keeps what was read, for later reads and for other processes.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the directory may hold.
    pub cache_bytes: Option<u64>,
}
