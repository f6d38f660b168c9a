//! The conversions that power cuts interrupt.

use std::path::{Path, PathBuf};

use crate::inject::{Action, Fault, Library, counts, run_plainly};
use crate::power::{PowerCase, Steps};
use crate::scenario::{IMAGES, RICH, SHARD_TABLE, TEXT, damage, path, remove};
use crate::sources::{write_images, write_text};

/// Returns all kinds of conversions and states of the output directory. Sources and datasets are written below `root`.
pub fn all(root: &Path, library: &Library) -> Vec<PowerCase> {
    let (text, images) = (root.join("text"), root.join("images"));
    // Several units, so that several processes have something to do.
    write_text(&text, 8);
    write_images(&images);
    let rich = format!("{RICH} --threads 2 --format msgpack");
    let plain = format!("{IMAGES} --threads 2 --format parquet");
    let other = dataset(&root.join("other"), &text, &format!("{TEXT} --format arrow"));
    let killed = killed_in_commit(&root.join("killed"), &text, library);
    let damaged = dataset(&root.join("damaged"), &text, &rich);
    damage(&damaged);
    let unindexed = dataset(&root.join("unindexed"), &text, &rich);
    for name in [SHARD_TABLE, "rejects.jsonl"] {
        std::fs::write(unindexed.join(name), "x").unwrap();
    }
    let (text, images) = (("text", &*text, &*rich), ("images", &*images, &*plain));
    let overwrite = Steps::Convert("--overwrite");
    let repair = Steps::Convert("--resume=repair");
    vec![
        PowerCase::new("overwrite", root, text, overwrite, Some(other)),
        PowerCase::new("overwrite of a run that was killed", root, text, overwrite, Some(killed)),
        PowerCase::new("parts", root, text, Steps::Parts, None),
        PowerCase::new("repair of shards", root, text, repair, Some(damaged)),
        PowerCase::new("repair of indexes", root, text, repair, Some(unindexed)),
        PowerCase::new("images", root, images, Steps::Convert(""), None),
        PowerCase::new("text", root, text, Steps::Convert(""), None),
    ]
}

fn convert_text(out: &Path, source: &Path, options: &str) -> Vec<String> {
    let words = format!("text {} --out {} {options}", path(source), path(out));
    words.split_whitespace().map(str::to_owned).collect()
}

/// Makes a dataset at `out`.
fn dataset(out: &Path, source: &Path, options: &str) -> PathBuf {
    let ran = run_plainly(&convert_text(out, source, options));
    assert_eq!(ran.status, Some(0), "{}: {}", out.display(), ran.stderr);
    out.to_owned()
}

/// Starts a run at `out` and kills it while its commit renames files to their final paths.
fn killed_in_commit(out: &Path, source: &Path, library: &Library) -> PathBuf {
    let args = convert_text(out, source, &format!("{TEXT} --format arrow"));
    let log = out.with_extension("log");
    let renames = counts(&library.run(&args, &[out], None, &log).log)["rename"];
    remove(out);
    let fault = Fault { kind: "rename", nth: renames - 3, action: Action::KillAfter };
    assert_eq!(library.run(&args, &[out], Some(&fault), &log).status, None);
    assert!(out.join(".dsconvert/pending.json").exists() && out.join("train").exists());
    out.to_owned()
}
