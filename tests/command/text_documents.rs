//! Processing of documents: fields, characters, normalization, lengths, packing, duplicates and special tokens.

use std::path::Path;

use dsconvert::sample::Value;
use serde_json::json;

use crate::support::*;

fn write_lines(path: &Path, lines: &[serde_json::Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).unwrap();
}

/// Converts one jsonl file with one document for each text.
fn convert_texts(dir: &Path, name: &str, texts: &[&str], options: &str) -> std::path::PathBuf {
    let source = dir.join("c.jsonl");
    write_lines(&source, &texts.iter().map(|t| json!({ "text": t })).collect::<Vec<_>>());
    let out = dir.join(name);
    convert("text", &source, &out, &format!("--tokenizer bytes {options}")).exits(0);
    out
}

#[test]
fn fields_are_kept_with_their_types_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    write_lines(
        &source,
        &[
            json!({"text": "a", "lang": "de", "n": 7, "score": 0.5, "ok": true, "meta": {"x": [1, null]}, "a": {"b": "in"}}),
            json!({"text": "b", "lang": null, "n": null, "meta": "text"}),
            json!({"text": "c", "lang": 12, "n": "-3", "score": 1, "ok": "false", "meta": 1.5, "a.b": "out"}),
            json!({"text": "d", "n": 1.5}),
            json!({"text": "e", "lang": ["no", "string"]}),
        ],
    );
    let options =
        "--tokenizer bytes --max-rejects 50% --keep-fields lang,n:int32,score:float32,ok:bool,meta:json,a.b";
    let text = |text: &str| Value::Text(text.into());
    let expected = [
        [
            text("de"),
            Value::Int(7),
            Value::Float(0.5),
            Value::Bool(true),
            text(r#"{"x":[1,null]}"#),
            text("in"),
        ],
        [Value::Null, Value::Null, Value::Null, Value::Null, text("\"text\""), Value::Null],
        [text("12"), Value::Int(-3), Value::Float(1.0), Value::Bool(false), text("1.5"), text("out")],
    ];
    for format in FORMATS {
        let out = dir.path().join(format);
        convert("text", &source, &out, &format!("{options} --format {format}")).exits(0);
        let found: Vec<_> = records(&out).iter().map(|r| r.values()[4..].to_vec()).collect();
        assert_eq!(found, expected, "{format}");
        let codes: Vec<_> = rejects(&out).into_iter().map(|(_, code)| code).collect();
        assert_eq!(codes, ["invalid-value", "invalid-value"]);
    }
    let kept = &manifest(&dir.path().join("parquet"))["options"]["keep_fields"];
    assert_eq!(kept[0], json!({"name": "lang", "type": null}));
}

#[test]
fn every_encoding_and_special_character_has_one_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    let files: [(&str, &[u8], Result<&str, &str>); 12] = [
        ("bom.txt", b"\xef\xbb\xbfmarked", Ok("marked")),
        ("bom-only.txt", b"\xef\xbb\xbf", Err("empty")),
        ("bom.jsonl", b"\xef\xbb\xbf{\"text\": \"marked line\"}\n", Ok("marked line")),
        ("crlf.txt", b"a\r\nb\r\n", Ok("a\r\nb\r\n")),
        ("crlf.jsonl", b"{\"text\": \"a\\r\\nb\"}\r\n", Ok("a\r\nb")),
        ("empty.txt", b"", Err("empty")),
        ("latin1.txt", b"caf\xe9", Err("invalid-utf8")),
        ("nul.txt", b"a\0b", Ok("a\0b")),
        ("nul.jsonl", br#"{"text": "a\u0000b"}"#, Ok("a\0b")),
        ("surrogate.jsonl", br#"{"text": "\udc00 alone"}"#, Err("invalid-json")),
        ("twice.jsonl", br#"{"text": 1, "text": "the last counts"}"#, Ok("the last counts")),
        ("utf16.txt", b"\xff\xfeh\0i\0", Ok("hi")),
    ];
    for (name, bytes, _) in files {
        std::fs::write(source.join(name), bytes).unwrap();
    }
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --max-rejects 100%").exits(0);
    let mut expected: Vec<_> = files.iter().filter_map(|(name, _, o)| Some((*name, o.ok()?))).collect();
    let mut found = texts(&out);
    found.sort();
    expected.sort_unstable();
    let shown: Vec<_> =
        found.iter().map(|(o, t)| (o.trim_start_matches("t/").trim_end_matches("#0"), t.as_str())).collect();
    assert_eq!(shown, expected);
    let rejected: Vec<_> = files.iter().filter_map(|(name, _, o)| Some((*name, o.err()?))).collect();
    let found = rejects(&out);
    let mut shown: Vec<_> =
        found.iter().map(|(o, c)| (o.trim_start_matches("t/").trim_end_matches("#0"), c.as_str())).collect();
    shown.sort_unstable();
    assert_eq!(shown, rejected);
}

#[test]
fn a_byte_order_mark_in_a_blank_line_is_no_document() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    for (name, text) in [
        ("1.txt", "\u{feff}\r\n\r\nfirst\n\nsecond\n"),
        ("2.txt", "\u{feff}\nthird\n"),
        ("3.txt", "\u{feff}fourth"),
        ("4.txt", "\u{feff}\n"),
    ] {
        std::fs::write(source.join(name), text).unwrap();
    }
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --documents blank-line").exits(0);
    let found: Vec<String> = texts(&out).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["first", "second", "third", "fourth"]);
}

#[test]
fn documents_of_plain_text_need_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c");
    std::fs::create_dir(&source).unwrap();
    write_lines(&source.join("a.jsonl"), &[json!({"text": "a"})]);
    let out = dir.path().join("out");
    let options = "--tokenizer bytes --documents line";
    convert("text", &source, &out, options).exits(2).says(&["--documents", "no source is plain text"]);
    assert!(!out.exists());
    convert("text", &source, &out, "--tokenizer bytes --documents file --dry-run").exits(0);
    std::fs::write(source.join("b.txt"), "b\nc\n").unwrap();
    convert("text", &source, &out, options).exits(0);
    assert_eq!(only_texts(&out), ["a", "b", "c"]);
}

#[test]
fn invalid_utf8_can_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a.txt"), b"caf\xe9").unwrap();
    std::fs::write(source.join("b.jsonl"), b"{\"text\": \"\xff\", \"n\": 1}\n{\"text\": \"good\"}\n")
        .unwrap();
    std::fs::write(source.join("c.csv"), b"text,n\nx\xfey,1\n").unwrap();
    std::fs::write(source.join("d.tsv"), b"text\tn\nz\xfe\t1\ngood\t\xff\n").unwrap();
    // A value that nothing reads is not replaced.
    for (options, replaced) in [("", 4), ("--keep-fields n:string", 5)] {
        let out = dir.path().join(format!("out{}", options.len()));
        let options = format!("--tokenizer bytes --invalid-utf8 replace {options}");
        convert("text", &source, &out, &options).exits(0);
        assert_eq!(only_texts(&out), ["caf\u{fffd}", "\u{fffd}", "good", "x\u{fffd}y", "z\u{fffd}", "good"]);
        assert_eq!(manifest(&out)["notes"]["invalid_utf8_replaced"], replaced);
    }
}

#[test]
fn text_is_normalized_before_it_is_tokenized() {
    let dir = tempfile::tempdir().unwrap();
    let run = |form: &str| {
        only_texts(&convert_texts(
            dir.path(),
            form,
            &["e\u{301}", "\u{fb01}"],
            &format!("--normalize {form}"),
        ))
    };
    assert_eq!(run("none"), ["e\u{301}", "\u{fb01}"]);
    assert_eq!(run("nfc"), ["\u{e9}", "\u{fb01}"]);
    assert_eq!(run("nfkc"), ["\u{e9}", "fi"]);
    let fingerprint = |form: &str| manifest(&dir.path().join(form))["fingerprint"].clone();
    assert_ne!(fingerprint("none"), fingerprint("nfc"));
}

#[test]
fn lengths_are_filtered_and_limited() {
    let dir = tempfile::tempdir().unwrap();
    let documents = ["ab", "abcde", "abcdefghij"];
    let run = |name: &str, options: &str| convert_texts(dir.path(), name, &documents, options);
    let out = run("filter", "--filter-length 3:9");
    assert_eq!(only_texts(&out), ["abcde"]);
    assert_outcomes(&out, [1, 2, 0, 0]);
    let filtered = std::fs::read_to_string(out.join("filtered.jsonl")).unwrap();
    assert!(filtered.contains("too-short") && filtered.contains("too-long"), "{filtered}");
    let out = run("truncate", "--max-length 4");
    assert_eq!(only_texts(&out), ["ab", "abcd", "abcd"]);
    assert_eq!(manifest(&out)["notes"]["truncated"], 2);
    let out = run("reject", "--max-length 5 --overflow reject --max-rejects 50%");
    assert_eq!(only_texts(&out), ["ab", "abcde"]);
    assert_eq!(rejects(&out)[0].1, "too-long");
    let out = run("split", "--max-length 4 --overflow split:1 --key-field text");
    let keys: Vec<_> = records(&out).iter().map(|r| r.key().unwrap().to_owned()).collect();
    assert_eq!(only_texts(&out), ["ab", "abcd", "de", "abcd", "defg", "ghij"]);
    assert_eq!(keys, ["ab", "abcde@0", "abcde@3", "abcdefghij@0", "abcdefghij@3", "abcdefghij@6"]);
    // Three items make six records.
    assert_outcomes(&out, [3, 0, 0, 0]);
    assert_eq!(manifest(&out)["splits"]["train"]["records"], 6);
    assert_eq!(manifest(&out)["notes"]["split"], 2);
}

#[test]
fn duplicate_keys_of_document_pieces_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    write_lines(&source, &[json!({"text": "abcd", "id": "k"}), json!({"text": "ab", "id": "k@2"})]);
    let out = dir.path().join("out");
    let options = "--tokenizer bytes --key-field id --max-length 2 --overflow split";
    convert("text", &source, &out, options).exits(3).says(&["key \"k@2\"", "nothing was committed"]);
    assert!(!out.exists());
}

#[test]
fn packed_rows_hold_every_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 700);
    let plain = dir.path().join("plain");
    convert("text", &source, &plain, "--tokenizer bytes --add-eos --unit-bytes 32k").exits(0);
    let mut expected: Vec<(String, Vec<u32>)> = records(&plain)
        .iter()
        .map(|r| (r.key().unwrap().to_owned(), r.input_ids().unwrap().iter().collect()))
        .collect();
    expected.sort();
    for packing in ["concat", "best-fit"] {
        for format in FORMATS {
            let out = dir.path().join(format!("{packing}-{format}"));
            let options = format!(
                "--tokenizer bytes --add-eos --unit-bytes 32k --pack 256 --packing {packing} --format {format}"
            );
            convert("text", &source, &out, &options).exits(0);
            let mut pieces: Vec<(u32, Vec<u32>)> = Vec::new();
            for row in records(&out) {
                let ids: Vec<u32> = row.input_ids().unwrap().iter().collect();
                let ends: Vec<u32> = row.ids("cu_seqlens").unwrap().iter().collect();
                let starts: Vec<u32> = row.ids("piece_starts").unwrap().iter().collect();
                assert!(ids.len() <= 256 && ends[0] == 0 && *ends.last().unwrap() as usize == ids.len());
                assert_eq!((ends.len(), row.length()), (starts.len() + 1, Some(ids.len() as u32)));
                assert!(row.key().unwrap().ends_with(&format!("@{}", starts[0])));
                for (piece, start) in ends.windows(2).zip(&starts) {
                    pieces.push((*start, ids[piece[0] as usize..piece[1] as usize].to_vec()));
                }
            }
            // Exactly one piece of each document has its end token.
            let ended = pieces.iter().filter(|(_, ids)| ids.contains(&257)).count();
            assert_eq!(ended, expected.len());
            let whole: usize = expected.iter().map(|(_, ids)| ids.len()).sum();
            assert_eq!(pieces.iter().map(|(_, ids)| ids.len()).sum::<usize>(), whole);
            // A piece with the start and the end of a document is that document.
            let mut complete: Vec<_> = pieces
                .iter()
                .filter(|(start, ids)| *start == 0 && ids.last() == Some(&257))
                .map(|(_, ids)| ids)
                .collect();
            complete.sort();
            let mut all: Vec<_> = expected.iter().map(|(_, ids)| ids).collect();
            all.sort();
            assert!(complete.iter().all(|ids| all.binary_search(ids).is_ok()));
            let notes = &manifest(&out)["notes"];
            let count = |name: &str| notes[name].as_u64().unwrap() as usize;
            assert_eq!(count("packed_tokens"), whole);
            assert_eq!(count("packed_places"), 256 * count("packed_rows"));
            assert_eq!(count("packed_documents_cut"), expected.len() - complete.len());
            if packing == "best-fit" {
                let short = expected.iter().filter(|(_, ids)| ids.len() <= 256).count();
                assert_eq!(complete.len(), short, "a document that fits is not cut");
            }
            assert!(count("packed_tokens") * 100 > count("packed_places") * 90);
            assert_outcomes(&out, [700, 0, 0, 0]);
        }
    }
    let run = |name: &str, threads: u32| {
        let out = dir.path().join(name);
        let options = format!(
            "--tokenizer bytes --unit-bytes 32k --pack 100 --shuffle --split train=0.9,test=0.1 --threads {threads}"
        );
        convert("text", &source, &out, &options).exits(0);
        tree(&out)
    };
    assert_same(&run("one", 1), &run("four", 4));
}

#[test]
fn the_first_of_several_equal_documents_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    write_lines(
        &source.join("a.jsonl"),
        &[
            json!({"text": "one"}),
            json!({"text": "two"}),
            json!({"text": "one"}),
            json!({"text": ""}),
            json!({"text": ""}),
        ],
    );
    std::fs::write(source.join("b.csv"), "text\ntwo\nthree\n").unwrap();
    std::fs::write(source.join("c.txt"), "one").unwrap();
    std::fs::write(source.join("d.txt"), "e\u{301}").unwrap();
    std::fs::write(source.join("e.txt"), "\u{e9}").unwrap();
    let run = |name: &str, options: &str| {
        let out = dir.path().join(name);
        let options =
            format!("--tokenizer bytes --dedup exact --max-rejects 50% --unit-bytes 4096 {options}");
        convert("text", &source, &out, &options).exits(0);
        let lines = std::fs::read_to_string(out.join("duplicates.jsonl")).unwrap();
        let pairs = lines.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} = {}", line["origin"].as_str().unwrap(), line["of"].as_str().unwrap())
        });
        (out.clone(), pairs.collect::<Vec<_>>())
    };
    let (out, duplicates) = run("plain", "");
    assert_eq!(
        duplicates,
        ["t/a.jsonl#30 = t/a.jsonl#0", "t/b.csv#5 = t/a.jsonl#15", "t/c.txt = t/a.jsonl#0"]
    );
    assert_eq!(only_texts(&out), ["one", "two", "three", "e\u{301}", "\u{e9}"]);
    assert_outcomes(&out, [5, 0, 3, 2]);
    let (out, duplicates) = run("normal", "--normalize nfc --threads 3");
    assert_eq!(duplicates[3], "t/e.txt = t/d.txt");
    assert_eq!(only_texts(&out), ["one", "two", "three", "\u{e9}"]);
    assert_outcomes(&out, [4, 0, 4, 2]);
}

#[test]
fn the_summary_reports_lengths_and_padding() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    corpus(&source, 500);
    let run = |name: &str, options: &str| {
        let out = dir.path().join(name);
        let ran = convert("text", &source, &out, &format!("--tokenizer bytes {options}")).exits(0);
        assert!(ran.stderr.is_empty(), "{}", ran.stderr);
        ran.stdout
    };
    let printed = run("plain", "");
    for part in
        ["tokens, 1.00 bytes of text each", "train:", "█", "padding in batches of 32 records", "with buckets"]
    {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let line = printed.lines().find(|line| line.contains("padding in batches")).unwrap();
    let shares: Vec<f64> =
        line.split_whitespace().filter_map(|word| word.strip_suffix('%')?.parse().ok()).collect();
    assert!(shares[0] > 30.0 && shares[1] < shares[0] / 2.0, "{line}");
    // Tokens that were cut off or repeated would make the figure wrong.
    for (number, (overflow, shows)) in
        [("truncate", false), ("split:9", false), ("split", true)].iter().enumerate()
    {
        let printed = run(&format!("overflow-{number}"), &format!("--max-length 10 --overflow {overflow}"));
        assert_eq!(printed.contains("bytes of text each"), *shows, "{overflow}: {printed}");
    }
    assert!(run("tokens", "--report-tokens 65536").contains("padding in batches of 65,536 tokens"));
    let printed = run("pack", "--pack 512");
    assert!(
        printed.contains("rows are 9")
            && printed.contains("% full")
            && printed.contains("0.0% of the documents"),
        "{printed}"
    );
    assert_eq!(run("quiet", "--quiet"), "");
    let nothing =
        convert("text", &source, &dir.path().join("none"), "--tokenizer bytes --report-batch 0").exits(2);
    nothing.says(&["batch"]);
}

#[test]
fn documents_cannot_inject_special_tokens_unless_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = fixture("tokenizers/bpe.json");
    let source = dir.path().join("c.jsonl");
    let texts = ["no token", "one <|endoftext|> inside"];
    write_lines(&source, &texts.map(|t| json!({ "text": t })));
    for (policy, control, rejected) in [("text", 0, 0), ("parse", 1, 0), ("error", 0, 1)] {
        let out = dir.path().join(policy);
        let options = format!(
            "--tokenizer {} --special-in-text {policy} --verify-ids all --max-rejects 50%",
            tokenizer.display()
        );
        convert("text", &source, &out, &options).exits(0);
        let ids = records(&out)
            .iter()
            .flat_map(|r| r.input_ids().unwrap().iter().collect::<Vec<_>>())
            .collect::<Vec<_>>();
        assert_eq!(ids.iter().filter(|&&id| id == 1998).count(), control, "{policy}");
        let codes: Vec<_> = rejects(&out).into_iter().map(|(_, code)| code).collect();
        assert_eq!(codes, vec!["special-token"; rejected]);
        let notes = &manifest(&out)["notes"];
        let verified = if rejected > 0 { &texts[..1] } else { &texts[..] };
        assert_eq!(notes["verified_bytes"], verified.iter().map(|t| t.len()).sum::<usize>());
        assert_eq!(notes["verified_documents"], verified.len());
        assert_eq!(notes.get("units_redone"), None);
        assert_eq!(notes.get("special_tokens_in_text").is_some(), rejected == 0);
    }
}

#[test]
fn a_tokenizer_without_a_fast_engine_causes_a_warning_and_limits_documents() {
    let dir = tempfile::tempdir().unwrap();
    let json = std::fs::read(fixture("tokenizers/bpe.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&json).unwrap();
    tokenizer["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "MergedWithPrevious"}, tokenizer["pre_tokenizer"]]});
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let source = dir.path().join("c.jsonl");
    write_lines(&source, &[json!({"text": "one, two"}), json!({"text": "more than ten bytes"})]);
    let run = |name: &str, options: &str| {
        let out = dir.path().join(name);
        let options = format!("--tokenizer {} --max-rejects 50% {options}", dir.path().display());
        (convert("text", &source, &out, &options).exits(0), out)
    };
    let (ran, out) = run("all", "");
    ran.says(&["using the slow reference tokenizer", "the pre-tokenizer is not supported"]);
    assert_outcomes(&out, [2, 0, 0, 0]);
    let (ran, out) = run("limited", "--max-reference-bytes 10 --quiet");
    assert_eq!(
        (ran.stderr.as_str(), rejects(&out)),
        ("", vec![("c.jsonl#20".to_owned(), "too-large".to_owned())])
    );
}

#[test]
fn a_reject_says_whether_the_line_or_the_document_is_too_large() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), r#"{"text": "short", "other": "long"}"#).unwrap();
    std::fs::write(dir.path().join("c.txt"), "a document of more than twenty bytes").unwrap();
    std::fs::write(dir.path().join("d.txt"), "kept").unwrap();
    let outside = tempfile::tempdir().unwrap();
    let array = outside.path().join("b.json");
    std::fs::write(&array, r#"[{"text": "short", "other": "long"}]"#).unwrap();
    let out = outside.path().join("out");
    let options = format!("--tokenizer bytes --max-document-bytes 20 --max-rejects 90% {}", array.display());
    convert("text", dir.path(), &out, &options).exits(0);
    let rejects = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    for what in ["the line has 34 bytes", "the element has ", "the document has 36 bytes"] {
        assert!(rejects.contains(what), "{rejects}");
    }
}

#[test]
fn summaries_have_readable_rates_means_and_plurals() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let summary = |length: usize, out: &str| {
        std::fs::write(&source, format!("{{\"text\": \"{}\"}}\n", "a".repeat(length))).unwrap();
        convert("text", &source, &dir.path().join(out), "--tokenizer bytes --report-batch 1").exits(0).stdout
    };
    let (one, many) = (summary(1, "one"), summary(187_500, "many"));
    assert!(one.contains("mean 1.0, median 1,") && many.contains("mean 187,500, median 187,500,"), "{many}");
    let rates = [&one, &many].map(|text| text.split(" items/s").next().unwrap().rsplit(' ').next().unwrap());
    assert!(rates.iter().all(|rate| rate.len() >= 3 && !rate.starts_with("0,")), "{rates:?}");
    assert!(one.contains("1 token, 1.00 bytes") && one.contains("batches of 1 record:"), "{one}");
}

/// A tokenizer of words with the control tokens of DeepSeek, whose bars are U+FF5C, and of a chat model.
fn word_tokenizer() -> serde_json::Value {
    let names = [
        "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>",
        "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
        "<|im_end|>",
    ];
    let added = names.iter().enumerate().map(|(at, name)| {
        json!({"id": at + 3, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
               "special": true})
    });
    json!({"version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "pre_tokenizer": {"type": "WhitespaceSplit"},
           "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "hello": 1, "world": 2,
                     names[0]: 3, names[1]: 4, names[2]: 5}}})
}

#[test]
fn bos_and_eos_come_from_the_files_beside_the_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let (model, source) = (dir.path().join("model"), dir.path().join("c.jsonl"));
    std::fs::create_dir(&model).unwrap();
    std::fs::write(&source, "{\"text\":\"hello world\"}\n").unwrap();
    std::fs::write(model.join("tokenizer.json"), word_tokenizer().to_string()).unwrap();
    let write = |name: &str, content: &str| std::fs::write(model.join(name), content).unwrap();
    let run = |options: &str| {
        let out = dir.path().join("out");
        drop(std::fs::remove_dir_all(&out));
        let ran = convert("text", &source, &out, &format!("-q --tokenizer {} {options}", model.display()));
        let ids: Vec<u32> = match ran.status {
            0 => records(&out)[0].input_ids().unwrap().iter().collect(),
            _ => Vec::new(),
        };
        (ran, ids)
    };
    let (ran, ids) = run("--add-bos --add-eos");
    assert_eq!((ran.exits(0).stderr.as_str(), ids), ("", vec![3, 1, 2, 4]));
    let chat = r#"{"eos_token": {"__type": "AddedToken", "content": "<|im_end|>"}, "bos_token": null}"#;
    write("tokenizer_config.json", chat);
    let (ran, ids) = run("--add-eos");
    let ran = ran
        .exits(0)
        .says(&["warning: tokenizer_config.json names the EOS token \"<|im_end|>\"", "--eos-token"]);
    assert!(!ran.stderr.contains("BOS") && ids == [1, 2, 5], "{}", ran.stderr);
    let (ran, ids) = run("--add-bos");
    ran.exits(0).says(&["states that there is no BOS token", "--bos-token"]);
    assert_eq!(ids, [3, 1, 2]);
    let (ran, ids) = run("--add-eos --eos-token world");
    assert_eq!((ran.exits(0).stderr.as_str(), ids), ("", vec![1, 2, 2]));
    assert_eq!(run("").0.exits(0).stderr, "");
    // The first file decides, and the second one supplies what is missing.
    write("special_tokens_map.json", r#"{"eos_token": "hello", "bos_token": "world"}"#);
    let (ran, ids) = run("--add-bos --add-eos");
    ran.exits(0).says(&["special_tokens_map.json names \"hello\""]);
    assert_eq!(ids, [2, 1, 2, 5]);
    for (content, parts) in [
        (r#"{"eos_token": "<gone>"}"#, ["tokenizer.json: tokenizer_config.json", "\"<gone>\""]),
        (r#"{"eos_token": 7}"#, ["tokenizer_config.json", "\"eos_token\""]),
        ("[]", ["tokenizer_config.json", "not a JSON object"]),
        ("{", ["tokenizer_config.json", "not JSON"]),
    ] {
        write("tokenizer_config.json", content);
        run("--add-eos").0.exits(2).says(&parts).says(&["--eos-token"]);
        run("--add-eos --eos-token world").0.exits(0);
        run("").0.exits(0);
    }
}

#[test]
fn a_plan_contains_the_tokens_of_the_files_beside_the_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let (model, source) = (dir.path().join("model"), dir.path().join("c.jsonl"));
    std::fs::create_dir(&model).unwrap();
    std::fs::write(&source, "{\"text\":\"hello world\"}\n".repeat(40)).unwrap();
    std::fs::write(model.join("tokenizer.json"), word_tokenizer().to_string()).unwrap();
    std::fs::write(model.join("tokenizer_config.json"), r#"{"eos_token": "<|im_end|>"}"#).unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let options = format!("-q --tokenizer {} --add-eos", model.display());
    convert("text", &source, &whole, &options).exits(0);
    let on = |arguments: &[&str], more: &str| {
        Ran::of(command(arguments).args(more.split_whitespace()).output().unwrap()).exits(0)
    };
    let [source, whole_dir, parts_dir] = [&source, &whole, &parts].map(|path| path.to_str().unwrap());
    on(&["plan", "text", source, "--out", parts_dir], &options);
    std::fs::remove_dir_all(&model).unwrap();
    on(&["run", parts_dir, "-q"], "");
    on(&["merge", parts_dir, "-q"], "");
    assert_eq!(tree(&whole), tree(&parts));
    // A repair does not need the file, either.
    let shard = tree(&whole).into_keys().find(|name| name.starts_with("train/")).unwrap();
    std::fs::write(whole.join(shard), "damaged").unwrap();
    on(&["inspect", whole_dir, "--verify", "--repair", source], "");
    assert_eq!(tree(&whole), tree(&parts));
}
