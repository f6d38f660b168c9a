//! The units of a companion: runs of the records of its base, each written as a whole.

use std::collections::BTreeSet;
use std::ops::Range;

use dsconvert_writer::{DatasetWriter, Provenance, WriterOptions};
use serde_json::json;

use super::join::{CHECKED_ROWS, Join, keys_of};
use super::{AddOptions, AddOutput, Added, check_stop, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::Binding;
use crate::numbers::plural;
use crate::pipeline::Stop;
use crate::reader::{Dataset, Split};
use crate::sample::{Record, Value};
use crate::schema::Field;

/// Mean bytes of the values of a unit.
const UNIT_BYTES: u64 = 256 << 20;
/// Maximum number of records of a unit.
const MAX_UNIT_RECORDS: u64 = 1 << 20;

/// Writes the companion of `base` with the values of `join`.
pub(super) fn write(
    base: &Dataset,
    mut join: Join,
    binding: Binding,
    options: &AddOptions,
    output: &AddOutput,
    stop: &Stop,
) -> Result<Added> {
    let unit_records = (UNIT_BYTES / join.mean_bytes().max(1)).clamp(1, MAX_UNIT_RECORDS);
    let splits: Vec<Split> = base.unverified().splits().collect();
    let units: Vec<(&Split, Range<u64>)> = splits
        .iter()
        .flat_map(|split| {
            let starts = (0..split.len()).step_by(unit_records as usize);
            starts.map(move |start| (split, start..split.len().min(start + unit_records)))
        })
        .collect();
    let identity = json!({
        "base": binding,
        "options": options,
        "table": join.content,
        "unit_records": unit_records,
    });
    let count =
        u32::try_from(units.len().max(1)).map_err(|_| Error::usage("the dataset has too many records"))?;
    let writer_options = WriterOptions {
        splits: splits.iter().map(|split| split.name().to_owned()).collect(),
        format: options.format,
        existing: output.existing,
        scratch: output.scratch.clone(),
        ..WriterOptions::new(count, format!("companion {identity}"))
    };
    let added = Added {
        fields: join.fields.iter().map(|field| field.name.clone()).collect(),
        records: splits.iter().map(Split::len).sum(),
        missing: join.missing,
        surplus: join.surplus,
        was_complete: false,
    };
    let writer = DatasetWriter::open(&output.out, &schema(join.fields.clone())?, &writer_options)?;
    if writer.committed().is_some() {
        return Ok(Added { was_complete: true, ..added });
    }
    stop.start_writing(Default::default());
    let unfinished: BTreeSet<u32> = writer.unfinished()?.into_iter().collect();
    for (number, (split, records)) in (0..).zip(units) {
        check_stop(stop)?;
        if !unfinished.contains(&number) {
            records.into_iter().try_for_each(|_| join.skip())?;
            continue;
        }
        match write_unit(&writer, number, split, records, &mut join, options, stop) {
            // The table can never become this companion.
            Err(error) if error.kind() == ErrorKind::Usage => {
                writer.abandon()?;
                return Err(error);
            }
            written => written?,
        }
    }
    let table = join.table();
    let mut described = match serde_json::to_value(options) {
        Ok(serde_json::Value::Object(described)) => described,
        _ => serde_json::Map::new(),
    };
    described.insert("table_rows".to_owned(), join.table_rows.into());
    described.insert("surplus_rows".to_owned(), join.surplus.into());
    described.insert("records_without_row".to_owned(), join.missing.into());
    let files = table.files();
    writer.commit(&Provenance {
        options: described,
        sources: vec![table.path().file_name().unwrap_or_default().to_string_lossy().into_owned()],
        files,
        binding: Some(binding),
        ..Provenance::default()
    })?;
    Ok(added)
}

/// Writes the unit `number` with the records `records` of `split`.
fn write_unit(
    writer: &DatasetWriter,
    number: u32,
    split: &Split,
    records: Range<u64>,
    join: &mut Join,
    options: &AddOptions,
    stop: &Stop,
) -> Result<()> {
    let mut unit = writer.unit(number)?;
    let fields = join.fields.clone();
    for (at, key) in records.clone().zip(keys_of(split, records)?) {
        if at % CHECKED_ROWS == 0 {
            check_stop(stop)?;
        }
        let key = key?;
        let values = join.next(&key)?;
        check_bound(split, at, &key, &fields, &values, options)?;
        let values = std::iter::once(Value::Text(key.as_str().into())).chain(values).collect();
        unit.push(Record { values }, split.name())?;
    }
    unit.finish().map(drop)
}

/// Checks that values per token are as many as the tokens of their record.
fn check_bound(
    split: &Split,
    record: u64,
    key: &str,
    fields: &[Field],
    values: &[Value],
    options: &AddOptions,
) -> Result<()> {
    for (field, value) in fields.iter().zip(values) {
        let Some(bound) = options.bound.get(&field.name) else { continue };
        let is_null = |name: &String| {
            let at = fields.iter().position(|field| field.name == *name);
            at.and_then(|at| values.get(at)).is_some_and(|value| *value == Value::Null)
        };
        if let Some(twin) = &bound.flip
            && is_null(twin) != is_null(&field.name)
        {
            let what = format!("of {:?} and {twin:?} of key {key:?}, only one is null", field.name);
            return Err(Error::usage(what).of_option("flip"));
        }
        let Some(ids) = bound.per.as_ref().or(bound.of.as_ref()) else { continue };
        let items = match value {
            Value::Array(array) if bound.per.is_some() => array.shape().first().copied().map(u64::from),
            Value::Null => {
                let what =
                    format!("{:?} of key {key:?} is null, and has a value for each of {ids:?}", field.name);
                return Err(Error::usage(what).of_option("missing").help("add the value to the table"));
            }
            _ => continue,
        };
        let tokens = split.length(record)?;
        if items != Some(tokens) {
            let (items, tokens) = (plural(items.unwrap_or_default(), "value"), plural(tokens, "token"));
            let what = format!("{:?} of key {key:?} has {items}, and the record has {tokens}", field.name);
            return Err(Error::usage(what).of_option("per"));
        }
    }
    Ok(())
}
