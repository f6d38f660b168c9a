//! The same sources and semantic options give the same bytes.

use crate::support::*;

#[test]
fn threads_and_memory_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, source, options) in [
        ("images", "photos", "--resize shorter:64 --shuffle --seed 5"),
        ("text", "corpus", "--tokenizer bytes --split train=0.8,validation=0.2 --shuffle"),
        ("text", "corpus", "--tokenizer bytes --add-eos"),
    ] {
        for format in FORMATS {
            let run = |name: &str, operational: &str| {
                let out = dir.path().join(format!("{kind}-{format}-{name}-{}", options.len()));
                let options = format!(
                    "{options} --format {format} --shard-records 9 --unit-bytes 65536 --max-rejects 50% {operational}"
                );
                convert(kind, &fixture(source), &out, &options).exits(0);
                tree(&out)
            };
            let one = run("one", "--threads 1");
            assert!(one.len() > 10, "{:?}", one.keys());
            assert_same(&one, &run("two", "--threads 2 --memory 64MiB"));
            assert_same(&one, &run("nine", "--threads 9"));
        }
    }
}

/// Idle threads help to encode pieces of a long document.
#[test]
fn a_long_document_gets_the_same_ids_with_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("long.txt");
    let sentence =
        "It was a long story, and nobody's patience was as long as that; 12 of 345 readers read on.\n";
    std::fs::write(&source, sentence.repeat((4 << 20) / sentence.len())).unwrap();
    let tokenizer = fixture("tokenizers/bpe.json");
    let run = |options: &str| {
        let out = dir.path().join(options.replace(' ', ""));
        let options = format!("--tokenizer {} {options}", tokenizer.display());
        convert("text", &source, &out, &options).exits(0);
        out
    };
    let one = tree(&run("--threads 1"));
    assert_same(&one, &tree(&run("--threads 2")));
    assert_same(&one, &tree(&run("--threads 5")));
    // The reference tokenizer, which encodes the document as a whole, gives the same ids.
    let checked = run("--threads 3 --verify-ids all");
    let notes = &manifest(&checked)["notes"];
    assert_eq!((&notes["verified_documents"], &notes["units_redone"]), (&1.into(), &serde_json::Value::Null));
}

#[test]
fn the_location_and_times_of_the_sources_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("elsewhere/corpus");
    std::fs::create_dir_all(&copy).unwrap();
    for (name, bytes) in tree(&fixture("corpus")) {
        let path = copy.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The copy has a different modification time.
        std::fs::write(path, bytes).unwrap();
    }
    let (here, there) = (dir.path().join("a"), dir.path().join("b"));
    convert("text", &fixture("corpus"), &here, "--tokenizer bytes --max-rejects 50%").exits(0);
    convert("text", &copy, &there, "--tokenizer bytes --max-rejects 50%").exits(0);
    assert_same(&tree(&here), &tree(&there));
    let text = String::from_utf8_lossy(&tree(&here)["manifest.json"]).into_owned();
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn new_items_never_move_old_ones_to_another_split() {
    let dir = tempfile::tempdir().unwrap();
    let few = dir.path().join("few/c.jsonl");
    let many = dir.path().join("many/c.jsonl");
    for (path, documents) in [(&few, 300), (&many, 900)] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        corpus(path, documents);
    }
    let keys = |source: &std::path::Path, name: &str| {
        let out = dir.path().join(name);
        convert(
            "text",
            source,
            &out,
            "--tokenizer bytes --key-field id --split a=0.5,b=0.5 --format msgpack",
        )
        .exits(0);
        let shards = tree(&out).into_iter().filter(|(name, _)| name.starts_with("a/"));
        let bytes: Vec<u8> = shards.flat_map(|(_, bytes)| bytes).collect();
        // A key is a decimal number in a fixstr after the field name "key", a fixstr of length 3.
        let mut keys = Vec::new();
        for at in bytes.windows(4).enumerate().filter(|(_, w)| *w == b"\xa3key").map(|(i, _)| i + 4) {
            let len = usize::from(bytes[at] & 0x1f);
            keys.push(
                String::from_utf8(bytes[at + 1..at + 1 + len].to_vec()).unwrap().parse::<u32>().unwrap(),
            );
        }
        keys
    };
    let (few, many) = (keys(&few, "out-few"), keys(&many, "out-many"));
    assert!(few.len() > 100 && few.len() < 200, "{}", few.len());
    assert_eq!(few, many.into_iter().filter(|&k| k < 300).collect::<Vec<_>>());
}
