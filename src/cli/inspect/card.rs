//! `--card`: writes a `README.md` so that the Hugging Face Hub and `datasets.load_dataset` open the directory as is.

use std::io::Write;
use std::path::Path;

use indicatif::HumanBytes;

use super::{Out, is_shard, open_dataset, print_error};
use crate::cli::summary::Lines;
use crate::error::{Error, Result};
use crate::export::hub_card::{self, CardSplit, Features, is_hub_split};
use crate::format::Format;
use crate::manifest::CARD_NAME;
use crate::numbers::{count, mean, plural};
use crate::printable::{printable, printable_path};
use crate::reader::{Dataset, DatasetDescription};
use crate::storage::{Access, lstat, write_file};

/// Writes the card into the directory of the dataset.
pub(super) fn exec(path: &Path, access: Access, out: &mut Out) -> Result<()> {
    if is_shard(path)? {
        return Err(Error::usage("--card needs a dataset, and this is a single shard")
            .at_path(path)
            .help("name the directory of the dataset"));
    }
    let dataset = open_dataset(path, access)?;
    let file = dataset.path().join(CARD_NAME);
    if lstat(&file)?.is_some() {
        return Err(Error::usage("the dataset card already exists")
            .at_path(file)
            .help("remove it to write a new one"));
    }
    write_file(&file, card(&dataset)?.as_bytes())?;
    writeln!(out, "wrote {}", printable_path(&file)).map_err(print_error)
}

fn card(dataset: &Dataset) -> Result<String> {
    let description = dataset.describe()?;
    if !matches!(description.format, Format::Parquet | Format::Arrow) {
        return Err(Error::usage(format!("the Hub cannot open {} shards", description.format))
            .at_path(dataset.path())
            .help("convert with --format parquet or arrow"));
    }
    if let Some(name) = description.splits.keys().find(|name| !is_hub_split(name)) {
        return Err(Error::usage(format!("the Hub does not allow the split name {name:?}"))
            .at_path(dataset.path())
            .help("convert with a split name of letters, digits and underscores, other than \"all\""));
    }
    let mut card = Lines(metadata(&description));
    let name =
        dataset.path().canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_owned()));
    let name =
        name.map_or_else(|| "Dataset".to_owned(), |name| printable(&name.to_string_lossy()).into_owned());
    card.add(format_args!("\n# {}\n", markdown(&name)));
    add_text(&mut card, &description);
    Ok(card.0)
}

/// Returns the YAML metadata that the Hub and `datasets` read.
fn metadata(d: &DatasetDescription) -> String {
    // Splits without records have no shards, and `datasets` rejects patterns that match nothing.
    let splits = d.splits.iter().filter(|(_, split)| split.records > 0);
    let splits = splits.map(|(name, split)| CardSplit {
        name: name.clone(),
        pattern: format!("{name}/*.{}", d.format.extension()),
        bytes: split.bytes,
        records: split.records,
    });
    hub_card::metadata(&Features::of(&d.schema), &splits.collect::<Vec<_>>())
}

/// Adds the Markdown text below the metadata.
fn add_text(card: &mut Lines, d: &DatasetDescription) {
    let sources = printable(&d.sources.labels.join(", ")).into_owned();
    card.add(format_args!(
        "{} of {} in {} ({}), converted from {} ({}) by [dsconvert](https://docs.rs/dsconvert) {}.\n",
        plural(d.records, "record"),
        d.kind.name(),
        plural(d.shards, "shard"),
        HumanBytes(d.bytes),
        markdown(&sources),
        plural(d.sources.files, "file"),
        d.dsconvert
    ));
    let unit = d.schema.length_unit().name();
    card.add(format_args!("| split | records | bytes | mean {unit} | median {unit} | maximum {unit} |"));
    card.add("|---|---|---|---|---|---|");
    for (name, split) in &d.splits {
        let length = &split.length;
        card.add(format_args!(
            "| {name} | {} | {} | {} | {} | {} |",
            count(split.records),
            count(split.bytes),
            mean(length.mean),
            count(length.p50),
            count(length.max)
        ));
    }
    card.add(format_args!(
        "\nOf {} found, {} {} converted, {} filtered, {} left out as duplicates and {} rejected.\n",
        plural(d.counts.found, "item"),
        count(d.counts.converted),
        if d.counts.converted == 1 { "was" } else { "were" },
        count(d.counts.filtered),
        count(d.counts.duplicates),
        count(d.counts.rejected)
    ));
    card.add("```python\nimport datasets\n\ndataset = datasets.load_dataset(\"PATH OR NAME\")\n```");
    card.add("\n## Sources and license\n\nDescribe where the data comes from and the terms of its use.");
}

/// Escapes the characters that Markdown treats as markup.
fn markdown(text: &str) -> String {
    let special = |c: char| "\\`*_{}[]<>()#+!|~$&".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_markdown() {
        assert_eq!(markdown("a_b <i>"), r"a\_b \<i\>");
    }
}
