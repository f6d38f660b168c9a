//! A look at the first rows of files, so that the wrong name of a field ends a run before it starts.
//!
//! Tables with a schema are not looked at here: their columns are known when they are listed. Of lines of JSON and tables of
//! separated values, the first rows of a few files are read. A field that none of them has is taken for a wrong name.

use std::path::Path as FilePath;

use super::options::{TextInput, TextOptions};
use super::plan::TextFile;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::source::PlannedFile;
use crate::source::stream::{Broken, Stream};
use crate::source::text::json::Path;
use crate::source::text::kind::Format;
use crate::source::text::rows;
use crate::source::walk::SourceFile;
use crate::source::warning::{Warning, listed};

/// Rows that are looked at in all.
const ROWS: usize = 1000;
/// Files that are looked at, evenly spaced in the listing.
const FILES: usize = 16;
/// Bytes of a file that are read.
const FILE_BYTES: usize = 1 << 20;
/// Names of fields that are remembered for messages.
const NAMES: usize = 64;

/// A field that is asked for.
struct Asked<'a> {
    name: &'a str,
    path: Path,
    seen: bool,
}

impl<'a> Asked<'a> {
    fn new(name: &'a str) -> Self {
        Self { name, path: Path::new(name), seen: false }
    }
}

/// What the rows that were looked at have.
struct Head<'a> {
    text: Asked<'a>,
    key: Option<Asked<'a>>,
    kept: Vec<Asked<'a>>,
    /// Names of fields as they first appear.
    there: Vec<String>,
    rows: u64,
    /// Whether all rows of all files were looked at.
    complete: bool,
}

/// Looks at the first rows of `files`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) when none of the rows has a field that is asked for.
pub(super) fn check(
    options: &TextOptions,
    files: &[SourceFile],
    sources: &[SourceSpec],
    details: &[TextFile],
) -> Result<Vec<Warning>> {
    if options.input == TextInput::Stdin {
        return Ok(Vec::new());
    }
    let has_fields = |detail: &TextFile| {
        detail.defect.is_none() && matches!(detail.kind.format, Format::JsonLines | Format::Csv | Format::Tsv)
    };
    let with_fields: Vec<usize> = (0..files.len()).filter(|&at| has_fields(&details[at])).collect();
    let looked_at = with_fields.len().min(FILES);
    // A table with a schema has all columns that are kept, or it would have been refused.
    let has_columns = details.iter().any(|detail| detail.columns.is_some());
    let mut head = Head {
        text: Asked::new(&options.text_field),
        key: options.key_field.as_deref().map(Asked::new),
        kept: options
            .keep_fields
            .iter()
            .map(|k| Asked { seen: has_columns, ..Asked::new(&k.name) })
            .collect(),
        there: Vec::new(),
        rows: 0,
        complete: looked_at == with_fields.len(),
    };
    let mut first = None;
    for at in 0..looked_at {
        let file = with_fields[at * with_fields.len() / looked_at];
        let planned = files[file].planned(sources, options.follow_symlinks);
        // What cannot be read is told by the run, which tries again.
        let read = head.read(&planned, &details[file]);
        head.complete &= read.unwrap_or(false);
        first.get_or_insert(planned.path);
    }
    head.judge(options, first.as_deref())
}

impl<'a> Head<'a> {
    /// Reads the first rows of a file; returns whether these are all.
    fn read(&mut self, planned: &PlannedFile, detail: &TextFile) -> Result<bool, Broken> {
        let format = detail.kind.format;
        let mut stream = Stream::open(planned, detail.kind.compression).map_err(Broken::Failed)?;
        let mut bytes = vec![0; FILE_BYTES];
        let filled = stream.fill(&mut bytes)?;
        let is_end = filled < bytes.len();
        bytes.truncate(filled);
        if format != Format::JsonLines {
            // All that is to be known is in the first line.
            if let Some(names) = rows::names(format, &bytes) {
                self.rows += 1;
                self.columns(&names);
            }
            return Ok(true);
        }
        let mut found = 0;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            let is_whole = is_end || line.ends_with(b"\n");
            if found == ROWS || !is_whole {
                return Ok(false);
            }
            found += usize::from(self.line(line));
        }
        Ok(is_end)
    }

    fn columns(&mut self, names: &[String]) {
        for asked in self.asked() {
            asked.seen |= names.iter().any(|name| name == asked.name);
        }
        names.iter().for_each(|name| self.there(name));
    }

    /// Looks at a line of JSON; returns whether it is an object.
    fn line(&mut self, line: &[u8]) -> bool {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let line = String::from_utf8_lossy(line);
        let Ok(serde_json::Value::Object(object)) = serde_json::from_str(&line) else { return false };
        self.rows += 1;
        for asked in self.asked() {
            asked.seen = asked.seen || asked.path.is_in(&object);
        }
        object.keys().for_each(|name| self.there(name));
        true
    }

    fn asked(&mut self) -> impl Iterator<Item = &mut Asked<'a>> {
        [&mut self.text].into_iter().chain(&mut self.key).chain(&mut self.kept)
    }

    fn there(&mut self, name: &str) {
        if self.there.len() < NAMES && !self.there.iter().any(|n| n == name) {
            self.there.push(name.to_owned());
        }
    }

    fn judge(self, options: &TextOptions, first: Option<&FilePath>) -> Result<Vec<Warning>> {
        let mut warnings = Vec::new();
        if self.rows == 0 {
            return Ok(warnings);
        }
        let there = listed(self.there.iter().map(|name| format!("{name:?}")));
        let refuse = |option: &str, name: &str, help: &str| {
            let rows = if self.complete {
                "no row".to_owned()
            } else {
                format!("none of the first {} rows", self.rows)
            };
            let message = format!("{option}: {rows} has the field {name:?}; there are {there}");
            let error = Error::usage(message).help(help);
            Err(if let Some(path) = first { error.at_path(path) } else { error })
        };
        if !self.text.seen {
            return refuse("text_field", self.text.name, "name the field that holds the text");
        }
        if let Some(key) = self.key.as_ref().filter(|key| !key.seen) {
            return refuse("key_field", key.name, "name the field that holds a unique key");
        }
        for (asked, keep) in self.kept.iter().zip(&options.keep_fields).filter(|(asked, _)| !asked.seen) {
            match keep.ty {
                Some(_) if !self.complete => warnings.push(Warning::FieldNotSeen {
                    field: asked.name.to_owned(),
                    rows: self.rows,
                    there: self.there.clone(),
                }),
                _ if self.complete => return refuse("keep_fields", asked.name, "name fields that rows have"),
                _ => {
                    let help = "name fields that rows have; one that only later rows have needs its type, as name:string";
                    return refuse("keep_fields", asked.name, help);
                }
            }
        }
        Ok(warnings)
    }
}
