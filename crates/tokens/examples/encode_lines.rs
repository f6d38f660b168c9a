//! Encodes the lines of a file on all cores and compares a sample with the reference.
//!
//! ```sh
//! cargo run --release -p dsconvert-tokens --example encode_lines -- tokenizer.json corpus.txt
//! ```

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::thread;
use std::time::Instant;

use dsconvert_tokens::{EncodeError, Tokenizer, TokenizerOptions};

/// Results of one thread.
#[derive(Default)]
struct LineTotals {
    ids: usize,
    by_reference: usize,
    compared_bytes: u64,
    wrong_lines: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tokenizer, corpus] = arguments.as_slice() else {
        return Err("usage: encode_lines TOKENIZER.json CORPUS.txt".into());
    };
    let tokenizer = Tokenizer::from_json(std::fs::read(tokenizer)?, TokenizerOptions::default())?;
    let info = tokenizer.info();
    println!("{} with {} tokens, engine: {}", info.model, info.vocab_size, info.engine.name);
    if let Some(why) = &info.engine_note {
        println!("no fast engine: {why}");
    }

    let corpus = std::fs::read_to_string(corpus)?;
    let lines: Vec<&str> = corpus.lines().collect();
    let threads = thread::available_parallelism()?.get();
    let start = Instant::now();
    let results: Vec<Result<LineTotals, EncodeError>> = thread::scope(|scope| {
        let parts = lines.chunks(lines.len().div_ceil(threads).max(1));
        let handles: Vec<_> = parts.map(|part| scope.spawn(|| encode(&tokenizer, part))).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let seconds = start.elapsed().as_secs_f64();

    let mut all = LineTotals::default();
    for part in results {
        let part = part?;
        all.ids += part.ids;
        all.by_reference += part.by_reference;
        all.compared_bytes += part.compared_bytes;
        all.wrong_lines += part.wrong_lines;
    }
    println!("{} lines, {} ids, {:.1} MB/s", lines.len(), all.ids, corpus.len() as f64 / 1e6 / seconds);
    println!(
        "{} lines by the reference; {} bytes compared, {} lines wrong",
        all.by_reference, all.compared_bytes, all.wrong_lines
    );
    Ok(())
}

fn encode(tokenizer: &Tokenizer, lines: &[&str]) -> Result<LineTotals, EncodeError> {
    let mut scratch = tokenizer.scratch();
    let mut ids = Vec::new();
    let mut totals = LineTotals::default();
    for line in lines {
        ids.clear();
        let stats = tokenizer.encode(line, &mut scratch, &mut ids)?;
        totals.ids += ids.len();
        totals.by_reference += usize::from(stats.by_reference);
        // Any hash with well-mixed bits selects a sample.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(line);
        let verified = tokenizer.verify(hash, line, &ids, &stats, &mut scratch);
        totals.compared_bytes += verified.bytes;
        totals.wrong_lines += usize::from(!verified.is_right);
    }
    Ok(totals)
}
