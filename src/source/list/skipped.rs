//! Counts of skipped files by type, so that a message can name what a source contains instead.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::numbers::listed;
use crate::printable::printable;
use crate::schema::Kind;
use crate::source::io::compression::Compression;
use crate::source::items::text::kind::FileKind;

/// Advice for file types that `dsconvert images` does not read.
const ADVICE_FOR_IMAGES: &[(&[&str], &str)] = &[
    (&[".heic", ".heif"], "HEIC images cannot be decoded: convert them to JPEG or PNG first"),
    (&[".7z", ".rar"], "unpack archives first; zip and tar files are read as they are"),
    (
        &[".csv", ".tsv", ".jsonl", ".parquet"],
        "pass a table of image paths with `metadata`; text is converted by `dsconvert text`",
    ),
    (
        &[".parquet", ".arrow", ".feather", ".ipc"],
        "no column of these Parquet or Arrow files has images by declaration, structure, name or content: `image_fields NAME` \
         names one",
    ),
    (&[".txt", ".json"], "text is converted by `dsconvert text`"),
];

/// The counted type of links that are not followed.
const LINK: &str = "symbolic link";
/// Advice for links, whatever is converted.
const ADVICE_FOR_LINKS: &str = "symbolic links are followed only with `follow_symlinks`";

/// The files beside the Arrow files of `Dataset.save_to_disk`.
const FILES_BESIDE_ARROW: &str = ".json";

/// Advice for file types that `dsconvert text` does not read.
const ADVICE_FOR_TEXT: &[(&[&str], &str)] = &[
    (
        &[".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"],
        "images are converted by `dsconvert images`",
    ),
    (
        &[".7z", ".rar", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"],
        "unpack archives first; zip archives are read as they are",
    ),
    (&[".zip"], "archives inside archives are not read: unpack the outer one"),
    (&[".pdf", ".docx", ".epub"], "extract the text of documents into .txt or .jsonl files first"),
];

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

    /// Returns advice for these file types, if nothing else was found for a dataset of `kind`.
    pub(crate) fn advice(&self, kind: Kind) -> Option<String> {
        let table = match kind {
            Kind::Images => ADVICE_FOR_IMAGES,
            Kind::Text => ADVICE_FOR_TEXT,
        };
        let has = |ending: &str| self.0.contains_key(ending);
        let applies = |types: &[&str]| {
            types.iter().any(|&ending| has(ending) && !(ending == FILES_BESIDE_ARROW && has(".arrow")))
        };
        let mut advice: Vec<String> = table
            .iter()
            .filter(|(types, _)| applies(types))
            .map(|(_, advice)| (*advice).to_owned())
            .collect();
        if has(LINK) {
            advice.insert(0, ADVICE_FOR_LINKS.to_owned());
        }
        if kind == Kind::Text {
            match self.most_frequent(|stem| stem == ".json") {
                Some(ending) => advice.push(format!(
                    "JSON files are read only when a pattern or a path names them: 'DIR/**/*{ending}'"
                )),
                None if advice.is_empty() => advice.extend(self.plain_text()),
                None => {}
            }
        }
        (!advice.is_empty()).then(|| advice.join("; "))
    }

    /// Returns advice for source code, markup and other plain text with a different extension.
    fn plain_text(&self) -> Option<String> {
        // Files that are read without a pattern were skipped for another reason.
        let ending = self.most_frequent(|stem| FileKind::of_name(stem).is_none())?;
        let compression = Compression::of_name(ending).1.map_or("", Compression::extension);
        Some(format!(
            "files of other types are read only when a pattern names them: 'DIR/**/*{ending}' `input_format txt{compression}`"
        ))
    }

    /// Returns the most frequent extension of those that `has_stem` accepts without the extension of a compression format.
    /// An extension that a shell would not take literally does not count.
    fn most_frequent(&self, has_stem: impl Fn(&str) -> bool) -> Option<&str> {
        let is_plain = |ending: &str| {
            ending.starts_with('.')
                && ending.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
        };
        let endings = self.0.iter().filter(|(ending, _)| {
            is_plain(ending.as_str()) && has_stem(Compression::of_name(ending.as_str()).0)
        });
        endings.max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(ending, _)| ending.as_str())
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
    fn advice_covers_types_of_the_other_command_and_unsupported_types() {
        let advice = |kind, names: &[&str]| {
            let mut types = SkippedTypes::default();
            names.iter().for_each(|name| types.add(name));
            types.advice(kind).unwrap_or_default()
        };
        let images = advice(Kind::Images, &["a.7z", "b.HEIC"]);
        assert!(images.contains("HEIC") && images.contains("unpack"), "{images}");
        assert!(advice(Kind::Text, &["a.jpg", "b.md"]).contains("dsconvert images"));
        assert!(advice(Kind::Text, &["b.md"]).contains("`input_format txt`"));
        let text = advice(Kind::Text, &["b.md", "c.rs.zst", "d.rs.zst", "Makefile"]);
        assert!(text.ends_with("'DIR/**/*.rs.zst' `input_format txt.zst`"), "{text}");
        let json = advice(Kind::Text, &["b.md", "c.md", "d.json.gz"]);
        assert!(json.ends_with("names them: 'DIR/**/*.json.gz'"), "{json}");
        let arrow = advice(Kind::Images, &["dataset_info.json", "data.arrow"]);
        assert!(arrow.contains("image_fields NAME") && !arrow.contains("dsconvert text"), "{arrow}");
        assert!(advice(Kind::Images, &["a.json"]).contains("dsconvert text"));
        assert_eq!(advice(Kind::Text, &["x.a'b"]), "");
        assert_eq!(advice(Kind::Text, &["Makefile"]), "");
        assert_eq!(advice(Kind::Images, &[]), "");
        assert!(advice(Kind::Text, &["a.tar.gz", "b.md"]).starts_with("unpack archives first"));
        assert_eq!(advice(Kind::Text, &["a.jsonl", "b.TXT.gz", "c.parquet"]), "");
        let mut links = SkippedTypes::default();
        links.add_link();
        assert_eq!(links.to_string(), "1 symbolic link");
        links.add_link();
        links.add_special();
        links.add(".socket");
        assert_eq!(links.to_string(), "2 symbolic links, 1 hidden, 1 special");
        for kind in [Kind::Images, Kind::Text] {
            assert_eq!(links.advice(kind).unwrap(), ADVICE_FOR_LINKS);
        }
    }

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
