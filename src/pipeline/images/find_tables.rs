//! Search for Parquet files with images in the sources.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::options::ImagesOptions;
use crate::error::{Error, Result};
use crate::printable::printable_path;
use crate::schema::Field;
use crate::source::broken::Broken;
use crate::source::file_list::FileList;
use crate::source::image_table::{ImageColumns, ImageTable, is_parquet};
use crate::source::metadata::Labels;
use crate::source::source_file::SourceFile;

/// The Parquet files with images in the sources.
#[derive(Default)]
pub(super) struct FoundTables {
    pub(super) fields: Vec<Field>,
    pub(super) class_names: Option<Vec<String>>,
    /// Whether labels are ordinals of classes rather than names.
    pub(super) labels_are_ordinals: bool,
    /// Columns that are left out, because no field type can hold their values.
    pub(super) left_out: Vec<String>,
    /// Ordinals of Parquet files without images.
    pub(super) others: BTreeSet<usize>,
}

/// Result of the search.
pub(super) enum TableSearch {
    /// There are files with images. Damaged files are rejected with them.
    Images(FoundTables),
    /// No file is known to contain images. Lists the damaged ones.
    None {
        damaged: Vec<SourceFile>,
        /// Ordinals of the sound ones.
        others: BTreeSet<usize>,
    },
}

/// Inspects the Parquet files among `files`.
pub(super) fn find_tables(files: &FileList, options: &ImagesOptions) -> Result<TableSearch> {
    let mut damaged = Vec::new();
    let mut first: Option<(SourceFile, Arc<ImageColumns>)> = None;
    let mut labels = BTreeSet::new();
    let mut others = BTreeSet::new();
    for (ordinal, file) in files.iter().enumerate().filter(|(_, file)| is_parquet(&file.origin)) {
        // Closed again before the next one is opened: there may be more files than a process can have open.
        let table = match ImageTable::open(&file.planned(&options.sources, options.follow_symlinks)) {
            Ok(Some(table)) => table,
            Ok(None) => {
                others.insert(ordinal);
                continue;
            }
            Err(Broken::Damaged(_)) => {
                damaged.push(file);
                continue;
            }
            Err(Broken::Failed(error)) => return Err(error),
        };
        if table.columns().declared_classes.is_none() {
            table.labels(&mut labels)?;
        }
        let Some((first, columns)) = &first else {
            first = Some((file, Arc::clone(table.columns())));
            continue;
        };
        if !table.columns().fits(columns) {
            let first = first.path(&options.sources);
            return Err(Error::usage(format!("the columns differ from those of {}", printable_path(&first)))
                .at_path(file.path(&options.sources))
                .help("convert Parquet files with different columns or classes separately"));
        }
    }
    let Some((_, columns)) = first else { return Ok(TableSearch::None { damaged, others }) };
    let classes = classes(&labels, &columns, options)?;
    Ok(TableSearch::Images(FoundTables {
        fields: columns.fields.clone(),
        labels_are_ordinals: classes.as_ref().is_some_and(Labels::by_ordinal),
        class_names: classes.map(Labels::into_names),
        left_out: columns.left_out.clone(),
        others,
    }))
}

/// Returns the classes: those of the option, else those declared by the files, else those of the distinct `labels`.
fn classes(
    labels: &BTreeSet<String>,
    columns: &ImageColumns,
    options: &ImagesOptions,
) -> Result<Option<Labels>> {
    if !columns.has_labels() {
        return Ok(None);
    }
    let given = options.classes.as_deref();
    match (&columns.declared_classes, given) {
        (None, _) => Labels::of(labels.iter().map(String::as_str), given),
        (Some(_), Some(given)) => Labels::new(given.to_vec(), false),
        (Some(declared), None) => Labels::new(declared.clone(), false).map_err(|e| {
            e.help("the file declares it twice: rename one of them in its metadata, or name the classes with `classes`")
        }),
    }
    .map(Some)
}
