//! Named arrays: what a batch is made of.
//!
//! An [`Array`] owns its numbers alone, in one block that never moves, so a binding may hand out its address without a
//! copy for as long as it keeps the array. When it is dropped, its memory goes back to the [`Pool`] it came from and
//! becomes part of a later batch: not before.

use std::fmt;
use std::sync::Arc;

use super::element::{DType, Element, Elements};
use super::pool::Pool;

/// An n-dimensional array in row-major order, without gaps.
pub struct Array {
    shape: Vec<usize>,
    /// At least as long as the shape says: what is behind it is left over from before.
    block: Elements,
    len: usize,
    pool: Option<Arc<Pool>>,
}

impl Array {
    /// An array of `shape` over `block`, which has at least so many elements.
    pub(super) fn new<T: Element>(shape: Vec<usize>, block: Vec<T>, pool: Option<Arc<Pool>>) -> Self {
        let len = shape.iter().product::<usize>().min(block.len());
        Self { shape, block: T::wrap(block), len, pool }
    }

    /// The only row of an array of one row.
    pub(super) fn into_row(mut self) -> Self {
        if self.shape.first() == Some(&1) {
            self.shape.remove(0);
        }
        self
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.block.dtype()
    }

    /// Size in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype().bytes()
    }

    /// Address of the first element, aligned for its type. It stays the same, and [`Array::byte_len`] bytes from there
    /// on are nobody else's, until the array is dropped.
    pub fn as_ptr(&self) -> *const u8 {
        self.block.address()
    }

    /// As [`Array::as_ptr`], for who wants to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.block.address_mut()
    }

    /// The elements; `None` when they are of another type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::of(&self.block)?.get(..self.len)
    }

    /// The elements, to be changed; `None` when they are of another type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        T::of_mut(&mut self.block)?.get_mut(..self.len)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.put(std::mem::replace(&mut self.block, Elements::UInt8(Vec::new())));
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_shows_its_shape_and_no_more() {
        let mut array = Array::new(vec![2, 3], vec![1i32, 2, 3, 4, 5, 6, 99], None);
        assert_eq!(array.as_slice::<i32>(), Some(&[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(array.as_slice::<i64>(), None);
        assert_eq!((array.len(), array.byte_len(), array.dtype().name()), (6, 24, "int32"));
        assert_eq!(array.as_ptr(), array.as_mut_ptr().cast_const());
        assert_eq!(array.as_ptr().align_offset(4), 0);
        array.as_mut_slice::<i32>().unwrap()[0] = 7;
        assert_eq!(array.as_slice::<i32>().unwrap()[0], 7);
        assert_eq!(format!("{array:?}"), "int32[2, 3]");
    }
}
