//! Tests that files that libjpeg, libpng or libwebp reject are rejected, and that small files cannot make the converter
//! allocate much memory.

use libjpeg_turbo_rs::ColorSpace;

use super::files::*;
use super::*;

fn marker(jpeg: &[u8], marker: u8) -> usize {
    jpeg.windows(2).position(|w| w == [0xff, marker]).unwrap()
}

fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + new.len()].copy_from_slice(new);
    out
}

/// Inserts `bytes` into `file` at `at`.
fn inserted(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    [&file[..at], bytes, &file[at..]].concat()
}

#[test]
fn files_that_libjpeg_refuses_are_rejected() {
    let baseline = jpeg(48, 32);
    let progressive = progressive(48, 32);
    let huffman = marker(&baseline, 0xc4);
    let last_scan = progressive.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    let frame = marker(&progressive, 0xc2);
    let frame = &progressive[frame..frame + 2 + usize::from(progressive[frame + 3])];
    // Number of components, two bytes for each, then Ss, Se, and Ah with Al.
    let parameters = |file: &[u8], scan: usize| scan + 5 + 2 * usize::from(file[scan + 4]);
    let spectral = parameters(&progressive, last_scan);
    let cases = [
        ("too many codes of one bit", with(&baseline, huffman + 5, &[3])),
        ("a DC symbol of 16", with(&baseline, huffman + 21, &[16])),
        ("Ss above Se", with(&progressive, spectral, &[40, 3])),
        ("Se of 64", with(&progressive, spectral + 1, &[64])),
        ("Al above 13", with(&progressive, spectral + 2, &[0x0e])),
        ("two frame headers", inserted(&progressive, last_scan, frame)),
        ("an unknown marker", inserted(&progressive, last_scan, &[0xff, 0x02, 0, 2])),
        ("a reserved marker", inserted(&baseline, huffman, &[0xff, 0xf0, 0, 2])),
        ("a Huffman table with the id 4", with(&baseline, huffman + 4, &[4])),
        ("no quantization table", with(&progressive, marker(&progressive, 0xdb) + 4, &[3])),
        ("a component twice", with(&progressive, marker(&progressive, 0xda) + 7, &[1])),
    ];
    for (name, file) in cases {
        for encode in ["keep", "jpeg:90", "raw"] {
            assert_eq!(code(&file, &[("encode", encode)]), RejectCode::Corrupt, "{name}");
        }
    }
    for file in [&baseline, &progressive] {
        assert!(convert(file, &[("encode", "keep")]).unwrap().passthrough);
    }
}

#[test]
fn bytes_between_segments_are_skipped_as_by_libjpeg() {
    for whole in [jpeg(48, 32), progressive(48, 32)] {
        let frame = whole.windows(2).position(|w| w == [0xff, 0xc0] || w == [0xff, 0xc2]).unwrap();
        for (at, stray) in [
            (marker(&whole, 0xdb), &b"stray"[..]),
            (frame, b"\0"),
            (frame, b"a\xff\0b"),
            (marker(&whole, 0xda), b"\0\0"),
        ] {
            let file = inserted(&whole, at, stray);
            for texts in [
                &[("encode", "keep")][..],
                &[("encode", "keep"), ("keep_metadata", "true")],
                &[("encode", "raw")],
            ] {
                let (image, expected) = (convert(&file, texts).unwrap(), convert(&whole, texts).unwrap());
                assert_eq!(image.bytes, expected.bytes, "{stray:?} at {at}, {texts:?}");
                assert_eq!((image.tolerated, image.lenient), (vec![Tolerated::StrayBytes], false));
                assert_eq!((expected.tolerated, image.passthrough), (vec![], expected.passthrough));
            }
            // Other damage is still found.
            assert!(convert(&file[..file.len() - 2], &[]).is_err());
        }
    }
}

/// Checks that `file` is converted like the clean file `whole`, whatever the encoding, and counted.
fn is_tolerated(name: &str, file: &[u8], whole: &[u8], defect: Tolerated) {
    for texts in [
        &[("encode", "keep")][..],
        &[("encode", "keep"), ("keep_metadata", "true")],
        &[("encode", "png"), ("lenient", "true")],
        &[("encode", "raw"), ("resize", "longer:3")],
    ] {
        let (image, expected) = (convert(file, texts).unwrap(), convert(whole, texts).unwrap());
        assert_eq!(image.bytes, expected.bytes, "{name}, {texts:?}");
        assert_eq!((image.tolerated, image.lenient), (vec![defect], false), "{name}, {texts:?}");
        assert_eq!((expected.tolerated, image.passthrough), (vec![], expected.passthrough), "{name}");
    }
    let delivered = |file: &[u8]| {
        let transform = ImageTransform::delivering(options(&[])).unwrap();
        transform.pixels(file, &mut ImageScratch::new(), || {}).unwrap().samples.to_vec()
    };
    assert_eq!(delivered(file), delivered(whole), "{name}");
}

#[test]
fn defects_that_lose_no_pixel_are_tolerated() {
    let mut two = gif(2);
    let (jpeg, png, gif, bmp) = (jpeg(48, 32), png(9, 7), gif(1), bmp(2, 2, &[&[1; 6], &[2; 6]]));
    let scan = marker(&jpeg, 0xda);
    let parameters = with(&jpeg, scan + 11, &[0, 0, 0]);
    is_tolerated("scan parameters", &parameters, &jpeg, Tolerated::ScanParameters);
    // After the header.
    let text = png_chunk(b"pHYs", b"\0\0\x0b\x13\0\0\x0b\x13\x01");
    let broken = with(&text, text.len() - 1, &[text[text.len() - 1] ^ 1]);
    is_tolerated("checksum", &inserted(&png, 33, &broken), &png, Tolerated::PngChunks);
    let frames = [png_chunk(b"acTL", b"\0\0\0\x02\0\0\0\0"), png_chunk(b"fdAT", b"\0\0\0\x07abc")].concat();
    is_tolerated("sequence", &inserted(&png, 33, &frames), &png, Tolerated::PngChunks);
    is_tolerated("no trailer", &gif[..gif.len() - 1], &gif, Tolerated::GifEnd);
    is_tolerated("planes", &with(&bmp, 26, &[7, 0]), &bmp, Tolerated::BmpHeader);
    let qoi = b"qoif\0\0\0\x01\0\0\0\x01\x03\0\xfe\x10\x20\x30\0\0\0\0\0\0\0\x01";
    for cut in 1..=8 {
        is_tolerated("end marker", &qoi[..qoi.len() - cut], qoi, Tolerated::QoiEnd);
    }
    // Real damage is still found, also beside such defects.
    assert_eq!(code(&qoi[..qoi.len() - 9], &[]), RejectCode::Truncated);
    let alpha = png_chunk(b"tRNS", &[0; 6]);
    let broken_alpha = with(&alpha, alpha.len() - 1, &[alpha[alpha.len() - 1] ^ 1]);
    assert_eq!(code(&inserted(&png, 33, &broken_alpha), &[]), RejectCode::Corrupt);
    let both = inserted(&with(&png, png.len() - 20, &[1]), 33, &broken);
    assert_eq!(code(&both, &[]), RejectCode::Corrupt);
    assert_eq!(code(&gif[..gif.len() - 2], &[]), RejectCode::Truncated);
    two.pop();
    assert_eq!(code(&two, &[("animated", "reject")]), RejectCode::Animated);
    let several = inserted(&parameters, marker(&parameters, 0xdb), b"stray");
    let image = convert(&several, &[]).unwrap();
    assert_eq!(image.tolerated, [Tolerated::ScanParameters, Tolerated::StrayBytes]);
}

#[test]
fn metadata_never_rejects_an_image() {
    let (jpeg, png, webp) = (jpeg(20, 10), png(20, 10), webp(20, 10));
    let xmp = |content: &[u8]| [b"http://ns.adobe.com/xap/1.0/\0", content].concat();
    let text = |content: &[u8]| png_chunk(b"iTXt", &[b"XML:com.adobe.xmp\0\0\0\0\0", content].concat());
    let turned = b"\xff\xfe<x tiff:Orientation=\"6\"/>";
    for content in [&b"\xff\xc0\x80"[..], &[0x80; 60_000], turned] {
        let files = [
            with_segment(&jpeg, 0xe1, &xmp(content)),
            inserted(&png, 33, &text(content)),
            with_segment(&jpeg, 0xe1, &[b"Exif\0\0II*\0\x08\0\0\0\xff\xff", content].concat()),
            inserted(&png, 33, &png_chunk(b"eXIf", content)),
            inserted(&png, 33, &png_chunk(b"tEXt", content)),
            inserted(&png, 33, &png_chunk(b"zTXt", &[b"Raw profile type exif\0\0", content].concat())),
            metadata::with_exif(webp.clone(), ImageType::Webp, (20, 10), content),
        ];
        for (n, file) in files.iter().enumerate() {
            for texts in [&[][..], &[("encode", "keep"), ("keep_metadata", "true")]] {
                let image = convert(file, texts).unwrap();
                let is_turned = content == turned && n < 2;
                assert_eq!((image.width, image.height), if is_turned { (10, 20) } else { (20, 10) }, "{n}");
                assert!(image.tolerated.is_empty());
            }
        }
    }
}

#[test]
fn orientation_is_read_from_xmp_if_exif_has_none() {
    let packet = b"<x tiff:Orientation=\"6\"/>";
    let xmp = [&b"http://ns.adobe.com/xap/1.0/\0"[..], packet].concat();
    let with_xmp = |file: &[u8]| with_segment(file, 0xe1, &xmp);
    let size = |file: &[u8]| convert(file, &[]).map(|image| (image.width, image.height)).unwrap();
    let whole = jpeg(20, 10);
    assert_eq!(size(&with_xmp(&whole)), (10, 20));
    for tag in [1, 9] {
        assert_eq!(size(&with_xmp(&with_orientation(&whole, tag))), (20, 10), "EXIF counts, with {tag}");
    }
    let zlib = |bytes: &[u8]| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    for (flag, text) in [(0, packet.to_vec()), (1, zlib(packet))] {
        let head = [&b"XML:com.adobe.xmp\0"[..], &[flag, 0], b"en\0\0"].concat();
        let chunk = png_chunk(b"iTXt", &[head, text].concat());
        assert_eq!(size(&inserted(&png(20, 10), 33, &chunk)), (10, 20));
    }
    let tiff = tiff_of((2, 1), 1, 8, &[(700, 1, packet.to_vec())], &[1, 2]);
    assert_eq!(size(&tiff), (1, 2));
    let turned = tiff_of((2, 1), 1, 8, &[(700, 1, packet.to_vec()), (274, 3, vec![1, 0])], &[1, 2]);
    assert_eq!(size(&turned), (2, 1));
}

#[test]
fn a_component_without_a_scan_is_a_reject() {
    // A progressive file that ends after its first scan has all its components; a file in which a component has no scan
    // does not.
    let file = jpeg(16, 16);
    let scan = marker(&file, 0xda);
    // One component in the scan; the frame has three.
    let alone = [&file[..scan], &[0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0], &file[scan + 14..]].concat();
    assert!(convert(&alone, &[]).is_err());
}

#[test]
fn cmyk_of_any_subsampling_is_converted() {
    for (subsampling, space) in [
        (libjpeg_turbo_rs::Subsampling::S420, ColorSpace::Ycck),
        (libjpeg_turbo_rs::Subsampling::S422, ColorSpace::Ycck),
        (libjpeg_turbo_rs::Subsampling::S420, ColorSpace::Cmyk),
    ] {
        let inks = [10, 80, 160, 30].repeat(33 * 17);
        let file = libjpeg_turbo_rs::Encoder::new(&inks, 33, 17, libjpeg_turbo_rs::PixelFormat::Cmyk)
            .quality(100)
            .subsampling(subsampling)
            .colorspace(space)
            .encode()
            .unwrap();
        let image = raw(&file, &[]);
        assert_eq!((image.width, image.height), (33, 17), "{subsampling:?} {space:?}");
        assert!(near(pixel(&image, 20, 9), pixel(&image, 0, 0), 3));
        assert!(convert(&file[..file.len() / 2], &[]).is_err());
    }
}

#[test]
fn png_data_is_checked_even_if_its_checksum_is_right() {
    let file = png(20, 15);
    let data = file.windows(4).position(|w| w == b"IDAT").unwrap();
    let length = u32::from_be_bytes(file[data - 4..data].try_into().unwrap()) as usize;
    let end = data + 4 + length;
    for at in [end - 1, end - 4] {
        let mut bad = with(&file, at, &[file[at] ^ 1]);
        let crc = crc32fast::hash(&bad[data..end]);
        bad[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        for encode in ["keep", "png", "jpeg:90"] {
            assert_eq!(code(&bad, &[("encode", encode)]), RejectCode::Corrupt);
        }
        // All rows are there.
        let kept = raw(&bad, &[("lenient", "true")]);
        assert!(kept.lenient && kept.bytes == raw(&file, &[]).bytes);
        assert!(!convert(&bad, &[("encode", "keep"), ("lenient", "true")]).unwrap().passthrough);
    }
    // So are black ones.
    let black = raw_png((2, 1), 8, 0, &[], &[&[0, 0]]);
    let data = black.windows(4).position(|w| w == b"IDAT").unwrap();
    let bad = with(&black, data + 8, &[0xee]);
    assert!(code(&bad, &[]) == RejectCode::Corrupt);
    let unknown = inserted(&file, 33, &png_chunk(b"NEWS", b"what is this"));
    assert_eq!(code(&unknown, &[]), RejectCode::Corrupt);
    assert!(convert(&inserted(&file, 33, &png_chunk(b"neWs", b"ancillary")), &[]).is_ok());
    let twice = inserted(&file, 33, &file[8..33]);
    assert_eq!(code(&twice, &[]), RejectCode::Corrupt);
}

#[test]
fn large_regions_of_lossless_webp_are_no_bomb() {
    let side = 3000u32;
    let samples = vec![255; side as usize * side as usize * 3];
    let file = ::webp::Encoder::from_rgb(&samples, side, side).encode_lossless();
    assert!(file.len() < 2000, "{}", file.len());
    let image = convert(&file, &[("resize", "shorter:2"), ("encode", "raw")]).unwrap();
    assert!(image.bytes.iter().all(|sample| *sample == 255));
}

#[test]
fn webp_containers_are_read_to_their_end() {
    let plain = webp(21, 17);
    let block = exif::tests::block(6, true);
    let file = metadata::with_exif(plain.clone(), ImageType::Webp, (21, 17), &block);
    assert_eq!((raw(&file, &[]).width, raw(&file, &[]).height), (17, 21));
    for missing in 1..block.len() {
        assert_eq!(
            code(&file[..file.len() - missing], &[]),
            RejectCode::Truncated,
            "{missing} bytes are missing"
        );
    }
    let riff =
        |chunks: &[u8]| [b"RIFF", &(chunks.len() as u32 + 4).to_le_bytes()[..], b"WEBP", chunks].concat();
    let cases = [
        ("two headers", riff(&[&file[12..30], &file[12..]].concat())),
        ("no image", riff(&file[12..30])),
        ("two images", riff(&[&file[12..], &plain[12..]].concat())),
        ("another canvas", riff(&with(&file[12..], 12, &[99]))),
        ("a cut chunk header", riff(&[&file[12..], b"EXI"].concat())),
        ("a chunk that is too long", riff(&[&file[12..], b"EXIF\xff\0\0\0abcd"].concat())),
    ];
    for (name, file) in cases {
        assert_eq!(code(&file, &[("encode", "keep")]), RejectCode::Corrupt, "{name}");
    }
    // The first partition ends before its last row: its size is in bits 5 to 23 of the first bytes.
    let lossy = webp(101, 76);
    let short = with(&lossy, 20, &[lossy[20] & 0x1f | 0x80, 0, 0]);
    assert!(convert(&short, &[("encode", "keep")]).is_err());
    let longer = [&plain[..], b"bytes after the container"].concat();
    let kept = convert(&longer, &[("encode", "keep")]).unwrap();
    assert_eq!(kept.bytes, plain);
}

/// Creates a run-length encoded bitmap of 8 bits per pixel.
fn rle(width: u32, height: u32, runs: &[u8]) -> Vec<u8> {
    let mut out = b"BM\0\0\0\0\0\0\0\0\x3e\0\0\0\x28\0\0\0".to_vec();
    out.extend(width.to_le_bytes());
    out.extend(height.to_le_bytes());
    out.extend(b"\x01\0\x08\0\x01\0\0\0");
    out.resize(46, 0);
    out.extend(2u32.to_le_bytes());
    out.extend([0; 4]);
    out.extend([0, 0, 0, 0, 255, 255, 255, 0]);
    out.extend(runs);
    out
}

#[test]
fn run_lengths_reach_the_last_pixel() {
    let whole = [3, 1, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 1];
    assert_eq!((raw(&rle(3, 2, &whole), &[]).width, code(&rle(3, 3, &whole), &[])), (3, RejectCode::Corrupt));
    for end in 0..10 {
        assert_eq!(code(&rle(3, 2, &whole[..end]), &[]), RejectCode::Truncated, "cut at {end}");
    }
    assert_eq!(code(&rle(3, 2, &[3, 1, 0, 1]), &[]), RejectCode::Corrupt);
    assert_eq!(code(&rle(3, 2, &[0, 2, 9, 9, 0, 1]), &[]), RejectCode::Corrupt);
    // A skip to the last pixels leaves the others black.
    assert_eq!(pixel(&raw(&rle(3, 2, &[0, 2, 0, 1, 3, 1, 0, 1]), &[]), 1, 0), [255; 3]);
}

#[test]
fn small_files_cannot_claim_much_memory() {
    let big = 12_000u32;
    let sizes = |w: u32, h: u32| [h as u16, w as u16].map(u16::to_be_bytes).concat();
    let jpeg = jpeg(16, 16);
    let cases = [
        ("JPEG", with(&jpeg, marker(&jpeg, 0xc0) + 5, &sizes(big, big))),
        ("RLE", rle(big, big, &[1, 1, 0, 1])),
        ("PNG", raw_png((big, big), 8, 2, &[], &[&[0; 30]])),
        ("GIF", with(&gif(1), 6, &[0xe0, 0x2e, 0xe0, 0x2e])),
    ];
    for (name, file) in cases {
        assert_eq!(code(&file, &[]), RejectCode::TooLarge, "{name}");
    }
    let bmp = with(&bmp(2, 2, &[&[1; 6], &[2; 6]]), 18, &big.to_le_bytes());
    assert_eq!(code(&bmp, &[]), RejectCode::Truncated);
}

#[test]
fn the_lowest_qualities_are_baseline_too() {
    for quality in [1, 10, 23, 24] {
        let file = convert(&jpeg(40, 30), &[("encode", &format!("jpeg:{quality}")), ("resize", "longer:20")])
            .unwrap()
            .bytes;
        marker(&file, 0xc0);
        let tables = marker(&file, 0xdb);
        assert_eq!(file[tables + 4] >> 4, 0, "8-bit numbers at quality {quality}");
    }
}

#[test]
fn a_second_image_after_the_end_is_not_stored() {
    let file = jpeg(40, 30);
    let two = [&file[..], &jpeg(8, 8)].concat();
    let kept = convert(&two, &[("encode", "keep")]).unwrap();
    assert!(kept.passthrough);
    assert_eq!(kept.bytes, file);
}

#[test]
fn palette_images_pass_through() {
    let palette = png_chunk(b"PLTE", &[255, 0, 0, 0, 255, 0, 0, 0, 255]);
    let file = raw_png((3, 1), 8, 3, &[palette], &[&[0, 1, 2]]);
    for encode in ["keep", "png"] {
        let image = convert(&file, &[("encode", encode)]).unwrap();
        assert!(image.passthrough, "{encode}");
        assert_eq!(image.bytes, file);
    }
}
