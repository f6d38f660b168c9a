//! Benchmark of image engines and their stages, per core: `cargo bench --bench image_engines`.
//!
//! Set `DSCONVERT_BENCH_IMAGES` to a folder of JPEG files, which is read recursively. Without it, synthetic pictures
//! are used. They are smoother than photographs, so every engine is faster on them. `DSCONVERT_BENCH_ROUNDS` (default
//! 5) is the number of times that each engine converts each image.
//!
//! One thread runs all engines in turn on each image, and the fastest round of each image counts. Other load therefore
//! affects all engines alike and mostly cancels out. Compare ratios: absolute figures depend on the machine.
//! `benches/peers/` does the same with Pillow and OpenCV.
#![allow(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark may panic")]

use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dsconvert::transform::image::{ImageOptions, ImageOutcome, ImageScratch, ImageTransform};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use libjpeg_turbo_rs::{Decoder, PixelFormat, ScalingFactor, Subsampling};

const QUALITY: u8 = 90;

/// The resize operation that the engines are compared on.
#[derive(Clone, Copy)]
enum Task {
    Shorter(u32),
    Longer(u32),
}

impl Task {
    fn target(self, width: u32, height: u32) -> (u32, u32) {
        let (side, wanted) = match self {
            Task::Shorter(n) => (width.min(height), n),
            Task::Longer(n) => (width.max(height), n),
        };
        if side <= wanted {
            return (width, height);
        }
        ((width * wanted + side / 2) / side, (height * wanted + side / 2) / side)
    }

    fn text(self) -> String {
        match self {
            Task::Shorter(n) => format!("shorter:{n}"),
            Task::Longer(n) => format!("longer:{n}"),
        }
    }
}

/// Time of each stage; zero if an engine does not report it.
#[derive(Clone, Copy, Default)]
struct Stages {
    decode: Duration,
    resize: Duration,
    encode: Duration,
}

trait Engine {
    fn name(&self) -> &'static str;
    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages>;
}

/// The transform of the `dsconvert` command.
struct Dsconvert(ImageTransform, ImageScratch);

impl Engine for Dsconvert {
    fn name(&self) -> &'static str {
        "dsconvert"
    }

    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages> {
        matches!(self.0.convert(jpeg, &mut self.1), Ok(ImageOutcome::Converted(_))).then(Stages::default)
    }
}

/// The transform through RGB, as for outputs other than JPEG, with libjpeg-turbo-rs as the encoder.
struct ThroughRgb(ImageTransform, ImageScratch);

impl Engine for ThroughRgb {
    fn name(&self) -> &'static str {
        "dsconvert, through RGB"
    }

    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages> {
        let pixels = self.0.pixels(jpeg, &mut self.1, || ()).ok()?;
        let (w, h) = (pixels.width as usize, pixels.height as usize);
        libjpeg_turbo_rs::compress(pixels.samples, w, h, PixelFormat::Rgb, QUALITY, Subsampling::S420)
            .ok()?;
        Some(Stages::default())
    }
}

/// libjpeg-turbo-rs, fast_image_resize and libjpeg-turbo-rs in a bare loop through RGB.
struct Turbo {
    task: Task,
    is_scaled: bool,
    resizer: Resizer,
    decoded: Vec<u8>,
    resized: Vec<u8>,
}

impl Engine for Turbo {
    fn name(&self) -> &'static str {
        if self.is_scaled { "turbo, reduced decode, RGB" } else { "turbo, full decode, RGB" }
    }

    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages> {
        let start = Instant::now();
        let mut decoder = Decoder::new(jpeg).ok()?;
        let (width, height) = (decoder.header().width() as u32, decoder.header().height() as u32);
        let target = self.task.target(width, height);
        let fits = |n: &u32| width / n >= 2 * target.0 && height / n >= 2 * target.1;
        let reduction = if self.is_scaled { [8, 4, 2].into_iter().find(fits).unwrap_or(1) } else { 1 };
        decoder.set_scale(ScalingFactor::try_new(1, reduction).ok()?);
        decoder.set_output_format(PixelFormat::Rgb);
        self.decoded.resize(decoder.output_buffer_size().ok()?, 0);
        let info = decoder.decode_image_into(&mut self.decoded).ok()?;
        let decode = start.elapsed();
        let size = (info.width as u32, info.height as u32);
        let resize = resize_rgb(&mut self.resizer, &self.decoded, size, target, &mut self.resized);
        let start = Instant::now();
        let (w, h) = (target.0 as usize, target.1 as usize);
        libjpeg_turbo_rs::compress(&self.resized, w, h, PixelFormat::Rgb, QUALITY, Subsampling::S420).ok()?;
        Some(Stages { decode, resize, encode: start.elapsed() })
    }
}

/// The same loop on YCbCr planes, without color conversion.
struct TurboPlanes {
    task: Task,
    resizer: Resizer,
    planes: [Vec<u8>; 3],
}

impl Engine for TurboPlanes {
    fn name(&self) -> &'static str {
        "turbo, full decode, planes"
    }

    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages> {
        let start = Instant::now();
        let raw = Decoder::new(jpeg).ok()?.decode_raw().ok()?;
        if raw.num_components != 3 {
            return None;
        }
        let decode = start.elapsed();
        let start = Instant::now();
        let (w, h) = self.task.target(raw.width as u32, raw.height as u32);
        let sizes = [(w, h), (w.div_ceil(2), h.div_ceil(2)), (w.div_ceil(2), h.div_ceil(2))];
        for (i, (w, h)) in sizes.into_iter().enumerate() {
            let (from_w, from_h) = (raw.plane_widths[i] as u32, raw.plane_heights[i] as u32);
            let from = ImageRef::new(from_w, from_h, &raw.planes[i], PixelType::U8).ok()?;
            self.planes[i].resize((w * h) as usize, 0);
            let mut to = Image::from_slice_u8(w, h, &mut self.planes[i], PixelType::U8).ok()?;
            self.resizer.resize(&from, &mut to, &lanczos()).ok()?;
        }
        let resize = start.elapsed();
        let start = Instant::now();
        let planes: Vec<&[u8]> = self.planes.iter().map(Vec::as_slice).collect();
        let (widths, heights) = (sizes.map(|s| s.0 as usize), sizes.map(|s| s.1 as usize));
        libjpeg_turbo_rs::compress_raw(
            &planes,
            &widths,
            &heights,
            widths[0],
            heights[0],
            QUALITY,
            Subsampling::S420,
        )
        .ok()?;
        Some(Stages { decode, resize, encode: start.elapsed() })
    }
}

/// zune-jpeg, the decoder of the `image` crate, and jpeg-encoder, with the resize of `image` or of fast_image_resize.
struct Zune {
    task: Task,
    with_image: bool,
    resizer: Resizer,
    resized: Vec<u8>,
}

impl Engine for Zune {
    fn name(&self) -> &'static str {
        if self.with_image { "zune, image, jpeg-encoder" } else { "zune, fast_image_resize, jpeg-encoder" }
    }

    fn convert(&mut self, jpeg: &Bytes) -> Option<Stages> {
        let start = Instant::now();
        let mut decoder = zune_jpeg::JpegDecoder::new(Cursor::new(&jpeg[..]));
        let decoded = decoder.decode().ok()?;
        let info = decoder.info()?;
        let decode = start.elapsed();

        let size = (u32::from(info.width), u32::from(info.height));
        let (w, h) = self.task.target(size.0, size.1);
        let start = Instant::now();
        let resize = if self.with_image {
            let decoded = image::RgbImage::from_raw(size.0, size.1, decoded)?;
            self.resized =
                image::imageops::resize(&decoded, w, h, image::imageops::FilterType::Lanczos3).into_raw();
            start.elapsed()
        } else {
            resize_rgb(&mut self.resizer, &decoded, size, (w, h), &mut self.resized)
        };

        let start = Instant::now();
        let mut out = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut out, QUALITY);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
        encoder.encode(&self.resized, w as u16, h as u16, jpeg_encoder::ColorType::Rgb).ok()?;
        Some(Stages { decode, resize, encode: start.elapsed() })
    }
}

fn lanczos() -> ResizeOptions {
    ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3))
}

fn resize_rgb(
    resizer: &mut Resizer,
    from: &[u8],
    size: (u32, u32),
    target: (u32, u32),
    to: &mut Vec<u8>,
) -> Duration {
    let start = Instant::now();
    let length = (size.0 * size.1 * 3) as usize;
    let source = ImageRef::new(size.0, size.1, &from[..length], PixelType::U8x3).unwrap();
    to.resize((target.0 * target.1 * 3) as usize, 0);
    let mut target = Image::from_slice_u8(target.0, target.1, to, PixelType::U8x3).unwrap();
    resizer.resize(&source, &mut target, &lanczos()).unwrap();
    start.elapsed()
}

fn engines(task: Task) -> Vec<Box<dyn Engine>> {
    let options = ImageOptions { resize: task.text().parse().unwrap(), ..ImageOptions::default() };
    let turbo = |is_scaled| Turbo {
        task,
        is_scaled,
        resizer: Resizer::new(),
        decoded: Vec::new(),
        resized: Vec::new(),
    };
    let zune = |with_image| Zune { task, with_image, resizer: Resizer::new(), resized: Vec::new() };
    vec![
        Box::new(Dsconvert(ImageTransform::new(options.clone()).unwrap(), ImageScratch::new())),
        Box::new(ThroughRgb(ImageTransform::delivering(options).unwrap(), ImageScratch::new())),
        Box::new(TurboPlanes { task, resizer: Resizer::new(), planes: Default::default() }),
        Box::new(turbo(true)),
        Box::new(turbo(false)),
        Box::new(zune(false)),
        Box::new(zune(true)),
    ]
}

/// Reads the JPEG files below the folder, in the order of their paths.
fn read_folder(folder: &Path, files: &mut Vec<Bytes>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).expect("the folder can be read").flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        if entry.path().is_dir() {
            read_folder(&entry.path(), files);
        } else if let Ok(bytes) = std::fs::read(entry.path())
            && bytes.starts_with(&[0xff, 0xd8])
        {
            files.push(bytes.into());
        }
    }
}

/// Creates a JPEG of gradients, edges and noise.
fn synthetic_jpeg(width: usize, height: usize, seed: u32) -> Bytes {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let noise = (state >> 27) as usize;
            let edge = if (x / 37 + y / 23) % 3 == 0 { 60 } else { 0 };
            rgb.extend(
                [x * 160 / width + edge + noise, y * 160 / height + edge + noise, 90 + edge + noise]
                    .map(|v| v as u8),
            );
        }
    }
    libjpeg_turbo_rs::compress(&rgb, width, height, PixelFormat::Rgb, 92, Subsampling::S420).unwrap().into()
}

fn run(title: &str, task: Task, files: &[Bytes], rounds: usize) {
    let mut engines = engines(task);
    // Fastest round of each engine and image, with its stages.
    let mut best = vec![vec![None::<(Duration, Stages)>; files.len()]; engines.len()];
    for _ in 0..rounds {
        for (i, file) in files.iter().enumerate() {
            for (engine, best) in engines.iter_mut().zip(&mut best) {
                let start = Instant::now();
                let Some(stages) = engine.convert(file) else { continue };
                let total = start.elapsed();
                if best[i].is_none_or(|(fastest, _)| total < fastest) {
                    best[i] = Some((total, stages));
                }
            }
        }
    }
    println!(
        "\n{title}: {} images, {}, q{QUALITY} 4:2:0, one thread, best of {rounds} rounds",
        files.len(),
        task.text()
    );
    println!(
        "{:<40} {:>8} {:>9} {:>10} {:>10} {:>10}",
        "engine", "images/s", "of first", "decode ms", "resize ms", "encode ms"
    );
    let mut first = None;
    for (engine, best) in engines.iter().zip(&best) {
        let done: Vec<_> = best.iter().flatten().collect();
        let count = done.len().max(1) as f64;
        let mean = |f: fn(&(Duration, Stages)) -> Duration| {
            done.iter().map(|b| f(b)).sum::<Duration>().as_secs_f64() * 1e3 / count
        };
        let per_second = 1e3 / mean(|b| b.0);
        let ratio = per_second / *first.get_or_insert(per_second);
        println!(
            "{:<40} {per_second:>8.1} {ratio:>9.2} {:>10.3} {:>10.3} {:>10.3}  ({} done)",
            engine.name(),
            mean(|b| b.1.decode),
            mean(|b| b.1.resize),
            mean(|b| b.1.encode),
            done.len(),
        );
    }
}

fn main() {
    let rounds = std::env::var("DSCONVERT_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut files = Vec::new();
    match std::env::var_os("DSCONVERT_BENCH_IMAGES") {
        Some(folder) => read_folder(Path::new(&folder), &mut files),
        None => files.extend((0..40).map(|i| synthetic_jpeg(500, 375, i + 1))),
    }
    run("small images", Task::Shorter(256), &files, rounds);
    run("small images", Task::Longer(512), &files, rounds);
    let photos: Vec<Bytes> = (0..4).map(|i| synthetic_jpeg(4000, 3000, i + 1)).collect();
    run("photos of 4000×3000", Task::Shorter(256), &photos, rounds.min(3));
}
