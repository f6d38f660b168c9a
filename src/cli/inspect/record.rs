//! One record for people, for programs, and into a file.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::error::{Error, Result};
use crate::printable::printable;
use crate::reader::Record;
use crate::report::format::plural;
use crate::sample::Value;
use crate::schema::{FieldType, IMAGE, INPUT_IDS};
use crate::transform::image::sniff;

/// Ids that are printed before the rest is counted.
const SHOWN_IDS: usize = 16;
/// Characters of a text that are printed.
const SHOWN_CHARACTERS: usize = 200;

/// Characters of a decoded document that are printed.
const SHOWN_TEXT: usize = 2000;

/// Prints a record, long values cut; with the `text` of its ids in place of them.
pub(super) fn print(record: &Record, text: Option<&str>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "record {}", record.ordinal())?;
    for (name, ty, value) in record.fields() {
        if let (INPUT_IDS, Some(text)) = (name, text) {
            print_text(text, out)?;
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
            Value::Text(text) => cut(text.as_str()),
            Value::Bytes(bytes) => {
                let what = sniff(bytes).map_or("", |t| t.name());
                format!("{} bytes {what}", bytes.len()).trim_end().to_owned()
            }
            Value::Ids(ids) => {
                let mut text: Vec<String> = ids.iter().take(SHOWN_IDS).map(|id| id.to_string()).collect();
                if ids.len() > SHOWN_IDS {
                    text.push(format!("… ({} in all)", ids.len()));
                }
                text.join(" ")
            }
        };
        writeln!(out, "  {}: {text}", printable(name))?;
    }
    Ok(())
}

/// Prints the lines of a decoded document.
fn print_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  text:")?;
    let shown: String = text.chars().take(SHOWN_TEXT).collect();
    shown.lines().try_for_each(|line| writeln!(out, "{}", format!("    {}", printable(line)).trim_end()))?;
    match text.chars().count().saturating_sub(SHOWN_TEXT) {
        0 => Ok(()),
        more => writeln!(out, "    … and {}; --json shows all", plural(more as u64, "more character")),
    }
}

/// The text with control characters shown as escapes, cut after some characters: a dataset must not drive a terminal.
fn cut(text: &str) -> String {
    let mut shown = printable(&text.chars().take(SHOWN_CHARACTERS).collect::<String>()).into_owned();
    if text.chars().nth(SHOWN_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

/// The whole record, with the `text` of its ids, but for images and other bytes, of which the size is given.
pub(super) fn to_json(record: &Record, text: Option<&str>) -> Json {
    let mut fields = Map::new();
    fields.insert("record".to_owned(), json!(record.ordinal()));
    for (name, _, value) in record.fields() {
        let value = match value {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(i) => json!(i),
            Value::UInt(u) => json!(u),
            Value::Float(x) => json!(x),
            Value::Text(text) => json!(text.as_str()),
            Value::Bytes(bytes) => {
                json!({ "bytes": bytes.len(), "type": sniff(bytes).map(|t| t.media_type()) })
            }
            Value::Ids(ids) => ids.iter().collect(),
        };
        fields.insert(name.to_owned(), value);
    }
    if let Some(text) = text {
        fields.insert("text".to_owned(), json!(text));
    }
    Json::Object(fields)
}

/// Writes the image, or the ids as a JSON list, to a file that the user named.
pub(super) fn extract(record: &Record, file: &Path) -> Result<()> {
    let content = match (record.get(IMAGE), record.get(INPUT_IDS)) {
        (Some(Value::Bytes(bytes)), _) => bytes.to_vec(),
        (_, Some(Value::Ids(ids))) => format!("{}\n", ids.iter().collect::<Json>()).into_bytes(),
        _ => return Err(Error::usage("the record has neither an image nor token ids")),
    };
    std::fs::write(file, content).map_err(|e| Error::io("write", file, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(cut("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(cut(&"ä".repeat(300)).chars().count(), SHOWN_CHARACTERS + 1);
    }
}
