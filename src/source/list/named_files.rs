//! Files that a list or the rows of a metadata file name, as opposed to files that a walk finds.
//!
//! Every name counts as an item: a name that leads to no file, or out of its base folder, is a rejected item. Naming a
//! file twice is an error of the list, because a file produces one record.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::remote::Lookup;
use super::source_file::SourceFile;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::printable::printable;
use crate::sample::{Reject, RejectCode};
use crate::source::io::name::portable_name;
use crate::source::io::planned::{PlannedFile, modified_ns, names_nothing};
use crate::source::io::retry::retried;
use crate::storage::{ObjectUrl, for_each_entry, stat};

/// Separator between the origin of a file and the number of a further row that names it.
const REPEATED: char = '#';

/// Extensions that are tried for a name that leads to no file, such as the id of an image.
pub(super) const IMAGE_ENDINGS: [&str; 16] = [
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".JPG", ".JPEG", ".PNG", ".WEBP",
    ".GIF", ".BMP", ".TIF", ".TIFF",
];

/// Resolves names to files of one source.
pub struct Resolver<'a> {
    source: &'a SourceSpec,
    /// Paths of the source folder that absolute names may start with.
    absolute: Vec<PathBuf>,
    follow_symlinks: bool,
    /// Existing folders under the source, and whether they are symbolic links.
    is_link: HashMap<PathBuf, bool>,
    /// Set for a source in object storage.
    lookup: Option<Lookup>,
    /// Names in the folders in which extensions were tried.
    names: HashMap<PathBuf, HashSet<OsString>>,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver of names relative to the folder `source`, or absolute names inside it.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder does not exist.
    pub fn new(source: &'a SourceSpec, follow_symlinks: bool) -> Result<Self> {
        let lookup = ObjectUrl::parse(&source.path)?.map(Lookup::new);
        let absolute = match lookup {
            Some(_) => vec![source.path.clone()],
            None => spellings(&source.path)?,
        };
        let (is_link, names) = (HashMap::new(), HashMap::new());
        Ok(Self { source, absolute, follow_symlinks, is_link, lookup, names })
    }

    /// Returns the file that `name` refers to, or an empty entry and the reason why there is no file.
    ///
    /// # Errors
    ///
    /// Returns only errors that are not caused by the name.
    pub fn resolve(&mut self, name: &[u8]) -> Result<(SourceFile, Option<Reject>)> {
        let name = Path::new(OsStr::from_bytes(name));
        if self.lookup.is_some() {
            check_no_query(name)?;
        }
        let Some(relative) = self.relative(name) else {
            let origin = format!("{}/{}", self.source.label, portable_name(name.as_os_str()));
            let message = "the path leads out of the folder it is relative to";
            return Ok((
                SourceFile::nothing(PathBuf::new(), origin),
                Some(Reject::new(RejectCode::UnsafePath, message)),
            ));
        };
        let mut origin = self.source.label.clone();
        for part in &relative {
            origin.push('/');
            origin.push_str(&portable_name(part));
        }
        if let Some(lookup) = &mut self.lookup {
            return match lookup.resolve(&relative, ObjectUrl::is_url(name))? {
                Some((relative, PlannedFile { bytes, modified_ns, etag, .. })) => Ok((
                    SourceFile { bytes, modified_ns, etag, ..SourceFile::nothing(relative, origin) },
                    None,
                )),
                None => {
                    let defect = Reject::new(RejectCode::MissingFile, "there is no such file");
                    Ok((SourceFile::nothing(relative, origin), Some(defect)))
                }
            };
        }
        let path = self.source.path.join(&relative);
        let meta = if self.follow_symlinks {
            retried(|| std::fs::metadata(&path))
        } else if self.is_through_link(&relative)? {
            let message = "the path goes through a symbolic link, which only `follow_symlinks` allows";
            return Ok((
                SourceFile::nothing(relative, origin),
                Some(Reject::new(RejectCode::UnsafePath, message)),
            ));
        } else {
            retried(|| std::fs::symlink_metadata(&path))
        };
        let defect = match meta {
            Ok(meta) if meta.is_file() => {
                let (bytes, modified_ns) = (meta.len(), modified_ns(&meta));
                return Ok((
                    SourceFile { bytes, modified_ns, ..SourceFile::nothing(relative, origin) },
                    None,
                ));
            }
            Ok(meta) if meta.file_type().is_symlink() => Reject::new(
                RejectCode::UnsafePath,
                "the file is a symbolic link, which only `follow_symlinks` allows",
            ),
            Ok(meta) if meta.is_dir() => Reject::new(RejectCode::MissingFile, "this is a folder, not a file"),
            Ok(_) => Reject::new(RejectCode::MissingFile, "this is not a regular file"),
            Err(e) if names_nothing(&e) => Reject::new(RejectCode::MissingFile, "there is no such file"),
            Err(e) => return Err(Error::io("examine the file", &path, e)),
        };
        Ok((SourceFile::nothing(relative, origin), Some(defect)))
    }

    /// As [`Self::resolve`]. If the name leads to no file, it may be the name of an image without its extension, such as an
    /// id.
    ///
    /// # Errors
    ///
    /// As [`Self::resolve`].
    pub(in crate::source) fn resolve_image(&mut self, name: &[u8]) -> Result<(SourceFile, Option<Reject>)> {
        let (file, defect) = self.resolve(name)?;
        let is_missing = defect.as_ref().is_some_and(|defect| defect.code == RejectCode::MissingFile);
        if !is_missing || file.relative.as_os_str().is_empty() {
            return Ok((file, defect));
        }
        let (mut found, mut also) = (None, None);
        for ending in IMAGE_ENDINGS {
            let path = with_ending(&file.relative, ending);
            if self.lookup.is_none() && !self.is_in_folder(&path)? {
                continue;
            }
            if let (other, None) = self.resolve(path.as_os_str().as_bytes())? {
                let place = if found.is_none() { &mut found } else { &mut also };
                place.get_or_insert(other);
            }
        }
        Ok(match (found, also) {
            (None, _) => (file, defect),
            (Some(found), None) => (found, None),
            (Some(one), Some(other)) => {
                let message = format!("the name fits several files: {:?} and {:?}", one.origin, other.origin);
                (file, Some(Reject::new(RejectCode::MissingFile, message)))
            }
        })
    }

    /// Returns whether the folder of `relative` has an entry of that name.
    fn is_in_folder(&mut self, relative: &Path) -> Result<bool> {
        let (Some(folder), Some(name)) = (relative.parent(), relative.file_name()) else { return Ok(false) };
        if !self.names.contains_key(folder) {
            let path = self.source.path.join(folder);
            let mut names = HashSet::new();
            let fail = |e| Error::io("list the folder", &path, e);
            match retried(|| std::fs::metadata(&path)) {
                Ok(meta) if meta.is_dir() => for_each_entry(&path, fail, |entry| {
                    names.insert(entry.file_name());
                    Ok(())
                })?,
                Ok(_) => {}
                Err(e) if names_nothing(&e) => {}
                Err(e) => return Err(fail(e)),
            }
            self.names.insert(folder.to_owned(), names);
        }
        Ok(self.names.get(folder).is_some_and(|names| names.contains(name)))
    }

    /// Returns `name` relative to the folder, without `.` components; `None` if it leads out of the folder or is empty.
    fn relative(&self, name: &Path) -> Option<PathBuf> {
        let is_absolute = name.is_absolute() || (self.lookup.is_some() && ObjectUrl::is_url(name));
        let name = match is_absolute {
            true => self.absolute.iter().find_map(|folder| name.strip_prefix(folder).ok())?,
            false => name,
        };
        relative_path(name)
    }

    /// Returns whether a folder between the source and the file is a symbolic link.
    fn is_through_link(&mut self, relative: &Path) -> Result<bool> {
        let Some(folder) = relative.parent().filter(|f| !f.as_os_str().is_empty()) else { return Ok(false) };
        // From the top, because a name may have any number of folders that do not exist.
        let mut prefix = PathBuf::new();
        for part in folder.components() {
            prefix.push(part);
            let is_link = match self.is_link.get(&prefix) {
                Some(&known) => known,
                None => {
                    let path = self.source.path.join(&prefix);
                    let is_link = match std::fs::symlink_metadata(&path) {
                        Ok(meta) => meta.file_type().is_symlink(),
                        Err(e) if names_nothing(&e) => return Ok(false),
                        Err(e) => return Err(Error::io("examine the folder", &path, e)),
                    };
                    self.is_link.insert(prefix.clone(), is_link);
                    is_link
                }
            };
            if is_link {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the absolute paths of the folder `path`.
fn spellings(path: &Path) -> Result<Vec<PathBuf>> {
    let real = path.canonicalize().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::usage("there is no such folder").at_path(path),
        _ => Error::io("examine the folder", path, e),
    })?;
    if !stat(&real)?.is_some_and(|meta| meta.is_dir()) {
        return Err(Error::usage("this is not a folder, but the named files are relative to it")
            .at_path(path)
            .help("name the folder that the paths of the list are relative to, or leave it out"));
    }
    // The path as given may go through symbolic links.
    Ok(std::iter::once(real).chain(std::path::absolute(path).ok()).collect())
}

/// Returns `name` without `.` components; `None` if it leads out of its folder or is empty.
pub(in crate::source) fn relative_path(name: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => relative.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!relative.as_os_str().is_empty()).then_some(relative)
}

/// Returns `path` with `ending` appended to its last component.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Refuses a URL with a query, which may be secret and would be stored as part of the origin.
fn check_no_query(name: &Path) -> Result<()> {
    let end = name.as_os_str().as_bytes().iter().position(|&byte| matches!(byte, b'?' | b'#'));
    match end {
        Some(end) if ObjectUrl::is_server_url(name) => {
            let shown = Path::new(OsStr::from_bytes(&name.as_os_str().as_bytes()[..end]));
            ObjectUrl::parse(name).map_err(|e| e.at_path(shown)).map(drop)
        }
        _ => Ok(()),
    }
}

/// Numbers the entries of files that several rows of a table name, so that each has its own origin: `a.jpg`, `a.jpg#2`,
/// `a.jpg#3`.
pub(in crate::source) fn number_repeats(files: &mut [SourceFile]) {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for file in files {
        let count = counts.entry(file.origin.clone()).or_default();
        *count += 1;
        if *count > 1 {
            file.origin.push_str(&format!("{REPEATED}{count}"));
        }
    }
}

/// Help for two files whose names differ, but not their keys.
pub(crate) const ENCODED_NAMES: &str = "rename one of the files: in keys, names that are not UTF-8 are percent-encoded, and rows of one file are numbered, \
     as in a.jpg#2";

/// Returns an error if a file is named twice, or two files have one key. `place` returns the position of an entry in the
/// list, such as `line 3`.
pub(in crate::source) fn check_named_once(
    files: &[SourceFile],
    list: &Path,
    place: impl Fn(usize) -> String,
) -> Result<()> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by(|&a, &b| files[a].origin.cmp(&files[b].origin).then(a.cmp(&b)));
    match order.windows(2).find(|pair| files[pair[0]].origin == files[pair[1]].origin) {
        None => Ok(()),
        Some(pair) if files[pair[0]].relative != files[pair[1]].relative => Err(Error::usage(format!(
            "{} and {} name two files with the key {:?}",
            place(pair[0]),
            place(pair[1]),
            files[pair[0]].origin
        ))
        .at_path(list)
        .help(ENCODED_NAMES)),
        Some(pair) => Err(Error::usage(format!(
            "{} and {} both name {}",
            place(pair[0]),
            place(pair[1]),
            printable(&files[pair[0]].origin)
        ))
        .at_path(list)
        .help("a file produces one record: name it once")),
    }
}

impl SourceFile {
    /// Returns the origin of the file itself, without the number of a further row that names it.
    pub fn file_origin(&self) -> &str {
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match (self.origin.rsplit_once(REPEATED), self.relative.file_name()) {
            (Some((origin, number)), Some(name)) if is_number(number) => {
                let name = portable_name(name);
                let is_whole = origin.strip_suffix(name.as_str()).is_some_and(|folder| folder.ends_with('/'));
                if is_whole { origin } else { &self.origin }
            }
            _ => &self.origin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_name_a_file_again_are_numbered() {
        let file = |name: &str| SourceFile::for_test(name, &format!("s/{name}"), 1);
        let mut files = ["a.jpg", "b.jpg", "a.jpg", "x#7", "a.jpg"].map(file);
        number_repeats(&mut files);
        let origins = files.each_ref().map(|file| file.origin.as_str());
        assert_eq!(origins, ["s/a.jpg", "s/b.jpg", "s/a.jpg#2", "s/x#7", "s/a.jpg#3"]);
        let of_files = files.each_ref().map(SourceFile::file_origin);
        assert_eq!(of_files, ["s/a.jpg", "s/b.jpg", "s/a.jpg", "s/x#7", "s/a.jpg"]);
    }

    fn resolve(dir: &Path, name: &[u8], follow: bool) -> (String, Option<RejectCode>) {
        let source = SourceSpec { label: "s".into(), path: dir.to_owned() };
        let (file, defect) = Resolver::new(&source, follow).unwrap().resolve(name).unwrap();
        (file.origin, defect.map(|d| d.code))
    }

    #[test]
    fn every_name_has_one_meaning() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/x"), "x").unwrap();
        std::fs::write(other.path().join("y"), "y").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink("a/x", dir.path().join("link")).unwrap();
        let absolute = dir.path().canonicalize().unwrap().join("a/x");
        let long = "b/".repeat(100_000) + "x";
        for (name, origin, code) in [
            (b"a/x".as_slice(), "s/a/x", None),
            (b"./a//./x", "s/a/x", None),
            (absolute.as_os_str().as_bytes(), "s/a/x", None),
            (b"a", "s/a", Some(RejectCode::MissingFile)),
            (b"a/z", "s/a/z", Some(RejectCode::MissingFile)),
            (b"a/x/y", "s/a/x/y", Some(RejectCode::MissingFile)),
            (b"nul\0", "s/nul\0", Some(RejectCode::MissingFile)),
            (long.as_bytes(), &format!("s/{long}"), Some(RejectCode::MissingFile)),
            (b"caf\xe9", "s/caf%E9", Some(RejectCode::MissingFile)),
            (b"../a/x", "s/../a/x", Some(RejectCode::UnsafePath)),
            (b"a/../a/x", "s/a/../a/x", Some(RejectCode::UnsafePath)),
            (b"/etc/hostname", "s//etc/hostname", Some(RejectCode::UnsafePath)),
            (b".", "s/.", Some(RejectCode::UnsafePath)),
            (b"link", "s/link", Some(RejectCode::UnsafePath)),
            (b"out/y", "s/out/y", Some(RejectCode::UnsafePath)),
        ] {
            assert_eq!(resolve(dir.path(), name, false), (origin.into(), code), "{name:?}");
        }
        assert_eq!(resolve(dir.path(), b"link", true), ("s/link".into(), None));
        assert_eq!(resolve(dir.path(), b"out/y", true), ("s/out/y".into(), None));
    }
}
