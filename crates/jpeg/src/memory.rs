//! Fallible allocation, for buffers whose size depends on the file: failure is an error and does not abort the process.

use crate::error::Error;

/// Resizes `buffer` to `length` elements. New elements are `value`; existing ones are unchanged.
pub(crate) fn resize<T: Clone>(buffer: &mut Vec<T>, length: usize, value: T) -> Result<(), Error> {
    let additional = length.saturating_sub(buffer.len());
    buffer.try_reserve(additional).map_err(|_| Error::out_of_memory())?;
    buffer.resize(length, value);
    Ok(())
}

/// Creates a buffer of `length` copies of `value`.
pub(crate) fn filled<T: Clone>(length: usize, value: T) -> Result<Vec<T>, Error> {
    let mut buffer = Vec::new();
    resize(&mut buffer, length, value)?;
    Ok(buffer)
}

/// Returns the product of `factors`, or an error if it overflows.
pub(crate) fn product(factors: &[usize]) -> Result<usize, Error> {
    let product = factors.iter().try_fold(1usize, |product, factor| product.checked_mul(*factor));
    product.ok_or_else(Error::out_of_memory)
}
