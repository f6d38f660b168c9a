//! Tests of masks and additional images in batches: they are cropped and flipped like their image.

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::sample::{Record, Value};
use dsconvert_dataset::schema::{Field, FieldType, Schema};

use super::*;

const SIZE: (u32, u32) = (64, 48);

fn png(color: png::ColorType, depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, SIZE.0, SIZE.1);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == png::ColorType::Indexed {
        encoder.set_palette(vec![0; 3 * 256]);
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    out
}

/// Returns the class of every pixel of record `i`: blocks of 16 × 16.
fn classes(i: u64) -> Vec<u8> {
    let class = |x: u32, y: u32| (x / 16 + y / 16 * 4 + i as u32) as u8 * 10;
    (0..SIZE.1).flat_map(|y| (0..SIZE.0).map(move |x| class(x, y))).collect()
}

/// Returns a split whose images show the classes in gray, with the masks `seg` (missing in every third record) and
/// `deep` (16 bits), and the image `twin`. The mask `seg` of record `broken` is truncated.
fn split(dir: &Path, broken: Option<u64>) -> Split {
    let extra = vec![
        Field::nullable("twin", FieldType::Image),
        Field::nullable("seg", FieldType::Mask),
        Field::nullable("deep", FieldType::Mask),
    ];
    let schema = Schema::images(Some(vec!["a".into()]), extra).unwrap();
    testing::write_records(dir, Format::Arrow, schema, &[&[12]], |i| {
        use png::{BitDepth, ColorType};
        let classes = classes(i);
        let image = png(ColorType::Grayscale, BitDepth::Eight, &classes);
        let mut seg = png(ColorType::Indexed, BitDepth::Eight, &classes);
        if broken == Some(i) {
            seg.truncate(seg.len() / 2);
        }
        let wide: Vec<u8> = classes.iter().flat_map(|c| (u16::from(*c) * 256 + 1).to_be_bytes()).collect();
        let key = Value::Text(format!("{i}").as_str().into());
        Record {
            values: vec![
                key.clone(),
                Value::Bytes(image.clone().into()),
                Value::UInt(SIZE.0.into()),
                Value::UInt(SIZE.1.into()),
                Value::Int(0),
                key,
                Value::Bytes(image.into()),
                if i % 3 == 2 { Value::Null } else { Value::Bytes(seg.into()) },
                Value::Bytes(png(ColorType::Grayscale, BitDepth::Sixteen, &wide).into()),
            ],
        }
    })
    .unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

fn with(image: ImageBatchOptions) -> LoaderOptions {
    LoaderOptions { image, ..batches_of(5) }
}

#[test]
fn masks_align_with_their_images_for_every_crop() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path(), None);
    for crop in [Crop::None, Crop::center(20, 30), Crop::center(96, 128), Crop::random_resized(24, 40)] {
        for layout in [ImageLayout::Hwc, ImageLayout::Chw] {
            let image = ImageBatchOptions {
                crop,
                hflip: 0.5,
                channels: Channels::Gray,
                layout,
                ..ImageBatchOptions::default()
            };
            let mut compared = 0;
            for batch in all(&mut Loader::new(split.clone(), with(image)).unwrap()) {
                let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
                let expected =
                    ["image", "twin", "twin.valid", "seg", "seg.valid", "deep", "deep.valid", "label"];
                assert_eq!(names, expected);
                let array = |name| batch.array(name).unwrap();
                let images = array("image").as_slice::<u8>().unwrap();
                assert_eq!(array("twin").as_slice::<u8>().unwrap(), images);
                let seg = array("seg").as_slice::<u8>().unwrap();
                let deep = array("deep").as_slice::<i32>().unwrap();
                let shape = array("seg").shape();
                let (height, width) = (shape[1], shape[2]);
                assert_eq!((shape.len(), array("deep").shape()), (3, shape));
                let valid = array("seg.valid").as_slice::<bool>().unwrap();
                for (row, &ordinal) in batch.records().iter().enumerate() {
                    assert_eq!(valid[row], ordinal % 3 != 2);
                    let area = height * width;
                    let [image, mask] = [images, seg].map(|pixels| &pixels[row * area..][..area]);
                    let known = classes(ordinal);
                    for at in 0..area {
                        let (x, y) = (at % width, at / width);
                        let expected = if valid[row] { mask[at] } else { 0 };
                        assert_eq!(mask[at], expected);
                        assert!(!valid[row] || known.contains(&mask[at]), "values are not interpolated");
                        let value = (deep[row * area + at] / 256) as u8;
                        assert!(known.contains(&value) && (!valid[row] || value == mask[at]));
                        let inside = (3..width - 3).contains(&x) && (3..height - 3).contains(&y);
                        let is_even = |other: usize| deep[row * area + other] == deep[row * area + at];
                        if inside && [at - 3, at + 3, at - 3 * width, at + 3 * width].into_iter().all(is_even)
                        {
                            compared += 1;
                            assert!(
                                value.abs_diff(image[at]) <= 4,
                                "{crop:?} {x},{y}: {value} {}",
                                image[at]
                            );
                        }
                    }
                }
            }
            assert!(compared > 1000, "{compared}");
        }
    }
}

#[test]
fn masks_that_do_not_decode_are_errors_or_blank_rows() {
    let dir = tempfile::tempdir().unwrap();
    let split = split(dir.path(), Some(4));
    let options = with(ImageBatchOptions { undecodable: Undecodable::Blank, ..ImageBatchOptions::default() });
    let mut blank = Vec::new();
    for batch in all(&mut Loader::new(split.clone(), options).unwrap()) {
        let valid = batch.array("valid").unwrap().as_slice::<bool>().unwrap();
        for row in batch.blank_rows() {
            assert!(!valid[row.row]);
            blank.push(row.record);
            assert!(row.error.to_string().contains("the field \"seg\" of record 4"), "{}", row.error);
        }
    }
    assert_eq!(blank, [4]);
    let results: Vec<_> = Loader::new(split.clone(), with(ImageBatchOptions::default())).unwrap().collect();
    let errors: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert_eq!(errors.iter().map(|e| e.kind()).collect::<Vec<_>>(), [ErrorKind::Corrupt]);
    // Without decoding, masks are lists of files.
    let stored = LoaderOptions { fields: Some(vec!["seg".to_owned()]), ..with(ImageBatchOptions::default()) };
    let stored = LoaderOptions {
        image: ImageBatchOptions { decode: false, ..ImageBatchOptions::default() },
        ..stored
    };
    let batch = Loader::new(split, stored).unwrap().next_batch().unwrap().unwrap();
    assert!(batch.array("seg").is_none());
}

/// Every second record has a second image; each has a size of its own.
#[test]
fn additional_images_of_other_sizes_are_batched_after_a_crop() {
    let dir = tempfile::tempdir().unwrap();
    let gray = |(width, height): (u32, u32), value: u8| {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, width, height);
        encoder.set_color(png::ColorType::Grayscale);
        let data = vec![value; (width * height) as usize];
        encoder.write_header().unwrap().write_image_data(&data).unwrap();
        Value::Bytes(out.into())
    };
    let schema = Schema::images(None, vec![Field::nullable("right", FieldType::Image)]).unwrap();
    testing::write_records(dir.path(), Format::Arrow, schema, &[&[8]], |i| {
        let key = Value::Text(format!("{i}").as_str().into());
        let right = if i % 2 == 0 { Value::Null } else { gray((9 + i as u32, 30), i as u8 + 100) };
        let image = gray(SIZE, i as u8);
        Record {
            values: vec![
                key.clone(),
                image,
                Value::UInt(SIZE.0.into()),
                Value::UInt(SIZE.1.into()),
                key,
                right,
            ],
        }
    })
    .unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    for crop in [Crop::center(8, 6), Crop::random_resized(8, 6)] {
        let image =
            ImageBatchOptions { crop, hflip: 0.5, channels: Channels::Gray, ..ImageBatchOptions::default() };
        let mut records = 0;
        for batch in all(&mut Loader::new(split.clone(), with(image)).unwrap()) {
            let pixels = |name| batch.array(name).unwrap().as_slice::<u8>().unwrap().chunks_exact(48);
            for ((image, right), &ordinal) in pixels("image").zip(pixels("right")).zip(batch.records()) {
                let expected = if ordinal % 2 == 0 { 0 } else { ordinal as u8 + 100 };
                assert!(image.iter().all(|&v| v == ordinal as u8) && right.iter().all(|&v| v == expected));
                records += 1;
            }
        }
        assert_eq!(records, 8);
    }
    // Whole images need one size per batch and field.
    let whole = |records| LoaderOptions { image: ImageBatchOptions::default(), ..batches_of(records) };
    let results: Vec<_> = Loader::new(split.clone(), whole(8)).unwrap().collect();
    let error = results.into_iter().find_map(Result::err).unwrap();
    let message = format!("{error} {}", error.remedy().unwrap_or_default());
    assert!(message.contains("the field \"right\" has") && message.contains("leave it out"), "{message}");
    let fields = Some(vec!["image".to_owned()]);
    assert_eq!(all(&mut Loader::new(split.clone(), LoaderOptions { fields, ..whole(8) }).unwrap()).len(), 1);
    for batch in all(&mut Loader::new(split, whole(1)).unwrap()) {
        let ordinal = batch.records()[0] as usize;
        let expected = if ordinal.is_multiple_of(2) { [1, 48, 64, 3] } else { [1, 30, 9 + ordinal, 3] };
        assert_eq!(batch.array("right").unwrap().shape(), expected);
    }
}
