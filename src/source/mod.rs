//! Sources: their files in a fixed order, and the items in each file.

pub mod archive;
pub mod braces;
pub mod broken;
mod compressed_members;
pub mod compression;
pub mod encoding;
pub mod file_list;
pub mod files_from;
pub mod globs;
mod image_start;
pub mod image_table;
mod inflate;
mod json_array;
pub mod json_line;
pub mod labels;
pub mod layout;
pub mod lines;
mod listed_names;
pub mod listing;
pub mod metadata;
pub(crate) mod missing_field;
mod name;
pub mod named_files;
pub mod open;
pub mod opened;
mod pages;
pub mod planned;
#[cfg_attr(not(feature = "remote"), path = "no_remote.rs")]
mod remote;
#[cfg_attr(not(feature = "remote"), path = "no_remote_listing.rs")]
mod remote_listing;
mod retry;
mod same_content;
pub mod skipped;
pub mod source_file;
pub mod split_by;
mod split_levels;
pub mod splits;
mod stored_values;
pub mod stream;
pub mod table;
pub mod tar;
pub mod text;
pub(crate) mod typed_values;
pub mod walk;
pub mod warning;
pub mod webdataset;
pub mod zip;
mod zstd_frames;

pub use image_start::{begins_as_any_image, begins_as_image};
pub use listed_names::ListedNames;
pub use name::portable_name;
pub use open::{read_file, without_bom};
pub use planned::PlannedFile;
pub use retry::retries;
pub use same_content::same_content;
