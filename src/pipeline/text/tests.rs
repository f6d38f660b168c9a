//! Tests of wrong tokenizer output, and of refused URLs.

use super::*;
use crate::options::{Existing, MaxRejects, OutputOptions, RunOptions, SourceSpec, default_memory_bytes};
use crate::pipeline::{ImageInput, ImagesJob, ImagesOptions, Progress, Stop};
use crate::recipe::ImagesRecipe;
use crate::source::items::metadata::placed::MetadataFile;
use crate::source::items::text::kind::Documents;
use crate::source::list::files_from::FilesFrom;
use crate::transform::text::{Tokenizer, TokenizerOptions, Verify};

/// Number of documents per unit.
const DOCUMENTS: u64 = 40;

// Builds without debug assertions cannot create this tokenizer.
#[cfg(debug_assertions)]
#[test]
fn a_unit_with_wrong_tokens_is_redone_by_the_reference_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let sources = dir.path().join("in");
    std::fs::create_dir(&sources).unwrap();
    // Each file is a unit. The wrong word is in the middle of the second one.
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
        let mut options = TextOptions::new(vec![source], tokenizer, output);
        options.recipe.documents = Documents::Line;
        let job = TextJob::plan(options);
        let job = job.unwrap();
        let options = RunOptions {
            out: dir.path().join(format!("out-{threads}")),
            scratch: None,
            threads,
            memory_bytes: default_memory_bytes(1),
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
        // Documents of the redone unit are not verified, because they were encoded by the reference itself.
        assert_eq!(manifest.notes.get("verified_documents"), Some(&(2 * DOCUMENTS)));
        assert_eq!(manifest.counts.converted, 3 * DOCUMENTS);
    }
}

#[test]
fn urls_are_refused_before_anything_is_created() {
    let url = || std::path::PathBuf::from("hf://bucket/x");
    let source = |path| vec![SourceSpec { label: "x".to_owned(), path }];
    let text = |sources, input| {
        let tokenizer = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
        TextJob::plan(TextOptions { input, ..TextOptions::new(sources, tokenizer, OutputOptions::default()) })
            .map(drop)
    };
    let images = |sources, input| {
        ImagesJob::plan(ImagesOptions {
            annotations: Vec::new(),
            sources,
            input,
            exclude: Vec::new(),
            recipe: ImagesRecipe::default(),
        })
        .map(drop)
    };
    let dir = tempfile::tempdir().unwrap();
    let list = FilesFrom { list: url(), null: false };
    let table = MetadataFile { path: url(), path_field: "file_name".to_owned(), keep: None };
    let here = || source(dir.path().to_owned());
    let run = RunOptions {
        out: "hf://bucket/x".into(),
        scratch: None,
        threads: 1,
        memory_bytes: default_memory_bytes(1),
        existing: Existing::Refuse,
        max_rejects: MaxRejects::Count(0),
    };
    std::fs::write(dir.path().join("a.txt"), "a").unwrap();
    let tokenizer = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
    let job = TextJob::plan(TextOptions::new(here(), tokenizer, OutputOptions::default())).unwrap();
    let (scheme, remote) = ("has the unsupported scheme hf://", "is a URL, not a local path");
    for (option, reason, refused) in [
        ("source", scheme, text(source(url()), TextInput::Walk)),
        ("source", scheme, images(source(url()), ImageInput::Walk)),
        ("files_from", remote, text(here(), TextInput::FilesFrom(list.clone()))),
        ("files_from", remote, images(here(), ImageInput::FilesFrom(list))),
        ("metadata", remote, images(here(), ImageInput::Metadata(table))),
        ("out", scheme, crate::pipeline::check_output(&run, &[])),
        ("out", scheme, job.run(&run, &Progress::default(), &Stop::default()).map(drop)),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Usage, "{option}: {error}");
        assert_eq!(error.to_string(), format!("{option}: \"hf://bucket/x\" {reason}"));
    }
}
