//! Allocations whose size a file decides: failure is an error, not the end of the process.

use crate::error::Error;

/// Resizes `buffer` to `length` elements. New ones are `value`; others are left as they are.
pub(crate) fn resize<T: Clone>(buffer: &mut Vec<T>, length: usize, value: T) -> Result<(), Error> {
    let additional = length.saturating_sub(buffer.len());
    buffer.try_reserve(additional).map_err(|_| Error::out_of_memory())?;
    buffer.resize(length, value);
    Ok(())
}

/// A buffer of `length` times `value`.
pub(crate) fn filled<T: Clone>(length: usize, value: T) -> Result<Vec<T>, Error> {
    let mut buffer = Vec::new();
    resize(&mut buffer, length, value)?;
    Ok(buffer)
}

/// The product of `factors`, when it can be the size of a buffer.
pub(crate) fn product(factors: &[usize]) -> Result<usize, Error> {
    let product = factors.iter().try_fold(1usize, |product, factor| product.checked_mul(*factor));
    product.ok_or_else(Error::out_of_memory)
}
