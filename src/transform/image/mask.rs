//! Conversion of masks. A mask follows the geometry of its image, pixel by pixel, and keeps its values.

use bytes::Bytes;

use super::container;
use super::geometry::Geometry;
use super::orientation::Orientation;
use super::source::CheckedImage;
use super::strip;
use super::transform::ImageTransform;
use crate::decode::{ImageType, Mask, Palette};
use crate::panics::caught;
use crate::sample::{Reject, RejectCode};

impl ImageTransform {
    /// Converts the mask `file` of an image with `geometry`. The result is a PNG file with the same values, resized by
    /// nearest neighbor, and with 0 in the padding.
    ///
    /// # Errors
    ///
    /// Rejects a file that is not a PNG, is damaged (whatever the options), or does not have the size of the image.
    pub fn convert_mask(&self, file: &Bytes, geometry: &Geometry) -> Result<Bytes, Reject> {
        caught(|| self.mask(file, geometry)).unwrap_or_else(|panic| Err(panic.into_reject()))
    }

    fn mask(&self, file: &Bytes, geometry: &Geometry) -> Result<Bytes, Reject> {
        let mut source = CheckedImage::read(file, self.options())?;
        if source.image_type != ImageType::Png {
            let message = format!("a mask must be a PNG file, not {}", source.image_type);
            return Err(container::unsupported(message));
        }
        if let Some(damage) = source.structure.damage.take() {
            return Err(damage);
        }
        if source.structure.animated {
            return Err(Reject::new(RejectCode::Animated, "the mask contains several frames"));
        }
        let (size, own) = (source.structure.size, source.structure.orientation);
        let orientation = geometry.orientation_of(size, own).ok_or_else(|| {
            let image = geometry.plan.source;
            let message = format!(
                "the mask has {}×{} pixels, its image {}×{}",
                size.width, size.height, image.width, image.height
            );
            Reject::new(RejectCode::InvalidValue, message)
        })?;
        // Decoded even if nothing changes, to detect damage.
        let mut mask = Mask::read(file, size)?;
        if geometry.plan.is_identity() && orientation == Orientation::Upright {
            let keeps_metadata = self.options().keep_metadata;
            return Ok(if keeps_metadata { file.clone() } else { strip::strip(file, &source) });
        }
        let [rows, columns] = geometry.source_positions(size, orientation);
        let mut data = vec![0; rows.len() * columns.len() * mask.pixel_bytes()];
        mask.pick(&rows, &columns, &mut data);
        (mask.data, mask.size) = (data, geometry.plan.canvas);
        encode(&mask)
    }
}

fn encode(mask: &Mask) -> Result<Bytes, Reject> {
    let refused = |e: png::EncodingError| container::unsupported(format!("the mask cannot be encoded: {e}"));
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, mask.size.width, mask.size.height);
    encoder.set_color(match (mask.channels, &mask.palette) {
        (_, Some(_)) => png::ColorType::Indexed,
        (1, None) => png::ColorType::Grayscale,
        (2, None) => png::ColorType::GrayscaleAlpha,
        (3, None) => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_depth(if mask.sample_bytes == 2 { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    if let Some(Palette { colors, alpha }) = &mask.palette {
        encoder.set_palette(colors);
        if let Some(alpha) = alpha {
            encoder.set_trns(alpha);
        }
    }
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let mut writer = encoder.write_header().map_err(refused)?;
    writer.write_image_data(&mask.data).map_err(refused)?;
    writer.finish().map_err(refused)?;
    Ok(out.into())
}
