//! Tests of images in batches.

use std::sync::{Mutex, PoisonError};

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::sample::{Record, Value};
use dsconvert_dataset::schema::Schema;
use libjpeg_turbo_rs::{Encoder, PixelFormat};
use proptest::prelude::*;
use proptest::sample::Index;

use super::failures::alter;
use super::*;

fn pixels(i: u64, width: u32, height: u32, channels: u32) -> Vec<u8> {
    (0..width * height * channels).map(|n| (u64::from(n / channels / 8) * (i + 3) % 251) as u8).collect()
}

/// Returns the size of image `i`.
fn size(i: u64, equal: bool) -> (u32, u32) {
    if equal { (40, 30) } else { (30 + (i * 7 % 40) as u32, 20 + (i * 11 % 50) as u32) }
}

/// Returns a split of `count` photographs, every fourth of them gray. Image `broken` is truncated.
fn photos(dir: &Path, count: u64, equal: bool, broken: Option<u64>) -> Split {
    photos_in(dir, Format::Arrow, count, equal, broken)
}

fn photos_in(dir: &Path, format: Format, count: u64, equal: bool, broken: Option<u64>) -> Split {
    let schema = Schema::images(Some(vec!["a".into(), "b".into()]), vec![]).unwrap();
    testing::write_records(dir, format, schema, &[&[count]], |i| {
        let (width, height) = size(i, equal);
        let (format, channels) = if i % 4 == 3 { (PixelFormat::Grayscale, 1) } else { (PixelFormat::Rgb, 3) };
        let pixels = pixels(i, width, height, channels);
        let mut file =
            Encoder::new(&pixels, width as usize, height as usize, format).quality(90).encode().unwrap();
        if broken == Some(i) {
            file.truncate(file.len() / 2);
        }
        let key = format!("photo-{i}");
        Record {
            values: vec![
                Value::Text(key.as_str().into()),
                Value::Bytes(file.into()),
                Value::UInt(width.into()),
                Value::UInt(height.into()),
                Value::Int((i % 2) as i64),
                Value::Text(key.as_str().into()),
            ],
        }
    })
    .unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

/// Decodes the image of a record to RGB with libjpeg-turbo.
fn decoded(split: &Split, ordinal: u64) -> (usize, usize, Vec<u8>) {
    let record = split.get(ordinal).unwrap();
    let image = libjpeg_turbo_rs::Decoder::decode_to(record.image().unwrap(), PixelFormat::Rgb).unwrap();
    (image.width, image.height, image.into_vec())
}

fn with(image: ImageBatchOptions) -> LoaderOptions {
    LoaderOptions { image, ..batches_of(6) }
}

#[test]
fn sizes_of_records_never_overflow() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 4, true, None);
    let schema = std::sync::Arc::new(split.schema().clone());
    for (width, height) in [(u32::MAX, u32::MAX), (1 << 31, 1 << 31), (1 << 16, 1 << 31)] {
        let mut values = split.get(0).unwrap().into_inner().values;
        (values[2], values[3]) = (Value::UInt(width.into()), Value::UInt(height.into()));
        let record = crate::Record::new(std::sync::Arc::clone(&schema), 0, values);
        let error = decode_image(&split, &record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
}

#[test]
fn center_crops_match_a_whole_decode() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 20, false, None);
    let (h, w) = (18, 26);
    for layout in [ImageLayout::Hwc, ImageLayout::Chw] {
        let image = ImageBatchOptions { crop: Crop::center(h, w), layout, ..ImageBatchOptions::default() };
        let mut seen = 0;
        for batch in all(&mut Loader::new(split.clone(), with(image)).unwrap()) {
            let (h, w) = (h as usize, w as usize);
            let images = batch.array("image").unwrap();
            let expected_shape = match layout {
                ImageLayout::Hwc => vec![batch.rows(), h, w, 3],
                ImageLayout::Chw => vec![batch.rows(), 3, h, w],
            };
            assert_eq!(images.shape(), expected_shape);
            let labels = batch.array("label").unwrap().as_slice::<i64>().unwrap();
            for (row, &ordinal) in batch.records().iter().enumerate() {
                let (width, height, whole) = decoded(&split, ordinal);
                let (left, top) = ((width - w) / 2, (height - h) / 2);
                let found = &images.as_slice::<u8>().unwrap()[row * h * w * 3..][..h * w * 3];
                for (n, (y, x, c)) in
                    (0..h).flat_map(|y| (0..w).flat_map(move |x| (0..3).map(move |c| (y, x, c)))).enumerate()
                {
                    let at = match layout {
                        ImageLayout::Hwc => n,
                        ImageLayout::Chw => (c * h + y) * w + x,
                    };
                    assert_eq!(found[at], whole[((top + y) * width + left + x) * 3 + c]);
                }
                assert_eq!(labels[row], (ordinal % 2) as i64);
                seen += 1;
            }
        }
        assert_eq!(seen, 20);
    }
}

#[test]
fn random_crops_depend_on_seed_epoch_and_record_only() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 16, false, None);
    let image =
        ImageBatchOptions { crop: Crop::random_resized(12, 9), hflip: 0.5, ..ImageBatchOptions::default() };
    let by_record = |threads, batch_size, seed, epoch| {
        let options = LoaderOptions { threads, seed, ..with(image.clone()) };
        let batching = BatchOptions::new(BatchSize::BatchSize(batch_size)).into();
        let mut loader = Loader::new(split.clone(), LoaderOptions { batching, ..options }).unwrap();
        loader.set_epoch(epoch).unwrap();
        let mut images = vec![Vec::new(); 16];
        for batch in all(&mut loader) {
            let pixels = batch.array("image").unwrap().as_slice::<u8>().unwrap();
            for (&record, image) in batch.records().iter().zip(pixels.chunks(12 * 9 * 3)) {
                images[record as usize] = image.to_vec();
            }
        }
        images
    };
    let first = by_record(0, 16, 1, 0);
    assert_eq!(first, by_record(3, 5, 1, 0));
    assert_ne!(first, by_record(3, 5, 1, 1));
    assert_ne!(first, by_record(3, 5, 2, 0));
}

#[test]
fn hflip_mirrors_images() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 6, true, None);
    let pixels = |hflip| {
        let image = ImageBatchOptions { hflip, ..ImageBatchOptions::default() };
        let batch = Loader::new(split.clone(), with(image)).unwrap().next_batch().unwrap().unwrap();
        assert_eq!(batch.array("image").unwrap().shape(), [6, 30, 40, 3]);
        batch.array("image").unwrap().as_slice::<u8>().unwrap().to_vec()
    };
    let mut mirrored = pixels(1.0);
    for row in mirrored.chunks_mut(40 * 3) {
        row.as_chunks_mut::<3>().0.reverse();
    }
    assert_eq!(mirrored, pixels(0.0));
}

#[test]
fn gray_images_have_one_channel() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 4, true, None);
    let image = ImageBatchOptions {
        channels: Channels::Gray,
        layout: ImageLayout::Chw,
        ..ImageBatchOptions::default()
    };
    let batch = Loader::new(split.clone(), with(image)).unwrap().next_batch().unwrap().unwrap();
    assert_eq!(batch.array("image").unwrap().shape(), [4, 1, 30, 40]);
    let record = split.get(batch.records()[0]).unwrap();
    let gray = libjpeg_turbo_rs::Decoder::decode_to(record.image().unwrap(), PixelFormat::Grayscale).unwrap();
    assert_eq!(batch.array("image").unwrap().as_slice::<u8>().unwrap()[..1200], gray.as_bytes()[..]);
}

#[test]
fn images_smaller_than_the_crop_are_enlarged() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 4, true, None);
    let image = ImageBatchOptions { crop: Crop::center(100, 100), ..ImageBatchOptions::default() };
    let batch = Loader::new(split, with(image)).unwrap().next_batch().unwrap().unwrap();
    assert_eq!(batch.array("image").unwrap().shape(), [4, 100, 100, 3]);
}

#[test]
fn images_of_several_sizes_need_a_crop() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 12, false, None);
    let error = Loader::new(split.clone(), batches_of(6)).unwrap().next_batch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.remedy().unwrap().contains("center_crop"));
    assert!(error.place().row.is_some());
    // Batches of one image need no crop.
    assert_eq!(all(&mut Loader::new(split, batches_of(1)).unwrap()).len(), 12);
}

#[test]
fn an_image_that_does_not_decode_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 12, true, Some(7));
    let mut loader = Loader::new(split, batches_of(4)).unwrap();
    let errors: Vec<Error> = loader.by_ref().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1);
    let error = &errors[0];
    assert_eq!((error.kind(), error.place().row), (ErrorKind::Corrupt, Some(7)));
    assert!(error.place().shard.is_some(), "{error}");
    assert!(error.to_string().contains("photo-7"), "{error}");
}

#[test]
fn an_image_that_does_not_decode_may_leave_its_row_blank() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 12, true, Some(7));
    for (layout, threads) in [(ImageLayout::Hwc, 0), (ImageLayout::Chw, 2)] {
        let image =
            ImageBatchOptions { layout, undecodable: Undecodable::Blank, ..ImageBatchOptions::default() };
        let options = || LoaderOptions { threads, ..with(image.clone()) };
        let mut loader = Loader::new(split.clone(), options()).unwrap();
        let whole = all(&mut loader);
        assert_eq!((whole.len() as u64, loader.blank_rows()), (loader.len().unwrap(), 1));
        let area = 40 * 30 * 3;
        for batch in &whole {
            let names: Vec<&str> = batch.columns().map(|(name, _)| name).collect();
            assert_eq!(names, ["image", "label", "valid"]);
            let pixels = batch.array("image").unwrap().as_slice::<u8>().unwrap();
            let labels = batch.array("label").unwrap().as_slice::<i64>().unwrap();
            let valid = batch.array("valid").unwrap().as_slice::<bool>().unwrap();
            for (row, &record) in batch.records().iter().enumerate() {
                let is_blank = pixels[row * area..][..area].iter().all(|sample| *sample == 0);
                let label = if record == 7 { -100 } else { (record % 2) as i64 };
                assert_eq!(
                    (is_blank, valid[row], labels[row]),
                    (record == 7, record != 7, label),
                    "{record}"
                );
            }
            for blank in batch.blank_rows() {
                assert_eq!((blank.record, batch.records()[blank.row]), (7, 7));
                assert_eq!((blank.error.kind(), blank.error.place().row), (ErrorKind::Corrupt, Some(7)));
            }
        }
        assert_eq!(whole.iter().map(|batch| batch.blank_rows().len()).sum::<usize>(), 1);

        // The number of batches, the states and the records of each rank are those of an intact dataset.
        let mut found = Vec::new();
        for rank in 0..2 {
            let layout = crate::batch::Layout::new(rank, 2).unwrap();
            let ours = || LoaderOptions { layout, micro_batches: Some(2), ..options() };
            let mut loader = Loader::new(split.clone(), ours()).unwrap();
            assert_eq!(loader.len().unwrap(), 1);
            let mut plain = LoaderOptions { layout, micro_batches: Some(2), ..ours() };
            plain.image.undecodable = Undecodable::Error;
            let start = Loader::new(split.clone(), plain).unwrap().state();
            loader.restore(&start).unwrap();
            found.extend(all(&mut loader).iter().flat_map(|batch| batch.records().to_vec()));
        }
        found.sort_unstable();
        assert_eq!(found, (0..12).collect::<Vec<_>>());
        let mut resumed = Loader::new(split.clone(), options()).unwrap();
        let mut first = Loader::new(split.clone(), options()).unwrap();
        first.next_batch().unwrap();
        resumed.restore(&first.state()).unwrap();
        let rest: Vec<_> = all(&mut resumed).iter().map(|batch| batch.records().to_vec()).collect();
        assert_eq!(rest, whole[1..].iter().map(|batch| batch.records().to_vec()).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Altering any byte of any file results in the right pixels or in an error. It never results in a blank row, which
    /// is only for images that were already broken when they were stored.
    #[test]
    fn altered_files_never_give_wrong_pixels(
        format in prop::sample::select(Format::ALL.to_vec()),
        file: Index,
        flips in prop::collection::vec((any::<Index>(), 1u8..), 1..4),
    ) {
        static WRITTEN: Mutex<Vec<(Format, tempfile::TempDir)>> = Mutex::new(Vec::new());
        let image = ImageBatchOptions {
            crop: Crop::center(16, 16),
            undecodable: Undecodable::Blank,
            ..ImageBatchOptions::default()
        };
        let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.iter().any(|(of, _)| *of == format) {
            let dir = tempfile::tempdir().unwrap();
            photos_in(dir.path(), format, 9, false, None);
            written.push((format, dir));
        }
        let whole = written.iter().find(|(of, _)| *of == format).unwrap().1.path().to_owned();
        drop(written);
        let mut right = std::collections::BTreeMap::new();
        let split = Dataset::open(&whole).unwrap().split("train").unwrap();
        for batch in all(&mut Loader::new(split, with(image.clone())).unwrap()) {
            let pixels = batch.array("image").unwrap().as_slice::<u8>().unwrap();
            right.extend(batch.records().iter().copied().zip(pixels.chunks(768).map(<[u8]>::to_vec)));
        }
        let dir = crate::tests::copy(&whole);
        alter(dir.path(), file, flips);
        let opened = Dataset::open(dir.path()).and_then(|dataset| dataset.split("train"));
        let Ok(loader) = opened.and_then(|split| Loader::new(split, with(image))) else { return Ok(()) };
        for batch in loader.take(100).flatten() {
            prop_assert!(batch.blank_rows().is_empty());
            let pixels = batch.array("image").unwrap().as_slice::<u8>().unwrap();
            for (record, pixels) in batch.records().iter().zip(pixels.chunks(768)) {
                prop_assert!(right.remove(record).as_deref() == Some(pixels), "record {}", record);
            }
        }
    }
}

#[test]
fn empty_and_padded_batches_have_the_shape_of_the_crop() {
    let dir = tempfile::tempdir().unwrap();
    let split = photos(dir.path(), 5, true, None);
    let image = ImageBatchOptions { crop: Crop::center(8, 9), ..ImageBatchOptions::default() };
    for (last, rows) in [(crate::batch::Last::Short, 0), (crate::batch::Last::Pad, 4)] {
        let batching = BatchOptions { last, ..BatchOptions::new(BatchSize::BatchSize(4)) }.into();
        let layout = crate::batch::Layout::new(1, 2).unwrap();
        let options = LoaderOptions { batching, layout, micro_batches: Some(4), ..with(image.clone()) };
        let batches = all(&mut Loader::new(split.clone(), options).unwrap());
        let batch = batches.last().unwrap();
        let images = batch.array("image").unwrap();
        assert_eq!(images.shape()[1..], [8, 9, 3]);
        let used = batch.records().len() * 8 * 9 * 3;
        assert!(images.as_slice::<u8>().unwrap()[used..].iter().all(|v| *v == 0));
        assert!(batch.rows() >= rows);
    }
}
