//! Writes chats with images, which another program made: `cargo run --example write_chat_images DIR FORMAT PROCESSOR < LINES`.
//! PROCESSOR is the resolved processor as JSON. Each line is a JSON object: `{"ids": [5, 6, 7], "masks": [0, 1, 1], "images":
//! ["a.png"], "grids": [[1, 4, 6]]}`. With a fourth argument, records are rows of at most that many tokens, and each line has the
//! ends of their documents: `"cu_seqlens": [0, 1, 3]`.

use std::io::BufRead;
use std::path::PathBuf;

use bytes::Bytes;
use dsconvert_writer::error::{Error, Result};
use dsconvert_writer::format::Format;
use dsconvert_writer::sample::{ArrayValue, Ids, Record, Value};
use dsconvert_writer::schema::{Field, FieldType, IdWidth, Schema};
use dsconvert_writer::{DatasetWriter, Provenance, WriterOptions};
use serde_json::{Value as Json, json};

const ENDS: &str = "cu_seqlens";

/// Returns the list `name` of a line.
fn list<'a>(line: &'a Json, name: &str) -> &'a [Json] {
    line.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice)
}

/// Returns the numbers of a list, also those in its lists.
fn numbers(list: &[Json]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for value in list {
        match value.as_array() {
            Some(inner) => found.extend(numbers(inner)?),
            None => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                found.push(number.ok_or_else(|| Error::usage(format!("{value} is no number of 32 bits")))?);
            }
        }
    }
    Ok(found)
}

fn packed(numbers: &[u32]) -> Result<Value> {
    let ids = Ids::pack(IdWidth::U32, numbers);
    ids.map(Value::Ids).ok_or_else(|| Error::usage("the numbers do not fit"))
}

fn record(number: usize, line: &Json, is_packed: bool) -> Result<Record> {
    let (ids, grids) = (numbers(list(line, "ids"))?, numbers(list(line, "grids"))?);
    let masks: Vec<u8> = numbers(list(line, "masks"))?.into_iter().map(|mask| mask as u8).collect();
    let path = |path: &Json| PathBuf::from(path.as_str().unwrap_or_default());
    let read = |path: PathBuf| std::fs::read(&path).map(Bytes::from).map_err(|e| Error::io("read", &path, e));
    let images = list(line, "images").iter().map(path).map(read).collect::<Result<Vec<_>>>()?;
    let patches: u32 = grids.chunks_exact(3).map(|grid| grid.iter().product::<u32>()).sum();
    let shape = vec![(grids.len() / 3) as u32, 3];
    let grids: Vec<u8> = grids.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut values = vec![
        Value::Text(format!("line-{number}").into()),
        packed(&ids)?,
        Value::UInt(ids.len() as u64),
        Value::Text("standard input".into()),
        Value::Bytes(masks.into()),
        Value::Files(images),
        Value::Array(ArrayValue::new(shape, grids.into())),
        Value::UInt(patches.into()),
    ];
    if is_packed {
        values.push(packed(&numbers(list(line, ENDS))?)?);
    }
    Ok(Record { values })
}

fn main() -> Result<()> {
    let usage =
        || Error::usage("the arguments are a folder, a format, a processor and perhaps a number of tokens");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, format, processor, row @ ..] = arguments.as_slice() else { return Err(usage()) };
    let row = row.first().map(|row| row.parse::<u64>()).transpose().map_err(|_| usage())?;
    let format = Format::ALL.into_iter().find(|other| other.name() == format).ok_or_else(usage)?;
    let parsed = |json: &str| {
        serde_json::from_str::<Json>(json).map_err(|e| Error::usage("this is not JSON").caused_by(e))
    };
    let ends = row.map(|_| Field::required(ENDS, FieldType::IdsU32));
    let schema =
        Schema::text(IdWidth::U32, ends.into_iter().collect())?.with_assistant_masks()?.with_images()?;
    let options = WriterOptions { format, ..WriterOptions::new(1, processor.as_str()) };
    let writer = DatasetWriter::open(PathBuf::from(out), &schema, &options)?;
    let mut unit = writer.unit(0)?;
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|e| Error::usage("the lines cannot be read").caused_by(e))?;
        unit.push(record(number, &parsed(&line)?, row.is_some())?, "train")?;
    }
    unit.finish()?;
    let mut provenance = Provenance::default();
    provenance.options.insert("multimodal".to_owned(), json!({"vision": parsed(processor)?}));
    if let Some(row) = row {
        provenance.options.insert("pack".to_owned(), json!(row));
    }
    writer.commit(&provenance)?;
    Ok(())
}
