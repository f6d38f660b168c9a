//! The decoder of 8-bit JPEGs with Huffman codes, sequential or progressive, with any sampling factors that libjpeg
//! decodes.
//!
//! [`baseline`](crate::baseline) is faster and decodes what cameras and encoders commonly write. This decoder is for
//! everything else: progressive files, CMYK and YCCK, unusual sampling factors, components in scans of their own. Its
//! samples are those of libjpeg-turbo: the accurate integer transform, fancy upsampling by factors of two, replication
//! for other integral factors.

mod bits;
mod decode;
mod huffman;
mod planes;
mod scan;
mod upsample;

#[cfg(test)]
mod tests;

pub use decode::LayoutRequest;
