//! Peak memory is bounded by the options, whatever the sources contain. Only Linux reports the peak of a running
//! process, so these tests check nothing on other systems.

use std::io::Write;
use std::path::Path;

use crate::support::*;

/// Memory that a run may use in addition to `--memory`.
const OVERHEAD_BYTES: u64 = 128 << 20;

/// Limit on the peak of a run with `--memory 64MiB`, or of one that rejects the item that would exceed it.
const PEAK_LIMIT: u64 = (64 << 20) + OVERHEAD_BYTES;

/// Bytes of a document just below `--max-document-bytes 16MiB`.
const LARGE_DOCUMENT: usize = 15 << 20;

/// Runs a conversion, asserts that its peak is bounded_peak, and returns the peak.
#[track_caller]
fn bounded_peak(source: &Path, out: &Path, options: &str) -> u64 {
    let mut command = command(["text"]);
    command.arg(source).arg("--out").arg(out).args(options.split_whitespace());
    command.args([
        "--tokenizer",
        "bytes",
        "--threads",
        "2",
        "--memory",
        "64MiB",
        "--max-document-bytes",
        "16MiB",
    ]);
    let Some(peak) = peak_bytes(command) else { return 0 };
    assert!(peak > 1 << 20, "nothing was measured");
    assert!(peak < PEAK_LIMIT, "{} MiB for {}", peak >> 20, source.display());
    peak
}

/// Writes `line` until the file has `bytes` bytes.
fn fill(file: &mut impl Write, line: &[u8], bytes: usize) {
    let piece = line.repeat((1 << 20) / line.len() + 1);
    let mut written = 0;
    while written < bytes {
        let length = piece.len().min(bytes - written);
        file.write_all(&piece[..length]).unwrap();
        written += length;
    }
}

#[test]
fn a_line_larger_than_the_limit_is_rejected_without_being_held() {
    let dir = tempfile::tempdir().unwrap();
    let long = |path: &Path, compressed: bool| {
        let file = std::fs::File::create(path).unwrap();
        let mut file: Box<dyn Write> = match compressed {
            true => Box::new(zstd::Encoder::new(file, 1).unwrap().auto_finish()),
            false => Box::new(file),
        };
        file.write_all(b"{\"text\": \"").unwrap();
        fill(&mut file, b"just below the limit ", LARGE_DOCUMENT);
        file.write_all(b"\"}\n{\"text\": \"").unwrap();
        // Varied enough to stay below the limit on the compression ratio.
        fill(
            &mut file,
            (0..60_000)
                .map(|i: u32| format!("{} ", i.wrapping_mul(2_654_435_761)))
                .collect::<String>()
                .as_bytes(),
            300 << 20,
        );
        file.write_all(b"\"}\n{\"text\": \"after\"}\n").unwrap();
    };
    for name in ["c.jsonl", "c.jsonl.zst"] {
        let source = dir.path().join(name);
        long(&source, name.ends_with("zst"));
        let out = dir.path().join(format!("out-{name}"));
        bounded_peak(&source, &out, "--max-rejects 50%");
        let texts = only_texts(&out);
        assert_eq!((texts.len(), texts[0].len(), texts[1].as_str()), (2, LARGE_DOCUMENT, "after"));
        let offset = LARGE_DOCUMENT + r#"{"text": ""}"#.len() + 1;
        assert_eq!(rejects(&out), [(format!("{name}#{offset}"), "too-large".to_owned())]);
        std::fs::remove_file(source).unwrap();
    }
}

#[test]
fn a_large_corpus_needs_no_more_memory_than_a_small_one() {
    let dir = tempfile::tempdir().unwrap();
    let line = b"a line of text that is repeated until there is much of it, and differs in nothing\n";
    // The small corpus already fills the packing window. Sort buffers grow up to a limit, which `PEAK_LIMIT` covers.
    for (options, may_grow) in [("--pack 1024 --format msgpack", false), ("--dedup exact", true)] {
        let peak = |megabytes: usize| {
            let source = dir.path().join(format!("{megabytes}.txt.gz"));
            let file = std::fs::File::create(&source).unwrap();
            let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            fill(&mut file, line, megabytes << 20);
            file.finish().unwrap();
            let out = dir.path().join(format!("{megabytes}-{}", options.len()));
            bounded_peak(&source, &out, &format!("--documents line {options}"))
        };
        let (small, large) = (peak(16), peak(48));
        assert!(
            may_grow || large < small + small / 4 + (8 << 20),
            "{} MiB and {} MiB",
            small >> 20,
            large >> 20
        );
    }
}

/// Bytes of a document as written, just below the limit of 64 MiB for a line or row.
const LONG_DOCUMENT: usize = (64 << 20) - 100;

/// Writes `documents` long documents as JSON lines with escapes, or as CSV rows with doubled quotes.
fn long_documents(path: &Path, documents: usize) {
    let is_table = path.extension().is_some_and(|extension| extension == "csv");
    let (line, start, end): (&[u8], &[u8], &[u8]) = match is_table {
        true => (b"a line of a long document with \"\"quotes\"\"\n", b"\"", b"\"\n"),
        false => (b"a line of a long document with \\\"quotes\\\"\\n", b"{\"text\": \"", b"\"}\n"),
    };
    let mut file = std::fs::File::create(path).unwrap();
    if is_table {
        file.write_all(b"text\n").unwrap();
    }
    for _ in 0..documents {
        file.write_all(start).unwrap();
        // Whole lines only, so that no escape is cut.
        fill(&mut file, line, LONG_DOCUMENT / line.len() * line.len());
        file.write_all(end).unwrap();
    }
}

#[test]
fn the_largest_documents_stay_within_the_memory_limit_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    // Two documents, so that both would be in memory at once if nothing limited it, and one where only the writer differs.
    for (name, documents, formats) in [
        ("lines.jsonl", 2, ["parquet"].as_slice()),
        ("line.jsonl", 1, &["arrow", "msgpack", "protobuf"]),
        ("table.csv", 1, &["parquet"]),
    ] {
        let source = dir.path().join(name);
        long_documents(&source, documents);
        for format in formats {
            let out = dir.path().join(format!("{name}-{format}"));
            let mut command = command(["text"]);
            command.arg(&source).arg("--out").arg(&out).args(["--tokenizer", "bytes", "--threads", "2"]);
            // The byte tokenizer gives the most ids, one for each byte.
            command.args(["--memory", "256MiB", "--format", format]);
            let Some(peak) = peak_bytes(command) else { return };
            assert_outcomes(&out, [documents as u64, 0, 0, 0]);
            assert!(peak > 64 << 20, "nothing was measured");
            assert!(peak < (256 << 20) + OVERHEAD_BYTES, "{name} in {format}: {} MiB", peak >> 20);
            std::fs::remove_dir_all(out).unwrap();
        }
    }
}

/// Writes `count` documents of about `bytes` bytes as JSON lines.
fn equal_documents(path: &Path, count: usize, bytes: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    for _ in 0..count {
        file.write_all(b"{\"text\": \"").unwrap();
        // Whole lines only, so that no escape is cut.
        fill(&mut file, b"a line of a long document\\n", bytes / 27 * 27);
        file.write_all(b"\"}\n").unwrap();
    }
}

/// Pieces that share seven eighths of their tokens need eight times as much memory as the document.
#[test]
fn overlapping_pieces_of_long_documents_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("long.jsonl"), dir.path().join("out"));
    equal_documents(&source, 12, 1 << 20);
    let mut command = command(["text"]);
    command.arg(&source).arg("--out").arg(&out).args(["--tokenizer", "bytes", "--threads", "12"]);
    command.args(["--max-length", "1024", "--overflow", "split:896"]);
    command.args(["--memory", "64MiB", "--format", "msgpack"]);
    let Some(peak) = peak_bytes(command) else { return };
    assert!(peak > 32 << 20, "nothing was measured");
    assert!(peak < PEAK_LIMIT, "{} MiB", peak >> 20);
}

/// A plan does nothing but look for duplicates, on more threads than the memory allows long documents.
#[test]
fn looking_for_duplicates_among_long_documents_stays_within_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("long.jsonl"), dir.path().join("out"));
    equal_documents(&source, 24, LARGE_DOCUMENT);
    let mut command = command(["plan", "text"]);
    command.arg(&source).arg("--out").arg(&out).args(["--tokenizer", "bytes", "--dedup", "exact"]);
    command.args(["--threads", "8", "--memory", "64MiB", "--max-document-bytes", "16MiB"]);
    command.args(["--unit-bytes", "16MiB"]);
    let Some(peak) = peak_bytes(command) else { return };
    assert!(peak > 16 << 20, "nothing was measured");
    assert!(peak < PEAK_LIMIT, "{} MiB", peak >> 20);
}

/// The reference tokenizer would need more than ten times as much memory for the whole document at once.
#[test]
fn verifying_the_ids_of_a_long_document_needs_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("long.txt"), dir.path().join("out"));
    let mut file = std::fs::File::create(&source).unwrap();
    fill(
        &mut file,
        b"It's the longest story of them all, told in 1001 nights; nobody knows its end. ",
        8 << 20,
    );
    let mut command = command(["text"]);
    command.arg(&source).arg("--out").arg(&out).args(["--threads", "2", "--verify-ids", "all"]);
    command.arg("--tokenizer").arg(fixture("tokenizers/bpe.json"));
    let Some(peak) = peak_bytes(command) else { return };
    let notes = &manifest(&out)["notes"];
    assert!(notes["verified_bytes"].as_u64().unwrap() >= 8 << 20, "{notes}");
    assert_eq!((notes["verified_documents"].as_u64(), notes.get("unverified_documents")), (Some(1), None));
    assert!(peak < 512 << 20, "{} MiB", peak >> 20);
}

/// Writes six copies of a 12-megapixel image as PNG, and six as JPEG.
fn write_large_images(dir: &Path) {
    let (width, height) = (4000, 3000);
    let row: Vec<u8> = (0..width * 3).map(|i| (i / 3 % 251) as u8).collect();
    let image = image::RgbImage::from_raw(width, height, row.repeat(height as usize)).unwrap();
    image.save(dir.join("0.png")).unwrap();
    let jpeg = jpeg_encoder::Encoder::new_file(dir.join("0.jpg"), 75).unwrap();
    jpeg.encode(&image, width as u16, height as u16, jpeg_encoder::ColorType::Rgb).unwrap();
    for extension in ["png", "jpg"] {
        for i in 1..6 {
            std::fs::copy(dir.join(format!("0.{extension}")), dir.join(format!("{i}.{extension}"))).unwrap();
        }
    }
}

#[test]
fn many_threads_over_large_images_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    std::fs::create_dir(&source).unwrap();
    write_large_images(&source);
    let peak = |memory: &str| {
        let out = dir.path().join(memory);
        let mut command = command(["images"]);
        command.arg(&source).arg("--out").arg(out).args(["--threads", "8", "--memory", memory]);
        command.args(["--crop", "center:64x64"]);
        peak_bytes(command)
    };
    // The larger limit lets eight images be decoded at once, which must show in the peak.
    let (Some(little), Some(plenty)) = (peak("256MiB"), peak("4GiB")) else { return };
    assert!(little < 256 << 20, "{little} bytes");
    assert!(plenty > little, "{plenty} bytes: the images are too small to show anything");
}

#[test]
fn text_that_a_normalizer_expands_too_far_is_rejected_before_it_is_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let json = std::fs::read(fixture("tokenizers/bpe.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&json).unwrap();
    tokenizer["normalizer"] = serde_json::json!({"type": "Replace", "pattern": {"String": "a"},
        "content": "grown ".repeat(1000)});
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let source = dir.path().join("c.jsonl");
    let texts = ["no such letter".to_owned(), "a".repeat(200_000), "a word".to_owned()];
    let lines: String = texts.iter().map(|text| format!("{}\n", serde_json::json!({"text": text}))).collect();
    std::fs::write(&source, lines).unwrap();
    let out = dir.path().join("out");
    let mut command = command(["text"]);
    command.arg(&source).arg("--out").arg(&out).arg("--tokenizer").arg(dir.path());
    command.args(["--memory", "256MiB", "--max-rejects", "50%", "--threads", "2"]);
    if let Some(peak) = peak_bytes(command) {
        assert!(peak < PEAK_LIMIT, "{} MiB", peak >> 20);
        assert_eq!(rejects(&out), [("c.jsonl#26".to_owned(), "too-large".to_owned())]);
    }
}

#[test]
fn many_short_documents_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("short.txt");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&source).unwrap());
    // A record is many times as large as so short a line. One line in ten is a duplicate.
    (0..400_000u32)
        .for_each(|i| writeln!(file, "{:x}", (i - i % 10 / 9).wrapping_mul(2_654_435_761)).unwrap());
    file.into_inner().unwrap();
    let out = dir.path().join("out");
    let mut command = command(["text"]);
    command.arg(&source).arg("--out").arg(&out).args(["--documents", "line", "--tokenizer", "bytes"]);
    command.args(["--memory", "64MiB", "--threads", "2", "--dedup", "exact", "--shuffle"]);
    let Some(peak) = peak_bytes(command) else { return };
    assert_outcomes(&out, [360_000, 0, 40_000, 0]);
    assert!(peak < (64 << 20) + OVERHEAD_BYTES, "{} MiB", peak >> 20);
}

#[test]
fn planning_needs_less_than_100_bytes_per_file() {
    let dir = tempfile::tempdir().unwrap();
    let peak = |files: u64| {
        let original = dir.path().join(format!("original-{files}"));
        std::fs::write(&original, "the plan does not look into it").unwrap();
        let source = dir.path().join(format!("photos-{files}"));
        for file in 0..files {
            let folder = source.join(format!("{:03}", file / 1000));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::hard_link(&original, folder.join(format!("holiday-{file:06}.png"))).unwrap();
        }
        let mut plan = command(["plan", "images"]);
        plan.arg(&source).arg("--out").arg(dir.path().join(format!("out-{files}"))).arg("--quiet");
        peak_bytes(plan)
    };
    // ext4 allows 65,000 hard links to a file.
    let (Some(few), Some(many)) = (peak(10_000), peak(60_000)) else { return };
    let each = many.saturating_sub(few) / 50_000;
    assert!(each < 100, "{each} bytes a file");
}

/// `dsconvert bench` locates the documents of a compressed file without holding the file, and a line above the limit
/// without holding the line.
#[test]
fn a_bench_of_a_large_file_needs_little_memory() {
    const BYTES: usize = 300 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (blank, lines) = (dir.path().join("blank.txt.zst"), dir.path().join("lines.jsonl.zst"));
    let encoder = |path: &Path| zstd::Encoder::new(std::fs::File::create(path).unwrap(), 1).unwrap();
    // Varied enough to stay below the limit on the compression ratio.
    let words: String = (0..60_000).map(|i: u32| format!("{} ", i.wrapping_mul(2_654_435_761))).collect();
    let mut file = encoder(&blank).auto_finish();
    fill(&mut file, format!("{words}\n\n").as_bytes(), BYTES);
    drop(file);
    let mut file = encoder(&lines).auto_finish();
    file.write_all(b"{\"text\": \"before\"}\n").unwrap();
    fill(&mut file, words.as_bytes(), BYTES);
    file.write_all(b"\n{\"text\": \"after\"}\n").unwrap();
    drop(file);
    for (path, options) in [(&blank, "--documents blank-line"), (&lines, "")] {
        let mut command = command(["bench"]);
        command.arg(path).args(options.split_whitespace());
        command.args(["--items", "8", "--repeat", "1", "--threads", "1", "--no-probe"]);
        let Some(peak) = peak_bytes(command) else { return };
        assert!(peak < PEAK_LIMIT, "{} MiB for {}", peak >> 20, path.display());
    }
}
