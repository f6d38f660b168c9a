//! What a directory of a TIFF file declares about its pixels.

use std::ops::Range;

use dsconvert_dataset::sample::Reject;

use super::super::pixels::Size;
use super::super::{corrupt, unsupported};
use super::tags::{self, TiffTags};

/// How the bytes of a strip or tile are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    /// Rows of the run lengths of T.4, each of which starts at a byte or at a word of two bytes.
    FaxRows {
        is_word_aligned: bool,
    },
    /// CCITT T.4 (group 3), optionally with rows that refer to the row before.
    FaxT4 {
        is_two_dimensional: bool,
    },
    /// CCITT T.6 (group 4).
    FaxT6,
    Lzw,
    /// JPEG of TIFF 6.0, which no other reader writes: one JPEG for the whole image, or tables in tags.
    OldJpeg,
    Jpeg,
    Deflate,
    PackBits,
}

impl Compression {
    fn read(tags: &TiffTags<'_>) -> Result<Self, Reject> {
        Ok(match tags.first(tags::COMPRESSION).unwrap_or(1) {
            1 => Self::None,
            2 => Self::FaxRows { is_word_aligned: false },
            3 => {
                let options = tags.first(tags::T4_OPTIONS).unwrap_or(0);
                Self::FaxT4 { is_two_dimensional: options & 1 == 1 }
            }
            4 => Self::FaxT6,
            5 => Self::Lzw,
            6 => Self::OldJpeg,
            7 => Self::Jpeg,
            8 | 32_946 => Self::Deflate,
            32_771 => Self::FaxRows { is_word_aligned: true },
            32_773 => Self::PackBits,
            other => {
                let name = match other {
                    32_766 => " (NeXT)",
                    32_809 => " (ThunderScan)",
                    34_676 | 34_677 => " (LogLuv)",
                    34_712 => " (JPEG 2000)",
                    34_887 => " (LERC)",
                    34_925 => " (LZMA)",
                    50_000 => " (Zstandard)",
                    50_001 => " (WebP)",
                    50_002 => " (JPEG XL)",
                    _ => "",
                };
                return Err(unsupported(format!("TIFF with compression {other}{name} is not supported")));
            }
        })
    }

    pub(super) fn is_fax(self) -> bool {
        matches!(self, Self::FaxRows { .. } | Self::FaxT4 { .. } | Self::FaxT6)
    }

    pub(super) fn is_jpeg(self) -> bool {
        matches!(self, Self::Jpeg | Self::OldJpeg)
    }
}

/// How the bits of a sample are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleKind {
    Unsigned,
    Signed,
    Float,
}

/// How samples were replaced by differences before they were compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predictor {
    None,
    /// Difference to the sample of the pixel on the left.
    Horizontal,
    /// Bytes of the same significance are stored together, each as the difference to the byte on the left.
    FloatingPoint,
}

/// What the samples of a pixel mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colors {
    Gray {
        is_white_zero: bool,
    },
    Rgb,
    Palette,
    Cmyk,
    /// Each `h`×`v` pixels share their chroma samples.
    YCbCr {
        h: u32,
        v: u32,
    },
    /// CIE L*a*b* with signed a* and b*, or with an offset (ICC).
    Lab {
        is_offset: bool,
    },
}

impl Colors {
    /// Returns the number of samples per pixel, without alpha.
    pub(super) fn samples(self) -> usize {
        match self {
            Self::Gray { .. } | Self::Palette => 1,
            Self::Rgb | Self::YCbCr { .. } | Self::Lab { .. } => 3,
            Self::Cmyk => 4,
        }
    }
}

/// The meaning of the first sample after those of the colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alpha {
    None,
    Unassociated,
    /// The colors are multiplied by alpha.
    Associated,
}

/// The structure of the pixels. All numbers are positive.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// Width and height of a tile; for strips, those of the image and of a strip.
    pub(super) part: Size,
    pub(super) is_tiled: bool,
    /// Where the strips or tiles are, in rows from top to bottom, one channel after the other if they are separate. The
    /// ranges may exceed the file.
    pub(super) parts: Vec<Range<usize>>,
    /// Samples per pixel.
    pub(super) samples: usize,
    /// Whether each channel has strips or tiles of its own.
    pub(super) is_planar: bool,
    /// Bits per sample, up to 64.
    pub(super) bits: u32,
    pub(super) kind: SampleKind,
    pub(super) compression: Compression,
    pub(super) predictor: Predictor,
    pub(super) colors: Colors,
    pub(super) alpha: Alpha,
    /// Whether the first pixel of a byte is in its lowest bits.
    pub(super) has_low_bits_first: bool,
}

impl Layout {
    pub(super) fn read(tags: &TiffTags<'_>) -> Result<Self, Reject> {
        let side = |tag| tags.first(tag).and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
        let (Some(width), Some(height)) = (side(tags::IMAGE_WIDTH), side(tags::IMAGE_LENGTH)) else {
            return Err(corrupt("the directory of the TIFF has no valid size"));
        };
        let size = Size { width, height };
        let compression = Compression::read(tags)?;
        let mut samples = count(tags, tags::SAMPLES_PER_PIXEL)?.unwrap_or(1);
        let colors = read_colors(tags, compression, samples)?;
        if compression == Compression::OldJpeg {
            // Files without the number of samples are common.
            samples = samples.max(colors.samples());
        }
        let extra = samples.checked_sub(colors.samples()).ok_or_else(|| {
            corrupt(format!("the TIFF has {samples} samples per pixel, too few for its colors"))
        })?;
        let alpha = match (tags.first(tags::EXTRA_SAMPLES), colors, extra) {
            (_, _, 0) | (_, Colors::Cmyk | Colors::Lab { .. } | Colors::YCbCr { .. }, _) => Alpha::None,
            (Some(1), ..) => Alpha::Associated,
            (Some(2), ..) | (None, Colors::Rgb, 1) => Alpha::Unassociated,
            _ => Alpha::None,
        };
        let (bits, kind) = read_depth(tags, samples)?;
        let predictor = match tags.first(tags::PREDICTOR).unwrap_or(1) {
            // libtiff ignores the predictor of other compressions.
            _ if !matches!(compression, Compression::Lzw | Compression::Deflate) => Predictor::None,
            1 => Predictor::None,
            2 => Predictor::Horizontal,
            3 if kind == SampleKind::Float => Predictor::FloatingPoint,
            other => return Err(corrupt(format!("the TIFF has the predictor {other}"))),
        };
        let is_planar = tags.first(tags::PLANAR_CONFIGURATION) == Some(2) && samples > 1;
        let is_tiled = tags.first(tags::TILE_WIDTH).is_some();
        let part = if is_tiled {
            let (Some(width), Some(height)) = (side(tags::TILE_WIDTH), side(tags::TILE_LENGTH)) else {
                return Err(corrupt("the tiles of the TIFF have no valid size"));
            };
            Size { width, height }
        } else {
            // Larger values, such as the maximum, mean a single strip.
            Size { width, height: side(tags::ROWS_PER_STRIP).unwrap_or(height).min(height) }
        };
        let mut layout = Self {
            size,
            part,
            is_tiled,
            parts: Vec::new(),
            samples,
            is_planar,
            bits,
            kind,
            compression,
            predictor,
            colors,
            alpha,
            has_low_bits_first: tags.first(tags::FILL_ORDER) == Some(2),
        };
        layout.check()?;
        layout.parts = layout.read_parts(tags)?;
        Ok(layout)
    }

    /// Rejects combinations that the decoder does not support.
    fn check(&self) -> Result<(), Reject> {
        let bits = self.bits;
        let is_supported = match self.kind {
            SampleKind::Float => matches!(bits, 16 | 32 | 64),
            _ => matches!(bits, 1..=32 | 64),
        };
        let fits_colors = match self.colors {
            Colors::Gray { .. } | Colors::Rgb | Colors::Cmyk => true,
            Colors::Palette => bits <= 16 && self.kind == SampleKind::Unsigned,
            Colors::YCbCr { h, v } => {
                bits == 8 && self.kind == SampleKind::Unsigned && !(self.is_planar && (h, v) != (1, 1))
            }
            Colors::Lab { .. } => matches!(bits, 8 | 16) && self.kind != SampleKind::Float,
        };
        let fits_compression = match self.compression {
            _ if self.compression.is_fax() => bits == 1 && self.samples == 1,
            Compression::OldJpeg => {
                matches!(self.colors, Colors::YCbCr { .. } | Colors::Gray { .. })
                    && bits == 8
                    && !self.is_planar
            }
            Compression::Jpeg => bits == 8 && self.kind == SampleKind::Unsigned,
            _ => true,
        };
        if is_supported && fits_colors && fits_compression {
            return Ok(());
        }
        let kind = match self.kind {
            SampleKind::Unsigned => "",
            SampleKind::Signed => "signed ",
            SampleKind::Float => "floating-point ",
        };
        let colors = match self.colors {
            Colors::Gray { .. } => "gray",
            Colors::Rgb => "RGB",
            Colors::Palette => "palette",
            Colors::Cmyk => "CMYK",
            Colors::YCbCr { .. } => "YCbCr",
            Colors::Lab { .. } => "CIELab",
        };
        let compression = match self.compression {
            Compression::Jpeg | Compression::OldJpeg => " and JPEG compression",
            compression if compression.is_fax() => " and fax compression",
            _ => "",
        };
        Err(unsupported(format!(
            "{colors} TIFF with {kind}samples of {bits} bits{compression} is not supported"
        )))
    }

    /// Returns the number of parts side by side, and below one another.
    pub(super) fn grid(&self) -> (u32, u32) {
        (self.size.width.div_ceil(self.part.width), self.size.height.div_ceil(self.part.height))
    }

    /// Returns the number of samples of a pixel that are stored together.
    pub(super) fn samples_together(&self) -> usize {
        if self.is_planar { 1 } else { self.samples }
    }

    /// Returns the number of rows of the parts of band `row`: strips end with the image, tiles do not.
    pub(super) fn part_rows(&self, row: u32) -> u32 {
        let rest = self.size.height - row * self.part.height;
        if self.is_tiled { self.part.height } else { self.part.height.min(rest) }
    }

    /// Returns the bytes of a decompressed row of a part. For subsampled YCbCr, those of a row of blocks.
    pub(super) fn row_bytes(&self) -> Option<usize> {
        let width = self.part.width as usize;
        if let Colors::YCbCr { h, v } = self.colors
            && (h, v) != (1, 1)
            && !self.compression.is_jpeg()
        {
            return width.div_ceil(h as usize).checked_mul((h * v + 2) as usize);
        }
        let bits = width.checked_mul(self.samples_together())?.checked_mul(self.bits as usize)?;
        Some(bits.div_ceil(8))
    }

    /// Returns the bytes of a decompressed part of `rows` rows.
    pub(super) fn part_bytes(&self, rows: u32) -> Option<usize> {
        let rows = match self.colors {
            Colors::YCbCr { v, .. } if !self.compression.is_jpeg() => rows.div_ceil(v),
            _ => rows,
        };
        self.row_bytes()?.checked_mul(rows as usize)
    }

    /// Returns the bytes of all parts after decompression.
    pub(super) fn decompressed_bytes(&self) -> u64 {
        let (across, down) = self.grid();
        let planes = if self.is_planar { self.samples as u64 } else { 1 };
        let bytes_of = |rows| self.part_bytes(rows).map_or(u64::MAX, |bytes| bytes as u64);
        let last = bytes_of(self.part_rows(down - 1));
        let column = bytes_of(self.part_rows(0)).saturating_mul((down - 1).into()).saturating_add(last);
        column.saturating_mul(across.into()).saturating_mul(planes)
    }

    /// Returns the maximum number of bytes that a stored byte may become. `None` if the width of a row determines it.
    pub(super) fn max_expansion(&self) -> Option<u64> {
        Some(match self.compression {
            // Runs of 128 bytes. Data that is not compressed may be cut off.
            Compression::None | Compression::PackBits => 128,
            // No string of the table is longer.
            Compression::Lzw => 4096,
            Compression::Deflate => 1032,
            // The DC coefficient of a block of 64 samples takes at least one bit.
            Compression::Jpeg | Compression::OldJpeg => 64 * 8 * self.samples as u64,
            Compression::FaxRows { .. } | Compression::FaxT4 { .. } | Compression::FaxT6 => return None,
        })
    }

    fn read_parts(&self, tags: &TiffTags<'_>) -> Result<Vec<Range<usize>>, Reject> {
        let (offsets, counts) = if self.is_tiled && tags.first(tags::TILE_OFFSETS).is_some() {
            (tags::TILE_OFFSETS, tags::TILE_BYTE_COUNTS)
        } else {
            (tags::STRIP_OFFSETS, tags::STRIP_BYTE_COUNTS)
        };
        let (across, down) = self.grid();
        let planes = if self.is_planar { self.samples as u64 } else { 1 };
        let expected = u64::from(across) * u64::from(down) * planes;
        let found = tags.numbers(offsets).count() as u64;
        // A single JPEG may be stored without strips.
        let is_jpeg_file =
            self.compression == Compression::OldJpeg && tags.first(tags::JPEG_INTERCHANGE_FORMAT).is_some();
        if found < expected && !is_jpeg_file {
            let what = if self.is_tiled { "tiles" } else { "strips" };
            return Err(corrupt(format!("the TIFF has {found} {what} instead of {expected}")));
        }
        let end = tags.bytes().len();
        let mut counts = tags.numbers(counts);
        let mut parts = Vec::new();
        for (number, offset) in tags.numbers(offsets).take(expected as usize).enumerate() {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let count =
                counts.next().filter(|count| *count > 0).and_then(|count| usize::try_from(count).ok());
            let count = match (count, self.compression) {
                // Some writers declare the size of a whole part for the last one, or nothing.
                (_, Compression::None) => {
                    let row = (number as u64 / u64::from(across) % u64::from(down)) as u32;
                    self.part_bytes(self.part_rows(row)).unwrap_or(usize::MAX)
                }
                (Some(count), _) => count,
                (None, _) => end.saturating_sub(start),
            };
            parts.push(start..start.saturating_add(count));
        }
        Ok(parts)
    }
}

/// Reads a number of samples.
fn count(tags: &TiffTags<'_>, tag: u16) -> Result<Option<usize>, Reject> {
    match tags.first(tag) {
        Some(0) => Err(corrupt("the TIFF has 0 samples per pixel")),
        Some(count) => Ok(usize::try_from(count).ok().filter(|count| *count <= usize::from(u16::MAX))),
        None => Ok(None),
    }
}

fn read_colors(tags: &TiffTags<'_>, compression: Compression, samples: usize) -> Result<Colors, Reject> {
    let photometric = match tags.first(tags::PHOTOMETRIC) {
        Some(photometric) => photometric,
        // As libtiff does.
        None if samples >= 3 => 2,
        None => u64::from(!compression.is_fax()),
    };
    Ok(match photometric {
        0 | 1 => Colors::Gray { is_white_zero: photometric == 0 },
        2 => Colors::Rgb,
        3 => Colors::Palette,
        5 => Colors::Cmyk,
        6 => {
            let mut sampling = tags.numbers(tags::YCBCR_SUBSAMPLING);
            let (h, v) = (sampling.next().unwrap_or(2), sampling.next().unwrap_or(2));
            if !matches!(h, 1 | 2 | 4) || !matches!(v, 1 | 2 | 4) {
                return Err(corrupt(format!("the chroma samples of the TIFF are for {h}×{v} pixels")));
            }
            Colors::YCbCr { h: h as u32, v: v as u32 }
        }
        8 | 9 => Colors::Lab { is_offset: photometric == 9 },
        other => {
            let name = match other {
                4 => " (mask)",
                10 => " (ITU Lab)",
                32_803 => " (color filter array)",
                32_844 | 32_845 => " (LogLuv)",
                34_892 => " (raw)",
                _ => "",
            };
            let message = format!("TIFF with the photometric interpretation {other}{name} is not supported");
            return Err(unsupported(message));
        }
    })
}

/// Reads the depth and the kind of samples, which must be those of all samples.
fn read_depth(tags: &TiffTags<'_>, samples: usize) -> Result<(u32, SampleKind), Reject> {
    let mut all = tags.numbers(tags::BITS_PER_SAMPLE).take(samples);
    let bits = all.next().unwrap_or(1);
    if let Some(other) = all.find(|other| *other != bits) {
        return Err(unsupported(format!("TIFF with samples of {bits} and {other} bits is not supported")));
    }
    let mut all = tags.numbers(tags::SAMPLE_FORMAT).take(samples);
    let format = all.next().unwrap_or(1);
    if all.any(|other| other != format) {
        return Err(unsupported("TIFF with samples of several formats is not supported"));
    }
    let kind = match format {
        // 4 means that the format is not known.
        1 | 4 => SampleKind::Unsigned,
        2 => SampleKind::Signed,
        3 => SampleKind::Float,
        other => return Err(unsupported(format!("TIFF with samples of format {other} is not supported"))),
    };
    match u32::try_from(bits) {
        Ok(bits @ 1..=64) => Ok((bits, kind)),
        _ => Err(unsupported(format!("TIFF with samples of {bits} bits is not supported"))),
    }
}
