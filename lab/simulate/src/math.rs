//! Portable `ln`, `exp` and `sqrt`.
//!
//! The functions of the platform's libm and of JavaScript's `Math` differ in the last bit between systems and browsers.
//! These use only basic arithmetic, comparisons and `floor`, which IEEE 754 and ECMAScript define exactly,
//! so `page/simulate.js` repeats them bit for bit. The polynomials are those of FreeBSD's msun.

const LN2_HI: f64 = 0.693_147_180_369_123_8;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
const INV_LN2: f64 = std::f64::consts::LOG2_E;
const SQRT_2: f64 = std::f64::consts::SQRT_2;
const SQRT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Natural logarithm of a positive finite number.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x > 0.0 && x.is_finite());
    // x = m · 2^k with m between √½ and √2; scaling by 2 is exact.
    let (mut m, mut k) = (x, 0.0);
    while m >= SQRT_2 {
        m *= 0.5;
        k += 1.0;
    }
    while m < SQRT_HALF {
        m *= 2.0;
        k -= 1.0;
    }
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (0.399_999_999_994_094_2 + w * (0.222_221_984_321_497_84 + w * 0.153_138_376_992_093_73));
    let odd = z
        * (0.666_666_666_666_673_5
            + w * (0.285_714_287_436_623_9 + w * (0.181_835_721_616_180_5 + w * 0.147_981_986_051_165_86)));
    let half_square = 0.5 * f * f;
    let rest = s * (half_square + (even + odd));
    k * LN2_HI - ((half_square - (rest + k * LN2_LO)) - f)
}

/// e to the power of `x`: 0 below −700; above 700, the value at 700.
pub(crate) fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let x = if x > 700.0 { 700.0 } else { x };
    let k = (x * INV_LN2 + 0.5).floor();
    let hi = x - k * LN2_HI;
    let lo = k * LN2_LO;
    let r = hi - lo;
    let t = r * r;
    let c = r - t
        * (0.166_666_666_666_666_02
            + t * (-0.002_777_777_777_701_559_3
                + t * (6.613_756_321_437_934e-5
                    + t * (-1.653_390_220_546_525_2e-6 + t * 4.138_136_797_057_238_5e-8))));
    let mut y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi);
    let mut n = k;
    while n > 0.0 {
        y *= 2.0;
        n -= 1.0;
    }
    while n < 0.0 {
        y *= 0.5;
        n += 1.0;
    }
    y
}

/// Square root of a non-negative number. ECMAScript leaves the last bit of `Math.sqrt` to the browser.
pub(crate) fn sqrt(x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { exp(0.5 * ln(x)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-15 * b.abs().max(1e-300) * 4.0
    }

    proptest! {
        #[test]
        fn ln_agrees_with_the_platform(exponent in -300.0f64..300.0) {
            let x = 10f64.powf(exponent);
            prop_assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0));
        }

        #[test]
        fn exp_agrees_with_the_platform(x in -600.0f64..600.0) {
            prop_assert!(close(exp(x), x.exp()), "{} {}", exp(x), x.exp());
        }

        #[test]
        fn sqrt_agrees_with_the_platform(x in 1e-12f64..1e12) {
            prop_assert!((sqrt(x) - x.sqrt()).abs() <= 1e-14 * x.sqrt());
        }
    }

    #[test]
    fn exact_and_extreme_values() {
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
        assert!(exp(1e9).is_finite());
        assert_eq!(sqrt(0.0), 0.0);
    }
}
