//! AVX2 implementation with two 32-byte registers. `pulp`'s token proves that the CPU has AVX2, so the intrinsics are
//! safe to call.

use std::arch::x86_64::__m256i;

use pulp::x86::V3;

use super::{ByteMasks, Kernel, WINDOW};

/// The implementation for CPUs with AVX2.
#[derive(Debug, Clone, Copy)]
struct Avx2(V3);

/// Runs `kernel` with AVX2, or returns it if the CPU does not support AVX2.
#[inline(always)]
pub(super) fn run<K: Kernel>(kernel: K) -> Result<K::Output, K> {
    match V3::try_new() {
        Some(v3) => Ok(v3.vectorize(OnAvx2(Avx2(v3), kernel))),
        None => Err(kernel),
    }
}

struct OnAvx2<K>(Avx2, K);

impl<K: Kernel> pulp::NullaryFnOnce for OnAvx2<K> {
    type Output = K::Output;

    #[inline(always)]
    fn call(self) -> K::Output {
        self.1.run(self.0)
    }
}

impl Avx2 {
    #[inline(always)]
    fn bits(self, halves: [__m256i; 2]) -> u64 {
        let [low, high] = halves;
        let (low, high) = (self.0.avx2._mm256_movemask_epi8(low), self.0.avx2._mm256_movemask_epi8(high));
        u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
    }
}

impl ByteMasks for Avx2 {
    type Window = [__m256i; 2];

    #[inline(always)]
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window {
        pulp::cast(*bytes)
    }

    #[inline(always)]
    fn set_case_bit(self, [low, high]: Self::Window) -> Self::Window {
        let V3 { avx, avx2, .. } = self.0;
        let bit = avx._mm256_set1_epi8(0x20);
        [avx2._mm256_or_si256(low, bit), avx2._mm256_or_si256(high, bit)]
    }

    #[inline(always)]
    fn equal(self, [low, high]: Self::Window, byte: u8) -> u64 {
        let V3 { avx, avx2, .. } = self.0;
        let pattern = avx._mm256_set1_epi8(byte.cast_signed());
        self.bits([avx2._mm256_cmpeq_epi8(low, pattern), avx2._mm256_cmpeq_epi8(high, pattern)])
    }

    #[inline(always)]
    fn in_range(self, [low, high]: Self::Window, first: u8, count: u8) -> u64 {
        let V3 { avx, avx2, .. } = self.0;
        let (first, most) =
            (avx._mm256_set1_epi8(first.cast_signed()), avx._mm256_set1_epi8((count - 1).cast_signed()));
        // Unsigned offsets from `first`. A byte is in the range if its offset is its own minimum with the last offset.
        let (low, high) = (avx2._mm256_sub_epi8(low, first), avx2._mm256_sub_epi8(high, first));
        let [a, b] = [avx2._mm256_min_epu8(low, most), avx2._mm256_min_epu8(high, most)];
        self.bits([avx2._mm256_cmpeq_epi8(low, a), avx2._mm256_cmpeq_epi8(high, b)])
    }

    #[inline(always)]
    fn non_ascii(self, window: Self::Window) -> u64 {
        self.bits(window)
    }
}
