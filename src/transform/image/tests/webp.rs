//! Tests of animated WebP files.

use super::files::{encoded, picture};
use super::*;

/// Creates an animation of frames at the top left corner from still files of 8×6 pixels, with or without blending.
fn animation(canvas: (u8, u8), frames: &[&[u8]], blends: bool) -> Vec<u8> {
    let mut out = b"RIFF\0\0\0\0WEBP".to_vec();
    let mut push = |kind: &[u8; 4], data: &[u8]| {
        out.extend(kind);
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(2), 0);
    };
    push(b"VP8X", &[0x02, 0, 0, 0, canvas.0 - 1, 0, 0, canvas.1 - 1, 0, 0]);
    push(b"ANIM", &[255, 255, 255, 255, 0, 0]);
    for still in frames {
        let flags = if blends { 0 } else { 2 };
        let header = [0, 0, 0, 0, 0, 0, 7, 0, 0, 5, 0, 0, 100, 0, 0, flags];
        push(b"ANMF", &[&header, &still[12..]].concat());
    }
    let length = (out.len() - 8) as u32;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out
}

#[test]
fn the_first_frame_decides_whether_an_animation_is_lossless() {
    let still = |encode| encoded(picture(8, 6), 8, 6, 3, encode);
    let (lossless, lossy) = (still(Encode::WebpLossless), still(Encode::Webp { quality: 90 }));
    let is_lossless = |file: &[u8]| container::webp::is_lossless(file);
    for (first, second, expected) in [(&lossless, &lossy, true), (&lossy, &lossless, false)] {
        let file = animation((8, 6), &[first, second], true);
        let image = convert(&file, &[("encode", "keep")]).unwrap();
        assert!(!image.passthrough);
        assert_eq!(is_lossless(&image.bytes), expected);
        // A single frame passes through where a still image would.
        let file = animation((8, 6), &[first], true);
        for (encode, needs_lossless) in [("webp:90", false), ("webp-lossless", true)] {
            let image = convert(&file, &[("encode", encode)]).unwrap();
            assert_eq!(
                (image.passthrough, is_lossless(&image.bytes)),
                (expected == needs_lossless, needs_lossless)
            );
        }
    }
}

#[test]
fn the_first_frame_has_exact_colors() {
    let samples = picture(8, 6);
    let still = encoded(samples.clone(), 8, 6, 3, Encode::WebpLossless);
    for blends in [false, true] {
        for count in [1, 2] {
            let file = animation((8, 6), &vec![&still[..]; count], blends);
            assert_eq!(raw(&file, &[]).bytes, samples);
        }
    }
}
