//! Aspect-ratio buckets: the sizes of the output, and the rule that chooses one for an image.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::str::FromStr;

use super::geometry::{Size, scaled};
use super::option_values::{dimensions, not_accepted, positive};
use crate::error::{Error, Result};
use crate::options::serde_as_text;

/// Maximum side of a bucket, in pixels.
const MAX_SIDE: u32 = 1 << 16;

/// Maximum number of buckets.
const MAX_BUCKETS: usize = 1024;

/// Default step of generated sizes, in pixels.
const DEFAULT_STEP: u32 = 64;

/// Default of `max-ratio`.
const DEFAULT_MAX_RATIO: f64 = 2.0;

/// Default of `min` and `max` of `kohya`, as in its `make_bucket_resolutions`.
const KOHYA_SIDES: (u32, u32) = (256, 1024);

/// The sizes to which images are resized and cropped. Each image has the size of the bucket nearest to its aspect ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    rule: BucketRule,
    /// In ascending order of width, then height. At least one, none of them twice.
    sizes: Vec<Size>,
    /// Whether some sizes of the rule are left out.
    is_reduced: bool,
}

/// The rule that lists the sizes.
#[derive(Debug, Clone, PartialEq)]
enum BucketRule {
    /// Multiples of `step` of at most this area, from the square to `max_ratio`.
    Area { area: Size, step: u32, max_ratio: f64 },
    /// Given sizes, in the order in which they were given.
    Listed(Vec<Size>),
    /// The sizes of kohya-ss/sd-scripts.
    Kohya { area: Size, step: u32, min: u32, max: u32 },
}

impl Buckets {
    /// Returns the sizes, in ascending order of width, then height.
    pub(super) fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// Returns the longest side of a bucket.
    pub(super) fn longest(&self) -> u32 {
        self.sizes.iter().map(|size| size.longer()).max().unwrap_or(0)
    }

    /// Returns the bucket of an upright image of `source` size.
    pub(super) fn choose(&self, source: Size) -> Size {
        let best = match self.rule {
            BucketRule::Kohya { .. } => self.nearest_by_difference(source),
            _ => self.sizes.iter().min_by(|a, b| compare(source, **a, **b)),
        };
        // There is always one.
        best.copied().unwrap_or(source)
    }

    /// Returns the same buckets without `size`.
    pub(super) fn without(&self, size: Size) -> Self {
        let others = |sizes: &[Size]| sizes.iter().copied().filter(|other| *other != size).collect();
        match &self.rule {
            BucketRule::Listed(listed) => Self {
                rule: BucketRule::Listed(others(listed)),
                sizes: others(&self.sizes),
                is_reduced: false,
            },
            rule => Self { rule: rule.clone(), sizes: others(&self.sizes), is_reduced: true },
        }
    }

    /// Returns the size of an image of `source` size when it covers `bucket`.
    pub(super) fn covering(&self, source: Size, bucket: Size) -> Size {
        let resized = match self.rule {
            BucketRule::Kohya { .. } => covering_as_kohya(source, bucket),
            _ => covering(source, bucket),
        };
        // Whatever the rounding, the crop is exactly the bucket.
        Size::new(resized.width.max(bucket.width), resized.height.max(bucket.height))
    }

    /// `BucketManager.select_bucket` of kohya-ss/sd-scripts, in the same arithmetic: the bucket of exactly this size, or else
    /// the first one with the smallest difference of the aspect ratios.
    fn nearest_by_difference(&self, source: Size) -> Option<&Size> {
        if let Some(same) = self.sizes.iter().find(|size| **size == source) {
            return Some(same);
        }
        let ratio = |size: Size| f64::from(size.width) / f64::from(size.height);
        let difference = |size: &Size| (ratio(*size) - ratio(source)).abs();
        self.sizes.iter().min_by(|a, b| difference(a).total_cmp(&difference(b)))
    }
}

/// Returns whether an image of `source` size is enlarged to cover `bucket`.
pub(super) fn is_smaller(source: Size, bucket: Size) -> bool {
    source.width < bucket.width || source.height < bucket.height
}

/// Returns the larger of two aspect ratios divided by the smaller, as a fraction of at least 1. Its logarithm is the
/// distance of the logarithms of the ratios.
fn quotient(a: Size, b: Size) -> [u64; 2] {
    let products = [u64::from(a.width) * u64::from(b.height), u64::from(a.height) * u64::from(b.width)];
    [products[0].max(products[1]), products[0].min(products[1])]
}

/// Compares the buckets `a` and `b` for an image of `source` size; the smallest is chosen. The nearest aspect ratio comes
/// first. Of several, those that the image covers come first, the largest first, then the others, the smallest first. The
/// rest decides between mirrored buckets, for square images: the wider one.
fn compare(source: Size, a: Size, b: Size) -> Ordering {
    let by_ratio = |to: Size| {
        let (a, b) = (quotient(to, a).map(u128::from), quotient(to, b).map(u128::from));
        // Exact, unlike a division.
        (a[0] * b[1]).cmp(&(b[0] * a[1]))
    };
    let fit = |bucket: Size| match is_smaller(source, bucket) {
        false => (false, Reverse(bucket.pixels()), 0),
        true => (true, Reverse(0), bucket.pixels()),
    };
    let by_fit = fit(a).cmp(&fit(b));
    by_ratio(source).then(by_fit).then_with(|| by_ratio(Size::new(1, 1))).then(b.width.cmp(&a.width))
}

/// Returns the smallest size with the aspect ratio of `source` that covers `bucket`: one side is a side of the bucket, the
/// other is rounded to the nearest pixel, halves up.
fn covering(source: Size, bucket: Size) -> Size {
    let is_wider = u64::from(source.width) * u64::from(bucket.height)
        >= u64::from(source.height) * u64::from(bucket.width);
    if is_wider {
        Size::new(scaled(source.width, bucket.height, source.height), bucket.height)
    } else {
        Size::new(bucket.width, scaled(source.height, bucket.width, source.width))
    }
}

/// The same in the arithmetic of `BucketManager.select_bucket` of kohya-ss/sd-scripts.
fn covering_as_kohya(source: Size, bucket: Size) -> Size {
    let [width, height] = [source.width, source.height].map(f64::from);
    let [bucket_width, bucket_height] = [bucket.width, bucket.height].map(f64::from);
    let scale = if width / height > bucket_width / bucket_height {
        bucket_height / height
    } else {
        bucket_width / width
    };
    // The casts saturate.
    Size::new((width * scale + 0.5) as u32, (height * scale + 0.5) as u32)
}

impl BucketRule {
    fn sizes(&self) -> Result<Vec<Size>> {
        let mut sizes = match self {
            BucketRule::Listed(sizes) => sizes.clone(),
            BucketRule::Area { area, step, max_ratio } => of_area(*area, *step, *max_ratio),
            BucketRule::Kohya { area, step, min, max } => of_kohya(*area, *step, *min, *max),
        };
        let key = |size: &Size| (size.width, size.height);
        sizes.sort_unstable_by_key(key);
        let count = sizes.len();
        sizes.dedup();
        if let (BucketRule::Listed(_), true) = (self, sizes.len() < count) {
            return Err(Error::usage(format!("a size is listed twice in the buckets \"{self}\"")));
        }
        if sizes.iter().any(|size| size.shorter() == 0) {
            let what = format!("the buckets \"{self}\" have less area than a square of one step");
            return Err(Error::usage(what).help("choose a smaller step or a larger area"));
        }
        if sizes.len() > MAX_BUCKETS {
            let what = format!("the buckets \"{self}\" have more than {MAX_BUCKETS} sizes");
            return Err(Error::usage(what).help("choose a larger step"));
        }
        Ok(sizes)
    }
}

/// Returns the largest multiple of `step` that does not exceed `side`.
fn floor_to(step: u32, side: u64) -> u32 {
    let step = u64::from(step.max(1));
    u32::try_from(side / step * step).unwrap_or(u32::MAX)
}

fn of_area(area: Size, step: u32, max_ratio: f64) -> Vec<Size> {
    let pixels = area.pixels();
    let side = floor_to(step, pixels.isqrt());
    let mut sizes = vec![Size::new(side, side)];
    let mut longer = side;
    while sizes.len() <= 2 * MAX_BUCKETS && side > 0 {
        longer = longer.saturating_add(step);
        let shorter = floor_to(step, pixels / u64::from(longer));
        if shorter == 0 || longer > MAX_SIDE || f64::from(longer) > max_ratio * f64::from(shorter) {
            break;
        }
        sizes.extend([Size::new(longer, shorter), Size::new(shorter, longer)]);
    }
    sizes
}

/// `make_bucket_resolutions` of kohya-ss/sd-scripts.
fn of_kohya(area: Size, step: u32, min: u32, max: u32) -> Vec<Size> {
    let pixels = area.pixels();
    let side = floor_to(step, pixels.isqrt());
    let mut sizes = vec![Size::new(side, side)];
    for width in (min..=max).step_by(step.max(1) as usize) {
        if sizes.len() > 2 * MAX_BUCKETS {
            break;
        }
        let height = max.min(floor_to(step, pixels / u64::from(width.max(1))));
        if height >= min {
            sizes.extend([Size::new(width, height), Size::new(height, width)]);
        }
    }
    sizes
}

impl FromStr for Buckets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (text, kept) = text.split_once('=').map_or((text, None), |(rule, kept)| (rule, Some(kept)));
        let rule = parse(text).ok_or_else(|| {
            not_accepted(
                "buckets",
                text,
                "area:WxH[,step:N][,max-ratio:R], kohya:WxH[,step:N][,min:N][,max:N] or WxH,WxH,…, with sides from 1 to \
                 65536 and R at least 1",
            )
        })?;
        if let BucketRule::Kohya { area, min, max, .. } = rule
            && max < min.max(area.longer())
        {
            let what = format!(
                "in the buckets \"{rule}\", max is below {}",
                if max < min { "min" } else { "a side of the area" }
            );
            return Err(Error::usage(what).help("raise max"));
        }
        let sizes = rule.sizes()?;
        let Some(kept) = kept else { return Ok(Self { rule, sizes, is_reduced: false }) };
        let listed =
            kept.split(',').map(size).collect::<Option<Vec<_>>>().ok_or_else(|| {
                not_accepted("list of buckets", kept, "WxH,WxH,…, sizes of the rule before it")
            })?;
        let found: Vec<Size> = sizes.into_iter().filter(|size| listed.contains(size)).collect();
        if found.len() < listed.len() || matches!(rule, BucketRule::Listed(_)) {
            return Err(Error::usage(format!(
                "in the buckets \"{text}={kept}\", the list is not a part of the rule's sizes"
            ))
            .help("list some of the sizes that area or kohya makes, each once"));
        }
        Ok(Self { rule, sizes: found, is_reduced: true })
    }
}

/// Parses the size of a bucket.
fn size(text: &str) -> Option<Size> {
    let (width, height) = dimensions(text)?;
    (width.max(height) <= MAX_SIDE).then(|| Size::new(width, height))
}

/// Parses a rule. Each parameter may be given once, in any order.
fn parse(text: &str) -> Option<BucketRule> {
    let side = |text: &str| positive::<u32>(text).filter(|side| *side <= MAX_SIDE);
    let Some((name, rest)) = text.split_once(':') else {
        return text.split(',').map(size).collect::<Option<Vec<_>>>().map(BucketRule::Listed);
    };
    let mut parts = rest.split(',');
    let area = size(parts.next()?)?;
    let (mut step, mut max_ratio, mut min, mut max) = (None, None, None, None);
    for part in parts {
        let (key, value) = part.split_once(':')?;
        let place = match (name, key) {
            (_, "step") => &mut step,
            ("kohya", "min") => &mut min,
            ("kohya", "max") => &mut max,
            ("area", "max-ratio") if max_ratio.is_none() => {
                max_ratio = Some(value.parse::<f64>().ok().filter(|r| r.is_finite() && *r >= 1.0)?);
                continue;
            }
            _ => return None,
        };
        if place.replace(side(value)?).is_some() {
            return None;
        }
    }
    let step = step.unwrap_or(DEFAULT_STEP);
    match name {
        "area" => Some(BucketRule::Area { area, step, max_ratio: max_ratio.unwrap_or(DEFAULT_MAX_RATIO) }),
        "kohya" => {
            let (smallest, largest) = KOHYA_SIDES;
            Some(BucketRule::Kohya { area, step, min: min.unwrap_or(smallest), max: max.unwrap_or(largest) })
        }
        _ => None,
    }
}

fn text(size: &Size) -> String {
    format!("{}x{}", size.width, size.height)
}

fn listed(sizes: &[Size]) -> String {
    sizes.iter().map(text).collect::<Vec<_>>().join(",")
}

impl fmt::Display for BucketRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BucketRule::Listed(sizes) => f.write_str(&listed(sizes)),
            BucketRule::Area { area, step, max_ratio } => {
                write!(f, "area:{},step:{step},max-ratio:{max_ratio}", text(area))
            }
            BucketRule::Kohya { area, step, min, max } => {
                write!(f, "kohya:{},step:{step},min:{min},max:{max}", text(area))
            }
        }
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)?;
        if self.is_reduced { write!(f, "={}", listed(&self.sizes)) } else { Ok(()) }
    }
}

serde_as_text!(Buckets);
