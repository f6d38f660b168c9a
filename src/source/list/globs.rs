//! Glob patterns in the names of sources, for shells that do not expand them: `corpus/*/part-*.jsonl.zst`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use glob::{Pattern, PatternError};

use super::skipped::SkippedTypes;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::source::io::name::portable_name;
use crate::storage::{ObjectUrl, for_each_entry, lstat, stat};

/// The sources after glob expansion.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// The sources.
    pub sources: Vec<SourceSpec>,
    /// Files that match a pattern but do not pass the filter.
    pub skipped: SkippedTypes,
}

/// Replaces every source that is a pattern by its matches, in byte order. A path that exists under exactly that name is
/// not a pattern.
///
/// The label of a match is its path from the first component with a wildcard. If only the last component has one, this
/// is the label of a file named directly. A label given by the user is prepended. Matches that do not pass `keep` are
/// counted as skipped.
///
/// # Errors
///
/// Returns an error if a pattern is invalid or matches nothing, or if a folder cannot be listed.
pub fn expand(sources: &[SourceSpec], keep: &dyn Fn(&str) -> bool) -> Result<Matches> {
    let mut all = Matches::default();
    for source in sources {
        match source.path.to_str().filter(|p| is_pattern(p)) {
            Some(pattern) if ObjectUrl::is_url(&source.path) => {
                return Err(Error::usage(format!(
                    "{pattern:?}: patterns are not supported in object storage"
                ))
                .help("name a prefix, or list the files with `files_from`"));
            }
            Some(pattern) if stat(&source.path)?.is_none() => all.add(source, pattern, keep)?,
            _ => all.sources.push(source.clone()),
        }
    }
    Ok(all)
}

/// Returns whether there is a file or folder with this name, or one that matches it.
pub fn is_present(path: &Path) -> Result<bool> {
    let is_matched = |pattern| matching(path, pattern).is_ok_and(|found| !found.is_empty());
    Ok(stat(path)?.is_some() || path.to_str().filter(|text| is_pattern(text)).is_some_and(is_matched))
}

fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

impl Matches {
    fn add(&mut self, source: &SourceSpec, pattern: &str, keep: &dyn Fn(&str) -> bool) -> Result<()> {
        let mut paths = matching(&source.path, pattern)?;
        if paths.is_empty() {
            return Err(Error::usage("nothing matches this pattern")
                .at_path(&source.path)
                .help("check the path; quote it, or let the shell expand it"));
        }
        paths.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        paths.dedup();
        let fixed =
            Path::new(pattern).iter().take_while(|part| !part.to_str().is_some_and(is_pattern)).count();
        // A label ends with the path from its last component on, or from the first one with a range (see `braces`).
        let parts: Vec<&str> = source.label.split('/').collect();
        let from_path = source
            .path
            .iter()
            .rev()
            .zip(parts.iter().rev())
            .take_while(|(a, b)| portable_name(a) == **b)
            .count();
        let given = &parts[..parts.len() - from_path];
        let start = fixed.min(source.path.iter().count() - from_path);
        // The files of a matched folder belong to it, although `**` matches them as well.
        let mut matched_folders = HashSet::new();
        for path in paths {
            if path.ancestors().skip(1).any(|folder| matched_folders.contains(folder)) {
                continue;
            }
            let is_folder = stat(&path)?.is_some_and(|meta| meta.is_dir());
            if is_folder {
                matched_folders.insert(path.clone());
            }
            let matched = path.iter().skip(start).map(portable_name);
            let label =
                given.iter().map(|&part| part.to_owned()).chain(matched).collect::<Vec<_>>().join("/");
            if is_folder || keep(&label) {
                self.sources.push(SourceSpec { label, path });
            } else {
                self.skipped.add(&label);
            }
        }
        Ok(())
    }
}

/// A component of a pattern.
enum PatternPart<'a> {
    /// The entry with this name.
    Name(&'a OsStr),
    /// `**`: any number of nested folders.
    Folders,
    /// Any entry whose name matches.
    Wildcard(Pattern),
}

impl<'a> PatternPart<'a> {
    fn of(part: Component<'a>) -> Result<Self, PatternError> {
        let name = part.as_os_str();
        Ok(match name.to_str().filter(|text| is_pattern(text)) {
            None => Self::Name(name),
            Some("**") => Self::Folders,
            Some(wildcard) => Self::Wildcard(Pattern::new(wildcard)?),
        })
    }
}

/// Returns the paths that match `pattern`, which is `path` as text, in no particular order. Wildcards do not match hidden
/// names, even if they start with a dot. Other characters stand for the bytes of names that are not UTF-8.
fn matching(path: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let bad = |e: PatternError| {
        Error::usage(format!("{pattern:?} is not a valid pattern: {}", e.msg)).at_path(path)
    };
    let parts = path.components().map(PatternPart::of).collect::<Result<Vec<_>, _>>();
    let mut parts = parts.map_err(bad)?;
    parts.dedup_by(|a, b| matches!((a, b), (PatternPart::Folders, PatternPart::Folders)));
    let only_folders = pattern.ends_with('/');
    // On its own, `**` matches only folders.
    if matches!(parts.last(), Some(PatternPart::Folders)) {
        parts.push(PatternPart::Wildcard(Pattern::new("*").map_err(bad)?));
    }
    let mut found = Vec::new();
    // Paths that match the first parts, and how many.
    let mut todo = vec![(PathBuf::new(), 0)];
    while let Some((path, matched)) = todo.pop() {
        match parts.get(matched) {
            None if only_folders && !is_folder(&path) => {}
            None => found.push(path),
            Some(PatternPart::Name(name)) => {
                let path = path.join(name);
                if lstat(&path)?.is_some() {
                    todo.push((path, matched + 1));
                }
            }
            Some(PatternPart::Folders) => {
                let entries = visible_entries(&path)?;
                todo.extend(
                    entries.into_iter().filter(|entry| is_folder(entry)).map(|entry| (entry, matched)),
                );
                todo.push((path, matched + 1));
            }
            Some(PatternPart::Wildcard(wildcard)) => {
                let entries = visible_entries(&path)?.into_iter();
                let matches = |entry: &PathBuf| {
                    entry.file_name().is_some_and(|name| wildcard.matches(&name.to_string_lossy()))
                };
                todo.extend(entries.filter(matches).map(|entry| (entry, matched + 1)));
            }
        }
    }
    Ok(found)
}

/// Returns the entries of a folder that are not hidden; none if the path is not a folder.
fn visible_entries(path: &Path) -> Result<Vec<PathBuf>> {
    let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut entries = Vec::new();
    if !is_folder(folder) {
        return Ok(entries);
    }
    let fail = |e| Error::io("list the folder", folder, e);
    for_each_entry(folder, fail, |entry| {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(b".") {
            entries.push(path.join(name));
        }
        Ok(())
    })?;
    Ok(entries)
}

/// Returns whether the path is a folder or a link to one. A link that leads nowhere is not.
fn is_folder(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_labeled_from_the_first_wildcard_on() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["b/x.txt", "a/x.txt", "a/notes.md", "a/.hidden.txt", "a/deep/y.txt", "[z].txt"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let labels = |label: &str, pattern: &str| {
            let spec = SourceSpec { label: label.into(), path: dir.path().join(pattern) };
            let found = expand(&[spec], &|name| name.ends_with(".txt"))?;
            Ok::<_, Error>((
                found.sources.into_iter().map(|s| s.label).collect::<Vec<_>>(),
                found.skipped.count(),
            ))
        };
        let some =
            |names: &[&str], skipped| (names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>(), skipped);
        assert_eq!(labels("*", "*/*").unwrap(), some(&["a/deep", "a/x.txt", "b/x.txt"], 1));
        assert_eq!(labels("*.txt", "a/*.txt").unwrap(), some(&["x.txt"], 0));
        assert_eq!(labels("mine", "a/*.txt").unwrap(), some(&["mine/x.txt"], 0));
        assert_eq!(labels("mine/a/*.txt", "a/*.txt").unwrap(), some(&["mine/a/x.txt"], 0));
        assert_eq!(labels("a/*.txt", "a/*.txt").unwrap(), some(&["a/x.txt"], 0));
        assert_eq!(labels("*.txt", "**/*.txt").unwrap().0, ["[z].txt", "a/deep/y.txt", "a/x.txt", "b/x.txt"]);
        assert_eq!(labels("**", "**").unwrap(), labels("*", "**/*").unwrap());
        assert_eq!(labels("*", "**/*").unwrap(), some(&["[z].txt", "a", "b"], 0));
        assert_eq!(labels("[z].txt", "[z].txt").unwrap(), some(&["[z].txt"], 0));
        assert_eq!(labels("**", "**/*/**/**").unwrap().0, ["a/deep", "a/x.txt", "b/x.txt"]);
        assert_eq!(labels("*", "a/../*/").unwrap().0, ["a", "b"]);
        assert_eq!(labels(".hidden.txt", "*/.hidden.txt").unwrap(), some(&["a/.hidden.txt"], 0));
        assert!(labels(".*", "a/.*").is_err());
        assert!(labels("none*", "none*").unwrap_err().to_string().contains("none*"));
        assert!(labels("[", "a/[").is_err());
    }

    #[test]
    fn names_that_are_not_utf8_are_matched() {
        let dir = tempfile::tempdir().unwrap();
        for name in [b"a\xff.txt".as_slice(), b"\xffolder/b.txt", b"\xff"] {
            let path = dir.path().join(OsStr::from_bytes(name));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let labels = |pattern: &str| {
            let spec = SourceSpec { label: "*".into(), path: dir.path().join(pattern) };
            let found = expand(&[spec], &|_| true).unwrap();
            found.sources.into_iter().map(|s| s.label).collect::<Vec<_>>()
        };
        assert_eq!(labels("*.txt"), ["*/a%FF.txt"]);
        assert_eq!(labels("?"), ["*/%FF"]);
        assert_eq!(labels("**/*.txt"), ["*/a%FF.txt", "*/%FFolder/b.txt"]);
    }

    #[test]
    fn a_pattern_may_start_with_the_working_directory() {
        let spec = |path: &str| SourceSpec { label: "Cargo.*ml".into(), path: path.into() };
        for path in ["Cargo.*ml", "./Cargo.*ml"] {
            let found = expand(&[spec(path)], &|_| true).unwrap();
            assert_eq!(found.sources.iter().map(|s| &*s.label).collect::<Vec<_>>(), ["Cargo.toml"], "{path}");
        }
    }
}
