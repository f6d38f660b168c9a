//! AVIF images, with `dsconvert-avif`. `no_avif.rs` has the same interface, for builds without the feature `avif`.

use std::error::Error as _;

use dsconvert_avif::{AvifFile, Error, ErrorKind, Mirror, Turn};
use dsconvert_dataset::sample::{Reject, RejectCode};
use image::error::{DecodingError, ImageFormatHint};
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageResult};

use super::divide_by_alpha;
use super::pixels::Size;

pub use super::AvifHeader;
pub use dsconvert_avif::contain_panic;

/// Reads the header of the AVIF image `bytes`, and checks that the data of its first frame is complete.
///
/// # Errors
///
/// Rejects the image if its container is damaged, or needs what the decoder lacks.
pub fn header(bytes: &[u8]) -> Result<AvifHeader, Reject> {
    let file = AvifFile::read(bytes).map_err(|error| reject(&error))?;
    Ok(AvifHeader {
        size: Size::new(file.width(), file.height()),
        orientation: orientation(file.turn()),
        frames: file.frames(),
    })
}

/// Checks that the AV1 data of the AVIF image `bytes` declares frames of the size in its header.
///
/// # Errors
///
/// Rejects the image if its frames are smaller.
pub fn check_data(bytes: &[u8]) -> Result<(), Reject> {
    AvifFile::read(bytes).and_then(|file| file.check_data()).map_err(|error| reject(&error))
}

/// Returns the EXIF block of the AVIF image `bytes`.
pub fn exif_block(bytes: &[u8]) -> Option<Vec<u8>> {
    AvifFile::read(bytes).ok()?.exif().map(<[u8]>::to_vec)
}

/// Returns the value of the EXIF tag for a turn, which rotates counterclockwise and then mirrors.
fn orientation(turn: Turn) -> u16 {
    match (turn.mirror, turn.quarter_turns & 3) {
        (None, 0) => 1,
        (None, 1) => 8,
        (None, 2) => 3,
        (None, _) => 6,
        (Some(Mirror::LeftRight), 0) | (Some(Mirror::TopBottom), 2) => 2,
        (Some(Mirror::LeftRight), 2) | (Some(Mirror::TopBottom), 0) => 4,
        (Some(Mirror::LeftRight), 3) | (Some(Mirror::TopBottom), 1) => 5,
        (Some(_), _) => 7,
    }
}

fn reject(error: &Error) -> Reject {
    let code = match error.kind() {
        ErrorKind::Truncated => RejectCode::Truncated,
        ErrorKind::Unsupported => RejectCode::Unsupported,
        ErrorKind::TooLarge => RejectCode::TooLarge,
        ErrorKind::Panicked => {
            let message = format!("a panic in the code for this item: {error}");
            return Reject::new(RejectCode::DecoderPanicked, message);
        }
        _ => RejectCode::Corrupt,
    };
    Reject::new(code, error.to_string())
}

/// Returns the reject of an error of the AVIF decoder; `None` if `error` is that of another decoder.
pub(super) fn reject_of(error: &DecodingError) -> Option<Reject> {
    error.source()?.downcast_ref().map(reject)
}

fn image_error(error: Error) -> ImageError {
    ImageError::Decoding(DecodingError::new(ImageFormatHint::Exact(ImageFormat::Avif), error))
}

/// Opens a decoder for the AVIF image `bytes`.
pub(super) fn open(bytes: &[u8]) -> ImageResult<Box<dyn ImageDecoder + '_>> {
    let file = AvifFile::read(bytes).map_err(image_error)?;
    file.check_data().map_err(image_error)?;
    Ok(Box::new(AvifReader(file)))
}

/// A decoder for one AVIF image.
struct AvifReader<'a>(AvifFile<'a>);

impl ImageDecoder for AvifReader<'_> {
    fn dimensions(&self) -> (u32, u32) {
        (self.0.width(), self.0.height())
    }

    fn color_type(&self) -> ColorType {
        match self.0.channels() {
            1 => ColorType::L8,
            2 => ColorType::La8,
            3 => ColorType::Rgb8,
            _ => ColorType::Rgba8,
        }
    }

    fn icc_profile(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.0.icc().map(<[u8]>::to_vec))
    }

    fn read_image(self, out: &mut [u8]) -> ImageResult<()> {
        self.0.decode(out).map_err(image_error)?;
        if self.0.is_premultiplied() {
            divide_by_alpha(out, self.color_type());
        }
        Ok(())
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the operation of an EXIF orientation to the corners of an image: top left, top right, bottom left, bottom
    /// right.
    fn oriented([a, b, c, d]: [u8; 4], orientation: u16) -> [u8; 4] {
        match orientation {
            1 => [a, b, c, d],
            2 => [b, a, d, c],
            3 => [d, c, b, a],
            4 => [c, d, a, b],
            5 => [a, c, b, d],
            6 => [c, a, d, b],
            7 => [d, b, c, a],
            _ => [b, d, a, c],
        }
    }

    #[test]
    fn turns_are_those_of_exif() {
        for mirror in [None, Some(Mirror::TopBottom), Some(Mirror::LeftRight)] {
            for quarter_turns in 0..4 {
                let mut corners = [1, 2, 3, 4];
                for _ in 0..quarter_turns {
                    let [a, b, c, d] = corners;
                    corners = [b, d, a, c];
                }
                let [a, b, c, d] = corners;
                let expected = match mirror {
                    None => corners,
                    Some(Mirror::TopBottom) => [c, d, a, b],
                    Some(Mirror::LeftRight) => [b, a, d, c],
                };
                let turn = Turn { quarter_turns, mirror };
                assert_eq!(oriented([1, 2, 3, 4], orientation(turn)), expected, "{turn:?}");
            }
        }
    }
}
