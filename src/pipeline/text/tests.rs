//! What a run does when its engine is wrong.

use super::*;
use crate::options::{DEFAULT_MEMORY_BYTES, MaxRejects, OutputOptions};
use crate::transform::text::{Tokenizer, TokenizerOptions, Verify};

/// Documents of a unit.
const DOCUMENTS: u64 = 40;

#[test]
fn a_unit_whose_engine_is_caught_is_done_again_by_the_reference_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let sources = dir.path().join("in");
    std::fs::create_dir(&sources).unwrap();
    // Units of their own. The wrong word is in the middle of the second.
    for (name, word) in [("a.txt", "right"), ("b.txt", "wrong"), ("c.txt", "right")] {
        let line = |i| if i == DOCUMENTS / 2 { word.to_owned() } else { format!("{i:0200}") };
        let lines: Vec<String> = (0..DOCUMENTS).map(line).collect();
        std::fs::write(sources.join(name), lines.join("\n")).unwrap();
    }
    let run = |verify, threads: usize| {
        let options = TokenizerOptions { verify, ..TokenizerOptions::default() };
        let output = OutputOptions { unit_bytes: Some(9000), ..OutputOptions::default() };
        let source = SourceSpec { label: "in".to_owned(), path: sources.clone() };
        let tokenizer = Tokenizer::bytes_with_fault("wrong", options).unwrap();
        let job = TextJob::plan(TextOptions {
            documents: Documents::Line,
            ..TextOptions::new(vec![source], tokenizer, output)
        });
        let job = job.unwrap();
        let options = RunOptions {
            out: dir.path().join(format!("out-{threads}")),
            threads,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            existing: Existing::Overwrite,
            max_rejects: MaxRejects::Count(0),
        };
        let manifest = job.run(&options, &Progress::default(), &Stop::default()).unwrap().manifest;
        (job.units.len(), manifest)
    };
    for threads in [1, 3] {
        let (units, manifest) = run(Verify::All, threads);
        assert_eq!(units, 3);
        assert_eq!(manifest.notes.get("units_redone"), Some(&1));
        assert_eq!(manifest.notes.get("encoded_by_reference"), Some(&DOCUMENTS));
        // Not those of the unit that was done again: there is nothing left to compare.
        assert_eq!(manifest.notes.get("verified_documents"), Some(&(2 * DOCUMENTS)));
        assert_eq!(manifest.counts.converted, 3 * DOCUMENTS);
    }
}
