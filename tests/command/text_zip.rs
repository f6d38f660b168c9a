//! Text files in zip archives.

use std::io::Write;
use std::path::Path;

use crate::support::*;

/// A zip archive of `files`, all stored or all deflated.
pub(crate) fn zip(files: &[(&str, Vec<u8>)], is_deflated: bool) -> Vec<u8> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let data = match is_deflated {
            false => content.clone(),
            true => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
        };
        let mut common = vec![20, 0, 0, 0, if is_deflated { 8 } else { 0 }, 0, 0, 0, 0, 0];
        for number in [crc.sum(), data.len() as u32, content.len() as u32, name.len() as u32] {
            common.extend(number.to_le_bytes());
        }
        let offset = zip.len() as u32;
        zip.extend(b"PK\x03\x04".iter().chain(&common).chain(name.as_bytes()).chain(&data));
        directory.extend(b"PK\x01\x02\x14\x00".iter().chain(&common));
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes().iter().chain(name.as_bytes()));
    }
    let (start, count) = (zip.len() as u32, files.len() as u16);
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0".iter().chain(&count.to_le_bytes()).chain(&count.to_le_bytes()));
    zip.extend((directory.len() as u32).to_le_bytes().iter().chain(&start.to_le_bytes()).chain(&[0, 0]));
    zip
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// This many documents in JSON Lines.
fn json_lines(documents: usize) -> Vec<u8> {
    let line = |i: usize| format!("{{\"text\": \"document {i} {}\"}}\n", "word ".repeat(i % 7));
    (0..documents).map(line).collect::<String>().into_bytes()
}

fn corpus_files() -> Vec<(&'static str, Vec<u8>)> {
    let csv = b"id,text\n1,\"one, two\"\n2,three\n";
    vec![
        ("train/a.txt", b"first\nsecond\n".to_vec()),
        ("train/b.jsonl", json_lines(3000)),
        ("train/notes.md", b"not read".to_vec()),
        ("val/c.csv", csv.to_vec()),
        ("val/d.jsonl.gz", gzip(&json_lines(20))),
        ("val/e.txt", "naïve".as_bytes().to_vec()),
    ]
}

/// Runs `dsconvert text ARGS… -t bytes` in `dir`; `args` is split at whitespace.
fn text(dir: &Path, args: &str) -> Ran {
    let mut command = command(["text"].into_iter().chain(args.split_whitespace()).chain(["-t", "bytes"]));
    Ran::of(command.current_dir(dir).output().unwrap())
}

#[test]
fn an_archive_gives_the_documents_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in corpus_files() {
        let path = dir.path().join("corpus").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(dir.path().join("stored.zip"), zip(&corpus_files(), false)).unwrap();
    std::fs::write(dir.path().join("deflated.zip"), zip(&corpus_files(), true)).unwrap();
    for (options, name) in [("", "files"), ("--documents line --dedup exact --shuffle --seed 3", "lines")] {
        text(dir.path(), &format!("corpus=corpus --out {name} {options}")).exits(0);
        let plain = texts(&dir.path().join(name));
        assert!(plain.len() > 2000);
        for archive in ["stored", "deflated"] {
            let out = format!("{archive}-{name}");
            text(dir.path(), &format!("corpus={archive}.zip --out {out} --threads 3 {options}")).exits(0);
            let out = dir.path().join(out);
            let mut found = texts(&out);
            if !options.is_empty() {
                // The shuffled orders differ, because files in archives are not divided into units.
                found.sort();
                let mut plain = plain.clone();
                plain.sort();
                assert_eq!(found, plain, "{archive} {options}");
            } else {
                assert_eq!(found, plain, "{archive}");
            }
            let splits =
                |out: &Path| manifest(out)["splits"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(splits(&out), ["train", "validation"]);
            assert_eq!(manifest(&out)["sources"]["skipped"], 1);
        }
    }
    let ran = text(dir.path(), "deflated.zip --dry-run --sample 20").exits(0);
    assert!(ran.stdout.contains("train"), "{}", ran.stdout);
}

#[test]
fn damage_in_an_archive_rejects_only_what_it_hits() {
    let dir = tempfile::tempdir().unwrap();
    let files = vec![
        ("a.txt", b"whole".to_vec()),
        ("b.jsonl", json_lines(4000)),
        ("c.parquet", b"PAR1".to_vec()),
        ("d.txt", b"to be damaged, this one".to_vec()),
        ("e.txt", b"whole, too".to_vec()),
    ];
    let mut archive = zip(&files, false);
    for content in [&files[1].1[files[1].1.len() - 12..], b"to be damaged"] {
        let at = archive.windows(content.len()).position(|window| window == content).unwrap();
        archive[at] ^= 1;
    }
    std::fs::write(dir.path().join("z.zip"), &archive).unwrap();
    text(dir.path(), "z.zip --out out --max-rejects 10").exits(0);
    let out = dir.path().join("out");
    let found = rejects(&out);
    let of = |origin: &str| {
        found.iter().filter(|(o, _)| o.starts_with(origin)).map(|(_, c)| c.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("z.zip/c.parquet"), ["unsupported"]);
    assert_eq!(of("z.zip/d.txt"), ["corrupt"]);
    assert_eq!(of("z.zip/b.jsonl").last(), Some(&"corrupt"));
    let kept = only_texts(&out);
    assert!(kept.contains(&"whole".to_owned()) && kept.contains(&"whole, too".to_owned()));
    assert!(kept.len() > 3900, "lines before the damage are kept: {}", kept.len());
    assert!(
        manifest(&out)["notes"]["after_damage"].as_u64() > Some(3900),
        "records read before the detected damage"
    );
    text(dir.path(), "z.zip --out out --resume --max-rejects 10").exits(0);

    // Damage to deflated data at a dozen places never causes a crash.
    let whole = zip(&[("b.jsonl", json_lines(40))], true);
    for at in (0..whole.len() - 22).step_by(whole.len() / 12) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        std::fs::write(dir.path().join("x.zip"), bytes).unwrap();
        let ran = text(dir.path(), "x.zip --out x --overwrite --max-rejects 100%");
        assert!([0, 2, 3].contains(&ran.status), "byte {at}: {}", ran.stderr);
    }
}

#[test]
fn archives_beside_text_files_are_ignored_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("corpus");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("a.txt"), "a").unwrap();
    std::fs::write(root.join("more.zip"), zip(&[("b.txt", b"b".to_vec())], true)).unwrap();
    text(dir.path(), "corpus --out beside").exits(0).says(&["zip archives next to text", "corpus/more.zip"]);
    assert_eq!(only_texts(&dir.path().join("beside")), ["a"]);
    text(dir.path(), "corpus/*.zip --out named").exits(0);
    assert_eq!(texts(&dir.path().join("named")), [("more.zip/b.txt".to_owned(), "b".to_owned())]);
    std::fs::remove_file(root.join("a.txt")).unwrap();
    text(dir.path(), "corpus --out alone").exits(0);
    assert_eq!(texts(&dir.path().join("alone")), [("corpus/more.zip/b.txt".to_owned(), "b".to_owned())]);
}
