//! Pool of memory blocks that batches reuse.
//!
//! Returning large blocks to the system and faulting them in again costs more than filling them. A block is in the pool
//! or in one [`Array`](super::Array), never in both.

use std::sync::Mutex;

use dsconvert_dataset::error::{Error, Result};

use super::element::{Element, Elements};
use dsconvert_dataset::storage::briefly;

/// The blocks that no array uses at the moment.
#[derive(Debug)]
pub(super) struct Pool {
    blocks: Mutex<Vec<Elements>>,
    /// Maximum number of blocks to keep.
    most: usize,
}

impl Pool {
    pub(super) fn new(most: usize) -> Self {
        Self { blocks: Mutex::new(Vec::new()), most }
    }

    /// Returns at least `len` elements, for arrays with at most a few elements per row. They hold stale values, all of
    /// which the caller overwrites.
    pub(super) fn take<T: Element>(&self, len: usize) -> Vec<T> {
        let mut block = self.reuse(len).unwrap_or_default();
        if block.len() < len {
            block.resize(len, T::default());
        }
        block
    }

    /// Same as [`Pool::take`], for any number of elements: a failed allocation is an error.
    pub(super) fn take_many<T: Element>(&self, len: usize) -> Result<Vec<T>> {
        let mut block = self.reuse::<T>(len).unwrap_or_default();
        if block.len() < len {
            // A batch larger than all before is likely to be followed by larger ones, so leave some room to grow.
            let room = if block.is_empty() { len } else { len.saturating_add(len / 4) };
            // Growing would copy the old content, which is not needed.
            block = Vec::new();
            block.try_reserve_exact(room).map_err(|e| {
                let what = format!("not enough memory for {len} elements of a batch");
                Error::usage(what).caused_by(e).help("use a smaller batch size, budget or crop")
            })?;
            block.resize(room, T::default());
        }
        Ok(block)
    }

    /// Takes the smallest block that is large enough, so that small arrays do not occupy large blocks. Among blocks of
    /// one size, takes the most recently returned one, because it is still in the CPU cache. If no block is large
    /// enough, takes the largest.
    fn reuse<T: Element>(&self, len: usize) -> Option<Vec<T>> {
        let mut blocks = briefly(&self.blocks)?;
        let of_type = || blocks.iter().enumerate().filter(|(_, block)| block.dtype() == T::DTYPE);
        let at = of_type().rev().filter(|(_, block)| block.len() >= len).min_by_key(|(_, block)| block.len());
        let (at, _) = at.or_else(|| of_type().max_by_key(|(_, block)| block.len()))?;
        let mut block = blocks.remove(at);
        T::of_mut(&mut block).map(std::mem::take)
    }

    /// Returns a block to the pool. Never blocks: an array may be dropped anywhere, even in a process that was forked
    /// while another thread held the lock.
    pub(super) fn put(&self, block: Elements) {
        let Some(mut blocks) = briefly(&self.blocks) else { return };
        if block.len() > 0 && blocks.len() < self.most {
            blocks.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::array::Array;
    use super::*;

    #[test]
    fn memory_is_reused_only_after_the_array_is_dropped() {
        let pool = Arc::new(Pool::new(8));
        let array = Array::new(vec![100], pool.take::<i64>(100), Some(Arc::clone(&pool)));
        let address = array.as_ptr();
        let other = Array::new(vec![100], pool.take::<i64>(100), Some(Arc::clone(&pool)));
        assert_ne!(other.as_ptr(), address);
        drop(array);
        let of_another_type = pool.take::<i32>(100);
        assert_ne!(of_another_type.as_ptr().cast(), address);
        let again = Array::new(vec![50], pool.take::<i64>(50), Some(Arc::clone(&pool)));
        assert_eq!((again.as_ptr(), again.len()), (address, 50));
    }

    #[test]
    fn a_pool_keeps_a_limited_number_of_blocks() {
        let pool = Pool::new(1);
        pool.put(Elements::UInt8(vec![1; 10]));
        pool.put(Elements::UInt8(vec![2; 20]));
        assert_eq!(pool.take::<u8>(5)[..5], [1; 5]);
        assert_eq!(pool.take::<u8>(5), [0; 5]);
    }

    #[test]
    fn small_arrays_do_not_occupy_large_blocks() {
        let pool = Pool::new(8);
        pool.put(Elements::Int64(vec![1; 10]));
        pool.put(Elements::Int64(vec![2; 10]));
        pool.put(Elements::Int64(vec![3; 1000]));
        assert_eq!(pool.take::<i64>(5)[0], 2, "the most recent of equally large blocks");
        assert_eq!(pool.take::<i64>(11)[0], 3);
    }

    #[test]
    fn blocks_that_are_too_small_grow() {
        let pool = Pool::new(4);
        pool.put(Elements::Int32(vec![3; 4]));
        assert_eq!(pool.take::<i32>(6).len(), 6);
        assert!(pool.take_many::<i64>(usize::MAX / 16).is_err());
    }
}
