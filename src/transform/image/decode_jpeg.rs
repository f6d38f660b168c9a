//! Pixels of JPEG, through libjpeg-turbo-rs: strict by default, and at a smaller scale where nothing is lost by it.

use libjpeg_turbo_rs::{DecodeLimits, Decoder, JpegError, PixelFormat, ScalingFactor};

use super::container::jpeg::{self, Header, Process};
use super::container::{corrupt, unsupported};
use super::geometry::Size;
use super::icc::Conversion;
use super::options::ImageOptions;
use super::pixels::Pixels;
use super::text::Color;
use crate::sample::{Reject, RejectCode};

/// Most scans a JPEG may have. Encoders write about ten, the most elaborate ones below fifty; thousands are an attack,
/// as every scan costs a pass over the whole image.
pub(super) const MAX_SCANS: usize = 100;

/// The largest power of two, up to 8, by which a decode of `source` may be reduced so that the result keeps at least
/// twice the pixels of `target` in each direction. Down to that, Lanczos sees no difference that JPEG has not already
/// lost (50 dB); below, it does.
pub(super) fn reduction(header: &Header<'_>, source: Size, target: Size) -> u32 {
    if header.frame.process == Process::Lossless || header.frame.precision != 8 {
        return 1;
    }
    let fits = |n: &u32| {
        let wide_enough = |side: u32, target: u32| side / n >= target.saturating_mul(2);
        wide_enough(source.width, target.width) && wide_enough(source.height, target.height)
    };
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// A decoder over `bytes` with the limits and the strictness of `options`, at 1/`reduction` of the size.
pub(super) fn decoder<'a>(
    bytes: &'a [u8],
    options: &ImageOptions,
    reduction: u32,
) -> Result<Decoder<'a>, JpegError> {
    let limits = DecodeLimits {
        max_width: usize::from(u16::MAX),
        max_height: usize::from(u16::MAX),
        max_pixels: options.max_pixels,
        max_scans: MAX_SCANS,
        max_memory: None,
    };
    let mut decoder = Decoder::new_with_limits(bytes, limits)?;
    decoder.set_scale(ScalingFactor::try_new(1, reduction)?);
    decoder.set_lenient(options.lenient);
    decoder.set_stop_on_warning(!options.lenient);
    Ok(decoder)
}

/// Decodes the JPEG file `bytes` into `out`: grey when grey is asked for and `profile` (which is not yet applied) does
/// not need colours, else RGB. True when damage was concealed, which only happens with the lenient option.
///
/// Inks are the exception: they are brought to RGB here, by `profile` if it is one for inks.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header<'_>,
    options: &ImageOptions,
    reduction: u32,
    profile: Option<&Conversion>,
    buffer: &mut Vec<u8>,
    out: &mut Pixels,
) -> Result<bool, Reject> {
    let reject = |error| reject(error, jpeg::is_ended(bytes, header.first_scan));
    let mut decoder = decoder(bytes, options, reduction).map_err(reject)?;
    let size = |w: usize, h: usize| Size::new(w as u32, h as u32);
    if header.frame.components == 4 {
        decoder.set_output_format(PixelFormat::Cmyk);
        buffer.resize(decoder.output_buffer_size().map_err(reject)?, 0);
        let info = decoder.decode_image_into(buffer).map_err(reject)?;
        let size = size(info.width, info.height);
        let inks = &mut buffer[..info.bytes_written];
        // Files with Adobe's segment store the inks inverted.
        if header.adobe_transform.is_some() {
            inks.iter_mut().for_each(|ink| *ink = 255 - *ink);
        }
        out.reshape(size, 3);
        if !profile.is_some_and(|profile| profile.cmyk_to_rgb(inks, &mut out.data)) {
            naive_cmyk_to_rgb(inks, &mut out.data);
        }
        return Ok(!info.warnings.is_empty());
    }
    let (format, channels) = match (options.color, profile) {
        (Color::Gray, None | Some(Conversion::Table(_))) => (PixelFormat::Grayscale, 1),
        _ => (PixelFormat::Rgb, 3),
    };
    decoder.set_output_format(format);
    out.reshape(size(decoder.output_width(), decoder.output_height()), channels);
    let need = decoder.output_buffer_size().map_err(reject)?;
    out.data.resize(need, 0);
    let info = decoder.decode_image_into(&mut out.data).map_err(reject)?;
    out.reshape(size(info.width, info.height), channels);
    Ok(!info.warnings.is_empty())
}

/// Inks (255 being full) to light, without a profile: each channel is what ink and black together let through.
fn naive_cmyk_to_rgb(inks: &[u8], rgb: &mut [u8]) {
    let light = |ink: u8, black: u8| ((u32::from(255 - ink) * u32::from(255 - black) + 127) / 255) as u8;
    for (to, [c, m, y, k]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(inks.as_chunks::<4>().0) {
        *to = [light(*c, *k), light(*m, *k), light(*y, *k)];
    }
}

/// The reject an error of the decoder stands for. Without its end marker a file is cut, whatever else is wrong.
pub(super) fn reject(error: JpegError, is_ended: bool) -> Reject {
    match error {
        JpegError::LimitExceeded { .. } | JpegError::AllocationFailed { .. } => {
            Reject::new(RejectCode::TooLarge, error.to_string())
        }
        JpegError::Unsupported(_) => unsupported(error.to_string()),
        _ if !is_ended => Reject::new(RejectCode::Truncated, format!("the JPEG has no end: {error}")),
        JpegError::UnexpectedEof => corrupt("the entropy-coded data ends too early"),
        other => corrupt(other.to_string()),
    }
}
