//! `dsconvert inspect` agrees with the manifest, and `--verify` detects any altered byte.

use std::path::Path;

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
            let json = inspect(&[shard.to_str().unwrap(), "--verify", "--json"]).exits(0).stdout;
            let json: Value = serde_json::from_str(&json).unwrap();
            assert!(json["ok"] == true && json["problems"].as_array().unwrap().is_empty(), "{json}");
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
    inspect(&[path, "--record", "1", "--extract", dir.path().join("one.JPG").to_str().unwrap()])
        .exits(2)
        .says(&["--extract", "the content is png, and the extension is for jpeg", "name it .png"]);
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
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[97,98,27,91,50,74]\n");
    // An earlier list is replaced, but no input.
    inspect(&[path, "--record", "0", "--extract", file.to_str().unwrap()]).exits(0);
    inspect(&[path, "--record", "0", "--extract", source.to_str().unwrap()])
        .exits(2)
        .says(&["c.jsonl: --extract: the file exists, and is not a list of token ids"]);
    assert!(std::fs::read_to_string(&source).unwrap().starts_with("{\"text\""));
    inspect(&[path, "--record", "0", "--extract", dir.path().join("ids.png").to_str().unwrap()])
        .exits(2)
        .says(&["the content is a list of token ids", "name it .json"]);
}

#[test]
fn options_that_would_be_ignored_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus"), &out, "--tokenizer bytes").exits(0);
    let path = out.to_str().unwrap();
    let shard = out.join(tree(&out).keys().find(|name| name.starts_with("train/")).unwrap());
    for (arguments, messages) in [
        (&[path, "--threads", "2"][..], ["--verify"]),
        (&[path, "--head", "2", "--seed", "1"], ["--seed applies only to --sample"]),
        (&[path, "--split", "train"], ["--split selects the records to show"]),
        (&[shard.to_str().unwrap(), "--head", "1", "--split", "train"], ["--split: a shard has no splits"]),
    ] {
        inspect(arguments).exits(2).says(&messages);
    }
}

#[test]
fn no_output_file_changes_the_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus"), &out, "--tokenizer bytes").exits(0);
    let before = tree(&out);
    let shard = before.keys().find(|name| name.starts_with("train/")).unwrap();
    let path = out.to_str().unwrap();
    std::os::unix::fs::symlink(out.join("manifest.json"), dir.path().join("link")).unwrap();
    for file in [out.join(shard), out.join("manifest.json"), out.join("new"), dir.path().join("link")] {
        let file = file.to_str().unwrap();
        inspect(&[path, "--record", "0", "--extract", file])
            .exits(2)
            .says(&["--extract", "inside the dataset"]);
        inspect(&[path, "--html", file]).exits(2).says(&["--html", "inside the dataset"]);
        let traced = command(["bench", path, "--trace", file]).output().unwrap();
        Ran::of(traced).exits(2).says(&["--trace", "inside the dataset"]);
    }
    let shard_path = out.join(shard);
    let shard_path = shard_path.to_str().unwrap();
    inspect(&[shard_path, "--record", "0", "--extract", shard_path]).exits(2);
    assert_same(&tree(&out), &before);
}

#[test]
fn a_split_without_records_to_show_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus"), &out, "--tokenizer bytes").exits(0);
    let path = out.to_str().unwrap();
    for args in [&["--json"][..], &["--verify"], &["--card"], &[]] {
        let args = [&[path, "--split", "train"][..], args].concat();
        inspect(&args).exits(2).says(&["--split", "--head"]);
    }
}

#[test]
fn a_plan_without_a_dataset_suggests_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a plan");
    let path = out.to_str().unwrap();
    let corpus = fixture("corpus");
    let args = ["plan", "text", corpus.to_str().unwrap(), "--out", path, "--tokenizer", "bytes"];
    Ran::of(command(args).output().unwrap()).exits(0);
    let command = format!("dsconvert status '{path}'");
    for args in [&[][..], &["--head", "1"], &["--verify"], &["--card"]] {
        let ran = inspect(&[&[path][..], args].concat()).exits(3).says(&["has not finished", &command]);
        assert!(!ran.stderr.contains("--resume"), "{}", ran.stderr);
    }
}

#[test]
fn a_dataset_of_symbolic_links_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (out, linked) = (dir.path().join("out"), dir.path().join("linked"));
    convert("text", &fixture("corpus"), &out, "--tokenizer bytes").exits(0);
    std::fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(out.join("manifest.json"), linked.join("manifest.json")).unwrap();
    for args in [&[][..], &["--verify"]] {
        inspect(&[&[linked.to_str().unwrap()][..], args].concat())
            .exits(3)
            .says(&["symbolic link", "local_dir"]);
    }
}

#[test]
fn text_is_decoded_by_the_stored_tokenizer_with_special_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let texts = ["Hello world, naïve 😀", "two\nlines\u{1b}[2J"];
    let lines: Vec<String> = texts.iter().map(|text| serde_json::json!({"text": text}).to_string()).collect();
    std::fs::write(&source, lines.join("\n")).unwrap();
    let bpe = fixture("tokenizers/bpe.json");
    let out = dir.path().join("out");
    let path = out.to_str().unwrap();
    let options = format!("--tokenizer {} --add-eos --eos-token <|endoftext|>", bpe.display());
    convert("text", &source, &out, &options).exits(0);

    let json = inspect(&[path, "--text", "--json"]).exits(0).stdout;
    let decoded: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let decoded: Vec<&str> = decoded.iter().map(|record| record["text"].as_str().unwrap()).collect();
    assert_eq!(decoded, texts.map(|text| format!("{text}<|endoftext|>")));
    let shown = inspect(&[path, "--record", "1", "--text"]).exits(0).stdout;
    assert!(shown.contains("  text:\n    two\n    lines\\u{1b}[2J<|endoftext|>\n"), "{shown}");
    assert!(!shown.contains("input_ids"), "{shown}");

    // Refused: a dataset without its tokenizer, a different tokenizer, a shard, a dataset without token ids.
    std::fs::remove_file(out.join("tokenizer.json")).unwrap();
    inspect(&[path, "--text"]).exits(3).says(&["cannot be decoded", "tokenizer.json"]);
    let named = inspect(&[path, "--text", "--tokenizer", bpe.to_str().unwrap()]).exits(0).stdout;
    assert!(named.contains("Hello world"), "{named}");
    let wrong = fixture("tokenizers/unigram.json");
    inspect(&[path, "--text", "--tokenizer", wrong.to_str().unwrap()]).exits(2).says(&["not the one"]);
    inspect(&[path, "--tokenizer", bpe.to_str().unwrap()]).exits(2).says(&["--html and --text"]);
    let shard = tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap();
    let shard = out.join(shard);
    let shard = shard.to_str().unwrap();
    inspect(&[shard, "--text"]).exits(2).says(&["needs the tokenizer", "directory of the dataset"]);
    let named = inspect(&[shard, "--text", "--tokenizer", bpe.to_str().unwrap()]).exits(2);
    assert!(!named.stderr.contains("needs the tokenizer"), "{}", named.stderr);
    named.says(&["manifest", "directory of the dataset"]);
    let images = dir.path().join("images");
    convert("images", &fixture("photos"), &images, "--max-rejects 50%").exits(0);
    inspect(&[images.to_str().unwrap(), "--text"]).exits(2).says(&["token ids"]);
}

#[test]
fn a_card_describes_the_dataset_to_the_hub() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("my photos");
    let path = out.to_str().unwrap();
    convert("images", &fixture("photos"), &out, "--resize longer:64 --split train=0.8,validation=0.2")
        .exits(0);
    let printed = inspect(&[path, "--card"]).exits(0).stdout;
    assert!(printed.contains("wrote ") && printed.contains("README.md"), "{printed}");
    let card = std::fs::read_to_string(out.join("README.md")).unwrap();
    let (metadata, text) = card.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    for part in [
        "license: other",
        "- image-classification",
        "  - split: \"validation\"\n    path: \"validation/*.parquet\"\n",
        "  - name: \"image\"\n    dtype: image\n",
        "          '4': \"signs\"\n",
        "    num_examples: ",
    ] {
        assert!(metadata.contains(part), "{part:?} is not in {metadata}");
    }
    assert!(
        text.contains("# my photos") && text.contains("29 records") && text.contains("1 rejected"),
        "{text}"
    );
    let one = dir.path().join("one_of [many] <i>");
    std::fs::write(dir.path().join("one.jsonl"), "{\"text\": \"a\"}\n").unwrap();
    convert("text", &dir.path().join("one.jsonl"), &one, "--tokenizer bytes").exits(0);
    inspect(&[one.to_str().unwrap(), "--card"]).exits(0);
    let card = std::fs::read_to_string(one.join("README.md")).unwrap();
    assert!(card.contains("Of 1 item found, 1 was converted, "), "{card}");
    assert!(card.contains(r"# one\_of \[many\] \<i\>"), "{card}");
    // `--verify` accepts the card, and an existing card is never replaced.
    inspect(&[path, "--verify"]).exits(0);
    inspect(&[path, "--card"]).exits(2).says(&["README.md", "already", "remove it"]);
    let again = convert("images", &fixture("photos"), &out, "--resize longer:64 --overwrite").exits(0);
    again.says(&["README.md describes the earlier dataset", "--card"]);
    for format in ["msgpack", "protobuf"] {
        let out = dir.path().join(format);
        convert("images", &fixture("photos"), &out, &format!("--format {format}")).exits(0);
        inspect(&[out.to_str().unwrap(), "--card"]).exits(2).says(&[format, "--format parquet or arrow"]);
        assert!(!out.join("README.md").exists());
    }
}

#[test]
fn samples_are_seeded_and_classes_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let path = out.to_str().unwrap();
    convert("images", &fixture("photos"), &out, "--resize longer:64 --format msgpack").exits(0);
    let numbers = |args: &[&str]| -> Vec<u64> {
        let ran = inspect(&[&[path, "--json"], args].concat()).exits(0).stdout;
        let lines = ran.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|record| record["record"].as_u64().unwrap()).collect()
    };
    let sample = numbers(&["--sample", "5"]);
    assert!(sample.len() == 5 && sample.is_sorted_by(|a, b| a < b), "{sample:?}");
    assert_eq!(numbers(&["--sample", "5", "--seed", "0"]), sample);
    assert!((1..5).any(|seed| numbers(&["--sample", "5", "--seed", &seed.to_string()]) != sample));
    assert_eq!(numbers(&["--sample", "1000"]), (0..29).collect::<Vec<_>>());
    let shard = out.join("train/train-000000-00.msgpack");
    let shown = inspect(&[shard.to_str().unwrap(), "--sample", "3"]).exits(0).stdout;
    assert_eq!(shown.lines().filter(|line| line.starts_with("record ")).count(), 3, "{shown}");

    let labels: Vec<i64> = records(&out).iter().map(|record| record.integer("label").unwrap()).collect();
    let json: Value = serde_json::from_str(&inspect(&[path, "--json"]).exits(0).stdout).unwrap();
    let train = &json["splits"]["train"];
    let text = inspect(&[path]).exits(0).stdout;
    for (label, name) in ["dunes", "flowers", "forest", "night", "signs"].iter().enumerate() {
        let count = labels.iter().filter(|&&of| of == label as i64).count();
        assert_eq!(train["classes"][name], count);
        assert!(text.contains(&format!("{name} {count}")), "{name} {count}: {text}");
    }
    assert_eq!((&train["unlabeled"], &train["labels_read"]), (&0.into(), &29.into()));
}

#[test]
fn files_that_cannot_be_read_are_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus/stories.jsonl"), &out, "--tokenizer bytes").exits(0);
    set_mode(dir.path(), 0o755);
    let shard = out.join("train/train-000000-00.arrow");
    set_mode(&shard, 0);
    let verify = |path: &Path| unprivileged(command(["inspect", "--verify"]).arg(path));
    let Some(ran) = verify(&out) else { return };
    let printed = ran.exits(3).stdout;
    for part in ["train-000000-00.arrow", "make its files readable, then verify it again", "NOT VERIFIED"] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert!(!printed.contains("DAMAGED") && !printed.contains("--repair"), "{printed}");
    let json = |out: &Path| {
        unprivileged(command(["inspect", "--verify", "--json"]).arg(out)).unwrap().exits(3).stdout
    };
    let json = |out: &Path| serde_json::from_str::<serde_json::Value>(&json(out)).unwrap();
    assert!(json(&out)["ok"] == false && json(&out)["damaged"] == false, "{}", json(&out));
    // Nothing is repaired.
    let source = fixture("corpus/stories.jsonl");
    let ran = unprivileged(command(["inspect", "--verify"]).arg(&out).arg("--repair").arg(&source))
        .unwrap()
        .exits(3);
    assert!(ran.stdout.contains("NOT VERIFIED") && ran.stderr.is_empty(), "{} {}", ran.stdout, ran.stderr);
    // A missing file is damage.
    std::fs::remove_file(out.join("rejects.jsonl")).unwrap();
    let printed = verify(&out).unwrap().exits(3).stdout;
    assert!(printed.contains("DAMAGED") && printed.contains("--repair"), "{printed}");
    assert_eq!(json(&out)["damaged"], true);
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
                let printed = ran.stdout + &ran.stderr;
                let file = name.rsplit('/').next().unwrap();
                assert!(printed.contains(file), "{name} is not named: {printed}");
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

#[test]
fn a_dataset_may_be_named_by_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    convert("text", &fixture("corpus/stories.jsonl"), &out, "--tokenizer bytes").exits(0);
    for (folder, name) in [(dir.path(), "out/manifest.json"), (&*out, "manifest.json")] {
        let run = |arguments: &[&str]| {
            Ran::of(command(arguments).current_dir(folder).output().unwrap()).exits(0).stdout
        };
        assert!(run(&["inspect", name]).contains("text dataset"));
        assert!(run(&["inspect", name, "--verify"]).contains("intact"));
        assert!(run(&["inspect", name, "--head", "1"]).contains("stories.jsonl#0"));
        let bench = run(&["bench", name, "--items", "1", "--repeat", "1", "--threads", "1", "--no-probe"]);
        assert!(bench.contains("dataset of token ids"), "{bench}");
    }
}

#[test]
fn suggested_commands_can_be_pasted_into_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("it's mine");
    convert("text", &fixture("corpus/stories.jsonl"), &out, "--tokenizer bytes").exits(0);
    std::fs::remove_file(out.join("rejects.jsonl")).unwrap();
    let quoted = format!("'{}'", out.to_str().unwrap().replace('\'', "'\\''"));
    let damaged = inspect(&[out.to_str().unwrap(), "--verify"]).exits(3).stdout;
    assert!(damaged.contains(&format!("dsconvert inspect {quoted} --verify --repair")), "{damaged}");
}

/// Converts in several ways, and compares the numbers of records per class with the labels of the records.
#[test]
fn classes_are_counted_exactly_however_they_are_converted() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    copy_dir(&fixture("photos"), &source);
    // In no class folder, so it gets no label.
    let dunes = tree(&source).into_keys().find(|name| name.starts_with("dunes/")).unwrap();
    std::fs::copy(source.join(&dunes), source.join("loose.jpg")).unwrap();
    let options =
        "--resize longer:32 --shuffle --unit-bytes 40000 --split train=0.5,test=0.5 --shard-records 3";
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    convert("images", &source, &whole, options).exits(0);
    let mut plan = command(["plan", "images"]);
    plan.arg(&source).arg("--out").arg(&parts).args(options.split_whitespace());
    Ran::of(plan.output().unwrap()).exits(0);
    for part in ["2/3", "1/3", "3/3"] {
        Ran::of(command(["run"]).arg(&parts).args(["--part", part]).output().unwrap()).exits(0);
    }
    Ran::of(command(["merge"]).arg(&parts).output().unwrap()).exits(0);
    assert_same(&tree(&whole), &tree(&parts));

    let stored = manifest(&whole);
    assert!(stored["plan"]["units"].as_u64() > Some(2), "{}", stored["plan"]);
    let dataset = dsconvert::reader::Dataset::open(&whole).unwrap();
    let mut all = 0;
    for split in dataset.splits() {
        let labels: Vec<Option<i64>> = split.iter().map(|r| r.unwrap().integer("label")).collect();
        let counts: Vec<usize> =
            (0..5).map(|label| labels.iter().filter(|&&of| of == Some(label)).count()).collect();
        assert_eq!(stored["splits"][split.name()]["class_counts"], serde_json::json!(counts));
        let json: Value =
            serde_json::from_str(&inspect(&[whole.to_str().unwrap(), "--json"]).exits(0).stdout).unwrap();
        let unlabeled = labels.iter().filter(|label| label.is_none()).count();
        assert_eq!(json["splits"][split.name()]["unlabeled"], unlabeled);
        all += labels.len();
    }
    assert_eq!(all, 30);
    inspect(&[whole.to_str().unwrap(), "--verify"]).exits(0);
}

/// A repair replaces a file only by the bytes that were committed, so the manifest keeps its version.
#[test]
fn a_dataset_of_manifest_version_2_is_repaired_and_keeps_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = "--resize longer:32 --shard-records 8 --max-rejects 50%";
    convert("images", &fixture("photos"), &out, options).exits(0);
    let counted = inspect(&[out.to_str().unwrap()]).exits(0).stdout;
    let mut json = manifest(&out);
    for split in json["splits"].as_object_mut().unwrap().values_mut() {
        split.as_object_mut().unwrap().remove("class_counts").unwrap();
    }
    json["manifest_version"] = 2.into();
    std::fs::write(out.join("manifest.json"), dsconvert::manifest::resealed(&json).unwrap()).unwrap();
    // The labels are read.
    assert_eq!(inspect(&[out.to_str().unwrap()]).exits(0).stdout, counted);
    let whole = tree(&out);
    let complete = convert("images", &fixture("photos"), &out, &format!("{options} --resume")).exits(0);
    assert!(complete.stdout.contains("already complete"), "{}", complete.stdout);

    let damage = || {
        std::fs::write(out.join("train/train-000000-01.parquet"), "x").unwrap();
        std::fs::remove_file(out.join("index/train.histogram.arrow")).unwrap();
    };
    damage();
    convert("images", &fixture("photos"), &out, &format!("{options} --resume=repair")).exits(0);
    assert_same(&tree(&out), &whole);
    damage();
    let photos = fixture("photos");
    inspect(&[out.to_str().unwrap(), "--verify", "--repair", photos.to_str().unwrap()]).exits(0);
    assert_same(&tree(&out), &whole);
}
