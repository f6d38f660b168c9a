//! Refuses files whose keys may be those of items in a tar or Parquet file.
//!
//! The key of such an item is the origin of its file, `#` and the name of a sample or the ordinal of a row. A file beside it
//! may have that whole name.

use std::collections::HashSet;

use super::job::ImagesJob;
use crate::error::{Error, Result};
use crate::printable::printable_path;
use crate::source::begins_as_any_image;
use crate::source::source_file::SourceFile;

/// Separator between the origin of a file and the name of an item in it.
const SEPARATOR: char = '#';

impl ImagesJob {
    /// Refuses two items that may have the same key because one of them is in a container. The names of samples are not
    /// known when a run is planned, so every file is refused that has the key of a possible sample.
    pub(super) fn check_sample_keys(&self) -> Result<()> {
        let containers: HashSet<String> = self
            .files
            .iter()
            .filter(|file| self.is_container(file))
            .map(|file| file.origin.clone())
            .collect();
        if containers.is_empty() {
            return Ok(());
        }
        let has_separator = |file: &SourceFile| {
            file.member.is_none() && file.of_field.is_none() && file.origin.contains(SEPARATOR)
        };
        for file in self.files.iter().filter(has_separator) {
            let container = containers_of(&file.origin)
                .find(|(container, item)| containers.contains(*container) && self.may_share_key(&file, item));
            if let Some((container, _)) = container {
                return Err(self.repeated_key(&file, container));
            }
        }
        Ok(())
    }

    /// Returns whether the key of `file`, or of an item in it, may be that of an item in another file, whose origin is
    /// followed by `item` in the origin of `file`.
    fn may_share_key(&self, file: &SourceFile, item: &str) -> bool {
        if self.is_container(file) {
            return true;
        }
        let is_name = match self.conversion.image_tables {
            true => item.parse::<u64>().is_ok_and(|row| row.to_string() == item),
            // The name of a sample ends before the first dot of its last component.
            false => !item.is_empty() && !item.rsplit('/').next().unwrap_or_default().contains('.'),
        };
        // Without an extension, only the content shows whether it is an image. A file that cannot be read may be one.
        is_name && begins_as_any_image(&self.planned(file)).unwrap_or(true)
    }

    fn repeated_key(&self, file: &SourceFile, container: &str) -> Error {
        let sources = &self.header.sources;
        let path = |file: &SourceFile| printable_path(&file.path(sources));
        let container = self.files.iter().find(|file| file.origin == container);
        let container = container.map(|file| path(&file)).unwrap_or_default();
        let key = match self.is_container(file) {
            true => format!("keys that start with {:?}", format!("{}{SEPARATOR}", file.origin)),
            false => format!("the key {:?}", file.origin),
        };
        Error::usage(format!("{key} may occur twice: for {} and for an item in {container}", path(file)))
            .help("rename the file, or convert it separately: keys must be unique in a dataset")
    }
}

/// Returns the ways to divide `origin` into the origin of a container and the name of an item in it.
fn containers_of(origin: &str) -> impl Iterator<Item = (&str, &str)> {
    origin.match_indices(SEPARATOR).map(|(at, separator)| (&origin[..at], &origin[at + separator.len()..]))
}
