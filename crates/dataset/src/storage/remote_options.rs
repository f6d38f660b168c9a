//! Options for reading datasets in object storage.

use std::path::PathBuf;

/// Options for reading a dataset in object storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Store settings that override the environment, such as `("endpoint_url", "http://localhost:9000")`.
    pub settings: Vec<(String, String)>,
    /// Cache directory, used for later reads and by other processes.
    pub cache_dir: Option<PathBuf>,
    /// Limit of the cache directory in bytes.
    pub cache_bytes: Option<u64>,
}
