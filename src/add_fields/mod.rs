//! Fields for the records of a dataset that exists, from a table: a companion ([`crate::reader::OpenOptions::add_companion`]).
//!
//! ```text
//! table ─▶ rows in a temporary file, hashes of keys ─┐
//!          rows.rs                                   ├─▶ external sort by key ─▶ external sort by record ─▶ units ─▶ commit
//! base  ─▶ hashes of keys ───────────────────────────┘   join.rs                                          write.rs
//! ```
//!
//! The companion has the records of its base, in the same order, so that both are read together without another join.
//! Everything is checked before anything is written. `docs/reference/companions.md` describes the result.

mod columns;
mod join;
mod rows;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::join::Join;
use self::rows::TableRows;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::manifest::{Alignment, Binding, BoundField};
use crate::options::{Existing, word_values};
use crate::pipeline::Stop;
use crate::reader::{Dataset, OpenOptions, bound_split};
use crate::schema::{Field, INPUT_IDS, KEY, Schema};
use crate::storage::interrupt;

/// What happens to records of the base that the table has no row for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// An error.
    #[default]
    Error,
    /// Their fields are null.
    Null,
}

/// What the keys of the table are, if the documents of the base were divided into several records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pieces {
    /// The keys of records, such as `a@0` and `a@512`.
    Record,
    /// The keys of documents, such as `a`: each of their records gets the values of the document.
    Document,
}

word_values! {
    Missing {
        Error = "error", "Refuse the table";
        Null = "null", "Their fields are null";
    }
}

word_values! {
    Pieces {
        Record = "record", "The keys of records, such as a@0 and a@512";
        Document = "document", "The keys of documents, such as a: all their records get the same values";
    }
}

/// A field of the companion, and the column that it is read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedColumn {
    /// Name of the field.
    pub field: String,
    /// Name of the column.
    pub column: String,
}

/// What determines a companion, besides its base and the table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AddOptions {
    /// Column of the table with the keys of the records.
    pub on: String,
    /// The columns that become fields; `None`: all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<NamedColumn>>,
    /// What happens to records without a row.
    pub missing: Missing,
    /// What the keys of the table are, if documents were divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Pieces>,
    /// Fields of the base that the values were computed from: the companion is bound to their content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// How fields follow those of the base.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bound: BTreeMap<String, BoundField>,
    /// Format of the shards.
    pub format: Format,
}

/// Where the companion is written.
#[derive(Debug, Clone, Default)]
pub struct AddOutput {
    /// Output directory or prefix in object storage.
    pub out: PathBuf,
    /// How to treat existing content of it.
    pub existing: Existing,
    /// Directory for temporary files; `None`: that of the system.
    pub scratch: Option<PathBuf>,
}

/// What was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Names of the fields.
    pub fields: Vec<String>,
    /// Number of records of the base.
    pub records: u64,
    /// Number of records without a row: their fields are null.
    pub missing: u64,
    /// Number of rows whose key no record has.
    pub surplus: u64,
    /// Whether the same companion was complete already.
    pub was_complete: bool,
}

/// Writes a companion of the dataset `base`, opened with its companions `add`, from the table or dataset at `table`.
///
/// # Errors
///
/// [`ErrorKind::Usage`] if the table does not fit the base: a key occurs twice, a record has no row, a
/// name is taken, or a value has another number of items than the record has tokens. Nothing was written then.
pub fn add_fields(
    base: &Dataset,
    table: &std::path::Path,
    options: &AddOptions,
    output: &AddOutput,
    stop: &Stop,
) -> Result<Added> {
    check_base(base, options)?;
    let rows = TableRows::open(table, options)?;
    check_fields(base, rows.fields(), options)?;
    let binding = bind(base, options)?;
    let join = Join::of(base, rows, options, output.scratch.as_deref(), stop)?;
    write::write(base, join, binding, options, output, stop)
}

/// Returns the binding of a companion of `base` whose `fields` a program computes, as `options` describe them.
///
/// # Errors
///
/// [`ErrorKind::Usage`] if the base is packed, a name is taken, or there is no such field to read.
pub fn bind_computed(base: &Dataset, options: &AddOptions, fields: &[Field]) -> Result<Binding> {
    check_packed(base)?;
    check_fields(base, fields, options)?;
    bind(base, options)
}

/// Refuses a base whose records are rows of several documents.
fn check_packed(base: &Dataset) -> Result<()> {
    if base.manifest().options.get("pack").is_some_and(|value| !value.is_null()) {
        return Err(Error::usage(
            "the dataset was made with `pack`: a row holds several documents, and does not have their keys",
        )
        .at_path(base.path())
        .help("convert without `pack`, add the fields, and pack when loading (`seq_len`)"));
    }
    Ok(())
}

/// Refuses a base of divided documents, unless `options` say what the keys are.
fn check_base(base: &Dataset, options: &AddOptions) -> Result<()> {
    check_packed(base)?;
    let made_with = |name: &str| base.manifest().options.get(name).filter(|value| !value.is_null());
    let is_divided = made_with("overflow").is_some_and(|value| value.to_string().contains("split"));
    match (is_divided, options.pieces) {
        (true, None) => Err(Error::usage("documents were divided into several records (`overflow`): say what the keys are")
            .of_option("pieces")
            .at_path(base.path())
            .help("`pieces record` if the table has the keys of records, such as a@0; `pieces document` if it has those of documents")),
        (false, Some(_)) => Err(Error::usage("no document of the dataset was divided")
            .of_option("pieces")
            .at_path(base.path())
            .help("leave out `pieces`")),
        _ => Ok(()),
    }
}

/// Checks names of fields and what they follow.
fn check_fields(base: &Dataset, all: &[Field], options: &AddOptions) -> Result<()> {
    let fields: Vec<&str> = all.iter().map(|field| field.name.as_str()).collect();
    if fields.is_empty() {
        return Err(
            Error::usage(format!("the table has no column besides {:?}", options.on)).of_option("fields")
        );
    }
    if let Some((_, name)) = fields.iter().enumerate().find(|&(at, name)| fields[..at].contains(name)) {
        return Err(Error::usage(format!("two fields are called {name:?}")).of_option("fields"));
    }
    if let Some(name) = fields.iter().find(|name| base.schema().index_of(name).is_some() || **name == KEY) {
        return Err(Error::usage(format!("the dataset has a field {name:?} already"))
            .of_option("fields")
            .help(format!("name another one, or rename it: `fields new_{name}={name}`")));
    }
    for (name, bound) in &options.bound {
        let Some(field) = all.iter().find(|field| field.name == *name) else {
            return Err(Error::usage(format!("there is no field {name:?}; there are {}", fields.join(", ")))
                .of_option(option_of(bound)));
        };
        for (option, ids) in [("per", &bound.per), ("of", &bound.of)] {
            let Some(ids) = ids else { continue };
            if !base.schema().holds_token_ids() || ids != INPUT_IDS {
                return Err(Error::usage(format!(
                    "{name:?} cannot follow {ids:?}: only {INPUT_IDS:?} of datasets of text has items"
                ))
                .of_option(option));
            }
        }
        if bound.per.is_some() && !columns::has_one_open_axis(field.ty) {
            return Err(Error::usage(format!(
                "{name:?} has the type {}, and not a list of numbers for each record",
                field.ty.name()
            ))
            .of_option("per"));
        }
        if bound.per.is_none() && bound.aligned != Alignment::default() {
            return Err(Error::usage(format!("{name:?} has no value per token"))
                .of_option("aligned")
                .help("add `per`"));
        }
        if let Some(twin) = &bound.flip
            && all.iter().find(|other| other.name == *twin).map(|other| other.ty) != Some(field.ty)
        {
            return Err(
                Error::usage(format!("there is no field {twin:?} of the type of {name:?}")).of_option("flip")
            );
        }
    }
    Ok(())
}

fn option_of(bound: &BoundField) -> &'static str {
    match bound {
        BoundField { per: Some(_), .. } => "per",
        BoundField { of: Some(_), .. } => "of",
        BoundField { flip: Some(_), .. } => "flip",
        _ => "aligned",
    }
}

/// Returns what the companion records about its base. All keys are read, and the fields that its values are made from.
fn bind(base: &Dataset, options: &AddOptions) -> Result<Binding> {
    let mut read = options.read.clone();
    let follows = options.bound.values().flat_map(|bound| bound.per.iter().chain(&bound.of));
    read.extend(follows.cloned());
    if options.bound.values().any(|bound| bound.flip.is_some()) {
        read.push(crate::schema::IMAGE.to_owned());
    }
    read.sort_unstable();
    read.dedup();
    let read: Vec<&str> = read.iter().map(String::as_str).collect();
    let manifest = base.manifest();
    let is_of_ids = read.contains(&INPUT_IDS);
    let reads_of = |companion: &&Dataset| {
        let adds = |name: &&str| {
            manifest.schema.index_of(name).is_none() && companion.schema().index_of(name).is_some()
        };
        read.iter().any(adds)
    };
    let companions =
        base.companions().iter().filter(reads_of).filter_map(|other| other.manifest().digest.clone());
    let mut splits = BTreeMap::new();
    for split in base.unverified().splits() {
        let bound = bound_split(&split, &read).map_err(|error| match error.kind() {
            ErrorKind::Usage => error.of_option("read"),
            _ => error,
        })?;
        splits.insert(split.name().to_owned(), bound);
    }
    Ok(Binding {
        fingerprint: manifest.fingerprint.clone(),
        manifest: manifest.digest.clone(),
        companions: companions.collect(),
        tokenizer: is_of_ids.then(|| manifest.tokenizer_sha256().unwrap_or("no file").to_owned()),
        template: Binding::template_of(manifest).filter(|_| is_of_ids),
        splits,
        fields: options.bound.clone(),
    })
}

/// Opens the dataset at `base` with its companions `add`.
///
/// # Errors
///
/// Same as [`OpenOptions::open`].
pub fn open_base(base: &std::path::Path, add: &[PathBuf]) -> Result<Dataset> {
    add.iter().fold(OpenOptions::new(), OpenOptions::add_companion).open(base)
}

/// Ends work in progress if the process was asked to stop.
fn check_stop(stop: &Stop) -> Result<()> {
    stop.check()?;
    interrupt::check()
}

/// Returns the schema of a companion with `fields`.
fn schema(fields: Vec<Field>) -> Result<Schema> {
    Schema::records(fields)
}
