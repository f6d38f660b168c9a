//! An AVIF file: what its container declares, and its pixels.

use std::borrow::Cow;

use crate::boxes::{Fields, name};
use crate::convert;
use crate::decoder;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{Meta, top_level};
use crate::movie::Movie;
use crate::picture::Picture;
use crate::properties::Properties;
use crate::sequence::max_size;

/// Types of auxiliary images and of tiles.
const AV1: &[u8; 4] = b"av01";
const GRID: &[u8; 4] = b"grid";

/// Maximum ratio of the pixels of all tiles of a grid to those of the image, which they may exceed at two sides.
const MAX_TILE_RATIO: u64 = 4;
/// Number of pixels of tiles up to which no ratio is checked.
const UNCHECKED_TILE_PIXELS: u64 = 1 << 20;

/// How the decoded pixels are turned to be upright: first rotated, then mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// Counterclockwise rotation in quarter turns, 0 to 3.
    pub quarter_turns: u8,
    /// Exchange of two sides.
    pub mirror: Option<Mirror>,
}

/// The sides that are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// Top and bottom.
    TopBottom,
    /// Left and right.
    LeftRight,
}

/// Tiles that make up an image, row by row.
#[derive(Debug)]
struct Grid<'a> {
    columns: u32,
    tiles: Vec<Coded<'a>>,
}

/// One AV1 picture in the file.
#[derive(Debug)]
struct Coded<'a> {
    data: Cow<'a, [u8]>,
    size: (u32, u32),
}

/// What is decoded for an image or for its alpha.
#[derive(Debug)]
enum Source<'a> {
    One(Coded<'a>),
    Grid(Grid<'a>),
}

/// An AVIF file whose container was read.
#[derive(Debug)]
pub struct AvifFile<'a> {
    width: u32,
    height: u32,
    depth: u8,
    is_monochrome: bool,
    properties: Properties<'a>,
    color: Source<'a>,
    alpha: Option<Source<'a>>,
    is_premultiplied: bool,
    frames: u32,
    exif: Option<Cow<'a, [u8]>>,
}

impl<'a> AvifFile<'a> {
    /// Reads the container of the file `bytes`, and checks that the data of the image is in it.
    ///
    /// # Errors
    ///
    /// When the file is truncated, contradicts the format, or needs what this crate does not decode.
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let brands = top_level(bytes, b"ftyp")?.ok_or_else(|| Error::corrupt("it has no box `ftyp`"))?;
        // A file with both has its still image in `meta`, and its major brand says which of them it is.
        let is_still = brands.content.starts_with(b"avif");
        let movie = if is_still { None } else { top_level(bytes, b"moov")? };
        if let Some(movie) = movie {
            return Self::of_movie(&Movie::read(bytes, movie.content)?);
        }
        let missing = || Error::new(ErrorKind::Truncated, "the file ends before its box `meta`");
        let meta = top_level(bytes, b"meta")?.ok_or_else(missing)?;
        Self::of_meta(&Meta::read(bytes, meta.content)?)
    }

    fn of_movie(movie: &Movie<'a>) -> Result<Self> {
        let color = &movie.color;
        let size = size_of(&color.properties)?;
        let config = color.properties.config()?;
        let coded = |data, size| Source::One(Coded { data: Cow::Borrowed(data), size });
        let alpha = match &movie.alpha {
            Some(alpha) => Some(coded(alpha.first, size_of(&alpha.properties)?)),
            None => None,
        };
        Self {
            width: size.0,
            height: size.1,
            depth: config.depth,
            is_monochrome: config.is_monochrome,
            properties: color.properties,
            color: coded(color.first, size),
            alpha,
            is_premultiplied: movie.is_premultiplied(),
            frames: color.samples,
            exif: None,
        }
        .checked()
    }

    fn of_meta(meta: &Meta<'a>) -> Result<Self> {
        let id = meta.primary;
        let item = meta.get(id)?;
        let properties = item.properties;
        let size = size_of(&properties)?;
        let color = source_of(meta, id)?;
        let alpha_id = meta.alpha_of(id);
        let alpha = match alpha_id {
            Some(alpha) => Some(source_of(meta, alpha)?),
            // The alpha of each tile may be an item of its own.
            None if &item.kind == GRID => {
                let alphas: Option<Vec<u32>> =
                    meta.targets(b"dimg", id).iter().map(|tile| meta.alpha_of(*tile)).collect();
                match alphas {
                    Some(alphas) => Some(Source::Grid(grid_of(meta, id, &alphas)?)),
                    None => None,
                }
            }
            None => None,
        };
        let is_premultiplied = alpha_id.is_some_and(|alpha| meta.targets(b"prem", id).contains(&alpha));
        let config = match (&item.kind, meta.targets(b"dimg", id)) {
            (GRID, [tile, ..]) => meta.get(*tile)?.properties.config()?,
            _ => properties.config()?,
        };
        Self {
            width: size.0,
            height: size.1,
            depth: config.depth,
            is_monochrome: config.is_monochrome,
            properties,
            color,
            alpha,
            is_premultiplied,
            frames: 1,
            exif: meta.exif_of(id),
        }
        .checked()
    }

    fn checked(self) -> Result<Self> {
        if let Some(unsupported) = self.properties.unsupported {
            return Err(unsupported.into_error());
        }
        if let Some(cicp) = self.properties.cicp {
            convert::check_colors(cicp)?;
        }
        Ok(self)
    }

    /// Returns the width of the decoded pixels, before [`Self::turn`] is applied.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height of the decoded pixels, before [`Self::turn`] is applied.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the number of samples per pixel of the output: 1 for gray and 3 for RGB, and one more for alpha.
    ///
    /// Gray with the profile of an RGB color space is RGB.
    pub fn channels(&self) -> usize {
        let has_rgb_profile = self.icc().is_some_and(|icc| icc.get(16..20) == Some(b"RGB "));
        let colors = if self.is_monochrome && !has_rgb_profile { 1 } else { 3 };
        colors + usize::from(self.alpha.is_some())
    }

    /// Returns whether colors are multiplied by alpha. [`Self::decode`] does not undo it.
    pub fn is_premultiplied(&self) -> bool {
        self.is_premultiplied
    }

    /// Returns the bits per stored sample: 8, 10 or 12.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// Returns how the decoded pixels are turned to be upright.
    pub fn turn(&self) -> Turn {
        let mirror = self.properties.mirror.map(|axis| match axis {
            0 => Mirror::TopBottom,
            _ => Mirror::LeftRight,
        });
        Turn { quarter_turns: self.properties.quarter_turns.unwrap_or_default(), mirror }
    }

    /// Returns the number of frames, of which only the first is decoded.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the ICC profile, which [`Self::decode`] does not apply.
    pub fn icc(&self) -> Option<&'a [u8]> {
        self.properties.icc
    }

    /// Returns the EXIF block: a TIFF header and its directories. Its orientation has no effect on AVIF.
    pub fn exif(&self) -> Option<&[u8]> {
        self.exif.as_deref()
    }

    /// Checks that the AV1 data declares pictures of the size in the header. Callers that allocate memory for the size check
    /// this first.
    ///
    /// # Errors
    ///
    /// When the data declares smaller pictures, or none.
    pub fn check_data(&self) -> Result<()> {
        [Some(&self.color), self.alpha.as_ref()].into_iter().flatten().try_for_each(|source| match source {
            Source::One(coded) => coded.check(),
            Source::Grid(grid) => grid.tiles.iter().try_for_each(Coded::check),
        })
    }

    /// Decodes the pixels into `out`, which must have [`Self::channels`] bytes for each pixel.
    ///
    /// # Errors
    ///
    /// When the AV1 data is damaged or differs from what the container declares.
    pub fn decode(&self, out: &mut [u8]) -> Result<()> {
        let channels = self.channels();
        let pixels = u64::from(self.width) * u64::from(self.height);
        if out.len() as u64 != pixels * channels as u64 {
            return Err(Error::too_large(format!(
                "the buffer has {} bytes, not those of the image",
                out.len()
            )));
        }
        let size = (self.width, self.height);
        let color = self.color.picture(size)?;
        if color.depth != self.depth || (color.planes[1].samples.is_empty() != self.is_monochrome) {
            return Err(Error::corrupt("its AV1 data has another format than its header declares"));
        }
        convert::colors(&color, self.properties.cicp.unwrap_or(color.cicp), channels, out)?;
        drop(color);
        if let Some(alpha) = &self.alpha {
            convert::alpha(&alpha.picture(size)?, channels, out);
        }
        Ok(())
    }
}

/// Returns the size in the properties of an image.
fn size_of(properties: &Properties<'_>) -> Result<(u32, u32)> {
    let (width, height) = properties.size.ok_or_else(|| Error::corrupt("an image has no box `ispe`"))?;
    if width == 0 || height == 0 {
        return Err(Error::corrupt(format!("the header declares {width}×{height} pixels")));
    }
    Ok((width, height))
}

/// Returns what is decoded for the image item `id`.
fn source_of<'a>(meta: &Meta<'a>, id: u32) -> Result<Source<'a>> {
    let item = meta.get(id)?;
    match &item.kind {
        AV1 => Ok(Source::One(coded_of(meta, id)?)),
        GRID => Ok(Source::Grid(grid_of(meta, id, meta.targets(b"dimg", id))?)),
        kind => Err(Error::unsupported(format!("its image is an item of the type `{}`", name(*kind)))),
    }
}

fn coded_of<'a>(meta: &Meta<'a>, id: u32) -> Result<Coded<'a>> {
    let item = meta.get(id)?;
    if &item.kind != AV1 {
        let kind = name(item.kind);
        return Err(Error::unsupported(format!("a tile of its grid is an item of the type `{kind}`")));
    }
    if let Some(unsupported) = item.properties.unsupported {
        return Err(unsupported.into_error());
    }
    item.properties.config()?;
    Ok(Coded { data: meta.data(id)?, size: size_of(&item.properties)? })
}

/// Returns the tiles `tiles` in the layout of the grid item `id`.
fn grid_of<'a>(meta: &Meta<'a>, id: u32, tiles: &[u32]) -> Result<Grid<'a>> {
    let data = meta.data(id)?;
    let mut fields = Fields::new(*GRID, &data);
    let (version, flags) = (fields.u8()?, fields.u8()?);
    if version != 0 {
        return Err(Error::unsupported(format!("its grid has version {version}")));
    }
    let (rows, columns) = (u32::from(fields.u8()?) + 1, u32::from(fields.u8()?) + 1);
    let size = (fields.u16_or_u32(flags & 1 == 1)?, fields.u16_or_u32(flags & 1 == 1)?);
    if size != size_of(&meta.get(id)?.properties)? {
        return Err(Error::corrupt("the size of its grid differs from that of its image"));
    }
    if tiles.len() as u64 != u64::from(rows) * u64::from(columns) {
        return Err(Error::corrupt(format!(
            "its grid has {rows}×{columns} tiles, but {} images",
            tiles.len()
        )));
    }
    let tiles: Vec<Coded<'a>> = tiles.iter().map(|tile| coded_of(meta, *tile)).collect::<Result<_>>()?;
    let (width, height) = tiles.first().map(|tile| tile.size).unwrap_or_default();
    if tiles.iter().any(|tile| tile.size != (width, height)) {
        return Err(Error::corrupt("the tiles of its grid have different sizes"));
    }
    let covers = |tile: u32, count: u32, side: u32| {
        let tile = u64::from(tile);
        tile * u64::from(count) >= side.into() && tile * u64::from(count - 1) < side.into()
    };
    if !covers(width, columns, size.0) || !covers(height, rows, size.1) {
        return Err(Error::corrupt("the tiles of its grid do not cover its image"));
    }
    // Chroma must not be divided between two tiles.
    if (columns > 1 && width % 2 == 1) || (rows > 1 && height % 2 == 1) {
        return Err(Error::unsupported("the tiles of its grid have an odd width or height"));
    }
    let pixels = u64::from(width) * u64::from(height) * tiles.len() as u64;
    let limit = (u64::from(size.0) * u64::from(size.1) * MAX_TILE_RATIO).max(UNCHECKED_TILE_PIXELS);
    if pixels > limit {
        return Err(Error::too_large("the tiles of its grid are much larger than its image"));
    }
    Ok(Grid { columns, tiles })
}

impl Coded<'_> {
    /// Checks that the data declares frames of the size of the picture.
    fn check(&self) -> Result<()> {
        let (width, height) = self.size;
        match max_size(&self.data) {
            None => Err(Error::corrupt("its AV1 data contains no picture")),
            Some((columns, rows)) if width > columns || height > rows => Err(Error::corrupt(format!(
                "its AV1 data has at most {columns}×{rows} pixels, but its header declares {width}×{height}"
            ))),
            Some(_) => Ok(()),
        }
    }

    fn picture(&self) -> Result<Picture> {
        let (width, height) = self.size;
        let picture = decoder::decode(&self.data, u64::from(width) * u64::from(height))?;
        if (picture.width, picture.height) != self.size {
            let (w, h) = (picture.width, picture.height);
            let message =
                format!("its AV1 data has {w}×{h} pixels, but its header declares {width}×{height}");
            return Err(Error::corrupt(message));
        }
        Ok(picture)
    }
}

impl Source<'_> {
    /// Decodes a picture of the size `(width, height)`.
    fn picture(&self, (width, height): (u32, u32)) -> Result<Picture> {
        let grid = match self {
            Self::One(coded) if coded.size == (width, height) => return coded.picture(),
            Self::One(_) => return Err(Error::unsupported("its alpha has another size than its colors")),
            Self::Grid(grid) => grid,
        };
        let mut canvas = None;
        for (index, tile) in (0..).zip(&grid.tiles) {
            let picture = tile.picture()?;
            let canvas = match &mut canvas {
                Some(canvas) => canvas,
                None => canvas.insert(Picture::blank(width, height, &picture)?),
            };
            let (column, row) = (index % grid.columns, index / grid.columns);
            canvas.paste(&picture, column * tile.size.0, row * tile.size.1)?;
        }
        canvas.ok_or_else(|| Error::corrupt("its grid has no tiles"))
    }
}
