//! Pixels of JPEG, through libjpeg-turbo-rs: strict by default, and at a smaller scale where nothing is lost by it.

use libjpeg_turbo_rs::{DecodeLimits, Decoder, JpegError, PixelFormat, ScalingFactor};

use super::container::jpeg::{self, Header, Process};
use super::container::{corrupt, unsupported};
use super::geometry::Size;
use super::options::ImageOptions;
use super::pixels::{Pixels, luma};
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

/// Decodes the JPEG file `bytes` into `out`, in the colours the options ask for. True when damage was concealed, which
/// only happens with the lenient option.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header<'_>,
    options: &ImageOptions,
    reduction: u32,
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
        cmyk(&buffer[..info.bytes_written], header.adobe_transform.is_some(), options.color, size, out);
        return Ok(!info.warnings.is_empty());
    }
    let (format, channels) = match options.color {
        Color::Rgb => (PixelFormat::Rgb, 3),
        Color::Rgba => (PixelFormat::Rgba, 4),
        Color::Gray => (PixelFormat::Grayscale, 1),
    };
    decoder.set_output_format(format);
    out.reshape(size(decoder.output_width(), decoder.output_height()), channels);
    let need = decoder.output_buffer_size().map_err(reject)?;
    out.data.resize(need, 0);
    let info = decoder.decode_image_into(&mut out.data).map_err(reject)?;
    out.reshape(size(info.width, info.height), channels);
    Ok(!info.warnings.is_empty())
}

/// Inks to light, without a profile: each channel is what ink and black together let through. Files with Adobe's
/// segment store the inks inverted.
fn cmyk(inks: &[u8], inverted: bool, color: Color, size: Size, out: &mut Pixels) {
    let light = |ink: u8, black: u8| {
        let (ink, black) = if inverted { (ink, black) } else { (255 - ink, 255 - black) };
        ((u32::from(ink) * u32::from(black) + 127) / 255) as u8
    };
    let rgb = |[c, m, y, k]: [u8; 4]| [light(c, k), light(m, k), light(y, k)];
    let (inks, _) = inks.as_chunks::<4>();
    match color {
        Color::Rgb => {
            out.reshape(size, 3);
            for (to, from) in out.data.as_chunks_mut::<3>().0.iter_mut().zip(inks) {
                *to = rgb(*from);
            }
        }
        Color::Rgba => {
            out.reshape(size, 4);
            for (to, from) in out.data.as_chunks_mut::<4>().0.iter_mut().zip(inks) {
                let [r, g, b] = rgb(*from);
                *to = [r, g, b, 255];
            }
        }
        Color::Gray => {
            out.reshape(size, 1);
            for (to, from) in out.data.iter_mut().zip(inks) {
                *to = luma(rgb(*from));
            }
        }
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
