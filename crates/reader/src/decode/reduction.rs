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

/// Returns whether a JPEG can be decoded at a reduced size: unlike lossless files, and those with more than 8 bits per
/// sample. Only the segments before the frame header are read. For a damaged file, decoding finds the error.
pub(super) fn is_reducible(jpeg: &[u8]) -> bool {
    let mut rest = jpeg.get(2..).unwrap_or_default();
    while let [0xff, marker, after @ ..] = rest {
        let is_lossless = matches!(marker, 0xc3 | 0xc7 | 0xcb | 0xcf);
        match marker {
            // A fill byte.
            0xff => rest = &rest[1..],
            0xc4 | 0xc8 | 0xcc | 0x00..=0xbf | 0xd0..=0xfe => {
                let Some(length) = after.first_chunk().map(|length| u16::from_be_bytes(*length)) else {
                    break;
                };
                rest = after.get(usize::from(length)..).unwrap_or_default();
            }
            // A frame header: its length, and the precision.
            0xc0..=0xcf => return !is_lossless && after.get(2) == Some(&8),
        }
    }
    true
}

/// Returns the scale of a decode at 1/`reduction`. Every value that [`reduction`] returns has one.
pub fn scale(reduction: u32) -> Scale {
    Scale::from_denominator(reduction).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lossless_files_and_12_bit_samples_are_not_reduced() {
        let file = |frame: u8, precision: u8| {
            [&[0xff, 0xd8, 0xff, 0xfe, 0, 4, 0xff, 0xc0, 0xff][..], &[0xff, frame, 0, 11, precision]].concat()
        };
        assert!(is_reducible(&file(0xc0, 8)) && is_reducible(&file(0xc2, 8)));
        assert!(!is_reducible(&file(0xc1, 12)) && !is_reducible(&file(0xc3, 8)));
        assert!(
            is_reducible(&[])
                && is_reducible(&[0xff, 0xd8, 0xff])
                && is_reducible(&[0xff, 0xd8, 0xff, 0xe0, 0])
        );
        assert!(is_reducible(&[0xff, 0xd8, 0xff, 0xe0, 0, 0, 0xff]), "an impossible length ends the search");
    }

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
