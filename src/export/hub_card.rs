//! The metadata of a dataset card, which the Hugging Face Hub and `datasets` read.

use std::fmt::Write;

use crate::schema::{ArrayLayout, ArrayType, FieldType, LABEL, ListItems, Schema};

/// What the card lists of a split.
#[derive(Debug)]
pub(crate) struct CardSplit {
    pub(crate) name: String,
    /// Pattern of its files, relative to the card.
    pub(crate) pattern: String,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
}

/// What the card says of the records of all splits.
#[derive(Debug)]
pub(crate) struct Features {
    /// What models are trained to do with them, in a term of the Hub.
    pub(crate) task: Option<&'static str>,
    /// Names of the fields, with their types in the YAML of `datasets`.
    pub(crate) fields: Vec<(String, String)>,
}

impl Features {
    pub(crate) fn of(schema: &Schema) -> Self {
        let task = match schema.holds_token_ids() {
            true => Some("text-generation"),
            false => schema.index_of(LABEL).map(|_| "image-classification"),
        };
        let fields = schema.fields.iter().map(|field| (field.name.clone(), feature(field.ty, schema)));
        Self { task, fields: fields.collect() }
    }
}

/// Returns the YAML at the start of the card, with its delimiters.
pub(crate) fn metadata(features: &Features, splits: &[CardSplit]) -> String {
    let mut card = String::from("---\n");
    let mut add = |line: std::fmt::Arguments<'_>| {
        // Writing to a string never fails.
        let _ = writeln!(card, "{line}");
    };
    add(format_args!("# Choose a license: https://huggingface.co/docs/hub/repositories-licenses"));
    add(format_args!("license: other"));
    if let Some(task) = features.task {
        add(format_args!("task_categories:\n- {task}"));
    }
    let records = splits.iter().map(|split| split.records).sum();
    add(format_args!("size_categories:\n- {}", size_category(records)));
    add(format_args!("configs:\n- config_name: default\n  data_files:"));
    for split in splits {
        add(format_args!("  - split: {}\n    path: {}", quoted(&split.name), quoted(&split.pattern)));
    }
    add(format_args!("dataset_info:\n  features:"));
    for (name, feature) in &features.fields {
        add(format_args!("  - name: {}\n    {feature}", quoted(name)));
    }
    add(format_args!("  splits:"));
    for split in splits {
        add(format_args!(
            "  - name: {}\n    num_bytes: {}\n    num_examples: {}",
            quoted(&split.name),
            split.bytes,
            split.records
        ));
    }
    let bytes: u64 = splits.iter().map(|split| split.bytes).sum();
    add(format_args!("  download_size: {bytes}\n  dataset_size: {bytes}"));
    add(format_args!("---"));
    card
}

/// Returns the type of a field in the YAML of `datasets`.
fn feature(ty: FieldType, schema: &Schema) -> String {
    match ty {
        FieldType::Image | FieldType::Mask => "dtype: image".to_owned(),
        FieldType::Json => "dtype: string".to_owned(),
        ty if ty.is_class() => {
            let names = schema.class_names.iter().enumerate();
            let names = names.map(|(label, name)| format!("\n          '{label}': {}", quoted(name)));
            let outer = if ty.list_items().is_some() { "sequence" } else { "dtype" };
            format!("{outer}:\n      class_label:\n        names:{}", names.collect::<String>())
        }
        FieldType::Texts => "list: string".to_owned(),
        FieldType::Images => "list: image".to_owned(),
        FieldType::Array(array) => array_feature(array),
        ty => match ty.list_items() {
            Some(ListItems { dtype, columns: None }) => format!("sequence: {dtype}"),
            Some(ListItems { dtype, columns: Some(_) }) => format!("sequence:\n      sequence: {dtype}"),
            None => format!("dtype: {}", ty.name()),
        },
    }
}

/// Returns the type of arrays in the YAML of `datasets`. The exported files are Parquet, whose lists have no size.
fn array_feature(array: ArrayType) -> String {
    let number = array.dtype().stored();
    let nested = |lists: usize| {
        let outer = (1..lists).map(|list| format!("list:\n{:1$}", "", 4 + 2 * list));
        format!("{}list: {number}", outer.collect::<String>())
    };
    match array.layout() {
        ArrayLayout::Fixed(sizes) if sizes.is_empty() => format!("dtype: {number}"),
        ArrayLayout::Fixed(sizes) => nested(sizes.len()),
        ArrayLayout::Rows(sizes) => nested(sizes.len() + 1),
        ArrayLayout::Shaped(_) => {
            format!("struct:\n    - name: data\n      list: {number}\n    - name: shape\n      list: int32")
        }
    }
}

/// Returns whether `datasets` accepts the name of a split: it reads "all" as every split, and "-" as an expression.
pub(crate) fn is_hub_split(name: &str) -> bool {
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric());
    name != "all" && name.split('.').all(is_word)
}

/// Quotes text as a YAML string: a JSON string in which the characters are escaped that YAML forbids or treats as line
/// breaks.
pub(super) fn quoted(text: &str) -> String {
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
    fn names_are_quoted_for_yaml() {
        assert_eq!(quoted("no"), "\"no\"");
        assert_eq!(quoted("\u{7f}\u{85}é\u{2028}\u{fffe}"), r#""\u007f\u0085é\u2028\ufffe""#);
        assert_eq!(quoted("a: \"b\"\n#"), r#""a: \"b\"\n#""#);
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
