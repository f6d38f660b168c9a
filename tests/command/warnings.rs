//! The warnings of plans: code, message, values and remedies of each one.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
use dsconvert::options::{Defined, OutputOptions, SourceSpec};
use dsconvert::pipeline::{ImageInput, ImagesJob, ImagesOptions, TextInput, TextJob, TextOptions, Warning};
use dsconvert::recipe::{ImagesRecipe, TextRecipe};
use dsconvert::source::items::metadata::placed::MetadataFile;
use dsconvert::source::list::files_from::FilesFrom;
use dsconvert::transform::text::{Tokenizer, TokenizerOptions};

use crate::images_sources::image;
use crate::images_tar::Tar;
use crate::text_zip::zip;

/// The warnings of the cases below, in the form of [`shown`].
const EXPECTED: &str = include_str!("warnings.txt");

/// Files to convert, each with its content after a space, and the arguments. A file without content whose name is that of
/// an image is one.
const CASES: &[(&[&str], &str)] = &[
    // Splits.
    (&["s/Train/a.jpg", "s/testing/b.jpg"], "images s"),
    (&["s/train/a.txt", "s/val/b.txt", "s/extra/c.txt", "s/d.txt"], "text s"),
    (&["train/a.txt", "test/a.txt", "other/a.txt"], "text train test other"),
    (&["s/a.txt", "s/TEST.txt"], "text s"),
    (&["s/x/train/1.jpg", "s/x/val/2.jpg", "s/x/my stuff/3.jpg"], "images s"),
    (&["s/aeroplane/a.jpg", "s/train/b.jpg"], "images s"),
    (&["s/train_station/1.jpg", "s/bullet_train/1.jpg", "s/test_tube/3.jpg"], "images s"),
    (&["s/train_station/1.jpg", "s/bullet_train/1.jpg", "s/test_tube/3.jpg", "s/cat/1.jpg"], "images s"),
    (&["s/x/bullet_train/bullet_train_1.jpg", "s/x/test_tube/test_tube_1.jpg"], "images s"),
    (&["s/cooking/1.txt", "s/test_tube/2.txt"], "text s"),
    (&["s/cooking/1.txt", "s/test_dish/1.txt", "s/test_tube/2.txt"], "text s"),
    (&["s/trainA/1.jpg", "s/testA/2.jpg"], "images s"),
    (&["s/train/train_1.jpg", "s/train/val_2.jpg"], "images s"),
    (&["DIV2K_valid_HR/1.jpg"], "images DIV2K_valid_HR"),
    (&["val2017/1.jpg"], "images val2017"),
    (&["bullet_train/1.jpg", "test_tube/2.jpg"], "images bullet_train test_tube"),
    (&["test/1.txt", "other/2.txt"], "text test other"),
    (
        &[
            "s/README.md ---\nconfigs:\n- config_name: default\n  data_files: a.jsonl\n- config_name: more\n  \
             data_files: b.jsonl\n---\n",
            "s/a.jsonl {\"text\": \"a\"}",
            "s/b.jsonl {\"text\": \"b\"}",
        ],
        "text s",
    ),
    // Classes.
    (&["s/cat/train/1.jpg", "s/cat/test/1.jpg", "s/dog/train/1.jpg"], "images s"),
    (&["s/train/cat/1.jpg", "s/train/dog/1.jpg", "s/val/images/1.jpg"], "images s"),
    (&["s/train/cat/1.jpg", "s/test/unknown/1.jpg", "s/val/cat/1.jpg"], "images s"),
    (
        &["s/train/a.jpg", "s/val/b.jpg", "s/metadata.csv file_name,label\ntrain/a.jpg,cat\nval/b.jpg,dog\n"],
        "images s",
    ),
    (&["s/a/cat/1.jpg", "s/b/cat/1.jpg"], "images s"),
    (&["s/a/cat/1.jpg", "s/b/cat/1.jpg", "s/a/dog/1.jpg", "s/b/dog/1.jpg"], "images s"),
    (&["s/training/image_2/1.jpg", "s/training/image_3/1.jpg"], "images s"),
    (&["s/JPEGImages/1.jpg", "s/SegmentationClass/1.png"], "images s"),
    (&["s/images/1.jpg", "s/masks/1.png", "s/labels/1.png"], "images s"),
    (&["s/cat1-condlabel.png", "s/cat1-masklabel.png", "s/cat1.jpg"], "images s"),
    (&["s/x_mask.png", "s/x.jpg"], "images s"),
    (&["s/HAM_images_part_1/a.jpg", "s/HAM_images_part_2/b.jpg"], "images s"),
    (&["s/batch1/cat/a.jpg", "s/batch2/dog/b.jpg"], "images s"),
    (&["s/2023/cat/a.jpg", "s/2024/dog/b.jpg"], "images s"),
    (&["s/2024-05/a.jpg", "s/2024-06-01/b.jpg"], "images s"),
    (&["s/a/airfield/1.jpg", "s/a/alley/1.jpg", "s/b/bar/out/1.jpg", "s/b/beach/1.jpg"], "images s"),
    (&["s/meta/train.txt cat/1\n", "s/cat/1.jpg", "s/dog/2.jpg"], "images s"),
    (&["s/1/1.jpg", "s/10/1.jpg", "s/2/1.jpg"], "images s"),
    (&["s/a.jpg", "s/b.jpg", "t.csv file_name,label\na.jpg,3.5\nb.jpg,4\n"], "images s --metadata t.csv"),
    (&["s/a.jpg", "t.csv file_name,label\na.jpg,3.5\n"], "images s --metadata t.csv"),
    (&["s/10_cat/1.jpg", "s/3_red dog/2.jpg"], "images s"),
    (&["s/train/10_cat/1.jpg", "s/val/10_cat/2.jpg"], "images s"),
    // Metadata and sidecars.
    (&["s/x/a.jpg", "t.csv file_name\na.jpg\n"], "images s --metadata t.csv"),
    (&["s/x/a.jpg", "s/b.jpg", "s/y/c.jpg", "t.csv file_name\na.jpg\nc.jpg\n"], "images s --metadata t.csv"),
    (&["s/metadata.csv file_name\na.jpg\n", "s/a.tar"], "images s"),
    (&["s/a.jpg", "s/b.jpg", "s/metadata.csv file_name\na.jpg\n"], "images s"),
    (&["s/a.jpg", "s/b.jpg", "s/c.jpg", "s/metadata.csv file_name\na.jpg\n"], "images s"),
    (&["s/x/a.jpg", "s/y/b.jpg", "s/metadata.csv file_name,t\nx/a.jpg,1\ny/b.jpg,2\n"], "images s"),
    (
        &[
            "s/train/x/a.jpg",
            "s/train/y/b.jpg",
            "s/val/x/b.jpg",
            "s/val/y/b.jpg",
            "s/metadata.csv file_name\ntrain/x/a.jpg\ntrain/y/b.jpg\nval/x/b.jpg\nval/y/b.jpg\n",
        ],
        "images s",
    ),
    (&["s/a.jpg", "s/a.txt a", "list.txt a.jpg\n"], "images s --files-from list.txt"),
    (&["s/a.jpg", "s/a.txt a"], "images s/a.jpg"),
    (&["s/a.jpg", "s/m/a.png", "s/m/b.png"], "images s --companion mask=m/{stem}.png"),
    (&["s/a.jpg", "s/m/a.png", "s/m/b.png", "s/m/c.png"], "images s --companion mask=m/{stem}.png"),
    // Annotations.
    (
        &[
            "s/a.jpg",
            "c.json {\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": \"b.jpg\"}], \
             \"annotations\": [{\"image_id\": 1, \"bbox\": [0, 0, 2, 2], \"category_id\": 1}, {\"image_id\": 7, \"bbox\": \
             [0, 0, 2, 2], \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"cat\"}]}",
        ],
        "images s --annotations c.json",
    ),
    (
        &[
            "s/a.jpg",
            "s/d.jpg",
            "c.json {\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": \"b.jpg\"}, {\"id\": 3, \
             \"file_name\": \"c.jpg\"}], \"annotations\": [{\"image_id\": 1, \"bbox\": [0, 0, 2, 2], \"category_id\": 1}, \
             {\"image_id\": 7, \"bbox\": [0, 0, 2, 2], \"category_id\": 1}, {\"image_id\": 8, \"bbox\": [0, 0, 2, 2], \
             \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"cat\"}]}",
        ],
        "images s --annotations c.json",
    ),
    (
        &[
            "s/train/a.jpg",
            "s/val/b.jpg",
            "s/val/c.jpg",
            "c.json {\"images\": [{\"id\": 1, \"file_name\": \"/else/a.jpg\"}], \"annotations\": [{\"image_id\": 1, \
             \"bbox\": [0, 0, 2, 2], \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"cat\"}]}",
        ],
        "images s --annotations c.json",
    ),
    (
        &[
            "s/train/a.jpg",
            "s/val/b.jpg",
            "c.json {\"images\": [{\"id\": 1, \"file_name\": \"/else/a.jpg\"}, {\"id\": 2, \"file_name\": \"/else/b.jpg\"}], \
             \"annotations\": [{\"image_id\": 1, \"bbox\": [0, 0, 2, 2], \"category_id\": 1}, {\"image_id\": 2, \"bbox\": [0, \
             0, 2, 2], \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"cat\"}]}",
        ],
        "images s --annotations c.json",
    ),
    (
        &[
            "s/a.jpg",
            "s/b.jpg",
            "c.json {\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}], \"annotations\": [{\"image_id\": 1, \"bbox\": [0, \
             0, 2, 2], \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"cat\"}]}",
            "d.json {\"images\": [{\"id\": 1, \"file_name\": \"b.jpg\"}], \"annotations\": [{\"image_id\": 1, \"bbox\": [0, \
             0, 2, 2], \"category_id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"dog\"}]}",
        ],
        "images s --annotations c.json --annotations d.json",
    ),
    (
        &[
            "s/a.jpg",
            "y/data.yaml names: [cat]\n",
            "y/a.txt 0 0.5 0.5 0.1 0.1\n",
            "y/b.txt 0 0.5 0.5 0.1 0.1\n",
        ],
        "images s --annotations y",
    ),
    (
        &[
            "s/a.jpg",
            "y/data.yaml names: [cat]\n",
            "y/a.txt 0 0.5 0.5 0.1 0.1\n",
            "y/b.txt 0 0.5 0.5 0.1 0.1\n",
            "y/c.txt 0 0.5 0.5 0.1 0.1\n",
        ],
        "images s --annotations y",
    ),
    (
        &["s/a.jpg", "y/data.yaml names: [cat]\n", "y/a.txt 0 0.5 0.5 0.4 0.4 0.5 0.5 0.6 0.6\n"],
        "images s --annotations y",
    ),
    (
        &[
            "s/a.jpg",
            "y/data.yaml names: [cat]\n",
            "y/a.txt 0 0.5 0.5 0.4 0.4 0.5 0.5 0.6 0.6\n0 0.5 0.5 0.4 0.4 0.5 0.5 0.6 0.6\n",
        ],
        "images s --annotations y",
    ),
    (
        &["s/a.jpg", "t.jsonl {\"file_name\": \"a.jpg\", \"bbox\": [[0, 0, 2, 2]]}\n"],
        "images s --metadata t.jsonl",
    ),
    (
        &[
            "s/a.jpg",
            "t.jsonl {\"file_name\": \"a.jpg\", \"width\": 9, \"height\": 9, \"bbox\": [[5, 5, 2, 2]], \"category\": [1]}\n",
        ],
        "images s --metadata t.jsonl",
    ),
    (
        &[
            "s/a.jpg",
            "t.jsonl {\"file_name\": \"a.jpg\", \"width\": 9, \"height\": 9, \"bbox\": [[4, 4, 8, 9]], \"category\": [1]}\n",
        ],
        "images s --metadata t.jsonl",
    ),
    (&["s/a.jpg", "t.csv file_name,xmin,ymin,xmax,ymax\na.jpg,1,1,2,2\n"], "images s --metadata t.csv"),
    // Archives and tables.
    (&["s/a.jpg", "s/x.parquet PAR1"], "images s"),
    (&["s/a.jpg", "s/x.parquet PAR1", "s/y.parquet PAR1"], "images s"),
    (&["s/a.jpg", "s/x.parquet PAR1", "s/y.parquet PAR1", "s/z.parquet PAR1"], "images s"),
    (&["folders.tar.gz"], "images folders.tar.gz"),
    (&["classes.tar"], "images classes.tar"),
    (&["classes.tar"], "images classes.tar --keep-fields idd"),
    (&["s/a.jpg", "s/b.jpg", "s/more.zip"], "images s"),
    (&["s/a.txt", "s/more.zip"], "text s"),
    (&["two.tar"], "images two.tar"),
    (&["members.tar"], "images members.tar"),
    (&["rows.parquet"], "images rows.parquet"),
    (&["rows.parquet"], "images rows.parquet --image-fields left"),
    (&["s/unsure.parquet", "s/a.jpg"], "images s"),
    // Rows of text.
    (&["many.jsonl"], "text many.jsonl --keep-fields lang:string"),
    (
        &["a.jsonl {\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"],
        "text a.jsonl --prompt-field prompt --completion-field completion",
    ),
    (
        &[
            "a.jsonl {\"instruction\": \"a\", \"input\": \"c\", \"output\": \"b\", \"images\": \"x\", \"history\": []}\n",
        ],
        "text a.jsonl --prompt-field instruction --completion-field output",
    ),
];

/// Writes a file of a case.
fn write(dir: &Path, file: &str) {
    let (name, content) =
        file.split_once(".").map_or((file, None), |(stem, rest)| match rest.split_once(' ') {
            Some((end, content)) => (&file[..stem.len() + 1 + end.len()], Some(content)),
            None => (file, None),
        });
    let folders = || {
        let mut tar = Tar::default();
        for name in ["ifd/train/c0/0.jpg", "ifd/train/c1/1.jpg", "ifd/val/c0/2.jpg"] {
            tar.file(name, &image(0));
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &tar.end()).unwrap();
        encoder.finish().unwrap()
    };
    let tar = |members: &[(&str, &[u8])]| {
        let mut tar = Tar::default();
        for (name, bytes) in members {
            tar.file(name, bytes);
        }
        tar.end()
    };
    let bytes = match (name.rsplit('/').next().unwrap(), content) {
        (_, Some(content)) => content.as_bytes().to_vec(),
        ("folders.tar.gz", None) => folders(),
        ("many.jsonl", None) => b"{\"text\": \"a\", \"id\": 1}\n".repeat(2000),
        ("a.tar", None) => tar(&[("0.jpg", &image(0))]),
        ("classes.tar", None) => tar(&[("0.jpg", &image(0)), ("0.cls", b"1")]),
        ("two.tar", None) => tar(&[("0.left.jpg", &image(0)), ("0.right.jpg", &image(1))]),
        ("members.tar", None) => tar(&[("0.jpg", &image(0)), ("0.npy", b"\x93NUMPY"), ("0.en.txt", b"a")]),
        ("rows.parquet", None) => parquet(&[
            ("left", Arc::new(BinaryArray::from_vec(vec![&image(0)]))),
            ("right", Arc::new(BinaryArray::from_vec(vec![&image(1)]))),
            ("width", Arc::new(Int32Array::from(vec![1]))),
        ]),
        ("unsure.parquet", None) => parquet(&[
            ("pixels", Arc::new(BinaryArray::from_vec(vec![&image(0), b"none"]))),
            ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
        ]),
        (name, None) if name.ends_with(".zip") => {
            zip(&[("a.txt", b"a".to_vec()), ("b.jpg", image(0))], false)
        }
        (name, None) if name.ends_with(".txt") => b"text\n".to_vec(),
        (_, None) => image(0),
    };
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn parquet(columns: &[(&str, ArrayRef)]) -> Vec<u8> {
    let columns = columns.iter().map(|(name, column)| (*name, Arc::clone(column)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// Plans the conversion of files in `dir` and returns the warnings.
fn warnings(dir: &Path, arguments: &str) -> Vec<Warning> {
    let mut words = arguments.split(' ');
    let kind = words.next().unwrap();
    let (mut sources, mut annotations, mut options) = (Vec::new(), Vec::new(), Vec::new());
    let (mut list, mut table) = (None, None);
    while let Some(word) = words.next() {
        let mut path = || -> PathBuf { dir.join(words.next().unwrap()) };
        match word {
            "--annotations" => annotations.push(path()),
            "--files-from" => list = Some(FilesFrom { list: path(), null: false }),
            "--metadata" => {
                table = Some(MetadataFile { path: path(), path_field: "file_name".to_owned(), keep: None });
            }
            _ => match word.strip_prefix("--") {
                Some(flag) => options.push((flag.replace('-', "_"), words.next().unwrap())),
                None => {
                    let label = word.rsplit('/').next().unwrap().to_owned();
                    sources.push(SourceSpec { label, path: dir.join(word) });
                }
            },
        }
    }
    if kind == "text" {
        let recipe = recipe::<TextRecipe>(&options);
        let tokenizer = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
        let options =
            TextOptions { recipe, ..TextOptions::new(sources, tokenizer, OutputOptions::default()) };
        assert_eq!(options.input, TextInput::Walk);
        return TextJob::plan(options).map_err(|e| format!("{arguments}: {e}")).unwrap().summary().warnings;
    }
    let input = match (list, table) {
        (Some(list), _) => ImageInput::FilesFrom(list),
        (None, Some(table)) => ImageInput::Metadata(table),
        (None, None) => ImageInput::Walk,
    };
    let recipe = recipe::<ImagesRecipe>(&options);
    let options = ImagesOptions { sources, input, annotations, exclude: Vec::new(), recipe };
    ImagesJob::plan(options).map_err(|e| format!("{arguments}: {e}")).unwrap().summary().warnings
}

fn recipe<R: Defined + Default + 'static>(options: &[(String, &str)]) -> R {
    let mut recipe = R::default();
    for (name, value) in options {
        let definition = R::definitions().into_iter().find(|option| option.name == name).unwrap();
        definition.set(&mut recipe, value).unwrap();
    }
    recipe
}

/// Lines with code, message, remedies and values of a warning.
fn shown(warning: &Warning) -> String {
    let values = serde_json::to_string(warning).unwrap();
    let json: serde_json::Value = serde_json::from_str(&values).unwrap();
    let mut text = format!("{}\n  {warning}\n", json["code"].as_str().unwrap());
    for remedy in &warning.remedies {
        writeln!(text, "  `{} {}` {}", remedy.option, remedy.value, remedy.effect).unwrap();
    }
    text + "  " + &values + "\n"
}

#[test]
fn code_message_values_and_remedies_of_each_warning() {
    let mut found = String::new();
    for (files, arguments) in CASES {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|file| write(dir.path(), file));
        let root = format!("{}/", dir.path().display());
        writeln!(found, "# {arguments}").unwrap();
        warnings(dir.path(), arguments)
            .iter()
            .for_each(|warning| found.push_str(&shown(warning).replace(&root, "")));
    }
    for (line, (found, expected)) in found.lines().zip(EXPECTED.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of warnings.txt", line + 1);
    }
    assert_eq!(found, EXPECTED);
}
