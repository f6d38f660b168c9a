//! Items in files: documents, rows, samples, and the annotations of images.

pub mod annotations;
pub mod box_fields;
pub mod image_table;
pub mod json_line;
pub mod metadata;
pub mod text;
pub mod webdataset;
