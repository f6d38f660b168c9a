//! Sizes, classes and thumbnails of images.

use std::collections::BTreeMap;

use super::classes::{self, LabelCounts};
use super::{Problems, ReportOptions};
use crate::error::Result;
use crate::reader::{Dataset, Record, Split};
use crate::report::histogram::Histogram;
use crate::report::thumbnail::Thumbnails;
use crate::sample::{Value, box_numbers};
use crate::sampling::{sample, seeded};
use crate::schema::{HEIGHT, WIDTH};

/// Maximum number of records whose size is read from the index.
const MAX_RECORDS: u64 = 100_000;
/// Fields that are captions.
const CAPTIONS: [&str; 3] = ["caption", "txt", "text"];
/// Field that is a list of captions.
const CAPTION_LIST: &str = "captions";
/// Longer side of a thumbnail on the page, in pixels.
const THUMBNAIL_SIDE: u32 = 192;

/// Statistics and examples of the images of a split.
#[derive(Debug, Default)]
pub struct ImageStats {
    /// Width and height in pixels of the sampled records, in record order.
    pub sizes: Vec<(u32, u32)>,
    /// Width ÷ height.
    pub aspect: Histogram,
    /// Stored bytes per record.
    pub bytes: Histogram,
    /// Records per class, if the records have labels.
    pub classes: Option<LabelCounts>,
    /// Examples, in record order.
    pub thumbnails: Vec<Thumbnail>,
}

/// A small JPEG of an image.
#[derive(Debug, Clone)]
pub struct Thumbnail {
    /// Ordinal of the record in its split.
    pub record: u64,
    /// Key of the record.
    pub key: String,
    /// Name of the record's class.
    pub class: Option<String>,
    /// The caption of the image, or the classes of its boxes.
    pub caption: Option<String>,
    /// Width and height of the stored image in pixels.
    pub size: (u32, u32),
    /// A JPEG, or the reason why there is none.
    pub jpeg: Result<Vec<u8>, String>,
    /// Width and height of the JPEG in pixels.
    pub shown: (u32, u32),
}

pub(super) fn gather(
    dataset: &Dataset,
    split: &Split,
    options: &ReportOptions<'_>,
    problems: &mut Problems,
) -> ImageStats {
    let mut stats = ImageStats::default();
    if !options.compact {
        let mut sizes = Vec::new();
        let mut bytes = Vec::new();
        let read = sample(split.len(), MAX_RECORDS).into_iter().try_for_each(|ordinal| -> Result<()> {
            let entry = split.entry(ordinal)?;
            let side = |name| entry.column(dataset.schema(), name).unwrap_or(0);
            sizes.push((side(WIDTH), side(HEIGHT)));
            bytes.push(entry.bytes as f64);
            Ok(())
        });
        problems.ok_or_add(&format!("split {}: the record index cannot be read", split.name()), read);
        let aspects =
            sizes.iter().filter(|(w, h)| *w > 0 && *h > 0).map(|(w, h)| f64::from(*w) / f64::from(*h));
        stats.aspect = Histogram::of(aspects.collect(), false);
        stats.bytes = Histogram::of(bytes, true);
        stats.sizes = sizes;
        stats.classes = classes::gather(dataset, split, problems);
    }
    let mut thumbnails = Thumbnails::new(dataset.manifest().raw_channels(), THUMBNAIL_SIDE);
    for ordinal in seeded(split.len(), options.thumbnails as u64, options.seed) {
        match split.get(ordinal) {
            Ok(record) => stats.thumbnails.push(thumbnail(&record, &mut thumbnails)),
            Err(error) => problems.add_unreadable(&error),
        }
    }
    stats
}

/// Returns the first caption of an image, or else how many boxes of each class it has.
fn caption(record: &Record) -> Option<String> {
    let text = CAPTIONS.into_iter().find_map(|name| record.text(name));
    let first = || serde_json::from_str::<Vec<String>>(record.text(CAPTION_LIST)?).ok()?.into_iter().next();
    let classes = || {
        let Value::Bytes(list) = record.values().get(record.schema().box_labels_field()?)? else {
            return None;
        };
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        box_numbers(list).for_each(|label| *counts.entry(label).or_default() += 1);
        let name = |label: i64| {
            let names = &record.schema().class_names;
            let name = usize::try_from(label).ok().and_then(|label| names.get(label));
            name.cloned().unwrap_or_else(|| label.to_string())
        };
        let named = counts.into_iter().map(|(label, count)| match count {
            1 => name(label),
            _ => format!("{count} × {}", name(label)),
        });
        Some(named.collect::<Vec<_>>().join(", "))
    };
    text.map(str::to_owned).or_else(first).or_else(classes).filter(|caption| !caption.trim().is_empty())
}

fn thumbnail(record: &Record, thumbnails: &mut Result<Thumbnails>) -> Thumbnail {
    let size = (record.width().unwrap_or(0), record.height().unwrap_or(0));
    let jpeg = match thumbnails {
        Ok(thumbnails) => thumbnails.jpeg(record),
        Err(error) => Err(error.to_string()),
    };
    let (jpeg, shown) = match jpeg {
        Ok(made) => (Ok(made.bytes), made.size),
        Err(why) => (Err(why), (0, 0)),
    };
    Thumbnail {
        record: record.ordinal(),
        key: record.key().unwrap_or_default().to_owned(),
        class: record.class_name().map(str::to_owned),
        caption: caption(record),
        size,
        jpeg,
        shown,
    }
}
