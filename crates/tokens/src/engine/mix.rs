//! Hashing of integers by multiplication.

/// Multiplies to 128 bits and combines both halves by XOR.
#[inline(always)]
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
