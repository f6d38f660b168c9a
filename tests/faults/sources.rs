//! Sources of the conversions: small, so that a run makes a few hundred calls.

use std::path::Path;

use crate::tree::tree;

/// Writes documents in files of 1.5 kB. Some are duplicates of others in the same two files.
pub fn write_text(dir: &Path, files: usize) {
    std::fs::create_dir_all(dir).unwrap();
    for file in 0..files {
        let mut text = String::new();
        for i in 0..14 {
            let body = format!("document {} ", i % 11 + file / 2 * 11).repeat(i % 11 + 1);
            let id = file * 100 + i;
            text.push_str(&serde_json::json!({ "id": id, "text": body }).to_string());
            text.push('\n');
        }
        std::fs::write(dir.join(format!("{file}.jsonl")), text).unwrap();
    }
}

/// Writes documents as CSV, plain text and compressed jsonl.
pub fn write_tables(dir: &Path) {
    use std::io::Write;

    std::fs::create_dir_all(dir).unwrap();
    let documents: Vec<String> = (0..12).map(|i| format!("document number {i}")).collect();
    std::fs::write(dir.join("a.csv"), format!("text\n{}\n", documents.join("\n"))).unwrap();
    std::fs::write(dir.join("b.txt"), documents.join("\n")).unwrap();
    let lines: String = documents.iter().map(|text| format!("{{\"text\":\"{text}\"}}\n")).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    std::fs::write(dir.join("c.jsonl.gz"), gzip.finish().unwrap()).unwrap();
    std::fs::write(dir.join("d.jsonl.zst"), zstd::encode_all(lines.as_bytes(), 1).unwrap()).unwrap();
    // A file that ends too early: it is rejected, however it is read.
    std::fs::write(dir.join("e.jsonl.gz"), [0x1f, 0x8b, 8, 0, 0]).unwrap();
}

/// Writes the smallest photographs of the fixtures in two classes, one of them twice, and a file that is not an image.
pub fn write_images(dir: &Path) {
    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/photos");
    let mut images: Vec<(String, Vec<u8>)> = tree(&photos)
        .into_iter()
        .filter(|(name, _)| [".jpg", ".png"].iter().any(|ending| name.ends_with(ending)))
        .collect();
    images.sort_by_key(|(name, bytes)| (bytes.len(), name.clone()));
    for class in ["cat", "dog"] {
        std::fs::create_dir_all(dir.join(class)).unwrap();
    }
    for (place, image) in [("cat/0", 0), ("cat/1", 1), ("dog/2", 2), ("dog/copy", 0)] {
        let (name, bytes) = &images[image];
        let ending = name.rsplit('.').next().unwrap();
        std::fs::write(dir.join(format!("{place}.{ending}")), bytes).unwrap();
    }
    std::fs::write(dir.join("cat/not.jpg"), "this is no image").unwrap();
}
