//! The rule for decoding JPEGs at a reduced size, for converter and loader.

use dsconvert_jpeg::Scale;

use super::pixels::Size;

/// Returns the reduction for decoding a region of `width` × `height` pixels that is then resized to `target`: the
/// largest power of two, up to 8, whose result has at least twice the pixels of `target` in each direction. Down to
/// that size, the result differs from a full decode by less than the JPEG compression itself (44 to 50 dB).
pub fn reduction(width: f64, height: f64, target: Size) -> u32 {
    let remains = |side: f64, n: u32, target: u32| side / f64::from(n) >= 2.0 * f64::from(target);
    let fits = |n: &u32| remains(width, *n, target.width) && remains(height, *n, target.height);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Returns the scale of a decode at 1/`reduction`. Every value that [`reduction`] returns has one.
pub fn scale(reduction: u32) -> Scale {
    Scale::from_denominator(reduction).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_twice_the_target_size_remains() {
        let of = |width, height, target: (u32, u32)| reduction(width, height, Size::new(target.0, target.1));
        assert_eq!(of(896.0, 896.0, (224, 224)), 2);
        assert_eq!(of(895.9, 896.0, (224, 224)), 1);
        assert_eq!(of(896.0, 895.9, (224, 224)), 1);
        assert_eq!(of(1792.0, 4000.0, (224, 224)), 4);
        assert_eq!(of(1e9, 1e9, (1, 1)), 8);
        assert_eq!(of(10.0, 10.0, (u32::MAX, 1)), 1);
    }
}
