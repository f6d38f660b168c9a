//! Sources in object storage give the same dataset as the same files in a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use objects::{Fault, Faults, Server};

use crate::images_sources::image;
use crate::support::*;
use crate::text_zip::zip;

/// A folder, and a bucket with the same files.
struct Sources {
    dir: tempfile::TempDir,
    server: Server,
}

impl Sources {
    fn new(faults: Faults) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), server: Server::start(0, faults).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file to the folder, and an object of the same name to the bucket.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        self.server.put(&format!("bucket/{name}"), bytes);
    }

    /// Runs `dsconvert ARGUMENTS…` in the folder, with access to the bucket; `arguments` is split at whitespace.
    fn run(&self, arguments: &str) -> Ran {
        let mut command = command(arguments.split_whitespace());
        command.current_dir(self.dir.path()).envs(self.server.environment());
        command.env("DSCONVERT_RETRY_SECONDS", "20");
        Ran::of(command.output().unwrap())
    }

    /// Converts `sources` from the folder and from the bucket, asserts that the datasets are equal, and returns the run
    /// from the bucket.
    #[track_caller]
    fn convert_both(&self, kind: &str, sources: &[&str], options: &str) -> Ran {
        let remote: Vec<String> = sources.iter().map(|source| format!("s3://bucket/{source}")).collect();
        for (out, sources) in [("local", sources.join(" ")), ("remote", remote.join(" "))] {
            let _ = std::fs::remove_dir_all(self.path(out));
            let ran = self.run(&format!("{kind} {sources} --out {out} --threads 3 {options}"));
            if out == "local" {
                ran.exits(0);
                continue;
            }
            let ran = ran.exits(0);
            assert_same(&tree(&self.path("local")), &tree(&self.path("remote")));
            return ran;
        }
        unreachable!()
    }
}

/// A tar archive of these files.
fn tar(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn sidecars_in_a_bucket_give_the_dataset_of_the_folder() {
    let sources = Sources::new(Faults { page: 7, ..Faults::usual(5, 1) });
    for number in 0..20 {
        sources.put(&format!("s/10_cat/{number}.JPG"), &image(number));
        if number % 4 > 0 {
            sources.put(&format!("s/10_cat/{number}.txt"), format!("caption {number}").as_bytes());
        }
    }
    let ran = sources.convert_both("images", &["s"], "");
    assert!(ran.stdout.contains("sidecars: txt beside 15 of 20 images (5 missing)"), "{}", ran.stdout);
    let rows: String = (0..20).map(|number| format!("{number},{number}\n")).collect();
    std::fs::write(sources.path("t.csv"), format!("id,n\n{rows}")).unwrap();
    let options = "--metadata t.csv --path-field id --sidecar txt,caption";
    let ran = sources.convert_both("images", &["s/10_cat"], options);
    assert!(ran.stdout.contains("sidecars: caption beside 0 of 20 images (20 missing)"), "{}", ran.stdout);
    let zipped = zip(&[("a.jpg", image(0)), ("a.txt", b"one".to_vec())], true);
    sources.put("z/images.zip", &zipped);
    sources.put("z/metadata.jsonl", b"{\"file_name\": \"a.jpg\", \"n\": 1}\n");
    sources.convert_both("images", &["z"], "");
}

#[test]
fn images_in_a_bucket_give_the_dataset_of_the_folder() {
    let sources = Sources::new(Faults { page: 7, ..Faults::usual(5, 1) });
    for number in 0..24 {
        let split = if number % 3 == 0 { "val" } else { "train" };
        let class = ["cat", "dog", "naïve & <co>"][number % 3 + usize::from(number > 12) * (2 - number % 3)];
        sources.put(&format!("photos/{split}/{class}/{number} +ä%.jpg"), &image(number));
    }
    sources.put("photos/train/cat/broken.jpg", &image(0)[..200]);
    sources.put("photos/train/cat/empty.jpg", b"");
    sources.put("photos/train/cat-notes.txt", b"not an image");
    sources.put("photos/train/.hidden.jpg", &image(1));
    sources.put("photos/.git/x.jpg", &image(1));
    // Folder markers, as web consoles create them.
    for marker in ["photos/", "photos/train/", "photos/train/cat/", "photos/none/"] {
        sources.server.put(&format!("bucket/{marker}"), b"");
    }
    sources.server.put("bucket/photos-of-others/x.jpg", image(2));
    let options = "--resize shorter:16 --max-rejects 3 --unit-bytes 65536 --shard-records 5";
    sources.convert_both("images", &["photos"], &format!("{options} --dedup bytes"));
    assert_eq!(manifest(&sources.path("remote"))["schema"]["class_names"].as_array().unwrap().len(), 3);
    assert_eq!(rejects(&sources.path("remote")).len(), 2);
    sources.convert_both("images", &["photos/"], &format!("{options} --shuffle --seed 4 --format arrow"));
    assert!(sources.server.counts().faults > 10);
}

#[test]
fn archives_and_tables_of_images_are_read_from_the_bucket() {
    let sources = Sources::new(Faults::usual(6, 2));
    let files: Vec<(String, Vec<u8>)> =
        (0..9).map(|number| (format!("c{}/{number}.jpg", number % 2), image(number))).collect();
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    sources.put("zips/a.zip", &zip(&files, false));
    sources.put("tars/a-00.tar", &tar(&files));
    let names: Vec<(&str, Vec<u8>)> = vec![("x.jpg", image(3)), ("x.cls", b"7".to_vec())];
    sources.put("tars/a-01.tar.zst", &zstd::encode_all(&tar(&names)[..], 1).unwrap());
    sources.convert_both("images", &["zips"], "--resize shorter:16");
    sources.convert_both("images", &["zips/a.zip"], "--resize shorter:16");
    sources.convert_both("images", &["tars"], "--resize shorter:16 --format msgpack");
    sources.convert_both("images", &["tars/a-{00..00}.tar"], "");
    // Datasets of images in Parquet and Arrow files.
    for format in ["parquet", "arrow"] {
        sources
            .run(&format!("images tars/a-00.tar --out {format} --shard-records 4 --format {format}"))
            .exits(0);
        for (name, bytes) in tree(&sources.path(&format!("{format}/train"))) {
            sources.put(&format!("{format}-tables/{name}"), &bytes);
        }
        sources.convert_both("images", &[&format!("{format}-tables")], "");
    }
}

#[test]
fn tables_and_lists_can_name_objects() {
    let sources = Sources::new(Faults { page: 10, ..Faults::usual(8, 3) });
    let mut table = "file_name,caption\n".to_owned();
    let mut list = "./i3.jpg\nnone.jpg\n../up.jpg\n".to_owned();
    for number in 0..45 {
        sources.put(&format!("photos/i{number}.jpg"), &image(number));
        table.push_str(&format!("i{number}.jpg,caption {number}\n"));
        list.push_str(&format!("i{}.jpg\n", number + 4));
    }
    std::fs::write(sources.path("list.txt"), list).unwrap();
    sources.convert_both(
        "images",
        &["photos"],
        "--resize shorter:16 --files-from list.txt --max-rejects 90%",
    );
    sources.put("photos/metadata.csv", format!("{table}gone.jpg,gone\n").as_bytes());
    sources.put("photos/beside.jpg", &image(1));
    let ran = sources.convert_both("images", &["photos"], "--resize shorter:16");
    assert!(ran.stdout.contains("metadata: s3://bucket/photos/metadata.csv"), "{}", ran.stdout);
    let no = "images s3://bucket/photos --out no";
    for option in ["--metadata", "--files-from", "--classes"] {
        sources
            .run(&format!("{no} {option} s3://bucket/photos/metadata.csv"))
            .exits(2)
            .says(&[option, "is a URL"]);
    }
}

#[test]
fn names_in_lists_and_tables_mean_the_same_everywhere() {
    let sources = Sources::new(Faults::default());
    let names = ["a.jpg", "b#1.jpg", "c?x=1.jpg", "d%41.jpg", "e f.jpg", "50%.jpg", "g\\h.jpg", "é.jpg"];
    for (number, name) in names.into_iter().enumerate() {
        sources.put(&format!("photos/{name}"), &image(number));
        sources.server.put(&format!("web/photos/{name}"), image(number));
    }
    let web = format!("{}/photos", sources.server.endpoint());
    let lines = names.join("\n");
    std::fs::write(sources.path("list.txt"), &lines).unwrap();
    std::fs::write(sources.path("table.csv"), format!("file_name\n{lines}\n")).unwrap();
    for option in ["--files-from list.txt", "--metadata table.csv"] {
        let _ = std::fs::remove_dir_all(sources.path("web"));
        sources.convert_both("images", &["photos"], option);
        sources.run(&format!("images {web} --out web {option}")).exits(0);
        assert_same(&tree(&sources.path("local")), &tree(&sources.path("web")));
    }
    // Names that are already encoded, and whole URLs.
    let encoded =
        format!("e%20f.jpg\nb%231.jpg\n{web}/d%2541.jpg\n{web}/g%5Ch.jpg\n%2e%2e/x.jpg\nd%2541x.jpg\n");
    std::fs::write(sources.path("list.txt"), encoded).unwrap();
    let from_list = format!("images {web} --files-from list.txt --max-rejects 90%");
    sources.run(&format!("{from_list} --out encoded")).exits(0);
    assert_outcomes(&sources.path("encoded"), [4, 0, 0, 2]);
    std::fs::write(sources.path("list.txt"), format!("a.jpg\n{web}/a.jpg?key=hunter2\n")).unwrap();
    let ran = sources.run(&format!("{from_list} --out no")).exits(2).says(&["photos/a.jpg: ", "`?`"]);
    assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
}

#[test]
fn texts_in_a_bucket_give_the_dataset_of_the_folder() {
    let sources = Sources::new(Faults::usual(5, 4));
    corpus(&sources.path("plain.jsonl"), 400);
    let text = std::fs::read(sources.path("plain.jsonl")).unwrap();
    sources.put("corpus/train/a.jsonl", &text);
    sources.put("corpus/train/b.jsonl.zst", &zstd::encode_all(&text[..9000], 1).unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"text,n\none,1\n\"two, three\",2\n").unwrap();
    sources.put("corpus/train/c.csv.gz", &gzip.finish().unwrap());
    for number in 0..40 {
        sources.put(
            &format!("corpus/val/t{number}.txt"),
            format!("Document {number}\n").repeat(number).as_bytes(),
        );
    }
    sources.put("corpus/val/notes.md", b"# Not read");
    sources.put("corpus/val/cut.jsonl.gz", b"\x1f\x8b\x08\0cut short");
    let options = "--tokenizer bytes --unit-bytes 4096 --max-rejects 50%";
    sources.convert_both("text", &["corpus"], options);
    assert_eq!(manifest(&sources.path("remote"))["splits"].as_object().unwrap().len(), 2);
    sources.convert_both(
        "text",
        &["corpus/train", "corpus/val"],
        &format!("{options} --shuffle --dedup exact"),
    );
    sources.convert_both("text", &["corpus/train/a.jsonl"], &format!("{options} --format protobuf"));
    sources.run("text corpus/train/a.jsonl --out ids --tokenizer bytes --format parquet").exits(0);
    assert!(sources.server.counts().faults > 10);
}

#[test]
fn tables_of_text_are_read_from_the_bucket() {
    use arrow_array::{RecordBatch, StringArray};
    let sources = Sources::new(Faults::usual(6, 5));
    // Larger than a single read.
    let texts: Vec<String> = (0..9000).map(|n| format!("{n} {}", "x".repeat(n % 1500))).collect();
    let column: arrow_array::ArrayRef = std::sync::Arc::new(StringArray::from(texts));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(4000))
        .set_dictionary_enabled(false)
        .build();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    sources.put("tables/a.parquet", &writer.into_inner().unwrap());
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch.slice(0, 100)).unwrap();
    sources.put("tables/b.arrow", &writer.into_inner().unwrap());
    sources.put("tables/damaged.parquet", b"PAR1 and nothing else PAR1");
    sources.put("tables/latin.txt", &b"caf\xe9 \x80\n".repeat(20_000));
    let options = "--tokenizer bytes --unit-bytes 2MiB --max-rejects 5 --encoding windows-1252";
    sources.convert_both("text", &["tables"], options);
}

#[test]
fn planning_downloads_only_the_start_of_texts() {
    use arrow_array::{RecordBatch, StringArray};
    let sources = Sources::new(Faults::default());
    let lines = format!("{{\"text\": \"{}\"}}\n", "x".repeat(200)).repeat(40_000).into_bytes();
    let column: arrow_array::ArrayRef = std::sync::Arc::new(StringArray::from(vec!["x".repeat(1000); 9000]));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let mut table = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    table.write(&batch).unwrap();
    let archive = zip(&[("a.jsonl", lines.clone()), ("b.jsonl", lines.clone())], false);
    for (name, bytes) in [("a.jsonl", lines), ("a.zip", archive), ("a.arrow", table.into_inner().unwrap())] {
        assert!(bytes.len() > 8 << 20, "{name}");
        sources.server.put(&format!("bucket/{name}"), bytes);
        let before = sources.server.counts().sent;
        sources.run(&format!("plan text s3://bucket/{name} --out {name}.out --tokenizer bytes")).exits(0);
        let sent = sources.server.counts().sent - before;
        assert!(sent < 1 << 20, "{sent} bytes of {name}");
    }
}

#[test]
fn files_on_web_servers_are_read_by_url() {
    let sources = Sources::new(Faults::usual(7, 6));
    corpus(&sources.path("a b.jsonl"), 90);
    let text = std::fs::read(sources.path("a b.jsonl")).unwrap();
    sources.server.put("web/files/a b.jsonl", text);
    let address = format!("{}/files", sources.server.endpoint());
    sources.run(&format!("text x={address}/a%20b.jsonl --out web --tokenizer bytes")).exits(0);
    std::fs::rename(sources.path("a b.jsonl"), sources.path("a.jsonl")).unwrap();
    sources.run("text x=a.jsonl --out local --tokenizer bytes").exits(0);
    assert_same(&tree(&sources.path("local")), &tree(&sources.path("web")));
    for (source, message) in [
        (format!("{address}/none.jsonl"), "no such source"),
        (format!("{address}/a%20b.jsonl?key=hunter2"), "must not contain `?`"),
        (format!("{address}/*.jsonl"), "patterns"),
        ("ftp://host/x".into(), "unsupported scheme ftp://"),
        ("s3://bucket/none".into(), "no such source"),
        ("s3://nowhere/none".into(), "no such"),
        ("s3://bucket/*/x".into(), "patterns"),
    ] {
        let ran = sources.run(&format!("text {source} --out no --tokenizer bytes"));
        assert!(matches!(ran.status, 2 | 3), "{ran:?}");
        assert!(ran.stderr.contains(message) && !ran.stderr.contains("hunter2"), "{source}: {}", ran.stderr);
        assert!(!sources.path("no").is_dir(), "{source}");
    }
}

#[test]
fn keys_that_are_not_paths_are_skipped_and_named() {
    let sources = Sources::new(Faults::default());
    sources.put("photos/a.jpg", &image(0));
    sources.server.put("bucket/photos/x//y.jpg", image(1));
    sources.server.put("bucket/photos/x/../z.jpg", image(2));
    sources.run("images photos --out local --format msgpack").exits(0);
    let ran = sources.run("images s3://bucket/photos --out remote --format msgpack").exits(0);
    ran.says(&["2 objects are left out", "s3://bucket/photos/x/../z.jpg"]);
    assert_eq!(records(&sources.path("remote")), records(&sources.path("local")));
    assert_eq!(manifest(&sources.path("remote"))["sources"]["skipped"], 2);
    sources.put("texts/a.txt", b"text");
    sources.server.put("bucket/texts//b.txt", b"text");
    let ran = sources.run("text s3://bucket/texts --out texts-out --tokenizer bytes").exits(0);
    ran.says(&["1 object is left out", "s3://bucket/texts//b.txt"]);
    sources.server.delete("bucket/texts/a.txt");
    sources
        .run("text s3://bucket/texts --out none --tokenizer bytes")
        .exits(3)
        .says(&["s3://bucket/texts//b.txt"]);
}

#[test]
fn an_object_that_changes_fails_its_unit_and_the_others_are_kept() {
    let sources = Sources::new(Faults::default());
    for number in 0..12 {
        sources.put(&format!("photos/{number:02}.jpg"), &image(number));
    }
    let options = "--unit-bytes 4096 --format msgpack";
    sources.run(&format!("images photos --out whole {options}")).exits(0);
    sources.run(&format!("plan images s3://bucket/photos --out out {options}")).exits(0);
    // One object is replaced by another of the same size, and one is deleted.
    let mut other = image(3);
    *other.last_mut().unwrap() ^= 1;
    sources.server.put("bucket/photos/03.jpg", other);
    sources.server.delete("bucket/photos/05.jpg");
    let ran = sources.run("run out").exits(3).says(&["2 of 12 units failed", "photos/0", "again"]);
    assert_eq!(ran.stderr.matches("s3://bucket/photos/0").count(), 1, "{}", ran.stderr);
    sources.server.put("bucket/photos/03.jpg", image(3));
    sources.run("run out").exits(3).says(&["1 of 2 units failed", "photos/05.jpg", "no such object"]);
    sources.server.put("bucket/photos/05.jpg", image(5));
    sources.run("run out").exits(0);
    sources.run("merge out").exits(0);
    assert_same(&tree(&sources.path("whole")), &tree(&sources.path("out")));

    let denied =
        Faults { only: Some("07.jpg".into()), kinds: vec![Fault::Denied], one_in: 1, ..Faults::default() };
    sources.server.set_faults(denied);
    let again = format!("images s3://bucket/photos --out again {options}");
    sources.run(&again).exits(3).says(&["1 of ", "photos/07.jpg", "credentials"]);
    sources.server.set_faults(Faults::default());
    sources.run(&format!("{again} --resume")).exits(0);
    assert_same(&tree(&sources.path("whole")), &tree(&sources.path("again")));
}

#[test]
fn a_server_that_stops_answering_ends_the_run_which_can_be_resumed() {
    let sources = Sources::new(Faults::default());
    for number in 0..60 {
        sources.put(&format!("texts/{number:02}.txt"), format!("text {number} ").repeat(400).as_bytes());
    }
    let options = "--tokenizer bytes --unit-bytes 4096";
    sources.run(&format!("text texts --out whole {options}")).exits(0);
    let before = sources.server.counts().requests;
    sources.server.set_faults(Faults { dies_after: Some(before + 30), ..Faults::default() });
    let arguments = format!("text s3://bucket/texts --out out {options}");
    let mut run = command(arguments.split_whitespace());
    run.current_dir(sources.dir.path())
        .envs(sources.server.environment())
        .env("DSCONVERT_RETRY_SECONDS", "1");
    Ran::of(run.output().unwrap()).exits(3).says(&["units failed", "--resume"]);
    let requests = sources.server.counts().requests - before;
    assert!(requests < 400, "{requests} requests to a server that does not answer");
    sources.server.set_faults(Faults::default());
    sources.run(&format!("{arguments} --resume")).exits(0);
    assert_same(&tree(&sources.path("whole")), &tree(&sources.path("out")));
}

#[test]
fn a_plan_stores_urls_but_no_secrets() {
    let sources = Sources::new(Faults::default());
    sources.put("photos/a.jpg", &image(0));
    sources.run("plan images x=s3://bucket/photos/ --out out").exits(0);
    let files: Vec<String> = tree(&sources.path("out"))
        .values()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .collect();
    assert!(files.iter().any(|text| text.contains("s3://bucket/photos")));
    // The access key and the secret key of the test server are both `test`.
    assert!(!files.iter().any(|text| text.contains("\"test\"")), "{files:?}");
    assert!(Path::new(&sources.path("out")).join(".dsconvert").is_dir());
}
