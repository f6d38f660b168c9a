//! Token statistics and decoded documents.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::padding::{self, Curves};
use super::{Problems, ReportOptions};
use crate::reader::Split;
use crate::report::vocabulary::{TokenText, Vocabulary};
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
    /// Text of the token.
    pub shown: ShownToken,
}

/// Display form of a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShownToken {
    /// Bytes of the token's text; `None` if unknown.
    pub bytes: Option<Vec<u8>>,
    /// Whether it is a special token.
    pub special: bool,
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
    /// The first tokens.
    pub tokens: Vec<(u32, ShownToken)>,
}

fn shown(vocabulary: Option<&Vocabulary>, id: u32) -> ShownToken {
    match vocabulary.and_then(|vocabulary| vocabulary.token(id)) {
        Some(TokenText { bytes, special }) => ShownToken { bytes: Some(bytes), special },
        None => ShownToken::default(),
    }
}

pub(super) fn gather(
    split: &Split,
    vocabulary: Option<&Vocabulary>,
    options: &ReportOptions<'_>,
    problems: &mut Problems,
) -> TextStats {
    let mut stats = TextStats::default();
    for ordinal in seeded(split.len(), options.documents as u64, options.seed) {
        match split.get(ordinal) {
            Ok(record) => {
                let ids = record.input_ids();
                let tokens = ids.iter().flat_map(|ids| ids.iter()).take(DOCUMENT_TOKENS);
                stats.documents.push(DecodedSample {
                    record: ordinal,
                    key: record.key().unwrap_or_default().to_owned(),
                    length: ids.map_or(0, |ids| ids.len() as u64),
                    tokens: tokens.map(|id| (id, shown(vocabulary, id))).collect(),
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
    stats.padding = problems.ok_or_add(&what, padding::gather(split));
    stats
}

/// Sums over the sampled records, of n tokens each, of which x are one token.
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

    /// Returns the 95% confidence interval of the share of the token among all tokens of `population` records, of which
    /// `records` with `tokens` tokens are a sample; `lengths` is Σ n².
    ///
    /// It is that of a ratio estimate (Cochran, *Sampling Techniques*, 1977, chapter 6), because the tokens of a record
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
        match split.get_many(chunk) {
            Ok(records) => records.iter().for_each(|record| count(record, stats)),
            Err(_) => {
                for &ordinal in chunk {
                    match split.get(ordinal) {
                        Ok(record) => count(&record, stats),
                        Err(error) => problems.add_unreadable(&error),
                    }
                }
            }
        }
    }
    stats.distinct = counts.len() as u64;
    let mut order: Vec<(u32, Occurrences)> = counts.into_iter().collect();
    order.sort_unstable_by_key(|(id, found)| (Reverse(found.count), *id));
    if vocabulary.is_some() {
        let (mut tokens, mut bytes) = (0u64, 0u64);
        for (id, Occurrences { count, .. }) in &order {
            let token = shown(vocabulary, *id);
            if let Some(text) = token.bytes.filter(|_| !token.special) {
                tokens = tokens.saturating_add(*count);
                bytes = bytes.saturating_add(count.saturating_mul(text.len() as u64));
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
            shown: shown(vocabulary, id),
        })
        .collect();
}
