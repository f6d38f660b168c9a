//! Resizing from JPEG to JPEG or to planes without converting to RGB.
//!
//! Through RGB, converting a JPEG with half-resolution chroma to another such image means upsampling, conversion to RGB,
//! resizing, conversion back and downsampling. Here, each component is resized directly from its stored resolution to
//! its output resolution. That is half the work, and rounds once instead of five times.

mod kernel;
mod placement;

use dsconvert_jpeg::{FastDecoder, PlanesRequest, Scale, StoredPlane};

use self::kernel::FilterKernel;
use self::placement::Placement;
use super::geometry::{Size, SizePlan};
use super::option_values::Filter;
use super::orientation::Orientation;
use super::pixels::{self, Pixels};
use super::source::CheckedImage;
use crate::decode::resample::{Buffers, Kernel, MAX_STEP, Plane, Weights, resample};

/// The value of a chroma sample without color.
const NO_COLOR: u8 = 128;

/// Buffers that are reused from one image to the next.
#[derive(Debug, Default)]
pub(super) struct Planar {
    buffers: Buffers,
    planes: [Pixels; 3],
    transposed: Pixels,
}

impl Planar {
    /// Returns the bytes kept for the next image.
    pub(super) fn kept_bytes(&self) -> usize {
        let planes = self.planes.iter().chain([&self.transposed]);
        planes.map(|plane| plane.data.capacity()).sum::<usize>() + self.buffers.bytes()
    }

    /// Decodes the file of `source`, and resizes, crops and rotates it by `plan`, to planes with one chroma sample per
    /// `spread` pixels in each direction. Returns `None` if the file cannot be converted this way.
    pub(super) fn convert(
        &mut self,
        source: &CheckedImage<'_>,
        plan: &SizePlan,
        reduction: u32,
        filter: Filter,
        spread: u32,
        decoder: &mut FastDecoder,
    ) -> Option<&[Pixels; 3]> {
        let (size, orientation) = (source.structure.size, source.structure.orientation);
        let placement = Placement {
            source: size,
            reduction,
            resized: plan.stored_resized(orientation),
            crop: plan.stored_crop(orientation),
            orientation,
        };
        let kernel = FilterKernel::of(filter);
        let request = PlanesRequest {
            size: (size.width as usize, size.height as usize),
            scale: Scale::from_denominator(reduction)?,
            region: placement.region(kernel.support()),
            reads_to_end: true,
        };
        let stored = decoder.decode_planes(source.bytes, request).ok()?;
        let Self { buffers, planes, transposed } = self;
        let [luma, chroma @ ..] = planes;
        fill(&[stored.luma], 1, &placement, kernel, buffers, std::slice::from_mut(luma))?;
        match stored.chroma {
            Some(stored) => fill(&stored, spread, &placement, kernel, buffers, chroma)?,
            None => {
                for plane in chroma {
                    plane.reshape(covering(placement.crop.size, spread), 1);
                    plane.data.fill(NO_COLOR);
                }
            }
        }
        if orientation.transposes() {
            for plane in planes.iter_mut() {
                pixels::orient(plane, Orientation::Transpose, transposed);
                std::mem::swap(plane, transposed);
            }
        }
        Some(planes)
    }
}

/// Resizes components of one shape to planes with one sample per `per_sample` pixels in each direction.
fn fill(
    stored: &[StoredPlane<'_>],
    per_sample: u32,
    placement: &Placement,
    kernel: FilterKernel,
    buffers: &mut Buffers,
    out: &mut [Pixels],
) -> Option<()> {
    let (across, down) = placement.axes(stored.first()?, per_sample);
    if across.step.abs().max(down.step.abs()) > MAX_STEP {
        return None;
    }
    let (across, down) = (Weights::new(across, kernel), Weights::new(down, kernel));
    let size = covering(placement.crop.size, per_sample);
    for (&StoredPlane { samples, stride, left, top, .. }, out) in stored.iter().zip(out) {
        out.reshape(size, 1);
        resample(Plane { samples, stride, left, top }, &across, &down, buffers, &mut out.data)?;
    }
    Some(())
}

/// Returns the number of samples that cover `size` pixels, with one sample per `per_sample` pixels in each direction.
fn covering(size: Size, per_sample: u32) -> Size {
    Size::new(size.width.div_ceil(per_sample), size.height.div_ceil(per_sample))
}
