//! Documents in every kind of file that `dsconvert text` reads.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::*;

/// Texts with quotes, commas and non-ASCII characters, which every format must preserve.
const TEXTS: [&str; 4] = ["one, \"two\"", "naïve 😀", "tab: and comma,", "last"];

/// Compresses `bytes` in the format that `extension` names, if any.
pub(crate) fn compress(bytes: &[u8], extension: &str) -> Vec<u8> {
    match extension {
        ".gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ".zst" => zstd::encode_all(bytes, 3).unwrap(),
        ".xz" => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ".bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        _ => bytes.to_vec(),
    }
}

fn batch(texts: &[&str]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
    let text: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    RecordBatch::try_from_iter([("id", ids), ("text", text)]).unwrap()
}

pub(crate) fn parquet_file(texts: &[&str], rows_per_group: usize) -> Vec<u8> {
    let batch = batch(texts);
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_per_group)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

pub(crate) fn arrow_file(texts: &[&str], stream: bool) -> Vec<u8> {
    let batch = batch(texts);
    if stream {
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        texts.iter().enumerate().for_each(|(i, _)| writer.write(&batch.slice(i, 1)).unwrap());
        return writer.into_inner().unwrap();
    }
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    texts.iter().enumerate().for_each(|(i, _)| writer.write(&batch.slice(i, 1)).unwrap());
    writer.into_inner().unwrap()
}

/// Name, content and options of files that hold [`TEXTS`].
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let jsonl: String = TEXTS.iter().map(|t| serde_json::json!({"text": t}).to_string() + "\n").collect();
    let nested: String =
        TEXTS.iter().map(|t| serde_json::json!({"a": {"b": t}}).to_string() + "\r\n").collect();
    let csv = "id,text\n0,\"one, \"\"two\"\"\"\n1,naïve 😀\n\n2,\"tab: and comma,\"\n3,last";
    let tsv = "id\ttext\n0\tone, \"two\"\n1\tnaïve 😀\n2\ttab: and comma,\n3\tlast\n";
    vec![
        ("c.jsonl", jsonl.into_bytes(), ""),
        ("c.ndjson", nested.into_bytes(), "--text-field a.b"),
        ("c.csv", csv.into(), ""),
        ("c.tsv", tsv.into(), ""),
        ("lines.txt", TEXTS.join("\r\n").into(), "--documents line"),
        ("blank.txt", format!(" \n{}\n", TEXTS.join("\n \t\r\n\n")).into(), "--documents blank-line"),
        ("separated.txt", TEXTS.join("<|end|>\n").into(), r"--documents separator:<|end|>\n"),
    ]
}

#[test]
fn every_kind_of_file_gives_the_same_documents() {
    let dir = tempfile::tempdir().unwrap();
    let mut n = 0;
    let mut check = |name: &str, bytes: &[u8], options: &str| {
        n += 1;
        let source = dir.path().join(name);
        std::fs::write(&source, bytes).unwrap();
        let out = dir.path().join(format!("out-{n}"));
        convert("text", &source, &out, &format!("--tokenizer bytes {options}")).exits(0);
        let found = texts(&out);
        assert_eq!(only_texts(&out), TEXTS, "{name}");
        assert!(found.iter().all(|(origin, _)| origin.starts_with(&format!("{name}#"))), "{found:?}");
        assert_outcomes(&out, [4, 0, 0, 0]);
    };
    for (name, bytes, options) in files() {
        check(name, &bytes, options);
        for extension in [".gz", ".zst", ".xz", ".bz2"] {
            let name = format!("{name}{extension}");
            check(&name, &compress(&bytes, extension), options);
            // Concatenated compressed streams are one file.
            let (one, two) = bytes.split_at(bytes.len() / 2);
            let parts = [compress(one, extension), compress(two, extension)].concat();
            check(&format!("parts-{name}"), &parts, options);
        }
    }
    check("c.parquet", &parquet_file(&TEXTS, 2), "--unit-bytes 4096");
    check("file.arrow", &arrow_file(&TEXTS, false), "");
    check("stream.arrow", &arrow_file(&TEXTS, true), "");
}

#[test]
fn a_damaged_file_keeps_the_documents_before_the_damage_and_is_one_reject() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..40_000).map(|i| format!("document {i}, {}", i * 7919 % 1009)).collect();
    let jsonl: String = lines.iter().map(|t| serde_json::json!({"text": t}).to_string() + "\n").collect();
    for extension in [".gz", ".zst", ".xz", ".bz2"] {
        let whole = compress(jsonl.as_bytes(), extension);
        for (name, bytes, code) in [
            ("cut", whole[..whole.len() * 2 / 3].to_vec(), "truncated"),
            ("garbage", [&whole[..], b"this is no compressed data"].concat(), "corrupt"),
        ] {
            let source = dir.path().join(format!("{name}.jsonl{extension}"));
            std::fs::write(&source, bytes).unwrap();
            let out = dir.path().join(format!("{name}{extension}"));
            convert("text", &source, &out, "--tokenizer bytes").exits(0);
            let found = only_texts(&out);
            assert_eq!(found, lines[..found.len()], "{name}{extension}");
            assert_eq!(rejects(&out).len(), 1, "{name}{extension}: {:?}", rejects(&out));
            assert_eq!(rejects(&out)[0].1, code, "{name}{extension}");
            assert_outcomes(&out, [found.len() as u64, 0, 0, 1]);
            match name {
                // xz is decoded block by block, and this file has only one.
                "cut" => assert!(found.len() < lines.len() && (extension == ".xz" || found.len() > 1000)),
                _ => assert_eq!(found.len(), lines.len()),
            }
        }
    }
}

#[test]
fn mislabeled_damaged_and_bomb_files_are_one_reject_each() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t");
    std::fs::create_dir(&source).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(source.join(name), bytes).unwrap();
    let jsonl = b"{\"text\": \"x\"}\n".repeat(10);
    put("a-good.txt", b"text");
    put("b-plain.jsonl.gz", &jsonl);
    put("c-zstd.jsonl.gz", &compress(&jsonl, ".zst"));
    put("d-gzip.jsonl", &compress(&jsonl, ".gz"));
    put("e-bzip2.txt", &compress(&jsonl, ".bz2"));
    put("f-empty.txt.xz", b"");
    put("g-bomb.jsonl.zst", &compress(&vec![b' '; 256 << 20], ".zst"));
    put("h-none.parquet", b"PAR1, or so it says");
    put("i-none.arrow", b"ARROW1\0\0 and nothing of it");
    put("j-header.csv", b"id,body\n1,x\n");
    put("k-good.csv", b"id,text\n1,x\n");
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --max-rejects 100%").exits(0);
    let found: Vec<(String, String)> = rejects(&out);
    let expected = [
        ("t/b-plain.jsonl.gz", "unknown-type"),
        ("t/c-zstd.jsonl.gz", "unknown-type"),
        ("t/d-gzip.jsonl", "unknown-type"),
        ("t/e-bzip2.txt", "unknown-type"),
        ("t/f-empty.txt.xz", "empty"),
        ("t/g-bomb.jsonl.zst", "too-large"),
        ("t/h-none.parquet", "corrupt"),
        ("t/i-none.arrow", "corrupt"),
        ("t/j-header.csv", "missing-field"),
    ];
    let found: Vec<_> = found.iter().map(|(origin, code)| (origin.as_str(), code.as_str())).collect();
    assert_eq!(found, expected);
    assert_outcomes(&out, [2, 0, 0, 9]);
}

#[test]
fn integers_of_any_size_keep_their_digits() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("s.jsonl");
    let ids = ["123456789012345678901234567890", "123456789012345678901234567891", "-7"];
    let lines: String = ids.iter().map(|id| format!("{{\"text\": \"a\", \"id\": {id}}}\n")).collect();
    std::fs::write(&source, lines).unwrap();
    for (keep, ty) in [("id", "string"), ("id:json", "json")] {
        let out = dir.path().join(ty);
        convert("text", &source, &out, &format!("--tokenizer bytes --key-field id --keep-fields {keep}"))
            .exits(0);
        let records = records(&out);
        let found: Vec<_> = records.iter().map(|record| record.text("id").unwrap()).collect();
        assert_eq!(found, ids, "{keep}");
        let keys: Vec<_> = records.iter().map(|record| record.key().unwrap()).collect();
        assert_eq!(keys, ids);
    }
}

#[test]
fn padding_of_gzip_is_ignored_and_large_windows_of_zstd_are_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("s");
    std::fs::create_dir(&source).unwrap();
    let line = b"{\"text\": \"x\"}\n";
    let padded = [&compress(line, ".gz")[..], &[0; 700]].concat();
    std::fs::write(source.join("a.jsonl.gz"), padded).unwrap();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(31).unwrap();
    encoder.write_all(line).unwrap();
    let large = encoder.finish().unwrap();
    std::fs::write(source.join("b.jsonl.zst"), [compress(line, ".zst"), large].concat()).unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --max-rejects 1").exits(0);
    assert_outcomes(&out, [2, 0, 0, 1]);
    let rejects = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    for part in ["\"unsupported\"", "window of 2048 MiB, more than 128 MiB", "zstd --long=27"] {
        assert!(rejects.contains(part), "{rejects}");
    }
}

#[test]
fn unsuitable_columns_and_options_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (parquet, arrow) = (dir.path().join("t.parquet"), dir.path().join("t.arrow"));
    std::fs::write(&parquet, parquet_file(&TEXTS, 9)).unwrap();
    std::fs::write(&arrow, arrow_file(&TEXTS, true)).unwrap();
    for source in [&parquet, &arrow] {
        for (options, parts) in [
            ("--text-field body", ["\"body\"", "\"id\", \"text\""]),
            ("--text-field id", ["Int64", "--text-field"]),
            ("--keep-fields none", ["\"none\"", "\"id\", \"text\""]),
            ("--keep-fields id:string", ["id", "int64"]),
            ("--keep-fields text,key", ["\"key\"", "\"id\", \"text\""]),
        ] {
            convert("text", source, &out, &format!("--tokenizer bytes {options}")).exits(2).says(&parts);
            assert!(!out.exists());
        }
    }
    // A field of the schema that the format needs itself; rows that only the conversion can parse are examined as well.
    let rows = dir.path().join("rows.jsonl");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    std::fs::write(&rows, format!("{{\"text\": \"a\", \"id_width\": NaN, \"deep\": {deep}}}\n")).unwrap();
    for (options, parts) in [
        ("--keep-fields id_width --format msgpack", ["\"id_width\" is reserved", "another format"]),
        ("--keep-fields id_with", ["no row has the field \"id_with\"", "did you mean \"id_width\"?"]),
    ] {
        convert("text", &rows, &out, &format!("--tokenizer bytes {options}")).exits(2).says(&parts);
        assert!(!out.exists(), "{options}");
    }
    for (options, parts) in [
        ("--documents lines", ["--documents", "blank-line"]),
        ("--input-format pdf", ["--input-format", "jsonl"]),
        ("--filter-length 9:1", ["--filter-length", "MIN:MAX"]),
        ("--max-length 4 --overflow split:4", ["split:4", "--max-length 4"]),
        ("--overflow split", ["required", "--max-length"]),
        ("--pack 0", ["--pack 0", "1 to"]),
        ("--pack 8 --keep-fields id", ["--keep-fields", "--pack"]),
        ("--keep-fields origin", ["origin", "two fields"]),
        ("--dedup near", ["near", "exact"]),
    ] {
        convert("text", &fixture("corpus"), &out, &format!("--tokenizer bytes {options}"))
            .exits(2)
            .says(&parts);
        assert!(!out.exists(), "{options}");
    }
}

#[test]
fn sources_can_be_patterns_lists_and_labeled_paths() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in
        [("b/2.txt", "b2"), ("a/1.txt", "a1"), ("a/3.txt", "a3"), ("a/skip.md", "no"), ("odd", "odd")]
    {
        let path = dir.path().join("in").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let out = |name: &str| dir.path().join(name);
    let pairs = |found: &[(&str, &str)]| {
        found.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
    };
    let run = |name: &str, sources: &[&str], options: &str| {
        let mut command = command(["text"]);
        command.current_dir(dir.path().join("in")).args(sources).arg("--out").arg(out(name));
        Ran::of(command.args(options.split_whitespace()).args(["--tokenizer", "bytes"]).output().unwrap())
    };
    run("glob", &["*/*"], "").exits(0);
    assert_eq!(texts(&out("glob")), pairs(&[("a/1.txt", "a1"), ("a/3.txt", "a3"), ("b/2.txt", "b2")]));
    assert_eq!(manifest(&out("glob"))["sources"]["skipped"], 1);
    run("all", &["a/*"], "--input-format txt").exits(0);
    assert_eq!(only_texts(&out("all")), ["a1", "a3", "no"]);
    run("label", &["mine=a/[12].txt", "b"], "").exits(0);
    assert_eq!(texts(&out("label")), pairs(&[("mine/1.txt", "a1"), ("b/2.txt", "b2")]));
    // `**` also matches folders, to which their files belong.
    for pattern in ["**", "**/*"] {
        run("deep", &[pattern], "--overwrite").exits(0);
        assert_eq!(texts(&out("deep")), texts(&out("glob")), "{pattern}");
    }
    for (source, found) in
        [("{1..2}/a.txt", "1/a.txt"), ("{1..2}/*.txt", "1/a.txt"), ("mine={1..2}/*", "mine/1/a.txt")]
    {
        for folder in ["1", "2"] {
            std::fs::create_dir_all(out("in").join(folder)).unwrap();
            std::fs::write(out("in").join(folder).join("a.txt"), folder).unwrap();
        }
        run("range", &[source], "--overwrite").exits(0);
        assert_eq!(texts(&out("range"))[0], (found.to_owned(), "1".to_owned()), "{source}");
        ["1", "2"].iter().for_each(|folder| std::fs::remove_dir_all(out("in").join(folder)).unwrap());
    }
    run("none", &["c/*.txt"], "").exits(2).says(&["nothing matches", "c/*.txt"]);
    run("named", &["odd"], "").exits(2).says(&["odd", "--input-format"]);
    run("named", &["odd"], "--input-format txt").exits(0);
    assert_eq!(texts(&out("named")), pairs(&[("odd", "odd")]));
    std::fs::write(out("in").join("list"), "b/2.txt\n\na/1.txt\r\ngone.txt\na/skip.md\n../x.txt\n").unwrap();
    run("list", &[], "--files-from list --max-rejects 100%").exits(0);
    assert_eq!(texts(&out("list")), pairs(&[("in/b/2.txt", "b2"), ("in/a/1.txt", "a1")]));
    let rejected =
        [("in/gone.txt", "missing-file"), ("in/a/skip.md", "unknown-type"), ("in/../x.txt", "unsafe-path")];
    assert_eq!(rejects(&out("list")), pairs(&rejected));
}

#[test]
fn standard_input_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, source: &str, options: &str, input: &[u8]| {
        let mut command = command(["text", source, "--tokenizer", "bytes", "--out"]);
        command.arg(dir.path().join(name)).args(options.split_whitespace()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A refused command does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        Ran::of(child.wait_with_output().unwrap())
    };
    for (name, bytes, options) in files() {
        let format = name.rsplit_once('.').unwrap().1;
        run(name, "-", &format!("--input-format {format} {options}"), &bytes).exits(0);
        let found = texts(&dir.path().join(name));
        assert!(found.iter().map(|(_, text)| text).eq(TEXTS.iter()), "{name}");
        assert!(found.iter().all(|(origin, _)| origin.starts_with("stdin#")));
    }
    let gz = compress(&files()[0].1, ".gz");
    run("gz", "web=-", "--input-format jsonl.gz", &gz).exits(0);
    assert!(texts(&dir.path().join("gz"))[0].0.starts_with("web#0"));
    run("arrow", "-", "--input-format arrow --keep-fields id:int64", &arrow_file(&TEXTS, true)).exits(0);
    for (format, bytes, part) in [
        ("jsonl", &gz[..], "is gzip data, but its format was given as jsonl; use --input-format jsonl.gz"),
        ("txt.zst", &gz, "is gzip data, but its format was given as txt.zst; use --input-format txt.gz"),
        (
            "csv.xz",
            b"text\nx\n",
            "is not xz data, but its format was given as csv.xz; use --input-format csv",
        ),
    ] {
        let ran = run(format, "-", &format!("--input-format {format}"), bytes).exits(3);
        ran.says(&["of 1 item, 1 was rejected, 0 filtered, 0 duplicates", &format!("standard input {part}")]);
    }
    for (options, part) in [
        ("", "--input-format"),
        ("--input-format parquet", "from its end"),
        ("--input-format jsonl --resume", "nothing to resume"),
        ("--input-format jsonl --resume", "/no --max-rejects N`"),
        ("--input-format jsonl --dedup exact", "twice"),
    ] {
        run("no", "-", options, b"{\"text\": \"x\"}\n").exits(2).says(&[part]);
        assert!(!dir.path().join("no").exists());
    }
    // A run with too many rejects keeps its finished unit, which can be merged.
    let half = b"{\"text\": \"x\"}\nno JSON\n".repeat(5);
    let ran = run("half", "-", "--input-format jsonl", &half).exits(3);
    let ran = ran.says(&["5 of 10 items were rejected", "dsconvert merge ", "/half --max-rejects N`"]);
    assert!(!ran.stderr.contains("--resume"), "{}", ran.stderr);
    let merge = command(["merge", "half", "--max-rejects", "60%"]).current_dir(dir.path()).output();
    Ran::of(merge.unwrap()).exits(0);
    assert_eq!(texts(&dir.path().join("half")).len(), 5);
}

#[test]
fn threads_and_kills_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    std::fs::create_dir(&source).unwrap();
    corpus(&source.join("a.jsonl"), 2000);
    let jsonl = std::fs::read(source.join("a.jsonl")).unwrap();
    std::fs::write(source.join("b.jsonl.zst"), compress(&jsonl, ".zst")).unwrap();
    let texts: Vec<String> = (0..3000).map(|i| format!("row {i} {}", "y".repeat(i % 97))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    std::fs::write(source.join("c.parquet"), parquet_file(&texts, 100)).unwrap();
    std::fs::write(source.join("d.arrow"), arrow_file(&texts[..300], false)).unwrap();
    let csv: String = texts.iter().map(|t| format!("\"{t}\n\"\n")).collect();
    std::fs::write(source.join("e.csv"), format!("text\n{csv}")).unwrap();
    let options = "--tokenizer bytes --unit-bytes 64k --shuffle --dedup exact --max-length 64 --overflow split:8 \
                   --split train=0.9,test=0.1";
    let run = |name: &str, operational: &str| {
        let out = dir.path().join(name);
        convert("text", &source, &out, &format!("{options} {operational}")).exits(0);
        tree(&out)
    };
    let one = run("one", "--threads 1");
    assert_same(&one, &run("three", "--threads 3"));
    assert!(manifest(&dir.path().join("one"))["duplicates"].as_u64().unwrap() >= 2000);
    let out = dir.path().join("killed");
    let mut kills = 0;
    for round in 0u64..200 {
        let mut command = command(["text"]);
        command.arg(&source).arg("--out").arg(&out).args(options.split_whitespace()).arg("--resume");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20 + round * 11));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 0, "the run was over before it could be killed");
    assert_same(&tree(&out), &one);
}

#[test]
fn documents_over_the_limit_are_rejected_in_every_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    // Larger than a single read, so that the rest has to be skipped.
    let long = "x".repeat(1 << 20);
    let fits = "y".repeat(900);
    let texts = ["one", &long, &fits, &long, "last"];
    let lines: String = texts.iter().map(|t| serde_json::json!({ "text": t }).to_string() + "\n").collect();
    let csv: String = texts.iter().map(|t| format!("\"{t}\"\n")).collect();
    let files: Vec<(&str, Vec<u8>, &str)> = vec![
        ("c.jsonl", lines.into_bytes(), ""),
        ("c.csv", format!("text\n{csv}").into(), ""),
        ("lines.txt", texts.join("\n").into(), "--documents line"),
        ("blank.txt", texts.join("\n\n").into(), "--documents blank-line"),
        ("separated.txt", texts.join("<|end|>").into(), "--documents separator:<|end|>"),
        ("c.parquet", parquet_file(&texts, 2), ""),
        ("c.arrow", arrow_file(&texts, true), ""),
    ];
    let run = |name: &str, bytes: &[u8], options: &str| {
        let source = dir.path().join(name);
        std::fs::write(&source, bytes).unwrap();
        let out = dir.path().join(format!("out-{name}"));
        let options = format!("--tokenizer bytes --max-document-bytes 1000 --max-rejects 90% {options}");
        convert("text", &source, &out, &options).exits(0);
        assert!(rejects(&out).iter().all(|(_, code)| code == "too-large"), "{name}: {:?}", rejects(&out));
        out
    };
    for (name, bytes, options) in files {
        let out = run(name, &bytes, options);
        assert_eq!(only_texts(&out), ["one", &fits, "last"], "{name}");
        assert_outcomes(&out, [3, 0, 0, 2]);
        if !name.ends_with("parquet") && !name.ends_with("arrow") {
            let compressed = run(&format!("{name}.gz"), &compress(&bytes, ".gz"), options);
            let origins = |out: &Path| {
                rejects(out).into_iter().map(|(o, _)| o.replace(".gz#", "#")).collect::<Vec<_>>()
            };
            assert_eq!(origins(&compressed), origins(&out), "{name}");
        }
    }
    let source = dir.path().join("whole");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a.txt"), &long).unwrap();
    std::fs::write(source.join("b.txt.xz"), compress(long.as_bytes(), ".xz")).unwrap();
    std::fs::write(source.join("c.txt.zst"), compress(fits.as_bytes(), ".zst")).unwrap();
    let out = dir.path().join("out");
    let options = "--tokenizer bytes --max-document-bytes 1000 --max-rejects 90%";
    convert("text", &source, &out, options).exits(0);
    assert_eq!(crate::support::texts(&out), [("whole/c.txt.zst".to_owned(), fits)]);
    let expected =
        ["whole/a.txt", "whole/b.txt.xz"].map(|origin| (origin.to_owned(), "too-large".to_owned()));
    assert_eq!(rejects(&out), expected);
}

#[test]
fn an_array_without_elements_has_no_items() {
    let dir = tempfile::tempdir().unwrap();
    let files =
        [("a.json", "[]"), ("b.json", " [\n]\n"), ("c.json", "[{\"text\": \"one\"},\n]"), ("d.json", "\n\n")];
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let out = dir.path().join("out");
    let mut command = command(["text"]);
    command.args(files.map(|(name, _)| dir.path().join(name))).arg("--out").arg(&out);
    Ran::of(command.args(["--tokenizer", "bytes"]).output().unwrap()).exits(0);
    assert_outcomes(&out, [1, 0, 0, 0]);
}

#[test]
fn a_source_without_documents_is_not_called_missing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("e.csv", "id,text\n"), ("e.jsonl", ""), ("e.json", "[]")] {
        std::fs::write(dir.path().join(name), text).unwrap();
        convert("text", &dir.path().join(name), &dir.path().join("out"), "--tokenizer bytes")
            .exits(3)
            .says(&["nothing was found", "there are no documents in 1 file"]);
    }
}
