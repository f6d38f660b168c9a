//! Boxes of a batch. They are cropped and mirrored with the images of their records.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::{PixelBox, Value, box_numbers, boxes};
use dsconvert_dataset::schema::FieldType;

use super::array::Array;
use super::augment::View;
use super::batch::{BlankRow, Column};
use super::image::ImageRows;
use super::options::Crop;
use crate::Record;

impl ImageRows<'_> {
    /// Returns the lists of a field of type `ty`. Rows whose image is `blank` have no boxes.
    pub(super) fn boxes(&self, ty: FieldType, blank: &[BlankRow]) -> Result<Column> {
        let mut lists = Vec::with_capacity(self.rows);
        for (row, record) in self.records.iter().enumerate() {
            let list = match record.values().get(self.field_index) {
                Some(Value::Bytes(list)) if blank.iter().all(|blank| blank.row != row) => list,
                _ => {
                    lists.push(None);
                    continue;
                }
            };
            let view = self.box_view(row, record)?;
            lists.push(Some(match (ty.is_boxes(), view) {
                (true, None) => box_array(boxes(list)),
                (true, Some(view)) => box_array(boxes(list).filter_map(|one| seen(one, &view))),
                (false, None) => number_array(box_numbers(list)),
                (false, Some(view)) => {
                    let of_record = self.boxes_of(record)?;
                    let is_seen = boxes(of_record).map(|one| seen(one, &view).is_some());
                    number_array(
                        box_numbers(list)
                            .zip(is_seen)
                            .filter_map(|(number, is_seen)| is_seen.then_some(number)),
                    )
                }
            }));
        }
        lists.resize_with(self.rows, || None);
        Ok(Column::Arrays(lists))
    }

    /// Returns the view of a record, or `None` if all of it is seen as it is stored.
    fn box_view(&self, row: usize, record: &Record) -> Result<Option<View>> {
        if self.options.crop == Crop::None && self.options.hflip == 0.0 {
            return Ok(None);
        }
        let (Some(width @ 1..), Some(height @ 1..)) = (record.width(), record.height()) else {
            return Err(Error::usage("the record has no width and height")
                .at_row(record.ordinal())
                .help("select the fields \"width\" and \"height\", too: boxes are cropped and mirrored with their image"));
        };
        let view = View::of(self.options, width, height, &mut self.random(row, record));
        Ok((view.mirrored || self.options.crop != Crop::None).then_some(view))
    }

    /// Returns the boxes of a record, which decide about what it has for each of them.
    fn boxes_of<'r>(&self, record: &'r Record) -> Result<&'r [u8]> {
        let field = self.source.schema().boxes_field();
        match field.and_then(|index| record.values().get(index)) {
            Some(Value::Bytes(boxes)) => Ok(boxes),
            _ => Err(Error::usage("the boxes of the record are not selected")
                .at_row(record.ordinal())
                .help("select the field of boxes, too: a crop decides which of them are left")),
        }
    }
}

/// Returns boxes as an array of `[n, 4]`.
fn box_array(boxes: impl Iterator<Item = PixelBox>) -> Array {
    let numbers: Vec<f32> = boxes.flatten().collect();
    Array::new(vec![numbers.len() / 4, 4], numbers, None)
}

/// Returns what each box has as an array.
fn number_array(numbers: impl Iterator<Item = i64>) -> Array {
    let numbers: Vec<i64> = numbers.collect();
    Array::new(vec![numbers.len()], numbers, None)
}

/// Returns the part of a box that is seen in `view`, in pixels of the result; `None` if nothing of it is seen. Without a
/// crop, every box is seen.
fn seen([left, top, right, bottom]: PixelBox, view: &View) -> Option<PixelBox> {
    let is_whole = |start: f64, taken: f64, out: u32| start == 0.0 && taken == f64::from(out);
    let is_all =
        is_whole(view.left, view.width, view.out_width) && is_whole(view.top, view.height, view.out_height);
    let along = |at: f32, start: f64, taken: f64, out: u32| match is_all {
        true => f64::from(at),
        false => ((f64::from(at) - start) * (f64::from(out) / taken)).clamp(0.0, out.into()),
    };
    let [x1, x2] = [left, right].map(|x| along(x, view.left, view.width, view.out_width));
    let [y1, y2] = [top, bottom].map(|y| along(y, view.top, view.height, view.out_height));
    let (x1, x2) = match view.mirrored {
        true => (f64::from(view.out_width) - x2, f64::from(view.out_width) - x1),
        false => (x1, x2),
    };
    (is_all || (x1 < x2 && y1 < y2)).then_some([x1, y1, x2, y2].map(|number| number as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(left: f64, width: f64, mirrored: bool) -> View {
        View { left, top: 5.0, width, height: 10.0, out_width: 20, out_height: 20, mirrored }
    }

    #[test]
    fn boxes_are_cut_scaled_and_mirrored_with_the_view() {
        assert_eq!(seen([12.0, 6.0, 14.0, 30.0], &view(10.0, 10.0, false)), Some([4.0, 2.0, 8.0, 20.0]));
        assert_eq!(seen([12.0, 6.0, 14.0, 30.0], &view(10.0, 10.0, true)), Some([12.0, 2.0, 16.0, 20.0]));
        assert_eq!(seen([2.0, 6.0, 10.0, 9.0], &view(10.0, 10.0, false)), None);
        assert_eq!(seen([12.0, 0.0, 14.0, 5.0], &view(10.0, 10.0, false)), None);
        let all = View {
            left: 0.0,
            top: 0.0,
            width: 20.0,
            height: 20.0,
            out_width: 20,
            out_height: 20,
            mirrored: true,
        };
        assert_eq!(seen([3.0, 4.0, 3.0, 25.0], &all), Some([17.0, 4.0, 17.0, 25.0]));
    }
}
