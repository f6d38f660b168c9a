//! Writes a dataset of token ids in two units, and reads it back: `cargo run --example write_and_read DIR`.

#![allow(clippy::print_stdout, reason = "this is an example")]

use std::path::Path;

use dsconvert_reader::Dataset;
use dsconvert_writer::error::Result;
use dsconvert_writer::sample::{Ids, Record, Value};
use dsconvert_writer::schema::{IdWidth, Schema};
use dsconvert_writer::{DatasetWriter, Existing, Provenance, ResumeCheck, WriterOptions};

pub(crate) fn write_and_read(out: &Path) -> Result<Vec<String>> {
    let schema = Schema::text(IdWidth::U16, vec![])?; // key, input_ids, length, origin
    let existing = Existing::Resume(ResumeCheck::Sizes); // the program can be killed and started again
    let options = WriterOptions { existing, ..WriterOptions::new(2, "squares, version 1") };
    let writer = DatasetWriter::open(out, &schema, &options)?;
    for number in writer.unfinished()? {
        let mut unit = writer.unit(number)?;
        for n in (0..10).skip(number as usize).step_by(2) {
            let (key, ids) = (format!("squares-{n}"), (0..n).map(|i| i * i).collect::<Vec<u32>>());
            match Ids::pack(IdWidth::U16, &ids).filter(|ids| !ids.is_empty()) {
                None => unit.filter(key, "no ids", "train")?,
                Some(packed) => {
                    let (length, origin) = (Value::UInt(ids.len() as u64), Value::Text("example".into()));
                    let values = vec![Value::Text(key.into()), Value::Ids(packed), length, origin];
                    unit.push(Record { values }, "train")?;
                }
            }
        }
        unit.finish()?;
    }
    writer.commit(&Provenance::default())?;
    let show = |record: dsconvert_reader::Record| {
        let ids = record.input_ids().map(|ids| ids.iter().collect::<Vec<u32>>());
        format!("{}: {:?}", record.key().unwrap_or_default(), ids.unwrap_or_default())
    };
    Dataset::open(out)?.split("train")?.iter().map(|record| Ok(show(record?))).collect()
}

fn main() -> Result<()> {
    let out = std::env::args_os().nth(1).unwrap_or_else(|| "squares".into());
    write_and_read(Path::new(&out))?.iter().for_each(|record| println!("{record}"));
    Ok(())
}
