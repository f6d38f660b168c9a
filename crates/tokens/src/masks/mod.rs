//! Byte-class bitmasks over 64-byte windows: tests which of 64 bytes are equal to a byte, in an ASCII range or
//! non-ASCII, and returns a `u64` with one bit per byte. Bit operations on such masks find spaces and word boundaries
//! in text without a branch per byte.
//!
//! A computation is written once, against [`ByteMasks`]; [`dispatch`] runs it with AVX2 if the CPU supports it. No
//! `unsafe` is needed, because `pulp` makes the intrinsics safe to call.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
#[cfg(test)]
mod tests;

pub(crate) use portable::{HIGH_BITS, ONES, Portable};

/// Bytes per window, and bits per mask.
pub(crate) const WINDOW: usize = 64;

/// Byte-class tests on a window of [`WINDOW`] bytes. Bit `i` of a mask is set if byte `i` is in the class.
///
/// [`Portable`] works on every CPU; [`dispatch`] selects the fastest implementation for the current one. All
/// implementations return equal masks.
pub(crate) trait ByteMasks: Copy {
    /// A loaded window, in the registers of this implementation.
    type Window: Copy;

    /// Loads the bytes.
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window;

    /// Sets bit 0x20 of every byte, which maps ASCII letters to lowercase. It changes other bytes too.
    fn set_case_bit(self, window: Self::Window) -> Self::Window;

    /// Returns the mask of bytes equal to `byte`.
    fn equal(self, window: Self::Window, byte: u8) -> u64;

    /// Returns the mask of bytes in `first..first + count`, a non-empty range within ASCII.
    fn in_range(self, window: Self::Window, first: u8, count: u8) -> u64;

    /// Returns the mask of bytes above 0x7f.
    fn non_ascii(self, window: Self::Window) -> u64;
}

/// A computation that [`dispatch`] compiles once per instruction set.
pub(crate) trait Kernel {
    /// The result.
    type Output;

    /// Runs the computation. Mark the implementation, and everything it calls in a hot loop, `#[inline(always)]`, and
    /// avoid closures there: code that is not inlined is compiled for the baseline CPU.
    fn run(self, masks: impl ByteMasks) -> Self::Output;
}

/// Runs `kernel` with AVX2 if the CPU supports it, otherwise with [`Portable`].
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    let kernel = match avx2::run(kernel) {
        Ok(output) => return output,
        Err(kernel) => kernel,
    };
    kernel.run(Portable)
}
