//! JPEG: marker segments, then scans of entropy-coded data, then the end marker (ITU T.81, annex B).

use std::borrow::Cow;
use std::ops::Range;

use dsconvert_jpeg::Process;

use super::super::exif;
use super::super::outcome::Tolerated;
use super::{Structure, corrupt, size, truncated, u16_be, unsupported};
use crate::sample::Reject;

pub(in crate::transform::image) const SOI: u8 = 0xd8;
pub(in crate::transform::image) const EOI: u8 = 0xd9;
pub(in crate::transform::image) const SOS: u8 = 0xda;
pub(in crate::transform::image) const APP0: u8 = 0xe0;
pub(in crate::transform::image) const APP1: u8 = 0xe1;
pub(in crate::transform::image) const APP2: u8 = 0xe2;
pub(in crate::transform::image) const APP14: u8 = 0xee;
pub(in crate::transform::image) const APP15: u8 = 0xef;
pub(in crate::transform::image) const COM: u8 = 0xfe;

const ICC_MARK: &[u8] = b"ICC_PROFILE\0";
/// The start of an APP1 segment that contains EXIF.
pub(in crate::transform::image) const EXIF_MARK: &[u8] = b"Exif\0\0";
/// The start of an APP1 segment that contains XMP.
const XMP_MARK: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const ADOBE_MARK: &[u8] = b"Adobe";

/// The frame header.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::image) struct FrameHeader {
    pub(in crate::transform::image) process: Process,
    /// Bits per sample.
    pub(in crate::transform::image) precision: u8,
    /// Whether every reader supports the frame: 8 bits, DCT and Huffman coding.
    pub(in crate::transform::image) is_read_everywhere: bool,
    /// Number of components: 1, 3 or 4.
    pub(in crate::transform::image) components: usize,
    /// Largest sampling factor, in either direction.
    pub(in crate::transform::image) max_factor: u32,
}

/// Everything before the first scan.
#[derive(Debug)]
pub(in crate::transform::image) struct JpegHeader<'a> {
    pub(in crate::transform::image) frame: FrameHeader,
    /// Position of the marker of the first scan.
    pub(in crate::transform::image) first_scan: usize,
    /// Whether any segments contain only metadata.
    pub(in crate::transform::image) has_metadata: bool,
    /// The EXIF block, including [`EXIF_MARK`].
    pub(in crate::transform::image) exif: Option<&'a [u8]>,
    /// Parts of the ICC profile: number (from 1), count, bytes.
    icc_parts: Vec<(u8, u8, &'a [u8])>,
}

impl JpegHeader<'_> {
    /// Returns whether the file `bytes` divides the coefficients among several scans.
    pub(in crate::transform::image) fn has_several_scans(&self, bytes: &[u8]) -> bool {
        self.frame.process == Process::Progressive
            // Whether the first scan leaves components to others.
            || bytes.get(self.first_scan + 4).is_some_and(|count| usize::from(*count) < self.frame.components)
    }

    /// Returns the ICC profile, assembled from its parts; `None` if there is none or parts are missing.
    pub(in crate::transform::image) fn icc_profile(&self) -> Option<Vec<u8>> {
        let count = usize::from(self.icc_parts.first()?.1);
        let mut profile = Vec::new();
        for number in 1..=count {
            let part = self.icc_parts.iter().find(|part| usize::from(part.0) == number)?;
            profile.extend_from_slice(part.2);
        }
        (count > 0).then_some(profile)
    }
}

/// One marker segment before the first scan.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::image) struct MarkerSegment<'a> {
    pub(in crate::transform::image) marker: u8,
    /// Bytes after the length.
    pub(in crate::transform::image) payload: &'a [u8],
    /// Marker, length and payload as stored in the file.
    pub(in crate::transform::image) whole: &'a [u8],
}

impl MarkerSegment<'_> {
    /// Returns whether the segment can be removed without changing pixels. JFIF and Adobe segments cannot: they
    /// determine the interpretation of colors.
    pub(in crate::transform::image) fn is_metadata(&self) -> bool {
        match self.marker {
            APP0 => !self.payload.starts_with(b"JFIF\0"),
            APP14 => !self.payload.starts_with(ADOBE_MARK),
            APP1..=APP15 | COM => true,
            _ => false,
        }
    }
}

/// Reads the segments before the first scan, one after the other.
pub(in crate::transform::image) struct MarkerSegments<'a> {
    bytes: &'a [u8],
    /// Position of the next segment.
    at: usize,
    /// Number of bytes that belong to no segment.
    stray_bytes: usize,
}

impl<'a> MarkerSegments<'a> {
    pub(in crate::transform::image) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2, stray_bytes: 0 }
    }

    /// Returns the next segment; `None` at the first scan, whose position is then in `at`.
    pub(in crate::transform::image) fn next(&mut self) -> Result<Option<MarkerSegment<'a>>, Reject> {
        let cut = || truncated("its header");
        loop {
            while *self.bytes.get(self.at).ok_or_else(cut)? != 0xff {
                self.at += 1;
                self.stray_bytes += 1;
            }
            // Any number of 0xff fill bytes may precede a marker.
            while *self.bytes.get(self.at + 1).ok_or_else(cut)? == 0xff {
                self.at += 1;
            }
            let marker = *self.bytes.get(self.at + 1).ok_or_else(cut)?;
            match marker {
                0x00 => {
                    self.at += 2;
                    self.stray_bytes += 2;
                }
                // TEM and restart markers have no payload; nor does a second start of image.
                0x01 | 0xd0..=0xd7 | SOI => self.at += 2,
                EOI => return Err(corrupt("the JPEG ends before its first scan")),
                SOS => return Ok(None),
                _ => {
                    let length = usize::from(u16_be(self.bytes, self.at + 2).ok_or_else(cut)?);
                    if length < 2 {
                        return Err(corrupt(format!("segment {marker:#04x} has a length of {length}")));
                    }
                    let whole = self.bytes.get(self.at..self.at + 2 + length).ok_or_else(cut)?;
                    self.at += whole.len();
                    return Ok(Some(MarkerSegment { marker, payload: &whole[4..], whole }));
                }
            }
        }
    }
}

/// Reads a frame header; returns `None` if `marker` does not start a frame.
fn frame(marker: u8, payload: &[u8]) -> Result<Option<(FrameHeader, super::Size)>, Reject> {
    let process = match marker {
        0xc0 | 0xc1 | 0xc9 => Process::Sequential,
        0xc2 | 0xca => Process::Progressive,
        0xc3 | 0xcb => Process::Lossless,
        0xc5..=0xc7 | 0xcd..=0xcf => return Err(unsupported("hierarchical JPEG is not supported")),
        _ => return Ok(None),
    };
    let [precision, h0, h1, w0, w1, components, rest @ ..] = payload else {
        return Err(corrupt("the frame header is too short"));
    };
    let (height, width) = (u16::from_be_bytes([*h0, *h1]), u16::from_be_bytes([*w0, *w1]));
    if height == 0 && width != 0 {
        return Err(unsupported("a JPEG that states its height after the first scan is not supported"));
    }
    let components = usize::from(*components);
    if !matches!(components, 1 | 3 | 4) || rest.len() < 3 * components {
        return Err(corrupt(format!("the frame header declares {components} components")));
    }
    // Horizontal and vertical sampling factors.
    let mut max_factor = 1u32;
    for component in rest.chunks_exact(3).take(components) {
        let factors = (component[1] >> 4, component[1] & 15);
        if !(1..=4).contains(&factors.0) || !(1..=4).contains(&factors.1) {
            return Err(corrupt(format!("a component has the sampling factors {factors:?}")));
        }
        max_factor = max_factor.max(factors.0.max(factors.1).into());
    }
    let is_read_everywhere = *precision == 8 && matches!(marker, 0xc0..=0xc2);
    let size = size(width.into(), height.into())?;
    let frame = FrameHeader { process, precision: *precision, is_read_everywhere, components, max_factor };
    Ok(Some((frame, size)))
}

/// Reads everything before the first scan of the JPEG file `bytes`.
pub(in crate::transform::image) fn header(bytes: &[u8]) -> Result<(Structure, JpegHeader<'_>), Reject> {
    let mut segments = MarkerSegments::new(bytes);
    let mut found = None;
    let (mut exif, mut xmp) = (None, None);
    let mut has_metadata = false;
    let mut icc_parts = Vec::new();
    while let Some(segment) = segments.next()? {
        has_metadata |= segment.is_metadata();
        match segment.marker {
            APP1 if exif.is_none() && segment.payload.starts_with(EXIF_MARK) => exif = Some(segment.payload),
            APP1 if segment.payload.starts_with(XMP_MARK) => xmp = segment.payload.get(XMP_MARK.len()..),
            APP2 => {
                if let Some([number, count, part @ ..]) = segment.payload.strip_prefix(ICC_MARK) {
                    icc_parts.push((*number, *count, part));
                }
            }
            marker => {
                if let Some(frame) = frame(marker, segment.payload)?
                    && found.replace(frame).is_some()
                {
                    return Err(corrupt("the JPEG has two frame headers"));
                }
            }
        }
    }
    let (frame, size) = found.ok_or_else(|| corrupt("the JPEG has a scan but no frame header"))?;
    let mut structure = Structure::of_size(size);
    structure.orientation = exif::orientation_with(exif, || xmp.map(Cow::Borrowed));
    let first_scan = segments.at;
    if segments.stray_bytes > 0 {
        structure.tolerated = Some(Tolerated::StrayBytes);
    } else if frame.process == Process::Sequential
        && scan_parameters(bytes, first_scan)
            .and_then(|at| bytes.get(at))
            .is_some_and(|found| found != SEQUENTIAL)
    {
        structure.tolerated = Some(Tolerated::ScanParameters);
    }
    Ok((structure, JpegHeader { frame, first_scan, has_metadata, exif, icc_parts }))
}

/// The parameters of a scan of a sequential JPEG: all coefficients, with all their bits.
pub(in crate::transform::image) const SEQUENTIAL: [u8; 3] = [0, 63, 0];

/// Returns where the parameters of the scan at `scan` are: the last three bytes of its header.
pub(in crate::transform::image) fn scan_parameters(bytes: &[u8], scan: usize) -> Option<Range<usize>> {
    let end = scan + 2 + usize::from(u16_be(bytes, scan + 2)?);
    let components = usize::from(*bytes.get(scan + 4)?);
    let start = end.checked_sub(3)?;
    (start == scan + 5 + 2 * components && end <= bytes.len()).then_some(start..end)
}

/// Searches for the end marker from `first_scan` on. Returns the position after it, or `None` if there is none.
pub(in crate::transform::image) fn end(bytes: &[u8], first_scan: usize) -> Option<usize> {
    let mut at = first_scan;
    loop {
        at += memchr::memchr(0xff, bytes.get(at..)?)?;
        match *bytes.get(at + 1)? {
            EOI => return Some(at + 2),
            // Stuffing, fill bytes and restart markers: still inside the entropy-coded data.
            0x00 => at += 2,
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            _ => at += 2 + usize::from(u16_be(bytes, at + 2)?),
        }
    }
}

/// Returns whether the file has an end marker. Nearly every complete file ends with it, so only the others are
/// searched.
pub(in crate::transform::image) fn is_ended(bytes: &[u8], first_scan: usize) -> bool {
    bytes.ends_with(&[0xff, EOI]) || end(bytes, first_scan).is_some()
}
