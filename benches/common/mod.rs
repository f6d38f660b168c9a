//! Helpers for benchmarks that convert a whole dataset.

use std::path::{Path, PathBuf};
use std::time::Instant;

use dsconvert::format::Format;
use dsconvert::options::{Existing, MaxRejects, OutputOptions, RunOptions, SourceSpec};
use dsconvert::pipeline::{ImagesJob, ImagesOptions, Progress, RunOutcome, Stop, TextJob, TextOptions};
use dsconvert::recipe::{ImageFields, ImagesRecipe, Sidecars};
use dsconvert::transform::image::ImageOptions;
use dsconvert::transform::text::{Tokenizer, TokenizerOptions};

/// Number of rounds. Only the fastest counts, because other load may slow the machine.
pub const ROUNDS: usize = 5;

/// Returns the path in an environment variable, or a fixture of the repository.
pub fn path_or_fixture(variable: &str, fixture: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    std::env::var_os(variable).map_or_else(|| fixtures.join(fixture), PathBuf::from)
}

/// Returns the seconds of the fastest of [`ROUNDS`] runs.
pub fn best(mut run: impl FnMut()) -> f64 {
    (0..ROUNDS).map(|_| seconds(&mut run)).fold(f64::INFINITY, f64::min)
}

/// Returns the seconds of the fastest of [`ROUNDS`] runs of each function. Runs alternate, so that other load affects
/// both.
pub fn best_in_turns(mut first: impl FnMut(), mut second: impl FnMut()) -> (f64, f64) {
    (0..ROUNDS).fold((f64::INFINITY, f64::INFINITY), |best, _| {
        (best.0.min(seconds(&mut first)), best.1.min(seconds(&mut second)))
    })
}

fn seconds(run: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

pub fn source(path: &Path) -> Vec<SourceSpec> {
    vec![SourceSpec { label: "source".to_owned(), path: path.to_owned() }]
}

fn run_options(out: &Path, threads: usize) -> RunOptions {
    RunOptions {
        out: out.to_owned(),
        scratch: None,
        threads,
        memory_bytes: 1 << 30,
        existing: Existing::Overwrite,
        max_rejects: MaxRejects::Count(u64::MAX),
    }
}

fn images_job(path: &Path, image: ImageOptions, format: Format) -> ImagesJob {
    let recipe = ImagesRecipe {
        image_fields: ImageFields::None,
        sidecar: Sidecars::None,
        image,
        output: OutputOptions { format, ..OutputOptions::default() },
        ..ImagesRecipe::default()
    };
    let input = dsconvert::pipeline::ImageInput::Walk;
    let job = ImagesJob::plan(ImagesOptions {
        sources: source(path),
        input,
        annotations: Vec::new(),
        exclude: Vec::new(),
        recipe,
    });
    job.unwrap()
}

pub fn convert_images(
    path: &Path,
    image: ImageOptions,
    format: Format,
    out: &Path,
    threads: usize,
) -> RunOutcome {
    let job = images_job(path, image, format);
    job.run(&run_options(out, threads), &Progress::default(), &Stop::default()).unwrap()
}

pub fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_json(std::fs::read(path).unwrap(), TokenizerOptions::default()).unwrap()
}

fn text_job(path: &Path, tokenizer: Tokenizer, format: Format) -> TextJob {
    let output = OutputOptions { format, ..OutputOptions::default() };
    TextJob::plan(TextOptions::new(source(path), tokenizer, output)).unwrap()
}

pub fn convert_text(
    path: &Path,
    tokenizer: Tokenizer,
    format: Format,
    out: &Path,
    threads: usize,
) -> RunOutcome {
    let job = text_job(path, tokenizer, format);
    job.run(&run_options(out, threads), &Progress::default(), &Stop::default()).unwrap()
}
