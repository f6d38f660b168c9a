//! The general decoder of 8-bit JPEGs with Huffman coding, sequential or progressive, with any sampling factors that
//! libjpeg decodes.
//!
//! [`baseline`](crate::baseline) is faster and decodes the kinds of file that cameras and encoders commonly write. This
//! decoder handles everything else: progressive files, CMYK and YCCK, unusual sampling factors, components in separate
//! scans. Its samples match libjpeg-turbo: the accurate integer transform, fancy upsampling by factors of two,
//! replication for other integer factors.

mod bits;
mod decode;
mod huffman;
mod planes;
mod scan;
mod upsample;

#[cfg(test)]
mod tests;

pub use decode::LayoutRequest;
pub(crate) use decode::read_image;
pub(crate) use planes::Coefficients;
