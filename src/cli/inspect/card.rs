//! `--card`: writes a `README.md` so that the Hugging Face Hub and `datasets.load_dataset` open the directory as is.

use std::io::Write;
use std::path::Path;

use indicatif::HumanBytes;

use super::{Out, is_shard, open_dataset, print_error};
use crate::cli::summary::Lines;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::manifest::CARD_NAME;
use crate::numbers::{count, mean, plural};
use crate::printable::{printable, printable_path};
use crate::reader::{Dataset, DatasetDescription};
use crate::schema::{FieldType, LABEL, Schema};
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
    let mut card = Lines::default();
    card.add("---");
    add_metadata(&mut card, &description);
    card.add("---");
    let name =
        dataset.path().canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_owned()));
    let name =
        name.map_or_else(|| "Dataset".to_owned(), |name| printable(&name.to_string_lossy()).into_owned());
    card.add(format_args!("\n# {}\n", markdown(&name)));
    add_text(&mut card, &description);
    Ok(card.0)
}

/// Adds the YAML metadata that the Hub and `datasets` read.
fn add_metadata(card: &mut Lines, d: &DatasetDescription) {
    card.add("# Choose a license: https://huggingface.co/docs/hub/repositories-licenses");
    card.add("license: other");
    if d.schema.holds_token_ids() {
        card.add("task_categories:\n- text-generation");
    } else if d.schema.index_of(LABEL).is_some() {
        card.add("task_categories:\n- image-classification");
    }
    card.add(format_args!("size_categories:\n- {}", size_category(d.records)));
    card.add("configs:\n- config_name: default\n  data_files:");
    // Splits without records have no shards, and `datasets` rejects patterns that match nothing.
    let splits = || d.splits.iter().filter(|(_, split)| split.records > 0);
    for (name, _) in splits() {
        card.add(format_args!(
            "  - split: {}\n    path: {}",
            quoted(name),
            quoted(&format!("{name}/*.{}", d.format.extension()))
        ));
    }
    card.add("dataset_info:\n  features:");
    for field in &d.schema.fields {
        card.add(format_args!("  - name: {}\n    {}", quoted(&field.name), feature(field.ty, &d.schema)));
    }
    card.add("  splits:");
    for (name, split) in splits() {
        card.add(format_args!(
            "  - name: {}\n    num_bytes: {}\n    num_examples: {}",
            quoted(name),
            split.bytes,
            split.records
        ));
    }
    card.add(format_args!("  download_size: {}\n  dataset_size: {}", d.bytes, d.bytes));
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

/// Returns the type of a field in the YAML of `datasets`.
fn feature(ty: FieldType, schema: &Schema) -> String {
    match ty {
        FieldType::Image | FieldType::Mask => "dtype: image".to_owned(),
        FieldType::Json => "dtype: string".to_owned(),
        FieldType::IdsU16 => "sequence: uint16".to_owned(),
        FieldType::IdsU32 => "sequence: uint32".to_owned(),
        FieldType::Flags => "sequence: int8".to_owned(),
        FieldType::Label => {
            let names = schema.class_names.iter().enumerate();
            let names = names.map(|(label, name)| format!("\n          '{label}': {}", quoted(name)));
            format!("dtype:\n      class_label:\n        names:{}", names.collect::<String>())
        }
        other => format!("dtype: {}", other.name()),
    }
}

/// Returns whether `datasets` accepts the name of a split: it reads "all" as every split, and "-" as an expression.
fn is_hub_split(name: &str) -> bool {
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
    name != "all" && name.split('.').all(is_word)
}

/// Quotes text as a YAML string: a JSON string in which the characters are escaped that YAML forbids or treats as line
/// breaks.
fn quoted(text: &str) -> String {
    let is_special = |c: char| {
        matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    let json = serde_json::Value::from(text).to_string();
    json.chars().fold(String::with_capacity(json.len()), |mut yaml, c| {
        match is_special(c) {
            true => yaml.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => yaml.push(c),
        }
        yaml
    })
}

/// Escapes the characters that Markdown treats as markup.
fn markdown(text: &str) -> String {
    let special = |c: char| "\\`*_{}[]<>()#+!|~$&".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Returns the Hub's size category for a number of records.
fn size_category(records: u64) -> &'static str {
    match records {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        10_000_000..100_000_000 => "10M<n<100M",
        100_000_000..1_000_000_000 => "100M<n<1B",
        _ => "n>1B",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_yaml_and_text_is_escaped_for_markdown() {
        assert_eq!(quoted("no"), "\"no\"");
        assert_eq!(quoted("\u{7f}\u{85}é\u{2028}\u{fffe}"), r#""\u007f\u0085é\u2028\ufffe""#);
        assert_eq!(quoted("a: \"b\"\n#"), r#""a: \"b\"\n#""#);
        assert_eq!(markdown("a_b <i>"), r"a\_b \<i\>");
    }

    #[test]
    fn only_split_names_of_datasets_are_accepted() {
        assert!(["train", "no", "0", "fold_1.a", "größe"].into_iter().all(is_hub_split));
        assert!(!["all", "2024-01", "a.", ".a", "a b"].into_iter().any(is_hub_split));
    }

    #[test]
    fn size_categories_are_those_of_the_hub() {
        assert_eq!(
            [0, 999, 1_000, 99_999_999, u64::MAX].map(size_category),
            ["n<1K", "n<1K", "1K<n<10K", "10M<n<100M", "n>1B"]
        );
    }
}
