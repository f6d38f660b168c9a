//! Benchmark of the fast engines against the reference, on one core.
//!
//! ```text
//! DSCONVERT_BENCH_TOKENIZERS=gpt2.json:bert.json DSCONVERT_BENCH_TEXTS=en.jsonl:code.txt cargo bench -p dsconvert-tokens --bench encode
//! ```
//!
//! Texts are `.jsonl` files (field `text`) or other files (one document each). Without the variables, a small tokenizer
//! and a text are generated. `DSCONVERT_BENCH_REFERENCE_MB` (default 1) limits the text that the slow
//! reference encodes; 0 means all of it, which is the differential test. Columns: MB/s of the reference, of the fast
//! engine's first pass with an empty cache, and of its second pass; the ratio of first pass to reference; the number of
//! documents whose ids differ. For each tokenizer, a line before them states its engine and how long loading takes.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Instant;

use dsconvert_tokens::{EngineChoice, Scratch, Tokenizer, TokenizerOptions};

/// Default of `DSCONVERT_BENCH_REFERENCE_MB`.
const REFERENCE_MB: usize = 1;
/// Number of measurements; the median is reported.
const ROUNDS: usize = 3;

fn main() {
    let paths = |name: &str| -> Vec<String> {
        std::env::var(name).map(|v| v.split(':').map(str::to_owned).collect()).unwrap_or_default()
    };
    let mut texts: Vec<(String, Vec<String>)> =
        paths("DSCONVERT_BENCH_TEXTS").iter().map(|p| (stem(p), documents(p))).collect();
    if texts.is_empty() {
        texts.push(("generated".to_owned(), generated_text()));
    }
    let mut tokenizers: Vec<(String, Vec<u8>)> =
        paths("DSCONVERT_BENCH_TOKENIZERS").iter().map(|p| (stem(p), std::fs::read(p).unwrap())).collect();
    if tokenizers.is_empty() {
        tokenizers.push(("generated".to_owned(), trained_tokenizer(&texts[0].1)));
    }
    let megabytes =
        std::env::var("DSCONVERT_BENCH_REFERENCE_MB").map_or(REFERENCE_MB, |v| v.parse().unwrap());
    let limit = if megabytes == 0 { usize::MAX } else { megabytes << 20 };
    println!(
        "{:20} {:12} {:>7} {:>9} {:>7} {:>7} {:>6} {:>7}",
        "tokenizer", "text", "MB", "reference", "first", "second", "ratio", "differ"
    );
    for (name, json) in &tokenizers {
        let tokenizer = Tokenizer::from_json(json.clone(), TokenizerOptions::default()).unwrap();
        println!(
            "{name}: {}{}, loaded in {:.0} ms; the reference in {:.0} ms",
            tokenizer.info().engine.name,
            tokenizer.info().engine_note.as_deref().map_or(String::new(), |n| format!(" ({n})")),
            load_time(json, EngineChoice::Auto),
            load_time(json, EngineChoice::Reference),
        );
        for (text, documents) in &texts {
            measure(name, json, text, documents, limit);
        }
    }
}

/// Returns the median time in milliseconds to load a tokenizer, which several threads do together.
fn load_time(json: &[u8], engine: EngineChoice) -> f64 {
    let load = |_| {
        let (json, options) = (json.to_vec(), TokenizerOptions { engine, ..Default::default() });
        let start = Instant::now();
        std::hint::black_box(Tokenizer::from_json(json, options).unwrap());
        start.elapsed().as_secs_f64() * 1e3
    };
    median((0..2 * ROUNDS + 1).map(load).collect())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn measure(name: &str, json: &[u8], text: &str, documents: &[String], limit: usize) {
    let tokenizer = Tokenizer::from_json(json.to_vec(), TokenizerOptions::default()).unwrap();
    let options = TokenizerOptions { engine: EngineChoice::Reference, ..Default::default() };
    let reference = Tokenizer::from_json(json.to_vec(), options).unwrap();
    let bytes: usize = documents.iter().map(String::len).sum();
    // The sample is spread over the whole text, because the first difference can be far from its start.
    let sample: Vec<&String> = documents.iter().step_by(bytes.div_ceil(limit).max(1)).collect();
    let sampled: usize = sample.iter().map(|d| d.len()).sum();

    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    // Alternates between the engines, so that a busy machine slows all of them.
    for _ in 0..ROUNDS {
        let mut scratch = tokenizer.scratch();
        times[1].push(bytes as f64 / encode_all(&tokenizer, documents, &mut scratch));
        times[2].push(bytes as f64 / encode_all(&tokenizer, documents, &mut scratch));
        times[0].push(sampled as f64 / encode_all(&reference, &sample, &mut scratch));
    }
    let [slow, first, second] = times.map(|speeds| median(speeds) / 1e6);

    let mut scratch = tokenizer.scratch();
    let (mut expected, mut ids, mut differ) = (Vec::new(), Vec::new(), 0);
    for document in sample {
        expected.clear();
        ids.clear();
        tokenizer.encode_reference(document, &mut scratch, &mut expected).unwrap();
        tokenizer.encode(document, &mut scratch, &mut ids).unwrap();
        differ += usize::from(ids != expected);
    }
    println!(
        "{name:20} {text:12} {:7.1} {slow:9.2} {first:7.1} {second:7.1} {:6.1} {differ:7}",
        bytes as f64 / 1e6,
        first / slow
    );
}

/// Encodes all documents and returns the time in seconds.
fn encode_all<S: AsRef<str>>(tokenizer: &Tokenizer, documents: &[S], scratch: &mut Scratch) -> f64 {
    let mut out = Vec::new();
    let start = Clock::start();
    for document in documents {
        out.clear();
        tokenizer.encode(document.as_ref(), scratch, &mut out).unwrap();
        std::hint::black_box(&out);
    }
    start.seconds()
}

/// Clock for CPU time where the system reports it, because other programs may be running; otherwise for wall-clock
/// time.
struct Clock {
    wall: Instant,
    processor: Option<f64>,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), processor: Self::processor() }
    }

    fn processor() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
    }

    fn seconds(&self) -> f64 {
        match (self.processor, Self::processor()) {
            (Some(start), Some(end)) => end - start,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn stem(path: &str) -> String {
    Path::new(path).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

fn documents(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    if !path.ends_with(".jsonl") {
        return vec![text];
    }
    text.lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["text"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// Generates words of an invented language: frequent short ones and rare long ones.
fn generated_text() -> Vec<String> {
    let syllables = ["ba", "do", "ki", "ru", "sha", "ten", "wo", "lim", "qu", "é", "ost", "ing"];
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    (0..2000)
        .map(|_| {
            let mut document = String::new();
            for _ in 0..200 {
                for _ in 0..=random(4).min(random(6)) {
                    document.push_str(syllables[random(syllables.len())]);
                }
                document.push_str([" ", " ", " ", " ", ", ", ".\n", " 12 "][random(7)]);
            }
            document
        })
        .collect()
}

/// Trains a byte-level BPE tokenizer on `text`.
fn trained_tokenizer(text: &[String]) -> Vec<u8> {
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(2000)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut trainer: tokenizers::models::TrainerWrapper = trainer.into();
    tokenizer.train(&mut trainer, text.iter().map(String::as_str)).unwrap();
    tokenizer.to_string(false).unwrap().into_bytes()
}
