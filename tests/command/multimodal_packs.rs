//! `--pack` and `--pack-patches` with chats that have images.

use dsconvert::reader::Dataset;
use dsconvert::sample::{Ids, Value};
use serde_json::json;

use crate::multimodal::{codes, options, ppm, row, run, vision_model, write_json};
use crate::support::*;
use crate::tree::tree;

/// Rows of up to three images of three sizes, and some without.
fn chats(dir: &std::path::Path) -> Vec<serde_json::Value> {
    for (name, width, height) in [("a.ppm", 56, 28), ("b.ppm", 140, 112), ("c.ppm", 280, 140)] {
        std::fs::write(dir.join(name), ppm(width, height, 7)).unwrap();
    }
    let names = ["a.ppm", "b.ppm", "c.ppm"];
    let chat = |i: usize| {
        let images: Vec<&str> = (0..i % 4).map(|k| names[(i / 4 + k) % 3]).collect();
        row(&json!(images), &json!(format!("{}chat {i}{}", "<image>".repeat(i % 4), " word".repeat(i % 11))))
    };
    (0..160).map(chat).collect()
}

fn numbers(value: &Value) -> Vec<u32> {
    let Value::Ids(ids) = value else { unreachable!("{value:?}") };
    Ids::iter(ids).collect()
}

#[test]
fn rows_have_the_images_of_whole_chats_within_both_budgets() {
    let dir = tempfile::tempdir().unwrap();
    let (model, chats) = (vision_model(dir.path()), chats(dir.path()));
    let (out, _) = run(dir.path(), &model, &chats, "--format arrow", 0);
    let single: Vec<_> = records(&out);
    let tokens: u64 = single.iter().map(|record| u64::from(record.length().unwrap())).sum();
    let patches: i64 = single.iter().map(|record| record.integer("patches").unwrap()).sum();
    for format in ["arrow", "parquet"] {
        let given = format!("--format {format} --pack 300 --pack-patches 500");
        let (out, _) = run(dir.path(), &model, &chats, &given, 0);
        let rows = records(&out);
        let mut seen = Vec::new();
        for row in &rows {
            let field = |name: &str| row.get(name).unwrap().clone();
            let (ends, starts) = (numbers(&field("cu_seqlens")), numbers(&field("piece_starts")));
            assert!(starts.iter().all(|start| *start == 0), "whole chats");
            let ids: Vec<u32> = row.input_ids().unwrap().iter().collect();
            assert!(ids.len() <= 300 && row.integer("patches").unwrap() <= 500);
            let (mut images, mut grids) = (Vec::new(), Vec::new());
            for (start, end) in ends.iter().zip(&ends[1..]) {
                let range = *start as usize..*end as usize;
                // No two chats have the same ids.
                let chat = single
                    .iter()
                    .position(|chat| chat.input_ids().unwrap().iter().eq(ids[range.clone()].iter().copied()));
                let chat = chat.unwrap();
                seen.push(chat);
                let masks = single[chat].assistant_masks().unwrap();
                assert_eq!(&row.assistant_masks().unwrap()[range], &masks[..]);
                let (Some(Value::Files(own)), Some(Value::Array(sides))) =
                    (single[chat].get("images"), single[chat].get("image_grids"))
                else {
                    panic!("{chat}")
                };
                images.extend(own.clone());
                grids.extend_from_slice(sides.as_bytes());
            }
            let Value::Array(found) = field("image_grids") else { panic!("{row:?}") };
            assert_eq!((field("images"), &found.as_bytes()[..]), (Value::Files(images), &grids[..]));
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..160));
        let least = tokens.div_ceil(300).max((patches as u64).div_ceil(500));
        assert!(rows.len() as u64 * 4 <= least * 5, "{} rows, at least {least}", rows.len());
        let dataset = Dataset::open(&out).unwrap();
        let manifest = dataset.manifest();
        assert_eq!(manifest.notes["packed_patches"], patches as u64);
        assert_eq!((manifest.notes["packed_tokens"], manifest.notes["packed_documents_cut"]), (tokens, 0));
        // The rows are what the index counts.
        let split = dataset.split("train").unwrap();
        for (at, row) in (0..).zip(&rows) {
            let count = split.index_column(at, "patches").unwrap().map(i64::from);
            assert_eq!(count, row.integer("patches"));
        }
        Ran::of(command(["inspect"]).arg(&out).arg("--verify").output().unwrap()).exits(0);
        Ran::of(command(["inspect"]).arg(&out).output().unwrap()).exits(0);
    }
}

#[test]
fn rows_do_not_depend_on_threads_or_the_number_of_parts() {
    let dir = tempfile::tempdir().unwrap();
    let (model, chats) = (vision_model(dir.path()), chats(dir.path()));
    let given =
        "--format parquet --pack 200 --pack-patches 450 --split train=0.7,validation=0.3 --unit-bytes 4KiB";
    let of = |threads: usize| {
        let (out, _) = run(dir.path(), &model, &chats, &format!("{given} --threads {threads}"), 0);
        tree(&out)
    };
    let whole = of(1);
    assert_same(&whole, &of(4));
    let units = &manifest(&dir.path().join("out"))["plan"]["units"];
    assert!(units.as_u64().unwrap() >= 3, "{units}");
    let (source, parts) = (dir.path().join("chats.jsonl"), dir.path().join("parts"));
    let mut plan = command(["plan", "text"]);
    plan.arg(&source).arg("--out").arg(&parts).args(options(&model, given).split_whitespace());
    Ran::of(plan.output().unwrap()).exits(0);
    for part in ["2/3", "3/3", "1/3"] {
        Ran::of(command(["run"]).arg(&parts).args(["--part", part]).output().unwrap()).exits(0);
    }
    Ran::of(command(["merge"]).arg(&parts).output().unwrap()).exits(0);
    assert_same(&whole, &tree(&parts));
}

#[test]
fn chats_over_a_budget_are_rejected_and_options_that_cut_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::write(dir.path().join("c.ppm"), ppm(280, 140, 7)).unwrap();
    let chat = |images: usize, words: usize| {
        row(
            &json!(vec!["c.ppm"; images]),
            &json!(format!("{}{}", "<image>".repeat(images), " word".repeat(words))),
        )
    };
    // 200 patches, and 50 tokens, each.
    let rows = [chat(1, 1), chat(3, 1), chat(0, 900), chat(2, 1)];
    let (out, _) = run(dir.path(), &model, &rows, "--format arrow --pack 400 --pack-patches 400", 0);
    assert_eq!(codes(&out), ["too-long", "too-long"]);
    let messages = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    assert!(messages.contains("the images have 600 patches, more than `pack_patches 400`"), "{messages}");
    assert_eq!(records(&out).len(), 2, "600 patches do not fit in a row");
    // Without a limit of patches, chats are whole as well.
    let (out, _) = run(dir.path(), &model, &rows, "--format arrow --pack 400", 0);
    assert_eq!((codes(&out), records(&out).len()), (vec!["too-long".to_owned()], 1));
    for (given, said) in [
        ("--pack-patches 400", "--pack <N>"),
        ("--pack 400 --pack-patches 0", "--pack-patches 0"),
        ("--pack 400 --packing concat", "--packing concat"),
        ("--pack 400 --max-length 500", "--max-length 500"),
        ("--pack 400 --max-length 300 --overflow split", "--overflow split"),
    ] {
        run(dir.path(), &model, &rows, &format!("--format arrow {given}"), 2).1.says(&[said]);
    }
    let texts = crate::chats::write_lines(&dir.path().join("texts.jsonl"), &[json!({"text": "a"})]);
    convert("text", &texts, &dir.path().join("texts"), "--tokenizer bytes --pack 400 --pack-patches 4")
        .exits(2)
        .says(&["--pack-patches", "only to chats with images"]);
}

#[test]
fn models_that_mix_the_documents_of_a_row_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = vision_model(dir.path());
    std::fs::write(dir.path().join("c.ppm"), ppm(280, 140, 7)).unwrap();
    let rows = [row(&json!(["c.ppm"]), &json!("<image> a"))];
    write_json(
        &model.join("preprocessor_config.json"),
        &json!({"processor_class": "Qwen3VLProcessor", "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16}),
    );
    for (model_type, refused) in [("qwen3_vl", false), ("qwen3_5", true)] {
        write_json(&model.join("config.json"), &json!({"model_type": model_type}));
        let packed = "--format arrow --pack 4000 --pack-patches 4000";
        let ran = run(dir.path(), &model, &rows, packed, if refused { 2 } else { 0 }).1;
        if refused {
            ran.says(&["linear attention", "qwen3_5"]);
            // Unpacked chats of the same model are converted.
            run(dir.path(), &model, &rows, "--format arrow", 0);
        }
    }
}
