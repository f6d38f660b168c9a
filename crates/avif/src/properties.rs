//! Properties of image items and of samples: sizes, colors, orientation (ISO/IEC 23008-12).

use crate::boxes::{BmffBox, Fields, FourCc, name};
use crate::error::{Error, Result};

/// The colors of coded samples, as code points of ITU-T H.273.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cicp {
    pub(crate) primaries: u16,
    pub(crate) matrix: u16,
    pub(crate) is_full_range: bool,
}

/// What an `av1C` box says about the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Av1Config {
    pub(crate) depth: u8,
    pub(crate) is_monochrome: bool,
}

/// The properties of one image that this crate uses; the first of each kind counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Properties<'a> {
    pub(crate) size: Option<(u32, u32)>,
    pub(crate) config: Option<Av1Config>,
    pub(crate) cicp: Option<Cicp>,
    pub(crate) icc: Option<&'a [u8]>,
    /// Quarter turns, counterclockwise.
    pub(crate) quarter_turns: Option<u8>,
    /// The axis of `imir`: 0 exchanges top and bottom, 1 exchanges left and right.
    pub(crate) mirror: Option<u8>,
    /// The type of an auxiliary image.
    pub(crate) auxiliary: Option<&'a [u8]>,
    /// A reason why the image cannot be decoded.
    pub(crate) unsupported: Option<Unsupported>,
}

/// A property without which an image would be shown wrongly, and which this crate does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// `lsel`, or `a1op` with another operating point than the first.
    Layers,
    /// Any other property that is marked as essential.
    Essential(FourCc),
}

impl Unsupported {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Layers => Error::unsupported("it selects one layer of a layered AV1 image"),
            Self::Essential(kind) => {
                Error::unsupported(format!("it needs the property `{}`, which is not known", name(kind)))
            }
        }
    }
}

/// The value of `lsel` for all layers, of which the decoder returns the last.
const ALL_LAYERS: u16 = 0xffff;

/// The type URNs of alpha, of HEIF and of AV1.
const ALPHA: [&[u8]; 2] = [b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", b"urn:mpeg:hevc:2015:auxid:1"];

impl<'a> Properties<'a> {
    /// Adds a property. `is_essential` means that an image must not be shown without it.
    pub(crate) fn add(&mut self, property: BmffBox<'a>, is_essential: bool) -> Result<()> {
        let BmffBox { kind, content } = property;
        match &kind {
            b"ispe" => {
                let (mut fields, ..) = Fields::versioned(kind, content)?;
                let size = (fields.u32()?, fields.u32()?);
                self.size.get_or_insert(size);
            }
            b"av1C" => {
                let config = av1_config(kind, content)?;
                self.config.get_or_insert(config);
            }
            b"colr" => self.add_color(kind, content)?,
            b"irot" => {
                let turns = Fields::new(kind, content).u8()? & 3;
                self.quarter_turns.get_or_insert(turns);
            }
            b"imir" => {
                let axis = Fields::new(kind, content).u8()? & 1;
                self.mirror.get_or_insert(axis);
            }
            b"auxC" | b"auxi" => {
                let (fields, ..) = Fields::versioned(kind, content)?;
                let text = fields.rest().split(|byte| *byte == 0).next().unwrap_or_default();
                self.auxiliary.get_or_insert(text);
            }
            b"lsel" if Fields::new(kind, content).u16()? != ALL_LAYERS => {
                self.unsupported.get_or_insert(Unsupported::Layers);
            }
            b"a1op" if Fields::new(kind, content).u8()? != 0 => {
                self.unsupported.get_or_insert(Unsupported::Layers);
            }
            // The clean aperture is ignored, as other decoders do. The others do not change how pixels are decoded.
            b"lsel" | b"a1op" | b"clap" | b"pixi" | b"pasp" | b"a1lx" | b"clli" | b"mdcv" | b"cclv"
            | b"amve" | b"udes" | b"altt" => {}
            _ if is_essential => {
                self.unsupported.get_or_insert(Unsupported::Essential(kind));
            }
            _ => {}
        }
        Ok(())
    }

    fn add_color(&mut self, kind: FourCc, content: &'a [u8]) -> Result<()> {
        let mut fields = Fields::new(kind, content);
        match &fields.four()? {
            b"nclx" => {
                let (primaries, _transfer, matrix) = (fields.u16()?, fields.u16()?, fields.u16()?);
                let is_full_range = fields.u8()? & 0x80 != 0;
                self.cicp.get_or_insert(Cicp { primaries, matrix, is_full_range });
            }
            b"prof" | b"rICC" => {
                self.icc.get_or_insert(fields.rest());
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the image is auxiliary, and its samples are alpha.
    pub(crate) fn is_alpha(&self) -> bool {
        self.auxiliary.is_some_and(|auxiliary| ALPHA.contains(&auxiliary))
    }

    /// Returns the configuration of the decoder, which AV1 images must have.
    pub(crate) fn config(&self) -> Result<Av1Config> {
        self.config.ok_or_else(|| Error::corrupt("an AV1 image has no box `av1C`"))
    }
}

fn av1_config(kind: FourCc, content: &[u8]) -> Result<Av1Config> {
    let mut fields = Fields::new(kind, content);
    let (marker, _profile_and_level, bits) = (fields.u8()?, fields.u8()?, fields.u8()?);
    if marker != 0x81 {
        return Err(Error::corrupt("its box `av1C` does not start with the version 1"));
    }
    let (is_high, is_twelve) = (bits & 0x40 != 0, bits & 0x20 != 0);
    let depth = match (is_high, is_twelve) {
        (false, _) => 8,
        (true, false) => 10,
        (true, true) => 12,
    };
    Ok(Av1Config { depth, is_monochrome: bits & 0x10 != 0 })
}
