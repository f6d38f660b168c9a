//! `dsconvert inspect` tells the truth, and notices every altered byte.

use serde_json::Value;

use crate::support::*;

fn inspect(args: &[&str]) -> Ran {
    Ran::of(command(["inspect"].iter().chain(args)).output().unwrap())
}

#[test]
fn descriptions_agree_with_the_manifest_in_all_formats() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        for (kind, source, options) in
            [("images", "photos", "--resize longer:64"), ("text", "corpus", "--tokenizer bytes")]
        {
            let out = dir.path().join(format!("{kind}-{format}"));
            let path = out.to_str().unwrap();
            convert(kind, &fixture(source), &out, &format!("{options} --format {format} --max-rejects 50%"))
                .exits(0);
            let manifest = manifest(&out);

            let json: Value = serde_json::from_str(&inspect(&[path, "--json"]).exits(0).stdout).unwrap();
            for name in ["kind", "format"] {
                let expected = if name == "kind" { kind } else { format };
                assert_eq!(json[name], expected);
            }
            for name in ["found", "converted", "filtered", "duplicates", "rejected"] {
                assert_eq!(json[name], manifest[name], "{name}");
            }
            for (name, split) in manifest["splits"].as_object().unwrap() {
                for part in ["records", "shards", "bytes", "length"] {
                    assert_eq!(json["splits"][name][part], split[part], "{part}");
                }
                let buckets = json["splits"][name]["histogram"].as_array().unwrap();
                let counted: u64 = buckets.iter().map(|b| b["records"].as_u64().unwrap()).sum();
                assert_eq!(counted, split["records"]);
            }

            let text = inspect(&[path]).exits(0).stdout;
            for part in [kind, format, "records", "fields", "options", "█", "rejected"] {
                assert!(text.contains(part), "{part} is not in {text}");
            }
            inspect(&[path, "--verify"]).exits(0);

            let shard = tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap();
            let shard = out.join(shard);
            let json: Value =
                serde_json::from_str(&inspect(&[shard.to_str().unwrap(), "--json"]).exits(0).stdout).unwrap();
            assert_eq!(json["kind"], kind);
            assert_eq!(json["format"], format);
            assert!(json["records"].as_u64().unwrap() > 0);
            inspect(&[shard.to_str().unwrap(), "--verify"]).exits(0);
        }
    }
}

#[test]
fn records_are_shown_and_extracted() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let path = out.to_str().unwrap();
    convert("images", &fixture("photos"), &out, "--encode png --max-rejects 50%").exits(0);
    let file = dir.path().join("one.png");
    let shown = inspect(&[path, "--record", "1", "--extract", file.to_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains("origin: photos/"), "{shown}");
    assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(inspect(&[path, "--head", "3", "--json"]).exits(0).stdout.lines().count(), 3);
    inspect(&[path, "--record", "100000"]).exits(2).says(&["100000"]);
    inspect(&[path, "--split", "nope", "--head", "1"]).exits(2).says(&["nope", "train"]);
    inspect(&[dir.path().to_str().unwrap()]).exits(3).says(&["not a dataset"]);

    let out = dir.path().join("text");
    let path = out.to_str().unwrap();
    let source = dir.path().join("c.jsonl");
    std::fs::write(&source, "{\"text\": \"ab\\u001b[2J\"}\n").unwrap();
    convert("text", &source, &out, "--tokenizer bytes --format msgpack").exits(0);
    let file = dir.path().join("ids.json");
    inspect(&[path, "--record", "0", "--extract", file.to_str().unwrap()]).exits(0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "[97,98,27,91,50,74]\n");
}

#[test]
fn verify_finds_an_altered_byte_in_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 60);
    for format in FORMATS {
        let out = dir.path().join(format);
        convert("text", &source, &out, &format!("--tokenizer bytes --format {format} --shard-records 25"))
            .exits(0);
        for (name, bytes) in tree(&out) {
            if bytes.is_empty() || name == "manifest.json" {
                continue;
            }
            let path = out.join(&name);
            for at in [bytes.len() / 3, bytes.len() - 1] {
                let mut altered = bytes.clone();
                altered[at] ^= 0x10;
                std::fs::write(&path, &altered).unwrap();
                let ran = inspect(&[out.to_str().unwrap(), "--verify"]).exits(3);
                let told = ran.stdout + &ran.stderr;
                let file = name.rsplit('/').next().unwrap();
                assert!(told.contains(file), "{name} is not named: {told}");
            }
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            inspect(&[out.to_str().unwrap(), "--verify"]).exits(3);
            std::fs::remove_file(&path).unwrap();
            inspect(&[out.to_str().unwrap(), "--verify"]).exits(3);
            std::fs::write(&path, &bytes).unwrap();
        }
        inspect(&[out.to_str().unwrap(), "--verify"]).exits(0);
    }
}
