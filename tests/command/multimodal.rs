//! Chats with images: rejects, paths, and datasets that are made again from their plan. Ids and masks are compared with
//! `transformers` in `tests/python/test_vision_chats.py`.

use std::path::{Path, PathBuf};

use dsconvert::reader::Dataset;
use dsconvert::sample::Value;
use serde_json::{Value as Json, json};

use crate::chats::{model, write_lines};
use crate::support::*;
use crate::tree::tree;

const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}\
    {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
    {% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}\
    {{ '<|im_end|>' + '\\n' }}{% endfor %}";

/// Writes the folder of a model whose images have few tokens. Returns it.
pub(crate) fn vision_model(dir: &Path) -> PathBuf {
    let folder = model(dir, TEMPLATE);
    let path = folder.join("tokenizer.json");
    let mut tokenizer: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let next = tokenizer["added_tokens"].as_array().unwrap().iter().filter_map(|token| token["id"].as_u64());
    let next = next.chain([tokenizer["model"]["vocab"].as_object().unwrap().len() as u64]).max().unwrap() + 1;
    for (token, id) in ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"].iter().zip(next..) {
        tokenizer["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        }));
    }
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let processor = json!({
        "processor_class": "Qwen2_5_VLProcessor", "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 784, "max_pixels": 78400, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
    });
    write_json(&folder.join("preprocessor_config.json"), &processor);
    write_json(&folder.join("config.json"), &json!({"model_type": "qwen2_5_vl"}));
    folder
}

pub(crate) fn write_json(path: &Path, json: &Json) {
    std::fs::write(path, json.to_string()).unwrap();
}

/// Returns the bytes of a file of Portable Anymap, one color, which every build reads.
pub(crate) fn ppm(width: u32, height: u32, color: u8) -> Vec<u8> {
    let mut file = format!("P6\n{width} {height}\n255\n").into_bytes();
    file.extend(vec![color; (width * height * 3) as usize]);
    file
}

pub(crate) fn row(images: &Json, content: &Json) -> Json {
    let messages = json!([{"role": "user", "content": content}, {"role": "assistant", "content": "yes"}]);
    json!({"messages": messages, "images": images})
}

pub(crate) fn options(model: &Path, more: &str) -> String {
    let model = model.display();
    format!("--messages-field messages --images-field images --tokenizer {model} --max-rejects 100% {more}")
}

/// Converts `rows`, which lie beside the images of `dir`.
pub(crate) fn run(dir: &Path, model: &Path, rows: &[Json], more: &str, status: i32) -> (PathBuf, Ran) {
    let (source, out) = (write_lines(&dir.join("chats.jsonl"), rows), dir.join("out"));
    let ran = convert("text", &source, &out, &options(model, &format!("--overwrite {more}"))).exits(status);
    (out, ran)
}

pub(crate) fn codes(out: &Path) -> Vec<String> {
    rejects(out).into_iter().map(|(_, code)| code).collect()
}

#[test]
fn images_are_stored_with_their_grids() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    let (small, large) = (ppm(56, 28, 7), ppm(900, 300, 9));
    std::fs::create_dir(dir.path().join("images")).unwrap();
    std::fs::write(dir.path().join("images/small.ppm"), &small).unwrap();
    std::fs::write(dir.path().join("large.ppm"), &large).unwrap();
    let rows = [
        row(&json!(["images/small.ppm", "large.ppm"]), &json!("a <image> b <image>")),
        row(&json!([]), &json!("no <image>")),
        row(&json!("./images/small.ppm"), &json!("first")),
    ];
    run(dir.path(), &model, &rows, "--format msgpack", 2).1.says(&["arrow or parquet"]);
    for format in ["arrow", "parquet"] {
        let (out, _) = run(dir.path(), &model, &rows, &format!("--format {format} --verify-ids all"), 0);
        let found = records(&out);
        let names: Vec<&str> = found[0].schema().fields.iter().map(|field| field.name.as_str()).collect();
        let first = ["key", "input_ids", "length", "origin", "assistant_masks"];
        assert_eq!(names, [&first[..], &["images", "image_grids", "patches"]].concat());
        assert_eq!(found[0].values()[5], Value::Files(vec![small.clone().into(), large.clone().into()]));
        let Value::Array(grids) = &found[0].values()[6] else { panic!("{found:?}") };
        // 900 × 300 becomes 476 × 140.
        let sizes: Vec<u8> = [1i32, 2, 4, 1, 10, 34].iter().flat_map(|size| size.to_le_bytes()).collect();
        assert_eq!((grids.shape(), &grids.as_bytes()[..]), (&[2, 3][..], &sizes[..]));
        let patches: Vec<u64> =
            found.iter().map(|record| record.integer("patches").unwrap() as u64).collect();
        assert_eq!(patches, [348, 0, 8]);
        assert_eq!((&found[1].values()[5], found[1].integer("patches")), (&Value::Files(vec![]), Some(0)));
        let dataset = Dataset::open(&out).unwrap();
        let processor = dataset.vision().unwrap().unwrap();
        let id = processor.image_token_id;
        assert_eq!((processor.max_pixels, processor.model_type.as_deref()), (78_400, Some("qwen2_5_vl")));
        let of_images =
            |at: usize| found[at].input_ids().unwrap().iter().filter(|found| *found == id).count();
        assert_eq!([of_images(0), of_images(1), of_images(2)], [87, 0, 2]);
        let masks = found[0].assistant_masks().unwrap();
        let ids = found[0].input_ids().unwrap();
        assert!(ids.iter().zip(masks).all(|(found, mask)| found != id || *mask == 0) && masks.contains(&1));
        // The second length is in the index.
        let split = dataset.split("train").unwrap();
        let column = |at: u64| split.index_column(at, "patches").unwrap().map(u64::from).unwrap();
        assert_eq!((0..3).map(column).collect::<Vec<_>>(), patches);
        Ran::of(command(["inspect"]).arg(&out).arg("--verify").output().unwrap()).exits(0);
    }
}

#[test]
fn bad_images_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    let photos = fixture("photos");
    for (name, of) in [
        ("cmyk.jpg", "flowers/ink.jpg"),
        ("turned.jpg", "signs/orientation-6.jpg"),
        ("upright.jpg", "signs/orientation-1.jpg"),
        ("animated.gif", "flowers/poster.gif"),
        ("broken.jpg", "night/broken.jpg"),
    ] {
        std::fs::copy(photos.join(of), dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("one.ppm"), ppm(1, 1, 0)).unwrap();
    std::fs::write(dir.path().join("long.ppm"), ppm(402, 2, 0)).unwrap();
    let deep = [b"P5\n40 30\n65535\n".to_vec(), vec![9; 40 * 30 * 2]].concat();
    std::fs::write(dir.path().join("deep.pgm"), deep).unwrap();
    let whole = std::fs::read(photos.join("forest/light.jpg")).unwrap();
    std::fs::write(dir.path().join("truncated.jpg"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(dir.path().join("text.png"), "no image").unwrap();
    std::fs::write(dir.path().join("empty.png"), "").unwrap();
    let good = ["one.ppm", "cmyk.jpg", "deep.pgm", "turned.jpg", "upright.jpg"];
    let bad = [
        ("long.ppm", "unsupported"),
        ("broken.jpg", "truncated"),
        ("truncated.jpg", "truncated"),
        ("text.png", "unknown-type"),
        ("empty.png", "empty"),
        ("missing.png", "missing-file"),
        ("../../etc/passwd", "unsafe-path"),
        ("/etc/passwd", "unsafe-path"),
        ("https://example.com/a.png", "unsupported"),
        ("data:image/png;base64,*", "invalid-value"),
    ];
    let good = good.map(|name| row(&json!([name]), &json!("<image>")));
    let counts = [
        (row(&json!(["one.ppm", "one.ppm"]), &json!("<image>")), "image-count"),
        (row(&json!([]), &json!([{"type": "image"}])), "image-count"),
        (json!({"messages": [{"role": "assistant", "content": "x"}], "images": ["one.ppm"]}), "image-count"),
    ];
    let bad = bad.map(|(name, code)| (row(&json!([name]), &json!("<image>")), code));
    let (bad, wanted): (Vec<Json>, Vec<&str>) = bad.into_iter().chain(counts).unzip();
    let rows: Vec<Json> = good.iter().cloned().chain(bad).collect();
    let (out, _) = run(dir.path(), &model, &rows, "", 0);
    assert_eq!(codes(&out), wanted);
    let found = records(&out);
    assert_eq!(found.len(), good.len());
    // The stored image is upright, and has the plan of the upright one.
    let grid = |at: usize| match &found[at].values()[6] {
        Value::Array(grid) => grid.as_bytes().clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(grid(3), grid(4));
    let file = |at: usize| match &found[at].values()[5] {
        Value::Files(files) => files[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(file(4), std::fs::read(dir.path().join("upright.jpg")).unwrap());
    assert_ne!(file(3), std::fs::read(dir.path().join("turned.jpg")).unwrap());
    assert_eq!(manifest(&out)["notes"]["images_encoded_again"], 2);
    // The first frame of an animation is kept.
    let (out, _) = run(dir.path(), &model, &[row(&json!(["animated.gif"]), &json!("<image>"))], "", 0);
    assert_eq!(records(&out).len(), 1);
}

#[test]
fn links_are_followed_only_if_that_is_asked_for() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = vision_model(dir.path());
    std::fs::write(other.path().join("a.ppm"), ppm(28, 28, 0)).unwrap();
    std::os::unix::fs::symlink(other.path().join("a.ppm"), dir.path().join("link.ppm")).unwrap();
    std::os::unix::fs::symlink(other.path(), dir.path().join("folder")).unwrap();
    let rows = ["link.ppm", "folder/a.ppm"].map(|name| row(&json!([name]), &json!("<image>")));
    let (out, _) = run(dir.path(), &model, &rows, "", 3);
    assert!(!out.join("manifest.json").exists());
    let (out, _) = run(dir.path(), &model, &rows, "--follow-symlinks", 0);
    assert_eq!(records(&out).len(), 2);
}

#[test]
fn the_text_of_a_placeholder_is_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::write(dir.path().join("a.ppm"), ppm(56, 28, 0)).unwrap();
    let rows = [row(&json!(["a.ppm"]), &json!("<image> is not <|vision_start|><|image_pad|><|vision_end|>"))];
    let (out, _) = run(dir.path(), &model, &rows, "", 0);
    let found = records(&out);
    let id = Dataset::open(&out).unwrap().vision().unwrap().unwrap().image_token_id;
    assert_eq!(found[0].input_ids().unwrap().iter().filter(|found| *found == id).count(), 2);
    let (source, all) = (dir.path().join("chats.jsonl"), "--special-in-content parse");
    convert("text", &source, &dir.path().join("parsed"), &options(&model, all))
        .exits(3)
        .says(&["special-token"]);
    // 200 images in one chat.
    let many = vec!["a.ppm"; 200];
    let (out, _) = run(dir.path(), &model, &[row(&json!(many), &json!("all"))], "", 0);
    assert_eq!(records(&out)[0].integer("patches"), Some(1600));
}

#[test]
fn chats_are_not_cut_inside_images() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::write(dir.path().join("a.ppm"), ppm(280, 280, 0)).unwrap();
    let rows = [row(&json!(["a.ppm"]), &json!("see <image> ok"))];
    let (out, _) = run(dir.path(), &model, &rows, "", 0);
    let length = records(&out)[0].length().unwrap();
    assert!(length > 100);
    let cut = |limit: u32| {
        let more = format!("--max-length {limit} --overflow truncate");
        let source = dir.path().join("chats.jsonl");
        let out = dir.path().join(format!("cut-{limit}"));
        (convert("text", &source, &out, &options(&model, &more)), out)
    };
    // The last token ends the line of the answer.
    let (ran, out) = cut(length - 2);
    ran.exits(0);
    assert_eq!(records(&out)[0].length(), Some(length - 2));
    cut(100).0.exits(3).says(&["too-long"]);
    cut(length - 16).0.exits(3).says(&["nothing-to-train"]);
}

#[test]
fn the_processor_is_that_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::write(dir.path().join("a.ppm"), ppm(280, 280, 0)).unwrap();
    let rows = [row(&json!(["a.ppm"]), &json!("<image>"))];
    let (out, _) = run(dir.path(), &model, &rows, "--image-arg max_pixels=7840", 0);
    assert_eq!(records(&out)[0].integer("patches"), Some(36));
    assert_eq!(manifest(&out)["options"]["multimodal"]["vision"]["max_pixels"], 7840);
    // What a dataset records makes it again.
    let again = dir.path().join("again");
    let like = format!("--like {}", out.display());
    convert("text", &dir.path().join("chats.jsonl"), &again, &like).exits(0);
    assert_same(&tree(&out), &tree(&again));
    for more in ["--image-arg patch_size=16", "--image-arg max_pixels=1", "--images half"] {
        run(dir.path(), &model, &rows, more, 2);
    }
    let (source, refused) = (dir.path().join("chats.jsonl"), dir.path().join("refused"));
    let plan = |more: &str| {
        Ran::of(
            command(["text"])
                .arg(&source)
                .args(options(&model, more).split_whitespace())
                .arg("--dry-run")
                .output()
                .unwrap(),
        )
    };
    let shown = plan("").exits(0).stdout;
    assert!(shown.contains("Qwen2_5_VLProcessor") && shown.contains("78400"), "{shown}");
    let config = model.join("preprocessor_config.json");
    let mut other: Json = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    other["processor_class"] = "Gemma3Processor".into();
    write_json(&config, &other);
    let refuses = |said: &[&str]| {
        convert("text", &source, &refused, &options(&model, "")).exits(2).says(said);
    };
    refuses(&["Gemma3Processor", "Qwen3VLProcessor"]);
    other["processor_class"] = "Qwen3VLProcessor".into();
    other["do_resize"] = false.into();
    write_json(&config, &other);
    refuses(&["do_resize"]);
    std::fs::remove_file(&config).unwrap();
    refuses(&["preprocessor_config.json"]);
    assert!(!refused.exists());
}

#[test]
fn duplicates_have_the_same_text_and_images() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    for (name, color) in [("a.ppm", 0), ("same.ppm", 0), ("b.ppm", 9)] {
        std::fs::write(dir.path().join(name), ppm(28, 28, color)).unwrap();
    }
    let of = |name: &str, text: &str| row(&json!([name]), &json!(text));
    let rows = [
        of("a.ppm", "x<image>"),
        of("same.ppm", "x<image>"),
        of("b.ppm", "x<image>"),
        of("a.ppm", "y<image>"),
    ];
    let (out, _) = run(dir.path(), &model, &rows, "--dedup exact", 0);
    assert_outcomes(&out, [3, 0, 1, 0]);
    // Another dataset has the same text, once with the same image.
    let new =
        write_lines(&dir.path().join("new.jsonl"), &[of("same.ppm", "x<image>"), of("b.ppm", "y<image>")]);
    let second = dir.path().join("second");
    convert("text", &new, &second, &options(&model, &format!("--dedup exact --exclude {}", out.display())))
        .exits(0);
    assert_outcomes(&second, [1, 1, 0, 0]);
}

#[test]
fn images_are_part_of_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("sub/images")).unwrap();
    let names: Vec<String> = (0..12).map(|at| format!("images/{at}.ppm")).collect();
    for (at, name) in names.iter().enumerate() {
        std::fs::write(data.join("sub").join(name), ppm(28 + at as u32, 30, at as u8)).unwrap();
    }
    let rows: Vec<Json> = names.iter().map(|name| row(&json!([name]), &json!("<image>"))).collect();
    write_lines(&data.join("sub/chats.jsonl"), &rows);
    let small = "--unit-bytes 4KiB";
    let out = dir.path().join("whole");
    convert("text", &data, &out, &options(&model, small)).exits(0);
    assert_eq!(records(&out).len(), 12);
    // Images count: each has 2.5 KiB or more.
    assert!(manifest(&out)["plan"]["units"].as_u64().unwrap() >= 3, "{}", manifest(&out)["plan"]);
    assert_eq!(manifest(&out)["sources"]["files"], 13);
    assert_eq!(manifest(&out)["sources"]["skipped"], 0);
    // In parts, on threads.
    let parts = dir.path().join("parts");
    let more = options(&model, small);
    let args = ["plan", "text", data.to_str().unwrap(), "--out", parts.to_str().unwrap()];
    Ran::of(command(args).args(more.split_whitespace()).output().unwrap()).exits(0);
    for part in ["1/2", "2/2"] {
        let ran = command(["run"]).arg(&parts).args(["--part", part, "--threads", "2"]).output().unwrap();
        Ran::of(ran).exits(0);
    }
    Ran::of(command(["merge"]).arg(&parts).output().unwrap()).exits(0);
    assert_same(&tree(&out), &tree(&parts));
    // A damaged shard is made again from the images.
    let shard = tree(&out).into_keys().find(|name| name.contains("train-000001")).unwrap();
    let before = std::fs::read(out.join(&shard)).unwrap();
    std::fs::write(out.join(&shard), &before[..before.len() - 9]).unwrap();
    convert("text", &data, &out, &options(&model, &format!("{small} --resume=repair"))).exits(0);
    assert_eq!(std::fs::read(out.join(&shard)).unwrap(), before);
    // A changed image is a changed source.
    std::fs::write(data.join("sub/images/3.ppm"), ppm(31, 31, 3)).unwrap();
    let resumed = convert("text", &data, &out, &options(&model, &format!("{small} --resume")));
    resumed.exits(2).says(&["its sources"]);
}

#[test]
fn images_are_resized_only_to_what_the_processor_makes_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::copy(fixture("photos/dunes/morning.jpg"), dir.path().join("photo.jpg")).unwrap();
    std::fs::write(dir.path().join("small.ppm"), ppm(30, 30, 5)).unwrap();
    let rows = [row(&json!(["photo.jpg", "small.ppm"]), &json!("<image> and <image>"))];
    let (kept, _) = run(dir.path(), &model, &rows, "--image-arg max_pixels=20000", 0);
    let kept = records(&kept);
    let (out, ran) = run(dir.path(), &model, &rows, "--image-arg max_pixels=20000 --images fit", 0);
    let fit = records(&out);
    let [Value::Files(before), Value::Files(after)] = [&kept[0].values()[5], &fit[0].values()[5]] else {
        panic!()
    };
    assert!(after[0].len() < before[0].len() && after[1] == before[1]);
    assert_eq!(kept[0].values()[6], fit[0].values()[6]);
    assert_eq!(kept[0].input_ids(), fit[0].input_ids());
    assert!(ran.stderr.contains("PSNR") || ran.stdout.contains("PSNR"), "{} {}", ran.stdout, ran.stderr);
}
