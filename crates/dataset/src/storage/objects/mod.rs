//! Object storage: datasets and sources under `s3://`, `gs://`, `az://` and `https://`.
//!
//! [`ObjectUrl`](super::ObjectUrl) is an address, and [`Bucket`] is the client of its store. All calls block. Requests
//! run on a separate runtime (`runtime`), which starts with the first request of a process, never before a fork. The
//! client is the crate `object_store`: it signs requests, retries after network and server failures, and takes its
//! credentials from the environment. `no_objects.rs` has the same interface, for builds without the feature `remote`.

mod bucket;
mod cache;
mod client;
mod etag;
mod failure;
mod fetch;
mod listing;
mod memory_cache;
mod object_reader;
mod outages;
mod remote_dataset;
mod remote_file;
mod retries;
mod runtime;
mod upload;

#[cfg(test)]
mod tests;

pub use super::object::{Created, FileListing, Object, Settings};
pub use bucket::Bucket;
pub use failure::is_cut_short;
pub use object_reader::ObjectReader;
pub(super) use remote_dataset::RemoteDataset;
pub(super) use remote_file::RemoteFile;
pub use retries::{on_retries, repeated_requests};
pub use upload::Upload;
