//! The support of each filter, the box filter, and the Lanczos kernel with three lobes, computed identically on every processor.
//!
//! Each image evaluates the Lanczos kernel tens of thousands of times. With the sine of the C library, this takes 3% of the
//! time of a photograph. That sine also depends on processor features, and its last bit may differ. Here, the sine is a
//! polynomial of multiplications and additions, which IEEE 754 specifies exactly. One sine serves both factors, because
//! sin 3a = 3 sin a − 4 sin³ a.

use std::f64::consts::{FRAC_PI_2, PI};

use super::option_values::Filter;

/// Radius of the kernel, in pixels of the smaller image.
pub(super) const SUPPORT: f64 = 3.0;

/// Returns `sinc(x) · sinc(x / 3)` inside the support, otherwise 0.
pub(super) fn lanczos3(x: f64) -> f64 {
    if x.abs() >= SUPPORT {
        return 0.0;
    }
    let a = x * (PI / 3.0);
    if a.abs() < 1e-8 {
        return 1.0;
    }
    let s2 = sin(a.abs()).powi(2);
    s2 * (3.0 - 4.0 * s2) / (3.0 * a * a)
}

/// Returns the sine of an angle from 0 to π, accurate to within 2⁻⁵².
fn sin(angle: f64) -> f64 {
    /// 1/3!, 1/5!, …, 1/21!, with alternating signs.
    const TAYLOR: [f64; 10] = {
        let mut terms = [0.0; 10];
        let (mut term, mut i) = (1.0, 0);
        while i < 10 {
            let n = (2 * i + 2) as f64;
            term /= -(n * (n + 1.0));
            terms[i] = term;
            i += 1;
        }
        terms
    };
    let x = if angle > FRAC_PI_2 { PI - angle } else { angle };
    let x2 = x * x;
    x + x * x2 * TAYLOR.iter().rev().fold(0.0, |sum, term| sum * x2 + term)
}

/// Distance below which a sample counts as exactly on the edge of a box: more than the rounding errors of positions, and
/// less than any other distance from the edge.
const ON_EDGE: f64 = 1e-9;

/// Returns the weight in the box filter of a sample at the distance `x`, which is positive to the right or below.
///
/// A sample in the middle between two pixels belongs only to the left or upper one, as Pillow intends. Without a tolerance,
/// rounding errors of the position would decide.
pub(super) fn box_filter(x: f64) -> f64 {
    if x > -0.5 + ON_EDGE && x <= 0.5 + ON_EDGE { 1.0 } else { 0.0 }
}

impl Filter {
    /// Returns the distance from which on the kernel is zero, in pixels of the smaller of the two images.
    pub(super) fn support(self) -> f64 {
        match self {
            Filter::Lanczos3 => SUPPORT,
            Filter::CatmullRom => 2.0,
            Filter::Bilinear => 1.0,
            Filter::Box => 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_product_of_two_sincs() {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        for i in -3_100_000..=3_100_000i64 {
            let x = i as f64 * 1e-6;
            let expected = if x.abs() >= 3.0 { 0.0 } else { sinc(x) * sinc(x / 3.0) };
            let difference = (lanczos3(x) - expected).abs();
            assert!(difference < 1e-15, "{x}: {} instead of {expected}", lanczos3(x));
        }
        for tiny in [0.0, -0.0, 1e-300, 1e-9, -1e-9, 1e-7] {
            assert!((lanczos3(tiny) - 1.0).abs() < 1e-12);
        }
    }

    /// The pixels of every dataset depend on these bits: this test must never change.
    #[test]
    fn bits_never_change() {
        let bits = [0.1, 0.5, 1.25, -1.7, 2.9].map(|x| lanczos3(x).to_bits());
        let known = [
            0x3fef_6b30_e64a_f5a5,
            0x3fe3_7423_899a_1557,
            0xbfc1_01ea_e33b_69c4,
            0xbfb5_4ea2_5ec0_c70d,
            0x3f53_20af_e1bd_01f9,
        ];
        assert_eq!(bits, known);
    }
}
