//! The committed description of a dataset: `manifest.json`.
//!
//! It is written last, and its presence is what makes a directory a dataset. The reader trusts only what it lists.
//! `docs/reference/format-manifest.md` describes every field; `fixtures/golden/v1` and `fixtures/golden/v2` pin its bytes.

mod digest;
mod unique;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::index::{IndexFile, LengthSummary, check_split_name};
use crate::schema::{Kind, Schema};
use crate::storage::{Access, Blob, Location, resolve, stat};
use unique::check_unique_names;

/// Name of the manifest in the output directory.
pub const MANIFEST_NAME: &str = "manifest.json";

/// Name of the tokenizer in a dataset of token ids.
pub const TOKENIZER_NAME: &str = "tokenizer.json";

/// Version of the manifests that are written. A reader refuses a larger one.
pub const MANIFEST_VERSION: u32 = 2;

/// The oldest version that is read. Version 1 has no digest, no listing digest and no unit sizes.
const OLDEST_VERSION: u32 = 1;

/// Largest manifest that is read. Lists that grow with the dataset are in the shard table, not here.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// What a dataset is, and the files it consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] of the writer.
    pub manifest_version: u32,
    /// `sha256:` and the SHA-256 of the file with the digits of this member replaced by zeros. Set by
    /// [`Manifest::seal`]; version 1 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Version of the dsconvert that wrote it.
    pub dsconvert: String,
    /// SHA-256 over the semantic options, the listing of the sources and the content that was read.
    pub fingerprint: String,
    /// How shards are encoded.
    pub format: Format,
    /// Kind, fields and class names.
    pub schema: Schema,
    /// The semantic options of the run, by the names of their flags.
    pub options: serde_json::Value,
    /// The tokenizer that made the ids (text).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<serde_json::Value>,
    /// What the records were made from.
    pub sources: Sources,
    /// The plan that the records were made by; version 1 does not describe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanInfo>,
    /// Outcomes of all items.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// What became of the content in ways worth knowing: images kept as they were, special tokens seen, ….
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, u64>,
    /// The splits by name.
    pub splits: BTreeMap<String, Split>,
    /// The shard table of all splits.
    pub shard_table: IndexFile,
    /// Other files: `rejects.jsonl`, `tokenizer.json`.
    pub files: Vec<FileEntry>,
}

/// What the records were made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Labels of the sources, in the order given.
    pub labels: Vec<String>,
    /// Files of the plan.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are not what the command reads.
    pub skipped: u64,
    /// XXH3-128 over the content that was read, in plan order, as `xxh3-128:` and 32 hexadecimal digits.
    pub content: String,
}

/// The listing of the sources and its division into work units. With the sources and the options at hand, the same plan
/// can be made again, and any unit converted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInfo {
    /// SHA-256 of the listing: names and sizes of the files in plan order, as `sha256:` and 64 hexadecimal digits.
    pub listing: String,
    /// Number of work units. Shards are named after theirs: `train-000042-00.parquet` is of unit 42.
    pub units: u32,
    /// Source bytes at which a unit is full.
    pub unit_bytes: u64,
    /// Source files, or pieces of divided files, at which a unit is full.
    pub unit_pieces: u64,
}

/// Outcomes of items: `found = converted + filtered + duplicates + rejected`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Items that were found.
    pub found: u64,
    /// Items that became records.
    pub converted: u64,
    /// Items that the user's criteria left out.
    pub filtered: u64,
    /// Items equal to an earlier one.
    pub duplicates: u64,
    /// Items whose bytes cannot become a record.
    pub rejected: u64,
}

impl Counts {
    /// Adds `other` to this. Saturates, since the numbers may come from an altered manifest.
    pub fn add(&mut self, other: &Counts) {
        self.found = self.found.saturating_add(other.found);
        self.converted = self.converted.saturating_add(other.converted);
        self.filtered = self.filtered.saturating_add(other.filtered);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.rejected = self.rejected.saturating_add(other.rejected);
    }

    /// Whether every found item has exactly one outcome.
    pub fn is_balanced(&self) -> bool {
        [self.converted, self.filtered, self.duplicates, self.rejected]
            .iter()
            .try_fold(0u64, |sum, &n| sum.checked_add(n))
            == Some(self.found)
    }
}

/// One named part of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Outcomes of the items that belong here.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of records.
    pub records: u64,
    /// Number of shards.
    pub shards: u64,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Distribution of the lengths.
    pub length: LengthSummary,
    /// Segments of the record index.
    pub record_index: Vec<IndexFile>,
    /// Segments of the length index.
    pub length_index: Vec<IndexFile>,
    /// Run-length histogram of the lengths.
    pub length_histogram: IndexFile,
}

impl Split {
    /// All index files.
    pub fn files(&self) -> impl Iterator<Item = &IndexFile> {
        self.record_index.iter().chain(&self.length_index).chain([&self.length_histogram])
    }
}

/// A file that is neither shard nor index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path under the output directory, with `/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads and checks the manifest of the dataset at `dir`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when there is none, [`ErrorKind::Unsupported`] when it is of a newer version,
    /// [`ErrorKind::Corrupt`] when it contradicts itself.
    pub fn read(dir: &Path) -> Result<Self> {
        Self::read_at(&Location::local(dir))
    }

    /// Reads and checks the manifest of the dataset at `location`.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_at(location: &Location) -> Result<Self> {
        let dir = location.path();
        if let Some(json) =
            location.small_object(MANIFEST_NAME, MAX_MANIFEST_BYTES).map_err(|e| no_manifest(e, dir))?
        {
            return Self::parse(&json).map_err(|e| e.at_path(dir.join(MANIFEST_NAME)));
        }
        let path = dir.join(MANIFEST_NAME);
        if stat(&path)?.is_none() && stat(dir)?.is_some_and(|meta| meta.is_dir()) {
            let help = if stat(&dir.join(".dsconvert"))?.is_some() {
                "a conversion into this directory has not finished; run the same command with --resume"
            } else {
                "name a directory that dsconvert has written"
            };
            return Err(Error::new(ErrorKind::Io, "there is no manifest.json, so this is not a dataset")
                .at_path(dir)
                .help(help));
        }
        if stat(dir)?.is_none() {
            let missing = std::io::Error::from(rustix::io::Errno::NOENT);
            return Err(Error::io("find the dataset", dir, missing)
                .help("name a directory that dsconvert has written"));
        }
        let blob = Blob::open(&path, Access::Read, None)?;
        if blob.len() > MAX_MANIFEST_BYTES {
            return Err(Error::corrupt("the manifest is too large to be one").at_path(path));
        }
        Self::parse(&blob.read(0, blob.len())?).map_err(|e| e.at_path(path))
    }

    /// Parses and checks the bytes of a manifest.
    pub fn parse(json: &[u8]) -> Result<Self> {
        /// The version is looked at first: a newer manifest may have another shape.
        #[derive(Deserialize)]
        struct Version {
            manifest_version: u32,
        }
        let broken =
            |e: serde_json::Error| Error::corrupt("the manifest is not what dsconvert writes").caused_by(e);
        let Version { manifest_version } = serde_json::from_slice(json).map_err(broken)?;
        if !(OLDEST_VERSION..=MANIFEST_VERSION).contains(&manifest_version) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the manifest has version {manifest_version}; this build reads versions {OLDEST_VERSION} to \
                     {MANIFEST_VERSION}"
                ),
            )
            .help("install the dsconvert that wrote it, or a newer one"));
        }
        if manifest_version > OLDEST_VERSION {
            digest::check(json)?;
        }
        check_unique_names(json).map_err(broken)?;
        let manifest: Self = serde_json::from_slice(json).map_err(broken)?;
        manifest.check().map_err(|e| match e.kind() {
            // What nobody may ask for is damage where it was read.
            ErrorKind::Usage => Error::corrupt(format!("the manifest contradicts itself: {e}")),
            _ => e,
        })?;
        Ok(manifest)
    }

    /// Computes [`Manifest::digest`] and returns the bytes of `manifest.json`.
    ///
    /// # Errors
    ///
    /// A manifest of another version than [`MANIFEST_VERSION`] is not written.
    pub fn seal(&mut self) -> Result<Vec<u8>> {
        self.digest = Some(digest::placeholder());
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::corrupt("the manifest cannot be written as JSON").caused_by(e))?;
        json.push(b'\n');
        self.digest = Some(digest::seal(&mut json)?);
        Ok(json)
    }

    /// Samples of a pixel where images are stored as bare samples (`--encode raw`); `None` where they are files.
    pub fn raw_channels(&self) -> Option<u64> {
        let image = self.options.get("image")?;
        (image.get("encode")?.as_str()? == "raw").then(|| match image.get("color").and_then(|c| c.as_str()) {
            Some("gray") => 1,
            Some("rgba") => 4,
            _ => 3,
        })
    }

    /// What the dataset is made of.
    pub fn kind(&self) -> Kind {
        self.schema.kind
    }

    /// Every file listed by name, apart from shards (which are in the shard table): path, bytes, SHA-256.
    pub fn listed_files(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let indexes = self.splits.values().flat_map(Split::files);
        indexes
            .chain([&self.shard_table])
            .map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str()))
            .chain(self.files.iter().map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str())))
    }

    fn check(&self) -> Result<()> {
        self.schema.clone().checked_as_read()?;
        if self.manifest_version > OLDEST_VERSION && self.plan.is_none() {
            return Err(Error::corrupt("the manifest does not describe its plan"));
        }
        let mut sum = Counts::default();
        for (name, split) in &self.splits {
            check_split_name(name)?;
            if !split.counts.is_balanced() {
                return Err(Error::corrupt(format!("the outcomes of split {name:?} do not add up")));
            }
            for segments in [&split.record_index, &split.length_index] {
                let rows = segments.iter().try_fold(0u64, |sum, f| sum.checked_add(f.records));
                if rows != Some(split.records) {
                    return Err(Error::corrupt(format!(
                        "the counts of split {name:?} contradict each other"
                    )));
                }
            }
            sum.add(&split.counts);
        }
        if sum != self.counts || !sum.is_balanced() {
            return Err(Error::corrupt("the outcomes of the splits do not add up to those of the dataset"));
        }
        Ok(())
    }
}

/// The bytes of a manifest that was edited on purpose, with the digest of the new content.
///
/// # Errors
///
/// The manifest is too large to be sealed.
pub fn resealed(manifest: &serde_json::Value) -> Result<Vec<u8>> {
    let mut manifest = manifest.clone();
    manifest["digest"] = digest::placeholder().into();
    let mut json = serde_json::to_string_pretty(&manifest).unwrap_or_default().into_bytes();
    json.push(b'\n');
    digest::seal(&mut json)?;
    Ok(json)
}

/// What to do when a prefix has no manifest.
fn no_manifest(error: Error, address: &Path) -> Error {
    match error.to_string().contains("no such object") {
        true => Error::new(ErrorKind::Io, "there is no manifest.json, so this is not a dataset")
            .at_path(address)
            .help("check the address; a conversion that has not finished has no manifest yet"),
        false => error,
    }
}

/// Opens a file that the manifest of a local dataset lists, after checking its path and size.
pub fn open_listed(dir: &Path, path: &str, bytes: u64, access: Access) -> Result<Blob> {
    Blob::open(&resolve(dir, path)?, access, Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest of version 2 without splits.
    fn manifest() -> Manifest {
        Manifest {
            manifest_version: MANIFEST_VERSION,
            digest: None,
            dsconvert: "0.0.0".to_owned(),
            fingerprint: String::new(),
            format: Format::Arrow,
            schema: Schema::images(Some(vec!["cat".to_owned()]), Vec::new()).unwrap(),
            options: serde_json::json!({"seed": 0}),
            tokenizer: None,
            sources: Sources::default(),
            plan: Some(PlanInfo { units: 1, ..PlanInfo::default() }),
            counts: Counts::default(),
            reject_codes: BTreeMap::new(),
            notes: BTreeMap::new(),
            splits: BTreeMap::new(),
            shard_table: IndexFile {
                path: "index/shards.arrow".to_owned(),
                bytes: 0,
                sha256: String::new(),
                records: 0,
            },
            files: Vec::new(),
        }
    }

    #[test]
    fn a_sealed_manifest_is_read_back() {
        let mut manifest = manifest();
        let json = manifest.seal().unwrap();
        assert_eq!(Manifest::parse(&json).unwrap(), manifest);
        assert!(manifest.digest.is_some_and(|digest| digest.len() == "sha256:".len() + 64));
    }

    #[test]
    fn an_edited_class_name_option_or_layout_is_refused() {
        let json = String::from_utf8(manifest().seal().unwrap()).unwrap();
        for (old, new) in [("\"cat\"", "\"dog\""), ("\"seed\": 0", "\"seed\": 1"), ("\n", " ")] {
            let edited = json.replacen(old, new, 1);
            assert_ne!(edited, json);
            let error = Manifest::parse(edited.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{old}: {error}");
        }
    }

    #[test]
    fn version_2_must_describe_its_plan() {
        let json = manifest().seal().unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        Manifest::parse(&resealed(&value).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("plan");
        assert!(Manifest::parse(&resealed(&value).unwrap()).is_err());
    }
}
