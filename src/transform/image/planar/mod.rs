//! From JPEG to JPEG without RGB in between.
//!
//! A JPEG with chroma of half the resolution that becomes another one would be upsampled, converted to RGB, resized,
//! converted back and downsampled. Here each component is resized from the resolution it is stored at to the one it will
//! be stored at, which is half the work and rounds less often: once, where the way through RGB rounds five times.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod backend;
mod kernel;
mod placement;
mod portable;
mod resample;
#[cfg(test)]
mod tests;
mod weights;

use dsconvert_jpeg::{BaselineDecoder, PlanesRequest, Scale, StoredPlane};

use self::kernel::Kernel;
use self::placement::Placement;
use self::resample::{Plane, resample};
use self::weights::Weights;
use super::exif::Orientation;
use super::geometry::{Size, SizePlan};
use super::pixels::{self, Pixels};
use super::source::CheckedImage;
use super::text::Filter;

/// Pixels per sample of chroma in the output, in each direction.
const CHROMA_SPREAD: u32 = 2;
/// The sample of chroma without a colour.
const NO_COLOR: u8 = 128;

/// Buffers that outlive one image.
#[derive(Debug, Default)]
pub(super) struct Planar {
    row: Vec<i16>,
    planes: [Pixels; 3],
    turned: Pixels,
}

impl Planar {
    /// Bytes held for the next image.
    pub(super) fn kept_bytes(&self) -> usize {
        let planes = self.planes.iter().chain([&self.turned]);
        planes.map(|plane| plane.data.capacity()).sum::<usize>() + self.row.capacity() * size_of::<i16>()
    }

    /// Decodes the file of `source`, resizes, crops and turns it by `plan` and encodes it with chroma of half the
    /// resolution. `None` when the file is not of the kind that can be converted this way.
    pub(super) fn convert(
        &mut self,
        source: &CheckedImage<'_>,
        plan: &SizePlan,
        reduction: u32,
        filter: Filter,
        quality: u8,
        decoder: &mut BaselineDecoder,
    ) -> Option<Vec<u8>> {
        let (size, orientation) = (source.structure.size, source.structure.orientation);
        let placement = Placement {
            source: size,
            reduction,
            resized: plan.stored_resized(orientation),
            crop: plan.stored_crop(orientation),
            orientation,
        };
        let kernel = Kernel::of(filter);
        let request = PlanesRequest {
            size: (size.width as usize, size.height as usize),
            scale: Scale::from_denominator(reduction)?,
            region: placement.region(kernel.support()),
            reads_to_end: true,
        };
        let stored = decoder.decode_planes(source.bytes, request).ok()?;
        let Self { row, planes, turned } = self;
        let [luma, chroma @ ..] = planes;
        fill(&[stored.luma], 1, &placement, kernel, row, std::slice::from_mut(luma))?;
        match stored.chroma {
            Some(stored) => fill(&stored, CHROMA_SPREAD, &placement, kernel, row, chroma)?,
            None => {
                for plane in chroma {
                    plane.reshape(covering(placement.crop.size, CHROMA_SPREAD), 1);
                    plane.data.fill(NO_COLOR);
                }
            }
        }
        if orientation.transposes() {
            for plane in planes.iter_mut() {
                pixels::orient(plane, Orientation::Transpose, turned);
                std::mem::swap(plane, turned);
            }
        }
        encode(planes, quality)
    }
}

/// Resizes components of one shape to planes with a sample per `per_sample` pixels in each direction.
fn fill(
    stored: &[StoredPlane<'_>],
    per_sample: u32,
    placement: &Placement,
    kernel: Kernel,
    row: &mut Vec<i16>,
    out: &mut [Pixels],
) -> Option<()> {
    let (across, down) = placement.axes(stored.first()?, per_sample);
    let (across, down) = (Weights::new(across, kernel), Weights::new(down, kernel));
    let size = covering(placement.crop.size, per_sample);
    for (&StoredPlane { samples, stride, left, top, .. }, out) in stored.iter().zip(out) {
        out.reshape(size, 1);
        resample(Plane { samples, stride, left, top }, &across, &down, row, &mut out.data)?;
    }
    Some(())
}

/// The samples that cover `size` pixels when each stands for `per_sample` of them in both directions.
fn covering(size: Size, per_sample: u32) -> Size {
    Size::new(size.width.div_ceil(per_sample), size.height.div_ceil(per_sample))
}

fn encode(planes: &[Pixels; 3], quality: u8) -> Option<Vec<u8>> {
    let [width, height] = [planes[0].width as usize, planes[0].height as usize];
    let samples = planes.each_ref().map(|plane| plane.data.as_slice());
    libjpeg_turbo_rs::compress_raw(
        &samples,
        &planes.each_ref().map(|plane| plane.width as usize),
        &planes.each_ref().map(|plane| plane.height as usize),
        width,
        height,
        quality,
        libjpeg_turbo_rs::Subsampling::S420,
    )
    .ok()
}
