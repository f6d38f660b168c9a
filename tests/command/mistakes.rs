//! Mistakes that newcomers make: each has one message that says what to do, and one exit status.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::support::*;

/// Arguments of `dsconvert`, split at whitespace; the exit status; parts of the message.
type Mistake = (&'static str, i32, &'static [&'static str]);

const VALUES: &[Mistake] = &[
    ("images photos --out o --resize 256", 2, &["--resize", "\"256\"", "did you mean shorter:256?"]),
    ("images photos --out o --encode jpg:90", 2, &["--encode", "\"jpg:90\"", "did you mean jpeg:90?"]),
    ("images photos --out o --threads all", 2, &["'all'", "leave --threads out to use all cores"]),
    ("images photos --out o --threads 0", 2, &["--threads 0", "at least one"]),
    ("inspect photos --verify --threads 0", 2, &["--threads 0", "at least one"]),
    ("inspect photos --verify --threads 100000", 2, &["--threads 100000", "at most 1024"]),
    ("text corpus --out o -t bytes --report-batch 0", 2, &["'0'", "--report-batch <RECORDS>"]),
    ("images photos --out o --threads 100000", 2, &["--threads 100000", "at most 1024"]),
    (
        "images photos --out o --image-fields label=seg.png",
        2,
        &["--image-fields", "\"label\" is the name of another"],
    ),
    (
        "text corpus --out o -t bytes --pack 64 --max-length 32 --overflow split",
        2,
        &["--overflow split excludes --pack", "leave out one of them"],
    ),
    ("text corpus --out o -t bytes --pack 2k", 2, &["'2k'", "a whole number without a unit, such as 2048"]),
    ("images photos --out o --max-aspect wide", 2, &["'wide'", "write a number, such as 2.5"]),
    ("images photos --out o --format mds", 2, &["'mds'", "parquet, arrow, msgpack, protobuf", "tools read"]),
    ("images photos --out o --format parqet", 2, &["'parqet'", "'parquet'"]),
    ("images photos --out o --split 0.9,0.1", 2, &["--split: \"0.9,0.1\"", "train=0.9,validation=0.1"]),
    ("images photos --out o --memory 1X", 2, &["--memory", "\"1X\"", "256MiB"]),
    ("images photos --out o --dry-run --sample 3", 2, &["sample of 3", "at least 10"]),
    ("images photos --out o --sample 30", 2, &["--dry-run"]),
    (
        "images photos --out o --seed 3",
        2,
        &["--seed applies only to --shuffle and --split", "leave out --seed"],
    ),
    ("plan images photos --out o --seed 0", 2, &["--seed applies only to --shuffle and --split"]),
    ("text corpus --out o -t bytes --seed 3", 2, &["--seed applies only to --shuffle and --split"]),
    ("images photos --out o --enlarge", 2, &["--enlarge applies only to --resize", "--resize shorter:256"]),
    ("images photos --out o --resize none --filter box", 2, &["--filter applies only to --resize"]),
    ("plan images photos --out o --filter lanczos3", 2, &["--filter applies only to --resize"]),
    ("bench photos --enlarge", 2, &["--enlarge applies only to --resize"]),
    (
        "images photos --out o --encode png --color rgba --pad 9x9 --background black",
        2,
        &["--background has no effect with --color rgba", "--pad sets the color of the padding"],
    ),
    (
        "images photos --out o --metadata none --path-field x",
        2,
        &["--path-field chooses columns of --metadata", "leave it out with --metadata none"],
    ),
    ("images photos --ouput o", 2, &["unexpected argument '--ouput'", "a similar argument exists: '--out'"]),
    ("text corpus --out o -t bytes --sep ;", 2, &["'--sep'", "commas in .csv and by tabs in .tsv"]),
    ("text corpus --out o -t bytes --num-shards 4", 2, &["'--num-shards'", "--shard-bytes 256MiB"]),
    ("text corpus --out o -t bytes --report-tokens 18446744073709551615", 2, &["--report-tokens <TOKENS>"]),
    (
        "plan text corpus --out o -t bytes --report-tokens 99",
        2,
        &["--report-tokens", "a plan", "inspect --html"],
    ),
    (
        "text corpus --out s3://b/o -t bytes --report-batch 8",
        2,
        &["--report-batch does not apply to output in object storage", "inspect --html"],
    ),
];

const PATHS: &[Mistake] = &[
    ("images nothing-here --out o", 2, &["nothing-here: there is no such source"]),
    (
        "images ftp://host/photos --out o",
        2,
        &["SRC: \"ftp://host/photos\" has the unsupported scheme ftp://", "s3://, gs://, az:// or https://"],
    ),
    (
        "images photos --out ftp://host/o",
        2,
        &["--out: \"ftp://host/o\" has the unsupported scheme ftp://", "starts with s3://"],
    ),
    (
        "images photos --out https://host/o",
        2,
        &["--out: a dataset cannot be written to a web server", "s3://"],
    ),
    ("run https://host/o", 2, &["DIR: a dataset cannot be written to a web server", "s3://"]),
    ("merge ftp://host/o", 2, &["DIR: \"ftp://host/o\" has the unsupported scheme"]),
    ("status s3://", 2, &["DIR: \"s3://\" has no bucket"]),
    (
        "images photos --out o --scratch x",
        2,
        &["--scratch applies only to an output in object", "leave it out"],
    ),
    ("plan images photos --out o --scratch s3://bucket/x", 2, &["--scratch", "is a URL"]),
    ("run unfinished --source photos=", 2, &["--source: the source \"photos\" has no path", "photos=PATH"]),
    ("images photos= --out o", 2, &["SRC: the source \"photos\" has no path", "photos=PATH"]),
    ("run unfinished --scratch x", 2, &["--scratch applies only to an output in object storage"]),
    ("merge unfinished --scratch x", 2, &["--scratch applies only to an output in object storage"]),
    ("status unfinished --scratch x", 2, &["--scratch applies only to an output in object storage"]),
    ("images photos --out s3://bucket/o --overwrite", 2, &["cannot be overwritten", "another prefix"]),
    ("images photos --out s3://bucket/o --resume=verify", 2, &["only be checked by size"]),
    ("images photos --out s3://bucket/o --scratch s3://bucket/x", 2, &["--scratch", "is a URL"]),
    ("images photos --out photos", 2, &["overlap", "not inside a source"]),
    ("images photos --out tokenizer.json", 2, &["not a directory", "another --out"]),
    ("images photos --out o --files-from photos", 2, &["--files-from: this is a folder", "name it as SRC"]),
    (
        "images photos --out o --classes photos",
        2,
        &["--classes: this is a folder", "one class name per line"],
    ),
    ("images --metadata photos --out o", 2, &["--metadata: this is a folder", "a folder of images is SRC"]),
    ("text --files-from corpus --out o -t bytes", 2, &["--files-from: this is a folder"]),
    ("inspect nothing-here", 3, &["nothing-here: cannot find the dataset", "that dsconvert has written"]),
    ("inspect photos", 3, &["photos: there is no manifest.json", "a folder of images: convert it first"]),
    ("inspect unfinished", 3, &["has not finished", "--resume"]),
    ("bench unfinished", 3, &["has not finished", "--resume"]),
    ("inspect tokenizer.json", 3, &["tokenizer.json", "pass a shard or the directory of a dataset"]),
];

const TYPES: &[Mistake] = &[
    ("images empty --out o", 3, &["nothing was found to convert in empty; there are no files"]),
    ("images manuals --out o", 3, &["2 files were skipped: 1 .md, 1 .pdf", "check the sources"]),
    ("images corpus --out o", 3, &["nothing was found", ".txt", "`dsconvert text`"]),
    ("text manuals --out o -t bytes", 3, &["1 .md, 1 .pdf", "extract the text"]),
    ("text code --out o -t bytes", 3, &["code; 2 files were skipped: 1 .md, 1 .rs", "--input-format txt"]),
    (
        "text code/a.rs --out o -t bytes",
        2,
        &["code/a.rs: unknown type of text file", "add --input-format txt", ".jsonl"],
    ),
    (
        "images heics --out o",
        3,
        &[
            "heics/a.heic: HEIF images cannot be read",
            "convert them to PNG first, for example with `heif-convert IN.heic OUT.png`",
        ],
    ),
    ("images zips --out o", 2, &["zips/a.zip: the zip archive cannot be read", "unzip -t"]),
    ("text zips --out o -t bytes", 2, &["zips/a.zip: the zip archive cannot be read", "unzip -t"]),
    ("text pictures --out o -t bytes", 3, &["1 file was skipped: 1 .jpg", "`dsconvert images`"]),
    (
        "text links --out o -t bytes",
        3,
        &["2 files were skipped: 1 special, 1 symbolic link", "--follow-symlinks"],
    ),
    ("images links --out o", 3, &["1 special, 1 symbolic link", "--follow-symlinks"]),
    ("bench links", 2, &["nothing in the folder can be read; skipped: 1 special, 1 symbolic link"]),
    ("text tars --out o -t bytes", 3, &["1 file was skipped: 1 .tar.gz", "unpack archives first"]),
    ("images photos --files-from none.txt --out o", 3, &["the list of files names none"]),
    ("images photos --classes none.txt --out o", 2, &["none.txt: --classes: the file names no class"]),
    ("images photos --metadata none.csv --out o", 3, &["the table names no files"]),
    ("images torn --out o", 3, &["of 1 item, 1 was rejected", "torn/a.parquet", "(corrupt)"]),
    ("inspect foreign.parquet", 3, &["foreign.parquet: the file is not a dsconvert shard"]),
];

const TOKENIZERS: &[Mistake] = &[
    (
        "text corpus --out o -t gpt2",
        2,
        &["looked for gpt2, ", "models--gpt2", "tiktoken.get_encoding('gpt2')"],
    ),
    (
        "text corpus --out o -t org/m",
        2,
        &["models--org--m", "from_pretrained('org/m').save_pretrained('DIR')"],
    ),
    ("text corpus --out o -t none.json", 2, &["looked for none.json\n", "a SentencePiece .model"]),
    ("text corpus --out o -t photos", 2, &["photos: the folder has no tokenizer", "tokenizer.json, "]),
    (
        "text corpus --out o -t model.model",
        2,
        &["model.model: the file is not a SentencePiece", "git lfs pull"],
    ),
    ("text corpus --out o -t cl100k_base.tiktoken", 2, &["no token is the single byte 0x00", "git lfs pull"]),
    (
        "text corpus --out o -t my.tiktoken",
        2,
        &["no pre-tokenization pattern", "--tokenizer cl100k_base:my.tiktoken"],
    ),
    ("text corpus --out o -t vocab.json", 2, &["only a part of a tokenizer", "save_pretrained('DIR')"]),
];

const SEPARATORS: &[Mistake] = &[
    (
        "text semicolons.csv --out o -t bytes",
        2,
        &["\"id;text\"", "separated by semicolons", "convert the file"],
    ),
    ("text tabs.csv --out o -t bytes", 2, &["separated by tabs", "a .tsv file tabs"]),
    ("text commas.tsv --out o -t bytes", 2, &["separated by commas", "a .csv file has commas"]),
    ("text content.csv --out o -t bytes", 2, &["add --text-field content"]),
];

/// Run for each kind of table, which replaces `TABLE` and has the columns `content` and `id`.
const FIELDS: &[Mistake] = &[
    ("text TABLE --out o -t bytes", 2, &["TABLE: --text-field: ", "\"text\"", "\"content\", \"id\""]),
    (
        "text TABLE --out o -t bytes --text-field contnet",
        2,
        &["TABLE: --text-field: ", "\"contnet\"", "did you mean \"content\"?"],
    ),
    (
        "text TABLE --out o -t bytes --text-field content --key-field ids",
        2,
        &["TABLE: --key-field: ", "\"ids\"", "did you mean \"id\"?"],
    ),
    (
        "text TABLE --out o -t bytes --text-field content --keep-fields idd",
        2,
        &["TABLE: --keep-fields: ", "\"idd\"", "did you mean \"id\"?"],
    ),
    (
        "images photos --metadata TABLE --path-field contnt --out o",
        2,
        &["TABLE: --path-field: ", "\"contnt\"", "did you mean \"content\"?"],
    ),
    (
        "images photos --metadata TABLE --path-field content --keep-fields idd --out o",
        2,
        &["TABLE: --keep-fields: ", "\"idd\"", "did you mean \"id\"?"],
    ),
];

fn put(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Runs the command of a mistake, and compares its exit status and message.
fn check(dir: &Path, (line, status, parts): &Mistake, table: &str) {
    let line = line.replace("TABLE", table);
    let mut command = command(line.split_whitespace());
    command.env("HF_HUB_CACHE", "hub").env("TIKTOKEN_CACHE_DIR", "ranks");
    let ran = Ran::of(command.current_dir(dir).output().unwrap());
    assert_eq!(ran.status, *status, "{line}\n{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{line}\n{}", ran.stderr);
    for part in *parts {
        let part = part.replace("TABLE", table);
        assert!(ran.stderr.contains(&part), "{line}\n{part:?} is not in: {}", ran.stderr);
    }
    assert!(!dir.join("o").exists(), "{line}");
}

fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("content", Arc::new(StringArray::from(vec!["x", "y"]))),
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The rows as Parquet. Some programs, such as pyarrow, write no page index.
fn parquet(has_index: bool) -> Vec<u8> {
    let statistics = if has_index { EnabledStatistics::Page } else { EnabledStatistics::Chunk };
    let options = WriterProperties::builder()
        .set_statistics_enabled(statistics)
        .set_offset_index_disabled(!has_index)
        .build();
    let mut parquet = ArrowWriter::try_new(Vec::new(), rows().schema(), Some(options)).unwrap();
    parquet.write(&rows()).unwrap();
    parquet.into_inner().unwrap()
}

#[test]
fn every_mistake_has_a_message_that_helps() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    copy_dir(&fixture("photos"), &dir.join("photos"));
    put(dir, "corpus/a.txt", b"text");
    put(dir, "tokenizer.json", b"{}");
    put(dir, "unfinished/.dsconvert/plan.jsonl", b"");
    put(dir, "manuals/a.pdf", b"x");
    put(dir, "manuals/b.md", b"x");
    put(dir, "code/a.rs", b"fn main() {}");
    put(dir, "code/b.md", b"# x");
    put(dir, "pictures/a.jpg", b"x");
    put(dir, "heics/a.heic", b"\0\0\0\x20ftypheic\0\0\0\0heicmif1");
    put(dir, "zips/a.zip", b"PK\x03\x04 and no directory");
    put(dir, "model.model", b"version https://git-lfs.github.com/spec/v1\n");
    put(dir, "cl100k_base.tiktoken", b"IQ== 0\n");
    put(dir, "my.tiktoken", b"IQ== 0\n");
    put(dir, "vocab.json", b"{}");
    std::fs::create_dir(dir.join("empty")).unwrap();
    std::fs::create_dir(dir.join("links")).unwrap();
    std::os::unix::fs::symlink("../corpus/a.txt", dir.join("links/a.txt")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.join("links/socket")).unwrap();
    put(dir, "tars/a.tar.gz", b"x");
    put(dir, "none.txt", b"");
    put(dir, "none.csv", b"file_name,label\n");
    put(dir, "torn/a.parquet", b"PAR1 and no footer");
    put(dir, "semicolons.csv", b"id;text\n1;a\n");
    put(dir, "tabs.csv", b"id\ttext\n1\ta\n");
    put(dir, "commas.tsv", b"id,text\n1,a\n");
    put(dir, "content.csv", b"content\na\n");
    put(dir, "foreign.parquet", &parquet(false));
    for mistake in [VALUES, PATHS, TYPES, TOKENIZERS, SEPARATORS].into_iter().flatten() {
        check(dir, mistake, "");
    }
    put(dir, "a.jsonl", b"{\"content\": \"x\", \"id\": 1}\n{\"content\": \"y\", \"id\": 2}\n");
    put(dir, "a.csv", b"content,id\nx,1\ny,2\n");
    put(dir, "a.tsv", b"content\tid\nx\t1\ny\t2\n");
    put(dir, "a.parquet", &parquet(true));
    let batch = rows();
    let mut arrow = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    put(dir, "a.arrow", &arrow.into_inner().unwrap());
    for table in ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.arrow"] {
        for mistake in FIELDS {
            // Arrow files are not supported as metadata tables.
            if !(table == "a.arrow" && mistake.0.starts_with("images")) {
                check(dir, mistake, table);
            }
        }
    }
}
