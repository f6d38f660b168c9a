//! Tests of datasets that are opened with companions.

use std::path::Path;

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::format::Format;
use dsconvert_dataset::manifest::{Alignment, Binding, BoundField, MANIFEST_NAME, Manifest, resealed};
use dsconvert_dataset::sample::{Record as Sample, Value};
use dsconvert_dataset::schema::{Field, FieldType, INPUT_IDS, IdWidth, Kind, Schema};
use tempfile::TempDir;

use super::bound_split;
use crate::batch::{BatchOptions, BatchSize};
use crate::loader::{Loader, LoaderOptions};
use crate::testing::{record, schema, write, write_records};
use crate::{ClassNames, Concatenated, Dataset, OpenOptions, RecordSource};

/// Records of each split of the base.
const SPLITS: [&[u64]; 2] = [&[9, 3], &[5]];

/// Returns the score of record `i` in a companion.
fn score(i: u64) -> f64 {
    i as f64 * 1.5 - 3.0
}

/// Edits the manifest of the dataset at `dir`.
fn edit(dir: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = dir.join(MANIFEST_NAME);
    let mut manifest = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    std::fs::write(&path, resealed(&manifest).unwrap()).unwrap();
}

/// Returns the binding of a companion of the dataset at `base` whose fields are made from the fields `read`.
fn binding(base: &Path, read: &[&str]) -> Binding {
    let base = Dataset::open(base).unwrap();
    let manifest = base.manifest();
    let splits = base.splits().map(|split| (split.name().to_owned(), bound_split(&split, read).unwrap()));
    let ids = read.contains(&INPUT_IDS);
    Binding {
        fingerprint: manifest.fingerprint.clone(),
        manifest: manifest.digest.clone(),
        tokenizer: ids.then(|| manifest.tokenizer_sha256().unwrap_or("no file").to_owned()),
        template: Binding::template_of(manifest).filter(|_| ids),
        splits: splits.collect(),
        ..Binding::default()
    }
}

/// Writes a companion with the field `name`, whose shards are divided otherwise, and binds it.
fn companion(dir: &Path, name: &str, format: Format, binding: &Binding) {
    let fields =
        vec![Field::required(name, FieldType::Float64), Field::nullable("caption", FieldType::String)];
    let schema = Schema::text(IdWidth::U16, fields).unwrap();
    let sample = |i: u64| {
        let mut values = record(Kind::Text, i).values;
        values.truncate(4);
        let caption = if i.is_multiple_of(4) {
            Value::Null
        } else {
            Value::Text(format!("caption {i}").as_str().into())
        };
        values.extend([Value::Float(score(i)), caption]);
        Sample { values }
    };
    write_records(dir, format, schema, &[&[2, 10], &[1, 4]], sample).unwrap();
    edit(dir, |manifest| {
        manifest["fingerprint"] = "c0".repeat(32).into();
        manifest["binding"] = serde_json::to_value(binding).unwrap();
    });
}

/// Returns the paths of a base and of a companion with the field `quality`.
fn both(kind: Kind, format: Format, read: &[&str]) -> (TempDir, std::path::PathBuf, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (base, added) = (dir.path().join("base"), dir.path().join("added"));
    write(&base, format, kind, &SPLITS).unwrap();
    companion(&added, "quality", Format::Arrow, &binding(&base, read));
    (dir, base, added)
}

fn open(base: &Path, added: &Path) -> dsconvert_dataset::error::Result<Dataset> {
    OpenOptions::new().add_companion(added).open(base)
}

#[test]
fn records_have_the_fields_of_the_companion_in_every_way_of_reading() {
    for (format, kind) in Format::ALL.into_iter().flat_map(|f| [(f, Kind::Images), (f, Kind::Text)]) {
        let (_dir, base, added) = both(kind, format, &[]);
        let (plain, dataset) = (Dataset::open(&base).unwrap(), open(&base, &added).unwrap());
        let own = plain.schema().fields.len();
        assert_eq!(
            dataset.schema().fields[own..].iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["quality", "caption"]
        );
        let mut first = 0;
        for (split, plain) in dataset.splits().zip(plain.splits()) {
            let all: Vec<u64> = (0..split.len()).collect();
            let expected: Vec<Vec<Value>> = all
                .iter()
                .map(|&i| {
                    let mut values = plain.get(i).unwrap().into_inner().values;
                    let caption = match (first + i) % 4 {
                        0 => Value::Null,
                        _ => Value::Text(format!("caption {}", first + i).as_str().into()),
                    };
                    values.extend([Value::Float(score(first + i)), caption]);
                    values
                })
                .collect();
            first += split.len();
            let read = [
                split.get_many(&all).unwrap(),
                all.iter().map(|&i| split.get(i).unwrap()).collect(),
                split.iter().map(Result::unwrap).collect(),
                split.detached().iter().map(Result::unwrap).collect(),
            ];
            for records in read {
                assert_eq!(
                    records.iter().map(|r| r.values().to_vec()).collect::<Vec<_>>(),
                    expected,
                    "{format} {kind:?}"
                );
                assert!(records.iter().zip(&all).all(|(record, at)| record.ordinal() == *at));
            }
            assert_eq!(split.get(split.len()).unwrap_err().kind(), ErrorKind::OutOfRange);
            assert_eq!(split.get_many(&[0, split.len()]).unwrap_err().kind(), ErrorKind::OutOfRange);
            // Lengths and order are those of the base.
            let ranked =
                |split: &crate::Split| all.iter().map(|&i| split.by_length(i).unwrap()).collect::<Vec<_>>();
            assert_eq!(ranked(&split), ranked(&plain));
        }
    }
}

#[test]
fn a_selection_reads_only_what_it_needs() {
    let (_dir, base, added) = both(Kind::Text, Format::Arrow, &[]);
    let train = open(&base, &added).unwrap().split("train").unwrap();
    let some = train.select(&["quality", "key"]).unwrap();
    assert_eq!(some.get(4).unwrap().values(), [Value::Float(score(4)), Value::Text("item-4".into())]);
    let again = some.select(&["key", "quality"]).unwrap();
    assert_eq!(again.get(4).unwrap().values(), [Value::Text("item-4".into()), Value::Float(score(4))]);
    for (names, why) in [(["quality", "quality"], "twice"), (["quality", "nothing"], "no field \"nothing\"")]
    {
        assert!(train.select(&names).unwrap_err().to_string().contains(why));
    }
    // Without the base's shards, the fields of the companion can be read, and without those of the companion, the base's.
    std::fs::remove_dir_all(base.join("train")).unwrap();
    let train = open(&base, &added).unwrap().split("train").unwrap();
    assert_eq!(
        train.select(&["quality"]).unwrap().get_many(&[7]).unwrap()[0].float("quality"),
        Some(score(7))
    );
    assert!(train.get(7).is_err());
    let (_dir, base, added) = both(Kind::Text, Format::Arrow, &[]);
    std::fs::remove_dir_all(added.join("train")).unwrap();
    let train = open(&base, &added).unwrap().split("train").unwrap();
    assert_eq!(train.select(&["key"]).unwrap().get(7).unwrap().key(), Some("item-7"));
    let error = train.get(7).unwrap_err();
    assert!(error.to_string().contains("added"), "{error}");
}

#[test]
fn a_loader_has_the_batches_of_the_base_and_the_added_fields() {
    let (_dir, base, added) = both(Kind::Text, Format::Arrow, &[]);
    let load = |dataset: Dataset, fields: &[&str]| {
        let fields = fields.iter().map(|name| (*name).to_owned()).collect();
        let batches = BatchOptions::new(BatchSize::BatchSize(5));
        let options = LoaderOptions { seed: 3, fields: Some(fields), ..LoaderOptions::new(batches) };
        let loader = Loader::new(dataset.split("train").unwrap(), options).unwrap();
        let state = loader.state();
        (loader.map(Result::unwrap).collect::<Vec<_>>(), state)
    };
    let (plain, of_plain) = load(Dataset::open(&base).unwrap(), &["input_ids"]);
    let (joined, of_joined) = load(open(&base, &added).unwrap(), &["input_ids", "quality"]);
    assert_eq!(plain.len(), joined.len());
    for (plain, joined) in plain.iter().zip(&joined) {
        assert_eq!(plain.records(), joined.records());
        let ids = |batch: &crate::loader::Batch| {
            batch.array("input_ids").unwrap().as_slice::<i64>().unwrap().to_vec()
        };
        assert_eq!(ids(plain), ids(joined));
        let found = joined.array("quality").unwrap().as_slice::<f64>().unwrap();
        assert_eq!(found, joined.records().iter().map(|&i| score(i)).collect::<Vec<_>>());
    }
    // The state names the companion.
    let (plain, joined) =
        (serde_json::to_string(&of_plain).unwrap(), serde_json::to_string(&of_joined).unwrap());
    assert!(!plain.contains(&"c0".repeat(32)) && joined.contains(&"c0".repeat(32)), "{joined}");
    let options = LoaderOptions::new(BatchOptions::new(BatchSize::BatchSize(5)));
    let train = open(&base, &added).unwrap().split("train").unwrap();
    let mut loader = Loader::new(train, LoaderOptions { seed: 3, ..options }).unwrap();
    assert_eq!(loader.restore(&of_plain).unwrap_err().kind(), ErrorKind::Usage);
}

/// Writes the base again, changed by `edit`, and returns the error of opening it with the companion made before.
fn opened_after(read: &[&str], kind: Kind, change: impl FnOnce(&Path)) -> Result<(), String> {
    let (_dir, base, added) = both(kind, Format::Arrow, read);
    std::fs::remove_dir_all(&base).unwrap();
    change(&base);
    open(&base, &added).map(drop).map_err(|error| {
        assert_eq!((error.kind(), error.option()), (ErrorKind::Usage, Some("add")), "{error}");
        assert!(error.remedy().is_some_and(|help| help.contains("add-fields")));
        error.to_string()
    })
}

#[test]
fn a_base_that_changed_is_noticed_with_both_values() {
    let again = |kind,
                 fingerprint: &'static str,
                 splits: &'static [&'static [u64]],
                 change: fn(u64, &mut Vec<Value>)| {
        move |base: &Path| {
            let sample = |i| {
                let mut values = record(kind, i).values;
                change(i, &mut values);
                Sample { values }
            };
            write_records(base, Format::Msgpack, schema(kind).unwrap(), splits, sample).unwrap();
            edit(base, |manifest| manifest["fingerprint"] = fingerprint.into());
        }
    };
    let same: fn(u64, &mut Vec<Value>) = |_, _| {};
    let image: fn(u64, &mut Vec<Value>) = |i, values| {
        if i == 11 {
            values[1] = Value::Bytes(bytes::Bytes::from_static(b"another quality"));
        }
    };
    let key: fn(u64, &mut Vec<Value>) = |i, values| {
        if i == 14 {
            values[0] = Value::Text("other".into());
        }
    };
    let note: fn(u64, &mut Vec<Value>) = |_, values| values[6] = Value::Text("another note".into());
    let images = |read: &[&str], splits, change| {
        opened_after(read, Kind::Images, again(Kind::Images, "another", splits, change))
    };
    // The same records in another format and in other shards.
    images(&["image"], &[&[12], &[2, 3]], same).unwrap();
    images(&["image"], &[&[12], &[5]], note).unwrap();
    // Other content matters only to what was made from it.
    images(&[], &[&[12], &[5]], image).unwrap();
    let error = images(&["image"], &[&[12], &[5]], image).unwrap_err();
    assert!(
        error.contains("the content of \"image\" in split \"train\" had the digest xxh3-128:"),
        "{error}"
    );
    assert!(error.contains(&"0f".repeat(32)) && error.contains("now has another"), "{error}");
    let error = images(&[], &[&[12], &[5]], key).unwrap_err();
    assert!(error.contains("the keys in split \"validation\" had the digest xxh3-128:"), "{error}");
    // An extended dataset.
    let error = images(&[], &[&[12, 1], &[5]], same).unwrap_err();
    assert!(
        error.contains("made for 12 records in split \"train\", and the dataset has 13 records"),
        "{error}"
    );
    let error = images(&[], &[&[12]], same).unwrap_err();
    assert!(error.contains("5 records in split \"validation\", which the dataset does not have"), "{error}");
    let error = images(&["note"], &[&[12], &[5]], note).unwrap_err();
    assert!(error.contains("the content of \"note\""), "{error}");
}

#[test]
fn records_that_are_the_same_are_recognized_by_their_checksums_alone() {
    let (_dir, base, added) = both(Kind::Images, Format::Msgpack, &["image"]);
    std::fs::remove_dir_all(&base).unwrap();
    let sample = |i| record(Kind::Images, i);
    write_records(&base, Format::Msgpack, schema(Kind::Images).unwrap(), &[&[12], &[2, 3]], sample).unwrap();
    // No record can be read.
    for split in ["train", "validation"] {
        for shard in std::fs::read_dir(base.join(split)).unwrap() {
            let path = shard.unwrap().path();
            let bytes = std::fs::metadata(&path).unwrap().len() as usize;
            std::fs::write(&path, vec![0xff; bytes]).unwrap();
        }
    }
    open(&base, &added).unwrap();
    // Companions of earlier versions have no such digest.
    let without = |manifest: &mut serde_json::Value| {
        manifest["binding"]["splits"]["train"].as_object_mut().unwrap().remove("checksums").unwrap();
    };
    edit(&added, without);
    assert_eq!(open(&base, &added).unwrap_err().kind(), ErrorKind::Corrupt);
    // The values of a field with another name are those of another field.
    let (_dir, base, added) = both(Kind::Images, Format::Arrow, &["note"]);
    edit(&base, |manifest| {
        let fields = manifest["schema"]["fields"].as_array_mut().unwrap();
        fields.iter_mut().find(|field| field["name"] == "note").unwrap()["name"] = "remark".into();
    });
    let error = open(&base, &added).unwrap_err();
    assert!(error.to_string().contains("made from the field \"note\""), "{error}");
}

#[test]
fn another_tokenizer_is_named() {
    let base = |sha256: &'static str, ids: bool| {
        move |base: &Path| {
            let sample = move |i| {
                let mut values = record(Kind::Text, i).values;
                if ids && i == 1 {
                    values[1] =
                        Value::Ids(dsconvert_dataset::sample::Ids::pack(IdWidth::U16, &[1; 7]).unwrap());
                }
                Sample { values }
            };
            write_records(base, Format::Arrow, schema(Kind::Text).unwrap(), &SPLITS, sample).unwrap();
            edit(base, |manifest| manifest["tokenizer"] = serde_json::json!({"sha256": sha256}));
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let (path, added) = (dir.path().join("base"), dir.path().join("added"));
    base("1111", false)(&path);
    companion(&added, "logprob", Format::Arrow, &binding(&path, &[INPUT_IDS]));
    open(&path, &added).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    base("2222", false)(&path);
    let error = open(&path, &added).unwrap_err().to_string();
    assert!(error.contains("SHA-256 1111") && error.contains("are of 2222"), "{error}");
    // A companion by key does not depend on the tokenizer.
    companion(
        &added,
        "rating",
        Format::Arrow,
        &Binding { fingerprint: "x".into(), manifest: Some("y".into()), ..binding(&path, &[]) },
    );
    open(&path, &added).unwrap();
}

#[test]
fn other_datasets_and_names_that_are_taken_are_refused() {
    let (dir, base, added) = both(Kind::Text, Format::Arrow, &[]);
    let error = open(&base, &base).unwrap_err();
    assert!(error.to_string().contains("this dataset is no companion"), "{error}");
    let error = OpenOptions::new().add_companion(&added).add_companion(&added).open(&base).unwrap_err();
    assert!(error.to_string().contains("field \"quality\" already"), "{error}");
    let taken = dir.path().join("taken");
    companion(&taken, "note", Format::Parquet, &binding(&base, &[]));
    assert!(open(&base, &taken).unwrap_err().to_string().contains("field \"note\" already"));
    // A companion may be made from the fields of another one.
    let second = dir.path().join("second");
    let opened = open(&base, &added).unwrap();
    let read = |name| bound_split(&opened.split(name).unwrap(), &["quality"]).unwrap();
    let splits = ["train", "validation"].map(|name| (name.to_owned(), read(name)));
    let bound =
        Binding { splits: splits.into(), manifest: Some("of an older base".into()), ..binding(&base, &[]) };
    companion(&second, "second", Format::Arrow, &bound);
    edit(&second, |manifest| {
        let fields = manifest["schema"]["fields"].as_array_mut().unwrap();
        fields.retain(|field| field["name"] != "caption");
    });
    assert!(
        OpenOptions::new()
            .add_companion(&second)
            .open(&base)
            .unwrap_err()
            .to_string()
            .contains("from the field \"quality\"")
    );
    let opened = OpenOptions::new().add_companion(&added).add_companion(&second).open(&base).unwrap();
    assert_eq!(opened.companions().len(), 2);
    let properties = RecordSource::properties(&opened.split("train").unwrap());
    assert_eq!(properties.added["second"].reads, ["quality"]);
    assert!(properties.added["quality"].reads.is_empty());
}

#[test]
fn datasets_that_are_read_as_one_need_the_companion_in_each() {
    let (_dir, base, added) = both(Kind::Text, Format::Arrow, &[]);
    let (_other_dir, other, _) = both(Kind::Text, Format::Arrow, &[]);
    let source =
        |dataset: Dataset| -> std::sync::Arc<dyn RecordSource> { dataset.split("train").unwrap().into() };
    let parts = |second: Dataset| {
        vec![
            ("first".to_owned(), source(open(&base, &added).unwrap())),
            ("second".to_owned(), source(second)),
        ]
    };
    let error = Concatenated::new(parts(Dataset::open(&other).unwrap()), ClassNames::Equal).unwrap_err();
    assert!(
        error.to_string().contains("first has the field \"quality\" of a companion, but second does not"),
        "{error}"
    );
    let both = Concatenated::new(parts(open(&base, &added).unwrap()), ClassNames::Equal).unwrap();
    let records = both.get_many(&[1, 13]).unwrap();
    assert_eq!([records[0].float("quality"), records[1].float("quality")], [Some(score(1)); 2]);
    assert!(both.properties().added.contains_key("quality"));
}

#[test]
fn how_fields_follow_the_base_is_known_to_readers() {
    let dir = tempfile::tempdir().unwrap();
    let (base, added) = (dir.path().join("base"), dir.path().join("added"));
    write(&base, Format::Arrow, Kind::Text, &SPLITS).unwrap();
    let mut bound = binding(&base, &[INPUT_IDS]);
    let field =
        BoundField { per: Some(INPUT_IDS.to_owned()), aligned: Alignment::Input, ..BoundField::default() };
    bound.fields.insert("quality".to_owned(), field.clone());
    companion(&added, "quality", Format::Arrow, &bound);
    assert_eq!(Manifest::read(&added).unwrap().binding, Some(bound));
    let properties = RecordSource::properties(&open(&base, &added).unwrap().split("train").unwrap());
    assert_eq!(properties.added["quality"].bound, field);
    assert_eq!(properties.added["quality"].reads, [INPUT_IDS]);
}
