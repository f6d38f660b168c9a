//! A run keeps few files open, however many its sources have.

use crate::support::*;

#[test]
fn a_hundred_thousand_files_are_converted_with_48_file_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    let mut png = Vec::new();
    let pixel = image::RgbImage::from_pixel(1, 1, image::Rgb([1, 2, 3]));
    pixel.write_to(&mut std::io::Cursor::new(&mut png), image::ImageFormat::Png).unwrap();
    // Hard links to one file per folder are quick to create; ext4 allows 65,000 of them to a file.
    for folder in 0..4 {
        let folder = source.join(folder.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let first = folder.join("00000.png");
        std::fs::write(&first, &png).unwrap();
        for i in 1..25_000 {
            std::fs::hard_link(&first, folder.join(format!("{i:05}.png"))).unwrap();
        }
    }
    let out = dir.path().join("out");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dsconvert"), "images"]);
    command.arg(&source).arg("--out").arg(&out).args(["--threads", "4", "--encode", "png"]);
    Ran::of(command.output().unwrap()).exits(0);
    let manifest = manifest(&out);
    assert_eq!(manifest["converted"].as_u64(), Some(100_000));
    assert_eq!(manifest["splits"]["train"]["records"].as_u64(), Some(100_000));
}
