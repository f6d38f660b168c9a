//! Decoding of a [`JpegLayout`] to pixels.

use super::planes::{Coefficients, Plane};
use super::scan::ScanReader;
use super::upsample::Upsampling;
use crate::color::{luma, ycbcr_to_rgb};
use crate::error::{Error, ErrorKind};
use crate::memory;
use crate::options::{ImageInfo, PixelFormat, Scale};
use crate::structure::{ColorModel, JpegLayout, Process};

/// Selects what [`JpegLayout::decode`](crate::JpegLayout::decode) decodes, and how strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutRequest {
    /// The scale of the output.
    pub scale: Scale,
    /// The pixel format of the output. Files with four components decode only to [`PixelFormat::Cmyk`], with samples as
    /// stored; all others decode to gray or RGB.
    pub format: PixelFormat,
    /// Whether damage is concealed, as in `djpeg`: parts that cannot be decoded are gray, or as coarse as the scans
    /// before them.
    pub is_lenient: bool,
}

impl JpegLayout<'_> {
    /// Decodes the image into `out`, rows from top to bottom without gaps.
    ///
    /// For a sequential file in one scan, the decoder keeps all samples in memory in addition to `out`, about one byte
    /// per pixel and component. For all other files, it also keeps their coefficients, two bytes each.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is damaged and the request is not lenient, if the file is lossless,
    /// arithmetic-coded or not 8-bit, or if its sampling factors need upsampling by a fraction.
    pub fn decode(&self, request: LayoutRequest, out: &mut Vec<u8>) -> Result<ImageInfo, Error> {
        let LayoutRequest { scale, format, is_lenient } = request;
        self.check_support()?;
        if (self.components.len() == 4) != (format == PixelFormat::Cmyk) {
            let message = format!("{} components cannot be decoded to {format:?}", self.components.len());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        if !is_lenient {
            self.check_sound()?;
        }
        let upsampling = Upsampling::of(self, scale)?;
        let mut planes = Vec::new();
        for (index, upsampling) in upsampling.iter().enumerate() {
            planes.push(Plane::new(self, index, upsampling.side)?);
        }
        let is_damaged = read_scans(self, &mut planes, is_lenient)? || self.damage.is_some();
        let (width, height) = (scale.of_side(self.width), scale.of_side(self.height));
        out.clear();
        memory::resize(out, memory::product(&[width, height, format.channels()])?, 0)?;
        write_pixels(self.color, &planes, &upsampling, (width, height), format, out)?;
        Ok(ImageInfo { width, height, format, is_damaged })
    }

    /// Checks that this decoder supports the coding process.
    pub(crate) fn check_support(&self) -> Result<(), Error> {
        if self.process == Process::Lossless || self.is_arithmetic || self.precision != 8 {
            return Err(Error::unsupported("a lossless, arithmetic-coded or 12-bit JPEG is not supported"));
        }
        Ok(())
    }

    /// Checks that the file is complete, as far as its structure shows.
    pub(crate) fn check_sound(&self) -> Result<(), Error> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone());
        }
        if !self.is_complete() {
            return Err(Error::unsupported(format!(
                "an incomplete progressive JPEG with the sampling factors {} is not supported",
                self.sampling_text()
            )));
        }
        Ok(())
    }
}

/// Decodes all scans into `planes`. Returns true if damage was concealed.
fn read_scans(layout: &JpegLayout<'_>, planes: &mut [Plane], is_lenient: bool) -> Result<bool, Error> {
    let mut is_damaged = false;
    let mut conceal = |result: Result<(), Error>| match result {
        Err(_) if is_lenient => {
            is_damaged = true;
            Ok(false)
        }
        other => other.map(|()| true),
    };
    if let [scan] = &layout.scans[..]
        && layout.process == Process::Sequential
    {
        // One row of MCUs at a time, so that the coefficients of the whole image are never in memory at once.
        let mut rows = Vec::new();
        for index in 0..planes.len() {
            rows.push(Coefficients::of_mcu_row(layout, index)?);
        }
        let mut reader = ScanReader::new(layout, scan);
        let mut is_intact = true;
        for row in 0..reader.rows {
            if is_intact {
                is_intact = conceal(reader.read_row(row, 0, &mut rows))?;
            }
            for (plane, blocks) in planes.iter_mut().zip(&mut rows) {
                plane.write(blocks, row);
                blocks.clear();
            }
        }
        return Ok(is_damaged);
    }
    let images = read_image(layout, |result| conceal(result).map(drop))?;
    for (plane, blocks) in planes.iter_mut().zip(&images) {
        plane.write(blocks, 0);
    }
    Ok(is_damaged)
}

/// Reads the coefficients of all scans, of all components. `conceal` decides whether an error in a scan counts.
pub(crate) fn read_image(
    layout: &JpegLayout<'_>,
    mut conceal: impl FnMut(Result<(), Error>) -> Result<(), Error>,
) -> Result<Vec<Coefficients>, Error> {
    let mut images = Vec::new();
    for index in 0..layout.components.len() {
        images.push(Coefficients::of_image(layout, index)?);
    }
    for scan in &layout.scans {
        let mut reader = ScanReader::new(layout, scan);
        // libjpeg does not treat bytes after the last block as damage: some cameras write them.
        conceal((0..reader.rows).try_for_each(|row| reader.read_row(row, row, &mut images)))?;
    }
    Ok(images)
}

/// Upsamples the planes and converts them to the pixels of `out`.
fn write_pixels(
    color: ColorModel,
    planes: &[Plane],
    upsampling: &[Upsampling],
    (width, height): (usize, usize),
    format: PixelFormat,
    out: &mut [u8],
) -> Result<(), Error> {
    let mut rows = vec![memory::filled(width, 0)?; planes.len()];
    for (y, out) in (0..height).zip(out.chunks_exact_mut(width * format.channels())) {
        for ((row, plane), upsampling) in rows.iter_mut().zip(planes).zip(upsampling) {
            upsampling.row(plane, y, row);
        }
        match (&rows[..], color, format) {
            ([y, ..], ColorModel::Gray | ColorModel::YCbCr, PixelFormat::Gray) => out.copy_from_slice(y),
            ([y], _, PixelFormat::Rgb) => write_row(out, width, |x| [y[x]; 3]),
            ([y, cb, cr], ColorModel::YCbCr, PixelFormat::Rgb) => {
                write_row(out, width, |x| ycbcr_to_rgb(y[x], cb[x], cr[x]));
            }
            ([r, g, b], ColorModel::Rgb, PixelFormat::Rgb) => write_row(out, width, |x| [r[x], g[x], b[x]]),
            ([r, g, b], ColorModel::Rgb, PixelFormat::Gray) => {
                write_row(out, width, |x| [luma([r[x], g[x], b[x]])]);
            }
            ([c, m, y, k], ColorModel::Cmyk, PixelFormat::Cmyk) => {
                write_row(out, width, |x| [c[x], m[x], y[x], k[x]]);
            }
            ([y, cb, cr, k], ColorModel::Ycck, PixelFormat::Cmyk) => write_row(out, width, |x| {
                let [r, g, b] = ycbcr_to_rgb(y[x], cb[x], cr[x]);
                [255 - r, 255 - g, 255 - b, k[x]]
            }),
            _ => return Err(Error::corrupt("the components do not match the color model")),
        }
    }
    Ok(())
}

fn write_row<const N: usize>(out: &mut [u8], width: usize, pixel: impl Fn(usize) -> [u8; N]) {
    for (to, x) in out.as_chunks_mut::<N>().0.iter_mut().zip(0..width) {
        *to = pixel(x);
    }
}
