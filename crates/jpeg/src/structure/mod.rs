//! The structure of JPEG files: markers, tables, frame and scans (ITU T.81, annex B).

mod component;
mod layout;
mod scan;
pub(crate) mod segments;
mod tables;
mod walk;

pub use component::{ColorModel, Component, Process};
pub use layout::Layout;
pub(crate) use layout::check_file_size;
pub(crate) use scan::{HuffmanSpec, Scan};
pub(crate) use walk::MAX_BLOCKS_PER_MCU;
pub use walk::MAX_SCANS;
