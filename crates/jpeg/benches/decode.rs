//! Compares this decoder with libjpeg-turbo-rs and zune-jpeg on the same files, per core. Run with
//! `cargo bench -p dsconvert-jpeg`.
//!
//! `DSCONVERT_BENCH_IMAGES` is a folder of JPEG files, which is read recursively. Without it, the benchmark uses the
//! photographs of the repository. `DSCONVERT_BENCH_ROUNDS` (default 20) is the number of times each decoder decodes
//! each file.
//!
//! One thread runs all decoders in turn on each file, and the fastest round of a file counts. Other load on the machine
//! affects all decoders alike and mostly cancels out. Compare ratios; absolute figures depend on the machine.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dsconvert_jpeg::{DecodeOptions, PixelFormat, Region, Scale};
use libjpeg_turbo_rs::ScalingFactor;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A task for the decoders.
#[derive(Clone, Copy)]
enum Task {
    /// Decode the whole image to RGB.
    Whole(Scale),
    /// Decode the middle half of the width and of the height to RGB.
    Middle,
}

impl Task {
    fn text(self) -> String {
        match self {
            Task::Whole(Scale::Full) => "full size".to_owned(),
            Task::Whole(scale) => format!("1/{} of the size", scale.denominator()),
            Task::Middle => "middle half of width and height".to_owned(),
        }
    }
}

/// A JPEG file and its size.
struct BenchImage {
    bytes: Vec<u8>,
    width: usize,
    height: usize,
}

impl BenchImage {
    fn middle(&self) -> Region {
        let (width, height) = (self.width.div_ceil(2), self.height.div_ceil(2));
        Region { left: self.width / 4, top: self.height / 4, width, height }
    }
}

trait BenchDecoder {
    fn name(&self) -> &'static str;
    /// Decodes `file` into the engine's own buffer. Returns false if the engine cannot do it.
    fn decode(&mut self, file: &BenchImage, task: Task) -> bool;
}

#[derive(Default)]
struct Dsconvert {
    decoder: dsconvert_jpeg::Decoder,
    pixels: Vec<u8>,
}

impl BenchDecoder for Dsconvert {
    fn name(&self) -> &'static str {
        "dsconvert-jpeg"
    }

    fn decode(&mut self, file: &BenchImage, task: Task) -> bool {
        let options = DecodeOptions::new().format(PixelFormat::Rgb);
        let options = match task {
            Task::Whole(scale) => options.scale(scale),
            Task::Middle => options.region(file.middle()),
        };
        self.decoder.decode_into(&file.bytes, &options, &mut self.pixels).is_ok()
    }
}

#[derive(Default)]
struct Turbo {
    pixels: Vec<u8>,
}

impl BenchDecoder for Turbo {
    fn name(&self) -> &'static str {
        "libjpeg-turbo-rs"
    }

    fn decode(&mut self, file: &BenchImage, task: Task) -> bool {
        let Ok(mut decoder) = libjpeg_turbo_rs::Decoder::new(&file.bytes) else { return false };
        decoder.set_output_format(libjpeg_turbo_rs::PixelFormat::Rgb);
        match task {
            Task::Whole(scale) => {
                decoder.set_scale(ScalingFactor::try_new(1, scale.denominator() as u32).unwrap());
            }
            Task::Middle => {
                let Region { left, top, width, height } = file.middle();
                decoder.set_crop_region(left, top, width, height);
            }
        }
        let Ok(size) = decoder.output_buffer_size() else { return false };
        self.pixels.resize(size, 0);
        decoder.decode_image_into(&mut self.pixels).is_ok()
    }
}

#[derive(Default)]
struct Zune {
    pixels: Vec<u8>,
}

impl BenchDecoder for Zune {
    fn name(&self) -> &'static str {
        "zune-jpeg"
    }

    fn decode(&mut self, file: &BenchImage, task: Task) -> bool {
        if !matches!(task, Task::Whole(Scale::Full)) {
            return false;
        }
        let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(&file.bytes), options);
        if decoder.decode_headers().is_err() {
            return false;
        }
        self.pixels.resize(decoder.output_buffer_size().unwrap_or(0), 0);
        decoder.decode_into(&mut self.pixels).is_ok()
    }
}

/// Reads the JPEG files in `folder` and its subfolders, in path order.
fn read_folder(folder: &Path, files: &mut Vec<BenchImage>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).expect("the folder can be read").flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        if entry.path().is_dir() {
            read_folder(&entry.path(), files);
        } else if let Ok(bytes) = std::fs::read(entry.path())
            && let Ok(layout) = dsconvert_jpeg::JpegLayout::read_strict(&bytes)
        {
            let (width, height) = (layout.width(), layout.height());
            files.push(BenchImage { bytes, width, height });
        }
    }
}

fn run(task: Task, files: &[BenchImage], rounds: usize) {
    let mut engines: Vec<Box<dyn BenchDecoder>> =
        vec![Box::<Dsconvert>::default(), Box::<Turbo>::default(), Box::<Zune>::default()];
    // Fastest round of each engine and file.
    let mut best = vec![vec![None::<Duration>; files.len()]; engines.len()];
    for _ in 0..rounds {
        for (i, file) in files.iter().enumerate() {
            for (engine, best) in engines.iter_mut().zip(&mut best) {
                let start = Instant::now();
                if engine.decode(file, task) {
                    let time = start.elapsed();
                    best[i] = Some(best[i].map_or(time, |fastest| fastest.min(time)));
                }
            }
        }
    }
    println!("\n{}: {} files, RGB, one thread, best of {rounds} rounds", task.text(), files.len());
    println!("{:<20} {:>10} {:>10} {:>10}", "decoder", "images/s", "Mpixel/s", "vs. first");
    let mut first = None;
    for (engine, best) in engines.iter().zip(&best) {
        // Only files that this engine decodes count.
        let done: Vec<(&BenchImage, Duration)> =
            files.iter().zip(best).filter_map(|(file, time)| time.map(|time| (file, time))).collect();
        if done.is_empty() {
            continue;
        }
        let seconds = done.iter().map(|(_, time)| time.as_secs_f64()).sum::<f64>();
        let pixels = done.iter().map(|(file, _)| file.width * file.height).sum::<usize>() as f64;
        let rate = pixels / seconds / 1e6;
        let ratio = rate / *first.get_or_insert(rate);
        let per_second = done.len() as f64 / seconds;
        println!(
            "{:<20} {per_second:>10.1} {rate:>10.1} {ratio:>10.2}  ({} done)",
            engine.name(),
            done.len()
        );
    }
}

fn main() {
    let rounds = std::env::var("DSCONVERT_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let folder = std::env::var_os("DSCONVERT_BENCH_IMAGES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/photos"), PathBuf::from);
    let mut files = Vec::new();
    read_folder(&folder, &mut files);
    for task in [Task::Whole(Scale::Full), Task::Whole(Scale::Half), Task::Whole(Scale::Eighth), Task::Middle]
    {
        run(task, &files, rounds);
    }
}
