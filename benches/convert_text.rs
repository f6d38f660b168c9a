//! Benchmark of a whole text conversion against the tokenizer alone.
//!
//! ```text
//! DSCONVERT_BENCH_CORPUS=corpus.jsonl DSCONVERT_BENCH_TOKENIZER=tokenizer.json cargo bench --bench convert_text
//! ```
//!
//! Without the variables, the corpus and tokenizer of `fixtures/` are used. Figures are the best of several rounds.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use common::{best, convert_text, path_or_fixture, source, tokenizer};
use dsconvert::format::Format;
use dsconvert::source::items::json_line::WantedFields;
use dsconvert::source::items::text::fields::TextFields;
use dsconvert::source::list::walk::list;

fn main() {
    let path = path_or_fixture("DSCONVERT_BENCH_CORPUS", "corpus/stories.jsonl");
    let json = path_or_fixture("DSCONVERT_BENCH_TOKENIZER", "tokenizers/bpe.json");
    let sources = source(&path);
    let mut documents = Vec::new();
    let mut bytes = 0;
    for file in &list(&sources, false, &|_| true).unwrap().files {
        bytes += file.bytes;
        let content = std::fs::read(file.path(&sources)).unwrap();
        let wanted = WantedFields::new(&TextFields::Text("text".to_owned()), None, &[]);
        for line in content.split(|&b| b == b'\n') {
            if let Ok(found) = wanted.find(line) {
                documents.push(found.text.into_owned());
            }
        }
    }
    let megabytes = bytes as f64 / 1e6;
    let model = tokenizer(&json);
    println!("{megabytes:.1} MB of {}, engine: {}", path.display(), model.info().engine.name);
    let bare = best(|| {
        let (mut scratch, mut ids) = (model.scratch(), Vec::new());
        for document in &documents {
            ids.clear();
            let _ = model.encode(document, &mut scratch, &mut ids);
        }
    });
    println!("{:24} {:>8.1} MB/s", "tokenizer, 1 thread", megabytes / bare);
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let mut one = 0.0;
        for threads in [1, 2] {
            let out = dir.path().join(format.name());
            let seconds = best(|| drop(convert_text(&path, tokenizer(&json), format, &out, threads)));
            let note = if threads == 1 {
                one = seconds;
                format!("{:.0}% of the tokenizer alone, loading it included", 100.0 * bare / seconds)
            } else {
                format!("{:.2} times one thread", one / seconds)
            };
            println!(
                "{:24} {:>8.1} MB/s  {note}",
                format!("{format}, {threads} threads"),
                megabytes / seconds
            );
        }
    }
}
