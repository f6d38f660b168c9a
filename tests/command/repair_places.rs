//! Repairs of files whose place is taken by something else.

use std::path::Path;

use crate::support::*;

fn inspect(out: &Path, options: &str) -> Ran {
    let mut command = command([Path::new("inspect"), out]);
    Ran::of(command.args(options.split_whitespace()).output().unwrap())
}

#[test]
fn what_takes_the_place_of_a_file_is_named_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out, elsewhere) =
        (dir.path().join("c.jsonl"), dir.path().join("ds"), dir.path().join("moved"));
    corpus(&source, 200);
    let options = "--tokenizer bytes --shard-records 40";
    convert("text", &source, &out, options).exits(0);
    let whole = tree(&out);
    let name = whole.keys().find(|name| name.starts_with("train/")).unwrap();
    let repairs = [format!("{options} --resume=repair"), String::new()];
    for taken in [name.as_str(), "index/shards.arrow", "train"] {
        let place = out.join(taken);
        std::fs::rename(&place, &elsewhere).unwrap();
        let mut makers: Vec<&dyn Fn()> = Vec::new();
        let (file, folder) = (
            || std::fs::write(&place, "mine").unwrap(),
            || {
                std::fs::create_dir(&place).unwrap();
                std::fs::write(place.join("notes"), "mine").unwrap();
            },
        );
        let link = || std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
        makers.push(&link);
        match taken {
            "train" => makers.push(&file),
            _ => makers.push(&folder),
        }
        for make in makers {
            make();
            let before = tree(dir.path());
            for repair in &repairs {
                let ran = match repair.as_str() {
                    "" => inspect(&out, &format!("--verify --repair {}", source.display())),
                    options => convert("text", &source, &out, options),
                };
                assert!([2, 3].contains(&ran.status), "{ran:?}");
                let path = place.display().to_string();
                let parts = [path.as_str(), "remove ", ", then repair again"];
                ran.says(&parts);
                assert_same(&tree(dir.path()), &before);
            }
            if place.is_symlink() || place.is_file() {
                std::fs::remove_file(&place).unwrap();
            } else {
                std::fs::remove_dir_all(&place).unwrap();
            }
        }
        // Without it, the repair succeeds.
        inspect(&out, &format!("--verify --repair {}", source.display())).exits(0);
        assert_same(&tree(&out), &whole);
        let _ = std::fs::remove_dir_all(&elsewhere).or_else(|_| std::fs::remove_file(&elsewhere));
    }
}

#[test]
fn a_dataset_without_its_shard_table_says_how_to_repair_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("c.jsonl"), dir.path().join("ds"));
    corpus(&source, 50);
    convert("text", &source, &out, "--tokenizer bytes").exits(0);
    std::fs::remove_file(out.join("index/shards.arrow")).unwrap();
    inspect(&out, "--verify").exits(3).says(&["to repair it from its sources", "--verify --repair SRC"]);
    std::fs::write(out.join("index/shards.arrow"), "x").unwrap();
    inspect(&out, "--verify").exits(3).says(&["to repair it from its sources", "--verify --repair SRC"]);
    inspect(&out, &format!("--verify --repair {}", source.display())).exits(0);
}
