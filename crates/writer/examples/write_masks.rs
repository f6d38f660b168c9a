//! Writes token ids and marks of the tokens to train on, which another program made: `cargo run --example write_masks DIR
//! FORMAT < LINES`. Each line is a JSON object: `{"ids": [5, 6, 7], "masks": [0, 1, 1]}`. With a third argument, records are
//! rows of at most that many tokens, and each line has the ends of their documents: `"cu_seqlens": [0, 1, 3]`.

use std::io::BufRead;
use std::path::PathBuf;

use dsconvert_writer::error::{Error, Result};
use dsconvert_writer::format::Format;
use dsconvert_writer::sample::{Ids, Record, Value};
use dsconvert_writer::schema::{Field, FieldType, IdWidth, Schema};
use dsconvert_writer::{DatasetWriter, Provenance, WriterOptions};
use serde_json::{Value as Json, json};

const ENDS: &str = "cu_seqlens";

/// Returns the list `name` of a line.
fn numbers(line: &Json, name: &str) -> Result<Vec<u32>> {
    let list = line.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let number = |value: &Json| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let numbers: Option<Vec<u32>> = list.iter().map(number).collect();
    numbers.ok_or_else(|| Error::usage(format!("{name:?} has a value that is no number of 32 bits")))
}

fn packed(numbers: &[u32]) -> Result<Value> {
    let ids = Ids::pack(IdWidth::U32, numbers);
    ids.map(Value::Ids).ok_or_else(|| Error::usage("the numbers do not fit"))
}

fn main() -> Result<()> {
    let usage = || Error::usage("the arguments are a folder, a format and perhaps a number of tokens");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (out, format, row) = match arguments.as_slice() {
        [out, format] => (PathBuf::from(out), format, None),
        [out, format, row] => (PathBuf::from(out), format, Some(row.parse::<u64>().map_err(|_| usage())?)),
        _ => return Err(usage()),
    };
    let format = Format::ALL.into_iter().find(|other| other.name() == format).ok_or_else(usage)?;
    let ends = row.map(|_| Field::required(ENDS, FieldType::IdsU32));
    let schema = Schema::text(IdWidth::U32, ends.into_iter().collect())?.with_assistant_masks()?;
    let options = WriterOptions { format, shard_records: Some(100), ..WriterOptions::new(1, "masks") };
    let writer = DatasetWriter::open(&out, &schema, &options)?;
    let mut unit = writer.unit(0)?;
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|e| Error::usage("the lines cannot be read").caused_by(e))?;
        let line: Json =
            serde_json::from_str(&line).map_err(|e| Error::usage("this is not JSON").caused_by(e))?;
        let ids = numbers(&line, "ids")?;
        let masks: Vec<u8> = numbers(&line, "masks")?.into_iter().map(|mask| mask as u8).collect();
        let mut values = vec![
            Value::Text(format!("line-{number}").into()),
            packed(&ids)?,
            Value::UInt(ids.len() as u64),
            Value::Text("standard input".into()),
            Value::Bytes(masks.into()),
        ];
        if row.is_some() {
            values.push(packed(&numbers(&line, ENDS)?)?);
        }
        unit.push(Record { values }, "train")?;
    }
    unit.finish()?;
    let mut provenance = Provenance::default();
    if let Some(row) = row {
        provenance.options.insert("pack".to_owned(), json!(row));
    }
    writer.commit(&provenance)?;
    Ok(())
}
