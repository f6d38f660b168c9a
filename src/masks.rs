//! Which of 64 bytes are of a kind, one bit for each: how text is looked at without a branch per byte.
//!
//! Work is compiled for any processor, where eight bytes are looked at in one number, and once more for those with
//! AVX2, where it is 32 of them. `pulp` makes their instructions safe to call: who holds its token has checked the
//! processor. The bits are the same.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;

#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

/// Bytes that are looked at together.
pub(crate) const WINDOW: usize = 64;

/// A kind of processor. Bit `i` of what it finds stands for byte `i`.
pub(crate) trait Machine: Copy {
    /// The bytes, where this kind of processor wants them.
    type Window: Copy;

    /// Takes the bytes.
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window;

    /// The bytes with the bit 0x20 set, which makes letters of ASCII small.
    fn lower(self, window: Self::Window) -> Self::Window;

    /// Those that are `byte`.
    fn is(self, window: Self::Window, byte: u8) -> u64;

    /// Those among the `count` bytes from `first` on, all of which are ASCII.
    fn among(self, window: Self::Window, first: u8, count: u8) -> u64;

    /// Those beyond ASCII.
    fn beyond_ascii(self, window: Self::Window) -> u64;
}

/// Something to do on one or the other kind of processor. What it calls must be inlined into it, and have no closures:
/// those would be compiled for the least of all processors.
pub(crate) trait Work {
    /// What comes of it.
    type Output;

    /// Does it. To be inlined.
    fn on(self, machine: impl Machine) -> Self::Output;
}

/// Does `work` as well as this processor can.
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = V3::try_new() {
        return v3.vectorize(OnAvx2(Avx2(v3), work));
    }
    work.on(Portable)
}

/// For any processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

/// A number of eight bytes that are 1.
pub(crate) const EACH: u64 = 0x0101_0101_0101_0101;
/// The bits of eight bytes that ASCII does not have.
pub(crate) const HIGH: u64 = 0x80 * EACH;

impl Portable {
    /// The high bits of what `mark` makes of every eight bytes.
    #[inline(always)]
    fn bits(window: [u64; WINDOW / 8], mark: impl Fn(u64) -> u64) -> u64 {
        let mut bits = 0;
        for (i, bytes) in window.into_iter().enumerate() {
            // The high bit of byte k becomes bit k.
            bits |= ((mark(bytes) & HIGH).wrapping_mul(0x0002_0408_1020_4081) >> 56) << (8 * i);
        }
        bits
    }
}

// No byte carries into the next in any of these.
impl Machine for Portable {
    type Window = [u64; WINDOW / 8];

    #[inline(always)]
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window {
        let mut window = [0; WINDOW / 8];
        for (to, from) in window.iter_mut().zip(bytes.as_chunks().0) {
            *to = u64::from_le_bytes(*from);
        }
        window
    }

    #[inline(always)]
    fn lower(self, window: Self::Window) -> Self::Window {
        window.map(|bytes| bytes | (0x20 * EACH))
    }

    #[inline(always)]
    fn is(self, window: Self::Window, byte: u8) -> u64 {
        let pattern = EACH * u64::from(byte);
        Self::bits(window, |bytes| {
            let differing = bytes ^ pattern;
            !(((differing & !HIGH) + !HIGH) | differing)
        })
    }

    #[inline(always)]
    fn among(self, window: Self::Window, first: u8, count: u8) -> u64 {
        let (from, behind) = (EACH * u64::from(0x80 - first), EACH * u64::from(0x80 - first - count));
        Self::bits(window, |bytes| {
            let plain = bytes & !HIGH;
            (plain + from) & !(plain + behind) & !bytes
        })
    }

    #[inline(always)]
    fn beyond_ascii(self, window: Self::Window) -> u64 {
        Self::bits(window, |bytes| bytes)
    }
}

/// For processors with AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
struct Avx2(V3);

#[cfg(target_arch = "x86_64")]
struct OnAvx2<W>(Avx2, W);

#[cfg(target_arch = "x86_64")]
impl<W: Work> pulp::NullaryFnOnce for OnAvx2<W> {
    type Output = W::Output;

    #[inline(always)]
    fn call(self) -> W::Output {
        self.1.on(self.0)
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    #[inline(always)]
    fn bits(self, halves: [__m256i; 2]) -> u64 {
        let [low, high] = halves;
        let (low, high) = (self.0.avx2._mm256_movemask_epi8(low), self.0.avx2._mm256_movemask_epi8(high));
        u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
    }
}

#[cfg(target_arch = "x86_64")]
impl Machine for Avx2 {
    type Window = [__m256i; 2];

    #[inline(always)]
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window {
        pulp::cast(*bytes)
    }

    #[inline(always)]
    fn lower(self, [low, high]: Self::Window) -> Self::Window {
        let V3 { avx, avx2, .. } = self.0;
        let bit = avx._mm256_set1_epi8(0x20);
        [avx2._mm256_or_si256(low, bit), avx2._mm256_or_si256(high, bit)]
    }

    #[inline(always)]
    fn is(self, [low, high]: Self::Window, byte: u8) -> u64 {
        let V3 { avx, avx2, .. } = self.0;
        let pattern = avx._mm256_set1_epi8(byte.cast_signed());
        self.bits([avx2._mm256_cmpeq_epi8(low, pattern), avx2._mm256_cmpeq_epi8(high, pattern)])
    }

    #[inline(always)]
    fn among(self, [low, high]: Self::Window, first: u8, count: u8) -> u64 {
        let V3 { avx, avx2, .. } = self.0;
        let (first, most) =
            (avx._mm256_set1_epi8(first.cast_signed()), avx._mm256_set1_epi8((count - 1).cast_signed()));
        let (low, high) = (avx2._mm256_sub_epi8(low, first), avx2._mm256_sub_epi8(high, first));
        let [a, b] = [avx2._mm256_min_epu8(low, most), avx2._mm256_min_epu8(high, most)];
        self.bits([avx2._mm256_cmpeq_epi8(low, a), avx2._mm256_cmpeq_epi8(high, b)])
    }

    #[inline(always)]
    fn beyond_ascii(self, window: Self::Window) -> u64 {
        self.bits(window)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits of each question about a window.
    struct Ask([u8; WINDOW]);

    const RANGES: [(u8, u8); 5] = [(0, 32), (b'a', 26), (b'0', 10), (9, 5), (0, 128)];

    impl Work for Ask {
        type Output = Vec<u64>;

        #[inline(always)]
        fn on(self, machine: impl Machine) -> Vec<u64> {
            let window = machine.load(&self.0);
            let mut all = vec![machine.beyond_ascii(window)];
            for bytes in [window, machine.lower(window)] {
                for byte in [0, b' ', b'"', b'\\', 0x7f, 0x80, 0xff] {
                    all.push(machine.is(bytes, byte));
                }
                for (first, count) in RANGES {
                    all.push(machine.among(bytes, first, count));
                }
            }
            all
        }
    }

    /// The same, one byte at a time.
    fn expected(window: [u8; WINDOW]) -> Vec<u64> {
        let bits = |is: &dyn Fn(u8) -> bool, window: [u8; WINDOW]| {
            window.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(is(byte)))
        };
        let mut all = vec![bits(&|byte| !byte.is_ascii(), window)];
        for bytes in [window, window.map(|byte| byte | 0x20)] {
            all.extend(
                [0, b' ', b'"', b'\\', 0x7f, 0x80, 0xff].map(|wanted| bits(&|byte| byte == wanted, bytes)),
            );
            all.extend(
                RANGES.map(|(first, count)| bits(&|byte| byte >= first && byte - first < count, bytes)),
            );
        }
        all
    }

    #[test]
    fn every_byte_is_found_everywhere() {
        for byte in 0..=255u8 {
            for at in [0, 7, 8, 31, 32, 63] {
                for other in [b'!', 0, 0xff] {
                    let mut window = [other; WINDOW];
                    window[at] = byte;
                    assert_eq!(Ask(window).on(Portable), expected(window), "{byte} at {at}");
                    assert_eq!(run(Ask(window)), expected(window), "{byte} at {at}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn all_bytes_are_found(window in prop::array::uniform32(any::<[u8; 2]>())) {
            let window: [u8; WINDOW] = window.concat().try_into().unwrap();
            prop_assert_eq!(Ask(window).on(Portable), expected(window));
            prop_assert_eq!(run(Ask(window)), expected(window));
        }
    }
}
