//! Boxes follow the geometry of their image: turned upright, resized, cropped and padded.

use super::geometry::{Geometry, Size};
use super::orientation::Orientation;
use crate::sample::{PixelBox, Reject, RejectCode};

/// What the numbers of boxes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxUnits {
    /// Pixels of an image of this width and height, if it is stated.
    Pixels(Option<(u32, u32)>),
    /// Pixels of the upright image.
    UprightPixels,
    /// Fractions of the width and height of the upright image.
    Fractions,
}

/// The boxes of an image after its conversion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacedBoxes {
    /// The boxes that are left, each with its position among those before.
    pub kept: Vec<(usize, PixelBox)>,
    /// Number of boxes without an area, or with numbers that are not finite.
    pub invalid: u64,
    /// Number of boxes that have no area left.
    pub outside: u64,
    /// Whether the stated size is the size of both the stored and the upright image, although these differ. Boxes are then
    /// in pixels of the upright image.
    pub is_ambiguous: bool,
}

impl Geometry {
    /// Returns where `boxes` are in the converted image. Pixels are those of the upright image if that has the stated size,
    /// otherwise those of the stored image.
    ///
    /// # Errors
    ///
    /// Rejects an image that does not have the stated size, or whose size is not stated although it is turned.
    pub fn place_boxes(&self, boxes: &[PixelBox], units: BoxUnits) -> Result<PlacedBoxes, Reject> {
        let upright = self.plan.source;
        let is_turned = self.orientation != Orientation::Upright;
        let mut placed = PlacedBoxes::default();
        let (scale, turn) = match units {
            BoxUnits::Fractions => (upright, Orientation::Upright),
            BoxUnits::UprightPixels => {
                placed.is_ambiguous = is_turned;
                (Size::new(1, 1), Orientation::Upright)
            }
            BoxUnits::Pixels(Some(size)) if size == (upright.width, upright.height) => {
                placed.is_ambiguous = is_turned && self.stored == upright;
                (Size::new(1, 1), Orientation::Upright)
            }
            BoxUnits::Pixels(Some(size)) if size == (self.stored.width, self.stored.height) => {
                (Size::new(1, 1), self.orientation)
            }
            BoxUnits::Pixels(None) if !is_turned => (Size::new(1, 1), Orientation::Upright),
            BoxUnits::Pixels(size) => return Err(self.other_size(size)),
        };
        for (at, corners) in boxes.iter().enumerate() {
            let [left, top, right, bottom] = corners.map(f64::from);
            if !(left < right && top < bottom && corners.iter().all(|number| number.is_finite())) {
                placed.invalid += 1;
                continue;
            }
            let (width, height) = (f64::from(scale.width), f64::from(scale.height));
            let scaled = [left * width, top * height, right * width, bottom * height];
            match self.seen(turned(scaled, self.stored, turn)) {
                Some(corners) => placed.kept.push((at, corners)),
                None => placed.outside += 1,
            }
        }
        Ok(placed)
    }

    /// Returns the part of a box of the upright image that is seen in the converted image; `None` if nothing of it is.
    fn seen(&self, [left, top, right, bottom]: [f64; 4]) -> Option<PixelBox> {
        let plan = &self.plan;
        let along = |at: f64, [source, resized, start, kept, canvas]: [u32; 5]| {
            let at = at * (f64::from(resized) / f64::from(source)) - f64::from(start);
            at.clamp(0.0, kept.into()) + f64::from((canvas - kept) / 2)
        };
        let across =
            [plan.source.width, plan.resized.width, plan.crop.left, plan.crop.size.width, plan.canvas.width];
        let down = [
            plan.source.height,
            plan.resized.height,
            plan.crop.top,
            plan.crop.size.height,
            plan.canvas.height,
        ];
        let corners = [along(left, across), along(top, down), along(right, across), along(bottom, down)];
        let [left, top, right, bottom] = corners.map(|number| number as f32);
        (left < right && top < bottom).then_some([left, top, right, bottom])
    }

    fn other_size(&self, size: Option<(u32, u32)>) -> Reject {
        let (stored, upright) = (self.stored, self.plan.source);
        let image = match stored == upright {
            true => format!("the image has {}×{} pixels", stored.width, stored.height),
            false => format!(
                "the image has {}×{} pixels, {}×{} when it is upright",
                stored.width, stored.height, upright.width, upright.height
            ),
        };
        let message = match size {
            Some((width, height)) => format!("its annotations are for {width}×{height} pixels, but {image}"),
            None => format!(
                "{image} and an orientation, and its annotations have no size, so the direction of the boxes is not known"
            ),
        };
        Reject::new(RejectCode::AnnotationMismatch, message)
    }
}

/// Returns a box of the pixels stored with `size` in the image that `orientation` turns upright.
fn turned(
    [mut left, mut top, mut right, mut bottom]: [f64; 4],
    size: Size,
    orientation: Orientation,
) -> [f64; 4] {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let (mirrors_columns, mirrors_rows) = orientation.mirrors();
    if mirrors_columns {
        (left, right) = (width - right, width - left);
    }
    if mirrors_rows {
        (top, bottom) = (height - bottom, height - top);
    }
    if orientation.transposes() { [top, left, bottom, right] } else { [left, top, right, bottom] }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::{Rect, SizePlan};
    use super::super::option_values::{Crop, Pad, Resize, Rgb};
    use super::super::options::ImageOptions;
    use super::super::pixels::{self, Pixels};
    use super::*;

    fn geometry(options: &ImageOptions, stored: Size, orientation: Orientation) -> Geometry {
        let source = if orientation.transposes() { stored.transposed() } else { stored };
        Geometry { plan: SizePlan::new(options, source), stored, orientation }
    }

    const ORIENTATIONS: [Orientation; 8] = [
        Orientation::Upright,
        Orientation::FlipHorizontal,
        Orientation::Rotate180,
        Orientation::FlipVertical,
        Orientation::Transpose,
        Orientation::Rotate90,
        Orientation::Transverse,
        Orientation::Rotate270,
    ];

    /// A box is turned like the pixels inside it.
    #[test]
    fn boxes_are_turned_like_pixels() {
        let (size, one) = (Size::new(7, 5), [1.0f32, 2.0, 3.0, 5.0]);
        for orientation in ORIENTATIONS {
            let is_in = |x: u32, y: u32| (1..3).contains(&x) && (2..5).contains(&y);
            let data = (0..5).flat_map(|y| (0..7).map(move |x| u8::from(is_in(x, y)))).collect();
            let before = Pixels { width: 7, height: 5, channels: 1, data };
            let mut after = Pixels::default();
            pixels::orient(&before, orientation, &mut after);
            let width = after.width as usize;
            let lit: Vec<usize> = (0..after.data.len()).filter(|&at| after.data[at] == 1).collect();
            let (xs, ys) = (|| lit.iter().map(|at| at % width), || lit.iter().map(|at| at / width));
            let expected = [xs().min(), ys().min(), xs().max().map(|x| x + 1), ys().max().map(|y| y + 1)];
            let expected = expected.map(|number| number.unwrap() as f32);
            let geometry = geometry(&ImageOptions::default(), size, orientation);
            let placed = geometry.place_boxes(&[one], BoxUnits::Pixels(Some((7, 5)))).unwrap();
            let is_kept = placed.is_ambiguous;
            assert_eq!(is_kept, !orientation.transposes() && orientation != Orientation::Upright);
            assert_eq!(placed.kept, [(0, if is_kept { one } else { expected })], "{orientation:?}");
            // Annotations of the upright image.
            let upright = (geometry.plan.source.width, geometry.plan.source.height);
            let placed = geometry.place_boxes(&[one], BoxUnits::Pixels(Some(upright))).unwrap();
            assert_eq!(placed.kept, [(0, one)]);
        }
    }

    #[test]
    fn boxes_are_resized_cropped_padded_and_counted() {
        let options = ImageOptions {
            resize: Resize::Exact(50, 40),
            crop: Some(Crop { width: 30, height: 40 }),
            pad: Some(Pad { width: 34, height: 50, color: Rgb::BLACK }),
            ..ImageOptions::default()
        };
        let geometry = geometry(&options, Size::new(100, 80), Orientation::Upright);
        assert_eq!(geometry.plan.crop, Rect { left: 10, top: 0, size: Size::new(30, 40) });
        let boxes = [
            [30.0, 10.0, 50.0, 30.0],
            // Cut off on the left and at the bottom.
            [0.0, 70.0, 40.0, 99.0],
            // Outside: in the part that is cut off, at its edge, and beyond the image.
            [0.0, 0.0, 15.0, 80.0],
            [80.0, 0.0, 90.0, 9.0],
            [30.0, -5.0, 50.0, 0.0],
            // Without an area, or not finite.
            [5.0, 5.0, 5.0, 9.0],
            [9.0, 5.0, 5.0, 9.0],
            [f32::NAN, 5.0, 5.0, 9.0],
            [0.0, 0.0, f32::INFINITY, 9.0],
        ];
        let placed = geometry.place_boxes(&boxes, BoxUnits::Pixels(Some((100, 80)))).unwrap();
        assert_eq!(placed.kept, [(0, [7.0, 10.0, 17.0, 20.0]), (1, [2.0, 40.0, 12.0, 45.0])]);
        assert_eq!((placed.outside, placed.invalid, placed.is_ambiguous), (3, 4, false));
        let fractions = geometry.place_boxes(&[[0.3, 0.125, 0.5, 0.375]], BoxUnits::Fractions).unwrap();
        let [left, top, right, bottom] = fractions.kept[0].1;
        assert!((left - 7.0).abs() < 1e-5 && (right - 17.0).abs() < 1e-5 && (top, bottom) == (10.0, 20.0));
    }

    #[test]
    fn annotations_of_another_size_are_rejected() {
        let turned = geometry(&ImageOptions::default(), Size::new(40, 30), Orientation::Rotate90);
        let of = |size| turned.place_boxes(&[], BoxUnits::Pixels(size));
        assert!(of(Some((40, 30))).is_ok() && of(Some((30, 40))).is_ok());
        for (size, what) in
            [(Some((40, 31)), "for 40×31 pixels, but the image has 40×30"), (None, "have no size")]
        {
            let reject = of(size).unwrap_err();
            assert!(
                reject.code == RejectCode::AnnotationMismatch && reject.message.contains(what),
                "{reject:?}"
            );
        }
        let plain = geometry(&ImageOptions::default(), Size::new(40, 30), Orientation::Upright);
        assert!(plain.place_boxes(&[], BoxUnits::Pixels(None)).is_ok());
        assert!(plain.place_boxes(&[], BoxUnits::Pixels(Some((30, 40)))).is_err());
    }
}
