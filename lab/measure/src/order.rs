//! Which items are loaded, and in which order: all of a target, or the pairs of two targets.
//!
//! Items are paired by their origin, with or without the label of its source: the path under the folder and, for
//! documents, the offset. A dataset may lack only as many items as its conversion left out. All pairs, or a sample
//! of them, are loaded from both targets. The width and height of images and every token id of documents must be the same.

use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::batch::{BatchWorker, BenchBatchSize};
use super::target::{BenchTarget, TargetKind};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::reader::batch::{
    BatchOptions, BatchPlan, Boundaries, BucketBy, Layout, LengthsInMemory, Oversize, Position,
};
use crate::sampling;
use crate::sampling::Permutation;

/// The order in which items are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReadOrder {
    /// In the order in which they are stored.
    Sequential,
    /// Fully shuffled.
    Random,
    /// Text: shuffled, in batches of similar length.
    Bucketed,
}

impl ReadOrder {
    /// Returns the name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Bucketed => "bucketed",
        }
    }
}

impl FromStr for ReadOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Sequential, Self::Random, Self::Bucketed];
        all.into_iter().find(|order| order.name() == text).ok_or_else(|| {
            Error::usage(format!("unknown order `{text}`; expected one of sequential, random, bucketed"))
        })
    }
}

/// The batches of an endless sequence of epochs.
#[derive(Debug)]
pub(super) struct BatchOrder {
    batches: EpochBatches,
    /// Runs of batches, each loaded by one thread in order.
    runs: Option<Vec<Range<u64>>>,
}

#[derive(Debug)]
enum EpochBatches {
    /// Batches of equal size, computed when they are needed.
    Equal { items: ItemSet, size: u64, seed: Option<u64> },
    /// Batches of any size, listed in advance.
    Listed(Vec<Vec<u64>>),
}

/// The items to read: all, or a subset.
#[derive(Debug, Clone)]
pub(super) struct ItemSet {
    pub(super) count: u64,
    pub(super) subset: Option<Arc<Vec<u64>>>,
}

impl ItemSet {
    fn get(&self, i: u64) -> u64 {
        match &self.subset {
            Some(subset) => subset.get(i as usize).copied().unwrap_or(0),
            None => i,
        }
    }
}

impl BatchOrder {
    /// Creates the batches of `items` in `order`. Buckets and token budgets need `lengths`, the lengths of all items of
    /// the target. `streams` are runs of items that are each read by one thread.
    pub(super) fn new(
        items: ItemSet,
        order: ReadOrder,
        size: BenchBatchSize,
        seed: u64,
        lengths: Option<&[u64]>,
        streams: Option<&[Range<u64>]>,
    ) -> Result<Self> {
        if let Some(streams) = streams {
            return Self::of_streams(&items, order, size, lengths, streams);
        }
        let unknown = || Error::internal("batches need lengths, and none were given");
        let length = |item: u64| lengths.and_then(|all| all.get(item as usize)).copied().unwrap_or(0);
        let batches = match (order, size) {
            (ReadOrder::Bucketed, _) => {
                let lengths = lengths.ok_or_else(unknown)?;
                let of_items =
                    (0..items.count).map(|i| lengths.get(items.get(i) as usize).copied().unwrap_or(0));
                EpochBatches::Listed(bucketed(&items, of_items.collect(), size, seed)?)
            }
            (_, BenchBatchSize::Items(size)) => {
                let seed = (order == ReadOrder::Random).then_some(seed);
                EpochBatches::Equal { items, size: size.max(1), seed }
            }
            (_, BenchBatchSize::Tokens(budget)) => {
                lengths.ok_or_else(unknown)?;
                let permutation = Permutation::new(items.count, seed);
                let at = |i| if order == ReadOrder::Random { permutation.of(i) } else { i };
                EpochBatches::Listed(fill_batches((0..items.count).map(|i| items.get(at(i))), budget, length))
            }
        };
        Ok(Self { batches, runs: None })
    }

    /// Creates batches that never cross the end of a stream.
    fn of_streams(
        items: &ItemSet,
        order: ReadOrder,
        size: BenchBatchSize,
        lengths: Option<&[u64]>,
        streams: &[Range<u64>],
    ) -> Result<Self> {
        if order != ReadOrder::Sequential {
            return Err(Error::usage(format!("compressed text cannot be read in {} order", order.name()))
                .help("decompress it, or measure the sequential order alone"));
        }
        let length = |item: u64| lengths.and_then(|all| all.get(item as usize)).copied().unwrap_or(0);
        let kept: Vec<u64> = (0..items.count).map(|i| items.get(i)).collect();
        let (mut batches, mut runs) = (Vec::new(), Vec::new());
        for stream in streams {
            let (start, end) =
                (kept.partition_point(|i| *i < stream.start), kept.partition_point(|i| *i < stream.end));
            let first = batches.len() as u64;
            let of_stream = kept.get(start..end).unwrap_or_default();
            match size {
                BenchBatchSize::Items(size) => {
                    batches.extend(of_stream.chunks(size.max(1) as usize).map(<[u64]>::to_vec));
                }
                BenchBatchSize::Tokens(budget) => {
                    batches.extend(fill_batches(of_stream.iter().copied(), budget, length));
                }
            }
            runs.push(first..batches.len() as u64);
        }
        runs.retain(|run| !run.is_empty());
        Ok(Self { batches: EpochBatches::Listed(batches), runs: Some(runs) })
    }

    /// Returns the number of batches per epoch.
    pub(super) fn per_epoch(&self) -> u64 {
        match &self.batches {
            EpochBatches::Equal { items, size, .. } => items.count.div_ceil(*size),
            EpochBatches::Listed(batches) => batches.len() as u64,
        }
    }

    /// Returns the numbers of the batches that a thread takes with one claim. Claims continue with the next epoch.
    pub(super) fn claim(&self, claim: u64) -> Range<u64> {
        match &self.runs {
            Some(runs) => {
                let count = runs.len().max(1) as u64;
                let run = runs.get((claim % count) as usize).cloned().unwrap_or_default();
                let offset = claim / count * self.per_epoch();
                run.start + offset..run.end + offset
            }
            None => claim..claim + 1,
        }
    }

    /// Returns the number of claims per epoch.
    pub(super) fn claims(&self) -> u64 {
        self.runs.as_ref().map_or_else(|| self.per_epoch(), |runs| runs.len() as u64)
    }

    /// Returns the items of batch `number`, counted across epochs.
    pub(super) fn batch(&self, number: u64) -> Vec<u64> {
        let epoch = number / self.per_epoch().max(1);
        let index = number % self.per_epoch().max(1);
        match &self.batches {
            EpochBatches::Listed(batches) => batches.get(index as usize).cloned().unwrap_or_default(),
            EpochBatches::Equal { items, size, seed } => {
                let range = index * size..((index + 1) * size).min(items.count);
                match seed {
                    None => range.map(|i| items.get(i)).collect(),
                    Some(seed) => {
                        let permutation = Permutation::new(items.count, seed.wrapping_add(epoch << 32));
                        range.map(|i| items.get(permutation.of(i))).collect()
                    }
                }
            }
        }
    }
}

/// Fills batches with items in their order, up to `budget` tokens each, padding included.
fn fill_batches(items: impl Iterator<Item = u64>, budget: u64, length: impl Fn(u64) -> u64) -> Vec<Vec<u64>> {
    let (mut batches, mut batch, mut width) = (Vec::new(), Vec::new(), 0u64);
    for item in items {
        let wider = width.max(length(item));
        if !batch.is_empty() && wider.saturating_mul(batch.len() as u64 + 1) > budget {
            batches.push(std::mem::take(&mut batch));
            width = length(item);
        } else {
            width = wider;
        }
        batch.push(item);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// Returns one epoch of batches as a loader makes them with buckets by length.
fn bucketed(items: &ItemSet, lengths: Vec<u64>, size: BenchBatchSize, seed: u64) -> Result<Vec<Vec<u64>>> {
    let options = BatchOptions {
        bucket: BucketBy::Length(Boundaries::AUTO),
        oversize: Oversize::Alone,
        ..BatchOptions::new(size.into())
    };
    let plan = BatchPlan::new("", LengthsInMemory::new(lengths), options, seed, 1)?;
    let batches = plan.batches(Layout::new(0, 1)?, Position::default())?;
    batches.map(|batch| Ok(batch?.records.into_iter().map(|i| items.get(i)).collect())).collect()
}

/// Maximum number of pairs to load and compare.
const MAX_CHECKED: u64 = 500;

/// Returns `name` without the label of its source, which is one of `labels`. The label of a folder may contain `#`, and
/// that of a file matched by a pattern `/`.
fn without_label<'a>(name: &'a str, labels: &[String]) -> &'a str {
    let rest = |label: &String| {
        name.strip_prefix(label.as_str()).filter(|rest| rest.is_empty() || rest.starts_with(['/', '#']))
    };
    // Of two labels such as `a` and `a#b`, the longer one leaves the shorter rest.
    match labels.iter().filter_map(rest).min_by_key(|rest| rest.len()) {
        Some(rest) => rest.strip_prefix('/').unwrap_or(rest),
        None => name,
    }
}

/// Returns the error for two targets that cannot be compared.
fn not_comparable(targets: [&BenchTarget; 2], what: String, help: &str) -> Error {
    let [a, b] = targets.map(|target| target.path.to_string_lossy().into_owned());
    Error::usage(format!("{a} and {b} cannot be compared: {what}")).help(help.to_owned())
}

/// Pairs the items that both targets hold, and checks that both deliver the same shapes. Returns the items of each, in the
/// order of the first target, and the number of pairs that were loaded and compared.
pub(super) fn pair(targets: [&BenchTarget; 2]) -> Result<([ItemSet; 2], u64)> {
    let [a, b] = targets;
    if a.kind.is_text() != b.kind.is_text() {
        let what = format!("one is {}, the other {}", kind(a.kind), kind(b.kind));
        return Err(not_comparable(targets, what, "compare images with images, or text with text"));
    }
    if a.kind.is_text() && !(a.has_tokens() && b.has_tokens()) {
        let what = "text files deliver no tokens without a tokenizer".to_owned();
        return Err(not_comparable(targets, what, "name the tokenizer"));
    }
    let pairs = pairs(targets)?;
    let checked = check(targets, &pairs)?;
    let side = |ordinals: Vec<u64>, target: &BenchTarget| {
        let all = ordinals.len() as u64 == target.items && ordinals.is_sorted();
        ItemSet { count: ordinals.len() as u64, subset: (!all).then(|| Arc::new(ordinals)) }
    };
    let (first, second) = pairs.into_iter().unzip();
    Ok(([side(first, a), side(second, b)], checked))
}

fn kind(kind: TargetKind) -> &'static str {
    if kind.is_text() { "a corpus of text" } else { "a set of images" }
}

/// Returns the part of a name by which items are paired, given the labels of the sources.
type NameOf = for<'a> fn(&'a str, &[String]) -> &'a str;

/// Returns the ordinals of `names`; `None` if a name occurs twice, as that of files in several sources may without its
/// label.
fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Option<HashMap<&'a str, u64>> {
    let mut ordinals = HashMap::new();
    names.zip(0..).all(|(name, ordinal)| ordinals.insert(name, ordinal).is_none()).then_some(ordinals)
}

/// Returns the ordinals of the items that both targets hold.
fn pairs(targets: [&BenchTarget; 2]) -> Result<Vec<(u64, u64)>> {
    let [a, b] = targets;
    let (names_a, names_b) = (a.names()?, b.names()?);
    // The label of a single file is its name, which is part of the path if the other target is the folder of that file.
    let whole: NameOf = |name, _| name;
    let mut best: Vec<(u64, u64)> = Vec::new();
    for [name_a, name_b] in
        [[whole, whole], [without_label, without_label], [without_label, whole], [whole, without_label]]
    {
        let names_a: Vec<&str> = names_a.iter().map(|name| name_a(name, &a.labels)).collect();
        let by_name = unique(names_b.iter().map(|name| name_b(name, &b.labels)));
        let (Some(_), Some(by_name)) = (unique(names_a.iter().copied()), by_name) else { continue };
        let found = names_a.iter().zip(0..);
        let found: Vec<(u64, u64)> = found.filter_map(|(name, i)| Some((i, *by_name.get(name)?))).collect();
        if found.len() > best.len() {
            best = found;
        }
    }
    let both = best.len() as u64;
    for (target, other) in [(a, b), (b, a)] {
        let missing = target.items.saturating_sub(both);
        if missing > other.left_out {
            let name = |t: &BenchTarget| t.path.to_string_lossy().into_owned();
            let what = format!(
                "{} has {}, but only {both} are in {}, whose conversion left out {}",
                name(target),
                plural(target.items, "item"),
                name(other),
                other.left_out
            );
            let help =
                "convert exactly this folder, without splitting or packing, and compare it with all splits";
            return Err(not_comparable(targets, what, help));
        }
    }
    if best.is_empty() {
        return Err(not_comparable(
            targets,
            "they have no items in common".to_owned(),
            "compare a dataset with its source",
        ));
    }
    Ok(best)
}

/// Loads pairs from both targets, and returns how many match. Items that load from neither are skipped.
fn check(targets: [&BenchTarget; 2], pairs: &[(u64, u64)]) -> Result<u64> {
    let open = [targets[0].open()?, targets[1].open()?];
    let [mut first, mut second]: [Box<dyn BatchWorker + '_>; 2] = [open[0].worker(), open[1].worker()];
    let mut checked = 0;
    for at in sampling::sample(pairs.len() as u64, MAX_CHECKED) {
        let Some(&(i, j)) = usize::try_from(at).ok().and_then(|at| pairs.get(at)) else { continue };
        let name = targets[0].name_of(i);
        match (first.shape(i), second.shape(j)) {
            (Ok(a), Ok(b)) if a == b => checked += 1,
            (Ok(a), Ok(b)) => {
                let what = format!("{name} is {a} in the first and {b} in the second");
                let help = match targets[0].kind.is_text() {
                    true => "give the tokenizer and text options that the dataset was converted with",
                    false => "give the pixel options that the dataset was converted with",
                };
                return Err(not_comparable(targets, what, help));
            }
            (Err(_), Err(_)) => {}
            (Err(why), _) | (_, Err(why)) => {
                let what = format!("{name} loads from only one of them: {why}");
                return Err(not_comparable(
                    targets,
                    what,
                    "check the dataset with `dsconvert inspect --verify`",
                ));
            }
        }
    }
    if checked == 0 {
        return Err(not_comparable(targets, "no item could be loaded".to_owned(), "check the files"));
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: u64) -> ItemSet {
        ItemSet { count, subset: None }
    }

    fn epoch(order: &BatchOrder, number: u64) -> Vec<u64> {
        let n = order.per_epoch();
        (number * n..(number + 1) * n).flat_map(|k| order.batch(k)).collect()
    }

    #[test]
    fn every_order_reads_every_item_once_per_epoch() {
        let lengths: Vec<u64> = (0..100).map(|i| 1 + i * 7 % 40).collect();
        for order in [ReadOrder::Sequential, ReadOrder::Random, ReadOrder::Bucketed] {
            for size in [BenchBatchSize::Items(8), BenchBatchSize::Tokens(120)] {
                let found = BatchOrder::new(items(100), order, size, 3, Some(&lengths), None).unwrap();
                for number in 0..2 {
                    let mut read = epoch(&found, number);
                    assert_eq!(read.is_sorted(), order == ReadOrder::Sequential);
                    read.sort_unstable();
                    assert!(read.iter().copied().eq(0..100), "{order:?} {size:?}");
                }
                if let BenchBatchSize::Tokens(budget) = size {
                    let width = |batch: &[u64]| batch.iter().map(|i| lengths[*i as usize]).max().unwrap();
                    let batches = (0..found.per_epoch()).map(|k| found.batch(k));
                    assert!(batches.into_iter().all(|b| b.len() as u64 * width(&b) <= budget));
                }
            }
        }
    }

    #[test]
    fn random_epochs_differ_and_subsets_are_respected() {
        let subset = ItemSet { count: 30, subset: Some(Arc::new((0..30).map(|i| i * 3).collect())) };
        let size = BenchBatchSize::Items(4);
        let order = BatchOrder::new(subset, ReadOrder::Random, size, 1, None, None).unwrap();
        let (a, b) = (epoch(&order, 0), epoch(&order, 1));
        assert_ne!(a, b);
        assert!(a.iter().all(|i| i % 3 == 0) && a.len() == 30);
    }

    #[test]
    fn streams_are_read_whole_by_one_claim() {
        let size = BenchBatchSize::Items(4);
        let streams = [0..10, 10..11, 11..20];
        let order = BatchOrder::new(items(20), ReadOrder::Sequential, size, 0, None, Some(&streams)).unwrap();
        assert_eq!((order.claims(), order.per_epoch()), (3, 7));
        let read = |claim| order.claim(claim).flat_map(|k| order.batch(k)).collect::<Vec<_>>();
        assert!(read(0).into_iter().eq(0..10) && read(4).into_iter().eq(10..11));
        let random = BatchOrder::new(items(20), ReadOrder::Random, size, 0, None, Some(&streams));
        assert!(random.unwrap_err().to_string().contains("compressed"));
    }

    #[test]
    fn labels_end_at_a_folder_or_an_offset() {
        let labels = ["photos", "a.jsonl", "c", "c#d", "one.txt", "x/y.jsonl"].map(str::to_owned);
        for (name, without) in [
            ("photos/a/b.jpg", "a/b.jpg"),
            ("a.jsonl#12", "#12"),
            ("c/a.jsonl#0", "a.jsonl#0"),
            ("c#d/a.jsonl#0", "a.jsonl#0"),
            ("one.txt", ""),
            ("x/y.jsonl#7", "#7"),
            ("photos-2/a.jpg", "photos-2/a.jpg"),
        ] {
            assert_eq!(without_label(name, &labels), without);
            assert_eq!(without_label(name, &[]), name);
        }
    }
}
