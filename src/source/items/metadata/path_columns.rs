//! Further images of a row: columns with paths, and lists of paths.
//!
//! As in `ImageFolder` of Hugging Face `datasets`, the column `mask_file_name` holds the paths of the images of the field
//! `mask`. A column is treated so only if one of its paths leads to a file; otherwise, it stays a field of text. Lists
//! become fields with numbers.

use super::columns::{WantedMetadata, column_of_paths, is_built_in, list_of_paths};
use super::rows::{Metadata, MetadataRow};
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::list::detail::Detail;
use crate::source::list::source_file::SourceFile;

/// Maximum number of images in a list.
const MAX_IMAGES: usize = 64;

/// The columns that may hold the paths of further images.
pub(super) struct PathColumns {
    columns: Vec<PathsColumn>,
    /// The list whose first path is the path of the image itself.
    first_of: Option<usize>,
}

struct PathsColumn {
    /// Ordinal of the field of the column.
    at: usize,
    name: String,
    /// Name of the field with the images.
    field: String,
    is_list: bool,
}

/// The path of a further image of a row.
pub(super) struct FurtherPath {
    /// Ordinal among the columns of paths.
    pub(super) column: usize,
    /// Position in the list; 0 if the column holds no lists.
    pub(super) position: usize,
    pub(super) file: SourceFile,
    pub(super) defect: Option<Reject>,
}

impl PathColumns {
    /// Finds the columns among `fields`. If the column `path_field` is one of them, it holds lists, and the first path of
    /// each is the path of the image itself.
    pub(super) fn of(path_field: &str, fields: &[Field], wanted: &WantedMetadata<'_>) -> Result<Self> {
        let keep = wanted.keep.unwrap_or_default();
        let is_typed = |name: &str| keep.iter().any(|keep| keep.name == name && keep.ty.is_some());
        let mut columns = Vec::new();
        for (at, Field { name, ty, .. }) in fields.iter().enumerate() {
            let (field, is_list) = match (column_of_paths(name), list_of_paths(name), ty) {
                (Some(field), _, FieldType::String) => (field.to_owned(), false),
                (_, Some(field), FieldType::Json) => (field.to_owned(), true),
                _ => continue,
            };
            if !is_typed(name) && !wanted.lists.contains(name) {
                columns.push(PathsColumn { at, name: name.clone(), field, is_list });
            }
        }
        let first_of = columns.iter().position(|column| column.name == path_field);
        if first_of.is_none() && fields.iter().any(|field| field.name == path_field) {
            return Err(Error::usage(format!("the column {path_field:?} does not hold lists of paths"))
                .help("name the column with the paths of the images with `path_field`"));
        }
        Ok(Self { columns, first_of })
    }

    /// Returns the paths in a row: column, position and path. If the image itself is in a list, its path becomes the
    /// path of the row.
    pub(super) fn take(&self, row: &mut MetadataRow) -> Vec<(usize, usize, String)> {
        let Ok(values) = &row.values else { return Vec::new() };
        let (mut paths, mut defect) = (Vec::new(), None);
        for (ordinal, column) in self.columns.iter().enumerate() {
            let Some(Value::Text(text)) = values.get(column.at) else { continue };
            if !column.is_list {
                paths.extend((!text.as_str().is_empty()).then(|| (ordinal, 0, text.as_str().to_owned())));
                continue;
            }
            match serde_json::from_str::<Vec<Option<String>>>(text.as_str()) {
                Ok(list) => {
                    let list = list.into_iter().enumerate();
                    paths.extend(list.filter_map(|(position, name)| Some((ordinal, position, name?))));
                }
                Err(_) => {
                    let message = format!("the field {:?} is not a list of paths", column.name);
                    defect.get_or_insert(Reject::new(RejectCode::WrongType, message));
                }
            }
        }
        if let Some(first_of) = self.first_of {
            let first = paths.iter().position(|(column, position, _)| (*column, *position) == (first_of, 0));
            row.name = first.map(|at| paths.remove(at).2.into_bytes());
        }
        if let Some(defect) = defect {
            row.values = Err(defect);
            paths.clear();
        }
        paths
    }

    /// Adds the files of further images (one list per file of `found`), and replaces the fields of their columns.
    pub(super) fn add_images(&self, found: Metadata, further: Vec<Vec<FurtherPath>>) -> Result<Metadata> {
        let Metadata { files, details, mut fields, class_names, content, below, .. } = found;
        // Per column, the number of images in a row; 0 if it holds no paths.
        let mut counts = vec![0; self.columns.len()];
        let mut holds_paths: Vec<bool> = (0..counts.len()).map(|at| Some(at) == self.first_of).collect();
        for path in further.iter().flatten() {
            counts[path.column] = counts[path.column].max(path.position + 1);
            holds_paths[path.column] |= path.defect.is_none();
        }
        let of_columns = || self.columns.iter().zip(&counts).zip(&holds_paths).enumerate();
        // The fields, each with its column and position.
        let mut image_fields = Vec::new();
        for (ordinal, ((column, count), _)) in of_columns().filter(|(_, (_, holds_paths))| **holds_paths) {
            if *count > MAX_IMAGES {
                let what = format!(
                    "a row has {count} paths in {:?}, more than the limit of {MAX_IMAGES}",
                    column.name
                );
                return Err(Error::usage(what).help("keep the column as text: `keep_fields NAME:json`"));
            }
            for position in usize::from(Some(ordinal) == self.first_of)..*count {
                let mut name = match column.is_list {
                    true => format!("{}_{position}", column.field),
                    false => column.field.clone(),
                };
                let is_taken = |name: &str, fields: &[Field]| {
                    is_built_in(name) || fields.iter().any(|field| field.name == name)
                };
                if is_taken(&name, &fields) {
                    name.push_str("_image");
                }
                if is_taken(&name, &fields) {
                    let what =
                        format!("the images of {:?} and another column would both be {name:?}", column.name);
                    return Err(Error::usage(what)
                        .help("rename one of the columns, or leave it out of `keep_fields`"));
                }
                image_fields.push((ordinal, position, name));
            }
        }
        let (mut all_files, mut all_details) = (Vec::new(), Vec::new());
        let dropped: Vec<usize> =
            of_columns().filter(|(_, (_, holds))| **holds).map(|(_, ((column, _), _))| column.at).collect();
        let kept = |at: usize| !dropped.contains(&at);
        for ((file, mut detail), more) in files.into_iter().zip(details).zip(further) {
            let values = std::mem::take(&mut detail.values).into_iter().enumerate();
            detail.values = values.filter(|(at, _)| kept(*at)).map(|(_, value)| value).collect();
            let of_field = |path: &FurtherPath| {
                image_fields
                    .iter()
                    .position(|(column, position, _)| (*column, *position) == (path.column, path.position))
            };
            let mut more: Vec<_> =
                more.into_iter().filter_map(|path| Some((of_field(&path)?, path))).collect();
            more.sort_by_key(|(field, _)| *field);
            for (_, path) in &mut more {
                if let Some(defect) = path.defect.take().filter(|_| detail.defect.is_none()) {
                    let message =
                        format!("the column {:?}: {}", self.columns[path.column].name, defect.message);
                    detail.defect = Some(Box::new(Reject::new(defect.code, message)));
                }
            }
            let is_whole = detail.defect.is_none();
            all_files.push(file);
            all_details.push(detail);
            for (field, path) in more.into_iter().filter(|_| is_whole) {
                all_files.push(SourceFile { of_field: Some(field as u32), ..path.file });
                all_details.push(Detail::default());
            }
        }
        let all = std::mem::take(&mut fields).into_iter().enumerate();
        let fields = all.filter(|(at, _)| kept(*at)).map(|(_, field)| field).collect();
        let image_fields = image_fields
            .into_iter()
            .map(|(column, _, name)| (name, self.columns[column].name.clone()))
            .collect();
        Ok(Metadata {
            files: all_files,
            details: all_details,
            fields,
            class_names,
            content,
            image_fields,
            below,
        })
    }
}
