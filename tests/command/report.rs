//! `dsconvert inspect --html`, `--plot` and `--contact-sheet`: contents, refused options, and escaping of all strings of a
//! dataset.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::html_page::{assert_contains, assert_self_contained, inspect, page};
use crate::installed::is_installed;
use crate::support::*;

/// Text that would inject markup or reorder other text if it were not escaped.
const HOSTILE: &str =
    "</title></style><script>window.hacked=1</script><img src=x onerror=hacked=1>\"'&\u{202e}\u{200f}ünï";

/// Converts the photos, about 80% of them to `train`.
fn photos(dir: &Path, format: &str) -> PathBuf {
    let out = dir.join(format!("photos-{format}"));
    let options =
        format!("--resize longer:96 --format {format} --max-rejects 50% --split train=0.8,validation=0.2");
    convert("images", &fixture("photos"), &out, &options).exits(0);
    out
}

/// Converts the stories with the BPE tokenizer of the fixtures.
fn stories(dir: &Path, format: &str) -> PathBuf {
    let out = dir.join(format!("stories-{format}"));
    let tokenizer = fixture("tokenizers/bpe.json");
    let options = format!("--format {format} --tokenizer {} --add-eos", tokenizer.to_str().unwrap());
    convert("text", &fixture("corpus/stories.jsonl"), &out, &options).exits(0);
    out
}

#[test]
fn pages_of_images_show_sizes_classes_and_pictures_in_all_formats() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = photos(dir.path(), format);
        let before = tree(&out);
        let file = dir.path().join("report.html");
        let shown = page(&out, &file, &[]);
        assert_self_contained(&shown);
        let parts = [
            "Width and height",
            "Aspect ratio",
            "Record size",
            "Class balance",
            "Split train",
            "Split validation",
        ];
        assert_contains(&shown, &parts);
        assert_contains(&shown, &["dunes", "flowers", "forest", "night", "image.<wbr>encode"]);
        let manifest = manifest(&out);
        let records: u64 =
            manifest["splits"].as_object().unwrap().values().map(|s| s["records"].as_u64().unwrap()).sum();
        assert_eq!(shown.matches("<img src=\"data:image/jpeg;base64,/9j/").count() as u64, records);
        assert!(!shown.contains("cannot be shown"));
        for (code, _) in manifest["reject_codes"].as_object().unwrap() {
            assert_contains(&shown, &[&format!("<summary>{code}: ")]);
        }
        // Nothing of the dataset changes, and the same command writes the same page.
        assert_same(&before, &tree(&out));
        assert_eq!(page(&out, &file, &[]), shown);
        let only = page(&out, &file, &["--split", "validation"]);
        assert!(only.contains("Split validation") && !only.contains(">Split train"));
    }
}

#[test]
fn pages_of_text_show_lengths_padding_and_tokens_in_all_formats() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let shown = page(&stories(dir.path(), format), &dir.path().join("report.html"), &[]);
        assert_self_contained(&shown);
        assert_contains(
            &shown,
            &["Record length", "Padding", "random", "bucketed", "packed", "Most frequent tokens"],
        );
        assert_contains(
            &shown,
            &["bytes of decoded text per token", "Documents, token by token", "tokens in a batch"],
        );
        // Each token is an element of its own, with nothing between them.
        let text = shown.replace("<span class=\"", "\u{1}").replace("</span>", "");
        let plain: String =
            text.split('\u{1}').map(|piece| piece.split_once('>').map_or(piece, |p| p.1)).collect();
        assert!(plain.contains("the ") || plain.contains(" the"), "{plain}");
        assert!(!shown.contains("Ids are shown"));
    }
}

#[test]
fn raw_pixels_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    for color in ["gray", "rgb", "rgba"] {
        let out = dir.path().join(color);
        let options =
            format!("--resize exact:40x30 --enlarge --encode raw --color {color} --max-rejects 50%");
        convert("images", &fixture("photos/dunes"), &out, &options).exits(0);
        let shown = page(&out, &dir.path().join("report.html"), &[]);
        assert!(shown.contains("<img src=") && !shown.contains("cannot be shown"), "{color}");
        let sheet = dir.path().join("sheet.png");
        inspect(&out, &["--contact-sheet", sheet.to_str().unwrap()]).exits(0);
    }
}

#[test]
fn a_missing_tokenizer_can_be_given_as_an_option() {
    let dir = tempfile::tempdir().unwrap();
    let out = stories(dir.path(), "arrow");
    let file = dir.path().join("report.html");
    fs::remove_file(out.join("tokenizer.json")).unwrap();
    let shown = page(&out, &file, &[]);
    assert_contains(&shown, &["Ids are shown, because", "tokenizer.json", "unknown without the tokenizer"]);
    let tokenizer = fixture("tokenizers/bpe.json");
    let shown = page(&out, &file, &["--tokenizer", tokenizer.to_str().unwrap()]);
    assert!(!shown.contains("Ids are shown") && shown.contains("bytes of decoded text per token"));

    let (html, other) = (file.to_str().unwrap(), fixture("tokenizers/unigram.json"));
    inspect(&out, &["--html", html, "--tokenizer", other.to_str().unwrap()]).exits(2).says(&["SHA-256"]);
    inspect(&out, &["--html", html, "--tokenizer", "nothing.json"]).exits(2).says(&["no such tokenizer"]);
    fs::write(out.join("tokenizer.json"), fs::read(&other).unwrap()).unwrap();
    assert_contains(&page(&out, &file, &[]), &["Ids are shown, because"]);
}

#[test]
fn damaged_files_are_listed_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = dir.path().join(format);
        let options = format!("--resize longer:64 --format {format} --max-rejects 50% --shard-records 3");
        convert("images", &fixture("photos"), &out, &options).exits(0);
        let shards: Vec<String> = tree(&out).into_keys().filter(|name| name.starts_with("train/")).collect();
        assert!(shards.len() > 3, "{shards:?}");
        let file = dir.path().join("report.html");
        // One shard is missing, one is truncated, and one is overwritten, as is the histogram of the length index.
        fs::remove_file(out.join(&shards[0])).unwrap();
        let cut = fs::read(out.join(&shards[1])).unwrap();
        fs::write(out.join(&shards[1]), &cut[..cut.len() / 2]).unwrap();
        let length = fs::read(out.join(&shards[2])).unwrap().len();
        fs::write(out.join(&shards[2]), vec![0xff; length]).unwrap();
        let histogram = tree(&out).into_keys().find(|name| name.contains("histogram")).unwrap();
        let length = fs::read(out.join(&histogram)).unwrap().len();
        fs::write(out.join(histogram), vec![0; length]).unwrap();

        let html = file.to_str().unwrap();
        let name = |i: usize| shards[i].trim_start_matches("train/").to_owned();
        inspect(&out, &["--html", html]).exits(0).says(&[&name(0), &name(1), &name(2), "length index"]);
        let shown = fs::read_to_string(&file).unwrap();
        assert_contains(
            &shown,
            &["cannot be read", &name(0), &name(1), &name(2), "the length index cannot be read"],
        );
        assert_contains(&shown, &["Width and height", "Class balance", "<img src=\"data:image/jpeg"]);
        inspect(&out, &["--plot", dir.path().join("plot.svg").to_str().unwrap()]).exits(0);
        let sheet = dir.path().join("sheet.png");
        inspect(&out, &["--contact-sheet", sheet.to_str().unwrap()]).exits(0).says(&["left out"]);
    }
}

#[test]
fn pages_and_plots_of_an_empty_split_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = "--resize longer:64 --max-rejects 50% --split train=0.9999,test=0.0001";
    convert("images", &fixture("photos/night"), &out, options).exits(0);
    assert_eq!(manifest(&out)["splits"]["test"]["records"], 0);
    assert_contains(&page(&out, &dir.path().join("report.html"), &[]), &["The split has no records"]);
    let (sheet, plot) = (dir.path().join("sheet.png"), dir.path().join("plot.svg"));
    inspect(&out, &["--split", "test", "--plot", plot.to_str().unwrap()]).exits(0);
    assert_contains(&fs::read_to_string(&plot).unwrap(), &["There is nothing to plot"]);
    inspect(&out, &["--split", "test", "--contact-sheet", sheet.to_str().unwrap()])
        .exits(3)
        .says(&["no records"]);
    inspect(&out, &["--split", "nope", "--html", "x.html"]).exits(2).says(&["no split"]);
}

#[test]
fn files_of_a_report_are_printed_as_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let source = dir.path().join("photos");
    copy_dir(&fixture("photos/night"), &source);
    let options = "--resize longer:64 --max-rejects 50% --split train=0.0001,test=0.9999";
    convert("images", &source, &out, options).exits(0);
    assert_eq!(manifest(&out)["splits"]["train"]["records"], 0);
    let names = ["a.html", "b.svg", "c.png"].map(|name| dir.path().join(name));
    let [html, svg, png] = names.each_ref().map(|path| path.to_str().unwrap());
    let args = ["--html", html, "--plot", svg, "--contact-sheet", png];
    // By default, the contact sheet is of the first split with records.
    assert_eq!(inspect(&out, &args).exits(0).stdout.lines().count(), 3);
    // A file that cannot be made does not hide the others.
    let printed = inspect(&out, &[&args[..], &["--split", "train"]].concat()).exits(3).stdout;
    assert!(printed.contains("a.html (") && printed.contains("b.svg (") && !printed.contains("c.png"));
    assert_eq!(printed.lines().count(), 2);
}

#[test]
fn a_damaged_row_group_is_one_warning() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let texts = (0..200).map(|i| format!("{{\"text\": \"{}\"}}\n", (i * 7919).to_string().repeat(40)));
    fs::write(&source, texts.collect::<String>()).unwrap();
    let out = dir.path().join("out");
    convert("text", &source, &out, "--tokenizer bytes --format parquet").exits(0);
    let shard = out.join(tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap());
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(&shard, bytes).unwrap();
    let html = dir.path().join("x.html");
    let ran =
        inspect(&out, &["--html", html.to_str().unwrap()]).exits(0).says(&["records of a shard", "row"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn the_padding_of_few_records_agrees_with_their_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("c.jsonl");
    let page_of = |lengths: &[usize]| {
        let texts = lengths.iter().map(|length| format!("{{\"text\": \"{}\"}}\n", "a".repeat(*length)));
        fs::write(&source, texts.collect::<String>()).unwrap();
        let out = dir.path().join(lengths.len().to_string());
        convert("text", &source, &out, "--tokenizer bytes").exits(0);
        page(&out, &dir.path().join("x.html"), &[])
    };
    // Without a padding plot, nothing explains it.
    let one = page_of(&[1]);
    assert!(!one.contains("Padding is the share"));
    assert_contains(&one, &["1 distinct id of"]);
    let ten = page_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 50_000]);
    assert_contains(&ten, &["99% up to 50,000"]);
    assert!(!ten.contains("rows of 64 tokens"));
    let forty: Vec<usize> = (0..40).map(|i| if i < 39 { 3 } else { 3000 }).collect();
    assert_contains(&page_of(&forty), &["99% up to 3,000", "rows of 4,096 tokens"]);
}

#[test]
fn a_page_of_many_classes_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let classes: String = (0..100_000).map(|i| format!("class number {i}\n")).collect();
    fs::write(dir.path().join("classes.txt"), classes + "dunes\nflowers\nforest\nnight\nsigns\n").unwrap();
    let out = dir.path().join("out");
    let list = dir.path().join("classes.txt");
    let options = format!("--resize longer:32 --max-rejects 50% --classes {}", list.to_str().unwrap());
    convert("images", &fixture("photos"), &out, &options).exits(0);
    let shown = page(&out, &dir.path().join("report.html"), &[]);
    assert!(shown.len() < 600_000, "{} bytes", shown.len());
    assert_contains(
        &shown,
        &["100,005 classes", "100,000 without a record", "The 50 most frequent classes", "99,955 others"],
    );
}

#[test]
fn contact_sheets_and_plots_are_written_without_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let (images, text) = (photos(dir.path(), "parquet"), stories(dir.path(), "parquet"));
    let (sheet, plot) = (dir.path().join("sheet.png"), dir.path().join("plot.svg"));
    let (sheet_path, plot_path) = (sheet.to_str().unwrap(), plot.to_str().unwrap());
    let printed = inspect(&images, &["--contact-sheet", sheet_path, "--plot", plot_path]).exits(0).stdout;
    assert_eq!(printed.lines().count(), 2);
    let png = fs::read(&sheet).unwrap();
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    let records = manifest(&images)["splits"]["train"]["records"].as_u64().unwrap() as u32;
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!((side(16), side(20)), (8 + records.min(12) * 168, 8 + records.div_ceil(12) * 168));
    let svg = fs::read_to_string(&plot).unwrap();
    assert_contains(
        &svg,
        &["Width and height", "Aspect ratio", "Record size", "prefers-color-scheme: dark", "role=\"img\""],
    );
    inspect(&images, &["--contact-sheet", sheet_path]).exits(0);
    assert_eq!(fs::read(&sheet).unwrap(), png);
    inspect(&images, &["--contact-sheet", sheet_path, "--seed", "7"]).exits(0);

    inspect(&text, &["--plot", plot_path]).exits(0);
    assert_contains(&fs::read_to_string(&plot).unwrap(), &["Record length", "tokens in a batch", "bucketed"]);
    inspect(&text, &["--contact-sheet", sheet_path]).exits(2).says(&["needs images"]);
}

#[test]
fn invalid_output_and_report_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = stories(dir.path(), "msgpack");
    let shard = out.join(tree(&out).into_keys().find(|name| name.starts_with("train/")).unwrap());
    let before = tree(&out);
    let (file, inside) = (dir.path().join("x.html"), out.join("report.html"));
    let (file, inside) = (file.to_str().unwrap(), inside.to_str().unwrap());
    inspect(&out, &["--html", inside]).exits(2).says(&["inside the dataset"]);
    inspect(&out, &["--html", file, "--plot", file]).exits(2).says(&["name the same file"]);
    let (folder, other) = (out.join("../x.html"), dir.path().join("./x.html"));
    for spelled in [folder.to_str().unwrap(), other.to_str().unwrap()] {
        inspect(&out, &["--html", file, "--plot", spelled]).exits(2).says(&["name the same file"]);
        inspect(&out, &["--html", file, "--report", spelled]).exits(2).says(&["--report"]);
    }
    inspect(&out, &["--html", file, "--report", file]).exits(2).says(&["--report"]);
    inspect(&out, &["--html", "s3://bucket/x.html"]).exits(2).says(&["is a URL"]);
    inspect(&shard, &["--html", file]).exits(2).says(&["a single shard"]);
    inspect(&out, &["--report", file]).exits(2).says(&["--html"]);
    for other in ["--json", "--verify", "--head=1"] {
        inspect(&out, &["--html", file, other]).exits(2);
    }
    for (name, content) in [("a.json", "{}"), ("b.json", "["), ("c.json", "{\"run_report\": 99}")] {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        inspect(&out, &["--html", file, "--report", path.to_str().unwrap()]).exits(2).says(&["run report"]);
    }
    assert!(!Path::new(file).exists());
    assert_same(&before, &tree(&out));
}

/// Makes a dataset of images and one of text in which every string is hostile: class names, keys, origins, labels of
/// sources, messages, text, tokens and options.
fn hostile(dir: &Path) -> (PathBuf, PathBuf) {
    let (images, text) = (dir.join("<script>alert(1)<!--"), dir.join("hostile text \u{202e}"));
    let class: String = HOSTILE.replace('/', "∕").chars().take(80).collect();
    let source = dir.join("source");
    let folder = source.join(&class);
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(source.join("b")).unwrap();
    for (number, name) in ["dunes/ridge.jpg", "dunes/morning.jpg", "forest/light.jpg"].iter().enumerate() {
        fs::copy(
            fixture("photos").join(name),
            folder.join(format!("{number}\n<img src=x onerror=alert(1)>.jpg")),
        )
        .unwrap();
        fs::copy(fixture("photos").join(name), source.join("b").join(format!("{number}.jpg"))).unwrap();
    }
    fs::write(folder.join("\u{202e}<b onmouseover=alert(1)>.jpg"), b"\xff\xd8\xff broken").unwrap();
    convert("images", &source, &images, "--resize longer:64 --max-rejects 50%").exits(0);

    let corpus = dir.join("corpus.jsonl");
    let lines: String = (0..40)
        .map(|i| {
            let text =
                format!("{HOSTILE} number {i}\n\t{}\0\u{1b}[31m", "<script>alert(2)</script> ".repeat(i % 7));
            json!({ "id": format!("{i}{HOSTILE}"), "text": text, "<b>kept</b>": HOSTILE }).to_string() + "\n"
        })
        .collect();
    fs::write(&corpus, lines + "{\"text\": 7}\n").unwrap();
    let mut command = command(["text"]);
    command.arg(format!("<b>label\u{202e}={}", corpus.to_str().unwrap())).arg("--out").arg(&text);
    command.args([
        "--tokenizer",
        "bytes",
        "--key-field",
        "id",
        "--keep-fields",
        "<b>kept</b>",
        "--max-rejects",
        "50%",
    ]);
    Ran::of(command.output().unwrap()).exits(0);
    (images, text)
}

#[test]
fn no_string_of_a_dataset_becomes_markup() {
    let dir = tempfile::tempdir().unwrap();
    let (images, text) = hostile(dir.path());
    let mut run: Value = json!({ "run_report": 1, "kind": HOSTILE, "dsconvert": HOSTILE });
    run["host"] = json!({ "cpu": HOSTILE, "kernel": HOSTILE, "file_system": HOSTILE });
    run["options"] = json!({ HOSTILE: { HOSTILE: HOSTILE } });
    run["thread_seconds"] = json!({ "read": 1e308, "transform": -5.0, "write": 1e308 });
    let report = dir.path().join("run.json");
    fs::write(&report, run.to_string()).unwrap();
    for dataset in [&images, &text] {
        let shown = page(dataset, &dir.path().join("report.html"), &["--report", report.to_str().unwrap()]);
        assert_self_contained(&shown);
        assert!(
            !shown.contains("<img src=x") && !shown.contains("onerror=hacked=1>") && !shown.contains("<b o")
        );
        assert!(!shown.contains(['\0', '\u{1b}', '\u{202e}', '\u{200f}']));
        assert_contains(&shown, &["&lt;script&gt;", "\\u{202e}"]);
        let plot = dir.path().join("plot.svg");
        inspect(dataset, &["--plot", plot.to_str().unwrap()]).exits(0);
        let svg = fs::read_to_string(&plot).unwrap();
        assert!(!svg.contains("<script") && !svg.contains('\u{202e}'));
    }
}

/// Runs the commands on the reference page of `inspect`, in order.
#[test]
fn the_commands_on_the_reference_page_work() {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(&fixture("photos"), &dir.path().join("photos"));
    copy_dir(&fixture("corpus"), &dir.path().join("corpus"));
    fs::copy(fixture("corpus/stories.jsonl"), dir.path().join("stories.jsonl")).unwrap();
    fs::copy(fixture("tokenizers/bpe.json"), dir.path().join("tokenizer.json")).unwrap();
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/inspect.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut ran = 0;
    for line in blocks.flat_map(str::lines).filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let args = line.strip_prefix("dsconvert ").unwrap_or_else(|| panic!("{line} is another command"));
        let mut command = command(args.split_whitespace());
        Ran::of(command.current_dir(dir.path()).output().unwrap()).exits(0);
        ran += 1;
    }
    assert!(ran >= 10, "{ran}");
    let shown = text.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let printed = command(["inspect", "stories-data", "--verify", "--json"]).current_dir(dir.path()).output();
    let [shown, printed] = [shown, &Ran::of(printed.unwrap()).stdout].map(|json| {
        let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap();
        // Other versions of the libraries that encode shards need other numbers of bytes.
        assert!(object.insert("bytes".to_owned(), 0.into()).unwrap().is_u64());
        object
    });
    assert_eq!(shown, printed);
}

#[test]
fn pages_and_plots_work_in_a_browser() {
    if !is_installed("node") || !is_installed("chromium") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    fs::create_dir(&pages).unwrap();
    let report = dir.path().join("run.json");
    let photos = photos(dir.path(), "parquet");
    let stories = dir.path().join("stories");
    let tokenizer = fixture("tokenizers/bpe.json");
    let options =
        format!("--tokenizer {} --report {}", tokenizer.to_str().unwrap(), report.to_str().unwrap());
    convert("text", &fixture("corpus/stories.jsonl"), &stories, &options).exits(0);
    let (hostile_images, hostile_text) = hostile(dir.path());
    let broken = dir.path().join("broken");
    copy_dir(&photos, &broken);
    let shard = tree(&broken).into_keys().find(|name| name.starts_with("train/")).unwrap();
    fs::remove_file(broken.join(shard)).unwrap();
    let chats = crate::inspect_masks::chats(dir.path(), "parquet");
    let mut expected = serde_json::Map::new();
    for (name, dataset, args) in [
        ("photos", &photos, vec![]),
        ("stories", &stories, vec!["--report", report.to_str().unwrap()]),
        ("hostile-images", &hostile_images, vec![]),
        ("hostile-text", &hostile_text, vec!["--report", report.to_str().unwrap()]),
        ("broken", &broken, vec![]),
        ("chats", &chats, vec![]),
    ] {
        let shown = page(dataset, &pages.join(format!("{name}.html")), &args);
        let plot = pages.join(format!("{name}.svg"));
        inspect(dataset, &["--plot", plot.to_str().unwrap()]).exits(0);
        let images = shown.matches("<img ").count();
        expected.insert(
            name.to_owned(),
            json!({ "images": images, "plots": shown.matches("dsc-plot\" xmlns").count() }),
        );
    }
    fs::write(pages.join("expected.json"), Value::from(expected).to_string()).unwrap();
    let mut node = Command::new("node");
    node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/report.mjs")).arg(&pages);
    // An optional directory for screenshots.
    node.args(std::env::var_os("DSCONVERT_SCREENSHOTS"));
    let output = node.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches("ok: ").count(), 6);
}
