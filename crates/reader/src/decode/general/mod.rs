//! A decoder of 8-bit JPEGs with Huffman codes, sequential or progressive, with any sampling factors that libjpeg reads.
//!
//! [`baseline`](super::baseline) is faster and reads what cameras and encoders commonly write. This decoder is for the
//! rest: CMYK and YCCK, components that differ in their sampling factors, components in scans of their own. Its samples
//! are those of libjpeg-turbo: the accurate integer transform, "fancy" upsampling by factors of two, repetition for
//! other integral factors.

mod bits;
mod planes;
mod scan;
mod upsample;

#[cfg(test)]
mod tests;

use dsconvert_dataset::sample::Reject;
use planes::{Coefficients, Plane};
use scan::ScanReader;
use upsample::Upsampling;

use super::jpeg::layout::{ColorModel, Layout, Process};
use super::luma;
use super::reject::{corrupt, unsupported};

/// The samples of a decoded pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    Gray,
    Rgb,
    /// Cyan, magenta, yellow and black as the file has them: inverted or not.
    Inks,
}

impl Samples {
    fn count(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Inks => 4,
        }
    }
}

/// A decoded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    pub width: usize,
    pub height: usize,
    /// Whether damage was concealed.
    pub is_damaged: bool,
}

/// Which decoder reads a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// This one.
    General,
    /// libjpeg-turbo-rs.
    Library,
}

impl Engine {
    /// The decoder of `layout`. libjpeg-turbo-rs reads one and three components with the usual sampling factors, and what
    /// is not coded in 8 bits with Huffman codes, provided that its components do not differ in unusual ways.
    pub fn of(layout: &Layout<'_>) -> Result<Self, Reject> {
        let factors: Vec<(usize, usize)> =
            layout.components.iter().map(|c| (c.horizontal, c.vertical)).collect();
        let is_usual = match factors[..] {
            [_] => true,
            [luma, (1, 1), (1, 1)] => matches!(luma, (1 | 2, 1 | 2)),
            _ => false,
        };
        let is_read_here =
            layout.precision == 8 && !layout.is_arithmetic && layout.process != Process::Lossless;
        match (is_usual, is_read_here) {
            (true, _) => Ok(Self::Library),
            (false, true) => Ok(Self::General),
            (false, false) if factors.iter().all(|of_one| *of_one == factors[0]) => Ok(Self::Library),
            (false, false) => Err(unsupported(format!(
                "a lossless, arithmetic-coded or 12-bit JPEG with the sampling factors {} is not supported",
                layout.factors_text()
            ))),
        }
    }
}

/// Decodes an image for [`Engine::General`] to 1/`reduction` (1, 2, 4 or 8) of its size. A `lenient` decode conceals
/// damage.
pub fn decode(
    layout: &Layout<'_>,
    reduction: usize,
    samples: Samples,
    lenient: bool,
    out: &mut Vec<u8>,
) -> Result<Decoded, Reject> {
    if !layout.is_complete() && !lenient {
        return Err(unsupported(format!(
            "a progressive JPEG with the sampling factors {} whose scans leave out bits is not supported",
            layout.factors_text()
        )));
    }
    let upsampling = Upsampling::of(layout, reduction)?;
    let mut planes: Vec<Plane> =
        (0..layout.components.len()).map(|index| Plane::new(layout, index, upsampling[index].side)).collect();
    let is_damaged = read(layout, &mut planes, lenient)?;
    let (width, height) = (layout.width.div_ceil(reduction), layout.height.div_ceil(reduction));
    out.clear();
    out.resize(width * height * samples.count(), 0);
    write_pixels(layout.color, &planes, &upsampling, (width, height), samples, out)?;
    Ok(Decoded { width, height, is_damaged })
}

/// Decodes all scans into `planes`. True when damage was concealed.
fn read(layout: &Layout<'_>, planes: &mut [Plane], lenient: bool) -> Result<bool, Reject> {
    let mut is_damaged = false;
    let mut conceal = |result: Result<(), Reject>| match result {
        Err(_) if lenient => {
            is_damaged = true;
            Ok(false)
        }
        other => other.map(|()| true),
    };
    if let [scan] = &layout.scans[..]
        && layout.process == Process::Sequential
    {
        // One row of MCUs at a time, so that the coefficients of the image are never in memory together.
        let mut rows: Vec<Coefficients> =
            (0..planes.len()).map(|index| Coefficients::of_mcu_row(layout, index)).collect();
        let mut reader = ScanReader::new(layout, scan);
        let mut is_going_on = true;
        for row in 0..reader.rows() {
            if is_going_on {
                is_going_on = conceal(reader.read_row(row, 0, &mut rows))?;
            }
            for (plane, blocks) in planes.iter_mut().zip(&mut rows) {
                plane.write(blocks, row)?;
                blocks.clear();
            }
        }
        return Ok(is_damaged);
    }
    let mut images: Vec<Coefficients> =
        (0..planes.len()).map(|index| Coefficients::of_image(layout, index)).collect();
    for scan in &layout.scans {
        let mut reader = ScanReader::new(layout, scan);
        // Bytes after the last block are no damage to libjpeg: some cameras write them.
        conceal((0..reader.rows()).try_for_each(|row| reader.read_row(row, row, &mut images)))?;
    }
    for (plane, blocks) in planes.iter_mut().zip(&images) {
        plane.write(blocks, 0)?;
    }
    Ok(is_damaged)
}

/// Upsamples and converts the planes to the pixels of `out`.
fn write_pixels(
    color: ColorModel,
    planes: &[Plane],
    upsampling: &[Upsampling],
    (width, height): (usize, usize),
    samples: Samples,
    out: &mut [u8],
) -> Result<(), Reject> {
    use super::baseline::rgb;
    let mut rows = vec![vec![0; width]; planes.len()];
    for (y, out) in (0..height).zip(out.chunks_exact_mut(width * samples.count())) {
        for ((row, plane), upsampling) in rows.iter_mut().zip(planes).zip(upsampling) {
            upsampling.row(plane, y, row);
        }
        match (&rows[..], color, samples) {
            ([y, ..], ColorModel::Gray | ColorModel::YCbCr, Samples::Gray) => out.copy_from_slice(y),
            ([y], _, Samples::Rgb) => write_row(out, width, |x| [y[x]; 3]),
            ([y, cb, cr], ColorModel::YCbCr, Samples::Rgb) => {
                write_row(out, width, |x| rgb(y[x], cb[x], cr[x]));
            }
            ([r, g, b], ColorModel::Rgb, Samples::Rgb) => write_row(out, width, |x| [r[x], g[x], b[x]]),
            ([r, g, b], ColorModel::Rgb, Samples::Gray) => {
                write_row(out, width, |x| [luma([r[x], g[x], b[x]])]);
            }
            ([c, m, y, k], ColorModel::Cmyk, Samples::Inks) => {
                write_row(out, width, |x| [c[x], m[x], y[x], k[x]]);
            }
            ([y, cb, cr, k], ColorModel::Ycck, Samples::Inks) => write_row(out, width, |x| {
                let [r, g, b] = rgb(y[x], cb[x], cr[x]);
                [255 - r, 255 - g, 255 - b, k[x]]
            }),
            _ => return Err(corrupt(format!("{} components cannot become {samples:?}", planes.len()))),
        }
    }
    Ok(())
}

fn write_row<const N: usize>(out: &mut [u8], width: usize, pixel: impl Fn(usize) -> [u8; N]) {
    for (to, x) in out.as_chunks_mut::<N>().0.iter_mut().zip(0..width) {
        *to = pixel(x);
    }
}
