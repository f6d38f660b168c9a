//! What a run may use: memory, open files.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::*;

/// Lets `child` run to its end, which must be a success, and gives the most memory it had, in bytes.
fn peak_of(mut child: Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        // The figure only grows, and is gone with the process.
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let kib = now.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = peak.max(kib.map_or(0, |kib| kib.trim().parse::<u64>().unwrap() << 10));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return peak;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A picture of 12 megapixels, as PNG and as JPEG, each under several names.
fn camera_files(dir: &Path) {
    let (width, height) = (4000, 3000);
    let row: Vec<u8> = (0..width * 3).map(|i| (i / 3 % 251) as u8).collect();
    let image = image::RgbImage::from_raw(width, height, row.repeat(height as usize)).unwrap();
    for extension in ["png", "jpg"] {
        let first = dir.join(format!("0.{extension}"));
        image.save(&first).unwrap();
        for i in 1..6 {
            std::fs::copy(&first, dir.join(format!("{i}.{extension}"))).unwrap();
        }
    }
}

#[test]
fn many_threads_over_large_images_stay_within_their_memory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    std::fs::create_dir(&source).unwrap();
    camera_files(&source);
    let peak = |memory: &str| {
        let out = dir.path().join(memory);
        let mut command = command(["images"]);
        command.arg(&source).arg("--out").arg(out).args(["--threads", "8", "--memory", memory]);
        command.args(["--crop", "center:64x64"]);
        peak_of(command.stdout(Stdio::null()).spawn().unwrap())
    };
    // Eight of these at one time take more than twice as much, as the larger limit shows.
    let (little, plenty) = (peak("256MiB"), peak("4GiB"));
    assert!(little < 256 << 20, "{little} bytes");
    assert!(plenty > little, "{plenty} bytes: the images are too small to show anything");
}

#[test]
fn a_hundred_thousand_files_are_converted_with_few_open() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    let mut png = Vec::new();
    let pixel = image::RgbImage::from_pixel(1, 1, image::Rgb([1, 2, 3]));
    pixel.write_to(&mut std::io::Cursor::new(&mut png), image::ImageFormat::Png).unwrap();
    // One file under many names, which is quick to make; a file has at most about 65,000 names.
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
