//! The general decoder of 8-bit JPEGs with Huffman coding, sequential or progressive, with any sampling factors that
//! libjpeg decodes.
//!
//! [`fast`](crate::fast) decodes the kinds of file that cameras, encoders and websites commonly write. This decoder
//! handles everything else: CMYK and YCCK, unusual sampling factors, components in separate scans or in groups, damage. Its samples
//! match libjpeg-turbo: the accurate integer transform, fancy upsampling by factors of two, replication for other integer
//! factors.

mod bits;
mod decode;
mod planes;
mod scan;
mod upsample;

#[cfg(test)]
mod tests;

pub use decode::LayoutRequest;
pub(crate) use decode::read_image;
pub(crate) use planes::Coefficients;
