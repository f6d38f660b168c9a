//! Token statistics, decoded documents, and the padding of batches as a function of their size.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{Problems, ReportOptions, each_of};
use crate::error::Result;
use crate::reader::batch::{BatchSize, Lengths, SIMULATED_RECORDS, packed_padding, padding};
use crate::reader::{Split, TrainedSummary};
use crate::report::histogram::Histogram;
use crate::report::vocabulary::{ShownToken, Vocabulary};
use crate::sample::Value;
use crate::sampling::{sample, seeded};

/// Maximum number of records whose tokens are counted.
const MAX_RECORDS: u64 = 20_000;
/// Approximate maximum number of tokens to count.
const MAX_TOKENS: u64 = 10_000_000;
/// Maximum number of distinct tokens to count.
const MAX_DISTINCT: usize = 1 << 22;
/// Number of records that are read together.
const CHUNK: usize = 256;
/// Maximum number of tokens to list.
const SHOWN_TOKENS: usize = 40;
/// Maximum number of tokens of a document to show.
const DOCUMENT_TOKENS: usize = 240;
/// The same for a document whose tokens to train on are marked: they come after a prompt.
const MARKED_TOKENS: usize = 1200;

/// Statistics and examples of the text of a split.
#[derive(Debug, Default)]
pub struct TextStats {
    /// Records whose tokens were counted.
    pub records: u64,
    /// Tokens that were counted.
    pub tokens: u64,
    /// Maximum number of tokens counted per record; `None` if all were counted.
    pub most_per_record: Option<u64>,
    /// Number of distinct tokens among these.
    pub distinct: u64,
    /// The most frequent tokens.
    pub top: Vec<TokenCount>,
    /// Mean bytes of text per token; `None` if ids cannot be decoded.
    pub bytes_per_token: Option<f64>,
    /// Examples, in record order.
    pub documents: Vec<DecodedSample>,
    /// Padding of batches.
    pub padding: Option<Curves>,
    /// The tokens to train on, if they are marked.
    pub trained: Option<TrainedStats>,
}

/// The tokens to train on.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainedStats {
    /// Their number, share, and records without any.
    pub summary: TrainedSummary,
    /// Number of records by their share in percent.
    pub shares: Histogram,
}

/// A token and how often it occurs.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenCount {
    /// Token id.
    pub id: u32,
    /// Number of occurrences.
    pub count: u64,
    /// 95% confidence interval of its share of all tokens; `None` if all tokens were counted.
    pub interval: Option<(f64, f64)>,
    /// The token, if it is known.
    pub shown: Option<ShownToken>,
}

/// The first tokens of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedSample {
    /// Ordinal of the record in its split.
    pub record: u64,
    /// Key of the record.
    pub key: String,
    /// Number of tokens of the whole record.
    pub length: u64,
    /// The first tokens, as far as they are known.
    pub tokens: Vec<(u32, Option<ShownToken>)>,
    /// Which of these are trained on; empty if they are not marked.
    pub trained: Vec<bool>,
}

pub(super) fn gather(
    split: &Split,
    vocabulary: Option<&Vocabulary>,
    options: &ReportOptions<'_>,
    problems: &mut Problems,
) -> TextStats {
    let mut stats = TextStats::default();
    let shown = |id| vocabulary?.token(id);
    for ordinal in seeded(split.len(), options.documents as u64, options.seed) {
        match split.get(ordinal) {
            Ok(record) => {
                let ids = record.input_ids();
                let marks = record.schema().masks_field().and_then(|at| record.values().get(at));
                let (marks, most) = match marks {
                    Some(Value::Bytes(marks)) => (&marks[..], MARKED_TOKENS),
                    _ => (&[][..], DOCUMENT_TOKENS),
                };
                let tokens = ids.iter().flat_map(|ids| ids.iter()).take(most);
                stats.documents.push(DecodedSample {
                    record: ordinal,
                    key: record.key().unwrap_or_default().to_owned(),
                    length: ids.map_or(0, |ids| ids.len() as u64),
                    tokens: tokens.map(|id| (id, shown(id))).collect(),
                    trained: marks.iter().take(most).map(|mark| *mark != 0).collect(),
                });
            }
            Err(error) => problems.add_unreadable(&error),
        }
    }
    if options.compact {
        return stats;
    }
    count(split, vocabulary, &mut stats, problems);
    let what = format!("split {}: padding cannot be computed", split.name());
    stats.padding = problems.ok_or_add(&what, gather_padding(split));
    let what = format!("split {}: the tokens to train on cannot be counted", split.name());
    stats.trained = problems.ok_or_add(&what, split.trained()).flatten().map(|summary| TrainedStats {
        shares: Histogram::of_shares(&summary.histogram, summary.share_p50),
        summary,
    });
    stats
}

/// Sums over the sampled records: n is the number of tokens of a record, and x the number of occurrences of one token.
#[derive(Debug, Clone, Copy, Default)]
struct Occurrences {
    /// Σ x
    count: u64,
    /// Σ x²
    squares: f64,
    /// Σ x n
    products: f64,
}

impl Occurrences {
    fn add(&mut self, occurrences: u64, length: u64) {
        self.count += occurrences;
        self.squares += (occurrences * occurrences) as f64;
        self.products += (occurrences * length) as f64;
    }

    /// Returns the 95% confidence interval of the share of the token among all tokens of `population` records. The
    /// sample is `records` with `tokens` tokens; `lengths` is Σ n².
    ///
    /// It is the interval of a ratio estimate (Cochran, *Sampling Techniques*, 1977, chapter 6), because the tokens of a record
    /// depend on each other: a token that is frequent in few records is less certain than its count suggests.
    fn interval(&self, records: u64, tokens: u64, lengths: f64, population: u64) -> (f64, f64) {
        let (m, n) = (records as f64, (tokens as f64).max(1.0));
        let share = self.count as f64 / n;
        let residual = self.squares - 2.0 * share * self.products + share * share * lengths;
        let unread = 1.0 - m / (population as f64).max(m);
        let variance = unread * m / (m - 1.0).max(1.0) * residual.max(0.0) / (n * n);
        let half = 1.96 * variance.sqrt();
        ((share - half).max(0.0), (share + half).min(1.0))
    }
}

/// Counts the tokens of a sample of the records.
fn count(split: &Split, vocabulary: Option<&Vocabulary>, stats: &mut TextStats, problems: &mut Problems) {
    let mean = split.info().map_or(1.0, |info| info.length.mean).max(1.0);
    let most = ((MAX_TOKENS as f64 / mean) as u64).clamp(1, MAX_RECORDS);
    let wanted = sample(split.len(), most);
    let mut counts: HashMap<u32, Occurrences> = HashMap::new();
    // Σ n² over the records, of n tokens each.
    let mut squares = 0.0;
    let mut sorted = Vec::new();
    // Long records are truncated, so that the total number of tokens stays bounded.
    let total = split.info().map_or(u64::MAX, |info| info.length.total);
    stats.most_per_record = (total > 2 * MAX_TOKENS).then(|| 2 * MAX_TOKENS / (wanted.len() as u64).max(1));
    let each = stats.most_per_record.map_or(usize::MAX, |most| most as usize);
    let mut count = |record: &crate::reader::Record, stats: &mut TextStats| {
        let Some(ids) = record.input_ids() else { return };
        sorted.clear();
        sorted.extend(ids.iter().take(each));
        sorted.sort_unstable();
        let length = sorted.len() as u64;
        stats.records += 1;
        stats.tokens += length;
        squares += (length * length) as f64;
        for same in sorted.chunk_by(|a, b| a == b) {
            let (id, occurrences) = (same[0], same.len() as u64);
            if counts.len() < MAX_DISTINCT || counts.contains_key(&id) {
                counts.entry(id).or_default().add(occurrences, length);
            }
        }
    };
    for chunk in wanted.chunks(CHUNK) {
        each_of(split, chunk, &mut |record| count(record, stats), &mut |e| problems.add_unreadable(e));
    }
    stats.distinct = counts.len() as u64;
    let mut order: Vec<(u32, Occurrences)> = counts.into_iter().collect();
    order.sort_unstable_by_key(|(id, found)| (Reverse(found.count), *id));
    if let Some(vocabulary) = vocabulary {
        let (mut tokens, mut bytes) = (0u64, 0u64);
        for (id, Occurrences { count, .. }) in &order {
            if let Some(token) = vocabulary.token(*id).filter(|token| !token.special) {
                tokens = tokens.saturating_add(*count);
                bytes = bytes.saturating_add(count.saturating_mul(token.bytes.len() as u64));
            }
        }
        stats.bytes_per_token = (tokens > 0).then(|| bytes as f64 / tokens as f64);
    }
    let top = order.into_iter().take(SHOWN_TOKENS);
    let is_sample = stats.records < split.len() || stats.most_per_record.is_some();
    let interval = |found: &Occurrences| {
        is_sample.then(|| found.interval(stats.records, stats.tokens, squares, split.len()))
    };
    stats.top = top
        .map(|(id, found)| TokenCount {
            id,
            count: found.count,
            interval: interval(&found),
            shown: vocabulary.and_then(|vocabulary| vocabulary.token(id)),
        })
        .collect();
}

/// Batch sizes in records.
const BATCH_SIZES: [u64; 8] = [1, 4, 8, 16, 32, 64, 128, 256];
/// Batch sizes in tokens, padding included.
const BUDGETS: [u64; 8] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// Minimum number of batches per epoch for a batch size to be plotted.
const MIN_BATCHES: u64 = 4;
/// Shortest and longest rows of packed batches, in tokens.
const ROW_TOKENS: std::ops::RangeInclusive<u64> = 64..=131_072;

/// Padding curves: shares of padding from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Batch size in records, then the padding of random, bucketed and packed batches.
    pub by_records: Vec<(u64, [f64; 3])>,
    /// The same by token budget.
    pub by_tokens: Vec<(u64, [f64; 3])>,
    /// Tokens per packed row in `by_records`.
    pub row_tokens: u64,
    /// Number of records in the simulation of random batches with a budget; `None` if these are all.
    pub simulated: Option<u64>,
}

impl Curves {
    /// Names of the curves.
    pub const NAMES: [&'static str; 3] = ["random", "bucketed", "packed"];
}

/// Computes the curves for the loader's own batch plans, from the counts of all lengths.
fn gather_padding(lengths: &impl Lengths) -> Result<Curves> {
    let records = lengths.records();
    // Nearest rank, as in the length index.
    let p99_rank = (u128::from(records) * 99).div_ceil(100).saturating_sub(1);
    let (mut p99, mut longest, mut tokens) = (0, 0, 0u64);
    for run in lengths.runs()? {
        let run = run?;
        if u128::from(run.first_rank) <= p99_rank {
            p99 = run.length;
        }
        longest = run.length;
        tokens = tokens.saturating_add(run.length.saturating_mul(run.count));
    }
    let row_tokens = p99.max(1).next_power_of_two().clamp(*ROW_TOKENS.start(), *ROW_TOKENS.end());
    let simulated = (records > SIMULATED_RECORDS).then_some(SIMULATED_RECORDS);
    let mut curves = Curves { row_tokens, simulated, ..Curves::default() };
    let packed_rows = packed_padding(lengths, row_tokens)?;
    // With only a few batches per epoch, the last one distorts the padding.
    for size in BATCH_SIZES.into_iter().filter(|size| *size == 1 || *size * MIN_BATCHES <= records) {
        let found = padding(lengths, BatchSize::BatchSize(size))?;
        curves.by_records.push((size, [found.random, found.bucketed, packed_rows]));
    }
    // With a budget below the length of most records, batches have one record each.
    let least = p99.clamp(1, *BUDGETS.last().unwrap_or(&1)).min(longest);
    for budget in BUDGETS.into_iter().filter(|budget| *budget >= least && *budget * MIN_BATCHES <= tokens) {
        let found = padding(lengths, BatchSize::MaxTokens(budget))?;
        curves.by_tokens.push((budget, [found.random, found.bucketed, packed_padding(lengths, budget)?]));
    }
    Ok(curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::batch::LengthsInMemory;

    fn curves_of(lengths: &[u64]) -> Result<Curves> {
        gather_padding(&LengthsInMemory::new(lengths.to_vec()))
    }

    #[test]
    fn packed_rows_hold_the_99th_percentile_by_nearest_rank() {
        // The 99th percentile of ten lengths is the longest one.
        let few: Vec<u64> = (1..10).chain([50_000]).collect();
        assert_eq!(curves_of(&few).unwrap().row_tokens, 65_536);
        let many: Vec<u64> = [10; 99].into_iter().chain([50_000]).collect();
        assert_eq!(curves_of(&many).unwrap().row_tokens, 64);
        // Budgets below the 99th percentile are left out: here, below 2,000 tokens.
        let some: Vec<u64> = [1000; 9].into_iter().chain([2000]).collect();
        assert_eq!(curves_of(&some).unwrap().by_tokens.iter().map(|p| p.0).collect::<Vec<_>>(), [2048]);
        assert_eq!(curves_of(&[]).unwrap().row_tokens, 64);
    }
}
