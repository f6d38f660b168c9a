//! Glob patterns in the names of sources, for shells that do not expand them: `corpus/*/part-*.jsonl.zst`.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

use super::portable_name;
use super::skipped::SkippedTypes;
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::storage::{ObjectUrl, contained, stat};

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

fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

impl Matches {
    fn add(&mut self, source: &SourceSpec, pattern: &str, keep: &dyn Fn(&str) -> bool) -> Result<()> {
        let bad = |e: glob::PatternError| {
            Error::usage(format!("{pattern:?} is not a valid pattern: {}", e.msg)).at_path(&source.path)
        };
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let mut paths: Vec<PathBuf> = Vec::new();
        // On its own, `**` matches only folders.
        let files = if pattern == "**" || pattern.ends_with("/**") {
            format!("{pattern}/*")
        } else {
            pattern.to_owned()
        };
        let mut matches = glob::glob_with(&files, options).map_err(bad)?;
        let mut list = || {
            for found in &mut matches {
                paths.push(found.map_err(|e| {
                    let path = e.path().to_owned();
                    Error::io("list the folder", &path, e.into())
                })?);
            }
            Ok(())
        };
        let listed = contained(|| Ok(list()));
        listed.map_err(|e| Error::io("list the folders of the pattern", &source.path, e))??;
        if paths.is_empty() {
            return Err(Error::usage("nothing matches this pattern")
                .at_path(&source.path)
                .help("check the path; quote it, or let the shell expand it"));
        }
        paths.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
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
        assert!(labels("none*", "none*").unwrap_err().to_string().contains("none*"));
        assert!(labels("[", "a/[").is_err());
    }
}
