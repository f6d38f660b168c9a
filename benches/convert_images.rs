//! Benchmark of a whole image conversion against the bare decode–resize–encode loop of the same engine.
//!
//! ```text
//! DSCONVERT_BENCH_IMAGES=folder cargo bench --bench convert_images
//! ```
//!
//! Without the variable, the photographs of `fixtures/` are used. Figures are the best of several rounds. The ratio to
//! the bare loop shows the overhead of the pipeline (reading, hashing, indexes, fsync).

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use bytes::Bytes;
use common::{best, best_in_turns, convert_images, path_or_fixture, source};
use dsconvert::format::Format;
use dsconvert::source::list::walk::list;
use dsconvert::transform::image::{ImageOptions, ImageScratch, ImageTransform};

fn main() {
    let path = path_or_fixture("DSCONVERT_BENCH_IMAGES", "photos");
    let options = ImageOptions { resize: "shorter:256".parse().unwrap(), ..ImageOptions::default() };
    let sources = source(&path);
    let files: Vec<Bytes> = list(&sources, false, &|_| true)
        .unwrap()
        .files
        .iter()
        .map(|file| Bytes::from(std::fs::read(file.path(&sources)).unwrap()))
        .collect();
    let transform = ImageTransform::new(options.clone()).unwrap();
    let bare = || {
        let mut scratch = ImageScratch::new();
        for file in &files {
            let _ = transform.convert(file, &mut scratch);
        }
    };
    let count = files.len() as f64;
    println!("{} files of {}", files.len(), path.display());
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let out = dir.path().join(format.name());
        let run = |threads| drop(convert_images(&path, options.clone(), format, &out, threads));
        let (bare, one) = best_in_turns(bare, || run(1));
        let two = best(|| run(2));
        println!(
            "{format:9} 1 thread {:>6.0} images/s, {:.0}% of the bare loop ({:.0}); 2 threads {:>6.0}, {:.2} times one",
            count / one,
            100.0 * bare / one,
            count / bare,
            count / two,
            one / two
        );
    }
}
