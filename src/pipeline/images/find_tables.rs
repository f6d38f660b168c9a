//! Search for Parquet files with images in the sources.

use std::collections::BTreeSet;

use super::options::ImagesOptions;
use crate::error::{Error, Result};
use crate::printable::printable_path;
use crate::schema::Field;
use crate::source::broken::Broken;
use crate::source::file_list::FileList;
use crate::source::image_table::{ImageColumns, ImageTable, class_names, is_parquet};
use crate::source::labels::class_ordinals;
use crate::source::source_file::SourceFile;

/// The Parquet files with images in the sources.
pub(super) struct FoundTables {
    pub(super) fields: Vec<Field>,
    pub(super) class_names: Option<Vec<String>>,
    /// Columns that are left out, because no field type can hold their values.
    pub(super) left_out: Vec<String>,
    /// Ordinals of Parquet files without images.
    pub(super) others: BTreeSet<usize>,
}

/// Inspects the Parquet files among `files`; `None` if none contains images.
pub(super) fn find_tables(files: &FileList, options: &ImagesOptions) -> Result<Option<FoundTables>> {
    let mut found: Vec<(SourceFile, ImageTable)> = Vec::new();
    let mut others = BTreeSet::new();
    for (ordinal, file) in files.iter().enumerate().filter(|(_, file)| is_parquet(&file.origin)) {
        match ImageTable::open(&file.planned(&options.sources, options.follow_symlinks)) {
            Ok(Some(table)) => found.push((file, table)),
            Ok(None) => {
                others.insert(ordinal);
            }
            // A damaged file is rejected during the conversion.
            Err(Broken::Damaged(_)) => {}
            Err(Broken::Failed(error)) => return Err(error),
        }
    }
    let Some((first, table)) = found.first() else { return Ok(None) };
    let columns = table.columns();
    if let Some((other, _)) = found.iter().find(|(_, other)| !other.columns().fits(columns)) {
        let first = first.path(&options.sources);
        return Err(Error::usage(format!("the columns differ from those of {}", printable_path(&first)))
            .at_path(other.path(&options.sources))
            .help("convert Parquet files with different columns or classes separately"));
    }
    Ok(Some(FoundTables {
        fields: columns.fields.clone(),
        class_names: classes(&found, columns, options)?,
        left_out: columns.left_out.clone(),
        others,
    }))
}

/// Returns the class names: those of the option, else those declared by the files, else the distinct labels of all
/// rows.
fn classes(
    found: &[(SourceFile, ImageTable)],
    columns: &ImageColumns,
    options: &ImagesOptions,
) -> Result<Option<Vec<String>>> {
    if !columns.has_labels() {
        return Ok(None);
    }
    if let Some(given) = &options.classes {
        return Ok(Some(given.clone()));
    }
    if let Some(declared) = &columns.declared_classes {
        class_ordinals(declared).map_err(|e| {
            e.help("the file declares it twice: rename one of them in its metadata, or name the classes with `classes`")
        })?;
        return Ok(Some(declared.clone()));
    }
    let mut labels = BTreeSet::new();
    found.iter().try_for_each(|(_, table)| table.labels(&mut labels))?;
    class_names(&labels).map(Some)
}
