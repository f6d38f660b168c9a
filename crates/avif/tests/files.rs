//! Files of the repository, and files that were damaged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::path::Path;

use dsconvert_avif::{AvifFile, Error, ErrorKind, Mirror, Turn};
use proptest::prelude::*;

const WIDTH: usize = 21;
const HEIGHT: usize = 13;

const NAMES: [&str; 12] = [
    "420",
    "422-limited",
    "444",
    "alpha",
    "frames",
    "gray",
    "libavif-10-bit",
    "libavif-10-bit-turned",
    "libavif-12-bit-frames",
    "libavif-grid",
    "libavif-idat",
    "turned",
];

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/avif");
    std::fs::read(folder.join(name).with_extension("avif")).unwrap()
}

fn decoded(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let file = AvifFile::read(bytes)?;
    let mut out = vec![0; file.width() as usize * file.height() as usize * file.channels()];
    file.decode(&mut out).map(|()| out)
}

/// Returns the picture of the files, with alpha or gray.
fn expected(channels: usize) -> Vec<u8> {
    let pixel = |x: usize, y: usize| {
        let rgba = [12 * x, 19 * y, 255usize.saturating_sub(7 * (x + y)), 255usize.saturating_sub(19 * y)];
        rgba.map(|value| value.min(255) as u8)
    };
    let pixels = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| pixel(x, y)));
    pixels.flat_map(|rgba| rgba[..channels].to_vec()).collect()
}

#[test]
fn headers() {
    let turn = |quarter_turns, mirror| Turn { quarter_turns, mirror };
    for (name, size, channels, depth, frames, turned) in [
        ("420", (21, 13), 3, 8, 1, turn(0, None)),
        ("alpha", (21, 13), 4, 8, 1, turn(0, None)),
        ("frames", (21, 13), 3, 8, 3, turn(0, None)),
        ("gray", (21, 13), 1, 8, 1, turn(0, None)),
        ("turned", (21, 13), 3, 8, 1, turn(3, None)),
        ("libavif-10-bit", (128, 200), 4, 10, 1, turn(0, None)),
        ("libavif-10-bit-turned", (12, 34), 4, 10, 1, turn(1, None)),
        ("libavif-12-bit-frames", (64, 64), 4, 12, 5, turn(0, None)),
        ("libavif-grid", (80, 80), 4, 8, 1, turn(0, None)),
        ("libavif-idat", (33, 11), 4, 8, 1, turn(0, None)),
    ] {
        let bytes = fixture(name);
        let file = AvifFile::read(&bytes).expect(name);
        assert_eq!(((file.width(), file.height()), file.channels()), (size, channels), "{name}");
        assert_eq!((file.depth(), file.frames(), file.turn()), (depth, frames, turned), "{name}");
        assert_eq!((file.icc(), file.exif()), (None, None), "{name}");
    }
}

#[test]
fn pixels_are_those_that_were_encoded() {
    // Encoding with chroma of half the size loses more.
    for (name, channels, tolerance) in [
        ("420", 3, 17),
        ("422-limited", 3, 10),
        ("444", 3, 3),
        ("turned", 3, 3),
        ("alpha", 4, 3),
        ("gray", 1, 0),
        ("frames", 3, 3),
    ] {
        let found = decoded(&fixture(name)).expect(name);
        let expected = expected(channels);
        assert_eq!(found.len(), expected.len());
        let difference = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(difference <= Some(tolerance), "{name}: {difference:?}");
    }
}

#[test]
fn a_file_that_ends_early_is_truncated() {
    for name in NAMES {
        let bytes = fixture(name);
        for cut in 0..bytes.len() {
            // Of a sequence, only the first frame is needed, and no gain map.
            if let Err(error) = AvifFile::read(&bytes[..cut]) {
                assert_eq!(error.kind() == ErrorKind::Truncated, cut > 0, "{name} at {cut}: {error}");
            } else {
                assert!(name.ends_with("frames") || name == "libavif-10-bit", "{name} at {cut}");
            }
        }
    }
}

/// Returns the file with another type for its first box `kind`.
fn renamed(name: &str, kind: &[u8; 4], to: &[u8; 4]) -> Vec<u8> {
    let mut bytes = fixture(name);
    let at = bytes.windows(4).position(|four| four == kind).unwrap();
    bytes[at..at + 4].copy_from_slice(to);
    bytes
}

/// Returns the file with `to` in its first box `kind`, at an offset in its content.
fn patched(name: &str, kind: &[u8; 4], offset: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = fixture(name);
    let at = bytes.windows(4).position(|four| four == kind).unwrap() + 4 + offset;
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn what_cannot_be_decoded_is_refused_by_name() {
    for (bytes, kind, says) in [
        (patched("444", b"colr", 9, &[10]), ErrorKind::Unsupported, "matrix coefficients 10"),
        (patched("420", b"colr", 9, &[0]), ErrorKind::Corrupt, "two components have fewer samples"),
        (patched("444", b"ispe", 4, &[0; 4]), ErrorKind::Corrupt, "0×13 pixels"),
        (patched("444", b"ispe", 7, &[20]), ErrorKind::Corrupt, "more pixels than its header declares"),
        (patched("444", b"ispe", 4, &[0, 0, 1, 0]), ErrorKind::Corrupt, "its header declares 256×13"),
        (patched("444", b"av1C", 2, &[0x40]), ErrorKind::Corrupt, "another format than its header"),
        (patched("444", b"av1C", 2, &[0x10]), ErrorKind::Corrupt, "another format than its header"),
        (patched("444", b"hdlr", 8, b"vide"), ErrorKind::Corrupt, "not about pictures"),
        (patched("444", b"pitm", 4, &[0, 9]), ErrorKind::Corrupt, "it has no item 9"),
        (patched("444", b"infe", 8, b"hvc1"), ErrorKind::Unsupported, "an item of the type `hvc1`"),
        (renamed("turned", b"irot", b"xrot"), ErrorKind::Unsupported, "the property `xrot`"),
        (renamed("turned", b"irot", b"a1op"), ErrorKind::Unsupported, "one layer"),
        (renamed("libavif-grid", b"dimg", b"xxxx"), ErrorKind::Corrupt, "tiles, but 0 images"),
        (renamed("444", b"ipco", b"xxxx"), ErrorKind::Corrupt, "no box `ipco`"),
    ] {
        let error = decoded(&bytes).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn the_size_in_the_header_is_that_of_the_data() {
    for name in NAMES {
        AvifFile::read(&fixture(name)).unwrap().check_data().unwrap();
    }
    for to in [&[0, 0, 1, 0][..], &[0, 0, 0x40, 0]] {
        let file = patched("444", b"ispe", 4, to);
        let error = AvifFile::read(&file).unwrap().check_data().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("at most 21×13 pixels"), "{error}");
    }
}

#[test]
fn mirrors_are_reported() {
    // The property `irot` of the file becomes `imir`.
    for (axis, mirror) in [(0, Mirror::TopBottom), (1, Mirror::LeftRight)] {
        let mut bytes = fixture("turned");
        let at = bytes.windows(4).position(|four| four == b"irot").unwrap();
        bytes[at..at + 5].copy_from_slice(&[b'i', b'm', b'i', b'r', axis]);
        let turn = AvifFile::read(&bytes).unwrap().turn();
        assert_eq!(turn, Turn { quarter_turns: 0, mirror: Some(mirror) });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_not_panic(
        name in prop::sample::select(&NAMES[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        is_in_header in any::<bool>(),
    ) {
        let mut bytes = fixture(name);
        let length = if is_in_header { bytes.len().min(400) } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(length)] = value;
        }
        let pixels = |file: &AvifFile<'_>| u64::from(file.width()) * u64::from(file.height());
        if AvifFile::read(&bytes).is_ok_and(|file| pixels(&file) < 1 << 20) {
            let error = decoded(&bytes).err();
            prop_assert!(error.is_none_or(|error| error.kind() != ErrorKind::Panicked));
        }
    }
}
