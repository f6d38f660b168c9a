//! The pages of a TIFF file: which of its directories is the image.
//!
//! A directory may be a reduced version of another image, such as a thumbnail, or a mask (`NewSubfileType`, TIFF 6.0). The
//! image is the first one that is neither, as in viewers. Raw photographs are TIFF files, too: their first directory is a
//! preview, and the image is data of the sensor.

use std::collections::HashSet;

use dsconvert_dataset::sample::Reject;

use super::super::sniff::CAMERA_RAW;
use super::super::{truncated, unreadable};
use super::tags::{self, TiffTags};

/// Directories after these are neither searched nor counted.
const MAX_DIRECTORIES: usize = 1 << 16;
/// Directories inside a directory after these are not examined.
const MAX_SUB_DIRECTORIES: usize = 64;
/// Bits of `NewSubfileType`.
const REDUCED: u64 = 1;
const MASK: u64 = 4;
/// Value of the older `SubfileType` for a reduced image.
const OLD_REDUCED: u64 = 2;
/// Photometric interpretations of the data of a sensor: with and without a color filter array.
const SENSOR_DATA: [u64; 2] = [32_803, 34_892];

/// The directory of the image in a TIFF file.
#[derive(Debug)]
pub(super) struct TiffPage<'a> {
    pub(super) tags: TiffTags<'a>,
    /// Whether it is the first directory, which simple readers use.
    pub(super) is_first: bool,
    /// Number of other images that are neither reduced nor masks.
    pub(super) further: u64,
}

impl<'a> TiffPage<'a> {
    /// Finds the image in the TIFF file `bytes`. Rejects raw photographs.
    pub(super) fn find(bytes: &'a [u8]) -> Result<Self, Reject> {
        let first = TiffTags::read(bytes).ok_or_else(|| truncated("its directory"))?;
        let (mut chosen, mut full) = (None, 0u64);
        // A damaged directory ends the list: its image is not needed.
        for (number, tags) in directories(first).enumerate() {
            let is_raw = |tags: &TiffTags<'_>| {
                tags.first(tags::PHOTOMETRIC).is_some_and(|value| SENSOR_DATA.contains(&value))
            };
            if is_raw(&tags)
                || sub_directories(&tags).any(|tags| is_raw(&tags))
                || (number == 0 && is_camera_file(&tags))
            {
                return Err(unreadable(CAMERA_RAW));
            }
            if is_full(&tags) {
                full += 1;
                chosen.get_or_insert((number, tags));
            }
        }
        let reduced = || sub_directories(&first).find(is_full).map(|tags| (1, tags));
        let (number, tags) = chosen.or_else(reduced).unwrap_or((0, first));
        Ok(Self { tags, is_first: number == 0, further: full.saturating_sub(1) })
    }
}

/// Returns whether the directory is an image of full size.
fn is_full(tags: &TiffTags<'_>) -> bool {
    match tags.first(tags::NEW_SUBFILE_TYPE) {
        Some(bits) => bits & (REDUCED | MASK) == 0,
        None => tags.first(tags::SUBFILE_TYPE) != Some(OLD_REDUCED),
    }
}

/// Returns whether the first directory is that of a DNG or CR2 file.
fn is_camera_file(tags: &TiffTags<'_>) -> bool {
    tags.first(tags::DNG_VERSION).is_some() || tags.bytes().get(8..10) == Some(b"CR")
}

/// Returns the directories of the file, up to a damaged one, or one that was returned already.
fn directories<'a>(first: TiffTags<'a>) -> impl Iterator<Item = TiffTags<'a>> {
    let mut seen = HashSet::new();
    let next = |tags: &TiffTags<'a>| tags.at(tags.next().filter(|position| *position > 0)?);
    std::iter::successors(Some(first), next)
        .take_while(move |tags| seen.insert(tags.first_entry()))
        .take(MAX_DIRECTORIES)
}

/// Returns the directories inside the directory `tags`.
fn sub_directories<'a>(tags: &TiffTags<'a>) -> impl Iterator<Item = TiffTags<'a>> {
    let tags = *tags;
    let positions: Vec<u64> = tags.numbers(tags::SUB_DIRECTORIES).take(MAX_SUB_DIRECTORIES).collect();
    positions.into_iter().filter_map(move |position| tags.at(position))
}
