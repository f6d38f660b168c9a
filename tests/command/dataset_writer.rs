//! `DatasetWriter` writes the bytes that the commands write, to a directory and to object storage.

use std::path::Path;

use dsconvert::reader::Dataset;
use dsconvert::storage::ObjectUrl;
use dsconvert::writer::unit::unit_of_shard;
use dsconvert::writer::{DatasetWriter, Existing, Provenance, ResumeCheck, WriterOptions};

use crate::remote_setup::*;
use crate::support::*;

/// Source and output of the child process of a test.
const CHILD: [&str; 2] = ["DSCONVERT_TEST_FROM", "DSCONVERT_TEST_OUT"];
/// Set if the child process ends before the commit.
const NO_COMMIT: &str = "DSCONVERT_TEST_NO_COMMIT";

/// Writes the records of the dataset `from` to `out`, in the same units. Those with even numbers are written by another
/// writer, in reverse order.
fn write_again(from: &Path, out: &Path) {
    let dataset = Dataset::open(from).unwrap();
    let manifest = dataset.manifest();
    let options = WriterOptions {
        splits: manifest.splits.keys().cloned().collect(),
        format: manifest.format,
        shard_records: Some(20),
        existing: Existing::Resume(ResumeCheck::Sizes),
        ..WriterOptions::new(manifest.plan.as_ref().unwrap().units, "again")
    };
    let write = |writer: &DatasetWriter, number: u32| {
        let mut unit = writer.unit(number).unwrap();
        for split in dataset.splits() {
            for shard in split.shards().iter().filter(|shard| unit_of_shard(&shard.name) == Some(number)) {
                for ordinal in shard.first_record..shard.first_record + shard.records {
                    unit.push(split.get(ordinal).unwrap().into_inner(), split.name()).unwrap();
                }
            }
        }
        unit.finish().unwrap();
    };
    let writer = DatasetWriter::open(out, dataset.schema(), &options).unwrap();
    writer.unfinished().unwrap().into_iter().filter(|n| n % 2 == 1).for_each(|n| write(&writer, n));
    drop(writer);
    let other = WriterOptions { fingerprint: "other".to_owned(), ..options.clone() };
    let refused = DatasetWriter::join(out, dataset.schema(), &other).err().unwrap();
    let help = match ObjectUrl::is_url(out) {
        true => "use the same ones; or choose another prefix for `out`",
        false => "use the same ones; or choose another `out`, or replace it with `overwrite`",
    };
    assert_eq!(refused.remedy(), Some(help));
    let joined = DatasetWriter::join(out, dataset.schema(), &options).unwrap();
    joined.unfinished().unwrap().into_iter().rev().for_each(|n| write(&joined, n));
    drop(joined);
    if std::env::var_os(NO_COMMIT).is_some() {
        return;
    }
    let writer = DatasetWriter::open(out, dataset.schema(), &options).unwrap();
    assert!(writer.unfinished().unwrap().is_empty());
    writer.commit(&Provenance::default()).unwrap();
}

/// The shards and indexes.
fn data(files: &Tree) -> Tree {
    files
        .iter()
        .filter(|(path, _)| path.contains('/'))
        .map(|(path, bytes)| (path.clone(), bytes.clone()))
        .collect()
}

#[test]
fn records_of_a_dataset_written_again_have_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, source, options) in [
        ("text", fixture("corpus"), "--tokenizer bytes --documents line --layout flat --unit-bytes 32KiB"),
        ("images", fixture("photos"), "--resize shorter:32 --unit-bytes 256KiB"),
    ] {
        for format in FORMATS {
            let (from, out) = (dir.path().join(format!("{kind}-{format}")), dir.path().join("out"));
            let options = format!(
                "{options} --shard-records 20 --split a=0.3,b=0.7 --max-rejects 50% --format {format}"
            );
            convert(kind, &source, &from, &options).exits(0);
            write_again(&from, &out);
            assert_same(&data(&tree(&out)), &data(&tree(&from)));
            let args = ["inspect", &out.display().to_string(), "--verify"].map(str::to_owned);
            Ran::of(command(args).output().unwrap()).exits(0);
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
}

/// Runs only as a child process of the next test, with the environment of an object store.
#[test]
fn child_that_writes_again() {
    if let [Some(from), Some(out)] = CHILD.map(std::env::var_os) {
        write_again(Path::new(&from), Path::new(&out));
    }
}

#[test]
fn a_dataset_is_written_to_object_storage() {
    let setup = Setup::new();
    let (from, local) = (setup.path("from"), setup.path("again"));
    let options = "--tokenizer bytes --documents line --layout flat --unit-bytes 32KiB --shard-records 20 --max-rejects 50%";
    convert("text", &fixture("corpus"), &from, options).exits(0);
    write_again(&from, &local);
    let child = || {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "dataset_writer::child_that_writes_again"]).envs(setup.server.environment());
        child.env(CHILD[0], &from).env(CHILD[1], OUT);
        child
    };
    Ran::of(child().env(NO_COMMIT, "1").output().unwrap()).exits(0);
    // A unit whose result was altered, and one that lacks a shard, are written again.
    setup.server.put(&format!("{PREFIX}.dsconvert/units/000001/unit.json"), "altered");
    let shards: Vec<String> = setup.server.keys(&format!("{PREFIX}train/"));
    setup.server.delete(shards.iter().find(|key| key.contains("-000002-")).unwrap());
    Ran::of(child().output().unwrap()).exits(0);
    assert_same(&setup.objects(), &tree(&local));
    setup.run("a", &format!("inspect {OUT} --verify")).exits(0);
}
