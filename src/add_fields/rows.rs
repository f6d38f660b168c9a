//! Rows of a table with their keys: Parquet and Arrow files, and datasets.

use std::path::{Path, PathBuf};

use arrow_array::Array;
use arrow_schema::{DataType, Schema as ArrowSchema};

use super::columns::{column_type, value};
use super::{AddOptions, NamedColumn};
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_NAME;
use crate::reader::Dataset;
use crate::sample::Value;
use crate::schema::{Field, KEY};
use crate::source::io::broken::Broken;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::source::table::arrow::Batches;
use crate::source::table::columns::{ColumnNames, position, read_columns};
use crate::source::table::missing_field::{missing, no_column};
use crate::source::table::parquet::{Groups, ParquetFile};
use crate::source::table::{NextRows, RowBatch, can_be_text, json, text_or_bytes, utf8};
use crate::storage::{ObjectUrl, for_each_entry, stat};

/// Maximum size of a value, in bytes.
const MAX_VALUE_BYTES: u64 = 256 << 20;
/// Extension of Parquet files.
const PARQUET: &str = "parquet";
/// Extensions of Arrow files.
const ARROW: [&str; 3] = ["arrow", "feather", "ipc"];

/// A table that is read once, in order.
#[derive(Debug)]
pub(super) struct TableRows {
    path: PathBuf,
    content: TableContent,
    fields: Vec<Field>,
}

#[derive(Debug)]
enum TableContent {
    /// Files with the same columns.
    Files {
        files: Vec<PlannedFile>,
        on: String,
        columns: Vec<String>,
    },
    Dataset {
        dataset: Box<Dataset>,
        columns: Vec<String>,
    },
}

/// Called with the number of each row, its key and its values.
pub(super) type VisitRow<'a> = dyn FnMut(u64, &str, Vec<Value>) -> Result<()> + 'a;

impl TableRows {
    /// Opens the table at `path`: a file, a folder of files with the same columns, or a dataset.
    pub(super) fn open(path: &Path, options: &AddOptions) -> Result<Self> {
        let is_folder = !ObjectUrl::is_url(path) && stat(path)?.is_some_and(|meta| meta.is_dir());
        let is_dataset = match is_folder {
            true => stat(&path.join(MANIFEST_NAME))?.is_some(),
            false => ObjectUrl::is_url(path),
        };
        match is_dataset {
            true => Self::of_dataset(path, options),
            false => Self::of_files(path, files_of(path, is_folder)?, options),
        }
    }

    fn of_dataset(path: &Path, options: &AddOptions) -> Result<Self> {
        let dataset = Dataset::open(path)?;
        let schema = dataset.schema();
        let names: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
        if options.on != KEY {
            return Err(
                Error::usage(format!("the records of a dataset have their keys in {KEY:?}")).of_option("on")
            );
        }
        let is_built_in = |name: &&str| *name == KEY || schema.layout().built_in.contains(name);
        let all = names.iter().filter(|name| !is_built_in(name)).map(|name| (*name).to_owned());
        let columns = named_columns(options, all.collect());
        let field = |named: &NamedColumn| {
            let found = schema.fields.iter().find(|field| field.name == named.column);
            let found = found.ok_or_else(|| missing("field", "fields", &named.column, &names))?;
            Ok(Field { name: named.field.clone(), ..found.clone() })
        };
        let fields = columns.iter().map(field).collect::<Result<_>>()?;
        let columns = columns.into_iter().map(|named| named.column).collect();
        let content = TableContent::Dataset { dataset: Box::new(dataset), columns };
        Ok(Self { path: path.to_owned(), content, fields })
    }

    fn of_files(path: &Path, files: Vec<PlannedFile>, options: &AddOptions) -> Result<Self> {
        let mut found: Option<(Vec<NamedColumn>, Vec<Field>)> = None;
        for planned in &files {
            let schema = TableFile::open(planned)?.schema().clone();
            let at_file = |error: Error| error.at_path(&planned.path);
            let names = ColumnNames::of(&schema);
            let on = names.required(&options.on, "on").map_err(at_file)?;
            let key = schema.field(on).data_type();
            if !(can_be_text(key) || key.is_integer()) {
                let what = format!("the column {:?} is {key}, and keys are texts or integers", options.on);
                return Err(Error::usage(what).of_option("on").at_path(&planned.path));
            }
            let columns = match &found {
                Some((columns, _)) => columns.clone(),
                None => {
                    let all = names.all().iter().filter(|name| **name != options.on);
                    named_columns(options, all.map(|name| (*name).to_owned()).collect())
                }
            };
            let fields =
                columns.iter().map(|named| field(&schema, &names, named)).collect::<Result<Vec<_>>>();
            let fields = fields.map_err(at_file)?;
            match &found {
                None => found = Some((columns, fields)),
                Some((_, first)) => {
                    if let Some((one, other)) =
                        first.iter().zip(&fields).find(|(one, other)| one.ty != other.ty)
                    {
                        let (name, one, other) = (&one.name, one.ty.name(), other.ty.name());
                        let what =
                            format!("the column {name:?} is {other} here, and {one} in the first file");
                        return Err(Error::usage(what).at_path(&planned.path).of_option("fields"));
                    }
                }
            }
        }
        let (columns, fields) = found.unwrap_or_default();
        let columns = columns.into_iter().map(|named| named.column).collect();
        let content = TableContent::Files { files, on: options.on.clone(), columns };
        Ok(Self { path: path.to_owned(), content, fields })
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the fields of the values.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns whether lists may all have one size although their type does not say so.
    pub(super) fn may_have_fixed_lists(&self) -> bool {
        matches!(self.content, TableContent::Files { .. })
    }

    /// Returns the names and sizes in bytes of the files.
    pub(super) fn files(&self) -> Vec<(String, u64)> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match &self.content {
            TableContent::Files { files, .. } => {
                files.iter().map(|file| (name(&file.path), file.bytes)).collect()
            }
            TableContent::Dataset { dataset, .. } => {
                let bytes = dataset.manifest().splits.values().map(|split| split.bytes).sum();
                vec![(name(dataset.path()), bytes)]
            }
        }
    }

    /// Calls `visit` with all rows, in order.
    pub(super) fn for_each(&self, visit: &mut VisitRow<'_>) -> Result<()> {
        match &self.content {
            TableContent::Dataset { dataset, columns } => {
                let names: Vec<&str> =
                    std::iter::once(KEY).chain(columns.iter().map(String::as_str)).collect();
                let mut row = 0;
                for split in dataset.splits() {
                    for record in split.select(&names)?.iter() {
                        let mut values = record?.into_inner().values.into_iter();
                        let Some(Value::Text(key)) = values.next() else {
                            return Err(Error::corrupt("the record has no key")
                                .at_path(dataset.path())
                                .at_row(row));
                        };
                        visit(row, key.as_str(), values.collect())?;
                        row += 1;
                    }
                }
                Ok(())
            }
            TableContent::Files { files, on, columns } => {
                let mut first = 0;
                for planned in files {
                    first = self.visit_file(planned, on, columns, first, visit)?;
                }
                Ok(())
            }
        }
    }

    /// Calls `visit` with the rows of a file, whose first one has the number `first`. Returns the number after the last one.
    fn visit_file(
        &self,
        planned: &PlannedFile,
        on: &str,
        columns: &[String],
        first: u64,
        visit: &mut VisitRow<'_>,
    ) -> Result<u64> {
        let at_file = |error: Error| error.at_path(&planned.path);
        let file = TableFile::open(planned)?;
        let schema = file.schema().clone();
        let names = ColumnNames::of(&schema);
        let of = |name: &str| names.required(name, "fields");
        let on_at = of(on)?;
        let ordinals = columns.iter().map(|name| of(name)).collect::<Result<Vec<_>>>()?;
        let read = read_columns(ordinals.iter().copied().chain([on_at]));
        let (key, ordinals) =
            (position(&read, on_at), ordinals.iter().map(|&at| position(&read, at)).collect::<Vec<_>>());
        let mut next = first;
        let mut rows = |rows: RowBatch| {
            let batch = rows.batch();
            for row in 0..rows.len() {
                let fail = |what: String| {
                    Error::usage(what).at_path(&planned.path).at_row(rows.first() + row as u64)
                };
                let found = key_of(batch.column(key), row).map_err(fail)?;
                let found = found.ok_or_else(|| fail(format!("the key in the column {on:?} is null")))?;
                let of = |(at, field): (&usize, &Field)| {
                    value(batch.column(*at), row, field)
                        .map_err(|why| fail(format!("{:?} of key {found:?} {why}", field.name)))
                };
                let values = ordinals.iter().zip(&self.fields).map(of).collect::<Result<Vec<_>>>()?;
                visit(next, &found, values)?;
                next += 1;
            }
            Ok(())
        };
        file.read(read, &mut rows).map_err(|error| match error.place().path {
            Some(_) => error,
            None => at_file(error),
        })?;
        Ok(next)
    }
}

/// Returns the columns that become fields, of `all`.
fn named_columns(options: &AddOptions, all: Vec<String>) -> Vec<NamedColumn> {
    let named = |name: String| NamedColumn { field: name.clone(), column: name };
    options.fields.clone().unwrap_or_else(|| all.into_iter().map(named).collect())
}

fn field(schema: &ArrowSchema, names: &ColumnNames<'_>, named: &NamedColumn) -> Result<Field> {
    let at = names.at(&named.column)?.ok_or_else(|| no_column("fields", &named.column, names.all()))?;
    let ty = schema.field(at).data_type();
    let Some(found) = column_type(ty) else {
        let what = format!("the column {:?} is {ty}, which no field can hold", named.column);
        return Err(Error::usage(what).of_option("fields").help("name the columns to add, without this one"));
    };
    // Whether it may be null is known when all rows are.
    Ok(Field::nullable(&named.field, found))
}

/// Returns the key in a cell; `None` if it is null.
fn key_of(column: &arrow_array::ArrayRef, row: usize) -> Result<Option<String>, String> {
    if column.is_null(row) || *column.data_type() == DataType::Null {
        return Ok(None);
    }
    match text_or_bytes(column, row) {
        Some(bytes) => utf8(bytes, "key").map(|text| Some(text.to_owned())).map_err(|reject| reject.message),
        None => Ok(Some(json(column, row).to_string())),
    }
}

/// Returns the files of a table: the file itself, or all tables in a folder, by name.
fn files_of(path: &Path, is_folder: bool) -> Result<Vec<PlannedFile>> {
    if !is_folder {
        if !is_table(path) {
            return Err(Error::usage("this is neither a Parquet or Arrow file nor a dataset")
                .at_path(path)
                .help("write the table as Parquet, for example with `DataFrame.to_parquet` or DuckDB"));
        }
        return Ok(vec![PlannedFile::now(path)?]);
    }
    let mut paths = Vec::new();
    let fail = |error| Error::io("list the folder", path, error);
    for_each_entry(path, fail, |entry| {
        paths.extend(Some(entry.path()).filter(|path| is_table(path)));
        Ok(())
    })?;
    paths.sort();
    if paths.is_empty() {
        return Err(Error::usage("this folder has neither Parquet nor Arrow files").at_path(path));
    }
    paths.iter().map(|path| PlannedFile::now(path)).collect()
}

fn is_table(path: &Path) -> bool {
    let has = |known: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(known));
    has(PARQUET) || ARROW.iter().any(|known| has(known))
}

/// An opened file of a table.
enum TableFile {
    Parquet(ParquetFile),
    Arrow(Box<Batches>),
}

impl TableFile {
    fn open(planned: &PlannedFile) -> Result<Self> {
        let refused = |broken: Broken| match broken {
            Broken::Failed(error) => error,
            Broken::Damaged(reject) => Error::usage(reject.message).at_path(&planned.path),
        };
        let is_parquet = planned.path.extension().is_some_and(|e| e.eq_ignore_ascii_case(PARQUET));
        Ok(match is_parquet {
            true => Self::Parquet(ParquetFile::open(planned).map_err(refused)?),
            false => Self::Arrow(Box::new(Batches::open(Stream::open(planned, None)?).map_err(refused)?)),
        })
    }

    fn schema(&self) -> &ArrowSchema {
        match self {
            Self::Parquet(file) => file.schema(),
            Self::Arrow(batches) => batches.schema(),
        }
    }

    /// Calls `visit` with all rows of the columns with the ordinals `columns`, which ascend.
    fn read(self, columns: Vec<usize>, visit: &mut dyn FnMut(RowBatch) -> Result<()>) -> Result<()> {
        let mut visit = |next| match next {
            NextRows::Rows(rows) => visit(rows),
            NextRows::Broken { row, reject } => {
                Err(Error::usage(format!("the table cannot be read: {}", reject.message)).at_row(row))
            }
        };
        match self {
            Self::Parquet(file) => {
                let all = 0..file.group_count();
                let mut groups = Groups::new(file, columns, all, MAX_VALUE_BYTES);
                while let Some(next) = groups.read()? {
                    visit(next)?;
                }
                groups.check_unchanged()
            }
            Self::Arrow(mut batches) => {
                batches.select(columns);
                while let Some(next) = batches.read()? {
                    visit(next)?;
                }
                batches.check_unchanged()
            }
        }
    }
}
