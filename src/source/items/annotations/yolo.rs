//! Labels of YOLO: a folder of text files, one per image, with a box per line as fractions of the image.

use std::path::Path;

use super::yolo_configuration::{KeypointShape, LISTS};
use crate::sample::{Reject, RejectCode};
use crate::source::io::encoding::{to_utf8, without_bom};
use crate::source::list::boxes::{BoxExtras, BoxList, ImageBoxes};

/// Range of the numbers that are fractions, as Ultralytics tolerates them.
const FRACTIONS: std::ops::RangeInclusive<f64> = -0.01..=1.01;

/// The labels of an image.
#[derive(Debug)]
pub(super) struct YoloImage {
    pub(super) boxes: ImageBoxes,
    pub(super) polygons: PolygonLines,
}

/// Lines that are read as polygons.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PolygonLines {
    pub(super) lines: u64,
    /// Number of lines that could be a box with keypoints inside it.
    pub(super) like_keypoints: u64,
    /// The fewest and the most numbers of a line.
    pub(super) numbers: Option<(usize, usize)>,
}

impl PolygonLines {
    fn push(&mut self, numbers: &[f64]) {
        self.add(Self {
            lines: 1,
            like_keypoints: u64::from(are_like_keypoints(numbers)),
            numbers: Some((numbers.len(), numbers.len())),
        });
    }

    pub(super) fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.like_keypoints += other.like_keypoints;
        self.numbers = match (self.numbers, other.numbers) {
            (Some((least, most)), Some((fewest, largest))) => Some((least.min(fewest), most.max(largest))),
            (one, other) => one.or(other),
        };
    }

    /// Returns whether all lines have as many numbers, and could be boxes with keypoints.
    pub(super) fn are_like_keypoints(&self) -> bool {
        self.lines > 0
            && self.lines == self.like_keypoints
            && self.numbers.is_some_and(|(least, most)| least == most)
    }
}

/// Parses the labels of an image, whose classes are numbers below `classes`. With `keypoints`, each line has this many after
/// its box.
pub(super) fn parse(
    bytes: Vec<u8>,
    classes: usize,
    keypoints: Option<KeypointShape>,
) -> Result<YoloImage, Reject> {
    let text = to_utf8(bytes, None)?;
    let text = std::str::from_utf8(without_bom(&text)).map_err(|e| Reject::not_utf8("its labels", &e))?;
    let (mut list, mut extras) = (BoxList::default(), BoxExtras::default());
    let mut polygons = PolygonLines::default();
    for (number, line) in (1..).zip(text.lines()) {
        let invalid = |code, what: String| Reject::new(code, format!("line {number} of its labels {what}"));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some((class, rest)) = words.split_first() else { continue };
        let value = |(at, word): (usize, &&str)| {
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
            // The visibility of a keypoint is not a fraction.
            let is_free = keypoints.is_some_and(|shape| shape.is_visibility(at));
            let number = number.filter(|number| is_free || FRACTIONS.contains(number));
            number.ok_or_else(|| {
                invalid(RejectCode::InvalidValue, format!("has {word:?}, not a fraction of the image"))
            })
        };
        let numbers = rest.iter().enumerate().map(value).collect::<Result<Vec<f64>, Reject>>()?;
        let of_keypoints = keypoints.map_or(0, KeypointShape::numbers);
        // After a box, there may be keypoints and a confidence.
        let has_keypoints = of_keypoints > 0 && numbers.len() >= 4 + of_keypoints;
        let box_numbers = numbers.len() - if has_keypoints { of_keypoints } else { 0 };
        let corners = match numbers[..] {
            [x, y, width, height, ..] if box_numbers <= 5 => {
                extras.confidences += u64::from(box_numbers == 5);
                extras.keypoints += u64::from(has_keypoints);
                [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
            }
            // A polygon: the box around it. In predictions, a confidence follows.
            [_, _, _, _, _, _, ..]
                if of_keypoints == 0
                    && (numbers.len().is_multiple_of(2) || !are_like_keypoints(&numbers)) =>
            {
                let points = &numbers[..numbers.len() & !1];
                extras.confidences += u64::from(points.len() < numbers.len());
                polygons.push(points);
                around(points)
            }
            _ => {
                let expected = match keypoints {
                    None => {
                        "x, y, width and height, or the points of a polygon; keypoints after a box need kpt_shape in data.yaml"
                            .to_owned()
                    }
                    Some(_) => {
                        format!("x, y, width and height, and then {of_keypoints} of keypoints, as kpt_shape in data.yaml says")
                    }
                };
                let what = format!("has {} numbers; expected the class, and {expected}", words.len());
                return Err(invalid(RejectCode::InvalidValue, what));
            }
        };
        // Some programs write classes as 0.0.
        let class_number = class.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && *number >= 0.0);
        let class_number = class_number.ok_or_else(|| {
            invalid(RejectCode::InvalidValue, format!("has the class {class:?}, which is not a number"))
        })?;
        if class_number >= classes as f64 {
            let what = format!("has the class {class}, but there are {classes} classes, numbered from 0");
            return Err(invalid(RejectCode::UnknownLabel, what));
        }
        list.push(corners.map(|number| number as f32), class_number as u32, 0);
    }
    extras.polygons = polygons.lines;
    Ok(YoloImage { boxes: ImageBoxes::fractions(list, extras), polygons })
}

/// Returns the box around points.
fn around(points: &[f64]) -> [f64; 4] {
    let (xs, ys) = (|| points.iter().step_by(2), || points.iter().skip(1).step_by(2));
    let least = |numbers: &mut dyn Iterator<Item = &f64>| numbers.fold(f64::INFINITY, |a, &b| a.min(b));
    let most = |numbers: &mut dyn Iterator<Item = &f64>| numbers.fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    [least(&mut xs()), least(&mut ys()), most(&mut xs()), most(&mut ys())]
}

/// Returns whether the numbers of a polygon could be a box and keypoints inside it, of two numbers or, with the visibility, of
/// three. Those that are not seen are 0.
fn are_like_keypoints(numbers: &[f64]) -> bool {
    let &[x, y, width, height, ref points @ ..] = numbers else { return false };
    let is_in = |at: f64, middle: f64, side: f64| (at - middle).abs() <= side / 2.0 + 0.01;
    let are_inside = |dimensions: usize| {
        points.len().is_multiple_of(dimensions)
            && points.chunks_exact(dimensions).all(|point| match point {
                [left, top, ..] => {
                    (*left, *top) == (0.0, 0.0) || (is_in(*left, x, width) && is_in(*top, y, height))
                }
                _ => false,
            })
    };
    are_inside(2) || are_inside(3)
}

/// Returns whether a file that belongs to no image looks like labels: it is empty, or its first line is one of numbers.
pub(super) fn looks_like_labels(name: &str, bytes: &[u8]) -> bool {
    let file = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(without_bom(bytes)) else { return false };
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words = || first.split_ascii_whitespace();
    let are_numbers = words().count() >= 5 && words().all(|word| word.parse::<f64>().is_ok());
    !LISTS.contains(&file) && (first.is_empty() || are_numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_boxes_or_polygons() {
        let of = |text: &str| parse(text.as_bytes().to_vec(), 3, None).map(|image| image.boxes);
        let found = of("0 0.5 0.5 0.25 0.5\n\n2.0 0.1 0.2 0.3 0.1 0.2 0.4\r\n").unwrap();
        assert_eq!(found.list.boxes, [[0.375, 0.25, 0.625, 0.75], [0.1, 0.1, 0.3, 0.4]]);
        assert_eq!((found.list.labels, found.extras.polygons), (vec![0, 2], 1));
        assert_eq!(of("").unwrap().list, BoxList::default());
        for (text, code, what) in [
            ("0 0.5 0.5 0.25", RejectCode::InvalidValue, "has 4 numbers"),
            ("0 0.5 0.5 0.25 0.5 0.5 0.6 1", RejectCode::InvalidValue, "need kpt_shape"),
            ("0 0.5 0.5 0.25 1.5", RejectCode::InvalidValue, "\"1.5\""),
            ("0 0.5 0.5 0.25 0.5\n0 0.5 -0.5 0.25 0.5", RejectCode::InvalidValue, "line 2"),
            ("0 nan 0.5 0.25 0.5", RejectCode::InvalidValue, "\"nan\""),
            ("cat 0.5 0.5 0.25 0.5", RejectCode::InvalidValue, "\"cat\""),
            ("-1 0.5 0.5 0.25 0.5", RejectCode::InvalidValue, "\"-1\""),
            ("3 0.5 0.5 0.25 0.5", RejectCode::UnknownLabel, "3 classes"),
        ] {
            let reject = of(text).unwrap_err();
            assert!(reject.code == code && reject.message.contains(what), "{text}: {reject:?}");
        }
    }

    #[test]
    fn tiny_excess_is_tolerated_and_a_sixth_number_is_a_confidence() {
        let of = |text: &str| parse(text.as_bytes().to_vec(), 3, None).map(|image| image.boxes);
        let found = of("0 -0.0000012 0.1 0.1 0.3 0.1 0.3 0.4 1.01\n1 0.5 0.5 0.25 0.5 0.87").unwrap();
        assert_eq!(found.list.boxes[1], [0.375, 0.25, 0.625, 0.75]);
        assert_eq!((found.list.boxes[0][0], found.list.boxes[0][3]), (-0.0000012, 1.01));
        assert_eq!((found.extras.polygons, found.extras.confidences), (1, 1));
        for text in ["0 -0.011 0.5 0.25 0.5", "0 0.5 0.5 0.25 1.011", "0 0.5 0.5 0.25 0.5 7"] {
            assert_eq!(of(text).unwrap_err().code, RejectCode::InvalidValue, "{text}");
        }
    }

    #[test]
    fn boxes_with_keypoints_are_columns_2_to_5() {
        let two = KeypointShape { points: 2, dimensions: 2 };
        let three = KeypointShape { points: 1, dimensions: 3 };
        let of = |text: &str, shape| parse(text.as_bytes().to_vec(), 3, Some(shape)).map(|image| image.boxes);
        for (text, shape, confidences) in [
            ("0 0.5 0.5 0.25 0.5 0.4 0.3 0 0", two, 0),
            ("0 0.5 0.5 0.25 0.5 0.4 0.3 0 0 0.9", two, 1),
            ("0 0.5 0.5 0.25 0.5 0.4 0.3 2", three, 0),
            ("0 0.5 0.5 0.25 0.5 0.4 0.3 2.000 0.9", three, 1),
        ] {
            let found = of(text, shape).unwrap();
            assert_eq!(found.list.boxes, [[0.375, 0.25, 0.625, 0.75]], "{text}");
            assert_eq!((found.extras.keypoints, found.extras.confidences), (1, confidences), "{text}");
        }
        let found = of("0 0.5 0.5 0.25 0.5\n0 0.5 0.5 0.25 0.5 1\n", two).unwrap();
        assert_eq!((found.list.boxes.len(), found.extras.keypoints, found.extras.confidences), (2, 0, 1));
        for (text, shape, what) in [
            ("0 0.5 0.5 0.25 0.5 0.4 0.3", two, "then 4 of keypoints"),
            ("0 0.5 0.5 0.25 0.5 0.4 1.3 0 0", two, "\"1.3\""),
            ("0 0.5 0.5 0.25 0.5 0.4 0.3 nan", three, "\"nan\""),
        ] {
            let reject = of(text, shape).unwrap_err();
            assert!(reject.message.contains(what), "{text}: {reject:?}");
        }
    }

    #[test]
    fn polygons_that_could_be_keypoints_are_noticed() {
        let of = |text: &str| parse(text.as_bytes().to_vec(), 3, None).unwrap().polygons.are_like_keypoints();
        let with_confidence =
            parse(b"0 -0.0000012 0.1 0.1 0.3 0.1 0.3 0.4 0.0 0.4".to_vec(), 3, None).unwrap();
        assert_eq!(with_confidence.boxes.list.boxes, [[-0.0000012, 0.0, 0.4, 0.3]]);
        assert_eq!(with_confidence.boxes.extras.confidences, 1);
        assert!(of("0 0.5 0.5 0.2 0.4 0.42 0.35 0 0\n1 0.3 0.3 0.2 0.2 0.3 0.3 0.25 0.25"));
        assert!(!of("0 0.5 0.5 0.2 0.4 0.42 0.35 0 0\n1 0.1 0.1 0.3 0.1 0.3 0.3 0.1 0.3"));
        assert!(!of("0 0.5 0.5 0.2 0.4") && !of(""));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_rejected(text in "([0-2. \n-]|nan|1e9){0,60}") {
            if let Ok(YoloImage { boxes: found, .. }) = parse(text.into_bytes(), 3, None) {
                prop_assert_eq!(found.list.boxes.len(), found.list.labels.len());
                prop_assert!(found.list.labels.iter().all(|&label| label < 3));
                prop_assert!(found.list.boxes.iter().flatten().all(|number| number.is_finite()));
            }
        }
    }
}
