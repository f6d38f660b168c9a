//! Check that the first rows of files have the requested fields, so that a run with a misspelled name never starts.
//!
//! Tables with a schema are not checked here, because their columns are known when they are listed. Of JSON Lines files
//! and tables of separated values, the first rows of a few files are examined. A field that none of them has is
//! considered misspelled.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::options::TextOptions;
use super::plan::TextFile;
use super::roles::MessageRoles;
use super::sources::source::FieldNames;
use super::sources::source_of;
use super::unread;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::SourceSpec;
use crate::sampling;
use crate::source::io::encoding::without_bom;
use crate::source::io::stream::Stream;
use crate::source::items::json_line::members::MemberPath;
use crate::source::items::json_line::parse;
use crate::source::items::metadata::columns::field_not_seen;
use crate::source::items::text::columns::TextColumns;
use crate::source::items::text::rows;
use crate::source::list::file_list::FileList;
use crate::source::table::missing_field::{quoted, suggestion};
use crate::warning::Warning;

/// Maximum number of rows examined per file.
const ROWS: usize = 1000;
/// Maximum number of files examined, chosen by a hash.
const FILES: usize = 16;
/// Bytes of a file that are read at first.
const FIRST_BYTES: usize = 64 << 10;
/// Maximum bytes of a file that are read; fewer are enough if they contain all rows to examine.
const FILE_BYTES: usize = 1 << 20;
/// Maximum number of field names listed in messages.
const NAMES: usize = 64;

/// Help for rows in which no field is text.
const NO_TEXT: &str = "none of these holds text: name a member of one with a path such as meta.text; chats are read with \
                       `messages_field`, pairs with `prompt_field` and `completion_field`";

/// A requested field.
struct RequestedField<'a> {
    name: &'a str,
    path: MemberPath,
    seen: bool,
}

impl<'a> RequestedField<'a> {
    fn new(name: &'a str) -> Self {
        Self { name, path: MemberPath::new(name), seen: false }
    }
}

/// The requested fields, and what the examined rows have.
struct FieldSearch<'a> {
    text: Vec<(RequestedField<'a>, &'static str)>,
    key: Option<RequestedField<'a>>,
    kept: Vec<RequestedField<'a>>,
    /// Field names in the order in which they first appear.
    names: Vec<String>,
    /// Those of them that are not empty in some row.
    filled: Vec<String>,
    /// The roles of messages, if options name roles.
    roles: Option<MessageRoles>,
    /// Names of fields of JSON that hold something other than text in the first row that has them.
    not_text: Vec<String>,
    /// Number of examined rows of JSON.
    rows: u64,
    /// Number of files in which rows or the names of columns were examined.
    files: u64,
    /// Whether there is a table among them, whose rows are not examined.
    has_tables: bool,
    /// Whether all rows of all files were examined.
    complete: bool,
}

/// Examines the first rows of `files`, or of standard input, whose bytes can still be read afterwards.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if no examined row has a requested field. Also fails if standard input
/// cannot be read.
pub(super) fn check(
    options: &TextOptions,
    files: &FileList,
    sources: &[SourceSpec],
    details: &[TextFile],
    stdin: Option<&mut Stream>,
) -> Result<Vec<Warning>> {
    let names_of = |detail: &TextFile| source_of(detail.kind.format).field_names();
    let has_fields =
        |detail: &TextFile| detail.defect.is_none() && !matches!(names_of(detail), FieldNames::Known);
    let with_fields: Vec<usize> = (0..files.len()).filter(|&at| has_fields(&details[at])).collect();
    let examined = with_fields.len().min(FILES);
    // A table with a schema has all kept columns, or it would have been refused.
    let has_columns = details.iter().any(|detail| detail.columns.is_some());
    let (fields, read) = (options.recipe.text_fields(), options.recipe.read_fields());
    let mut search = FieldSearch {
        text: fields
            .names()
            .into_iter()
            .filter(|(.., is_required)| *is_required)
            .map(|(name, option, _)| (RequestedField::new(name), option))
            .collect(),
        key: options.recipe.key_field.as_deref().map(RequestedField::new),
        kept: read
            .iter()
            .map(|k| RequestedField { seen: has_columns, ..RequestedField::new(&k.name) })
            .collect(),
        names: Vec::new(),
        filled: Vec::new(),
        roles: MessageRoles::new(&options.recipe.chat),
        not_text: Vec::new(),
        rows: 0,
        files: 0,
        has_tables: false,
        complete: examined == with_fields.len(),
    };
    let mut first = None;
    if let (Some(stream), [file]) = (stdin, &with_fields[..]) {
        search.complete = search.read(stream, names_of(&details[*file]))?;
        return search.into_warnings(options, details, Some(Path::new("-")));
    }
    for at in sampling::sample(with_fields.len() as u64, FILES as u64) {
        let Some(&ordinal) = usize::try_from(at).ok().and_then(|at| with_fields.get(at)) else { continue };
        let Some(file) = files.get(ordinal) else { continue };
        // The run reads unreadable files again, and reports the error.
        let kind = details[ordinal].kind;
        let source = source_of(kind.format);
        let read = file
            .stream_start(sources, options.recipe.follow_symlinks, kind.compression)
            .map(|stream| source.decoded(stream, options.recipe.encoding))
            .and_then(|mut stream| search.read(&mut stream, source.field_names()));
        search.complete &= read.unwrap_or(false);
        first.get_or_insert_with(|| file.path(sources));
    }
    search.into_warnings(options, details, first.as_deref())
}

impl<'a> FieldSearch<'a> {
    /// Examines the first rows of a file. Returns whether these are all rows.
    fn read(&mut self, stream: &mut Stream, names: FieldNames) -> Result<bool> {
        let mut limit = FIRST_BYTES;
        loop {
            // Few bytes are read at first, so that a slow pipe does not delay the first messages.
            let bytes = stream.peek(limit)?;
            let is_end = bytes.len() < limit;
            if is_end || limit == FILE_BYTES || bytes.iter().filter(|&&b| b == b'\n').count() >= ROWS {
                return Ok(self.rows(bytes, is_end, names));
            }
            limit = (limit * 2).min(FILE_BYTES);
        }
    }

    /// Examines the rows at the start of a file. Returns whether these are all rows.
    fn rows(&mut self, bytes: &[u8], is_end: bool, names: FieldNames) -> bool {
        if let FieldNames::InHeader(dialect) = names {
            // The first line has the names of all columns.
            if let Some(names) = rows::names(dialect, bytes) {
                self.files += 1;
                self.has_tables = true;
                self.columns(&names);
            }
            return true;
        }
        let (mut found, mut is_complete) = (0, is_end);
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            let is_whole = is_end || line.ends_with(b"\n");
            if found == ROWS || !is_whole {
                is_complete = false;
                break;
            }
            found += usize::from(self.line(line));
        }
        self.files += u64::from(found > 0);
        is_complete
    }

    fn columns(&mut self, names: &[String]) {
        for requested in self.requested() {
            requested.seen |= names.iter().any(|name| name == requested.name);
        }
        for name in names {
            self.add_name(name);
            self.filled.push(name.clone());
        }
    }

    /// Examines a line of JSON. Returns whether it is an object.
    fn line(&mut self, line: &[u8]) -> bool {
        let line = without_bom(line);
        let Some(object) = members(&String::from_utf8_lossy(line)) else { return false };
        self.rows += 1;
        for requested in self.requested() {
            requested.seen = requested.seen || requested.path.is_in(&object);
        }
        if let Some(roles) = &mut self.roles {
            roles.add(&object);
        }
        for (name, value) in &object {
            let is_empty = match value {
                Json::Null => true,
                Json::String(text) => text.is_empty(),
                Json::Array(items) => items.is_empty(),
                _ => false,
            };
            if !is_empty && self.filled.len() < NAMES && !self.filled.contains(name) {
                self.filled.push(name.clone());
            }
            if self.add_name(name) && !matches!(value, Json::String(_) | Json::Null) {
                self.not_text.push(name.clone());
            }
        }
        true
    }

    fn requested(&mut self) -> impl Iterator<Item = &mut RequestedField<'a>> {
        self.text.iter_mut().map(|(field, _)| field).chain(&mut self.key).chain(&mut self.kept)
    }

    /// Adds the name of a field. Returns whether it is new and was added.
    fn add_name(&mut self, name: &str) -> bool {
        let is_new = self.names.len() < NAMES && !self.names.iter().any(|n| n == name);
        if is_new {
            self.names.push(name.to_owned());
        }
        is_new
    }

    /// Returns the warnings, or an error if no examined row has a requested field.
    fn into_warnings(
        self,
        options: &TextOptions,
        details: &[TextFile],
        first: Option<&Path>,
    ) -> Result<Vec<Warning>> {
        let columns = details.iter().filter_map(|detail| detail.columns.as_ref());
        let names = columns.flat_map(TextColumns::unread).chain(&self.filled);
        let mut warnings: Vec<Warning> = unread::warning(&options.recipe, names).into_iter().collect();
        if self.files == 0 {
            return Ok(warnings);
        }
        let examined = match self.has_tables {
            true => format!("the {} that were examined", plural(self.files, "file")),
            false => format!("the first {} rows", self.rows),
        };
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let refuse = |option: &'static str, name: &str, help: Option<&str>| {
            let none = if self.complete { "no row".to_owned() } else { format!("none of {examined}") };
            let message = format!("{none} has the field {name:?}; the fields are {}", quoted(&names));
            let help = help.map_or_else(|| suggestion(option, name, &names), str::to_owned);
            let error = Error::usage(message).of_option(option).help(help);
            Err(if let Some(path) = first { error.at_path(path) } else { error })
        };
        if let Some((text, option)) = self.text.iter().find(|(text, _)| !text.seen) {
            let no_text = *option == "text_field" && !names.is_empty() && self.not_text.len() == names.len();
            return refuse(option, text.name, no_text.then_some(NO_TEXT));
        }
        if let Some(key) = self.key.as_ref().filter(|key| !key.seen) {
            return refuse("key_field", key.name, None);
        }
        if let Some(error) = self.roles.as_ref().and_then(|roles| roles.unknown(self.complete)) {
            return Err(if let Some(path) = first { error.at_path(path) } else { error });
        }
        for (requested, keep) in
            self.kept.iter().zip(&options.recipe.read_fields()).filter(|(requested, _)| !requested.seen)
        {
            match keep.ty {
                _ if options.recipe.split_by.as_ref() == Some(&keep.name) => {
                    return refuse("split_by", requested.name, None);
                }
                Some(_) if !self.complete => {
                    warnings.push(field_not_seen(requested.name, &examined, &self.names));
                }
                _ if self.complete => return refuse("keep_fields", requested.name, None),
                _ => {
                    let help = "choose fields that the rows have; a field that only later rows have needs a type, as \
                                in name:string";
                    return refuse("keep_fields", requested.name, Some(help));
                }
            }
        }
        Ok(warnings)
    }
}

/// Returns the members of a line of JSON; `None` if it is not an object.
fn members(line: &str) -> Option<Map<String, Json>> {
    match parse::<Map<String, Json>>(line) {
        Ok((members, _)) => Some(members),
        Err(_) => {
            // Values that are nested too deeply for the parser are null; only their names matter here.
            let (members, _) = parse::<BTreeMap<String, Box<RawValue>>>(line).ok()?;
            let value = |raw: Box<RawValue>| serde_json::from_str(raw.get()).unwrap_or_default();
            Some(members.into_iter().map(|(name, raw)| (name, value(raw))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_the_conversion_reads_are_examined() {
        let names = |line: &str| members(line).map(|found| found.keys().cloned().collect::<Vec<_>>());
        let deep = format!(r#"{{"text": "a", "x": {}{}}}"#, "[".repeat(500), "]".repeat(500));
        for line in [r#"{"text": "a", "x": NaN}"#, r#"{"text": "a", "x": [-Infinity]}"#, &deep] {
            assert_eq!(names(line).unwrap(), ["text", "x"], "{line}");
        }
        assert_eq!(names("[1]"), None);
        assert_eq!(names(r#"{"text": nan}"#), None);
    }
}
