//! What object storage holds, for builds with and without a client for it.

use std::collections::BTreeMap;

use super::object_url::ObjectUrl;

/// Store settings that complement the environment, such as `endpoint_url` or `aws_access_key_id`. The names are those
/// of the environment variables in lower case.
pub type Settings = BTreeMap<String, String>;

/// Metadata of an object, as reported by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Address.
    pub url: ObjectUrl,
    /// Size in bytes.
    pub bytes: u64,
    /// Last modification time in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Entity tag, which changes with the content. Some servers send none.
    pub etag: Option<String>,
}

/// Outcome of creating an object that must not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object was created.
    New,
    /// It already existed with the same content, from another attempt or from one whose response was lost.
    Same,
    /// It already existed with different content.
    Other,
}

/// Objects under an address.
#[derive(Debug, Default)]
pub struct FileListing {
    /// Objects in byte order of their keys.
    pub objects: Vec<Object>,
    /// Keys that are not valid paths and were skipped.
    pub unusable: Vec<String>,
}
