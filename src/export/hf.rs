//! A folder of Parquet files and a card that `datasets.load_dataset` opens.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};

use super::hub_card::{CardSplit, Features, is_hub_split, metadata};
use super::output::StagedFiles;
use super::{ExportInput, ExportOptions, ExportSplit, Exporter, Part, check_images, encoded_images, entry};
use crate::error::{Error, Result};
use crate::format::{Format, ShardWriter, check_schema, writer};
use crate::manifest::{CARD_NAME, FileEntry};
use crate::numbers::plural;
use crate::reader::Record;
use crate::sample;
use crate::schema::Schema;

/// Stored bytes of the records of a file, by default: what the Hub recommends.
const PART_BYTES: u64 = 500_000_000;

/// Folders for `datasets`.
pub(super) struct HuggingFace {
    schema: Arc<Schema>,
}

impl HuggingFace {
    pub(super) fn new(input: &ExportInput, _: &ExportOptions) -> Result<Self> {
        encoded_images(input)?;
        check_split_names(input)?;
        let schema = Arc::new(input.schema()?.clone());
        check_schema(Format::Parquet, &schema)?;
        Ok(Self { schema })
    }
}

impl Exporter for HuggingFace {
    type Block = Vec<sample::Record>;
    /// The name and the writer of the file.
    type Files = (String, Box<dyn ShardWriter>);

    fn default_parts(&self, split: &ExportSplit) -> u64 {
        default_parts(split)
    }

    fn described(&self) -> Value {
        json!({})
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<Vec<sample::Record>> {
        let ordinals: Vec<u64> = records.collect();
        let records = split.source.get_many(&ordinals)?;
        for record in &records {
            check_images(record).map_err(|e| split.source.at_record(e, record.ordinal()))?;
        }
        Ok(records.into_iter().map(Record::into_inner).collect())
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<Self::Files> {
        let name = file_name(part);
        let writer = writer(Format::Parquet, Arc::clone(&self.schema), staged.create(&name)?)?;
        Ok((name, writer))
    }

    fn append(&self, (_, writer): &mut Self::Files, block: Vec<sample::Record>) -> Result<()> {
        block.iter().try_for_each(|record| writer.push(record).map(drop))
    }

    fn close(&self, (name, writer): Self::Files, _: &StagedFiles) -> Result<Vec<FileEntry>> {
        Ok(vec![entry(name, writer.finish()?.commit()?)])
    }

    fn finish(&self, parts: &[(&Part<'_>, &[FileEntry])], staged: &StagedFiles) -> Result<Vec<FileEntry>> {
        write_card(&Features::of(&self.schema), self.schema.kind.name(), parts, staged)
    }
}

/// Refuses names of splits that `datasets` reads as something else.
pub(super) fn check_split_names(input: &ExportInput) -> Result<()> {
    match input.splits.iter().find(|split| !is_hub_split(&split.name)) {
        None => Ok(()),
        Some(split) => {
            Err(Error::usage(format!("`datasets` does not allow the split name {:?}", split.name))
                .help("convert with a split name of letters, digits and underscores, other than \"all\""))
        }
    }
}

/// Returns how many files a split has by default.
pub(super) fn default_parts(split: &ExportSplit) -> u64 {
    split.bytes.div_ceil(PART_BYTES)
}

/// Returns the name of the file of a part, which `datasets` recognizes.
pub(super) fn file_name(part: &Part<'_>) -> String {
    format!("data/{}-{:05}-of-{:05}.parquet", part.split.name, part.number, part.count)
}

/// Writes the card of records of `what`.
pub(super) fn write_card(
    features: &Features,
    what: &str,
    parts: &[(&Part<'_>, &[FileEntry])],
    staged: &StagedFiles,
) -> Result<Vec<FileEntry>> {
    let mut splits: Vec<CardSplit> = Vec::new();
    for (part, files) in parts {
        let name = &part.split.name;
        if splits.last().is_none_or(|split| split.name != *name) {
            let pattern = format!("data/{name}-*.parquet");
            splits.push(CardSplit { name: name.clone(), pattern, bytes: 0, records: 0 });
        }
        if let Some(split) = splits.last_mut() {
            split.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
            split.records += part.records.end - part.records.start;
        }
    }
    let records = plural(splits.iter().map(|split| split.records).sum(), "record");
    let card = format!(
        "{}\n{records} of {what}, exported by [dsconvert](https://docs.rs/dsconvert) {}.\n\n```python\nimport datasets\n\n\
         dataset = datasets.load_dataset(\"PATH OR NAME\")\n```\n\n## Sources and license\n\nDescribe where the data \
         comes from and the terms of its use.\n",
        metadata(features, &splits),
        env!("CARGO_PKG_VERSION")
    );
    Ok(vec![entry(CARD_NAME.to_owned(), staged.write(CARD_NAME, card.as_bytes())?)])
}
