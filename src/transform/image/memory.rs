//! How much memory a conversion needs, told before it starts: what the pipeline budgets with.

use super::container::jpeg;
use super::geometry::SizePlan;
use super::source::CheckedImage;

/// What every conversion needs beside its pixels.
const FIXED_BYTES: u64 = 1 << 20;

/// An upper estimate of the memory a conversion needs.
pub(super) fn memory_bytes(source: &CheckedImage<'_>, plan: &SizePlan) -> u64 {
    let pixels = source.structure.size.pixels();
    let decoded = match &source.jpeg {
        // Component planes, upsampled rows and the interleaved image; for several scans the coefficients, 16 bits each,
        // for one scan its data without stuffing.
        Some(header) => {
            let components = header.frame.components as u64;
            let keeps_coefficients =
                header.frame.process == jpeg::Process::Progressive || header.has_several_scans(source.bytes);
            // Components are padded to whole MCUs, of up to 32 pixels a side.
            let side = |side: u32| u64::from(side.next_multiple_of(8 * header.frame.max_factor));
            let pixels = side(source.structure.size.width) * side(source.structure.size.height);
            let scans =
                if keeps_coefficients { pixels * (2 * components + 1) } else { source.bytes.len() as u64 };
            // Inks are in memory beside the colours they become.
            pixels * (4 + components + if components == 4 { 4 } else { 0 }) + scans
        }
        // Up to 8 bytes as stored, 4 as converted, and as much again inside the decoder.
        None => pixels * 20,
    };
    // The rows of the resize, the image turned, cropped and padded, and its encoded form.
    let between = u64::from(plan.source.longer()) * u64::from(plan.resized.longer()) * 4;
    let shaped = (plan.resized.pixels() + plan.canvas.pixels()) * 8;
    decoded + between.min(pixels * 4 + shaped) + shaped + FIXED_BYTES
}
