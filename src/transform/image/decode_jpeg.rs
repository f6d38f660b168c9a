//! Pixels of JPEG, through libjpeg-turbo-rs: strict by default, and at a smaller scale where nothing is lost by it.

use libjpeg_turbo_rs::PixelFormat;

use super::container::jpeg::{self, Header, Process};
use super::geometry::Size;
use super::icc::Conversion;
use super::options::ImageOptions;
use super::pixels::Pixels;
use super::text::Color;
use crate::decode::jpeg as codec;
use crate::sample::Reject;

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
    let reject = |error| codec::reject(error, jpeg::is_ended(bytes, header.first_scan));
    let mut decoder =
        codec::decoder(bytes, options.max_pixels, options.lenient, reduction).map_err(reject)?;
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
