//! Samples of strips and tiles: unpacking, undoing the predictor, scaling to 8 or 16 bits.

use super::layout::{Colors, Layout, Predictor, SampleKind};

/// A scaled sample of 8 or 16 bits.
pub(super) trait Sample: Copy + Default + Into<u32> + 'static {
    const BYTES: usize;
    /// The value of white or full opacity.
    const MAX: u32;

    /// Converts a value of at most [`Self::MAX`].
    fn of(value: u32) -> Self;
    /// Writes the sample in the byte order of this machine.
    fn write(self, out: &mut [u8]);
}

impl Sample for u8 {
    const BYTES: usize = 1;
    const MAX: u32 = 0xff;

    fn of(value: u32) -> Self {
        value as u8
    }

    fn write(self, out: &mut [u8]) {
        out[0] = self;
    }
}

impl Sample for u16 {
    const BYTES: usize = 2;
    const MAX: u32 = 0xffff;

    fn of(value: u32) -> Self {
        value as u16
    }

    fn write(self, out: &mut [u8]) {
        out[..2].copy_from_slice(&self.to_ne_bytes());
    }
}

/// Reads the rows of decompressed parts.
#[derive(Debug)]
pub(super) struct SampleReader {
    bits: u32,
    kind: SampleKind,
    predictor: Predictor,
    is_little_endian: bool,
    /// Whether samples are numbers that must not be scaled: indexes of a palette.
    is_index: bool,
    /// Samples that are stored together per pixel.
    per_pixel: usize,
    /// Whether a sample was below 0, above 1 or no number, and was replaced by the nearest value.
    has_clipped: bool,
    /// The largest sample, before and after scaling.
    most: (u64, u32),
    values: Vec<u64>,
    bytes: Vec<u8>,
}

impl SampleReader {
    pub(super) fn new(layout: &Layout, is_little_endian: bool) -> Self {
        let kind = match layout.colors {
            // Its colors are converted from the bits, whose meaning depends on the channel.
            Colors::Lab { .. } => SampleKind::Unsigned,
            _ => layout.kind,
        };
        Self {
            bits: layout.bits,
            kind,
            predictor: layout.predictor,
            is_little_endian,
            is_index: layout.colors == Colors::Palette,
            per_pixel: layout.samples_together(),
            has_clipped: false,
            most: (0, 0),
            values: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Returns whether samples were clipped, or all of an image that is not black are black after scaling to 8 bits.
    pub(super) fn has_odd_range(&self, max: u32) -> bool {
        self.has_clipped || (!self.is_index && self.most.0 > 0 && self.most.1 * 2 * 255 < max)
    }

    /// Reads the first `pixels` pixels of a decompressed row. Calls `put` with the index of each pixel, the index of each
    /// of its first `needed` samples, and the sample.
    pub(super) fn read<T: Sample>(
        &mut self,
        row: &[u8],
        pixels: usize,
        needed: usize,
        mut put: impl FnMut(usize, usize, T),
    ) {
        let (per_pixel, is_plain) = (self.per_pixel, self.kind == SampleKind::Unsigned);
        if is_plain && self.bits == 8 && self.predictor == Predictor::None {
            for (x, pixel) in row.chunks_exact(per_pixel).take(pixels).enumerate() {
                for (channel, sample) in pixel.iter().take(needed).enumerate() {
                    put(x, channel, T::of((*sample).into()));
                }
            }
            return;
        }
        // With a predictor, all samples before one are needed.
        let mut values = std::mem::take(&mut self.values);
        self.unpack(row, pixels * per_pixel, &mut values);
        for (x, pixel) in values.chunks_exact(per_pixel).take(pixels).enumerate() {
            for (channel, sample) in pixel.iter().take(needed).enumerate() {
                let scaled = self.scale(*sample, T::MAX);
                self.most = (self.most.0.max(*sample), self.most.1.max(scaled));
                put(x, channel, T::of(scaled));
            }
        }
        self.values = values;
    }

    /// Unpacks `count` samples of a row into `values`, and undoes the predictor.
    fn unpack(&mut self, row: &[u8], count: usize, values: &mut Vec<u64>) {
        values.clear();
        if self.predictor == Predictor::FloatingPoint {
            self.join_bytes(row);
            let size = self.bits as usize / 8;
            values.extend(self.bytes.chunks_exact(size).take(count).map(big_endian));
            return;
        }
        match self.bits {
            8 => values.extend(row.iter().take(count).map(|byte| u64::from(*byte))),
            16 | 24 | 32 | 64 => {
                let samples = row.chunks_exact(self.bits as usize / 8).take(count);
                if self.is_little_endian {
                    values.extend(samples.map(|s| s.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))));
                } else {
                    values.extend(samples.map(big_endian));
                }
            }
            bits => values.extend((0..count).map(|n| bits_at(row, n * bits as usize, bits as usize))),
        }
        if self.predictor == Predictor::Horizontal {
            let mask = u64::MAX >> (64 - self.bits);
            for n in self.per_pixel..values.len() {
                values[n] = values[n].wrapping_add(values[n - self.per_pixel]) & mask;
            }
        }
    }

    /// Undoes the floating-point predictor of a whole row: adds up the bytes, and joins those of each sample, the highest
    /// first.
    fn join_bytes(&mut self, row: &[u8]) {
        let mut summed = row.to_vec();
        for n in self.per_pixel..summed.len() {
            summed[n] = summed[n].wrapping_add(summed[n - self.per_pixel]);
        }
        let size = self.bits as usize / 8;
        let count = summed.len() / size;
        self.bytes.clear();
        self.bytes.extend(
            (0..count)
                .flat_map(|n| (0..size).map(move |byte| (n, byte)))
                .map(|(n, byte)| summed[byte * count + n]),
        );
    }

    /// Scales a sample to 0 to `max`, rounded. The largest value of its type, or 1.0, becomes `max`; negative values
    /// become 0.
    fn scale(&mut self, sample: u64, max: u32) -> u32 {
        if self.is_index {
            return sample as u32;
        }
        let (sample, bits) = match self.kind {
            SampleKind::Float => return self.scale_float(sample, max),
            // The lower half makes no difference.
            _ if self.bits == 64 => (sample >> 32, 32),
            _ => (sample, self.bits),
        };
        let (sample, most) = match self.kind {
            SampleKind::Signed if sample >> (bits - 1) & 1 == 1 => {
                self.has_clipped = true;
                return 0;
            }
            SampleKind::Signed => (sample, (1u64 << (bits - 1)) - 1),
            _ => (sample, (1u64 << bits) - 1),
        };
        if most == u64::from(max) {
            return sample as u32;
        }
        // A signed sample of one bit is 0 or −1.
        ((sample * u64::from(max) + most / 2).checked_div(most).unwrap_or(0)) as u32
    }

    fn scale_float(&mut self, sample: u64, max: u32) -> u32 {
        let value = match self.bits {
            16 => half(sample as u16),
            32 => f32::from_bits(sample as u32).into(),
            _ => f64::from_bits(sample),
        };
        if !(0.0..=1.0).contains(&value) {
            self.has_clipped = true;
        }
        // Not a number becomes 0.
        (value * f64::from(max)).round().clamp(0.0, max.into()) as u32
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Returns the number in `count` bits of `row` from bit `at` on, the highest of a byte first.
fn bits_at(row: &[u8], at: usize, count: usize) -> u64 {
    let (first, last) = (at / 8, (at + count).div_ceil(8));
    let bytes = row.get(first..last).unwrap_or_default();
    let unused = last * 8 - (at + count);
    (big_endian(bytes) >> unused) & (u64::MAX >> (64 - count))
}

/// Converts a floating-point number of 16 bits.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    let size = match exponent {
        0 => fraction * 2f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bits: u32, kind: SampleKind) -> SampleReader {
        SampleReader {
            bits,
            kind,
            predictor: Predictor::None,
            is_little_endian: true,
            is_index: false,
            per_pixel: 1,
            has_clipped: false,
            most: (0, 0),
            values: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn eight_bits(mut reader: SampleReader, row: &[u8], pixels: usize) -> (Vec<u32>, bool) {
        let mut out = Vec::new();
        reader.read(row, pixels, 1, |_, _, sample: u8| out.push(sample.into()));
        (out, reader.has_odd_range(0xff))
    }

    #[test]
    fn samples_are_scaled_from_the_range_of_their_type() {
        use SampleKind::{Float, Signed, Unsigned};
        let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        for (reader, row, expected, has_clipped) in [
            (reader(1, Unsigned), vec![0b1010_0000], vec![255, 0, 255], false),
            (reader(2, Unsigned), vec![0b0001_1011], vec![0, 85, 170, 255], false),
            (reader(4, Unsigned), vec![0x0f, 0x80], vec![0, 255, 136], false),
            (reader(3, Unsigned), vec![0b0001_1101, 0b1100_0000], vec![0, 255, 109], false),
            (reader(12, Unsigned), vec![0xff, 0xf8, 0x00], vec![255, 128], false),
            (
                reader(32, Unsigned),
                [u32::MAX.to_le_bytes(), (1u32 << 31).to_le_bytes()].concat(),
                vec![255, 128],
                false,
            ),
            (
                reader(64, Unsigned),
                [u64::MAX.to_le_bytes(), (1u64 << 63).to_le_bytes()].concat(),
                vec![255, 128],
                false,
            ),
            (reader(8, Signed), vec![0, 127, 64], vec![0, 255, 129], false),
            (reader(8, Signed), vec![0xff, 127], vec![0, 255], true),
            (
                reader(16, Signed),
                [i16::MAX.to_le_bytes(), (-1i16).to_le_bytes()].concat(),
                vec![255, 0],
                true,
            ),
            (reader(1, Signed), vec![0b0100_0000], vec![0, 0], true),
            (reader(32, Float), floats(&[0.0, 1.0, 0.5]), vec![0, 255, 128], false),
            (reader(32, Float), floats(&[-0.25, 1.5, f32::NAN, f32::INFINITY]), vec![0, 255, 0, 255], true),
            (reader(16, Float), vec![0x00, 0x3c, 0x00, 0x38, 0x01, 0x00], vec![255, 128, 0], false),
        ] {
            let name = format!("{} bits, {:?}", reader.bits, reader.kind);
            assert_eq!(eight_bits(reader, &row, expected.len()), (expected, has_clipped), "{name}");
        }
    }

    #[test]
    fn predictors_are_undone() {
        let with =
            |bits, kind, predictor, per_pixel| SampleReader { predictor, per_pixel, ..reader(bits, kind) };
        // Two channels of 8 bits.
        let mut out = Vec::new();
        with(8, SampleKind::Unsigned, Predictor::Horizontal, 2).read(
            &[10, 250, 5, 10, 0xff, 1],
            3,
            2,
            |x, c, sample: u8| out.push((x, c, sample)),
        );
        assert_eq!(out, [(0, 0, 10), (0, 1, 250), (1, 0, 15), (1, 1, 4), (2, 0, 14), (2, 1, 5)]);
        // The bytes of 1.0 and 0.5, 3f80_0000 and 3f00_0000, by significance, as differences.
        let row: [u8; 8] = [0x3f, 0x3f, 0x80, 0, 0, 0, 0, 0];
        let mut differences = row;
        for n in (1..row.len()).rev() {
            differences[n] = row[n].wrapping_sub(row[n - 1]);
        }
        let reader = with(32, SampleKind::Float, Predictor::FloatingPoint, 1);
        assert_eq!(eight_bits(reader, &differences, 2), (vec![255, 128], false));
    }

    #[test]
    fn halves_are_converted() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2f64.powi(-24)),
            (0x7c00, f64::INFINITY),
            (0x3555, 0.333_251_953_125),
        ] {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7e00).is_nan());
    }
}
