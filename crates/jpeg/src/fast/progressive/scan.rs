//! The loop over the blocks of a progressive scan.

use pulp::NullaryFnOnce;

use super::super::bit_reader::BitReader;
use super::super::request::Declined;
use super::super::scan::{PADDING, Segments};
use super::ComponentBlocks;
use super::coding::BlockCoding;
use crate::structure::Scan;

/// Reads a scan.
pub(super) struct ReadScan<'a, C> {
    pub(super) coding: C,
    pub(super) scan: &'a Scan<'a>,
    /// MCUs per row, and rows, of scans with several components.
    pub(super) mcus: (usize, usize),
    pub(super) segments: Segments<'a>,
    pub(super) components: &'a mut [ComponentBlocks; 3],
}

impl<C: BlockCoding> NullaryFnOnce for ReadScan<'_, C> {
    type Output = Result<(), Declined>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { mut coding, scan, mcus, mut segments, components } = self;
        let restart = if scan.restart == 0 { usize::MAX } else { scan.restart };
        // A scan of a single component contains only blocks with pixels of the image, one per MCU.
        let alone = match &scan.components[..] {
            [component] => Some(component.index),
            _ => None,
        };
        let (columns, rows) = match alone {
            Some(index) => components.get(index).ok_or(Declined)?.in_image,
            None => mcus,
        };
        // Starts in the state at the end of a segment.
        let (mut reader, mut left) = (BitReader::new(&[0; PADDING]), 0);
        for row in 0..rows {
            for column in 0..columns {
                if left == 0 {
                    reader.check_end(true)?;
                    if !coding.may_end() {
                        return Err(Declined);
                    }
                    reader = BitReader::new(segments.next().ok_or(Declined)?);
                    coding.restart();
                    left = restart;
                }
                left -= 1;
                for member in &scan.components {
                    let component = components.get_mut(member.index).ok_or(Declined)?;
                    let (across, down) = if alone.is_some() { (1, 1) } else { component.per_mcu };
                    for y in 0..down {
                        let at = (row * down + y) * component.stride + column * across;
                        let blocks = component.blocks.get_mut(at..at + across).ok_or(Declined)?;
                        let nonzero = component.nonzero.get_mut(at..at + across).ok_or(Declined)?;
                        for (block, nonzero) in blocks.iter_mut().zip(nonzero) {
                            coding.block(&mut reader, member.index, block, nonzero)?;
                        }
                    }
                }
            }
        }
        reader.check_end(true)?;
        if coding.may_end() && segments.next().is_none() { Ok(()) } else { Err(Declined) }
    }
}
