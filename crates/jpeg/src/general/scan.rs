//! Decoding of the coefficients of a scan, sequential or progressive (T.81, annexes F and G).

use super::bits::BitReader;
use super::planes::Coefficients;
use crate::block::{DctBlock, ZIGZAG_INDEX};
use crate::error::Error;
use crate::huffman_table::HuffmanTable;
use crate::structure::{JpegLayout, Process, Scan};

/// A component of the scan.
#[derive(Debug)]
struct ScanMember<'a> {
    /// Index of the component in the frame.
    index: usize,
    dc: Option<HuffmanTable<'a>>,
    ac: Option<HuffmanTable<'a>>,
    /// Blocks per MCU, horizontally and vertically.
    blocks: (usize, usize),
    last_dc: i32,
}

/// The coding of blocks in a scan.
#[derive(Debug, Clone, Copy)]
enum Coding {
    Sequential,
    DcFirst,
    DcRefined,
    AcFirst,
    AcRefined,
}

/// Reads one scan, row by row.
#[derive(Debug)]
pub(super) struct ScanReader<'a> {
    members: Vec<ScanMember<'a>>,
    coding: Coding,
    spectral: (usize, usize),
    /// The position of the lowest bit that the scan codes.
    low: u8,
    /// MCUs per row, and rows of them.
    columns: usize,
    pub(super) rows: usize,
    restart: usize,
    /// MCUs before the next restart marker.
    left: usize,
    /// The number of the next restart marker.
    next_restart: u8,
    /// Remaining blocks of the current EOB run.
    eob_run: u32,
    bits: BitReader<'a>,
}

impl<'a> ScanReader<'a> {
    pub(super) fn new(layout: &JpegLayout<'_>, scan: &Scan<'a>) -> Self {
        let is_alone = scan.components.len() == 1;
        let members: Vec<ScanMember<'_>> = scan
            .components
            .iter()
            .map(|component| ScanMember {
                index: component.index,
                dc: component.dc.map(HuffmanTable::new),
                ac: component.ac.map(HuffmanTable::new),
                blocks: match &layout.components[component.index] {
                    _ if is_alone => (1, 1),
                    frame => (frame.horizontal, frame.vertical),
                },
                last_dc: 0,
            })
            .collect();
        // A scan of a single component contains only blocks with pixels of the image, one per MCU.
        let (columns, rows) = match &scan.components[..] {
            [alone] => layout.blocks_with_pixels(&layout.components[alone.index]),
            _ => layout.mcus(),
        };
        let coding = match (layout.process, scan.spectral.0, scan.approximation.0) {
            (Process::Progressive, 0, 0) => Coding::DcFirst,
            (Process::Progressive, 0, _) => Coding::DcRefined,
            (Process::Progressive, _, 0) => Coding::AcFirst,
            (Process::Progressive, ..) => Coding::AcRefined,
            _ => Coding::Sequential,
        };
        Self {
            members,
            coding,
            spectral: scan.spectral,
            low: scan.approximation.1,
            columns,
            rows,
            restart: scan.restart,
            left: scan.restart,
            next_restart: 0,
            eob_run: 0,
            bits: BitReader::new(scan.data),
        }
    }

    /// Reads row `row` of MCUs. Stores its blocks in row `to` of MCUs in `coefficients`.
    pub(super) fn read_row(
        &mut self,
        row: usize,
        to: usize,
        coefficients: &mut [Coefficients],
    ) -> Result<(), Error> {
        debug_assert!(row < self.rows);
        for column in 0..self.columns {
            if self.restart > 0 {
                if self.left == 0 {
                    self.bits.restart(self.next_restart)?;
                    self.next_restart = (self.next_restart + 1) % 8;
                    (self.left, self.eob_run) = (self.restart, 0);
                    self.members.iter_mut().for_each(|member| member.last_dc = 0);
                }
                self.left -= 1;
            }
            for n in 0..self.members.len() {
                let ScanMember { index, blocks: (across, down), .. } = self.members[n];
                for y in 0..down {
                    for x in 0..across {
                        let place = (column * across + x, to * down + y);
                        let block = coefficients.get_mut(index).and_then(|blocks| blocks.block(place));
                        let block =
                            block.ok_or_else(|| Error::corrupt("a block lies outside its component"))?;
                        self.read_block(n, block)?;
                    }
                }
            }
            self.bits.check()?;
        }
        Ok(())
    }

    fn read_block(&mut self, n: usize, block: &mut DctBlock) -> Result<(), Error> {
        let Self { bits, eob_run, spectral, low, .. } = self;
        let member = &mut self.members[n];
        match (self.coding, &member.dc, &member.ac) {
            (Coding::Sequential, Some(dc), Some(ac)) => {
                member.last_dc = read_dc(bits, dc, member.last_dc)?;
                block[0] = member.last_dc as i16;
                // Every EOBn ends the block, as in libjpeg; only EOB0 is valid here.
                read_ac(bits, ac, (1, 63), 0, block).map(drop)
            }
            (Coding::DcFirst, Some(dc), _) => {
                member.last_dc = read_dc(bits, dc, member.last_dc)?;
                block[0] = (member.last_dc << *low) as i16;
                Ok(())
            }
            (Coding::DcRefined, ..) => {
                block[0] |= (bits.take(1) << *low) as i16;
                Ok(())
            }
            (Coding::AcFirst, ..) if *eob_run > 0 => {
                *eob_run -= 1;
                Ok(())
            }
            (Coding::AcFirst, _, Some(ac)) => {
                if let Some(size) = read_ac(bits, ac, *spectral, *low, block)? {
                    *eob_run = (1 << size) + bits.take(size) - 1;
                }
                Ok(())
            }
            (Coding::AcRefined, _, Some(ac)) => refine_ac(bits, ac, *spectral, *low, eob_run, block),
            _ => Err(Error::corrupt("a scan has no Huffman table for its coefficients")),
        }
    }
}

/// Returns the index of coefficient `k` in a block. As in libjpeg, coefficients after the last one overwrite the last
/// one.
#[inline(always)]
fn index(k: usize) -> usize {
    usize::from(ZIGZAG_INDEX[k.min(63)])
}

fn read_dc(bits: &mut BitReader<'_>, table: &HuffmanTable<'_>, last: i32) -> Result<i32, Error> {
    let size = bits.symbol(table)?;
    Ok(last.wrapping_add(bits.value(size.into())))
}

/// Reads the coefficients of a band, shifted left by `low`. If an EOB*n* symbol ends the band early, returns its run
/// length category *n* (T.81, G.1.2.2).
#[inline(always)]
fn read_ac(
    bits: &mut BitReader<'_>,
    table: &HuffmanTable<'_>,
    (first, last): (usize, usize),
    low: u8,
    block: &mut DctBlock,
) -> Result<Option<u32>, Error> {
    let mut k = first;
    while k <= last {
        let symbol = bits.symbol(table)?;
        let (run, size) = (symbol >> 4, symbol & 15);
        if size == 0 && run < 15 {
            return Ok(Some(run.into()));
        }
        k += usize::from(run);
        if size > 0 {
            block[index(k)] = (bits.value(size.into()) << low) as i16;
        }
        k += 1;
    }
    Ok(None)
}

fn refine_ac(
    bits: &mut BitReader<'_>,
    table: &HuffmanTable<'_>,
    (first, last): (usize, usize),
    low: u8,
    eob_run: &mut u32,
    block: &mut DctBlock,
) -> Result<(), Error> {
    let bit = 1i16 << low;
    let refine = |bits: &mut BitReader<'_>, coefficient: &mut i16| {
        if bits.take(1) == 1 && *coefficient & bit == 0 {
            *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { bit } else { -bit });
        }
    };
    let mut k = first;
    while *eob_run == 0 && k <= last {
        let symbol = bits.symbol(table)?;
        let (mut run, size) = (symbol >> 4, symbol & 15);
        let new = match (size, run) {
            (0, 15) => 0,
            (0, _) => {
                *eob_run = (1 << run) + bits.take(run.into());
                break;
            }
            (1, _) if bits.take(1) == 1 => bit,
            (1, _) => -bit,
            _ => return Err(Error::corrupt("a refinement scan has a new coefficient of more than one bit")),
        };
        while k <= last {
            let coefficient = &mut block[index(k)];
            if *coefficient != 0 {
                refine(bits, coefficient);
            } else if run == 0 {
                break;
            } else {
                run -= 1;
            }
            k += 1;
        }
        if new != 0 {
            block[index(k)] = new;
        }
        k += 1;
    }
    if *eob_run > 0 {
        for k in k..=last {
            let coefficient = &mut block[index(k)];
            if *coefficient != 0 {
                refine(bits, coefficient);
            }
        }
        *eob_run -= 1;
    }
    Ok(())
}
