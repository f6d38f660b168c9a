//! Why images have no labels, and how they get some.

use std::collections::BTreeSet;

use super::found::FoundImages;
use super::sources::tables::no_label_column;
use crate::options::SourceSpec;
use crate::printable::printable_path;
use crate::recipe::ImagesRecipe;
use crate::source::names::layout::FolderLayout;

/// Returns the reason and the remedy. `columns` are the fields from tables or samples.
pub(super) fn no_labels(
    found: &FoundImages,
    recipe: &ImagesRecipe,
    sources: &[SourceSpec],
    columns: &[String],
) -> String {
    if !found.tables.is_empty() {
        return no_label_column(columns);
    }
    if let Some(kind) = found.containers.kind() {
        return kind.why_no_labels(columns);
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
