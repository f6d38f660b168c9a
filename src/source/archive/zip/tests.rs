//! Tests of zip archives.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use crate::options::SourceSpec;
use crate::sample::RejectCode;
use crate::source::archive::ArchiveKind;
use crate::source::archive::testing::{origins, source};
use crate::source::io::broken::Broken;
use crate::source::list::expand::{ExpandedArchive, expand, is_image_name};
use crate::source::list::source_file::SourceFile;

/// A file to write into a test archive.
struct TestMember<'a> {
    name: &'a str,
    content: &'a [u8],
    method: u16,
    flags: u16,
}

fn member<'a>(name: &'a str, content: &'a [u8]) -> TestMember<'a> {
    TestMember { name, content, method: 8, flags: 0 }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Builds an archive according to the specification, with Zip64 numbers if `wide` is set.
fn archive(files: &[TestMember<'_>], wide: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let data = if file.method == 8 { deflated(file.content) } else { file.content.to_vec() };
        let mut crc = flate2::Crc::new();
        crc.update(file.content);
        let offset = out.len() as u64;
        let common = |sizes: [u32; 2]| {
            let mut header = Vec::new();
            [45, file.flags, file.method, 0, 0].iter().for_each(|n: &u16| header.extend(n.to_le_bytes()));
            [crc.sum(), sizes[0], sizes[1]].iter().for_each(|n| header.extend(n.to_le_bytes()));
            header.extend((file.name.len() as u16).to_le_bytes());
            header
        };
        let sizes = [data.len() as u32, file.content.len() as u32];
        out.extend(b"PK\x03\x04");
        out.extend(common(sizes));
        out.extend([3, 0]);
        out.extend(file.name.as_bytes());
        out.extend(b"xyz");
        out.extend(&data);
        let mut extra = vec![];
        if wide {
            extra.extend([9, 9, 1, 0, 7, 1, 0, 24, 0]);
            [file.content.len() as u64, data.len() as u64, offset]
                .iter()
                .for_each(|n| extra.extend(n.to_le_bytes()));
        }
        directory.extend(b"PK\x01\x02\x2d\x03");
        directory.extend(common(if wide { [u32::MAX; 2] } else { sizes }));
        directory.extend((extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend((if wide { u32::MAX } else { offset as u32 }).to_le_bytes());
        directory.extend(file.name.as_bytes());
        directory.extend(extra);
    }
    let (start, count) = (out.len() as u64, files.len() as u64);
    out.extend(&directory);
    if wide {
        let end64 = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend(44u64.to_le_bytes());
        out.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        [count, count, directory.len() as u64, start].iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(end64.to_le_bytes());
        out.extend(1u32.to_le_bytes());
    }
    out.extend(b"PK\x05\x06\0\0\0\0");
    let narrow = |n: u64| if wide { u32::MAX } else { n as u32 };
    [count as u16, count as u16].iter().for_each(|n| out.extend(n.to_le_bytes()));
    [narrow(directory.len() as u64), narrow(start)].iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend(b"\x07\0comment");
    out
}

/// Writes the archive, and returns it as a source of its own with the files in it.
fn listed(
    dir: &std::path::Path,
    name: &str,
    bytes: &[u8],
) -> Result<(Vec<SourceSpec>, ExpandedArchive), String> {
    let (sources, file, planned) = source(dir, name, bytes);
    let found =
        expand(&file, ArchiveKind::Zip, &planned, &is_image_name, &|_| false).map_err(|e| e.to_string())?;
    Ok((sources, found.unwrap()))
}

#[test]
fn images_are_listed_by_path_and_read_by_offset() {
    let dir = tempfile::tempdir().unwrap();
    let long = vec![7; 100_000];
    let stored = TestMember { method: 0, ..member("a/x.PNG", b"stored") };
    let files = [
        member("b/y.jpg", &long),
        member("a/", b""),
        stored,
        member("a/z.avif", b"photo"),
        member("notes.txt", b"text"),
        member("__MACOSX/a/._x.PNG", b"mac"),
        member("../out.png", b"outside"),
        member("/root.png", b"outside"),
        member(".hidden/x.png", b"hidden"),
        member("metadata.csv", b"file_name"),
    ];
    for wide in [false, true] {
        // The offsets of an archive that follows a program do not include the program.
        for before in [&b""[..], b"#!program"] {
            let bytes = [before, &archive(&files, wide)].concat();
            let (sources, found) = listed(dir.path(), "z.zip", &bytes).unwrap();
            assert_eq!(origins(&found), ["z.zip/a/x.PNG", "z.zip/a/z.avif", "z.zip/b/y.jpg"]);
            assert_eq!(found.skipped.count(), 6);
            let read: Vec<_> = found.files.iter().map(|file| file.read(&sources, false).unwrap()).collect();
            assert_eq!(read, [b"stored".to_vec(), b"photo".to_vec(), long.clone()]);
            assert_eq!(found.files[2].bytes, 100_000);
        }
    }
}

#[test]
fn a_single_root_folder_is_not_a_class() {
    let dir = tempfile::tempdir().unwrap();
    let folders = |archive_name: &str, names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| member(name, b"x")).collect();
        let (_, found) = listed(dir.path(), archive_name, &archive(&files, false)).unwrap();
        let of = |file: &SourceFile| crate::source::names::split_levels::folders(file).join("/");
        found.files.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(folders("pets.zip", &["cat/1.png", "dog/2.png"]), ["cat", "dog"]);
    assert_eq!(folders("pets.zip", &["pets/cat/1.png", "pets/dog/2.png"]), ["cat", "dog"]);
    assert_eq!(folders("v1.ZIP", &["pets/cat/1.png", "pets/dog/2.png"]), ["cat", "dog"]);
    assert_eq!(folders("cat.zip", &["cat/1.png"]), [""]);
    // A single class, and a single split.
    assert_eq!(folders("v1.zip", &["cat/1.png"]), ["cat"]);
    assert_eq!(folders("v1.zip", &["test/cat/1.png"]), ["test/cat"]);
    assert_eq!(folders("v1.zip", &["pets/cat/1.png", "loose.png"]), ["", "pets/cat"]);
}

#[test]
fn backslashes_separate_folders_where_slashes_never_do() {
    let dir = tempfile::tempdir().unwrap();
    let of = |names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| member(name, b"x")).collect();
        let (sources, found) = listed(dir.path(), "z.zip", &archive(&files, false)).unwrap();
        assert_eq!(found.files[0].read(&sources, false).unwrap(), b"x");
        origins(&found).join(" ")
    };
    assert_eq!(of(&[r"pets\cat\1.png", r"pets\dog\2.png"]), "z.zip/pets/cat/1.png z.zip/pets/dog/2.png");
    assert_eq!(of(&[r"a\1.png", "b/2.png"]), r"z.zip/a\1.png z.zip/b/2.png");
}

#[test]
fn a_comment_may_look_like_the_end_of_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = archive(&[member("a.png", b"x")], false);
    let comment = [&b"PK\x05\x06"[..], &[1; 40]].concat();
    bytes.truncate(bytes.len() - b"\x07\0comment".len());
    bytes.extend((comment.len() as u16).to_le_bytes());
    bytes.extend(&comment);
    for after in [&b""[..], b"\n"] {
        let (sources, found) = listed(dir.path(), "z.zip", &[&bytes, after].concat()).unwrap();
        assert_eq!(found.files[0].read(&sources, false).unwrap(), b"x");
    }
}

#[test]
fn files_that_cannot_be_read_are_rejected_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let whole = archive(&[member("a.png", &[1; 5000])], false);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let (sources, found) = listed(dir.path(), "z.zip", &bytes).unwrap();
        match found.files[0].read(&sources, false) {
            Err(Broken::Damaged(reject)) => (reject.code, reject.message),
            other => panic!("{:?}", other.map(|bytes| bytes.len()).map_err(|_| "failed")),
        }
    };
    let directory = memchr::memmem::find(&whole, b"PK\x01\x02").unwrap();
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let cases: [(Change<'_>, RejectCode, &str); 7] = [
        (&|b| b[0] = b'X', RejectCode::Corrupt, "no header"),
        (&|b| b[38] = 7, RejectCode::Corrupt, "damaged"),
        (&|b| b[directory + 16] ^= 1, RejectCode::Corrupt, "checksum"),
        (&|b| b[directory + 24] ^= 1, RejectCode::Corrupt, "does not have the size"),
        (&|b| b[directory + 8] |= 1, RejectCode::Unsupported, "encrypted"),
        (&|b| b[directory + 10] = 12, RejectCode::Unsupported, "method 12"),
        (&|b| b[directory + 22] = 200, RejectCode::Truncated, "ends before"),
    ];
    for (change, code, message) in cases {
        let found = with(change);
        assert!(found.0 == code && found.1.contains(message), "{message}: {found:?}");
    }
    let large = with(&|b| b[directory + 27] = 200);
    assert_eq!(large.0, RejectCode::TooLarge);
}

#[test]
fn damaged_directories_are_refused_and_never_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let files = [member("a.png", &[1; 50]), member("b.png", &[2; 50])];
    for wide in [false, true] {
        let whole = archive(&files, wide);
        let error = listed(dir.path(), "z.zip", &whole[..whole.len() - 40]).unwrap_err();
        assert!(error.contains("cannot be read: it has no directory at its end"), "{error}");
        assert!(listed(dir.path(), "z.zip", b"").unwrap_err().contains("no directory"));
        // No flipped bit causes a panic, and every file that can be read has its listed size.
        for at in 0..whole.len() {
            for bit in [0, 3, 7] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let Ok((sources, found)) = listed(dir.path(), "z.zip", &bytes) else { continue };
                for file in &found.files {
                    if let Ok(read) = file.read(&sources, false) {
                        assert_eq!(read.len() as u64, file.bytes);
                    }
                }
            }
        }
    }
    let mut several = archive(&files, false);
    let end = several.len() - 22 - 7;
    several[end + 4] = 1;
    assert!(listed(dir.path(), "z.zip", &several).unwrap_err().contains("multi-part archive"));
}
