//! Orienting, cropping and padding of pixels.

use super::geometry::{Rect, Size};
use super::orientation::Orientation;
pub(super) use crate::decode::{Pixels, luma};

/// Side of the square tiles in which pixels are transposed, so that source and target stay in the L1 cache.
const TILE: usize = 32;

/// Writes `source`, turned upright, to `out`.
pub(super) fn orient(source: &Pixels, orientation: Orientation, out: &mut Pixels) {
    let size = if orientation.transposes() { source.size().transposed() } else { source.size() };
    out.reshape(size, source.channels);
    match source.channels {
        1 => orient_n::<1>(source, orientation, out),
        3 => orient_n::<3>(source, orientation, out),
        _ => orient_n::<4>(source, orientation, out),
    }
}

fn orient_n<const N: usize>(source: &Pixels, orientation: Orientation, out: &mut Pixels) {
    let (from, _) = source.data.as_chunks::<N>();
    let (to, _) = out.data.as_chunks_mut::<N>();
    let (w, h) = (source.width as usize, source.height as usize);
    let (out_w, out_h) = (out.width as usize, out.height as usize);
    if !orientation.transposes() {
        let (mirrors_columns, mirrors_rows) = orientation.mirrors();
        for (y, row) in to.chunks_exact_mut(w).enumerate() {
            let from_y = if mirrors_rows { h - 1 - y } else { y };
            row.copy_from_slice(&from[from_y * w..][..w]);
            if mirrors_columns {
                row.reverse();
            }
        }
        return;
    }
    for tile_y in (0..out_h).step_by(TILE) {
        for tile_x in (0..out_w).step_by(TILE) {
            for y in tile_y..(tile_y + TILE).min(out_h) {
                for x in tile_x..(tile_x + TILE).min(out_w) {
                    let (from_x, from_y) = match orientation {
                        Orientation::Rotate90 => (y, h - 1 - x),
                        Orientation::Rotate270 => (w - 1 - y, x),
                        Orientation::Transverse => (w - 1 - y, h - 1 - x),
                        _ => (y, x),
                    };
                    to[y * out_w + x] = from[from_y * w + from_x];
                }
            }
        }
    }
}

/// Writes the part of `source` inside `rect` to `out`.
pub(super) fn crop(source: &Pixels, rect: Rect, out: &mut Pixels) {
    out.reshape(rect.size, source.channels);
    let (stride, length) = (source.stride(), rect.size.width as usize * source.channels);
    let start = rect.top as usize * stride + rect.left as usize * source.channels;
    for (row, from) in out.data.chunks_exact_mut(length).zip(source.data[start..].chunks(stride)) {
        row.copy_from_slice(&from[..length]);
    }
}

/// Centers `source` on a canvas of `size`, filled with `color` (one value per channel).
pub(super) fn pad(source: &Pixels, size: Size, color: &[u8], out: &mut Pixels) {
    out.reshape(size, source.channels);
    for pixel in out.data.chunks_exact_mut(source.channels) {
        pixel.copy_from_slice(&color[..source.channels]);
    }
    let left = (size.width - source.width) as usize / 2 * source.channels;
    let top = (size.height - source.height) as usize / 2;
    let (stride, length) = (out.stride(), source.stride());
    for (row, from) in out.data.chunks_exact_mut(stride).skip(top).zip(source.data.chunks_exact(length)) {
        row[left..left + length].copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(width: u32, height: u32, channels: usize) -> Pixels {
        let n = width as usize * height as usize * channels;
        Pixels { data: (0..n).map(|i| (i % 251) as u8).collect(), width, height, channels }
    }

    /// The eight orientations of the letter-like image
    /// ```text
    /// 1 2
    /// 3 4
    /// 5 6
    /// ```
    #[test]
    fn every_orientation_is_turned_upright() {
        let source = Pixels { data: vec![1, 2, 3, 4, 5, 6], width: 2, height: 3, channels: 1 };
        let table: [(u16, u32, [u8; 6]); 8] = [
            (1, 2, [1, 2, 3, 4, 5, 6]),
            (2, 2, [2, 1, 4, 3, 6, 5]),
            (3, 2, [6, 5, 4, 3, 2, 1]),
            (4, 2, [5, 6, 3, 4, 1, 2]),
            (5, 3, [1, 3, 5, 2, 4, 6]),
            (6, 3, [5, 3, 1, 6, 4, 2]),
            (7, 3, [6, 4, 2, 5, 3, 1]),
            (8, 3, [2, 4, 6, 1, 3, 5]),
        ];
        for (tag, width, expected) in table {
            let mut out = Pixels::default();
            orient(&source, Orientation::from_tag(tag).unwrap(), &mut out);
            assert_eq!((out.width, out.data.as_slice()), (width, expected.as_slice()), "orientation {tag}");
        }
    }

    #[test]
    fn tiles_cover_images_of_any_size() {
        let source = numbered(67, 45, 3);
        let (mut once, mut back) = (Pixels::default(), Pixels::default());
        orient(&source, Orientation::Rotate90, &mut once);
        orient(&once, Orientation::Rotate270, &mut back);
        assert_eq!(back.data, source.data);
    }

    #[test]
    fn crop_and_pad_place_rows() {
        let source = numbered(5, 4, 1);
        let (mut kept, mut padded) = (Pixels::default(), Pixels::default());
        crop(&source, Rect { left: 1, top: 2, size: Size::new(3, 2) }, &mut kept);
        assert_eq!(kept.data, [11, 12, 13, 16, 17, 18]);
        pad(&kept, Size::new(4, 4), &[99], &mut padded);
        assert_eq!(padded.data, [99, 99, 99, 99, 11, 12, 13, 99, 16, 17, 18, 99, 99, 99, 99, 99]);
    }
}
