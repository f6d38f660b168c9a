//! Scatter plot of width and height.

use std::collections::BTreeMap;

use super::{BOTTOM, HEIGHT, LEFT, Plot, PlotAxis, TOP};
use crate::numbers::{count, plural};

/// Side of a cell, in units of the view box. Images in the same cell share a dot.
const CELL: f64 = 7.0;
/// Radius of the largest dot.
const LARGEST: f64 = 11.0;
/// Radius of the dot of a single image.
const SMALLEST: f64 = 2.2;
/// Ratio of the largest to the smallest side above which the axes are logarithmic.
const LOGARITHMIC_RATIO: f64 = 12.0;

/// Images of similar size.
#[derive(Default)]
struct SizeCell {
    images: u64,
    width: u64,
    height: u64,
}

/// Draws the sizes of images in pixels. Images of similar size share a dot, whose area grows with their number.
pub(in crate::report) fn sizes(sizes: &[(u32, u32)], title: &str) -> Plot {
    let sides = |side: fn(&(u32, u32)) -> u32| {
        let all = || sizes.iter().map(side);
        (f64::from(all().min().unwrap_or(0).max(1)), f64::from(all().max().unwrap_or(1).max(1)))
    };
    let (widths, heights) = (sides(|size| size.0), sides(|size| size.1));
    let logarithmic = widths.1.max(heights.1) / widths.0.min(heights.0) > LOGARITHMIC_RATIO;
    let axis = |(least, most): (f64, f64)| match logarithmic {
        true => PlotAxis::logarithmic(least / 1.15, most * 1.15),
        false => PlotAxis::linear(0.0, most * 1.08),
    };
    let scale = if logarithmic { ", logarithmic" } else { "" };
    let description = format!(
        "Scatter plot of {}: {} to {} pixels wide, {} to {} pixels high.",
        plural(sizes.len() as u64, "image"),
        count(widths.0 as u64),
        count(widths.1 as u64),
        count(heights.0 as u64),
        count(heights.1 as u64)
    );
    let (x, y) = (axis(widths), axis(heights));
    let mut plot = Plot::new(
        title,
        &description,
        (x, &format!("width (pixels{scale})")),
        (y, &format!("height (pixels{scale})")),
    );
    draw_diagonal(&mut plot);
    let mut cells: BTreeMap<(i32, i32), SizeCell> = BTreeMap::new();
    for &(width, height) in sizes {
        let (column, row) = (plot.px(width.into()) / CELL, plot.py(height.into()) / CELL);
        let cell = cells.entry((column as i32, row as i32)).or_default();
        cell.images += 1;
        cell.width += u64::from(width);
        cell.height += u64::from(height);
    }
    let most = cells.values().map(|cell| cell.images).max().unwrap_or(1);
    // Large dots are drawn first, so that they do not hide smaller ones.
    let mut cells: Vec<SizeCell> = cells.into_values().collect();
    cells.sort_by_key(|cell| std::cmp::Reverse(cell.images));
    for cell in cells {
        let (width, height) =
            (cell.width as f64 / cell.images as f64, cell.height as f64 / cell.images as f64);
        // Dots are scaled by the fullest cell, but by at least 20 images, so that a few images stay small dots.
        let share = ((cell.images - 1) as f64 / (most.max(20) - 1) as f64).sqrt();
        let radius = SMALLEST + (LARGEST - SMALLEST) * share;
        let (x, y) = (plot.px(width), plot.py(height));
        plot.add(format_args!(
            "<circle class=\"dsc-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{:.0}×{:.0}: {}</title></circle>",
            width,
            height,
            plural(cell.images, "image")
        ));
    }
    plot
}

/// Draws a dashed line where width equals height.
fn draw_diagonal(plot: &mut Plot) {
    let (from, to) = (plot.x.from.max(plot.y.from), plot.x.to.min(plot.y.to));
    if from < to {
        let (x1, y1, x2, y2) = (plot.px(from), plot.py(from), plot.px(to), plot.py(to));
        plot.add(format_args!("<path class=\"dsc-guide\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"));
        if y2 > TOP + 24.0 || x2 > LEFT + 80.0 {
            let (x, y) = ((x2 - 6.0).max(LEFT + 44.0), (y2 + 4.0).clamp(TOP + 4.0, HEIGHT - BOTTOM));
            plot.text(x, y, "dsc-tick dsc-end", "square");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_one_size_share_a_dot() {
        let svg = sizes(&vec![(256, 256); 100_000], "Sizes").finish(None);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("256×256: 100,000 images"));
        let many: Vec<(u32, u32)> = (0..100_000).map(|i| (1 + i % 331, 1 + i / 331)).collect();
        assert!(sizes(&many, "Sizes").finish(None).len() < 600_000);
        assert!(sizes(&[(0, 0), (u32::MAX, 1)], "").finish(None).contains("<circle"));
        assert_eq!(sizes(&[], "").finish(None).matches("<circle").count(), 0);
    }
}
