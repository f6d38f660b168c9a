//! Multimodal rotary positions (M-RoPE) of a document: one position in time, one in the rows and one in the columns of an
//! image for each token.
//!
//! They are those of `get_rope_index` of Qwen2-VL, Qwen2.5-VL and Qwen3-VL in transformers. A token of text has three equal
//! positions, one more than the largest before it. The tokens of an image count from there: its frames, the rows and the
//! columns of its merged patches.

use std::fmt;

/// Frames, rows and columns of the patches of an image.
pub type Grid = [u32; 3];

/// Why the image tokens of a document do not belong to its images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenMismatch {
    /// There are image tokens after those of the last image.
    MissingImage {
        /// Number of images.
        images: usize,
    },
    /// An image has another number of tokens than its grid.
    Count {
        /// Index of the image in the document.
        image: usize,
        /// Number of tokens of its grid.
        expected: u64,
        /// Number of its image tokens in the document.
        found: u64,
    },
    /// The rows and columns of a grid are no multiples of the merge size.
    Grid {
        /// Index of the image in the document.
        image: usize,
        /// The grid.
        grid: Grid,
    },
}

impl fmt::Display for TokenMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingImage { images: 1 } => {
                write!(f, "there are image tokens after those of the only image")
            }
            Self::MissingImage { images } => {
                write!(f, "there are image tokens after those of its {images} images")
            }
            Self::Count { image, expected, found } => {
                write!(f, "image {image} has {found} image tokens, and its grid has {expected}")
            }
            Self::Grid { image, grid: [t, h, w] } => {
                write!(f, "the grid of image {image} is {t} × {h} × {w}, which cannot be merged")
            }
        }
    }
}

impl std::error::Error for TokenMismatch {}

/// Returns the number of tokens of an image: its patches, of which `merge` × `merge` become one token. `None` if its rows or
/// columns are no multiples of `merge`, or if it has no patches.
pub fn tokens_of_grid([t, h, w]: Grid, merge: u32) -> Option<u64> {
    let is_merged = merge > 0 && h % merge == 0 && w % merge == 0;
    let tokens = u64::from(t).checked_mul(u64::from(h))?.checked_mul(u64::from(w))?;
    (is_merged && tokens > 0).then(|| tokens / (u64::from(merge) * u64::from(merge)))
}

/// Adds the positions of the tokens `ids` of one document to `out`. Takes the grids of its images from `grids`, of which the
/// first has the index `image` in messages, and returns their number.
///
/// # Errors
///
/// Fails if an image has another number of tokens than its grid. Positions may then have been added.
pub fn add_positions(
    ids: impl IntoIterator<Item = u32>,
    image_token: u32,
    merge: u32,
    grids: &[Grid],
    image: usize,
    out: &mut Vec<[u32; 3]>,
) -> Result<usize, TokenMismatch> {
    let mut ids = ids.into_iter();
    let (mut next, mut used) = (0u32, 0);
    while let Some(id) = ids.next() {
        if id != image_token {
            out.push([next; 3]);
            next = next.saturating_add(1);
            continue;
        }
        let Some(&grid) = grids.get(used) else {
            return Err(TokenMismatch::MissingImage { images: image + grids.len() });
        };
        let image = image + used;
        let expected = tokens_of_grid(grid, merge).ok_or(TokenMismatch::Grid { image, grid })?;
        let mut found = 1;
        while found < expected && ids.next().is_some_and(|id| id == image_token) {
            found += 1;
        }
        if found < expected {
            return Err(TokenMismatch::Count { image, expected, found });
        }
        let [frames, rows, columns] = [grid[0], grid[1] / merge, grid[2] / merge];
        for frame in 0..frames {
            for row in 0..rows {
                out.extend((0..columns).map(|column| [next + frame, next + row, next + column]));
            }
        }
        next = next.saturating_add(rows.max(columns));
        used += 1;
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: u32 = 9;

    fn positions(ids: &[u32], grids: &[Grid]) -> Result<(usize, Vec<[u32; 3]>), TokenMismatch> {
        let mut out = Vec::new();
        let used = add_positions(ids.iter().copied(), IMAGE, 2, grids, 0, &mut out)?;
        Ok((used, out))
    }

    #[test]
    fn text_follows_the_largest_position_of_an_image() {
        let image = [9; 6];
        let ids = [&[1, 2][..], &image, &[3, 4]].concat();
        let expected = [
            [0, 0, 0],
            [1, 1, 1],
            [2, 2, 2],
            [2, 2, 3],
            [2, 2, 4],
            [2, 3, 2],
            [2, 3, 3],
            [2, 3, 4],
            [5, 5, 5],
            [6, 6, 6],
        ];
        assert_eq!(positions(&ids, &[[1, 4, 6]]), Ok((1, expected.to_vec())));
        assert_eq!(positions(&[], &[[1, 4, 6]]), Ok((0, Vec::new())));
    }

    #[test]
    fn adjacent_images_are_told_apart_by_their_grids() {
        let (used, found) = positions(&[9; 3], &[[1, 2, 2], [1, 4, 2]]).unwrap();
        assert_eq!((used, found), (2, vec![[0, 0, 0], [1, 1, 1], [1, 2, 1]]));
    }

    #[test]
    fn tokens_that_do_not_belong_to_the_grids_are_refused() {
        let refused = |ids: &[u32], grids: &[Grid]| positions(ids, grids).unwrap_err();
        assert_eq!(refused(&[9; 3], &[[1, 4, 4]]), TokenMismatch::Count { image: 0, expected: 4, found: 3 });
        assert_eq!(
            refused(&[9, 1, 9, 9, 9], &[[1, 2, 2], [1, 4, 4]]),
            TokenMismatch::Count { image: 1, expected: 4, found: 3 }
        );
        assert_eq!(refused(&[9; 5], &[[1, 4, 4]]), TokenMismatch::MissingImage { images: 1 });
        for grid in [[1, 3, 4], [1, 4, 3], [0, 4, 4], [1, 0, 4]] {
            assert_eq!(refused(&[9], &[grid]), TokenMismatch::Grid { image: 0, grid });
        }
    }
}
