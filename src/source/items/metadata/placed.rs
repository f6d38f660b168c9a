//! Metadata tables with the base folders of their paths.
//!
//! Several tables form one dataset if they have the same columns, for example with one table per split. Their rows
//! follow in the order of the tables, and they share one list of classes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use xxhash_rust::xxh3::xxh3_128;

use super::below::MissingNames;
use super::columns::{Keep, PathColumn, WantedMetadata};
use super::labels::Labels;
use super::lists::ListFields;
use super::path_columns::{FurtherPath, PathColumns};
use super::rows::{Metadata, MetadataRow};
use super::{extension, parse_table};
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::printable::printable_path;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::name::portable_name;
use crate::source::io::planned::read_file;
use crate::source::list::detail::Detail;
use crate::source::list::listed_names::ListedNames;
use crate::source::list::named_files::{Resolver, check_named_once, number_repeats};
use crate::source::list::source_file::SourceFile;
use crate::storage::folder_of;

/// Names of the tables next to images that describe them, as in Hugging Face `datasets` (`ImageFolder`).
pub const BESIDE_NAMES: [&str; 3] = ["metadata.csv", "metadata.jsonl", "metadata.parquet"];

/// A table that names files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFile {
    /// A `.csv`, `.tsv`, `.jsonl` (or `.ndjson`), `.parquet` or `.arrow` (or `.feather`, `.ipc`) file.
    #[serde(with = "crate::stored_path")]
    pub path: PathBuf,
    /// Name of the path column.
    pub path_field: String,
    /// Columns that become fields; `None`: all.
    pub keep: Option<Vec<Keep>>,
}

impl MetadataFile {
    /// Returns the default base folder of the paths.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.path).to_owned()
    }

    /// Reads the table and finds its files. `label` names the column with the classes, if it has another name than usual. If
    /// `lists` names columns, rows that name the same file become one entry with lists in these columns.
    ///
    /// # Errors
    ///
    /// Returns an error if the table cannot be read, lacks a requested column, or has two fields of one name.
    pub fn list(
        &self,
        source: &SourceSpec,
        follow_symlinks: bool,
        classes: Option<&[String]>,
        label: Option<&str>,
        lists: &[String],
        listed: Option<ListedNames<'_>>,
    ) -> Result<Metadata> {
        check_local("metadata", &self.path)?;
        let path = PathColumn::Named(&self.path_field);
        let wanted = WantedMetadata { path, label, keep: self.keep.as_deref(), lists };
        let table = PlacedTable {
            path: self.path.clone(),
            bytes: None,
            folder: source.clone(),
            source: 0,
            prefix: PathBuf::new(),
        };
        list_tables(vec![table], &wanted, follow_symlinks, classes, listed, true)
    }
}

/// A table and the base folder of its paths.
pub(super) struct PlacedTable {
    pub(super) path: PathBuf,
    /// The bytes, if the table is in an archive.
    pub(super) bytes: Option<Vec<u8>>,
    /// The base folder. The origins of the named files start with its label.
    pub(super) folder: SourceSpec,
    /// Ordinal of the source that contains the folder.
    pub(super) source: u32,
    /// Path of the folder relative to the source.
    pub(super) prefix: PathBuf,
}

/// Reads tables that a walk of `sources` found next to images, and finds the files that they name. With `listed`, these
/// are files of a listing with archives.
///
/// # Errors
///
/// As [`super::placed::MetadataFile::list`]. Also returns an error if the columns of the tables differ.
pub fn list_beside(
    tables: &[SourceFile],
    sources: &[SourceSpec],
    follow_symlinks: bool,
    classes: Option<&[String]>,
    label: Option<&str>,
    lists: &[String],
    listed: Option<ListedNames<'_>>,
) -> Result<Metadata> {
    let placed: Vec<_> = tables
        .iter()
        .map(|table| {
            let mut path = table.path(sources);
            let bytes = match &table.member {
                None => None,
                Some(member) => {
                    let inside = table.relative.components().skip(member.archive_parts as usize);
                    path.extend(inside);
                    let read = table.read(sources, follow_symlinks).map_err(|broken| match broken {
                        Broken::Failed(error) => error,
                        Broken::Damaged(reject) => Error::usage(reject.message).at_path(&path),
                    });
                    Some(read?)
                }
            };
            let root = &sources[table.source as usize].path;
            let prefix = table.relative.parent().map(Path::to_owned).unwrap_or_default();
            let label = table.origin.rsplit_once('/').map_or(table.origin.as_str(), |(folder, _)| folder);
            Ok(PlacedTable {
                path,
                bytes,
                folder: SourceSpec { label: label.to_owned(), path: root.join(&prefix) },
                source: table.source,
                prefix,
            })
        })
        .collect::<Result<_>>()?;
    let wanted = WantedMetadata { path: PathColumn::Conventional, label, keep: None, lists };
    list_tables(placed, &wanted, follow_symlinks, classes, listed, false)
}

/// As [`list_beside`]. With `searches_below`, a name that leads to no file may be the only one of its kind below the folder.
pub(super) fn list_tables(
    mut placed: Vec<PlacedTable>,
    wanted: &WantedMetadata<'_>,
    follow_symlinks: bool,
    classes: Option<&[String]>,
    mut listed: Option<ListedNames<'_>>,
    searches_below: bool,
) -> Result<Metadata> {
    let (mut tables, mut hashes) = (Vec::new(), Vec::new());
    for at in 0..placed.len() {
        let bytes = match placed[at].bytes.take() {
            Some(bytes) => bytes,
            None => read_file(&placed[at].path).map_err(|e| e.of_option("metadata"))?,
        };
        let place = &placed[at];
        let content = xxh3_128(&bytes);
        let mut table =
            parse_table(bytes, &extension(&place.path), wanted).map_err(|e| e.at_path(&place.path))?;
        if let Some((first, first_place)) = tables.first().zip(placed.first()) {
            table.take_order(first).map_err(|difference| {
                let first = printable_path(&first_place.path);
                Error::usage(format!("the columns differ from those of {first}: {difference}"))
                    .at_path(&place.path)
            })?;
        }
        tables.push(table);
        hashes.push(content);
    }
    let (Some(first), Some(first_path)) = (tables.first(), placed.first().map(|place| place.path.as_path()))
    else {
        return Err(Error::internal("no metadata file was given"));
    };
    let mut fields = first.fields.clone();
    let all_rows = || tables.iter().flat_map(|table| &table.rows);
    let labels = first
        .has_labels
        .then(|| Labels::of(all_rows().filter_map(|row| row.label.as_deref()), classes))
        .transpose()
        .map_err(|e| e.at_path(first_path))?;
    let paths = PathColumns::of(&first.path_field, &fields, wanted).map_err(|e| e.at_path(first_path))?;
    let lists = ListFields::of(wanted.lists, &mut fields).map_err(|e| e.at_path(first_path))?;
    let mut further = Vec::new();
    let (mut files, mut details, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut below = None;
    for (ordinal, (table, place)) in tables.into_iter().zip(&placed).enumerate() {
        let mut resolver = match &mut listed {
            Some(listed) => Names::Listed(listed),
            None => Names::Folder(Box::new(Resolver::new(&place.folder, follow_symlinks)?)),
        };
        let start = files.len();
        let mut named = Vec::new();
        let mut missing = MissingNames::default();
        for mut row in table.rows {
            let at = (ordinal, table.counted, row.number);
            let more = paths.take(&mut row).into_iter().map(|(column, position, name)| {
                let (file, defect) = place.resolve(name.as_bytes(), &mut resolver)?;
                Ok(FurtherPath { column, position, file, defect })
            });
            let more = more.collect::<Result<Vec<_>>>()?;
            let name = row.name.clone();
            let (file, detail) = place.file(row, &table.path_field, labels.as_ref(), &mut resolver)?;
            if let Some(name) = name.filter(|_| is_missing(&detail)) {
                missing.add(named.len(), &name);
            }
            named.push((file, detail, (at, more)));
        }
        if searches_below && matches!(resolver, Names::Folder(_)) {
            below = missing.find(&place.folder, &place.path, follow_symlinks, |at, found| match found {
                Ok(file) => {
                    let relative = place.prefix.join(&file.relative);
                    named[at].0 = SourceFile { source: place.source, relative, ..file };
                    named[at].1.defect = None;
                }
                Err(reject) => named[at].1.defect = Some(Box::new(reject)),
            })?;
        }
        for (_, detail, _) in named.iter_mut().filter(|(_, detail, _)| is_missing(detail)) {
            detail.values = Box::default();
        }
        if let Some(lists) = &lists {
            named = lists.group(named.into_iter());
        }
        for (file, detail, (at, more)) in named {
            files.push(file);
            details.push(detail);
            rows.push(at);
            further.push(more);
        }
        number_repeats(&mut files[start..]);
    }
    check_named_once(&files, first_path, |i| {
        let (table, counted, number) = rows[i];
        match table {
            0 => format!("{counted} {number}"),
            _ => format!("{counted} {number} of {}", printable_path(&placed[table].path)),
        }
    })?;
    let content = match hashes[..] {
        [one] => one,
        _ => xxh3_128(&hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<_>>()),
    };
    let class_names = labels.map(Labels::into_names);
    let found = Metadata { files, details, fields, class_names, content, image_fields: Vec::new(), below };
    paths.add_images(found, further).map_err(|e| e.at_path(first_path))
}

/// Resolver of the names in a table.
enum Names<'a, 'b> {
    /// Of files in the folder of the table.
    Folder(Box<Resolver<'a>>),
    /// Of files in a listing.
    Listed(&'a mut ListedNames<'b>),
}

impl PlacedTable {
    /// Returns the file that `name` refers to, or an empty entry and the reason why there is no file.
    fn resolve(&self, name: &[u8], names: &mut Names<'_, '_>) -> Result<(SourceFile, Option<Reject>)> {
        match names {
            Names::Listed(listed) => {
                let name = Path::new(OsStr::from_bytes(name));
                Ok(listed.resolve(self.source, &self.prefix, &self.folder.label, name))
            }
            Names::Folder(resolver) => {
                let (mut file, defect) = resolver.resolve_image(name)?;
                file.source = self.source;
                if !file.relative.as_os_str().is_empty() {
                    file.relative = self.prefix.join(&file.relative);
                }
                Ok((file, defect))
            }
        }
    }

    /// Returns the file that a row names, and the rest of the row.
    fn file(
        &self,
        row: MetadataRow,
        path_field: &str,
        labels: Option<&Labels>,
        resolver: &mut Names<'_, '_>,
    ) -> Result<(SourceFile, Detail)> {
        let name = self.path.file_name().map(portable_name).unwrap_or_default();
        let (mut file, defect) = match &row.name {
            Some(name) => self.resolve(name, resolver)?,
            None => (
                SourceFile::nothing(PathBuf::new(), format!("{}/{name}#{}", self.folder.label, row.mark)),
                None,
            ),
        };
        file.source = self.source;
        if file.relative.as_os_str().is_empty() && !self.prefix.as_os_str().is_empty() {
            // A row without a file is in the split of its table.
            file.relative = self.prefix.join(name);
        }
        let (values, defect) = match (row.values, defect) {
            // The file may be found later.
            (values, Some(defect)) if defect.code == RejectCode::MissingFile => match values {
                Ok(values) => (values, Some(defect)),
                Err(defect) => (Box::default(), Some(defect)),
            },
            (_, Some(defect)) | (Err(defect), None) => (Box::default(), Some(defect)),
            (Ok(values), None) if row.name.is_none() => (values, Some(no_name(path_field))),
            (Ok(values), None) => (values, None),
        };
        let label = match (labels, &row.label) {
            (Some(labels), Some(name)) => labels.ordinal(name).map(Some),
            _ => Ok(None),
        };
        let (label, defect) = match label {
            Ok(label) => (label, defect),
            Err(reject) => {
                (None, Some(defect.filter(|defect| defect.code != RejectCode::MissingFile).unwrap_or(reject)))
            }
        };
        Ok((file, Detail { defect: defect.map(Box::new), label, values, boxes: None }))
    }
}

/// Returns whether the only defect of a row is that its name leads to no file.
fn is_missing(detail: &Detail) -> bool {
    detail.defect.as_ref().is_some_and(|defect| defect.code == RejectCode::MissingFile)
}

fn no_name(field: &str) -> Reject {
    Reject::new(RejectCode::MissingField, format!("the row names no file in {field:?}"))
}
