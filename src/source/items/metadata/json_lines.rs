//! Tables with one JSON object per line. The columns are the members of all objects, in order of first appearance.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::columns::WantedMetadata;
use super::rows::{MetadataRow, MetadataTable};
use crate::error::Result;
use crate::sample::{Reject, RejectCode};
use crate::schema::{Field, FieldType};
use crate::source::io::encoding::without_bom;
use crate::source::items::json_line::JsonObject;

pub(super) fn read(bytes: &[u8], wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    // The objects, each with the offset of its line.
    let (mut lines, mut offset) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let text = if offset == 0 { without_bom(line) } else { line };
        lines.push((offset, JsonObject::read(text.trim_ascii())));
        offset += line.len() as u64;
    }
    let mut names: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let mut nested = HashSet::new();
    let objects = lines.iter().filter_map(|(_, object)| object.as_ref().ok());
    for (name, value) in objects.flat_map(JsonObject::members) {
        if seen.insert(name) {
            names.push(name.clone());
        }
        if value.is_array() || value.is_object() {
            nested.insert(name);
        }
    }
    let columns = wanted.among(&names)?;
    let mut fields = Vec::new();
    for (_, kept) in &columns.kept {
        let found = if nested.contains(&kept.name) { FieldType::Json } else { FieldType::String };
        fields.push(Field::nullable(&kept.name, kept.ty.unwrap_or(found)));
    }
    let label = columns.label.map(|at| names[at].as_str());
    let path = columns.path.map(|at| names[at].as_str());
    let rows = lines.iter().zip(1..).map(|((mark, object), number)| {
        let mut row =
            MetadataRow { number, mark: *mark, name: None, label: None, values: Ok(Box::default()) };
        row.values = match object {
            Err(reject) => Err(reject.clone()),
            Ok(object) => fill(&mut row, object, path, label, &fields),
        };
        row
    });
    let rows = rows.collect();
    let has_labels = label.is_some();
    Ok(MetadataTable { path_field: columns.path_field, fields, has_labels, rows, counted: "line" })
}

/// Sets the name and label of the row, and returns its values.
fn fill(
    row: &mut MetadataRow,
    object: &JsonObject,
    path: Option<&str>,
    label: Option<&str>,
    fields: &[Field],
) -> Result<Box<[crate::sample::Value]>, Reject> {
    let wrong = |name: &str, what: &str| {
        Reject::new(RejectCode::WrongType, format!("the field {name:?} is not {what}"))
    };
    row.name = match path.map(|path| (path, object.members().get(path))) {
        None | Some((_, None | Some(Json::Null))) => None,
        Some((_, Some(Json::String(name)))) if name.is_empty() => None,
        Some((_, Some(Json::String(name)))) => Some(name.clone().into_bytes()),
        // An id.
        Some((_, Some(Json::Number(number)))) if !number.is_f64() => Some(number.to_string().into_bytes()),
        Some((path, Some(_))) => return Err(wrong(path, "a string or an integer")),
    };
    let found = match label.map(|name| (name, object.members().get(name))) {
        None | Some((_, None | Some(Json::Null))) => None,
        Some((_, Some(Json::String(text)))) => Some(text.clone()),
        Some((name, Some(Json::Number(number)))) => {
            Some(object.large_integer(name).map_or_else(|| number.to_string(), str::to_owned))
        }
        Some((name, Some(_))) => return Err(wrong(name, "a string or a number")),
    };
    let values: Box<[_]> =
        fields.iter().map(|f| object.value(&f.name, f.ty)).collect::<Result<_, Reject>>()?;
    row.label = found;
    Ok(values)
}
