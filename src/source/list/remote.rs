//! Source files in object storage, and their listing.

use std::path::{Path, PathBuf};

use super::listing::Listing;
use super::skipped::SkippedTypes;
use super::source_file::SourceFile;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::source::io::planned::PlannedFile;
use crate::storage::ObjectUrl;
use crate::storage::objects::{Bucket, FileListing, Object};

/// Lists the objects of the source `spec` at `url`, with the ordinal `source`, as a walk lists the files of a folder.
pub(in crate::source) fn list(
    spec: &SourceSpec,
    url: &ObjectUrl,
    source: u32,
    keep: &dyn Fn(&str) -> bool,
    listing: &mut Listing,
) -> Result<()> {
    let bucket = Bucket::of(url)?;
    let is_folder = url.key().is_empty() || spec.path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if (!is_folder || url.is_server())
        && let Some(object) = bucket.head(url)?
    {
        listing.files.push(&file(source, Path::new(""), spec.label.clone(), object));
        return Ok(());
    }
    let missing = |help: &str| Err(Error::usage("there is no such source").at_path(&spec.path).help(help));
    if url.is_server() {
        return missing("check the URL; a web server cannot be listed, so name each of its files");
    }
    let FileListing { objects, unusable } = bucket.list_files(url)?;
    if objects.is_empty() && unusable.is_empty() {
        return missing("check the URL; no object has this key, and no key starts with it and a slash");
    }
    unusable.iter().for_each(|key| listing.skipped.add(key));
    listing.unusable.extend(unusable.into_iter().map(|key| format!("{}/{key}", url.root())));
    for object in objects {
        let key = object.url.key().to_owned();
        let relative = key[url.key().len()..].trim_start_matches('/');
        if is_wanted(relative, keep, &mut listing.skipped) {
            let origin = format!("{}/{relative}", spec.label);
            listing.files.push(&file(source, Path::new(relative), origin, object));
        }
    }
    Ok(())
}

/// Returns whether a walk of folders would keep the file. Files in hidden folders are not counted as skipped.
fn is_wanted(relative: &str, keep: &dyn Fn(&str) -> bool, skipped: &mut SkippedTypes) -> bool {
    let (folders, name) = relative.rsplit_once('/').unwrap_or(("", relative));
    if folders.split('/').any(|folder| folder.starts_with('.')) {
        return false;
    }
    let is_wanted = !name.starts_with('.') && keep(name);
    if !is_wanted {
        skipped.add(name);
    }
    is_wanted
}

fn file(source: u32, relative: &Path, origin: String, object: Object) -> SourceFile {
    let Object { bytes, modified_ns, etag, .. } = object;
    SourceFile { source, bytes, modified_ns, etag, ..SourceFile::nothing(relative.to_owned(), origin) }
}

/// Finds objects below a URL by name. The first [`MAX_LOOKUPS`] names are looked up with one request each; after that,
/// all objects are listed at once.
#[derive(Debug)]
pub(super) struct Lookup {
    url: ObjectUrl,
    /// Number of names looked up with one request each.
    requests: usize,
    /// All objects by key, once they have been listed.
    all: Option<std::collections::HashMap<String, PlannedFile>>,
}

/// Maximum number of names looked up one by one before all objects are listed instead.
const MAX_LOOKUPS: usize = 32;

impl Lookup {
    pub(in crate::source) fn new(url: ObjectUrl) -> Self {
        Self { url, requests: 0, all: None }
    }

    /// Returns the object that `name` refers to, and its path below the source; `None` if there is none.
    ///
    /// On a web server, `name` is a plain file name or, if there is no such file, percent-encoded as in a URL. It is
    /// always encoded if it comes from a whole URL (`is_of_url`).
    pub(in crate::source) fn resolve(
        &mut self,
        name: &Path,
        is_of_url: bool,
    ) -> Result<Option<(PathBuf, PlannedFile)>> {
        let decoded = if self.url.is_server() { name.to_str().and_then(percent_decoded) } else { None };
        let plain = (!is_of_url || decoded.is_none()).then(|| name.to_owned());
        for relative in plain.into_iter().chain(decoded.map(PathBuf::from)) {
            if let Some(file) = self.find(&relative)? {
                return Ok(Some((relative, file)));
            }
        }
        Ok(None)
    }

    /// Returns the object with the path `relative`; `None` if there is none.
    fn find(&mut self, relative: &Path) -> Result<Option<PlannedFile>> {
        // An error means that no object can have this name.
        let Ok(Some(url)) = ObjectUrl::parse(&ObjectUrl::file_below(self.url.as_path(), relative)) else {
            return Ok(None);
        };
        if self.all.is_none() && (self.requests < MAX_LOOKUPS || self.url.is_server()) {
            self.requests += 1;
            return PlannedFile::of_url(&url);
        }
        if self.all.is_none() {
            let FileListing { objects, .. } = Bucket::of(&self.url)?.list_files(&self.url)?;
            self.all = Some(
                objects
                    .iter()
                    .map(|object| (object.url.key().to_owned(), PlannedFile::of_object(object)))
                    .collect(),
            );
        }
        Ok(self.all.as_ref().and_then(|all| all.get(url.key())).cloned())
    }
}

/// Decodes a percent-encoded name; `None` if nothing in it is encoded, or the result is not UTF-8.
fn percent_decoded(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                decoded.push(b'%');
                decoded.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8(decoded).ok().filter(|decoded| decoded != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_decoded() {
        for (name, decoded) in [
            ("a%20b%C3%A9.jpg", Some("a bé.jpg")),
            ("%2541%", Some("%41%")),
            ("50%.jpg", None),
            ("%+1%é%2", None),
            ("%FF", None),
            ("", None),
        ] {
            assert_eq!(percent_decoded(name).as_deref(), decoded, "{name}");
        }
    }

    #[test]
    fn hidden_files_are_counted_and_hidden_folders_are_not() {
        let mut skipped = SkippedTypes::default();
        let mut wanted = |relative: &str| is_wanted(relative, &|name| name.ends_with(".jpg"), &mut skipped);
        assert!(wanted("a/b.jpg") && wanted("b.jpg"));
        assert!(!wanted(".git/b.jpg") && !wanted("a/.x/b.jpg") && !wanted("a/.b.jpg") && !wanted("a/b.txt"));
        assert_eq!(skipped.count(), 2);
    }
}
