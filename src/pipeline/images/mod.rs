//! Images: files found by a walk or named by a list, samples in tar files, and rows of Parquet files.
//!
//! ```text
//! sources ─▶ files (find) ─▶ units (job) ─▶ tasks (feed) ─▶ records (convert)
//! ```

mod bucket_sizes;
mod companions;
mod convert;
mod feed;
mod find;
mod find_archives;
mod find_tables;
mod image_field_names;
mod image_fields;
mod job;
mod no_labels;
mod options;
mod predict;
mod sidecars;
mod tar_fields;

pub use self::job::{ImageConversion, ImagesJob};
pub use self::options::{ImageInput, ImagesOptions};
pub use self::sidecars::SidecarSummary;
