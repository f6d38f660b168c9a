//! From the bytes of one item to the values of a record: pixels or token ids.
//!
//! A transform knows nothing of files, units or formats: bytes and options go in, a result or a
//! [`Reject`](crate::sample::Reject) comes out, and the same input always gives the same output.

#[cfg(feature = "images")]
pub mod image;
#[cfg(feature = "text")]
pub mod text;
