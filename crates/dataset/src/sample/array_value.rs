//! Arrays in their stored form: a shape and little-endian numbers.

use bytes::Bytes;

/// Numbers in the shape of an array, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayValue<B = Bytes> {
    shape: Box<[u32]>,
    bytes: B,
}

impl<B: AsRef<[u8]>> ArrayValue<B> {
    /// Creates an array of `shape` from little-endian `bytes`. Writers and readers check both against the type of the field.
    pub fn new(shape: impl Into<Box<[u32]>>, bytes: B) -> Self {
        Self { shape: shape.into(), bytes }
    }

    /// Returns the size of each axis.
    pub fn shape(&self) -> &[u32] {
        &self.shape
    }

    /// Returns the little-endian numbers.
    pub fn as_bytes(&self) -> &B {
        &self.bytes
    }

    /// Returns the bytes of the canonical form after its byte count.
    pub(super) fn canonical_bytes(&self) -> usize {
        size_of_val(&*self.shape) + self.bytes.as_ref().len()
    }
}
