//! Images: files found by a walk or named by a list, samples in tar files, and rows of Parquet files.
//!
//! ```text
//! sources ─▶ files (find) ─▶ units (job) ─▶ tasks (feed, sources) ─▶ records (convert)
//! ```

mod bucket_sizes;
mod companions;
mod conversion;
mod convert;
mod feed;
mod find;
mod found;
mod image_field_names;
mod image_fields;
mod job;
mod no_labels;
mod options;
mod predict;
mod repeats;
mod sidecars;
mod sources;

pub use self::conversion::{ImageConversion, ImagesJob};
pub use self::options::{ImageInput, ImagesOptions};
