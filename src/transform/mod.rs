//! Transforms: from the bytes of one item to the values of a record, pixels or token ids.
//!
//! A transform is independent of files, units and formats. It maps bytes and options to a result or a
//! [`Reject`](crate::sample::Reject), and the same input always gives the same output.

#[cfg(feature = "images")]
pub mod image;
#[cfg(feature = "text")]
pub mod text;
