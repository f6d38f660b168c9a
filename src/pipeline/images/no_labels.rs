//! Why images have no labels, and how they get some.

use std::collections::BTreeSet;

use super::find::FoundImages;
use crate::options::SourceSpec;
use crate::printable::printable_path;
use crate::recipe::ImagesRecipe;
use crate::schema::LABEL;
use crate::source::names::layout::FolderLayout;
use crate::source::table::missing_field::quoted;

/// Returns the reason and the remedy. `columns` are the fields from tables or samples.
pub(super) fn no_labels(
    found: &FoundImages,
    recipe: &ImagesRecipe,
    sources: &[SourceSpec],
    columns: &[String],
) -> String {
    if !found.tables.is_empty() || found.table_images.is_some() {
        let name_one = match columns {
            [] => "add one, or name it with `label_field`".to_owned(),
            [one] => format!("`label_field` names another one, such as {one:?}"),
            _ => format!("`label_field` names another one: {}", quoted(columns)),
        };
        return format!("there is no column {LABEL:?}; {name_one}");
    }
    if found.has_containers {
        return "the samples of tar files have no classes; `classes FILE` names those of their members .cls"
            .to_owned();
    }
    if recipe.layout == FolderLayout::Flat {
        return "with `layout flat`, folders have no meaning; leave it out if folders are classes".to_owned();
    }
    // The shell replaces `photos/*` by the folders in `photos`.
    let folders: BTreeSet<u32> = found.files.iter().filter(|f| !f.is_named()).map(|f| f.source).collect();
    if found.walked && folders.len() > 1 {
        let parents: BTreeSet<_> = folders.iter().map(|&at| sources[at as usize].path.parent()).collect();
        let parent = parents.first().copied().flatten().filter(|_| parents.len() == 1);
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.map_or_else(|| "the folder that holds them".to_owned(), printable_path);
        return format!(
            "sources are not classes; if the {} folders are, give {parent} as the source",
            folders.len()
        );
    }
    "the images are in no class folders; make a folder for each class (SRC/cat/1.jpg), or name a table of classes with \
     `metadata FILE`, and its column with `label_field`"
        .to_owned()
}
