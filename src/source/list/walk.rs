//! Lists the files of sources in a fixed order.
//!
//! Entries of a directory are sorted by the bytes of their names, with `/` appended to the names of directories. This
//! is the order of full paths and of object store listings, so it does not depend on the file system. Sources in object
//! storage are listed by `remote`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::listing::Listing;
use super::remote;
use super::source_file::SourceFile;
use crate::error::{Error, Result};
use crate::foreign::hub_remedy;
use crate::options::SourceSpec;
use crate::source::io::name::portable_name;
use crate::source::io::planned::{modified_ns, names_nothing};
use crate::storage::{ObjectUrl, for_each_entry};

/// Maximum nesting depth of folders.
const MAX_DEPTH: usize = 256;

/// Lists the files of all `sources` whose names pass `keep`. Names that start with a dot are skipped, except for a
/// source itself.
///
/// # Errors
///
/// Returns an error if a source is missing, a folder cannot be listed or is nested too deeply, or symbolic links
/// form a loop.
pub fn list(sources: &[SourceSpec], follow_symlinks: bool, keep: &dyn Fn(&str) -> bool) -> Result<Listing> {
    let mut listing = Listing::default();
    for (ordinal, source) in sources.iter().enumerate() {
        if let Some(url) = ObjectUrl::parse(&source.path)? {
            remote::list(source, &url, ordinal as u32, keep, &mut listing)?;
            continue;
        }
        let meta = std::fs::metadata(&source.path).map_err(|e| {
            let error = match e.kind() {
                ErrorKind::NotFound => Error::usage("there is no such source").at_path(&source.path),
                _ => Error::io("examine the source", &source.path, e),
            };
            let hub = hub_remedy(&source.path).map_or_else(String::new, |remedy| format!("; {remedy}"));
            error.help(format!("check the path; sources are files or folders{hub}"))
        })?;
        let mut walk = TreeWalk {
            source: ordinal as u32,
            follow_symlinks,
            keep,
            ancestors: HashSet::new(),
            listing: &mut listing,
        };
        if meta.is_dir() {
            walk.folder(&source.path, Path::new(""), &source.label, (meta.dev(), meta.ino()), 0)?;
        } else if meta.is_file() {
            walk.file(PathBuf::new(), source.label.clone(), meta.len(), modified_ns(&meta));
        } else {
            return Err(Error::usage("the source is a FIFO, socket or device, not a file or folder")
                .at_path(&source.path)
                .help("name files or folders; dsconvert text reads standard input when the source is -"));
        }
    }
    Ok(listing)
}

struct TreeWalk<'a> {
    source: u32,
    follow_symlinks: bool,
    keep: &'a dyn Fn(&str) -> bool,
    /// Device and inode of all enclosing folders. A folder inside itself means that links form a loop.
    ancestors: HashSet<(u64, u64)>,
    listing: &'a mut Listing,
}

impl TreeWalk<'_> {
    fn folder(
        &mut self,
        path: &Path,
        relative: &Path,
        origin: &str,
        id: (u64, u64),
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_DEPTH || !self.ancestors.insert(id) {
            return Err(Error::usage("symbolic links form a loop, or folders are nested too deeply")
                .at_path(path)
                .help("remove the link, or run without `follow_symlinks`"));
        }
        for (name, entry) in self.entries(path)? {
            let text = portable_name(&name);
            let origin = format!("{origin}/{text}");
            let relative = relative.join(&name);
            match entry {
                FolderEntry::Folder { id } => {
                    self.folder(&path.join(&name), &relative, &origin, id, depth + 1)?;
                }
                FolderEntry::File { bytes, modified_ns } if (self.keep)(&text) => {
                    self.file(relative, origin, bytes, modified_ns);
                }
                FolderEntry::File { .. } => self.listing.skipped.add(&text),
            }
        }
        self.ancestors.remove(&id);
        Ok(())
    }

    /// Returns the files and folders in a folder, in order.
    fn entries(&mut self, folder: &Path) -> Result<Vec<(OsString, FolderEntry)>> {
        let mut entries = Vec::new();
        let fail = |e| Error::io("list the folder", folder, e);
        for_each_entry(folder, fail, |entry| {
            let name = entry.file_name();
            let mut meta = entry.metadata().map_err(|e| Error::io("examine the file", &entry.path(), e))?;
            if meta.file_type().is_symlink() && self.follow_symlinks {
                // A dangling link is skipped like a link that is not followed.
                match std::fs::metadata(entry.path()) {
                    Ok(target) => meta = target,
                    Err(e) if names_nothing(&e) => {}
                    Err(e) => return Err(Error::io("examine the file", &entry.path(), e)),
                }
            }
            let skipped = &mut self.listing.skipped;
            match name.as_bytes().starts_with(b".") {
                true if meta.is_dir() => {}
                true => skipped.add(&portable_name(&name)),
                false if meta.is_file() || meta.is_dir() => entries.push((name, FolderEntry::of(&meta))),
                false if meta.is_symlink() && !self.follow_symlinks => skipped.add_link(),
                false => skipped.add_special(),
            }
            Ok(())
        })?;
        entries.sort_by(|(a, of_a), (b, of_b)| of_a.path(a).cmp(of_b.path(b)));
        Ok(entries)
    }

    fn file(&mut self, relative: PathBuf, origin: String, bytes: u64, modified_ns: i128) {
        let file = SourceFile::nothing(relative, origin);
        self.listing.files.push(&SourceFile { source: self.source, bytes, modified_ns, ..file });
    }
}

/// Metadata of a folder entry. All entries of one folder are in memory at the same time.
enum FolderEntry {
    File {
        bytes: u64,
        modified_ns: i128,
    },
    Folder {
        /// Device and inode.
        id: (u64, u64),
    },
}

impl FolderEntry {
    fn of(meta: &Metadata) -> Self {
        match meta.is_dir() {
            true => Self::Folder { id: (meta.dev(), meta.ino()) },
            false => Self::File { bytes: meta.len(), modified_ns: modified_ns(meta) },
        }
    }

    /// Returns the bytes by which the entry `name` is sorted.
    fn path<'a>(&self, name: &'a OsString) -> impl Iterator<Item = &'a u8> {
        let end: &[u8] = match self {
            Self::Folder { .. } => b"/",
            Self::File { .. } => b"",
        };
        name.as_bytes().iter().chain(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(path: &Path) -> SourceSpec {
        SourceSpec { label: "src".into(), path: path.to_owned() }
    }

    fn origins(path: &Path, follow: bool) -> Vec<String> {
        list(&[spec(path)], follow, &|n| n.ends_with("jpg")).unwrap().files.iter().map(|f| f.origin).collect()
    }

    #[test]
    fn order_is_that_of_full_paths() {
        let dir = tempfile::tempdir().unwrap();
        for file in
            ["a/x.jpg", "a-b/x.jpg", "a.jpg", "b/c/y.jpg", "Z.jpg", ".hidden.jpg", ".git/x.jpg", "notes.txt"]
        {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let found = origins(dir.path(), false);
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(found, sorted);
        assert_eq!(found, ["src/Z.jpg", "src/a-b/x.jpg", "src/a.jpg", "src/a/x.jpg", "src/b/c/y.jpg"]);
        let listing = list(&[spec(dir.path())], false, &|n| n.ends_with("jpg")).unwrap();
        assert_eq!(listing.skipped.count(), 2);
    }

    #[test]
    fn links_are_followed_only_if_requested_and_never_in_loops() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("x.jpg"), "x").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("link")).unwrap();
        assert!(origins(dir.path(), false).is_empty());
        assert_eq!(origins(dir.path(), true), ["src/link/x.jpg"]);
        std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
        assert!(list(&[spec(dir.path())], true, &|_| true).is_err());
    }
}
