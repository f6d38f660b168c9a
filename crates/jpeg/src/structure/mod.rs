//! The structure of JPEG files: markers, tables, frame and scans (ITU T.81, annex B).

mod component;
mod layout;
mod parser;
mod scan;
pub(crate) mod segments;
mod tables;

pub use component::{ColorModel, Component, Process};
pub use layout::JpegLayout;
pub(crate) use layout::check_file_size;
pub(crate) use parser::MAX_BLOCKS_PER_MCU;
pub use parser::MAX_SCANS;
pub(crate) use scan::{HuffmanSpec, Scan};
