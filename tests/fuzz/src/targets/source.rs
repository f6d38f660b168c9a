//! Sources of conversions: each case is a whole run of the command, in this process.
//!
//! A run that commits must leave a dataset that passes its own verification.

use std::path::{Path, PathBuf};

use dsconvert::reader::{Dataset, VerifyOptions, verify};
use parquet::file::properties::WriterVersion;

use super::{Input, Target, Verdict, files, fixture, tables};
use crate::Result;

/// Exit status of a run that was not committed, because everything was rejected.
const NOT_COMMITTED: u8 = 3;
/// Chat template of the sources with messages.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}\
                        {% if add_generation_prompt %}assistant:{% endif %}";
/// Maximum size of an image in the sources.
const MAX_IMAGE_BYTES: usize = 4 << 10;

pub(super) struct Sources {
    inputs: Vec<Input>,
    source: PathBuf,
    out: PathBuf,
    /// The command without its directories.
    command: Vec<String>,
    /// The option that names the input, unless it is the source itself.
    option: Option<&'static str>,
}

impl Sources {
    pub(super) fn new(kind: &str, scratch: &Path) -> Result<Self> {
        let source = scratch.join("source");
        std::fs::create_dir_all(&source)?;
        let text = ["text", "--tokenizer", "bytes"];
        let template = scratch.join("template.jinja");
        std::fs::write(&template, TEMPLATE)?;
        let template = template.to_string_lossy();
        let (inputs, command): (Vec<Input>, Vec<&str>) = match kind {
            "text" => (texts()?, text.into()),
            "text-zip" => (text_zips()?, text.into()),
            "table" => (documents()?, text.into()),
            "ids" => {
                let named =
                    ["--mask-field", "mask", "--labels-field", "labels", "--weights-field", "weights"];
                (ids()?, [&["text", "--ids-field", "ids"], &named[..]].concat())
            }
            "megatron" => (megatron(&source)?, vec!["text", "--ids-field", "ids", "--eod", "strip:3"]),
            "pairs" => {
                let named = [
                    "--chosen-field",
                    "chosen",
                    "--rejected-field",
                    "rejected",
                    "--chat-template",
                    &template,
                ];
                (pairs(), [&text[..], &named].concat())
            }
            "tar" => (tars()?, vec!["images", "--resize", "shorter:8"]),
            "tar-folders" => (folder_tars()?, vec!["images", "--resize", "shorter:8"]),
            "zip" => (zips()?, vec!["images", "--resize", "shorter:8"]),
            "metadata" => (metadata(&source)?, vec!["images"]),
            "annotations" => (annotations(&source)?, vec!["images", "--resize", "shorter:8"]),
            "tfrecord" => (tfrecords()?, vec!["images", "--resize", "shorter:8"]),
            _ => return Err(format!("unknown source `{kind}`").into()),
        };
        // Fields of arrays are only in arrow and parquet.
        let format = if matches!(kind, "ids" | "pairs") { "arrow" } else { "msgpack" };
        let options = ["--threads", "1", "--max-rejects", "100%", "--format", format, "--quiet"];
        let command = command.iter().chain(&options).map(|s| (*s).to_owned()).collect();
        let option = match kind {
            "metadata" => Some("--metadata"),
            "annotations" => Some("--annotations"),
            _ => None,
        };
        Ok(Self { inputs, source, out: scratch.join("out"), command, option })
    }

    fn run(&self, file: &Path) -> u8 {
        let mut argv: Vec<std::ffi::OsString> = vec!["dsconvert".into()];
        argv.extend(self.command.iter().map(Into::into));
        if let Some(option) = self.option {
            argv.extend([option.into(), file.into()]);
        }
        argv.extend([self.source.clone().into(), "--out".into(), self.out.clone().into()]);
        dsconvert::cli::run(argv)
    }
}

impl Target for Sources {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn check(&mut self, input: usize, bytes: &[u8]) -> Verdict {
        let _ = std::fs::remove_dir_all(&self.out);
        let file = self.source.join(&self.inputs[input].name);
        if let Err(e) = std::fs::write(&file, bytes) {
            return Verdict::Wrong(format!("the source cannot be written: {e}"));
        }
        let status = self.run(&file);
        let _ = std::fs::remove_file(&file);
        match status {
            0 => match Dataset::open(&self.out) {
                Ok(dataset) => {
                    let report = verify(&dataset, &VerifyOptions::default());
                    match report.problems.first() {
                        None => Verdict::Accepted,
                        Some(problem) => {
                            Verdict::Wrong(format!("the dataset does not pass its verification: {problem}"))
                        }
                    }
                }
                Err(e) => Verdict::Wrong(format!("the dataset cannot be opened: {e}")),
            },
            1 | 2 | NOT_COMMITTED => Verdict::Refused,
            other => Verdict::Wrong(format!("exit status {other}")),
        }
    }
}

fn texts() -> Result<Vec<Input>> {
    let jsonl = tables::jsonl("text", tables::text);
    let mut inputs = vec![
        Input { name: "a.csv".to_owned(), bytes: tables::csv("text", tables::text) },
        Input { name: "a.txt".to_owned(), bytes: tables::text(4).into_bytes() },
    ];
    for (extension, bytes) in tables::compressed(&jsonl)? {
        inputs.push(Input { name: format!("a.jsonl.{extension}"), bytes });
    }
    inputs.push(Input { name: "a.jsonl".to_owned(), bytes: jsonl });
    Ok(inputs)
}

fn documents() -> Result<Vec<Input>> {
    let parquet = |version| tables::parquet("text", tables::text, version);
    Ok(vec![
        Input { name: "one.parquet".to_owned(), bytes: parquet(WriterVersion::PARQUET_1_0)? },
        Input { name: "two.parquet".to_owned(), bytes: parquet(WriterVersion::PARQUET_2_0)? },
        Input { name: "a.arrow".to_owned(), bytes: tables::arrow_file("text", tables::text)? },
        Input { name: "b.arrow".to_owned(), bytes: tables::arrow_stream("text", tables::text)? },
    ])
}

/// Returns rows of token ids: whole ones, with bounds, and with padding.
fn ids() -> Result<Vec<Input>> {
    let row = |i: usize| {
        let more = match i % 3 {
            0 => "",
            1 => r#", "seq_lengths": [1, 3], "position_ids": [0, 0, 1, 2]"#,
            _ => r#", "attention_mask": [1, 1, 1, true]"#,
        };
        let lists = format!(r#""ids": [{i}, 7, 8, 9], "mask": [1, 0, true, 1], "labels": [{i}, -100, 8, 9]"#);
        format!(r#"{{{lists}, "weights": [1, 0.5, -2e3, 0]{more}}}"#)
    };
    let rows: Vec<String> = (0..9).map(row).collect();
    Ok(vec![Input { name: "rows.jsonl".to_owned(), bytes: rows.join("\n").into_bytes() }])
}

/// Returns preference pairs of messages: whole ones, with a tool turn, and with a prompt of several turns.
fn pairs() -> Vec<Input> {
    let message = |role: &str, content: &str| format!(r#"{{"role": "{role}", "content": "{content}"}}"#);
    let row = |i: usize| {
        let mut prompt = vec![message("user", &format!("question {i} é"))];
        if i % 3 == 1 {
            prompt.extend([message("assistant", "yes"), message("user", "and?")]);
        }
        let tool =
            if i % 3 == 2 { vec![message("assistant", "wait"), message("tool", "42")] } else { Vec::new() };
        let side = |answer: &str, more: &[String]| {
            [&prompt, more, &[message("assistant", answer)]].concat().join(", ")
        };
        format!(r#"{{"chosen": [{}], "rejected": [{}]}}"#, side("good", &tool), side("bad", &[]))
    };
    let rows: Vec<String> = (0..9).map(row).collect();
    vec![Input { name: "pairs.jsonl".to_owned(), bytes: rows.join("\n").into_bytes() }]
}

/// Returns the index of a dataset of Megatron, and writes its ids into `source`.
fn megatron(source: &Path) -> Result<Vec<Input>> {
    let ids: Vec<u8> = (0..12u16).flat_map(u16::to_le_bytes).collect();
    std::fs::write(source.join("data.bin"), ids)?;
    let (lengths, offsets, bounds) = ([3i32, 4, 0, 5], [0i64, 6, 14, 14], [0i64, 1, 3, 4]);
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend((lengths.len() as u64).to_le_bytes());
    index.extend((bounds.len() as u64).to_le_bytes());
    index.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    index.extend(offsets.iter().chain(&bounds).flat_map(|number| number.to_le_bytes()));
    Ok(vec![Input { name: "data.idx".to_owned(), bytes: index }])
}

/// Returns files that TensorFlow has written: with boxes, and compressed.
fn tfrecords() -> Result<Vec<Input>> {
    let mut found = files(&fixture("tfrecord"))?;
    found.retain(|file| file.name.starts_with("coco-train") || file.name.ends_with(".gz"));
    Ok(found)
}

/// Returns archives of text: stored, and deflated.
fn text_zips() -> Result<Vec<Input>> {
    let (jsonl, csv) = (tables::jsonl("text", tables::text), tables::csv("text", tables::text));
    let gzip = tables::compressed(&jsonl)?.into_iter().find(|(extension, _)| *extension == "gz");
    let text = tables::text(4).into_bytes();
    let mut files =
        vec![("a.jsonl".to_owned(), &jsonl[..]), ("b/b.csv".to_owned(), &csv), ("b/c.txt".to_owned(), &text)];
    if let Some((_, gzip)) = &gzip {
        files.push(("d.jsonl.gz".to_owned(), gzip));
    }
    Ok(vec![
        Input { name: "stored.zip".to_owned(), bytes: tables::zip(&files, false)? },
        Input { name: "deflated.zip".to_owned(), bytes: tables::zip(&files, true)? },
    ])
}

fn small_images() -> Result<Vec<Input>> {
    let mut images = files(&fixture("golden/v1/source/photos"))?;
    images.extend(files(&fixture("photos/signs"))?);
    images.retain(|image| image.bytes.len() <= MAX_IMAGE_BYTES);
    images.truncate(3);
    Ok(images)
}

/// Appends a member to a tar file.
fn append(tar: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    Ok(tar.append_data(&mut header, name, bytes)?)
}

/// Returns a tar file of image folders.
fn folder_tars() -> Result<Vec<Input>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (i, image) in small_images()?.iter().enumerate() {
        append(&mut tar, &format!("train/c{i}/{}.jpg", "long".repeat(15 * i)), &image.bytes)?;
    }
    Ok(vec![Input { name: "a.tar".to_owned(), bytes: tar.into_inner()? }])
}

/// Returns a tar file of samples.
fn tars() -> Result<Vec<Input>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (i, image) in small_images()?.iter().enumerate() {
        let extension = image.name.rsplit('.').next().unwrap_or("jpg");
        let seg = format!("seg.{extension}");
        let members: [(&str, &[u8]); 4] =
            [(extension, &image.bytes), (&seg, &image.bytes), ("cls", b"1"), ("json", br#"{"caption":"x"}"#)];
        for (extension, bytes) in members {
            append(&mut tar, &format!("part/sample-{i}.{extension}"), bytes)?;
        }
    }
    Ok(vec![Input { name: "a.tar".to_owned(), bytes: tar.into_inner()? }])
}

/// Returns archives of images: stored, and deflated.
fn zips() -> Result<Vec<Input>> {
    let images = small_images()?;
    let files: Vec<(String, &[u8])> = images
        .iter()
        .enumerate()
        .map(|(i, image)| (format!("train/c{i}/{i}.jpg"), &image.bytes[..]))
        .collect();
    Ok(vec![
        Input { name: "stored.zip".to_owned(), bytes: tables::zip(&files, false)? },
        Input { name: "deflated.zip".to_owned(), bytes: tables::zip(&files, true)? },
    ])
}

/// Writes the images that tables and annotations name.
fn write_images(source: &Path) -> Result<()> {
    let images = small_images()?;
    for (i, image) in images.iter().cycle().take(tables::ROWS).enumerate() {
        std::fs::write(source.join(format!("{i}.jpg")), &image.bytes)?;
    }
    Ok(())
}

/// COCO files with boxes and captions of the images in `source`.
fn annotations(source: &Path) -> Result<Vec<Input>> {
    write_images(source)?;
    let images: Vec<String> =
        (0..tables::ROWS).map(|i| format!(r#"{{"id": {i}, "file_name": "{i}.jpg"}}"#)).collect();
    let file = |name: &str, annotation: &dyn Fn(usize) -> String| {
        let annotations: Vec<String> = (0..2 * tables::ROWS).map(annotation).collect();
        let (images, annotations) = (images.join(", "), annotations.join(", "));
        let categories = r#"[{"id": 3, "name": "cat"}, {"id": 90, "name": "dog"}]"#;
        let json = format!(
            r#"{{"images": [{images}], "annotations": [{annotations}], "categories": {categories}}}"#
        );
        Input { name: name.to_owned(), bytes: json.into_bytes() }
    };
    let boxes = |at: usize| {
        let (image, category) = (at % tables::ROWS, if at.is_multiple_of(3) { 3 } else { 90 });
        format!(
            r#"{{"image_id": {image}, "category_id": {category}, "bbox": [{at}.5, 1, 7, 1e1], "iscrowd": 0}}"#
        )
    };
    let captions = |at: usize| format!(r#"{{"image_id": {}, "caption": "number {at}"}}"#, at % tables::ROWS);
    Ok(vec![file("instances.json", &boxes), file("captions.json", &captions)])
}

/// Returns tables that name images, and writes these images into `source`.
fn metadata(source: &Path) -> Result<Vec<Input>> {
    write_images(source)?;
    let name = |i: usize| format!("{i}.jpg");
    Ok(vec![
        Input { name: "metadata.csv".to_owned(), bytes: tables::csv("file_name", name) },
        Input { name: "metadata.jsonl".to_owned(), bytes: tables::jsonl("file_name", name) },
        Input {
            name: "metadata.parquet".to_owned(),
            bytes: tables::parquet("file_name", name, WriterVersion::PARQUET_1_0)?,
        },
        Input {
            name: "other.parquet".to_owned(),
            bytes: tables::parquet("file_name", name, WriterVersion::PARQUET_2_0)?,
        },
    ])
}
