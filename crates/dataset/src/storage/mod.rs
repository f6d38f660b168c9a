//! Storage layer: files that are either complete or absent, and the only way to read them.
//!
//! All dataset files are created with [`NewFile`]: written next to their final name, hashed while being written,
//! fsynced and renamed; then their directory is fsynced. All paths from a manifest, plan or part go through
//! [`resolve`]. All dataset files are read through [`Blob`], mapped or not.

mod blob;
mod dirs;
pub mod interrupt;
mod location;
mod lock;
mod map;
mod new_file;
mod object;
mod object_url;
#[cfg_attr(not(feature = "remote"), path = "no_objects.rs")]
pub mod objects;
mod paths;

pub use blob::{Access, Blob};
pub use dirs::{contained, for_each_entry};
pub use location::{Location, RemoteOptions};
pub use lock::{DirLock, LOCKED_HELP, briefly};
pub use new_file::{
    NewFile, Writeback, Written, from_hex, hash_file, hex, random, remove_temporary_files, unlinked_file,
    write_file, write_shared_file,
};
pub use object_url::{ObjectUrl, check_local};
pub use paths::{
    DirItem, create_dir, find_link, folder_of, is_empty_dir, list_dir, lstat, open_file, real_path,
    remove_dir_all, remove_empty_dir, remove_file, rename, resolve, stat, sync_dir,
};
