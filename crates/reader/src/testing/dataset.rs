// Writes a small dataset of any format and kind. Included by unit tests, doctests and benchmarks.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::format::Format;
use dsconvert_dataset::index::{
    IndexEntry, LengthIndexBuilder, RecordIndexWriter, ShardEntry, write_shard_table,
};
use dsconvert_dataset::manifest::{Counts, FileEntry, MANIFEST_NAME, Manifest, PlanInfo, Sources, Split};
use dsconvert_dataset::sample::{Ids, Record, Value, index_values, length_of};
use dsconvert_dataset::schema::{Field, FieldType, IdWidth, Kind, Schema};
use dsconvert_dataset::storage::{NewFile, create_dir, write_file};

/// Returns the schema of the records of [`write`].
pub(super) fn schema(kind: Kind) -> Result<Schema> {
    let extra =
        vec![Field::nullable("note", FieldType::String), Field::nullable("score", FieldType::Float64)];
    match kind {
        Kind::Images => Schema::images(Some(vec!["cat".to_owned(), "dog".to_owned()]), extra),
        Kind::Text => Schema::text(IdWidth::U16, extra),
        Kind::Records => {
            let number = Field::required("number", FieldType::UInt32);
            Schema::records(
                [number, Field::nullable("blob", FieldType::Binary)].into_iter().chain(extra).collect(),
            )
        }
    }
}

/// Returns record `i` of [`write`]: `i * 7 % 13` tokens, an "image" of a few bytes that no decoder reads, or such bytes.
pub(super) fn record(kind: Kind, i: u64) -> Record {
    let length = i * 7 % 13;
    let mut values = vec![Value::Text(format!("item-{i}").as_str().into())];
    match kind {
        Kind::Images => {
            let image: Vec<u8> = (0..length * 5 + 1).map(|k| (k * 31 + i) as u8).collect();
            let label = if i.is_multiple_of(5) { Value::Null } else { Value::Int((i % 2) as i64) };
            values.extend([Value::Bytes(image.into()), Value::UInt(length + 1), Value::UInt(i + 1), label]);
        }
        Kind::Text => {
            let ids: Vec<u32> = (0..length).map(|k| (k * 1009 + i) as u32 % 65_536).collect();
            let ids = Ids::pack(IdWidth::U16, &ids).map_or(Value::Null, Value::Ids);
            values.extend([ids, Value::UInt(length)]);
        }
        Kind::Records => {
            let blob: Vec<u8> = (0..length * 5).map(|k| (k * 31 + i) as u8).collect();
            let blob = if i.is_multiple_of(5) { Value::Null } else { Value::Bytes(blob.into()) };
            values.extend([Value::UInt(length), blob]);
        }
    }
    if kind != Kind::Records {
        values.push(Value::Text(format!("source/{}.txt", i / 2).as_str().into()));
    }
    values.push(if i.is_multiple_of(3) { Value::Null } else { Value::Text("ÿ and more".into()) });
    values.push(Value::Float(i as f64 / 8.0));
    Record { values }
}

/// Writes a dataset with the splits `train`, `validation`, …, one per element of `splits`, which lists the number of
/// records of each shard. Records are numbered across splits: the first of `validation` follows the last of `train`.
pub(super) fn write(dir: &Path, format: Format, kind: Kind, splits: &[&[u64]]) -> Result<()> {
    write_records(dir, format, schema(kind)?, splits, |i| record(kind, i))
}

/// Same as [`write`], with custom records and a custom schema.
pub(super) fn write_records(
    dir: &Path,
    format: Format,
    schema: Schema,
    splits: &[&[u64]],
    record: impl Fn(u64) -> Record,
) -> Result<()> {
    let kind = schema.kind;
    let mut table = Vec::new();
    let mut all = Counts::default();
    let mut listed = BTreeMap::new();
    let mut next = 0;
    for (name, shards) in ["train", "validation", "test"].into_iter().zip(splits) {
        create_dir(&dir.join(name))?;
        let mut records = RecordIndexWriter::create(dir, name, &schema)?;
        let mut trained_tokens = schema.masks_field().map(|_| 0);
        let mut lengths = LengthIndexBuilder::new(dir, 1 << 20);
        let first = next;
        let mut bytes = 0;
        let mut class_counts = schema.label_field().map(|_| vec![0; schema.class_names.len()]);
        for (ordinal, &count) in shards.iter().enumerate() {
            let shard = format!("{name}-{ordinal:06}-00.{}", format.extension());
            let file = NewFile::create(&dir.join(name).join(&shard))?;
            let mut writer = dsconvert_dataset::format::writer(format, Arc::new(schema.clone()), file)?;
            let first_record = next - first;
            for _ in 0..count {
                let record = record(next);
                let placed = writer.push(&record)?;
                let length = length_of(&schema, &record.values).unwrap_or_default();
                let label = schema.label_field().and_then(|field| match record.values.get(field)? {
                    Value::Int(label) => class_counts.as_mut()?.get_mut(usize::try_from(*label).ok()?),
                    _ => None,
                });
                label.into_iter().for_each(|count| *count += 1);
                lengths.push(length)?;
                let columns = index_values(&schema, &record.values).unwrap_or_default();
                if let Some(all) = &mut trained_tokens {
                    *all += u64::from(columns[0]);
                }
                records.push(&IndexEntry {
                    shard: ordinal as u32,
                    position: placed.position,
                    bytes: placed.bytes,
                    length,
                    crc32c: record.crc32c(),
                    columns,
                })?;
                next += 1;
            }
            let written = writer.finish()?.commit()?;
            bytes += written.bytes;
            table.push(ShardEntry {
                name: shard,
                split: name.to_owned(),
                records: count,
                bytes: written.bytes,
                sha256: written.sha256,
                first_record,
            });
        }
        let record_index = records.finish()?;
        let (mut length_index, length) = lengths.finish(dir, name, kind.length_unit())?;
        let Some(length_histogram) = length_index.pop() else { continue };
        let records = next - first;
        let counts = Counts { found: records, converted: records, ..Counts::default() };
        all.add(&counts);
        let shards = shards.len() as u64;
        listed.insert(
            name.to_owned(),
            Split {
                counts,
                records,
                shards,
                bytes,
                length,
                class_counts,
                trained_tokens,
                record_index,
                length_index,
                length_histogram,
            },
        );
    }
    // One reject, so that the file of rejects is not empty.
    if let Some(train) = listed.get_mut("train") {
        let rejected = Counts { found: 1, rejected: 1, ..Counts::default() };
        train.counts.add(&rejected);
        all.add(&rejected);
    }
    let mut rejects = NewFile::create(&dir.join("rejects.jsonl"))?;
    let _ = rejects
        .write(b"{\"origin\":\"a/b.txt\",\"code\":\"empty\",\"message\":\"there is nothing in it\"}\n");
    let rejects = rejects.commit()?;
    let units = splits.iter().map(|shards| shards.len()).max().unwrap_or_default();
    let mut manifest = Manifest {
        manifest_version: Manifest::version(&schema),
        digest: None,
        dsconvert: "0.0.0".to_owned(),
        fingerprint: "0f".repeat(32),
        format,
        schema,
        options: Default::default(),
        tokenizer: None,
        sources: Sources::default(),
        binding: None,
        plan: Some(PlanInfo { units: units as u32, ..PlanInfo::default() }),
        counts: all,
        reject_codes: BTreeMap::from([("empty".to_owned(), 1)]),
        notes: BTreeMap::new(),
        splits: listed,
        shard_table: write_shard_table(dir, &table)?,
        files: vec![FileEntry {
            path: "rejects.jsonl".to_owned(),
            bytes: rejects.bytes,
            sha256: rejects.sha256,
        }],
    };
    write_file(&dir.join(MANIFEST_NAME), &manifest.seal()?)?;
    Ok(())
}
