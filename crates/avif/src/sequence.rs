//! The largest frame that AV1 data declares, in its sequence header (AV1 specification, 5.5).
//!
//! It is compared with the size in the container before anything is allocated for that size.

/// Type of the OBU with a sequence header.
const SEQUENCE_HEADER: u8 = 1;

/// Bits, the highest of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// Reads an unsigned number of up to 32 bits.
    fn number(&mut self, bits: usize) -> Option<u32> {
        let mut value = 0u64;
        for _ in 0..bits {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u64::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        u32::try_from(value).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.number(1)? == 1)
    }

    /// Skips a number of variable length (`uvlc`).
    fn skip_variable(&mut self) -> Option<()> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        if zeros < 32 { self.number(zeros).map(drop) } else { Some(()) }
    }
}

/// Returns the maximum width and height of the frames of the AV1 data `data`; `None` if it has no sequence header, without
/// which it has no picture.
pub(crate) fn max_size(data: &[u8]) -> Option<(u32, u32)> {
    let mut rest = data;
    loop {
        let (kind, payload, after) = next_obu(rest)?;
        if kind == SEQUENCE_HEADER {
            return size_in(payload);
        }
        rest = after;
    }
}

/// Returns the type and the payload of the first OBU, and what follows it.
fn next_obu(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&header, mut rest) = data.split_first()?;
    let (kind, has_extension, has_size) = (header >> 3 & 15, header & 4 != 0, header & 2 != 0);
    if has_extension {
        rest = rest.get(1..)?;
    }
    if !has_size {
        return Some((kind, rest, &[]));
    }
    // In groups of seven bits, the lowest first.
    let (mut size, mut shift) = (0u64, 0);
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        if shift >= 56 {
            return None;
        }
    }
    let (payload, after) = rest.split_at_checked(usize::try_from(size).ok()?)?;
    Some((kind, payload, after))
}

/// Reads the fields of a sequence header up to its size.
fn size_in(header: &[u8]) -> Option<(u32, u32)> {
    let mut bits = Bits { bytes: header, at: 0 };
    let _profile = bits.number(3)?;
    let _is_still = bits.flag()?;
    if bits.flag()? {
        // The reduced header of a still picture has a level only.
        bits.number(5)?;
    } else {
        skip_operating_points(&mut bits)?;
    }
    let (width_bits, height_bits) = (bits.number(4)? + 1, bits.number(4)? + 1);
    Some((bits.number(width_bits as usize)? + 1, bits.number(height_bits as usize)? + 1))
}

/// Skips times, models of decoders and operating points.
fn skip_operating_points(bits: &mut Bits<'_>) -> Option<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        bits.number(32)?;
        bits.number(32)?;
        if bits.flag()? {
            bits.skip_variable()?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.number(5)? as usize + 1);
            bits.number(32)?;
            bits.number(5 + 5)?;
        }
    }
    let has_delays = bits.flag()?;
    for _ in 0..=bits.number(5)? {
        bits.number(12)?;
        if bits.number(5)? > 7 {
            bits.flag()?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.number(delay_bits)?;
            bits.number(delay_bits)?;
            bits.flag()?;
        }
        if has_delays && bits.flag()? {
            bits.number(4)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes of fields, each with its number of bits.
    fn packed(fields: &[(u64, u32)]) -> Vec<u8> {
        let bits: Vec<u8> = fields
            .iter()
            .flat_map(|(value, bits)| (0..*bits).rev().map(move |bit| (value >> bit & 1) as u8))
            .collect();
        let byte = |bits: &[u8]| bits.iter().enumerate().fold(0, |byte, (at, bit)| byte | bit << (7 - at));
        bits.chunks(8).map(byte).collect()
    }

    fn obu(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&[kind << 3 | 2, payload.len() as u8], payload].concat()
    }

    #[test]
    fn sizes_are_read_from_every_form_of_the_header() {
        let size = [(8, 4), (3, 4), (299, 9), (11, 4)];
        let reduced = [&[(0, 3), (1, 1), (1, 1), (5, 5)], &size[..]].concat();
        let plain = [&[(0, 3), (0, 1), (0, 1), (0, 1), (0, 1), (0, 5), (0, 12), (4, 5)], &size[..]].concat();
        // Times with a number of variable length, a model of the decoder, and two operating points.
        let whole = [
            &[(2, 3), (0, 1), (0, 1)][..],
            &[(1, 1), (1, 32), (30, 32), (1, 1), (0b0_0101, 5)],
            &[(1, 1), (9, 5), (7, 32), (3, 5), (3, 5)],
            &[(1, 1), (1, 5)],
            &[(1, 12), (9, 5), (1, 1), (1, 1), (5, 10), (6, 10), (0, 1), (1, 1), (3, 4)],
            &[(2, 12), (4, 5), (0, 1), (0, 1)],
            &size,
        ]
        .concat();
        for header in [reduced, plain, whole] {
            let header = packed(&header);
            let data = [obu(2, &[]), obu(1, &header), obu(6, &[1, 2, 3])].concat();
            assert_eq!(max_size(&data), Some((300, 12)));
            // Without a size, up to the end.
            let last = [&[2 << 3 | 2, 0, 1 << 3], &header[..]].concat();
            assert_eq!(max_size(&last), Some((300, 12)));
            for end in 0..data.len() - 5 - 1 {
                assert_eq!(max_size(&data[..end]), None, "{end}");
            }
        }
        assert_eq!(max_size(&obu(6, &[1, 2, 3])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = max_size(&bytes);
        }
    }
}
