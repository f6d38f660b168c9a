//! Images: files found by a walk or named by a list, samples in tar files, and rows of Parquet files.
//!
//! ```text
//! sources ─▶ files (find) ─▶ units (job) ─▶ tasks (*_feed) ─▶ records (convert, convert_tar, convert_table)
//! ```

mod convert;
mod convert_table;
mod convert_tar;
mod divide;
mod file_feed;
mod find;
mod find_archives;
mod find_tables;
mod image_field_names;
mod image_fields;
mod job;
mod options;
mod predict;
mod record;
mod repeats;
mod sample_keys;
mod sidecars;
mod table_feed;
mod tar_feed;
mod tar_fields;
mod task;

pub use self::image_fields::ImageField;
pub use self::job::{ImageConversion, ImagesJob};
pub use self::options::{ImageInput, ImagesOptions};
pub use self::sidecars::SidecarSummary;
