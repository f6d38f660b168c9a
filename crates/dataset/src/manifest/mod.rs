//! The committed manifest of a dataset: `manifest.json`.
//!
//! It is written last, and its presence makes a directory a dataset. Readers trust only the files it lists, and ignore
//! members that they do not know: a later version may add some. `docs/reference/format-manifest.md` describes every
//! member; `fixtures/golden` pins the bytes of each version.

mod binding;
mod digest;
mod raw_folder;
mod unique;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::{Foreign, hub_remedy};
use crate::format::Format;
use crate::index::{IndexFile, LengthSummary, Segment, ShardTable, check_split_name};
use crate::schema::{Kind, Schema};
use crate::storage::{Access, Blob, Location, hex, resolve, stat};
pub use binding::{Alignment, Binding, BoundField, BoundSplit, ContentDigest};
use unique::check_unique_names;

/// File name of the manifest in the output directory.
pub const MANIFEST_NAME: &str = "manifest.json";

/// File name of the dataset card in the directory of a dataset, as the Hugging Face Hub requires. Not part of the dataset.
pub const CARD_NAME: &str = "README.md";

/// File name of the tokenizer in a text dataset.
pub const TOKENIZER_NAME: &str = "tokenizer.json";

/// Latest version of manifests. Readers reject higher versions.
pub const MANIFEST_VERSION: u32 = 4;

/// First version whose schema may name columns of the record index, or have records that are neither images nor token ids.
const RECORDS_VERSION: u32 = 4;

/// Oldest version that this build reads. Version 1 has no digest, no listing digest and no unit sizes.
const OLDEST_VERSION: u32 = 1;

/// First version with the number of records of each class.
const CLASS_COUNTS_VERSION: u32 = 3;

/// Maximum size of a manifest in bytes. Lists that grow with the dataset are stored in the shard table instead.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// Description of a dataset and of its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`Manifest::version`] of the schema.
    pub manifest_version: u32,
    /// `sha256:` followed by the SHA-256 of the file with the digits of this member replaced by zeros. Set by
    /// [`Manifest::seal`]; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Version of the dsconvert that wrote the manifest.
    pub dsconvert: String,
    /// SHA-256 over the semantic options, the source listing and the content that was read.
    pub fingerprint: String,
    /// Format of the shards.
    pub format: Format,
    /// Kind, fields and class names.
    pub schema: Schema,
    /// Semantic options of the run, keyed by flag name.
    pub options: serde_json::Value,
    /// Tokenizer that produced the ids (text).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<serde_json::Value>,
    /// Sources of the records.
    pub sources: Sources,
    /// The dataset whose records the fields of this one belong to, if it is a companion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Plan of the run; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanInfo>,
    /// Outcomes of all items in the dataset.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Counts of notable events, for example images kept unchanged or special tokens seen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, u64>,
    /// Splits by name.
    pub splits: BTreeMap<String, Split>,
    /// Shard table of all splits.
    pub shard_table: IndexFile,
    /// Other files: `rejects.jsonl`, `tokenizer.json`.
    pub files: Vec<FileEntry>,
}

/// Sources of the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Labels of the sources in the given order.
    pub labels: Vec<String>,
    /// Number of files in the plan.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Number of files that the command does not read.
    pub skipped: u64,
    /// XXH3-128 over the content that was read, in plan order: `xxh3-128:` followed by 32 hexadecimal digits.
    pub content: String,
}

/// Listing of the sources and its division into work units. With the same sources and options, the plan can be
/// recreated and any unit converted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInfo {
    /// SHA-256 of the listing, that is the names and sizes of the files in plan order: `sha256:` followed by 64
    /// hexadecimal digits.
    pub listing: String,
    /// Number of work units. Shard names contain their unit: `train-000042-00.parquet` belongs to unit 42.
    pub units: u32,
    /// Source bytes at which a unit is full.
    pub unit_bytes: u64,
    /// Source files, or pieces of split files, at which a unit is full.
    pub unit_pieces: u64,
}

/// Returns the line of a source file in the listing of a plan, without its end.
pub fn listing_line(origin: &str, bytes: u64) -> String {
    format!("{{\"origin\":{},\"bytes\":{bytes}}}", serde_json::Value::from(origin))
}

/// Returns the digest of a listing ([`PlanInfo::listing`]) with these lines.
pub fn listing_digest(lines: impl IntoIterator<Item = String>) -> String {
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line);
        hash.update(b"\n");
    }
    format!("sha256:{}", hex(&hash.finalize()))
}

/// Outcomes of items: `found = converted + filtered + duplicates + rejected`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Items found in the sources.
    pub found: u64,
    /// Items converted to records.
    pub converted: u64,
    /// Items excluded by the user's criteria.
    pub filtered: u64,
    /// Items equal to an earlier one.
    pub duplicates: u64,
    /// Items whose bytes cannot become a record.
    pub rejected: u64,
}

impl Counts {
    /// Adds `other` to `self`. Saturates, because the numbers may come from an altered manifest.
    pub fn add(&mut self, other: &Counts) {
        self.found = self.found.saturating_add(other.found);
        self.converted = self.converted.saturating_add(other.converted);
        self.filtered = self.filtered.saturating_add(other.filtered);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.rejected = self.rejected.saturating_add(other.rejected);
    }

    /// Returns whether every found item has exactly one outcome.
    pub fn is_balanced(&self) -> bool {
        [self.converted, self.filtered, self.duplicates, self.rejected]
            .iter()
            .try_fold(0u64, |sum, &n| sum.checked_add(n))
            == Some(self.found)
    }
}

/// One split of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Outcomes of the items in this split.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of records.
    pub records: u64,
    /// Number of shards.
    pub shards: u64,
    /// Total size of all shards in bytes.
    pub bytes: u64,
    /// Summary of the lengths.
    pub length: LengthSummary,
    /// Number of records by label, if the records have labels. The others have none. Absent before version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_counts: Option<Vec<u64>>,
    /// Number of tokens to train on, if the records mark them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_tokens: Option<u64>,
    /// Files of the record index.
    pub record_index: Vec<IndexFile>,
    /// Files of the length index.
    pub length_index: Vec<IndexFile>,
    /// Run-length histogram of the lengths.
    pub length_histogram: IndexFile,
}

impl Split {
    /// Iterates over all index files.
    pub fn files(&self) -> impl Iterator<Item = &IndexFile> {
        self.record_index.iter().chain(&self.length_index).chain([&self.length_histogram])
    }
}

/// A file other than shards and indexes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path relative to the output directory, with `/` as separator.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads and checks the manifest of the dataset at `dir`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if there is no manifest, [`ErrorKind::Unsupported`] if its version is newer,
    /// [`ErrorKind::Corrupt`] if it contradicts itself.
    pub fn read(dir: &Path) -> Result<Self> {
        Self::read_at(&Location::local(dir))
    }

    /// Reads and checks the manifest of the dataset at `location`.
    ///
    /// # Errors
    ///
    /// Same as [`Self::read`].
    pub fn read_at(location: &Location) -> Result<Self> {
        let dir = location.path();
        if let Some(json) =
            location.small_object(MANIFEST_NAME, MAX_MANIFEST_BYTES).map_err(|e| no_manifest(e, dir))?
        {
            return Self::parse(&json).map_err(|e| e.at_path(dir.join(MANIFEST_NAME)));
        }
        let path = dir.join(MANIFEST_NAME);
        if stat(dir)?.is_some_and(|meta| !meta.is_dir()) {
            if let Some(foreign) = Foreign::of(dir) {
                return Err(Error::new(ErrorKind::Io, foreign.what())
                    .at_path(dir)
                    .help(foreign.format.remedy));
            }
            return Err(Error::new(ErrorKind::Io, "this is a file, not the directory of a dataset")
                .at_path(dir)
                .help("name the directory that has manifest.json; `dsconvert inspect` also shows a single shard"));
        }
        if stat(&path)?.is_none() && stat(dir)?.is_some() {
            let help = if stat(&dir.join(".dsconvert"))?.is_some() {
                "a conversion into this directory has not finished: run the conversion again with `resume`"
                    .to_owned()
            } else {
                raw_folder::how_to_convert(dir)
                    .unwrap_or_else(|| "name a directory that dsconvert has written".to_owned())
            };
            let what = "there is no manifest.json, so this is not a dataset";
            return Err(match Foreign::within(dir) {
                Some(foreign) => {
                    Error::new(ErrorKind::Io, format!("{what} of dsconvert: {}", foreign.what()))
                        .at_path(foreign.path)
                        .help(foreign.format.remedy)
                }
                None => Error::new(ErrorKind::Io, what).at_path(dir).help(help),
            });
        }
        if stat(dir)?.is_none() {
            let missing = std::io::Error::from(rustix::io::Errno::NOENT);
            let help = "name a directory that dsconvert has written";
            let hub = hub_remedy(dir).map_or_else(String::new, |remedy| format!("; {remedy}"));
            return Err(Error::io("find the dataset", dir, missing).help(format!("{help}{hub}")));
        }
        let blob = Blob::open(&resolve(dir, MANIFEST_NAME)?, Access::Read, None)?;
        if blob.len() > MAX_MANIFEST_BYTES {
            let what =
                format!("the manifest has {} bytes, but the limit is {MAX_MANIFEST_BYTES}", blob.len());
            return Err(Error::corrupt(what).at_path(path));
        }
        Self::parse(&blob.read(0, blob.len())?).map_err(|e| e.at_path(path))
    }

    /// Returns the version to write for a dataset of `schema`: the oldest one that can express it, so that older builds read
    /// every dataset that they understand.
    pub fn version(schema: &Schema) -> u32 {
        let payload = schema.layout().payload;
        let is_old = [Kind::Images, Kind::Text].iter().any(|kind| kind.layout().payload == payload);
        if is_old && schema.indexed.is_empty() { CLASS_COUNTS_VERSION } else { RECORDS_VERSION }
    }

    /// Parses and checks the bytes of a manifest.
    pub fn parse(json: &[u8]) -> Result<Self> {
        /// Parsed first, because a newer manifest may have a different structure.
        #[derive(Deserialize)]
        struct Version {
            manifest_version: u32,
        }
        let broken = |e: serde_json::Error| digest::altered("the manifest cannot be parsed").caused_by(e);
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
        let mut manifest: Self = serde_json::from_slice(json).map_err(broken)?;
        if manifest_version < CLASS_COUNTS_VERSION {
            manifest.splits.values_mut().for_each(|split| split.class_counts = None);
            manifest.check_known(&serde_json::from_slice(json).map_err(broken)?)?;
        }
        manifest.check().map_err(|e| match e.kind() {
            // Invalid input in a file that was read is damage, not misuse.
            ErrorKind::Usage => Error::corrupt(format!("the manifest contradicts itself: {e}")),
            _ => e,
        })?;
        Ok(manifest)
    }

    /// Sets [`Manifest::digest`] and returns the bytes of `manifest.json`.
    ///
    /// # Errors
    ///
    /// Fails if no build writes a manifest of this version.
    pub fn seal(&mut self) -> Result<Vec<u8>> {
        self.digest = Some(digest::placeholder());
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|e| Error::not_serialized("the manifest", e))?;
        json.push(b'\n');
        self.digest = Some(digest::seal(&mut json)?);
        Ok(json)
    }

    /// Checks that the schema, the length summaries and the listed indexes in `json`, from which this manifest was read,
    /// have no unknown members. Only versions before 3 are that strict.
    fn check_known(&self, json: &serde_json::Value) -> Result<()> {
        let known = serde_json::to_value(self).map_err(|e| Error::not_serialized("the manifest", e))?;
        let mut places = vec!["/schema".to_owned(), "/shard_table".to_owned()];
        for split in self.splits.keys() {
            let members = ["length", "record_index", "length_index", "length_histogram"];
            places.extend(members.map(|member| format!("/splits/{split}/{member}")));
        }
        let unknown = |place: &String| unknown_member(json.pointer(place)?, known.pointer(place)?);
        match places.iter().find_map(unknown) {
            Some(name) => Err(digest::altered(&format!("the manifest has an unknown member {name:?}"))),
            None => Ok(()),
        }
    }

    /// Returns the samples per pixel if images are stored as raw samples (`--encode raw`), or `None` if they are image
    /// files.
    pub fn raw_channels(&self) -> Option<u64> {
        let image = self.options.get("image")?;
        (image.get("encode")?.as_str()? == "raw").then(|| match image.get("color").and_then(|c| c.as_str()) {
            Some("gray") => 1,
            Some("rgba") => 4,
            _ => 3,
        })
    }

    /// Returns the resolved processor of the images of chats, as `dsconvert-vision` writes it.
    pub fn vision(&self) -> Option<&serde_json::Value> {
        self.options.pointer("/multimodal/vision")
    }

    /// Returns the kind of the dataset.
    pub fn kind(&self) -> Kind {
        self.schema.kind
    }

    /// Returns the SHA-256 of the `tokenizer.json` that made the token ids; `None` if the ids are bytes, or there are none.
    pub fn tokenizer_sha256(&self) -> Option<&str> {
        self.tokenizer.as_ref()?["sha256"].as_str()
    }

    /// Iterates over all files listed by name as (path, bytes, SHA-256). Shards are listed in the shard table instead.
    pub fn listed_files(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let indexes = self.splits.values().flat_map(Split::files);
        indexes
            .chain([&self.shard_table])
            .map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str()))
            .chain(self.files.iter().map(|f| (f.path.as_str(), f.bytes, f.sha256.as_str())))
    }

    /// Reads the shard table of a local dataset in the directory `dir`, after checking its path and size.
    pub fn read_shards(&self, dir: &Path) -> Result<ShardTable> {
        let IndexFile { path, records, bytes, .. } = &self.shard_table;
        let blob = Blob::open(&resolve(dir, path)?, Access::Read, Some(*bytes))?;
        ShardTable::read(Segment { blob, records: *records })
    }

    fn check(&self) -> Result<()> {
        self.schema.clone().checked_as_read()?;
        if self.manifest_version < RECORDS_VERSION && Self::version(&self.schema) == RECORDS_VERSION {
            return Err(Error::corrupt(format!(
                "a manifest of version {} cannot describe such records",
                self.manifest_version
            )));
        }
        if self.manifest_version > OLDEST_VERSION && self.plan.is_none() {
            return Err(Error::corrupt("the manifest lacks the member `plan`"));
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
            let labeled = split.class_counts.iter().flatten().try_fold(0u64, |sum, &n| sum.checked_add(n));
            let classes = split.class_counts.as_ref().map(Vec::len);
            let has_counts =
                self.manifest_version >= CLASS_COUNTS_VERSION && self.schema.label_field().is_some();
            if labeled.is_none_or(|labeled| labeled > split.records)
                || classes != has_counts.then_some(self.schema.class_names.len())
            {
                return Err(Error::corrupt(format!(
                    "the numbers of records per class of split {name:?} contradict its records"
                )));
            }
            if split.trained_tokens.is_some() != self.schema.masks_field().is_some()
                || split.trained_tokens.is_some_and(|trained| trained > split.length.total)
            {
                return Err(Error::corrupt(format!(
                    "the number of tokens to train on of split {name:?} contradicts its records"
                )));
            }
            sum.add(&split.counts);
        }
        if sum != self.counts || !sum.is_balanced() {
            return Err(Error::corrupt("the outcomes of the splits do not add up to those of the dataset"));
        }
        Ok(())
    }
}

/// Returns the name of a member of `json`, or of a value in it, that `known` lacks.
fn unknown_member<'a>(json: &'a serde_json::Value, known: &serde_json::Value) -> Option<&'a str> {
    use serde_json::Value::{Array, Object};
    match (json, known) {
        (Object(members), Object(known)) => members.iter().find_map(|(name, value)| match known.get(name) {
            Some(known) => unknown_member(value, known),
            None => Some(name.as_str()),
        }),
        (Array(values), Array(known)) => {
            values.iter().zip(known).find_map(|(value, known)| unknown_member(value, known))
        }
        _ => None,
    }
}

/// Returns the bytes of a deliberately edited manifest with the digest of its new content.
///
/// # Errors
///
/// Fails if the manifest does not start with its version and digest.
pub fn resealed(manifest: &serde_json::Value) -> Result<Vec<u8>> {
    let mut manifest = manifest.clone();
    manifest["digest"] = digest::placeholder().into();
    let mut json = serde_json::to_string_pretty(&manifest).unwrap_or_default().into_bytes();
    json.push(b'\n');
    digest::seal(&mut json)?;
    Ok(json)
}

/// Explains the error for a missing manifest object; returns other errors unchanged.
fn no_manifest(error: Error, address: &Path) -> Error {
    match error.to_string().contains("no such object") {
        true => Error::new(ErrorKind::Io, "there is no manifest.json, so this is not a dataset")
            .at_path(address)
            .help("check the URL; a conversion that has not finished has no manifest yet"),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::LengthUnit;

    /// Returns a manifest without splits.
    fn manifest() -> Manifest {
        Manifest {
            manifest_version: CLASS_COUNTS_VERSION,
            digest: None,
            dsconvert: "0.0.0".to_owned(),
            fingerprint: String::new(),
            format: Format::Arrow,
            schema: Schema::images(Some(vec!["cat".to_owned()]), Vec::new()).unwrap(),
            options: serde_json::json!({"seed": 0}),
            tokenizer: None,
            sources: Sources::default(),
            binding: None,
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
    fn the_processor_of_images_is_an_option_of_chats() {
        let mut manifest = manifest();
        assert_eq!(manifest.vision(), None);
        manifest.options = serde_json::json!({"multimodal": {"vision": {"patch_size": 14}}});
        assert_eq!(manifest.vision(), Some(&serde_json::json!({"patch_size": 14})));
    }

    #[test]
    fn an_edited_class_name_option_or_layout_is_rejected() {
        let json = String::from_utf8(manifest().seal().unwrap()).unwrap();
        for (old, new) in [("\"cat\"", "\"dog\""), ("\"seed\": 0", "\"seed\": 1"), ("\n", " ")] {
            let edited = json.replacen(old, new, 1);
            assert_ne!(edited, json);
            let error = Manifest::parse(edited.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{old}: {error}");
        }
    }

    #[test]
    fn members_of_later_additions_are_ignored() {
        let mut manifest = manifest();
        let mut value: serde_json::Value = serde_json::from_slice(&manifest.seal().unwrap()).unwrap();
        value["later"] = serde_json::json!({"a": [1]});
        for place in ["/schema", "/schema/fields/0", "/sources", "/plan", "/shard_table"] {
            value.pointer_mut(place).unwrap()["later"] = true.into();
        }
        let mut read = Manifest::parse(&resealed(&value).unwrap()).unwrap();
        read.digest = manifest.digest.clone();
        assert_eq!(read, manifest);
    }

    #[test]
    fn versions_from_2_on_require_a_plan() {
        let json = manifest().seal().unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        Manifest::parse(&resealed(&value).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("plan");
        assert!(Manifest::parse(&resealed(&value).unwrap()).is_err());
    }

    /// Returns a manifest with a split of three records, as JSON.
    fn with_split() -> serde_json::Value {
        let file = IndexFile { path: "index/x".to_owned(), records: 3, bytes: 0, sha256: String::new() };
        let counts = Counts { found: 3, converted: 3, ..Counts::default() };
        let split = Split {
            counts,
            records: 3,
            shards: 1,
            bytes: 9,
            length: LengthSummary::from_runs(LengthUnit::Pixels, 0, []).unwrap(),
            class_counts: Some(vec![2]),
            trained_tokens: None,
            record_index: vec![file.clone()],
            length_index: vec![file.clone()],
            length_histogram: file,
        };
        let splits = BTreeMap::from([("train".to_owned(), split)]);
        let json = Manifest { counts, splits, ..manifest() }.seal().unwrap();
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn class_counts_fit_the_classes_and_records_since_version_3() {
        let parse = |value: &serde_json::Value| Manifest::parse(&resealed(value).unwrap());
        let right = with_split();
        assert_eq!(parse(&right).unwrap().splits["train"].class_counts, Some(vec![2]));
        for wrong in [
            serde_json::json!([4]),
            serde_json::json!([2, 0]),
            serde_json::json!([]),
            serde_json::Value::Null,
        ] {
            let mut value = right.clone();
            value["splits"]["train"]["class_counts"] = wrong;
            assert_eq!(parse(&value).unwrap_err().kind(), ErrorKind::Corrupt, "{value}");
            // Older versions have no such member.
            value["manifest_version"] = 2.into();
            assert_eq!(parse(&value).unwrap().splits["train"].class_counts, None);
        }
        let mut value = right;
        value["schema"]["fields"].as_array_mut().unwrap().retain(|field| field["name"] != "label");
        assert!(parse(&value).is_err());
        value["splits"]["train"].as_object_mut().unwrap().remove("class_counts");
        parse(&value).unwrap();
    }

    #[test]
    fn trained_tokens_fit_the_masks_and_the_length() {
        let parse = |value: &serde_json::Value| Manifest::parse(&resealed(value).unwrap());
        let mut value = with_split();
        assert!(!value.to_string().contains("trained_tokens"));
        let schema = Schema::text(crate::schema::IdWidth::U16, vec![]).unwrap();
        let split = &mut value["splits"]["train"];
        split["trained_tokens"] = 7.into();
        split["length"]["total"] = 7.into();
        split.as_object_mut().unwrap().remove("class_counts");
        value["schema"] = serde_json::to_value(&schema).unwrap();
        assert_eq!(parse(&value).unwrap_err().kind(), ErrorKind::Corrupt, "there are no masks");
        value["schema"] = serde_json::to_value(schema.with_assistant_masks().unwrap()).unwrap();
        assert_eq!(parse(&value).unwrap().splits["train"].trained_tokens, Some(7));
        value["splits"]["train"]["trained_tokens"] = 8.into();
        assert_eq!(parse(&value).unwrap_err().kind(), ErrorKind::Corrupt);
        value["splits"]["train"].as_object_mut().unwrap().remove("trained_tokens");
        assert_eq!(parse(&value).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_version_is_the_oldest_that_can_express_the_schema() {
        let mut manifest = manifest();
        assert_eq!(Manifest::version(&manifest.schema), 3);
        let counts = vec![crate::schema::Field::required("patches", crate::schema::FieldType::UInt32)];
        let schema = Schema::images(Some(vec!["cat".to_owned()]), counts).unwrap();
        manifest.schema = schema.with_indexed(&["patches"]).unwrap();
        assert_eq!(Manifest::version(&manifest.schema), 4);
        let old = manifest.seal().unwrap();
        assert_eq!(Manifest::parse(&old).unwrap_err().kind(), ErrorKind::Corrupt);
        manifest.manifest_version = 4;
        let json = manifest.seal().unwrap();
        assert_eq!(Manifest::parse(&json).unwrap(), manifest);
        manifest.schema = Schema::records(vec![]).unwrap();
        assert_eq!(Manifest::version(&manifest.schema), 4);
        let json = manifest.seal().unwrap();
        assert_eq!(Manifest::parse(&json).unwrap(), manifest);
        manifest.manifest_version = 3;
        let old = manifest.seal().unwrap();
        assert_eq!(Manifest::parse(&old).unwrap_err().kind(), ErrorKind::Corrupt);
        manifest.manifest_version = MANIFEST_VERSION + 1;
        let newer = serde_json::to_vec(&manifest).unwrap();
        assert_eq!(Manifest::parse(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn unknown_members_are_ignored_since_version_3() {
        let places =
            ["", "/schema", "/schema/fields/0", "/shard_table", "/sources", "/plan", "/splits/train"];
        let inner = ["length", "record_index/0", "length_index/0", "length_histogram"];
        let inner = inner.map(|member| format!("/splits/train/{member}"));
        for place in places.into_iter().chain(inner.iter().map(String::as_str)) {
            let mut value = with_split();
            value.pointer_mut(place).unwrap()["later"] = serde_json::json!({"a": [1]});
            Manifest::parse(&resealed(&value).unwrap()).unwrap();
            value["manifest_version"] = 2.into();
            let strict = ["schema", "shard_table", "length", "index", "histogram"];
            let is_strict = strict.iter().any(|name| place.contains(name));
            assert_eq!(Manifest::parse(&resealed(&value).unwrap()).is_err(), is_strict, "{place}");
        }
    }
}
