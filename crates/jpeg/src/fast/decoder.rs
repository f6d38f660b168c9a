//! The decoder of common JPEGs.

use super::frame::Frame;
use super::huffman::TableCache;
use super::mcu_reader::McuReader;
use super::planes::Planes;
use super::progressive::ProgressiveImage;
use super::request::{Declined, FastRequest, PlanesRequest, StoredPlanes};
use super::rows::{McuPlan, McuStream, Needs};
use super::scan::ScanData;
use super::step_table::StepTables;
use super::upsample::{PixelSink, WritePixels};
use crate::idct::{Backend, Portable};
use crate::options::PixelFormat;
use crate::structure::{JpegLayout, Process};

/// The fast decoder of common JPEGs. It keeps buffers and tables from one image to the next.
///
/// It decodes 8-bit baseline JPEGs in one scan and progressive JPEGs, grayscale or YCbCr with 4:2:0, 4:2:2 or 4:4:4
/// sampling, with sides up to 16,384. All other files, all damaged ones, and subsampled images less than five pixels wide
/// at the requested scale are [`Declined`]. For those, use [`Decoder`](crate::Decoder), which falls back to a decoder of
/// all 8-bit JPEGs, or any other decoder.
///
/// ```no_run
/// use dsconvert_jpeg::{FastDecoder, FastRequest, PixelFormat, Region, Scale};
///
/// // The middle 224×224 pixels of a photo, at half its size.
/// let bytes = std::fs::read("photo.jpg")?;
/// let request = FastRequest {
///     size: (640, 480),
///     scale: Scale::Half,
///     region: Region { left: 48, top: 8, width: 224, height: 224 },
///     stride: 224,
///     format: PixelFormat::Rgb,
///     reads_to_end: false,
/// };
/// let mut pixels = vec![0; 224 * 224 * 3];
/// FastDecoder::default().decode_into(&bytes, request, &mut pixels)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct FastDecoder {
    pub(super) tables: TableCache,
    pub(super) steps: Box<[StepTables; 3]>,
    pub(super) scan: ScanData,
    progressive: ProgressiveImage,
    planes: Planes,
}

impl FastDecoder {
    /// Returns the size in bytes of the buffers kept for the next image.
    pub fn kept_bytes(&self) -> usize {
        self.scan.kept_bytes() + self.progressive.kept_bytes() + self.planes.kept_bytes()
    }

    /// Decodes the file `bytes` into `out`, which holds the samples from the first requested pixel to the last
    /// ([`FastRequest::sample_count`]). Samples between two rows are left unchanged.
    ///
    /// # Errors
    ///
    /// [`Declined`] if the file is of another kind or size, is damaged, or does not match the request. The content of
    /// `out` is then unspecified.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        request: FastRequest,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return self.decode_with(crate::idct::Avx2(v3), bytes, request, out);
        }
        self.decode_with(Portable, bytes, request, out)
    }

    /// Decodes the components of the file `bytes` that `request` needs, at their stored resolution. They stay in this
    /// decoder until it decodes again.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`decode_into`](Self::decode_into).
    pub fn decode_planes(
        &mut self,
        bytes: &[u8],
        request: PlanesRequest,
    ) -> Result<StoredPlanes<'_>, Declined> {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return self.planes_with(crate::idct::Avx2(v3), bytes, request);
        }
        self.planes_with(Portable, bytes, request)
    }

    /// Returns the width and height of the image and whether it is grayscale, if its headers are of a kind that this
    /// decoder supports.
    pub(crate) fn size(&mut self, bytes: &[u8]) -> Result<(usize, usize, bool), Declined> {
        let frame = Frame::of(&headers(bytes)?, &mut self.tables)?;
        Ok((frame.width, frame.height, frame.sampling.is_gray))
    }

    /// Implements [`Self::decode_into`] with the code for one kind of processor.
    pub(super) fn decode_with(
        &mut self,
        backend: impl Backend,
        bytes: &[u8],
        request: FastRequest,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        let FastRequest { size, scale, region, format, reads_to_end, stride } = request;
        if format == PixelFormat::Cmyk || request.sample_count() != Some(out.len()) {
            return Err(Declined);
        }
        let needs = Needs { scale, region, has_chroma: format == PixelFormat::Rgb, is_upsampled: true };
        let is_gray = self.decode_samples(backend, bytes, size, needs, reads_to_end)?;
        let mut upsampled = std::mem::take(&mut self.planes.upsampled);
        let (planes, is_fancy) = (&self.planes.stored(is_gray), self.planes.is_fancy());
        let sink = PixelSink { backend, region, stride, format, is_planar: false, out };
        backend.run(WritePixels { planes, is_fancy, upsampled: &mut upsampled, sink });
        self.planes.upsampled = upsampled;
        Ok(())
    }

    /// Implements [`Self::decode_planes`] with the code for one kind of processor.
    pub(super) fn planes_with(
        &mut self,
        backend: impl Backend,
        bytes: &[u8],
        request: PlanesRequest,
    ) -> Result<StoredPlanes<'_>, Declined> {
        let PlanesRequest { size, scale, region, reads_to_end } = request;
        let needs = Needs { scale, region, has_chroma: true, is_upsampled: false };
        let is_gray = self.decode_samples(backend, bytes, size, needs, reads_to_end)?;
        Ok(self.planes.stored(is_gray))
    }

    /// Decodes what `needs` specifies into the planes. Returns true if the image is grayscale.
    fn decode_samples(
        &mut self,
        backend: impl Backend,
        bytes: &[u8],
        size: (usize, usize),
        needs: Needs,
        reads_to_end: bool,
    ) -> Result<bool, Declined> {
        let layout = headers(bytes)?;
        let Self { tables, steps, scan, planes, progressive } = self;
        let frame = Frame::of(&layout, tables)?;
        check_size(&frame, size, needs)?;
        let plan = McuPlan::new(&frame, needs)?;
        if layout.process == Process::Progressive {
            layout.check_file_size(bytes).map_err(|_| Declined)?;
            let decoded = progressive.read(backend, &layout, scan).and_then(|()| {
                let mut source = progressive.blocks(frame.mcus().0, plan.parts());
                plan.run(backend, &mut source, planes)
            });
            progressive.trim();
            return decoded.map(|()| frame.sampling.is_gray);
        }
        scan.read(frame.scan)?;
        let mut reader = McuReader::new(&frame, plan.parts(), tables, steps, scan)?;
        reader.reads_all = reads_to_end;
        let mut source = McuStream::new(reader);
        plan.run(backend, &mut source, planes)?;
        let (columns, rows) = frame.mcus();
        source.finish(backend, columns * rows, reads_to_end)?;
        Ok(frame.sampling.is_gray)
    }
}

/// Reads the headers of a file; of a progressive file, its whole structure.
pub(super) fn headers(bytes: &[u8]) -> Result<JpegLayout<'_>, Declined> {
    JpegLayout::read_headers(bytes).map_err(|_| Declined)
}

/// Checks that the image has the requested size and contains the requested region.
fn check_size(frame: &Frame<'_>, size: (usize, usize), needs: Needs) -> Result<(), Declined> {
    let Needs { scale, region, .. } = needs;
    let is_inside = region.fits(scale.of_side(frame.width), scale.of_side(frame.height));
    if (frame.width, frame.height) == size && is_inside { Ok(()) } else { Err(Declined) }
}
