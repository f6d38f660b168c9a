//! Images per bucket, counted by the sizes in their headers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::buckets::{Buckets, is_smaller};
use super::geometry::Size;

/// The number of images of each upright size, width and height in pixels.
pub type ImageSizes = BTreeMap<(u32, u32), u64>;

/// The images of all buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BucketCounts {
    /// The buckets, in ascending order of width, then height.
    pub buckets: Vec<BucketCount>,
    /// Number of images that are smaller than their bucket, and left out.
    pub smaller: u64,
    /// Number of images that other options leave out.
    pub filtered: u64,
    /// Number of images without a readable header.
    pub unreadable: u64,
    /// The buckets that are left out because they have too few images, in the order in which they were left out.
    pub left_out: Vec<BucketCount>,
    /// Number of images whose bucket was left out, and which are in another one.
    pub moved: u64,
}

/// A bucket and its number of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BucketCount {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Number of images.
    pub images: u64,
}

impl BucketCount {
    fn new(size: Size, images: u64) -> Self {
        Self { width: size.width, height: size.height, images }
    }
}

/// Counts the images of `buckets`, and leaves out buckets with fewer than `least` images, one after another, the one with
/// the fewest first, as long as there is another one. The images of each are counted again, in the nearest of the others.
pub(super) fn count(
    mut buckets: Buckets,
    sizes: impl Iterator<Item = (Size, u64)>,
    enlarge: bool,
    least: u64,
) -> (Buckets, BucketCounts) {
    let mut of_bucket: BTreeMap<(u32, u32), Vec<(Size, u64)>> = BTreeMap::new();
    let key = |size: Size| (size.width, size.height);
    let fits = |size: Size, bucket: Size| enlarge || !is_smaller(size, bucket);
    for bucket in buckets.sizes() {
        of_bucket.insert(key(*bucket), Vec::new());
    }
    for (size, images) in sizes {
        of_bucket.entry(key(buckets.choose(size))).or_default().push((size, images));
    }
    let images_in = |bucket: (u32, u32), all: &[(Size, u64)]| {
        let inside = all.iter().filter(|(size, _)| fits(*size, Size::new(bucket.0, bucket.1)));
        inside.map(|(_, images)| images).sum::<u64>()
    };
    let mut counts: BTreeMap<(u32, u32), u64> =
        of_bucket.iter().map(|(bucket, all)| (*bucket, images_in(*bucket, all))).collect();
    let mut found = BucketCounts::default();
    while counts.len() > 1
        && let Some((&bucket, &images)) = counts.iter().min_by_key(|(bucket, images)| (**images, **bucket))
        && images < least
    {
        let size = Size::new(bucket.0, bucket.1);
        buckets = buckets.without(size);
        counts.remove(&bucket);
        found.left_out.push(BucketCount::new(size, images));
        for (source, images) in of_bucket.remove(&bucket).unwrap_or_default() {
            let next = buckets.choose(source);
            if fits(source, next) {
                *counts.entry(key(next)).or_default() += images;
                found.moved += images;
            }
            of_bucket.entry(key(next)).or_default().push((source, images));
        }
    }
    for (bucket, images) in counts {
        let all: u64 = of_bucket.get(&bucket).map_or(0, |all| all.iter().map(|(_, images)| images).sum());
        found.smaller += all - images;
        found.buckets.push(BucketCount::new(Size::new(bucket.0, bucket.1), images));
    }
    (buckets, found)
}
