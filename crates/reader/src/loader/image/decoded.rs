//! Decodes images directly into the array of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::panics::caught;
use dsconvert_dataset::sample::{Reject, RejectCode, Value};
use dsconvert_dataset::schema::{Field, FieldType, IMAGE};

use super::ImageRows;
use crate::Record;
use crate::decode::{
    Decoder, PixelOrder, PlanesChroma, PlanesFile, Size, SourceRegion, Stored, stored_size as file_size,
};
use crate::loader::array::Array;
use crate::loader::augment::View;
use crate::loader::batch::{BlankRow, Column};
use crate::loader::options::{Crop, ImageLayout};
use crate::loader::stored::fill_rest;

/// Buffers that a thread reuses between images.
pub(in crate::loader) type DecodeScratch = Decoder;

/// The samples of the images of a batch.
struct BatchSamples {
    pixels: SampleLayout,
    /// Shape of the array.
    shape: Vec<usize>,
    /// Bytes of one image and of the batch.
    bytes: (usize, usize),
}

/// How the samples of an image are laid out.
#[derive(Debug, Clone, Copy)]
enum SampleLayout {
    /// Pixel by pixel, before channels are separated.
    Interleaved {
        /// Samples per pixel.
        channels: usize,
    },
    /// Plane by plane.
    Planes(PlanesChroma),
}

impl ImageRows<'_> {
    /// Returns the array of all images, and the rows that stayed blank. If `stop` is set, it ends early with an error
    /// that is never returned to a caller.
    pub(in crate::loader) fn column(
        &self,
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
    ) -> Result<(Column, Vec<BlankRow>)> {
        let (height, width) = self.size()?;
        let samples = self.samples(height, width)?;
        let (bytes, total) = samples.bytes;
        let mut out = self.pool.take_many::<u8>(total)?;
        let mut blank = Vec::new();
        for (row, (record, pixels)) in self.records.iter().zip(out.chunks_exact_mut(bytes.max(1))).enumerate()
        {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted(0), "the loader was stopped"));
            }
            if let Err(reject) = self.decode((row, record), &samples, (height, width), scratch, pixels)? {
                blank.push(self.blank(row, record, &reject)?);
                pixels.fill(0);
            }
        }
        fill_rest(&mut out, self.records.len() * bytes, total, 0);
        let shape = samples.shape;
        Ok((Column::Array(Array::new(shape, out, Some(Arc::clone(self.pool)))), blank))
    }

    /// Returns how the samples of images of `height` × `width` pixels are laid out.
    fn samples(&self, height: usize, width: usize) -> Result<BatchSamples> {
        if let Some(channels) = self.options.channels.count() {
            let shape = match self.options.layout {
                ImageLayout::Hwc => vec![self.rows, height, width, channels],
                ImageLayout::Chw => vec![self.rows, channels, height, width],
            };
            let bytes = self.bytes(height, width, channels)?;
            return Ok(BatchSamples { pixels: SampleLayout::Interleaved { channels }, shape, bytes });
        }
        let mut files = self.records.iter().filter_map(|record| self.encoded(record).ok().flatten());
        let file = files.next().and_then(|file| PlanesFile::read(file).ok());
        let chroma = file.map_or(PlanesChroma::S420, |file| file.chroma);
        let shape = match chroma {
            PlanesChroma::None => vec![self.rows, 1, height, width],
            PlanesChroma::S444 => vec![self.rows, 3, height, width],
            PlanesChroma::S420 if height % 2 + width % 2 > 0 => {
                let what = format!(
                    "planes of {width}×{height} pixels have no place in one array: sides must be even"
                );
                return Err(Error::usage(what).help("crop to even sides, or load RGB"));
            }
            PlanesChroma::S420 => vec![self.rows, height + height / 2, width],
        };
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let bytes = self.bytes(rows, columns, if shape.len() == 4 { shape[1] } else { 1 })?;
        Ok(BatchSamples { pixels: SampleLayout::Planes(chroma), shape, bytes })
    }

    /// Returns the number of bytes of one image and of the whole batch, with `pixel` bytes per pixel. The sizes come
    /// from records, so their product may be any number.
    pub(super) fn bytes(&self, height: usize, width: usize, pixel: usize) -> Result<(usize, usize)> {
        let bytes = height.checked_mul(width).and_then(|area| area.checked_mul(pixel));
        let total = bytes.and_then(|bytes| bytes.checked_mul(self.rows));
        match bytes.zip(total) {
            Some((bytes, total)) if bytes.max(total) <= isize::MAX as usize => Ok((bytes, total)),
            _ => {
                Err(Error::usage("the batch exceeds the address space")
                    .help("use a smaller batch size or crop"))
            }
        }
    }

    /// Returns the height and width of every image of the batch.
    pub(super) fn size(&self) -> Result<(usize, usize)> {
        match self.options.crop {
            Crop::Center { height, width } | Crop::RandomResized { height, width, .. } => {
                Ok((height as usize, width as usize))
            }
            Crop::None => {
                let with_file = self.records.iter().find(|r| matches!(self.encoded(r), Ok(Some(_))));
                match with_file.or(self.records.first()) {
                    Some(first) => {
                        self.size_of(first).map(|size| (size.height as usize, size.width as usize))
                    }
                    None => Ok(self.shape.map_or((0, 0), |s| (s.height as usize, s.width as usize))),
                }
            }
        }
    }

    /// Returns the size of the image in the field of `record`. Additional images may have other sizes than the record;
    /// masks and samples have the same.
    fn size_of(&self, record: &Record) -> Result<Size> {
        let is_further =
            self.field().is_some_and(|field| field.name != IMAGE && field.ty == FieldType::Image);
        let own = match self.encoded(record)? {
            Some(encoded) if is_further && self.raw_channels.is_none() => file_size(encoded),
            _ => None,
        };
        // If a file has no size, the decoder reports why.
        own.map_or_else(|| stored_size(record), Ok)
    }

    /// Decodes the image of `record` into the samples `out` of its row. The inner error is a reject of its bytes.
    fn decode(
        &self,
        (row, record): (usize, &Record),
        samples: &BatchSamples,
        (height, width): (usize, usize),
        scratch: &mut DecodeScratch,
        out: &mut [u8],
    ) -> Result<Result<(), Reject>> {
        let Some(encoded) = self.encoded(record)? else {
            out.fill(0);
            return Ok(Ok(()));
        };
        let (size, view) = self.view(row, record, (height, width))?;
        let part = SourceRegion { left: view.left, top: view.top, width: view.width, height: view.height };
        let target = Size { width: view.out_width, height: view.out_height };
        let image = Stored { bytes: encoded, size, raw_channels: self.raw_channels };
        let decoded = caught(|| match samples.pixels {
            SampleLayout::Interleaved { channels } => {
                let is_planar = self.options.layout == ImageLayout::Chw;
                let order = PixelOrder { channels, is_mirrored: view.mirrored, is_planar };
                scratch.arranged(image, part, target, order, out)
            }
            SampleLayout::Planes(chroma) => scratch.planes(image, (part, view.mirrored), target, chroma, out),
        });
        Ok(decoded.unwrap_or_else(|panic| {
            // The panic may have left the buffers inconsistent.
            *scratch = DecodeScratch::default();
            Err(panic.into_reject())
        }))
    }

    /// Returns the size of the image of `record` and its view, which is the same for all images and masks of one size in
    /// the record.
    pub(super) fn view(
        &self,
        row: usize,
        record: &Record,
        (height, width): (usize, usize),
    ) -> Result<(Size, View)> {
        let size = self.size_of(record)?;
        let view = View::of(self.options, size.width, size.height, &mut self.random(row, record));
        if (view.out_height as usize, view.out_width as usize) != (height, width) {
            let name = self.name();
            let what = format!(
                "{name} has {}×{} pixels, but the first image of its batch has {width}×{height}",
                size.width, size.height
            );
            let leave_out = match self.field() {
                Some(field) if field.name != IMAGE => ", or leave it out of fields",
                _ => "",
            };
            let help = format!(
                "set center_crop or random_resized_crop, batch images of one size with bucket=\"shape\", use batches of \
                 1, or convert to one size with resize and crop{leave_out}"
            );
            return Err(Error::usage(what).at_row(record.ordinal()).help(help));
        }
        Ok((size, view))
    }

    /// Returns the file in the field, or `None` if the field is null.
    pub(super) fn encoded<'r>(&self, record: &'r Record) -> Result<Option<&'r [u8]>> {
        match record.values().get(self.field_index) {
            Some(Value::Bytes(encoded)) => Ok(Some(encoded)),
            Some(Value::Null) if self.field().is_none_or(|field| field.name != IMAGE) => Ok(None),
            _ => Err(Error::corrupt("the record has no image").at_row(record.ordinal())),
        }
    }

    fn field(&self) -> Option<&Field> {
        self.source.schema().fields.get(self.field_index)
    }

    /// Returns how the field is named in messages.
    fn name(&self) -> String {
        match self.field() {
            Some(field) if field.name != IMAGE => format!("the field {:?}", field.name),
            _ => "the image".to_owned(),
        }
    }

    /// Returns the row of a record that cannot be decoded, or an error if it must not be blank.
    pub(super) fn blank(&self, row: usize, record: &Record, reject: &Reject) -> Result<BlankRow> {
        let kind = match reject.code {
            RejectCode::Unsupported | RejectCode::UnknownType => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        };
        let (ordinal, source) = (record.ordinal(), self.source.name());
        let key = record.key().map(|key| format!(", key {key:?}")).unwrap_or_default();
        let what = format!(
            "{} of record {ordinal} of split {source:?}{key} cannot be decoded: {}",
            self.name(),
            reject.message
        );
        let error = self.source.at_record(Error::new(kind, what), ordinal);
        match self.options.may_be_blank() {
            true => Ok(BlankRow { row, record: ordinal, error }),
            false => Err(error),
        }
    }
}

/// Fails when this build cannot decode images.
pub(in crate::loader) fn check_build() -> Result<()> {
    Ok(())
}

/// Returns the size of the stored image.
fn stored_size(record: &Record) -> Result<Size> {
    match (record.width(), record.height()) {
        (Some(width @ 1..), Some(height @ 1..)) => Ok(Size { width, height }),
        _ => Err(Error::usage("the record has no width and height")
            .at_row(record.ordinal())
            .help("select the fields \"width\" and \"height\", too")),
    }
}
