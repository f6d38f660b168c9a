//! The plan: what a run reads, in which order, and with which options.
//!
//! It is kept as `.dsconvert/plan.jsonl` during the run: a line with the options and the version, then one line per
//! source file. Its hash ties unit results to it. Comparing it with a new plan line by line shows what has changed
//! since.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::manifest::{listing_digest, listing_line};
use crate::numbers::plural;
use crate::printable::printable;
use crate::source::list::file_list::FileList;
use crate::source::list::skipped::SkippedTypes;
use crate::source::list::source_file::SourceFile;
use crate::source::names::layout::SplitBy;
use crate::storage::{NewFile, hex};
use crate::transform::image::BucketCounts;
use crate::warning::Warning;
use crate::writer::layout::PLAN_NAME;

/// The sidecars of one extension, for summaries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SidecarSummary {
    /// Name of the field.
    pub field: String,
    /// The extension.
    pub extension: String,
    /// Number of images that have such a file.
    pub images: u64,
    /// Number of images that do not.
    pub missing: u64,
    /// Number of images whose file has no bytes.
    pub empty: u64,
    /// Number of files without an image, which are skipped.
    pub unpaired: u64,
    /// Origin of the first of these.
    pub example: Option<String>,
}

/// A dataset whose items are left out, as a plan shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExcludedSummary {
    /// Directory or URL.
    pub path: PathBuf,
    /// Number of its records.
    pub records: u64,
    /// Whether contents are compared rather than keys.
    pub by_content: bool,
}

/// Summary of a planned run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlanSummary {
    /// Name of the kind of dataset.
    pub kind: &'static str,
    /// Number of source files.
    pub files: u64,
    /// Number of items, if known without reading the files: one per file.
    pub items: Option<u64>,
    /// Bytes of the source files.
    pub bytes: u64,
    /// Files that are left out because of their name or type.
    pub skipped: SkippedTypes,
    /// Number of work units.
    pub units: u32,
    /// Names of the splits.
    pub splits: Vec<String>,
    /// What determines the split of a file; `None`: the hash of each key.
    pub split_by: Option<SplitBy>,
    /// Labels of the sources, if splits are drawn by the hashes of keys, which start with the labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hashed_labels: Vec<String>,
    /// Names of the folders that determine splits, sorted.
    pub split_folders: Vec<String>,
    /// Number of files in each split that are probably items or contain them, if files are assigned to splits as a whole.
    pub split_files: Option<Vec<u64>>,
    /// Names of the classes, if the records have labels.
    pub classes: Option<Vec<String>>,
    /// Why images have no labels, and how they get some. `None` if they have labels or boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_labels: Option<String>,
    /// Metadata files whose rows name the items.
    pub metadata: Vec<PathBuf>,
    /// Names of the fields from the sources, beyond those of every dataset.
    pub fields: Vec<String>,
    /// Files beside images that hold the values of fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sidecars: Vec<SidecarSummary>,
    /// Additional images of samples in tar files and of rows, each with its type.
    pub image_fields: Vec<String>,
    /// The member or column of the main image, if it is named.
    pub main_image: Option<String>,
    /// Columns of Parquet files with images that are left out.
    pub left_out: Vec<String>,
    /// The images of each bucket, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BucketCounts>,
    /// Whether duplicates are searched for and left out.
    pub dedup: bool,
    /// The datasets whose items are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ExcludedSummary>,
    /// Decisions of the plan that may not be intended.
    pub warnings: Vec<Warning>,
}

/// The contents of a plan: its header and its file listing.
pub(super) struct Plan<'a> {
    pub options: &'a Value,
    pub units: u32,
    pub files: &'a FileList,
}

/// The line of a source file in the plan.
#[derive(Serialize)]
struct PlanLine<'a> {
    origin: &'a str,
    bytes: u64,
    /// Nanoseconds, as text: they exceed the integer range of some JSON readers.
    #[serde(serialize_with = "as_text")]
    modified_ns: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
}

impl<'a> PlanLine<'a> {
    fn of(file: &'a SourceFile) -> Self {
        let SourceFile { origin, bytes, modified_ns, etag, .. } = file;
        Self { origin, bytes: *bytes, modified_ns: *modified_ns, etag: etag.as_deref() }
    }
}

fn as_text<S: Serializer>(number: &i128, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

impl Plan<'_> {
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let header = json!({
            "dsconvert": env!("CARGO_PKG_VERSION"),
            "options": self.options,
            "units": self.units,
        });
        let files = self.files.iter().map(|file| to_json(&PlanLine::of(&file)));
        std::iter::once(header.to_string()).chain(files)
    }

    /// Returns the identity of the plan.
    pub(super) fn id(&self) -> String {
        let mut hash = Sha256::new();
        for line in self.lines() {
            hash.update(line);
            hash.update(b"\n");
        }
        hex(&hash.finalize())
    }

    /// Returns the hash of the options, the content, and the names and sizes in the listing, but not its times.
    pub(super) fn fingerprint(&self, content: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(
            json!({ "dsconvert": env!("CARGO_PKG_VERSION"), "options": self.options, "content": content })
                .to_string(),
        );
        for file in self.files.iter() {
            hash.update(listing_line(&file.origin, file.bytes));
        }
        hex(&hash.finalize())
    }

    /// Returns the digest of the listing for the manifest: names and sizes in plan order, one JSON object per line.
    pub(super) fn listing(&self) -> String {
        listing_digest(self.files.iter().map(|file| listing_line(&file.origin, file.bytes)))
    }

    /// Writes the plan for the working directory, where it appears when the returned file is committed. Also returns
    /// the identity of the plan, which is the hash of that file.
    pub(super) fn write(&self, work: &Path) -> Result<(String, NewFile)> {
        let path = work.join(PLAN_NAME);
        let mut file = NewFile::create_shared(&path)?;
        for line in self.lines() {
            writeln!(file, "{line}").map_err(|e| Error::io("write", &path, e))?;
        }
        Ok((file.sha256()?, file))
    }

    /// Compares the plan with the one in the working directory; the error names the first difference. Without
    /// `resumes`, a plan exists there only if another run has started at the same time.
    pub(super) fn check_same(&self, work: &Path, resumes: bool) -> Result<()> {
        let path = work.join(PLAN_NAME);
        let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let mut old = BufReader::new(file).lines();
        for (i, new) in self.lines().enumerate() {
            let found = old.next().transpose().map_err(|e| Error::io("read", &path, e))?;
            if found.as_deref() != Some(&new) {
                let found = found.and_then(|line| serde_json::from_str(&line).ok());
                let new = serde_json::from_str(&new).unwrap_or_default();
                let what = match i {
                    0 => header_difference(found, &new),
                    _ => Some(self.file_difference(found, &new, old.by_ref())),
                };
                if let Some(what) = what {
                    return Err(refused(&what, resumes, if i == 0 { SAME_COMMAND } else { SAME_SOURCES }));
                }
            }
        }
        match old.next().transpose().map_err(|e| Error::io("read", &path, e))? {
            Some(line) => {
                let old: Value = serde_json::from_str(&line).unwrap_or_default();
                Err(refused(&format!("the source file {} is gone", name_of(&old)), resumes, SAME_SOURCES))
            }
            None => Ok(()),
        }
    }

    /// Describes how the file of this plan with the line `new` differs from the file at the same position of another
    /// plan, which has the line `old`, followed by the lines `later`.
    fn file_difference(
        &self,
        old: Option<Value>,
        new: &Value,
        later: impl Iterator<Item = std::io::Result<String>>,
    ) -> String {
        let is_new = |line: &str| {
            let line = serde_json::from_str::<Value>(line).unwrap_or_default();
            line["origin"] == new["origin"]
        };
        match old {
            Some(old) if old["origin"] == new["origin"] => {
                let name = name_of(new);
                match old["bytes"] == new["bytes"] {
                    true => format!("the source file {name} was written to since"),
                    false => {
                        let bytes = old["bytes"].as_u64().unwrap_or_default();
                        format!(
                            "the source file {name} had {} and has {} now",
                            plural(bytes, "byte"),
                            new["bytes"]
                        )
                    }
                }
            }
            Some(old) if self.files.iter().all(|file| old["origin"] != *file.origin) => {
                format!("the source file {} is gone", name_of(&old))
            }
            _ if later.map_while(|line| line.ok()).any(|line| is_new(&line)) => {
                format!("the source files are in another order, first at {}", name_of(new))
            }
            _ => format!("the source file {} is new", name_of(new)),
        }
    }
}

/// Serializes a line of strings and numbers, which cannot fail.
fn to_json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

/// Returns the name of the source file with the given line, for messages.
fn name_of(line: &Value) -> Cow<'_, str> {
    printable(line["origin"].as_str().unwrap_or_default())
}

/// Help for different options.
const SAME_COMMAND: &str = "repeat the command that was interrupted, or start again with `overwrite`";
/// Help for different source files.
const SAME_SOURCES: &str = "restore the sources with their modification times (cp -a, rsync -a), or start again with \
                            `overwrite`";

fn refused(what: &str, resumes: bool, help: &str) -> Error {
    match resumes {
        true => Error::usage(format!("cannot resume: {what}")).help(help),
        false => Error::usage(format!("another run has started to write here at the same time: {what}"))
            .help("choose another `out` for one of them"),
    }
}

/// Returns how the header lines differ; `None` if only the number of units does, because the file lines then name the
/// cause.
fn header_difference(old: Option<Value>, new: &Value) -> Option<String> {
    let Some(old) = old else { return Some("its plan cannot be read".to_owned()) };
    let version = "dsconvert";
    if old[version] != new[version] {
        return Some(format!(
            "the run was started by dsconvert {}, but this is dsconvert {}",
            old[version], new[version]
        ));
    }
    differing_option(&old["options"], &new["options"])
}

/// Members of the options that are not options themselves: their members are.
const GROUPS: [&str; 3] = ["image", "output", "tokenization"];

/// Describes the first option that differs. Of an option with members, only the first one that differs is shown.
pub(super) fn differing_option(old: &Value, new: &Value) -> Option<String> {
    difference(old, new, "")
}

fn difference(old: &Value, new: &Value, prefix: &str) -> Option<String> {
    let (old, new) = (old.as_object()?, new.as_object()?);
    let (key, old, new) = old
        .keys()
        .chain(new.keys())
        .map(|key| (key, old.get(key), new.get(key)))
        .find(|(_, old, new)| old != new)?;
    if let (Some(old), Some(new)) = (old, new)
        && old.is_object()
        && new.is_object()
    {
        let prefix = match GROUPS.contains(&key.as_str()) && prefix.is_empty() {
            true => String::new(),
            false => format!("{prefix}`{key}`: "),
        };
        return difference(old, new, &prefix);
    }
    let show = |v: Option<&Value>| v.map_or_else(|| "not given".to_owned(), Value::to_string);
    Some(format!("{prefix}`{key}` was {} and is now {}", show(old), show(new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(files: &[SourceFile]) -> FileList {
        files.iter().cloned().collect()
    }

    fn file(origin: &str, bytes: u64) -> SourceFile {
        SourceFile::for_test(origin, origin, bytes)
    }

    #[test]
    fn the_listing_digest_covers_one_line_per_file() {
        let files = [file("a \"b\".jpg", 1), file("c", 2)];
        let plan = Plan { options: &json!({}), units: 1, files: &list(&files) };
        let lines = "{\"origin\":\"a \\\"b\\\".jpg\",\"bytes\":1}\n{\"origin\":\"c\",\"bytes\":2}\n";
        assert_eq!(plan.listing(), format!("sha256:{}", hex(&Sha256::digest(lines))));
    }

    #[test]
    fn only_the_member_that_differs_is_named() {
        let old = json!({"seed": 0, "image": {"encode": "keep", "resize": "shorter:64"}});
        let changed = |new: Value| differing_option(&old, &new);
        assert_eq!(
            changed(json!({"seed": 0, "image": {"encode": "keep", "resize": "shorter:66"}})).unwrap(),
            "`resize` was \"shorter:64\" and is now \"shorter:66\""
        );
        assert_eq!(
            changed(json!({"seed": 0, "image": {"encode": "keep", "pad": 2, "resize": "shorter:64"}}))
                .unwrap(),
            "`pad` was not given and is now 2"
        );
        let gone = changed(json!({"seed": 0, "image": null})).unwrap();
        assert!(gone.starts_with("`image` was {") && gone.ends_with("} and is now null"), "{gone}");
        assert_eq!(changed(old.clone()), None);
        let table = |content: &str| json!({ "metadata": { "path_field": "p", "content": content } });
        let found = differing_option(&table("a"), &table("b")).unwrap();
        assert_eq!(found, "`metadata`: `content` was \"a\" and is now \"b\"");
    }

    #[test]
    fn two_processes_write_the_same_plan_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<SourceFile> = (0..9).map(|i| file(&i.to_string(), i)).collect();
        let plan = Plan { options: &json!({}), units: 1, files: &list(&files) };
        let (first, second) = (plan.write(dir.path()).unwrap().1, plan.write(dir.path()).unwrap().1);
        for file in [first, second] {
            assert_eq!(file.commit().unwrap().sha256, plan.id());
            plan.check_same(dir.path(), true).unwrap();
        }
    }

    #[test]
    fn a_changed_plan_is_refused_with_the_difference() {
        let dir = tempfile::tempdir().unwrap();
        let options = json!({"resize": "shorter:256", "seed": 0});
        let files = [file("a", 1), file("b", 2)];
        let plan = Plan { options: &options, units: 1, files: &list(&files) };
        let (id, written) = plan.write(dir.path()).unwrap();
        assert_eq!((&id, id.clone()), (&plan.id(), written.commit().unwrap().sha256));
        plan.check_same(dir.path(), true).unwrap();
        let message = |options: &Value, files: &[SourceFile]| {
            Plan { options, units: 1, files: &list(files) }
                .check_same(dir.path(), true)
                .unwrap_err()
                .to_string()
        };
        assert!(
            message(&json!({"resize": "none", "seed": 0}), &files)
                .contains("`resize` was \"shorter:256\" and is now \"none\"")
        );
        let other = Plan { options: &json!({}), ..plan }.check_same(dir.path(), false).unwrap_err();
        assert!(other.to_string().starts_with("another run has started to write here"), "{other}");
        assert!(
            message(&options, &[file("a", 1), file("b", 3)]).contains("file b had 2 bytes and has 3 now")
        );
        assert!(message(&options, &[file("a", 1)]).contains("file b is gone"));
        assert!(message(&options, &[file("a", 1), file("aa", 1), file("b", 2)]).contains("aa is new"));
    }
}
