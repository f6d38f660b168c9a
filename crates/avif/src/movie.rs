//! The `moov` box of an image sequence: its tracks, and the first sample of each.

use crate::boxes::{BmffBox, Boxes, Fields};
use crate::error::{Error, Result};
use crate::properties::Properties;

/// Maximum number of tracks. A sequence has one or two.
const MAX_TRACKS: usize = 64;

/// A track of AV1 samples.
#[derive(Debug)]
pub(crate) struct Track<'a> {
    id: u32,
    pub(crate) properties: Properties<'a>,
    /// Number of samples.
    pub(crate) samples: u32,
    /// The data of the first sample.
    pub(crate) first: &'a [u8],
    /// The tracks that this track is an auxiliary of.
    auxiliary_of: Vec<u32>,
    /// The tracks by whose alpha this track is multiplied.
    premultiplied_by: Vec<u32>,
}

/// The tracks that make up the pictures.
#[derive(Debug)]
pub(crate) struct Movie<'a> {
    pub(crate) color: Track<'a>,
    pub(crate) alpha: Option<Track<'a>>,
}

impl<'a> Movie<'a> {
    /// Reads the `moov` box `content` of `file`.
    pub(crate) fn read(file: &'a [u8], content: &'a [u8]) -> Result<Self> {
        let mut tracks = Vec::new();
        for found in Fields::new(*b"moov", content).boxes() {
            let found = found?;
            if &found.kind == b"trak" {
                if tracks.len() == MAX_TRACKS {
                    return Err(Error::too_large("it has more tracks than any real sequence"));
                }
                tracks.extend(Track::read(file, found)?);
            }
        }
        let color = tracks.iter().position(|track| track.auxiliary_of.is_empty());
        let color = tracks.remove(color.ok_or_else(|| Error::corrupt("the sequence has no track of AV1"))?);
        let is_alpha = |track: &Track<'_>| {
            let properties = &track.properties;
            track.auxiliary_of.contains(&color.id)
                && (properties.is_alpha() || properties.auxiliary.is_none())
        };
        let alpha = tracks.into_iter().find(is_alpha);
        Ok(Self { color, alpha })
    }

    /// Returns whether colors are multiplied by alpha.
    pub(crate) fn is_premultiplied(&self) -> bool {
        self.alpha.as_ref().is_some_and(|alpha| self.color.premultiplied_by.contains(&alpha.id))
    }
}

/// Returns the content of the box at `path`, from the outermost to the innermost.
fn at_path<'a>(mut boxes: Boxes<'a>, path: &[&[u8; 4]]) -> Result<Option<BmffBox<'a>>> {
    let mut found = None;
    for kind in path {
        let Some(inner) = boxes.find(kind)? else { return Ok(None) };
        boxes = Fields::new(inner.kind, inner.content).boxes();
        found = Some(inner);
    }
    Ok(found)
}

impl<'a> Track<'a> {
    /// Reads a `trak` box; `None` if its samples are not AV1.
    fn read(file: &'a [u8], track: BmffBox<'a>) -> Result<Option<Self>> {
        let boxes = Fields::new(track.kind, track.content).boxes();
        let Some(table) = at_path(boxes.clone(), &[b"mdia", b"minf", b"stbl"])? else { return Ok(None) };
        let table = Fields::new(table.kind, table.content).boxes();
        let Some(properties) = sample_entry(table.clone())? else { return Ok(None) };
        let header = boxes.clone().find(b"tkhd")?.ok_or_else(|| missing("tkhd"))?;
        let (mut fields, version, _) = Fields::versioned(header.kind, header.content)?;
        // The times of creation and modification.
        fields.take(if version == 1 { 16 } else { 8 })?;
        let id = fields.u32()?;
        let (samples, first_bytes) = sizes(table.clone())?;
        let offset = first_offset(table)?;
        let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..));
        let first = rest.and_then(|rest| rest.get(..first_bytes as usize));
        let first = first.ok_or_else(|| Error::truncated("the data of its first frame"))?;
        let references = |kind: &[u8; 4]| -> Result<Vec<u32>> {
            let Some(list) = at_path(boxes.clone(), &[b"tref", kind])? else { return Ok(Vec::new()) };
            Ok(list.content.as_chunks().0.iter().map(|id| u32::from_be_bytes(*id)).collect())
        };
        let (auxiliary_of, premultiplied_by) = (references(b"auxl")?, references(b"prem")?);
        Ok(Some(Self { id, properties, samples, first, auxiliary_of, premultiplied_by }))
    }
}

fn missing(kind: &str) -> Error {
    Error::corrupt(format!("a track has no box `{kind}`"))
}

/// Returns the properties of the AV1 samples that `stsd` describes.
fn sample_entry(table: Boxes<'_>) -> Result<Option<Properties<'_>>> {
    let description = table.clone().find(b"stsd")?.ok_or_else(|| missing("stsd"))?;
    let (mut fields, ..) = Fields::versioned(description.kind, description.content)?;
    fields.u32()?;
    let Some(entry) = fields.boxes().find(b"av01")? else { return Ok(None) };
    let mut fields = Fields::new(entry.kind, entry.content);
    fields.take(24)?;
    let size = (fields.u16()?.into(), fields.u16()?.into());
    // The rest of a visual sample entry, before its boxes.
    fields.take(50)?;
    let mut properties = Properties { size: Some(size), ..Properties::default() };
    for property in fields.boxes() {
        properties.add(property?, false)?;
    }
    Ok(Some(properties))
}

/// Returns the number of samples, and the size of the first.
fn sizes(table: Boxes<'_>) -> Result<(u32, u32)> {
    let sizes = table.find(b"stsz")?.ok_or_else(|| missing("stsz"))?;
    let (mut fields, ..) = Fields::versioned(sizes.kind, sizes.content)?;
    let (of_all, count) = (fields.u32()?, fields.u32()?);
    if count == 0 {
        return Err(Error::corrupt("a track has no samples"));
    }
    Ok((count, if of_all == 0 { fields.u32()? } else { of_all }))
}

/// Returns the offset of the first sample, which is that of the first chunk.
fn first_offset(table: Boxes<'_>) -> Result<u64> {
    let (offsets, is_wide) = match table.clone().find(b"stco")? {
        Some(found) => (found, false),
        None => (table.find(b"co64")?.ok_or_else(|| missing("stco"))?, true),
    };
    let (mut fields, ..) = Fields::versioned(offsets.kind, offsets.content)?;
    fields.u32()?;
    if is_wide { fields.u64() } else { Ok(fields.u32()?.into()) }
}
