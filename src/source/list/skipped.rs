//! Counts of skipped files by type, so that a message can name what a source contains instead.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::numbers::listed;
use crate::printable::printable;
use crate::source::io::compression::Compression;

/// The counted type of links that are not followed.
pub(crate) const LINK: &str = "symbolic link";
/// The counted type of a member of an archive whose name is not known.
pub(crate) const MEMBER: &str = "in archives";

/// Number of skipped files by file extension.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SkippedTypes(BTreeMap<String, u64>);

impl SkippedTypes {
    /// Counts the file `name`.
    pub(crate) fn add(&mut self, name: &str) {
        self.add_many(Self::type_of(name), 1);
    }

    /// Takes back the count of the file `name`, which is read after all.
    pub(crate) fn remove(&mut self, name: &str) {
        let ty = Self::type_of(name);
        if let Some(count) = self.0.get_mut(&ty) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&ty);
            }
        }
    }

    /// Counts a symbolic link that is not followed.
    pub(crate) fn add_link(&mut self) {
        self.add_many(LINK.to_owned(), 1);
    }

    /// Counts an entry of a folder that is neither a file nor a folder, or a link to nothing.
    pub(crate) fn add_special(&mut self) {
        self.add_many("special".to_owned(), 1);
    }

    /// Adds the counts of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(ending, count)| self.add_many(ending.clone(), *count));
    }

    /// Returns the type that the file `name` is counted as.
    pub(crate) fn type_of(name: &str) -> String {
        ending(name)
    }

    /// Returns the counts by type.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.0
    }

    fn add_many(&mut self, ending: String, count: u64) {
        *self.0.entry(ending).or_default() += count;
    }

    /// Returns the number of files.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Formats as `2 .pdf, 1 .md`, with the most frequent types first.
impl fmt::Display for SkippedTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut types: Vec<_> = self.0.iter().collect();
        types.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let plural = |ending: &str, count: u64| if ending == LINK && count != 1 { "s" } else { "" };
        let types = types
            .into_iter()
            .map(|(ending, &count)| format!("{count} {}{}", printable(ending), plural(ending, count)));
        f.write_str(&listed(types))
    }
}

impl From<&BTreeMap<String, u64>> for SkippedTypes {
    fn from(counts: &BTreeMap<String, u64>) -> Self {
        Self(counts.clone())
    }
}

/// Returns the extension of a file name, such as `.txt.gz`, or a description of names without one.
fn ending(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or_default();
    if name.starts_with('.') {
        return "hidden".to_owned();
    }
    let (stem, compression) = Compression::of_name(name);
    match stem.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()) {
        Some(extension) => format!(".{extension}{}", compression.map_or("", Compression::extension)),
        None => "without an extension".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_counted_and_the_most_frequent_come_first() {
        let mut types = SkippedTypes::default();
        for name in ["a/b.md", "c.PDF", "d.pdf", "e.txt.gz", ".git/config", "a/.hidden", "Makefile"] {
            types.add(name);
        }
        assert_eq!(types.to_string(), "2 .pdf, 2 without an extension, 1 .md, 1 .txt.gz and 1 more");
        assert_eq!(types.count(), 7);
        let mut both = SkippedTypes::default();
        both.add("x.md");
        both.extend(&types);
        assert!(both.to_string().starts_with("2 .md, 2 .pdf"), "{both}");
    }
}
