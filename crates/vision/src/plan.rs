//! From the size of an image to its grid and its number of tokens.
//!
//! The arithmetic is that of the reference, in double precision: Python rounds ties to even.

use crate::{PlanError, Processor};

/// Largest ratio of the sides of an image.
const MAX_ASPECT: f64 = 200.0;

/// What a processor makes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImagePlan {
    /// Height after resizing, in pixels.
    pub height: u32,
    /// Width after resizing, in pixels.
    pub width: u32,
    /// Numbers of patches: in time, vertically and horizontally.
    pub grid: [u32; 3],
    /// Number of tokens in place of the image.
    pub tokens: u32,
    /// Number of patches: the product of the grid.
    pub patches: u32,
}

impl Processor {
    /// Returns what becomes of an upright image of `height` × `width` pixels.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if the processor refuses such an image.
    pub fn plan(&self, height: u32, width: u32) -> Result<ImagePlan, PlanError> {
        if height == 0 || width == 0 {
            return Err(PlanError::Empty);
        }
        let (h, w) = (f64::from(height), f64::from(width));
        let ratio = h.max(w) / h.min(w);
        if ratio > MAX_ASPECT {
            return Err(PlanError::Aspect(ratio));
        }
        let factor = f64::from(self.patch_size) * f64::from(self.merge_size);
        let (min, max) = (self.min_pixels as f64, self.max_pixels as f64);
        let nearest = |side: f64| (side / factor).round_ties_even() * factor;
        let (mut rows, mut columns) = (nearest(h), nearest(w));
        if rows * columns > max {
            let beta = (h * w / max).sqrt();
            let below = |side: f64| factor.max((side / beta / factor).floor() * factor);
            (rows, columns) = (below(h), below(w));
        } else if rows * columns < min {
            let beta = (min / (h * w)).sqrt();
            let above = |side: f64| (side * beta / factor).ceil() * factor;
            (rows, columns) = (above(h), above(w));
        }
        if rows < factor || columns < factor {
            // Without a minimum, a side may be rounded to 0.
            return Err(PlanError::Empty);
        }
        let patch = f64::from(self.patch_size);
        let (grid_rows, grid_columns) = (rows / patch, columns / patch);
        if rows.max(columns) > f64::from(u32::MAX) || grid_rows * grid_columns > f64::from(u32::MAX) {
            return Err(PlanError::TooLarge);
        }
        let grid = [1, grid_rows as u32, grid_columns as u32];
        let patches = grid[1] * grid[2];
        let tokens = patches / (self.merge_size * self.merge_size);
        Ok(ImagePlan { height: rows as u32, width: columns as u32, grid, tokens, patches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts and grids of the processors of `transformers` 5.23.
    #[test]
    fn counts_and_grids_equal_those_of_transformers() {
        let sizes =
            [(480, 640), (336, 336), (28, 28), (20, 900), (1080, 1920), (365, 211), (333, 1001), (448, 896)];
        let counts = |processor: &Processor| sizes.map(|(h, w)| processor.plan(h, w).unwrap().tokens);
        let (qwen25, qwen3) = (Processor::qwen2_5_vl(), Processor::qwen3_vl());
        assert_eq!(counts(&qwen25), [391, 144, 4, 32, 2691, 104, 432, 512]);
        assert_eq!(counts(&qwen3), [300, 100, 64, 108, 2040, 77, 310, 392]);
        let grids = |processor: &Processor| {
            [0, 2, 3, 4, 5].map(|at| {
                let (h, w) = sizes[at];
                processor.plan(h, w).unwrap().grid
            })
        };
        assert_eq!(grids(&qwen25), [[1, 34, 46], [1, 4, 4], [1, 2, 64], [1, 78, 138], [1, 26, 16]]);
        assert_eq!(grids(&qwen3), [[1, 30, 40], [1, 16, 16], [1, 4, 108], [1, 68, 120], [1, 22, 14]]);
        let plan = qwen25.plan(480, 640).unwrap();
        assert_eq!((plan.height, plan.width, plan.patches), (476, 644, 34 * 46));
    }

    #[test]
    fn ties_round_to_even() {
        // 14 / 28 is 0.5, which rounds to 0, so that the image is too small; half away from zero would give a row.
        let plan = Processor::qwen2_5_vl().plan(14, 339).unwrap();
        assert_eq!(plan.grid, [1, 2, 20]);
        // 42 / 28 is 1.5, which rounds to 2, and 70 / 28 is 2.5, which rounds to 2 as well.
        assert_eq!(Processor::qwen2_5_vl().plan(420, 70).unwrap().grid, [1, 30, 4]);
    }

    #[test]
    fn some_sizes_are_refused() {
        let processor = Processor::qwen2_5_vl();
        assert!(processor.plan(10, 2000).is_ok());
        assert_eq!(processor.plan(10, 2010), Err(PlanError::Aspect(201.0)));
        assert_eq!(processor.plan(0, 5), Err(PlanError::Empty));
        let huge = Processor { min_pixels: u64::MAX, max_pixels: u64::MAX, ..processor };
        assert_eq!(huge.plan(100, 100), Err(PlanError::TooLarge));
    }
}
