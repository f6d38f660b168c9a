//! Tests of boxes in batches: they are cropped and flipped like their image.

use dsconvert_dataset::sample::{PixelBox, Record, Value, boxes, pack_box_numbers, pack_boxes};
use dsconvert_dataset::schema::{Field, FieldType, Schema};

use super::*;

const SIZE: (u32, u32) = (64, 48);

/// Returns the boxes of record `i`: bright rectangles that do not overlap. Every fourth record has none.
fn rectangles(i: u64) -> Option<Vec<PixelBox>> {
    let corner = |at: u64| [(at * 16 + i % 7) as f32, (at % 2 * 24 + i % 5) as f32];
    let rectangle = |at: u64| {
        let [left, top] = corner(at);
        [left, top, left + 8.0, top + 12.0]
    };
    (i % 4 != 3).then(|| (0..i % 4 + 2).map(rectangle).filter(|corners| corners[2] <= 64.0).collect())
}

/// Returns the pixels of record `i`: its rectangles have the values 40, 80, ….
fn pixels(i: u64) -> Vec<u8> {
    let rectangles = rectangles(i).unwrap_or_default();
    let value = |x: u32, y: u32| {
        let is_in = |&[left, top, right, bottom]: &PixelBox| {
            (left..right).contains(&(x as f32)) && (top..bottom).contains(&(y as f32))
        };
        rectangles.iter().position(is_in).map_or(0, |at| at as u8 * 40 + 40)
    };
    (0..SIZE.1).flat_map(|y| (0..SIZE.0).map(move |x| (x, y))).map(|(x, y)| value(x, y)).collect()
}

fn split(dir: &Path) -> Split {
    let extra = vec![
        Field::nullable("boxes", FieldType::Boxes),
        Field::nullable("labels", FieldType::BoxLabels),
        Field::nullable("iscrowd", FieldType::BoxInts),
    ];
    let mut schema = Schema::images(None, extra).unwrap();
    schema.class_names = (0..9).map(|class| class.to_string()).collect();
    testing::write_records(dir, Format::Arrow, schema, &[&[24]], |i| {
        let mut image = Vec::new();
        let mut encoder = png::Encoder::new(&mut image, SIZE.0, SIZE.1);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&pixels(i)).unwrap();
        let key = Value::Text(format!("{i}").as_str().into());
        let rectangles = rectangles(i);
        let list = |bytes: Option<bytes::Bytes>| bytes.map_or(Value::Null, Value::Bytes);
        let count = rectangles.as_ref().map(|boxes| boxes.len() as i64);
        let values = vec![
            key.clone(),
            Value::Bytes(image.into()),
            Value::UInt(SIZE.0.into()),
            Value::UInt(SIZE.1.into()),
            key,
            list(rectangles.map(pack_boxes)),
            list(count.map(|count| pack_box_numbers(0..count))),
            list(count.map(|count| pack_box_numbers((0..count).map(|at| -at)))),
        ];
        Record { values }
    })
    .unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

/// Returns the smallest box around the pixels near `corners` that are close to `value`. Edges of other boxes may be, too.
fn around(image: &[u8], width: usize, value: u8, corners: &[f32]) -> Option<[f32; 4]> {
    let is_near = |&at: &usize| {
        let (x, y) = ((at % width) as f32, (at / width) as f32);
        (corners[0] - 4.0..corners[2] + 4.0).contains(&x) && (corners[1] - 4.0..corners[3] + 4.0).contains(&y)
    };
    let is_close = |&at: &usize| image[at].abs_diff(value) <= 19;
    let all: Vec<usize> = (0..image.len()).filter(is_near).filter(is_close).collect();
    let (xs, ys) = (|| all.iter().map(|at| at % width), || all.iter().map(|at| at / width));
    let found = [xs().min()?, ys().min()?, xs().max()? + 1, ys().max()? + 1];
    Some(found.map(|corner| corner as f32))
}

#[test]
fn boxes_align_with_their_images_for_every_crop() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path());
    for crop in [Crop::None, Crop::center(20, 30), Crop::center(96, 128), Crop::random_resized(96, 128)] {
        let image =
            ImageBatchOptions { crop, hflip: 0.5, channels: Channels::Gray, ..ImageBatchOptions::default() };
        let (mut compared, mut mirrored, mut dropped) = (0, 0, 0);
        let options = LoaderOptions { image, ..batches_of(5) };
        for batch in all(&mut Loader::new(split.clone(), options).unwrap()) {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["image", "boxes", "labels", "iscrowd"]);
            let lists = ["boxes", "labels", "iscrowd"].map(|name| match batch.get(name) {
                Some(Column::Arrays(lists)) => lists,
                other => panic!("{other:?}"),
            });
            let images = batch.array("image").unwrap();
            let (height, width) = (images.shape()[1], images.shape()[2]);
            for (row, &ordinal) in batch.records().iter().enumerate() {
                let [found, labels, crowds] = lists.map(|list| list[row].as_ref());
                let Some(rectangles) = rectangles(ordinal) else {
                    assert!(found.is_none() && labels.is_none() && crowds.is_none());
                    continue;
                };
                let (found, labels, crowds) = (found.unwrap(), labels.unwrap(), crowds.unwrap());
                assert_eq!(found.shape(), [labels.len(), 4]);
                let labels = labels.as_slice::<i64>().unwrap();
                let negative: Vec<i64> = labels.iter().map(|label| -label).collect();
                assert_eq!(crowds.as_slice::<i64>(), Some(&negative[..]));
                dropped += rectangles.len() - labels.len();
                let image = &images.as_slice::<u8>().unwrap()[row * height * width..][..height * width];
                for (corners, label) in found.as_slice::<f32>().unwrap().chunks(4).zip(labels) {
                    let seen = around(image, width, *label as u8 * 40 + 40, corners);
                    let Some(seen) = seen else {
                        // Too thin to be seen, or mixed with black.
                        assert!(
                            corners[2] - corners[0] < 2.0 || corners[3] - corners[1] < 2.0,
                            "{corners:?}"
                        );
                        continue;
                    };
                    let is_whole = [0, 1].iter().all(|&at| corners[at + 2] - corners[at] > 4.0);
                    for (number, seen) in corners.iter().zip(seen).filter(|_| is_whole) {
                        let most = if matches!(crop, Crop::None) { 0.0 } else { 4.0 };
                        assert!((number - seen).abs() <= most, "{crop:?}: {corners:?} {seen:?}");
                        compared += 1;
                    }
                    let before = rectangles[*label as usize];
                    mirrored += usize::from(matches!(crop, Crop::None) && corners[0] != before[0]);
                }
            }
        }
        assert!(compared > 60, "{crop:?}: {compared}");
        assert_eq!(mirrored > 5, matches!(crop, Crop::None), "{crop:?}: {mirrored}");
        // The image is smaller than the second crop, which shows all of it.
        let is_all = matches!(crop, Crop::None | Crop::Center { height: 96, .. });
        assert_eq!(dropped == 0, is_all, "{crop:?}: {dropped}");
    }
}

#[test]
fn boxes_of_images_that_are_not_decoded_are_as_stored() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path());
    let image = ImageBatchOptions { decode: false, ..ImageBatchOptions::default() };
    let options = LoaderOptions { image, ..batches_of(5) };
    for batch in all(&mut Loader::new(split.clone(), options).unwrap()) {
        let Some(Column::Arrays(lists)) = batch.get("boxes") else { panic!("no boxes") };
        for (list, &ordinal) in lists.iter().zip(batch.records()) {
            let expected = rectangles(ordinal).map(|boxes| boxes.into_iter().flatten().collect::<Vec<_>>());
            assert_eq!(list.as_ref().map(|list| list.as_slice::<f32>().unwrap().to_vec()), expected);
        }
    }
    let record = split.get(0).unwrap();
    assert_eq!(boxes(record.bytes("boxes").unwrap()).collect::<Vec<_>>(), rectangles(0).unwrap());
}

#[test]
fn classes_are_not_cropped_without_their_boxes() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path()).select(&["image", "width", "height", "labels"]).unwrap();
    let image = ImageBatchOptions { crop: Crop::center(20, 30), ..ImageBatchOptions::default() };
    let mut loader = Loader::new(split, LoaderOptions { image, ..batches_of(5) }).unwrap();
    let error = loader.next_batch().unwrap_err();
    assert!(error.to_string().contains("boxes of the record are not selected"), "{error}");
}
