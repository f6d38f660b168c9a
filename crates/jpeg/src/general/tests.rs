//! Comparison with libjpeg-turbo-rs for files that it reads, and with digests of Pillow's output (libjpeg-turbo 3.2)
//! for others.

use libjpeg_turbo_rs::{Decoder, Encoder, PixelFormat as TurboFormat, ScalingFactor, Subsampling};
use proptest::prelude::*;

use crate::testing::{TestRandom, picture};
use crate::{Error, ErrorKind, JpegLayout, LayoutRequest, PixelFormat, Process, Scale};

fn request(reduction: usize, format: PixelFormat, is_lenient: bool) -> LayoutRequest {
    LayoutRequest { scale: Scale::from_denominator(reduction as u32).unwrap(), format, is_lenient }
}

fn read(bytes: &[u8], reduction: usize, format: PixelFormat) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    JpegLayout::read(bytes)?.decode(request(reduction, format, false), &mut out).map(|_| out)
}

/// Returns the default format for files with `components` components.
fn default_format(components: usize) -> PixelFormat {
    if components == 4 { PixelFormat::Cmyk } else { PixelFormat::Rgb }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn pixels_match_libjpeg_turbo(
        (width, height) in (1usize..70, 1usize..70),
        subsampling in prop_oneof![
            Just(Subsampling::S420), Just(Subsampling::S444), Just(Subsampling::S422), Just(Subsampling::S440)
        ],
        is_color: bool,
        is_progressive: bool,
        quality in 20u8..=100,
        seed: u64,
        restart in prop_oneof![Just(0u16), 1u16..12],
        reduction in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
        is_gray_requested: bool,
    ) {
        let (format, channels) = if is_color { (TurboFormat::Rgb, 3) } else { (TurboFormat::Grayscale, 1) };
        let pixels = picture(width, height, channels, seed);
        let encoder = Encoder::new(&pixels, width, height, format).quality(quality).subsampling(subsampling);
        let bytes = encoder.progressive(is_progressive).restart_blocks(restart).encode().unwrap();
        let (turbo_format, format) = if is_gray_requested {
            (TurboFormat::Grayscale, PixelFormat::Gray)
        } else {
            (TurboFormat::Rgb, PixelFormat::Rgb)
        };
        let mut decoder = Decoder::new(&bytes).unwrap();
        decoder.set_scale(ScalingFactor::try_new(1, reduction as u32).unwrap());
        decoder.set_output_format(turbo_format);
        let expected = decoder.decode_image().unwrap().into_vec();
        prop_assert!(read(&bytes, reduction, format).unwrap() == expected);
    }

    /// Damaged files return an error or an image in every mode.
    #[test]
    fn damaged_files_never_cause_a_panic(
        which in 0usize..FACTORS.len(),
        is_progressive: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        lenient: bool,
        reduction in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
    ) {
        let mut bytes = if is_progressive {
            let pixels = picture(40, 30, 3, 7);
            let encoder = Encoder::new(&pixels, 40, 30, TurboFormat::Rgb).progressive(true);
            encoder.subsampling(Subsampling::S420).encode().unwrap()
        } else {
            let (size, factors, adobe, interleaved, _) = FACTORS[which];
            factor_jpeg(size, factors, adobe, interleaved, 5)
        };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(layout) = JpegLayout::read(&bytes)
            && layout.width * layout.height < 1 << 16
        {
            let done = layout.decode(request(reduction, default_format(layout.components.len()), lenient), &mut Vec::new());
            let is_supported = layout.precision == 8 && !layout.is_arithmetic && layout.process != Process::Lossless;
            prop_assert!(is_supported || done.unwrap_err().kind() == ErrorKind::Unsupported);
        }
    }
}

/// Writes bits, with byte stuffing.
#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    value: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        for bit in (0..count).rev() {
            self.value = self.value << 1 | (value >> bit & 1);
            self.count += 1;
            if self.count == 8 {
                self.out.push(self.value as u8);
                if self.value == 0xff {
                    self.out.push(0);
                }
                (self.value, self.count) = (0, 0);
            }
        }
    }

    /// Writes a value after its symbol. All symbol codes have 4 bits.
    fn value(&mut self, symbols: &[u8], run: u8, value: i32) {
        let size = 32 - value.unsigned_abs().leading_zeros();
        let symbol = symbols.iter().position(|symbol| *symbol == run << 4 | size as u8).unwrap();
        self.put(symbol as u32, 4);
        let bits = if value < 0 { value - 1 } else { value };
        self.put(bits.cast_unsigned() & ((1 << size) - 1), size);
    }
}

const DC_SYMBOLS: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const AC_SYMBOLS: [u8; 9] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14];

fn segment(marker: u8, payload: &[u8]) -> Vec<u8> {
    [&[0xff, marker][..], &(payload.len() as u16 + 2).to_be_bytes(), payload].concat()
}

/// The DC coefficient of a block, and runs of zeros with the coefficients after them.
type TestBlock = (i32, Vec<(u8, i32)>);

fn random_block(random: &mut TestRandom) -> TestBlock {
    let dc = random.below(200) as i32 - 100;
    let count = random.below(12);
    let coefficient = |_| {
        let value = random.below(15) as i32 + 1;
        (random.below(2) as u8, if value > 8 { 8 - value } else { value })
    };
    (dc, (0..count).map(coefficient).collect())
}

/// Creates a sequential JPEG with random coefficients whose components have the sampling `factors`.
fn factor_jpeg(
    size: (usize, usize),
    factors: &[(usize, usize)],
    adobe: Option<u8>,
    is_interleaved: bool,
    seed: u64,
) -> Vec<u8> {
    let mut random = TestRandom(seed);
    let all: Vec<usize> = (0..factors.len()).collect();
    let scans: Vec<Vec<usize>> =
        if is_interleaved { vec![all] } else { all.iter().map(|n| vec![*n]).collect() };
    scan_jpeg(size, factors, adobe, &scans, 0, |_, _| random_block(&mut random))
}

/// Creates a sequential JPEG with these scans. `block` returns the block of a component in a column and row.
fn scan_jpeg(
    (width, height): (usize, usize),
    factors: &[(usize, usize)],
    adobe: Option<u8>,
    scans: &[Vec<usize>],
    restart: usize,
    mut block: impl FnMut(usize, (usize, usize)) -> TestBlock,
) -> Vec<u8> {
    let (max_h, max_v) =
        (factors.iter().map(|f| f.0).max().unwrap(), factors.iter().map(|f| f.1).max().unwrap());
    let mut out = vec![0xff, 0xd8];
    if let Some(transform) = adobe {
        out.extend(segment(0xee, &[b"Adobe\0\x64\0\0\0\0", &[transform][..]].concat()));
    }
    out.extend(segment(0xdb, &[&[0][..], &[9; 64]].concat()));
    let mut frame = vec![8, 0, height as u8, 0, width as u8, factors.len() as u8];
    for (id, (h, v)) in (1..).zip(factors) {
        frame.extend([id, (h << 4 | v) as u8, 0]);
    }
    out.extend(segment(0xc0, &frame));
    for (class, symbols) in [(0, DC_SYMBOLS), (0x10, AC_SYMBOLS)] {
        let mut counts = [0; 16];
        counts[3] = symbols.len() as u8;
        out.extend(segment(0xc4, &[&[class][..], &counts, &symbols].concat()));
    }
    if restart > 0 {
        out.extend(segment(0xdd, &(restart as u16).to_be_bytes()));
    }
    for members in scans {
        let mut header = vec![members.len() as u8];
        members.iter().for_each(|n| header.extend([*n as u8 + 1, 0]));
        header.extend([0, 63, 0]);
        out.extend(segment(0xda, &header));
        let (columns, rows) = match members[..] {
            [n] => ((width * factors[n].0).div_ceil(8 * max_h), (height * factors[n].1).div_ceil(8 * max_v)),
            _ => (width.div_ceil(8 * max_h), height.div_ceil(8 * max_v)),
        };
        let (mut bits, mut last) = (Bits::default(), [0; 4]);
        for mcu in 0..columns * rows {
            if restart > 0 && mcu > 0 && mcu % restart == 0 {
                bits.put(0x7f, (8 - bits.count) % 8);
                out.extend(std::mem::take(&mut bits.out));
                out.extend([0xff, 0xd0 + ((mcu / restart - 1) % 8) as u8]);
                last = [0; 4];
            }
            for &n in members {
                let (across, down) = if members.len() == 1 { (1, 1) } else { factors[n] };
                for part in 0..across * down {
                    let place =
                        (mcu % columns * across + part % across, mcu / columns * down + part / across);
                    let (dc, coefficients) = block(n, place);
                    bits.value(&DC_SYMBOLS, 0, dc - last[n]);
                    last[n] = dc;
                    for (run, value) in coefficients {
                        bits.value(&AC_SYMBOLS, run, value);
                    }
                    bits.put(0, 4);
                }
            }
        }
        bits.put(0x7f, (8 - bits.count) % 8);
        out.extend(bits.out);
    }
    out.extend([0xff, 0xd9]);
    out
}

/// Size, sampling factors, Adobe transform, whether all components are in one scan, and the CRC-32 of the samples that
/// Pillow decodes: RGB, or CMYK as stored.
type FactorRow = ((usize, usize), &'static [(usize, usize)], Option<u8>, bool, u32);

const FACTORS: [FactorRow; 16] = [
    ((33, 40), &[(1, 2), (1, 1), (1, 1), (4, 1)], Some(0), true, 0x2d88_1e1c),
    ((17, 13), &[(2, 1), (2, 1), (4, 1), (1, 2)], Some(2), true, 0x14a3_7063),
    ((50, 41), &[(2, 2), (1, 1), (1, 1), (2, 2)], Some(2), true, 0x7931_959b),
    ((50, 41), &[(2, 1), (1, 1), (1, 1), (1, 1)], None, true, 0x5c42_c375),
    ((50, 41), &[(1, 1), (1, 1), (1, 1), (1, 1)], Some(0), false, 0x00db_3b3e),
    ((61, 47), &[(4, 1), (1, 1), (2, 1)], None, true, 0x5718_5fc9),
    ((61, 47), &[(1, 4), (1, 1), (1, 2)], None, true, 0x3aed_01aa),
    ((61, 47), &[(4, 2), (1, 1), (1, 1)], None, true, 0xa9f8_a34f),
    ((61, 47), &[(1, 1), (2, 2), (1, 2)], Some(1), true, 0xe6d9_8bb7),
    ((61, 47), &[(2, 1), (1, 2), (1, 1)], Some(0), true, 0xb276_98eb),
    ((61, 47), &[(3, 1), (1, 1), (1, 1)], None, true, 0x30f6_d21b),
    ((61, 47), &[(3, 3), (1, 1), (1, 3)], None, false, 0x3efd_8a7b),
    ((61, 47), &[(4, 4), (2, 2), (1, 4)], None, false, 0x779b_ed9a),
    ((61, 47), &[(2, 4), (4, 2), (1, 1), (2, 2)], Some(2), false, 0x7e7c_0056),
    ((5, 3), &[(4, 2), (2, 1), (1, 1)], None, false, 0x58c1_fec7),
    ((1, 1), &[(2, 1), (1, 2), (2, 2)], None, true, 0x8cc5_3862),
];

#[test]
fn all_sampling_factors_match_pillow() {
    let mut wrong = Vec::new();
    for (n, (size, factors, adobe, interleaved, digest)) in FACTORS.into_iter().enumerate() {
        let file = factor_jpeg(size, factors, adobe, interleaved, n as u64);
        let found = crc32fast::hash(&read(&file, 1, default_format(factors.len())).unwrap());
        if found != digest {
            wrong.push(format!("{n}: {factors:?} gave {found:#010x}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The comparison with Pillow above covers components in separate scans.
#[test]
fn any_division_into_scans_gives_the_same_pixels() {
    let groups: [&[&[usize]]; 9] = [
        &[&[0, 1], &[2]],
        &[&[1, 2], &[0]],
        &[&[2], &[0, 1]],
        &[&[2, 0], &[1]],
        &[&[0, 1, 2]],
        &[&[0, 1], &[2, 3]],
        &[&[3, 0, 1], &[2]],
        &[&[1], &[0], &[2, 3]],
        &[&[0], &[1, 2, 3]],
    ];
    let usual = [
        ((61, 47), &[(2, 2), (1, 1), (1, 1)][..], None, false, 0),
        ((17, 33), &[(2, 1), (1, 1), (1, 1)], None, false, 0),
        ((16, 9), &[(1, 1), (1, 1), (1, 1)], None, false, 0),
    ];
    for (size, factors, adobe, ..) in FACTORS.into_iter().chain(usual) {
        let block = |n: usize, (x, y): (usize, usize)| {
            random_block(&mut TestRandom(((n * 100 + y) * 100 + x) as u64 * 7 + 3))
        };
        let of = |scans: &[Vec<usize>], restart| scan_jpeg(size, factors, adobe, scans, restart, block);
        let separate: Vec<Vec<usize>> = (0..factors.len()).map(|n| vec![n]).collect();
        let separate = of(&separate, 0);
        assert!(!JpegLayout::read(&separate).unwrap().has_partial_scans());
        let fits = |scan: &[usize]| scan.iter().map(|n| factors[*n].0 * factors[*n].1).sum::<usize>() <= 10;
        let count = |scans: &&[&[usize]]| scans.iter().map(|scan| scan.len()).sum::<usize>() == factors.len();
        let is_valid =
            |scans: &&[&[usize]]| count(scans) && scans.iter().all(|scan| scan.len() == 1 || fits(scan));
        for scans in groups.iter().filter(|scans| is_valid(scans)) {
            let scans: Vec<Vec<usize>> = scans.iter().map(|scan| scan.to_vec()).collect();
            for restart in [0, 3] {
                let file = of(&scans, restart);
                let layout = JpegLayout::read_strict(&file).unwrap();
                assert_eq!(layout.has_partial_scans(), scans.len() > 1);
                for reduction in [1, 2, 4, 8] {
                    let format = default_format(factors.len());
                    let (found, expected) =
                        (read(&file, reduction, format), read(&separate, reduction, format));
                    assert!(found.unwrap() == expected.unwrap(), "{scans:?} of {factors:?} at 1/{reduction}");
                }
                let baseline = crate::to_baseline(&file, None);
                if let Ok(baseline) = baseline {
                    let format = default_format(factors.len());
                    assert!(read(&baseline, 1, format).unwrap() == read(&separate, 1, format).unwrap());
                }
            }
        }
    }
}

#[test]
fn fractional_ratios_are_unsupported_and_named() {
    for factors in [&[(3, 1), (2, 1), (1, 1)][..], &[(1, 3), (1, 2), (1, 1), (1, 1)]] {
        let file = factor_jpeg((20, 20), factors, None, true, 1);
        let error = read(&file, 1, default_format(factors.len())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text: Vec<String> = factors.iter().map(|(h, v)| format!("{h}x{v}")).collect();
        assert!(error.to_string().contains(&text.join(",")), "{error}");
    }
    let many = factor_jpeg((20, 20), &[(4, 2), (2, 2), (1, 1)], None, true, 1);
    assert_eq!(read(&many, 1, PixelFormat::Rgb).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_damaged_scan_is_concealed_only_when_lenient() {
    let file = factor_jpeg((61, 47), &[(4, 1), (1, 1), (2, 1)], None, true, 3);
    let cut = [&file[..file.len() - 80], &[0xff, 0xd9]].concat();
    assert_eq!(read(&cut, 1, PixelFormat::Rgb).unwrap_err().kind(), ErrorKind::Corrupt);
    let layout = JpegLayout::read(&cut).unwrap();
    assert!(layout.decode(request(1, PixelFormat::Rgb, true), &mut Vec::new()).unwrap().is_damaged);
    let longer = [&file[..file.len() - 2], &[0x55; 3], &[0xff, 0xd9]].concat();
    assert_eq!(
        read(&longer, 1, PixelFormat::Rgb),
        read(&file, 1, PixelFormat::Rgb),
        "extra bytes after the last block are ignored"
    );
}

/// libjpeg accepts such blocks, too. Whether a file can be decoded must not depend on the scale.
#[test]
fn blocks_with_larger_coefficients_than_any_pixels_are_decoded_at_every_scale() {
    let table = segment(0xdb, &[&[0][..], &[9; 64]].concat());
    for (n, (size, factors, adobe, interleaved, _)) in FACTORS.into_iter().enumerate() {
        let file = factor_jpeg(size, factors, adobe, interleaved, n as u64);
        let at = file.windows(table.len()).position(|bytes| bytes == table).unwrap();
        for large in [
            segment(0xdb, &[&[0][..], &[255; 64]].concat()),
            segment(0xdb, &[&[0x10][..], &[0x7f, 0xff].repeat(64)].concat()),
        ] {
            let file = [&file[..at], &large, &file[at + table.len()..]].concat();
            let format = default_format(factors.len());
            for reduction in [1, 2, 4, 8] {
                let side = |side: usize| side.div_ceil(reduction);
                let pixels = read(&file, reduction, format).unwrap();
                assert_eq!(pixels.len(), side(size.0) * side(size.1) * format.channels());
            }
        }
    }
}
