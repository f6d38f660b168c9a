//! Output of one record: as text, as JSON, or into a file.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use super::masks::DecodedText;
use crate::cli::output_file::{check_output, refuse_other_kind, write_output};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::printable::printable;
use crate::reader::Record;
use crate::sample::{Numbers, Value, trained};
use crate::schema::{FieldType, IMAGE, INPUT_IDS};
use crate::transform::image::{ImageType, sniff};

/// Maximum number of ids or boxes to print; the others are counted.
const SHOWN_IDS: usize = 16;
/// Maximum number of characters of a text to print.
const SHOWN_CHARACTERS: usize = 200;

/// Prints a record with long values truncated, and with `text`, if given, in place of its ids.
pub(super) fn print(record: &Record, text: Option<&DecodedText>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "record {}", record.ordinal())?;
    for (name, ty, value) in record.fields() {
        if let (INPUT_IDS, Some(text)) = (name, text) {
            text.print(out)?;
            continue;
        }
        let text = match value {
            Value::Null => "(none)".to_owned(),
            Value::Bool(b) => b.to_string(),
            Value::Int(i) if ty == FieldType::Label => match record.class_name() {
                Some(class) => format!("{i} ({})", printable(class)),
                None => i.to_string(),
            },
            Value::Int(i) => i.to_string(),
            Value::UInt(u) => u.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Text(text) => truncated(text.as_str()),
            Value::Bytes(marks) if ty == FieldType::Flags => {
                format!("{} of {} trained on", trained(marks), plural(marks.len() as u64, "token"))
            }
            Value::Bytes(bytes) => match Numbers::of(ty, value) {
                Some(numbers) => shown_numbers(record, ty, &numbers),
                None => shown_file(bytes),
            },
            Value::Ids(ids) => first_of(ids.iter().map(|id| id.to_string())),
            Value::Texts(texts) => {
                first_of(texts.iter().map(|text| format!("{:?}", truncated(text.as_str()))))
            }
            Value::Files(files) => first_of(files.iter().map(|file| shown_file(file))),
            Value::Array(array) => {
                let sizes: Vec<String> = array.shape().iter().map(u32::to_string).collect();
                let numbers = Numbers::of(ty, value).map(|numbers| first_of(numbers.texts()));
                format!("{}: {}", sizes.join(" × "), numbers.unwrap_or_default())
            }
        };
        writeln!(out, "  {}: {text}", printable(name))?;
    }
    Ok(())
}

/// Returns the items of a list as text: names of classes, numbers, or rows of numbers in parentheses.
fn shown_numbers(record: &Record, ty: FieldType, numbers: &Numbers<&Bytes>) -> String {
    let class = |label: String| {
        let name = label.parse::<usize>().ok().and_then(|label| record.schema().class_names.get(label));
        name.map_or(label, |name| printable(name).into_owned())
    };
    let mut texts = numbers.texts();
    match numbers.shape[..] {
        [rows, columns] => {
            let row = |_| format!("({})", texts.by_ref().take(columns).collect::<Vec<_>>().join(" "));
            first_of((0..rows).map(row))
        }
        _ if ty.is_class() => first_of(texts.map(class)),
        _ => first_of(texts),
    }
}

/// Joins the first `items`; the others are counted.
fn first_of(items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    let mut text: Vec<String> = items.take(SHOWN_IDS).collect();
    if count > SHOWN_IDS {
        text.push(format!("… ({count} in all)"));
    }
    text.join(" ")
}

/// Truncates text and escapes its control characters, so that a dataset cannot control the terminal.
fn truncated(text: &str) -> String {
    let mut shown = printable(&text.chars().take(SHOWN_CHARACTERS).collect::<String>()).into_owned();
    if text.chars().nth(SHOWN_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

/// Member of the JSON of a record for its number.
const RECORD: &str = "record";
/// Member for the decoded text.
const TEXT: &str = "text";
/// Member for the fields whose names are those of other members.
const FIELDS: &str = "fields";

/// Returns the whole record as JSON, with the `text` of its ids. Images and other bytes are given by size and type.
pub(super) fn to_json(record: &Record, text: Option<&str>) -> Json {
    let is_taken = |name: &str| name == RECORD || (text.is_some() && name == TEXT);
    let has_clash = record.fields().any(|(name, ..)| is_taken(name));
    let (mut members, mut clashing) = (Map::new(), Map::new());
    members.insert(RECORD.to_owned(), json!(record.ordinal()));
    for (name, ty, value) in record.fields() {
        let value = match value {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(i) => json!(i),
            Value::UInt(u) => json!(u),
            Value::Float(x) => json!(x),
            Value::Text(text) => json!(text.as_str()),
            Value::Bytes(bytes) => {
                Numbers::of(ty, value).map_or_else(|| file_json(bytes), |numbers| numbers.to_json())
            }
            Value::Files(files) => files.iter().map(|file| file_json(file)).collect(),
            Value::Ids(ids) => ids.iter().collect(),
            Value::Texts(texts) => texts.iter().map(|text| json!(text.as_str())).collect(),
            Value::Array(_) => Numbers::of(ty, value).map_or(Json::Null, |numbers| numbers.to_json()),
        };
        match is_taken(name) || (has_clash && name == FIELDS) {
            true => clashing.insert(name.to_owned(), value),
            false => members.insert(name.to_owned(), value),
        };
    }
    if let Some(text) = text {
        members.insert(TEXT.to_owned(), json!(text));
    }
    if has_clash {
        members.insert(FIELDS.to_owned(), Json::Object(clashing));
    }
    Json::Object(members)
}

/// Describes the bytes of a file.
fn shown_file(bytes: &[u8]) -> String {
    let what = sniff(bytes).map_or("", |t| t.name());
    format!("{} bytes {what}", bytes.len()).trim_end().to_owned()
}

fn file_json(bytes: &[u8]) -> Json {
    json!({ "bytes": bytes.len(), "type": sniff(bytes).map(|t| t.media_type()) })
}

/// Writes the image, or the ids as a JSON list, to `file`, which must not be part of `dataset`.
pub(super) fn extract(record: &Record, file: &Path, dataset: &Path) -> Result<()> {
    check_output("extract", file, Some(dataset))?;
    let (content, ty, name) = match (record.get(IMAGE), record.get(INPUT_IDS)) {
        (Some(Value::Bytes(bytes)), _) => {
            let ty = sniff(bytes).unwrap_or(ImageType::Raw);
            (bytes.to_vec(), Some(ty), ty.name())
        }
        (_, Some(Value::Ids(ids))) => {
            (format!("{}\n", ids.iter().collect::<Json>()).into_bytes(), None, "a list of token ids")
        }
        _ => return Err(Error::usage("the record has neither an image nor token ids")),
    };
    let named = file.file_name().and_then(|name| ImageType::of_name(&name.to_string_lossy()));
    if let Some(other) = named.filter(|named| Some(*named) != ty) {
        let what = format!("the content is {name}, and the extension is for {other}");
        let error = Error::usage(what).of_option("extract").at_path(file);
        return Err(error.help(format!("name it .{}", ty.map_or("json", ImageType::extension))));
    }
    match ty {
        // Raw pixels have no marks.
        Some(ImageType::Raw) => {}
        Some(_) => refuse_other_kind("extract", file, "an image", |start| sniff(start).is_some())?,
        None => refuse_other_kind("extract", file, name, |start| start.starts_with(b"["))?,
    }
    write_output(file, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(truncated("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(truncated(&"ä".repeat(300)).chars().count(), SHOWN_CHARACTERS + 1);
    }
}
