//! The fast decoder of common JPEGs: whole photographs, reduced sizes, and cropped regions.
//!
//! Training loaders repeatedly decode the middle of small photographs. A crop in libjpeg-turbo saves little time,
//! because it decodes nearly all of the image. This decoder skips blocks outside the crop without transforming them,
//! stops after the last row that is needed, and writes pixels directly to the caller's buffer.
//!
//! Vector code comes from two sources: `pulp` compiles the loops a second time for processors with AVX2, and
//! [`Avx2`](crate::idct::Avx2) implements the transform with AVX2 intrinsics. Results do not depend on the processor.

mod bit_reader;
mod block_reader;
mod coded_blocks;
mod decoder;
mod frame;
mod huffman;
mod mcu_reader;
mod planes;
mod progressive;
mod request;
mod restarts;
mod rows;
mod scan;
mod step_table;
#[cfg(test)]
mod tests;
mod upsample;

pub use decoder::FastDecoder;
pub use request::{Declined, FastRequest, PlanesRequest, StoredPlane, StoredPlanes};
pub use upsample::PlaneConverter;
