//! The committed description of a dataset: `manifest.json`.
//!
//! It is written last, and its presence is what makes a directory a dataset. The reader trusts only what it lists.
//! `docs/format-manifest.md` describes every field; `fixtures/golden/v1` pins its bytes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::index::{IndexFile, LengthSummary, check_split_name};
use crate::schema::{Kind, Schema};
use crate::storage::{Access, Blob, resolve, stat};

/// Name of the manifest in the output directory.
pub const MANIFEST_NAME: &str = "manifest.json";

/// Version of the manifest and of the files it lists. A reader refuses a larger one.
pub const MANIFEST_VERSION: u32 = 1;

/// Largest manifest that is read. Lists that grow with the dataset are in the shard table, not here.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// What a dataset is, and the files it consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] of the writer.
    pub manifest_version: u32,
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
        if manifest_version != MANIFEST_VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the manifest has version {manifest_version}, this build reads {MANIFEST_VERSION}"),
            )
            .help("install the dsconvert that wrote it, or a newer one"));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(broken)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The bytes of `manifest.json`.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::corrupt("the manifest cannot be written as JSON").caused_by(e))?;
        json.push(b'\n');
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
        let indexes = self
            .splits
            .values()
            .flat_map(|s| s.record_index.iter().chain(&s.length_index).chain([&s.length_histogram]));
        indexes
            .chain([&self.shard_table])
            .map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str()))
            .chain(self.files.iter().map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str())))
    }

    fn check(&self) -> Result<()> {
        self.schema.clone().checked()?;
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

/// Opens a file that the manifest lists, after checking its path and size.
pub fn open_listed(dir: &Path, path: &str, bytes: u64, access: Access) -> Result<Blob> {
    Blob::open(&resolve(dir, path)?, access, Some(bytes))
}
