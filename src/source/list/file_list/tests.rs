//! Tests of compressed file lists.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::*;
use crate::source::archive::member::{ArchiveMember, MemberData};
use crate::source::archive::tar::member::TarMember;
use crate::source::archive::zip::member::ZipMember;

fn file(name: &str, at: u64) -> SourceFile {
    SourceFile {
        source: (at % 3) as u32,
        relative: name.into(),
        origin: format!("photos/{name}"),
        bytes: at * 977 % 1_000_003,
        modified_ns: 1_700_000_000_000_000_000 + i128::from(at) * 123_456_789 % 86_400_000_000_000,
        etag: None,
        member: None,
        of_field: None,
    }
}

fn member(at: usize, data: MemberData) -> Box<ArchiveMember> {
    Box::new(ArchiveMember { archive_parts: 2, root_parts: at as u32 % 3, archive_bytes: 1 << 40, data })
}

/// Creates files of all kinds.
fn files(count: u64) -> Vec<SourceFile> {
    let mut files: Vec<_> = (0..count).map(|at| file(&format!("{:03}/é{at:06}.jpg", at / 100), at)).collect();
    for (at, file) in files.iter_mut().enumerate() {
        match at % 97 {
            1 => file.relative = Path::new(OsStr::from_bytes(b"caf\xe9.jpg")).to_owned(),
            2 => file.origin.push_str("#2"),
            3 => (file.relative, file.origin) = ("".into(), "ö".into()),
            4 => file.etag = Some(format!("\"{at:x}\"")),
            5 => (file.modified_ns, file.bytes) = (i128::MIN, u64::MAX / (count * 2)),
            6 => {
                let zip = ZipMember {
                    offset: at as u64,
                    compressed: 5,
                    size: 7,
                    crc: u32::MAX,
                    method: 8,
                    is_encrypted: at % 2 == 1,
                };
                file.member = Some(member(at, MemberData::Zip(zip)));
            }
            7 => {
                file.member = Some(member(at, MemberData::Tar(TarMember { offset: at as u64, size: 7 })));
            }
            8 => {
                let why = "one of its headers is damaged".to_owned();
                file.member = Some(member(at, MemberData::Damage(why)));
            }
            9 => file.of_field = Some(at as u32),
            _ => {}
        }
    }
    files
}

fn collected(list: &FileList) -> Vec<SourceFile> {
    list.iter().collect()
}

#[test]
fn a_list_has_the_files_that_were_added() {
    for count in [0, 1, 511, 512, 513, 2_000] {
        let files = files(count);
        let list: FileList = files.iter().cloned().collect();
        assert_eq!(collected(&list), files, "{count}");
        assert_eq!((list.len(), list.iter().len()), (files.len(), files.len()));
        assert_eq!(list.bytes(), files.iter().map(|file| file.bytes).sum::<u64>());
        for at in [0, 1, 510, 511, 512, 1_999] {
            assert_eq!(list.get(at).as_ref(), files.get(at), "{at} of {count}");
            assert_eq!(NearbyFiles::new(&list).get(at), files.get(at));
            let range: Vec<_> = list.range(at..at + 700).collect();
            assert_eq!(range, files.iter().skip(at).take(700).cloned().collect::<Vec<_>>());
        }
    }
}

#[test]
fn nearby_files_are_those_of_the_list() {
    let files = files(4_000);
    let list: FileList = files.iter().cloned().collect();
    let mut nearby = NearbyFiles::new(&list);
    for at in (0..4_000).map(|at| at * 37 % 4_001).chain([0, 513, 1_025, 2_049, 3_000, 0, 3_999, 4_000]) {
        assert_eq!(nearby.get(at), files.get(at), "{at}");
    }
}

#[test]
fn cursors_return_the_files_of_the_list_in_any_order() {
    let files = files(3 * BLOCK_FILES as u64 + 1);
    let list: FileList = files.iter().cloned().collect();
    let ordinals = [files.len() - 1, 5, 5, BLOCK_FILES, 4, 2 * BLOCK_FILES + 7, 0];
    for mut cursor in [FileCursor::new(&list), FileCursor::of(&list, ordinals).unwrap()] {
        // The last one was not read in advance.
        for ordinal in ordinals.into_iter().chain([BLOCK_FILES + 1]) {
            assert_eq!(*cursor.get(ordinal).unwrap(), files[ordinal], "{ordinal}");
        }
        assert!(cursor.get(files.len()).is_err());
    }
    assert!(FileCursor::of(&list, [0, files.len()]).is_err());
}

#[test]
fn blocks_rebuild_the_list_and_other_bytes_are_refused() {
    for count in [0, 5, 512, 1_300] {
        let list: FileList = files(count).into_iter().collect();
        let mut copy = FileList::default();
        for block in list.blocks() {
            assert!(copy.add_block(block.into_owned()));
        }
        assert_eq!(collected(&copy), collected(&list));
        assert_eq!(copy.bytes(), list.bytes());
        // The copy can grow.
        copy.push(&file("z", 1));
        assert_eq!(copy.get(count as usize), Some(file("z", 1)));
    }
    let list: FileList = files(600).into_iter().collect();
    let blocks: Vec<Vec<u8>> = list.blocks().map(Cow::into_owned).collect();
    let mut other = FileList::default();
    assert!(!other.add_block(Vec::new()) && !other.add_block(blocks[0][..100].to_vec()));
    assert!(!other.add_block([&blocks[0][..], b"x"].concat()));
    assert!(other.add_block(blocks[1].clone()));
    assert!(!other.add_block(blocks[0].clone()), "the block before it is not full");
    // Altered bytes never cause a panic.
    for at in 0..blocks[1].len() {
        let mut altered = blocks[1].clone();
        altered[at] ^= 0x55;
        let mut list = FileList::default();
        if list.add_block(altered) {
            assert_eq!(list.iter().count(), list.len());
        }
    }
}

#[test]
fn a_file_takes_few_bytes() {
    let names = (0..100_000u64).map(|at| {
        // Times and sizes that do not compress.
        let random = xxhash_rust::xxh3::xxh3_64(&at.to_le_bytes());
        let mut file = file(&format!("n{:08}/n{:08}_{at}.JPEG", at / 1_300, at / 1_300), at);
        (file.bytes, file.modified_ns) = (random % 200_000, i128::from(random));
        file
    });
    let list: FileList = names.collect();
    let stored: usize = list.blocks().map(|block| block.len()).sum();
    assert!(stored < 20 * list.len(), "{} bytes a file", stored as f64 / list.len() as f64);
}

#[test]
fn chosen_files_are_those_that_all_conditions_keep() {
    let files = files(1_000);
    let list: FileList = files.iter().cloned().collect();
    let all = ChosenFiles::all(&list);
    assert!(!all.is_empty() && all.iter().count() == 1_000);
    let even = ChosenFiles::filtered(&list, |file| file.bytes % 2 == 0);
    let both = even.also(|file| file.bytes % 3 == 0);
    let expected: Vec<_> = files.iter().filter(|file| file.bytes % 6 == 0).cloned().collect();
    assert_eq!(both.iter().collect::<Vec<_>>(), expected);
    assert!(both.also(|_| false).is_empty());
    assert!(ChosenFiles::all(&FileList::default()).is_empty());
}
