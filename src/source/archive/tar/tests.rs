//! Tests of tar files as archives.

use std::io::Cursor;
use std::path::Path;

use ::tar::{Archive, Builder, EntryType, Header};
use proptest::prelude::*;

use super::directory::{first_nested, read_directory};
use crate::options::SourceSpec;
use crate::sample::RejectCode;
use crate::source::archive::ArchiveKind;
use crate::source::archive::member::MemberData;
use crate::source::archive::testing::{origins, source};
use crate::source::io::broken::Broken;
use crate::source::list::expand::{ExpandedArchive, expand, is_image_name};
use crate::source::list::source_file::SourceFile;

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header
}

/// A tar file of these files, with its end mark.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, content) in files {
        tar.append_data(&mut header(EntryType::Regular, content.len() as u64), name, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

/// Appends a file with a path that the builder refuses.
fn append_unsafe(tar: &mut Builder<Vec<u8>>, path: &[u8]) {
    let mut header = header(EntryType::Regular, 0);
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.set_cksum();
    tar.append(&header, &b""[..]).unwrap();
}

/// Writes the archive `t.tar`, and returns it as a source with the files in it.
fn listed(dir: &Path, bytes: &[u8]) -> (Vec<SourceSpec>, ExpandedArchive) {
    let (sources, file, planned) = source(dir, "t.tar", bytes);
    (sources, expand(&file, ArchiveKind::Tar, &planned, &is_image_name, &|_| false).unwrap().unwrap())
}

/// The result of reading a file: its bytes, or the code of its reject.
fn read(file: &SourceFile, sources: &[SourceSpec]) -> Result<Vec<u8>, RejectCode> {
    file.read(sources, false).map_err(|broken| match broken {
        Broken::Damaged(reject) => reject.code,
        Broken::Failed(error) => panic!("{error}"),
    })
}

#[test]
fn images_are_listed_by_path_and_read_by_offset() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Builder::new(Vec::new());
    let mut put = |name: &str, content: &[u8]| {
        tar.append_data(&mut header(EntryType::Regular, content.len() as u64), name, content).unwrap();
    };
    let long = format!("{}/z.jpg", "long".repeat(60));
    put("./b/y.jpg", &[7; 100_000]);
    put("a/x.PNG", b"old");
    put(&long, b"long");
    put("a/z.avif", b"photo");
    put("notes.txt", b"text");
    put("__MACOSX/a/._x.PNG", b"mac");
    put(".hidden/x.png", b"hidden");
    put("metadata.csv", b"file_name");
    put("a/./x.PNG", b"new");
    for (kind, name) in [(EntryType::Directory, "a/"), (EntryType::Regular, "d/")] {
        tar.append_data(&mut header(kind, 0), name, &b""[..]).unwrap();
    }
    for kind in [EntryType::Symlink, EntryType::Link] {
        tar.append_link(&mut header(kind, 0), "link.png", "a/x.PNG").unwrap();
    }
    tar.append_data(&mut header(EntryType::Fifo, 0), "fifo.png", &b""[..]).unwrap();
    append_unsafe(&mut tar, b"../out.png");
    append_unsafe(&mut tar, b"/root.png");
    let bytes = tar.into_inner().unwrap();
    for joined in [bytes.clone(), [&bytes[..], &archive(&[])[..]].concat()] {
        let (sources, found) = listed(dir.path(), &joined);
        let last = format!("t.tar/{long}");
        assert_eq!(origins(&found), ["t.tar/a/x.PNG", "t.tar/a/z.avif", "t.tar/b/y.jpg", &last]);
        // Among them the first `a/x.PNG`.
        assert_eq!(found.skipped.count(), 10);
        let contents: Vec<_> = found.files.iter().map(|file| read(file, &sources).unwrap()).collect();
        assert_eq!(contents, [b"new".to_vec(), b"photo".to_vec(), vec![7; 100_000], b"long".to_vec()]);
        assert_eq!(found.files[2].bytes, 100_000);
    }
    let whole = archive(&[("a/1.png", b"1"), ("a/2.png", b"2")]);
    let (_, found) = listed(dir.path(), &[&whole[..], &archive(&[("b/3.png", b"3")])].concat());
    assert_eq!(origins(&found), ["t.tar/a/1.png", "t.tar/a/2.png", "t.tar/b/3.png"]);
}

#[test]
fn a_single_root_folder_is_not_a_class() {
    let dir = tempfile::tempdir().unwrap();
    let folders = |name: &str, paths: &[&str]| {
        let files: Vec<(&str, &[u8])> = paths.iter().map(|path| (*path, &b"x"[..])).collect();
        let (_, file, planned) = source(dir.path(), name, &archive(&files));
        let found = expand(&file, ArchiveKind::Tar, &planned, &is_image_name, &|_| false).unwrap().unwrap();
        let of = |file: &SourceFile| crate::source::names::split_levels::folders(file).join("/");
        found.files.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(folders("pets.tar", &["cat/1.png", "dog/2.png"]), ["cat", "dog"]);
    assert_eq!(folders("pets.TAR", &["pets/cat/1.png", "pets/dog/2.png"]), ["cat", "dog"]);
    assert_eq!(folders("v1.tar", &["test/cat/1.png"]), ["test/cat"]);
}

#[test]
fn members_of_samples_are_recognized() {
    let dir = tempfile::tempdir().unwrap();
    let has_samples = |names: &[&str]| {
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"x"[..])).collect();
        let (_, file, planned) = source(dir.path(), "s.tar", &archive(&files));
        expand(&file, ArchiveKind::Tar, &planned, &is_image_name, &|_| false).unwrap().is_none()
    };
    assert!(has_samples(&["a/0.jpg", "a/1.jpg", "a/1.txt"]));
    assert!(has_samples(&["1.cls", "1.npy", "1.jpg"]));
    assert!(!has_samples(&["a/0.jpg", "b/0.txt", "a/1.jpg", "a/1.xml", "labels.txt", "meta.json"]));
    assert!(!has_samples(&["1.cls", "1.txt"]));
}

#[test]
fn files_before_damage_are_kept_and_the_damage_is_one_item() {
    let dir = tempfile::tempdir().unwrap();
    let content = [5; 700];
    let whole = archive(&[("a/1.png", &content), ("a/2.png", &content), ("b/3.png", &content)]);
    let member = 512 + 1024;
    let outcomes = |bytes: &[u8]| {
        let (sources, found) = listed(dir.path(), bytes);
        let of = |file: &SourceFile| (file.origin.clone(), read(file, &sources).err());
        found.files.iter().map(of).collect::<Vec<_>>()
    };
    let item = |origin: &str, code: Option<RejectCode>| (origin.to_owned(), code);
    let (one, two) = (item("t.tar/a/1.png", None), item("t.tar/a/2.png", None));
    let broken = item("t.tar", Some(RejectCode::Truncated));
    let mut flipped = whole.clone();
    flipped[2 * member] ^= 1;
    // In a header, between members, in the padding, without the end mark, and followed by other data.
    for bytes in [&flipped[..], &whole[..2 * member + 100], &whole[..2 * member], &whole[..2 * member - 9]] {
        assert_eq!(outcomes(bytes), [one.clone(), two.clone(), broken.clone()], "{}", bytes.len());
    }
    assert_eq!(outcomes(&whole[..3 * member]).len(), 4);
    assert_eq!(outcomes(&[&whole[..], b"other"].concat()).len(), 4);
    let cut = item("t.tar/a/2.png", Some(RejectCode::Truncated));
    assert_eq!(outcomes(&whole[..member + 512 + 699]), [one, cut]);
    assert_eq!(outcomes(b""), [broken]);
    // Sizes in base 256, which no tar file of the test can have.
    for size in [9 << 30, 1 << 62] {
        let mut header = header(EntryType::Regular, size);
        header.set_path("large.png").unwrap();
        header.set_cksum();
        let expected = item("t.tar/large.png", Some(RejectCode::TooLarge));
        assert_eq!(outcomes(header.as_bytes()), [expected]);
    }
}

#[test]
fn tar_files_in_a_tar_file_are_folders() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = Builder::new(Vec::new());
    one.append_data(&mut header(EntryType::Regular, 1), "x.png", &b"1"[..]).unwrap();
    append_unsafe(&mut one, b"/y.png");
    let (one, two) = (one.into_inner().unwrap(), archive(&[("d/x.png", b"3")]));
    let whole = archive(&[("n1.tar", &one), ("n2.TAR", &two), ("n3.tar.gz", b"no"), ("n4/x.png", b"4")]);
    let (sources, found) = listed(dir.path(), &whole);
    assert_eq!(origins(&found), ["t.tar/n1/x.png", "t.tar/n2/d/x.png", "t.tar/n4/x.png"]);
    let contents: Vec<_> = found.files.iter().map(|file| read(file, &sources).unwrap()).collect();
    assert_eq!(contents, [b"1", b"3", b"4"]);
    assert_eq!(found.skipped.count(), 2);
    let (_, _, planned) = source(dir.path(), "t.tar", &whole);
    assert_eq!(first_nested(&planned).unwrap().as_deref(), Some("n1"));
    let (_, _, planned) = source(dir.path(), "one.tar", &one);
    assert_eq!(first_nested(&planned).unwrap(), None);

    // A nested tar file that is damaged is one item, and nothing outside it is read.
    let cut = archive(&[("n1.tar", &one[..512]), ("n2.tar", &two), ("n3.tar", &one[..600])]);
    let (sources, found) = listed(dir.path(), &cut);
    assert_eq!(origins(&found), ["t.tar/n1.tar", "t.tar/n2/d/x.png", "t.tar/n3.tar", "t.tar/n3/x.png"]);
    let outcomes: Vec<_> = found.files.iter().map(|file| read(file, &sources).is_ok()).collect();
    assert_eq!(outcomes, [false, true, false, true]);
    // The outer tar file ends in the nested one.
    let (_, found) = listed(dir.path(), &whole[..512 + one.len() + 512 + 600]);
    assert_eq!(origins(&found), ["t.tar/n1/x.png", "t.tar/n2/d/x.png", "t.tar"]);
}

#[test]
fn no_altered_byte_causes_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Builder::new(Vec::new());
    tar.append_pax_extensions([("path", &b"a/pax.png"[..]), ("size", b"9")]).unwrap();
    tar.append_data(&mut header(EntryType::Regular, 9), "x.png", &[1; 9][..]).unwrap();
    tar.append_data(&mut header(EntryType::Regular, 3), "long".repeat(40) + ".png", &[2; 3][..]).unwrap();
    let whole = tar.into_inner().unwrap();
    for at in (0..whole.len()).filter(|at| whole[*at] != 0 || at % 7 == 0) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x11;
        let (_, file, planned) = source(dir.path(), "t.tar", &bytes);
        let Some(found) = expand(&file, ArchiveKind::Tar, &planned, &is_image_name, &|_| false).unwrap()
        else {
            continue;
        };
        let sources = [SourceSpec { label: "t.tar".to_owned(), path: planned.path.clone() }];
        for file in &found.files {
            if let Ok(bytes) = read(file, &sources) {
                assert_eq!(bytes.len() as u64, file.bytes);
            }
        }
    }
}

/// How the header of a member is written.
#[derive(Debug, Clone, Copy)]
enum Style {
    Ustar,
    Gnu,
    PaxPath,
    PaxSize,
}

proptest! {
    #[test]
    fn the_listing_is_that_of_the_tar_crate(
        files in prop::collection::vec(
            (
                "[a-z]{1,9}(/[a-zäß ]{1,70}){0,3}\\.(jpg|png)",
                0usize..5_000,
                prop::sample::select(vec![Style::Ustar, Style::Gnu, Style::PaxPath, Style::PaxSize]),
            ),
            0..12,
        ),
        has_end in any::<bool>(),
    ) {
        let mut tar = Builder::new(Vec::new());
        for (name, size, style) in &files {
            let content = vec![3; *size];
            let mut header = match style {
                Style::Ustar => Header::new_ustar(),
                Style::Gnu | Style::PaxPath | Style::PaxSize => Header::new_gnu(),
            };
            header.set_size(*size as u64);
            header.set_mode(0o644);
            match style {
                Style::Ustar | Style::Gnu => tar.append_data(&mut header, name, &content[..]).unwrap(),
                Style::PaxPath => {
                    tar.append_pax_extensions([("path", name.as_bytes())]).unwrap();
                    header.set_path("short").unwrap();
                    header.set_cksum();
                    tar.append(&header, &content[..]).unwrap();
                }
                Style::PaxSize => {
                    let size = size.to_string();
                    tar.append_pax_extensions([("size", size.as_bytes()), ("path", name.as_bytes())]).unwrap();
                    header.set_path("short").unwrap();
                    // Writers that use the record set the field to zero.
                    header.set_size(0);
                    header.set_cksum();
                    tar.append(&header, &content[..]).unwrap();
                }
            }
        }
        let mut bytes = tar.into_inner().unwrap();
        let mut expected = Vec::new();
        let mut archive = Archive::new(Cursor::new(bytes.clone()));
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            expected.push((entry.path_bytes().into_owned(), entry.size(), entry.raw_file_position()));
        }
        prop_assert_eq!(expected.len(), files.len());
        if !has_end {
            bytes.truncate(bytes.len() - 1024);
        }
        let dir = tempfile::tempdir().unwrap();
        let (_, _, planned) = source(dir.path(), "t.tar", &bytes);
        let found = read_directory(&planned).unwrap();
        prop_assert_eq!(found.damage.is_none(), has_end);
        let found: Vec<_> = found
            .entries
            .into_iter()
            .map(|entry| match entry.data {
                Some(MemberData::Tar(member)) => (entry.name, entry.size, member.offset),
                other => panic!("{other:?}"),
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}
