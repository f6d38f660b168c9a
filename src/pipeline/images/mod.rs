//! Images: one item per file, found by a walk or named by a list.
//!
//! ```text
//! sources ─▶ files (find) ─▶ units (job) ─▶ tasks (feed, tars, tables) ─▶ records (convert)
//! ```

mod convert;
mod divide;
mod feed;
mod find;
mod image_fields;
mod job;
mod options;
mod predict;
mod row;
mod stored;
mod tables;
mod tars;

pub(super) use self::convert::Images;
pub use self::image_fields::{ImageField, ImageFields};
pub use self::job::ImagesJob;
pub use self::options::{ImagesOptions, Naming};
