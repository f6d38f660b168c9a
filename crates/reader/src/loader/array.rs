//! Arrays: the numeric columns of a batch.
//!
//! An [`Array`] is the only owner of its elements, in one block that never moves. A binding may therefore expose the
//! block without a copy, as long as it keeps the array. When the array is dropped, and not before, its memory returns
//! to its [`Pool`] and is reused by a later batch.

use std::fmt;
use std::sync::Arc;

use dsconvert_dataset::schema::DType;

use super::element::{Element, Elements};
use super::pool::Pool;

/// An n-dimensional array in row-major order, without gaps.
pub struct Array {
    shape: Vec<usize>,
    /// At least as long as the shape requires; the elements after that are stale.
    block: Elements,
    len: usize,
    pool: Option<Arc<Pool>>,
}

impl Array {
    /// Creates an array of `shape` from `block`, which has at least as many elements.
    pub(super) fn new<T: Element>(shape: Vec<usize>, block: Vec<T>, pool: Option<Arc<Pool>>) -> Self {
        let len = shape.iter().try_fold(1usize, |len, &side| len.checked_mul(side));
        // Callers lend the memory that the shape describes, so it must never exceed the block.
        let (shape, len) = match len.filter(|&len| len <= block.len()) {
            Some(len) => (shape, len),
            None => (vec![0; shape.len()], 0),
        };
        Self { shape, block: T::wrap(block), len, pool }
    }

    /// Removes the first dimension of an array of one row.
    pub(super) fn into_row(mut self) -> Self {
        if self.shape.first() == Some(&1) {
            self.shape.remove(0);
        }
        self
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.block.dtype()
    }

    /// Returns the size in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype().bytes()
    }

    /// Returns the address of the first element, aligned for its type. Until the array is dropped, the address stays
    /// the same, and the [`Array::byte_len`] bytes from there belong to the array alone.
    pub fn as_ptr(&self) -> *const u8 {
        self.block.address()
    }

    /// Same as [`Array::as_ptr`], for writing.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.block.address_mut()
    }

    /// Returns the elements, or `None` if they have another type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::of(&self.block)?.get(..self.len)
    }

    /// Returns the elements for modification, or `None` if they have another type.
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
    fn an_array_exposes_only_the_elements_of_its_shape() {
        let mut array = Array::new(vec![2, 3], vec![1i32, 2, 3, 4, 5, 6, 99], None);
        assert_eq!(array.as_slice::<i32>(), Some(&[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(array.as_slice::<i64>(), None);
        assert_eq!((array.len(), array.byte_len(), array.dtype().name()), (6, 24, "int32"));
        assert_eq!(array.as_ptr(), array.as_mut_ptr().cast_const());
        assert_eq!(array.as_ptr().align_offset(4), 0);
        array.as_mut_slice::<i32>().unwrap()[0] = 7;
        assert_eq!(array.as_slice::<i32>().unwrap()[0], 7);
        assert_eq!(format!("{array:?}"), "int32[2, 3]");
        for shape in [vec![2, 4], vec![1 << 32, 1 << 32]] {
            let array = Array::new(shape, vec![0u8; 7], None);
            assert_eq!((array.shape(), array.len()), (&[0, 0][..], 0));
        }
    }
}
