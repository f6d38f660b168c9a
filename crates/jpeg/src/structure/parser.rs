//! Parser for the structure of a file, from its first marker to its end marker (ITU T.81, annex B).
//!
//! libjpeg rejects files with impossible tables, a second frame header or contradictory scan parameters. Many other
//! decoders accept them. This module applies libjpeg's rules to the whole file. It decodes no coefficients, so its cost
//! is negligible.

use super::component::{ColorModel, Component, Process};
use super::layout::JpegLayout;
use super::scan::{Scan, ScanComponent};
use super::segments;
use super::tables::{HuffmanSlots, QuantSlots};
use crate::error::{Error, ErrorKind};

/// Maximum number of scans of a JPEG. Encoders write about ten, the most elaborate ones fewer than fifty. Thousands
/// indicate an attack, because every scan costs a pass over the whole image.
pub const MAX_SCANS: usize = 100;

/// Maximum number of blocks per MCU (T.81, B.2.3).
pub(crate) const MAX_BLOCKS_PER_MCU: usize = 10;
/// Largest width and height that libjpeg reads.
const MAX_SIDE: usize = 65_500;

impl<'a> JpegLayout<'a> {
    /// Reads the structure of the file `bytes`. If the file is damaged after its first scan header, the result contains
    /// everything before the damage, and [`damage`](Self::damage) returns the error.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has no scan that can be decoded.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::read_with(Parser::default(), bytes)
    }

    fn read_with(mut parser: Parser<'a>, bytes: &'a [u8]) -> Result<Self, Error> {
        if !bytes.starts_with(&[0xff, segments::SOI]) {
            return Err(Error::corrupt("the file does not start with the start-of-image marker of a JPEG"));
        }
        let damage = parser.run(bytes).err();
        match (parser.layout, damage) {
            (Some(layout), damage) if !layout.scans.is_empty() => Ok(Self { damage, ..layout }),
            (_, damage) => Err(damage.unwrap_or_else(|| Error::corrupt("the JPEG has no scan"))),
        }
    }

    /// Reads the structure like [`read`](Self::read), but treats damage anywhere in it as an error.
    ///
    /// # Errors
    ///
    /// Returns an error if the structure is not that of a complete JPEG file.
    pub fn read_strict(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::read(bytes)?.undamaged()
    }

    /// Reads the structure like [`read_strict`](Self::read_strict), but of a sequential file no further than the header of
    /// its first scan. The data of that scan then are all bytes after the header.
    pub(crate) fn read_headers(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::read_with(Parser { reads_headers: true, ..Parser::default() }, bytes)?.undamaged()
    }

    fn undamaged(mut self) -> Result<Self, Error> {
        self.damage.take().map_or(Ok(self), Err)
    }
}

/// Parser state.
#[derive(Default)]
struct Parser<'a> {
    layout: Option<JpegLayout<'a>>,
    quant: QuantSlots,
    huffman: HuffmanSlots<'a>,
    restart: usize,
    is_jfif: bool,
    adobe_transform: Option<u8>,
    /// Error of the first scan that does not continue the scans before it. Parsing continues, to count the scans.
    damage: Option<Error>,
    /// Whether to stop after the header of the first scan of a sequential file.
    reads_headers: bool,
}

impl<'a> Parser<'a> {
    fn run(&mut self, bytes: &'a [u8]) -> Result<(), Error> {
        let mut at = 2;
        loop {
            let (marker, after) = segments::next_marker(bytes, at)?;
            at = after;
            match marker {
                segments::EOI => return self.damage.take().map_or_else(|| self.check_scans(), Err),
                segments::SOI => return Err(Error::corrupt("the JPEG has a second start-of-image marker")),
                // Standalone markers: TEM and RST.
                0x01 | 0xd0..=0xd7 => continue,
                _ => {}
            }
            let payload = segments::payload(bytes, at)?;
            at += 2 + payload.len();
            match marker {
                0xc4 => self.huffman.read(payload)?,
                0xdb => self.quant.read(payload)?,
                0xdd => {
                    let [high, low] = *payload else { return Err(bad_length("restart interval")) };
                    self.restart = u16::from_be_bytes([high, low]).into();
                }
                0xc0..=0xc3 | 0xc5..=0xcb | 0xcd..=0xcf => self.read_frame(marker, payload)?,
                0xda => {
                    let is_sequential =
                        self.layout.as_ref().is_some_and(|layout| layout.process == Process::Sequential);
                    if self.reads_headers && is_sequential {
                        self.read_scan(payload, bytes.get(at..).unwrap_or_default())?;
                        return self.damage.take().map_or(Ok(()), Err);
                    }
                    let data = segments::entropy_coded(bytes, at);
                    at += data.len();
                    self.read_scan(payload, data)?;
                }
                0xe0 => self.is_jfif |= payload.len() >= 14 && payload.starts_with(b"JFIF\0"),
                0xee if payload.len() >= 12 && payload.starts_with(b"Adobe") => {
                    self.adobe_transform = payload.get(11).copied();
                }
                // DAC, DNL, APPn and COM. DNL adds nothing, because the frame header must contain the height.
                0xcc | 0xdc | 0xe1..=0xef | 0xfe => {}
                _ => return Err(Error::corrupt(format!("the JPEG has the unknown marker {marker:#04x}"))),
            }
        }
    }

    fn read_frame(&mut self, marker: u8, payload: &[u8]) -> Result<(), Error> {
        if self.layout.is_some() {
            return Err(Error::corrupt("the JPEG has two frame headers"));
        }
        let process = match marker {
            0xc0 | 0xc1 | 0xc9 => Process::Sequential,
            0xc2 | 0xca => Process::Progressive,
            0xc3 | 0xcb => Process::Lossless,
            _ => return Err(Error::unsupported("hierarchical JPEG is not supported")),
        };
        let [precision, h0, h1, w0, w1, count, rest @ ..] = payload else {
            return Err(bad_length("frame header"));
        };
        let (height, width) = (u16::from_be_bytes([*h0, *h1]).into(), u16::from_be_bytes([*w0, *w1]).into());
        if rest.len() != 3 * usize::from(*count) {
            return Err(bad_length("frame header"));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(Error::unsupported(format!("a JPEG of {count} components is not supported")));
        }
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::corrupt(format!("the frame header declares {width}×{height} pixels")));
        }
        let mut components = Vec::new();
        for [id, factors, quant] in rest.as_chunks::<3>().0 {
            let (horizontal, vertical) = (usize::from(factors >> 4), usize::from(factors & 15));
            if !(1..=4).contains(&horizontal) || !(1..=4).contains(&vertical) {
                return Err(Error::corrupt(format!(
                    "a component has the sampling factors {horizontal}x{vertical}"
                )));
            }
            components.push(Component {
                id: *id,
                horizontal,
                vertical,
                quant_slot: usize::from(*quant),
                quant: None,
                has_dc: false,
                missing_bits: [None; 64],
            });
        }
        // The factors of a single component have no meaning.
        if let [component] = components.as_mut_slice() {
            (component.horizontal, component.vertical) = (1, 1);
        }
        self.layout = Some(JpegLayout {
            width,
            height,
            precision: *precision,
            process,
            is_arithmetic: marker >= 0xc9,
            color: ColorModel::Gray,
            has_adobe: false,
            components,
            scans: Vec::new(),
            damage: None,
        });
        Ok(())
    }

    fn read_scan(&mut self, payload: &[u8], data: &'a [u8]) -> Result<(), Error> {
        let (color, has_adobe) = (self.color_model(), self.adobe_transform.is_some());
        let Some(layout) = &mut self.layout else {
            return Err(Error::corrupt("the JPEG has a scan but no frame header"));
        };
        if layout.scans.is_empty() {
            (layout.color, layout.has_adobe) = (color, has_adobe);
        }
        if layout.scans.len() == MAX_SCANS {
            let message = format!("the JPEG has more than {MAX_SCANS} scans");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let [count, rest @ ..] = payload else { return Err(bad_length("scan header")) };
        let count = usize::from(*count);
        let (selectors, [first, last, approximation]) = match rest.split_last_chunk::<3>() {
            Some((selectors, rest)) if selectors.len() == 2 * count && (1..=4).contains(&count) => {
                (selectors, *rest)
            }
            _ => return Err(bad_length("scan header")),
        };
        let mut scan = Scan {
            components: Vec::new(),
            spectral: (first.into(), last.into()),
            approximation: (approximation >> 4, approximation & 15),
            restart: self.restart,
            data,
        };
        let needs = scan.check_parameters(layout.process, count)?;
        for [id, slots] in selectors.as_chunks::<2>().0 {
            let is_new = |index: &usize| scan.components.iter().all(|other| other.index != *index);
            let mut found = layout.components.iter().enumerate().filter(|(_, c)| c.id == *id).map(|(n, _)| n);
            let index = found.find(is_new).ok_or_else(|| {
                Error::corrupt(format!(
                    "a scan refers to component {id}, which is not in the frame or already in the scan"
                ))
            })?;
            let table = |is_needed: bool, is_ac: bool, slot: u8| {
                let is_read = is_needed && !layout.is_arithmetic;
                is_read.then(|| self.huffman.checked(is_ac, slot, layout.process)).transpose()
            };
            let (dc, ac) = (table(needs.dc, false, slots >> 4)?, table(needs.ac, true, slots & 15)?);
            if slots & 0xcc != 0 {
                // libjpeg checks only the slots that the scan uses.
                let message = "a scan refers to a Huffman table slot that does not exist";
                self.damage.get_or_insert(Error::corrupt(message));
            }
            let slots = (usize::from(slots >> 4), usize::from(slots & 15));
            scan.components.push(ScanComponent { index, slots, dc, ac });
            let component = &mut layout.components[index];
            if component.quant.is_none() && layout.process != Process::Lossless {
                component.quant = Some(self.quant.get(component.quant_slot)?);
            }
            if let Err(error) = component.record_scan(&scan, layout.process) {
                self.damage.get_or_insert(error);
            }
        }
        let blocks = scan.components.iter().map(|c| &layout.components[c.index]);
        if count > 1 && blocks.map(|c| c.horizontal * c.vertical).sum::<usize>() > MAX_BLOCKS_PER_MCU {
            return Err(Error::corrupt(format!(
                "the sampling factors {} give more than {MAX_BLOCKS_PER_MCU} blocks per MCU",
                layout.sampling_text()
            )));
        }
        layout.scans.push(scan);
        Ok(())
    }

    /// Returns the color model, by libjpeg's rules (`default_decompress_parms`).
    fn color_model(&self) -> ColorModel {
        let ids: Vec<u8> =
            self.layout.iter().flat_map(|layout| &layout.components).map(|component| component.id).collect();
        match (ids.len(), self.adobe_transform) {
            (1, _) => ColorModel::Gray,
            (4, None | Some(0)) => ColorModel::Cmyk,
            (4, Some(_)) => ColorModel::Ycck,
            _ if self.is_jfif => ColorModel::YCbCr,
            (_, Some(0)) => ColorModel::Rgb,
            (_, None) if ids == *b"RGB" => ColorModel::Rgb,
            _ => ColorModel::YCbCr,
        }
    }

    /// Checks that every component has a scan.
    fn check_scans(&self) -> Result<(), Error> {
        let missing = |layout: &JpegLayout<'_>| layout.components.iter().any(|component| !component.has_dc);
        match &self.layout {
            Some(layout) if layout.scans.is_empty() => {
                Err(Error::corrupt("the JPEG ends before its first scan"))
            }
            Some(layout) if missing(layout) => Err(Error::truncated("its scans: a component has none")),
            Some(_) => Ok(()),
            None => Err(Error::corrupt("the JPEG ends before its frame header")),
        }
    }
}

/// The kinds of Huffman tables that a scan needs.
struct NeededTables {
    dc: bool,
    ac: bool,
}

impl Scan<'_> {
    /// Checks the parameters of a scan of `count` components, as `jdphuff.c` of libjpeg does.
    fn check_parameters(&self, process: Process, count: usize) -> Result<NeededTables, Error> {
        let ((first, last), (high, low)) = (self.spectral, self.approximation);
        let is_sound = match process {
            Process::Sequential => (first, last, high, low) == (0, 63, 0, 0),
            Process::Lossless => (1..=7).contains(&first) && high == 0,
            Process::Progressive => {
                let band = if first == 0 { last == 0 } else { first <= last && last < 64 && count == 1 };
                band && (high == 0 || high == low + 1) && low <= 13
            }
        };
        if !is_sound {
            return Err(Error::corrupt(format!(
                "a scan of {count} components has the parameters Ss={first} Se={last} Ah={high} Al={low}"
            )));
        }
        Ok(match process {
            Process::Sequential => NeededTables { dc: true, ac: true },
            Process::Lossless => NeededTables { dc: true, ac: false },
            Process::Progressive => NeededTables { dc: first == 0 && high == 0, ac: first > 0 },
        })
    }
}

impl Component {
    /// Records what `scan` adds to the component.
    fn record_scan(&mut self, scan: &Scan<'_>, process: Process) -> Result<(), Error> {
        let ((first, last), (high, low)) = (scan.spectral, scan.approximation);
        if process != Process::Progressive {
            return match std::mem::replace(&mut self.has_dc, true) {
                true => Err(Error::corrupt("a component is in two scans")),
                false => Ok(()),
            };
        }
        if first > 0 && !self.has_dc {
            return Err(Error::corrupt("a scan of AC coefficients comes before the DC coefficients"));
        }
        self.has_dc = true;
        for bits in &mut self.missing_bits[first..=last] {
            if bits.unwrap_or(0) != high {
                return Err(Error::corrupt(format!(
                    "a scan with Ah={high} does not continue the scan before it"
                )));
            }
            *bits = Some(low);
        }
        Ok(())
    }
}

fn bad_length(what: &str) -> Error {
    Error::corrupt(format!("a {what} has the wrong length"))
}
