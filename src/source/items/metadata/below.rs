//! Names in a table that lead to no file in their folder, but to one below it: ids of images in the parts of a set.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::decode::has_image_extension;
use crate::error::Result;
use crate::numbers::plural;
use crate::options::SourceSpec;
use crate::printable::{printable, printable_path};
use crate::sample::{Reject, RejectCode};
use crate::source::io::name::portable_name;
use crate::source::list::named_files::relative_path;
use crate::source::list::source_file::SourceFile;
use crate::source::list::walk::list;
use crate::storage::ObjectUrl;
use crate::warning::Warning;

/// The names of rows that lead to no file.
#[derive(Debug, Default)]
pub(super) struct MissingNames {
    names: Vec<MissingName>,
    /// The names by their last component.
    by_last: HashMap<OsString, Vec<usize>>,
}

#[derive(Debug)]
struct MissingName {
    /// Ordinal of the row.
    row: usize,
    name: PathBuf,
    /// A file whose path ends with the name, and another one.
    found: [Option<SourceFile>; 2],
}

impl MissingNames {
    /// Adds the name of a row.
    pub(super) fn add(&mut self, row: usize, name: &[u8]) {
        let Some(name) = relative_path(Path::new(OsStr::from_bytes(name))) else { return };
        let Some(last) = name.file_name() else { return };
        self.by_last.entry(last.to_owned()).or_default().push(self.names.len());
        self.names.push(MissingName { row, name, found: [None, None] });
    }

    /// Finds the names of the table at `path` among the files below `folder`. Calls `found` with the row and file of each name
    /// that the path of one file ends with, and with a reject if those of several do. Returns a warning about the files.
    pub(super) fn find(
        mut self,
        folder: &SourceSpec,
        path: &Path,
        follow_symlinks: bool,
        mut found: impl FnMut(usize, Result<SourceFile, Reject>),
    ) -> Result<Option<Warning>> {
        if self.names.is_empty() || ObjectUrl::is_url(&folder.path) {
            return Ok(None);
        }
        let listing = list(std::slice::from_ref(folder), follow_symlinks, &has_image_extension)?;
        for file in listing.files.iter() {
            let (Some(name), Some(stem)) = (file.relative.file_name(), file.relative.file_stem()) else {
                continue;
            };
            let without_extension = file.relative.with_extension("");
            for (last, path) in [(name, &file.relative), (stem, &without_extension)] {
                for at in self.by_last.get(last).into_iter().flatten() {
                    let missing = &mut self.names[*at];
                    if path.ends_with(&missing.name)
                        && let Some(place) = missing.found.iter_mut().find(|place| place.is_none())
                    {
                        *place = Some(file.clone());
                    }
                }
            }
        }
        let (mut rows, mut example) = (0, None);
        for MissingName { row, name, found: files } in self.names {
            match files {
                [Some(file), None] => {
                    rows += 1;
                    example.get_or_insert_with(|| (portable_name(name.as_os_str()), file.origin.clone()));
                    found(row, Ok(file));
                }
                [Some(one), Some(other)] => {
                    let message =
                        format!("the name fits several files: {:?} and {:?}", one.origin, other.origin);
                    found(row, Err(Reject::new(RejectCode::MissingFile, message)));
                }
                _ => {}
            }
        }
        let warning = |(name, origin): (String, String)| {
            let message = format!(
                "{}: {} {} no file in the folder of the paths, but a unique one below it, such as {:?}: {:?}",
                printable_path(path),
                plural(rows, "row"),
                if rows == 1 { "names" } else { "name" },
                printable(&name),
                printable(&origin)
            );
            let warning = Warning::new("names-below", message).with("path", path);
            warning.with("rows", rows).with("name", name).with("origin", origin)
        };
        Ok(example.map(warning))
    }
}
