//! Memory estimates of conversions, made before they start. The pipeline uses them for its memory budget.

use super::geometry::SizePlan;
use super::source::CheckedImage;
use crate::decode::ImageType;

/// Memory of an AVIF image per pixel, without its conversion.
const AVIF_BYTES_PER_PIXEL: u64 = 40;
/// Memory of every conversion in addition to its pixels.
const FIXED_BYTES: u64 = 1 << 20;

/// Returns an upper estimate of the memory that a conversion needs.
pub(super) fn memory_bytes(source: &CheckedImage<'_>, plan: &SizePlan) -> u64 {
    let pixels = source.structure.size.pixels();
    let decoded = match &source.jpeg {
        // Component planes, upsampled rows and the interleaved image. In addition, for several scans the coefficients,
        // 16 bits each; for one scan its data without stuffing.
        Some(header) => {
            let components = header.frame.components as u64;
            let keeps_coefficients = header.has_several_scans(source.bytes);
            // Components are padded to whole MCUs, with sides of up to 32 pixels.
            let side = |side: u32| u64::from(side.next_multiple_of(8 * header.frame.max_factor));
            let pixels = side(source.structure.size.width) * side(source.structure.size.height);
            let scans =
                if keeps_coefficients { pixels * (2 * components + 1) } else { source.bytes.len() as u64 };
            // CMYK samples are in memory together with their RGB pixels.
            pixels * (4 + components + if components == 4 { 4 } else { 0 }) + scans
        }
        // Three samples and alpha of 16 bits, twice in the decoder (a picture and its copy with film grain) and once here,
        // 4 bytes as decoded, 4 as converted, and the state of blocks.
        None if source.image_type == ImageType::Avif => pixels * AVIF_BYTES_PER_PIXEL,
        // Up to 8 bytes as stored, 4 as converted, and the same again inside the decoder.
        None => (pixels * 20).saturating_add(source.structure.decoder_bytes),
    };
    // The rows of the resize, the oriented, cropped and padded image, and its encoded form.
    let between = u64::from(plan.source.longer()) * u64::from(plan.resized.longer()) * 4;
    let shaped = (plan.resized.pixels() + plan.canvas.pixels()) * 8;
    let tables = coefficient_bytes(plan.source.width, plan.resized.width)
        + coefficient_bytes(plan.source.height, plan.resized.height);
    decoded + between.min(pixels * 4 + shaped) + shaped + tables + FIXED_BYTES
}

/// Returns the size of the filter coefficients of a resize along one axis: 64 bits each, and 32 bits as integers. The
/// widest filter, Lanczos, reaches over 3 pixels of the smaller side. Large for very long and thin images only.
fn coefficient_bytes(source: u32, resized: u32) -> u64 {
    if source == resized {
        return 0;
    }
    let (source, resized) = (u64::from(source), u64::from(resized.max(1)));
    let taps = 2 * (3 * source).div_ceil(resized).max(3) + 1;
    taps * resized * 12
}
