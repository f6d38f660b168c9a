//! Raw image files: opened, read, decoded and resized one by one.

use std::io::Read;
use std::path::Path;

use super::{BatchWorker, DeliveredShape, LoadedBatch, RawFile, RawSource, Stopwatch, TargetKind};

use crate::storage::open_file;
use crate::transform::image::{ImageScratch, ImageTransform};

/// A folder of images.
pub(super) struct RawImages {
    pub(super) files: Vec<RawFile>,
    pub(super) transform: ImageTransform,
}

impl RawSource for RawImages {
    fn kind(&self) -> TargetKind {
        TargetKind::RawImages
    }

    fn items(&self) -> u64 {
        self.files.len() as u64
    }

    fn files(&self) -> &[RawFile] {
        &self.files
    }

    fn name(&self, item: u64) -> String {
        self.files.get(item as usize).map(|file| file.name.clone()).unwrap_or_default()
    }

    fn worker(&self) -> Box<dyn BatchWorker + '_> {
        let scratch = ImageScratch::new();
        Box::new(RawImageWorker { images: self, scratch, file: Vec::new(), batch: Vec::new() })
    }
}

/// Loads images on one thread.
struct RawImageWorker<'a> {
    images: &'a RawImages,
    scratch: ImageScratch,
    /// Bytes of the current file.
    file: Vec<u8>,
    /// Pixels of the batch.
    batch: Vec<u8>,
}

/// Reads a whole file into `bytes`, and returns the nanoseconds spent on opening and on reading it.
fn read(path: &Path, bytes: &mut Vec<u8>, lap: &mut Stopwatch) -> Result<(u64, u64), String> {
    let mut file = open_file(path, true).map_err(|e| format!("cannot be opened: {e}"))?;
    let open = lap.ns();
    bytes.clear();
    file.read_to_end(bytes).map_err(|e| format!("cannot be read: {e}"))?;
    Ok((open, lap.ns()))
}

impl RawImageWorker<'_> {
    /// Loads one image into the batch.
    fn image(&mut self, item: u64, decode: bool, out: &mut LoadedBatch) -> Result<(), String> {
        let Self { images, scratch, file, batch } = self;
        let planned = images.files.get(item as usize).ok_or("is not in the folder")?;
        let mut lap = Stopwatch::start();
        let (open, read) = read(&planned.path, file, &mut lap)?;
        out.stages.open += open;
        out.stages.read += read;
        out.bytes += file.len() as f64;
        if !decode {
            std::hint::black_box(&file);
            return Ok(());
        }
        let mut decoded = 0;
        let pixels = images.transform.pixels(file, scratch, || decoded = lap.ns());
        let shaped = lap.ns();
        // For an image that does not decode, all time counts as decoding.
        let (decoded, shaped) = if pixels.is_ok() { (decoded, shaped) } else { (decoded + shaped, 0) };
        out.stages.decode += decoded;
        out.stages.transform += shaped;
        batch.extend_from_slice(pixels.map_err(|reject| reject.message)?.samples);
        out.stages.collate += lap.ns();
        Ok(())
    }
}

impl BatchWorker for RawImageWorker<'_> {
    fn load(&mut self, items: &[u64], decode: bool, out: &mut LoadedBatch) {
        self.batch.clear();
        for &item in items {
            let mut lap = Stopwatch::start();
            let loaded = self.image(item, decode, out);
            out.add(item, lap.ns(), loaded);
        }
        std::hint::black_box(&self.batch);
    }

    fn shape(&mut self, item: u64) -> Result<DeliveredShape, String> {
        let planned = self.images.files.get(item as usize).ok_or("is not in the folder")?;
        read(&planned.path, &mut self.file, &mut Stopwatch::start())?;
        let pixels = self.images.transform.pixels(&self.file, &mut self.scratch, || ());
        let pixels = pixels.map_err(|reject| reject.message)?;
        Ok(DeliveredShape::Pixels { width: pixels.width, height: pixels.height })
    }
}
