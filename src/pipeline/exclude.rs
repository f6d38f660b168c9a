//! Items that other datasets have already, which are left out (`--exclude`).
//!
//! Before the first unit, the keys of all records of these datasets are hashed or, with `--dedup`, their contents. The
//! sorted hashes are stored in the working directory, where every unit looks up its items. The file is mapped, so it
//! takes page cache rather than memory.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dsconvert_writer::SORT_BYTES;
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::dedup::{is_stored, store};
use super::plan::differing_option;
use super::plan_summary::ExcludedSummary;
use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::manifest::Manifest;
use crate::printable::printable_path;
use crate::reader::{Dataset, Record, Split};
use crate::recipe::EXCLUDE;
use crate::sample::{self, Ids};
use crate::schema::multimodal::IMAGES;
use crate::schema::{HEIGHT, IMAGE, INPUT_IDS, KEY, Kind, ORIGIN, WIDTH};
use crate::storage::{Access, Blob, NewFile, ObjectUrl};

/// Name of the file with the sorted hashes, in the working directory.
pub(super) const EXCLUDED_NAME: &str = "excluded";
/// Name of the file with its SHA-256. It is written after the hashes, which are not used without it.
pub(super) const EXCLUDED_HASH_NAME: &str = "excluded.sha256";
/// Reason of the items that are left out, and the name of their count among the notes.
pub(super) const EXCLUDED: &str = "excluded";

/// Size of a hash: the first bytes of a SHA-256, for which no collision is known, accidental or crafted.
const HASH_BYTES: usize = 16;
/// Records whose keys are read at once.
const KEYS_AT_ONCE: u64 = 4096;
/// Bytes of records whose contents are read at once, unless one record has more.
const CONTENT_AT_ONCE: u64 = 4 << 20;

/// Hash of a key or of a content.
type ItemHash = [u8; HASH_BYTES];

/// What is compared with the records of the excluded datasets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Compared {
    /// The key.
    #[default]
    Keys,
    /// The content that is stored: token ids, or the image and its size.
    Content,
}

/// The excluded datasets of a plan.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Exclusion {
    datasets: Vec<ExcludedDataset>,
    compared: Compared,
}

/// A dataset whose items are left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ExcludedDataset {
    path: PathBuf,
    fingerprint: String,
}

/// The opened datasets of `--exclude`, sorted by fingerprint.
pub(super) struct OpenedExclusion {
    datasets: Vec<(PathBuf, Dataset)>,
    compared: Compared,
}

impl OpenedExclusion {
    /// Opens the datasets at `paths`, which must be of the given `kind`. With `by_content`, contents are compared.
    pub(super) fn open(paths: &[PathBuf], kind: Kind, by_content: bool) -> Result<Self> {
        let mut datasets: Vec<(PathBuf, Dataset)> = Vec::new();
        for path in paths {
            let dataset = Dataset::open(path).map_err(|e| e.of_option(EXCLUDE))?;
            let manifest = dataset.manifest();
            if manifest.kind() != kind {
                let (found, wanted) = (manifest.kind().name(), kind.name());
                return Err(refused(path, format!("the dataset holds {found}, not {wanted}"))
                    .help("only a dataset of the same kind can have the same items"));
            }
            datasets.push((path.clone(), dataset));
        }
        let fingerprint = |(_, dataset): &(PathBuf, Dataset)| dataset.manifest().fingerprint.clone();
        datasets.sort_by_key(fingerprint);
        datasets.dedup_by_key(|dataset| fingerprint(dataset));
        Ok(Self { datasets, compared: if by_content { Compared::Content } else { Compared::Keys } })
    }

    /// Returns the fact for the options in a manifest, if datasets are excluded.
    pub(super) fn fact(&self) -> Option<(&'static str, Value)> {
        let fingerprints: Vec<_> = self.datasets.iter().map(|(_, d)| &d.manifest().fingerprint).collect();
        (!fingerprints.is_empty()).then(|| (EXCLUDE, json!(fingerprints)))
    }

    /// Refuses datasets that do not store what is compared with a conversion that has these `options`.
    pub(super) fn check(&self, options: &Value) -> Result<()> {
        self.datasets
            .iter()
            .try_for_each(|(path, dataset)| check(path, dataset.manifest(), self.compared, options))
    }

    /// Returns what a plan stores.
    pub(super) fn stored(&self) -> Exclusion {
        let stored = |(path, dataset): &(PathBuf, Dataset)| ExcludedDataset {
            path: path.clone(),
            fingerprint: dataset.manifest().fingerprint.clone(),
        };
        Exclusion { datasets: self.datasets.iter().map(stored).collect(), compared: self.compared }
    }

    /// Returns what a plan shows.
    pub(super) fn summary(&self) -> Vec<ExcludedSummary> {
        let shown = |(path, dataset): &(PathBuf, Dataset)| ExcludedSummary {
            path: path.clone(),
            records: dataset.manifest().splits.values().map(|split| split.records).sum(),
            by_content: self.compared == Compared::Content,
        };
        self.datasets.iter().map(shown).collect()
    }
}

fn refused(path: &Path, why: impl Into<String>) -> Error {
    Error::usage(why).of_option(EXCLUDE).at_path(path)
}

/// Refuses the dataset at `path` if it does not store what is compared.
fn check(path: &Path, manifest: &Manifest, compared: Compared, options: &Value) -> Result<()> {
    let old = &manifest.options;
    if old.get("pack").is_some_and(|pack| !pack.is_null()) {
        return Err(refused(
            path,
            "the rows of a packed dataset (`pack`) hold several documents, and store the key of only the first",
        )
        .help(
            "name only the new files, for example with `files_from`; or keep datasets unpacked, and let the loader pack",
        ));
    }
    let by_keys = "leave out `dedup`, so that keys are compared";
    match compared {
        Compared::Keys => match (old.get("key_field"), options.get("key_field")) {
            (Some(old), Some(new)) if old != new => {
                let source = |field: &Value| match field.as_str() {
                    Some(name) => format!("the field {name:?}"),
                    None => "file names and positions".to_owned(),
                };
                let (old, new) = (source(old), source(new));
                Err(refused(
                    path,
                    format!("its keys are from {old}, but those of this conversion from {new}"),
                )
                .help(format!("convert with `like {}`", printable_path(path))))
            }
            _ => Ok(()),
        },
        Compared::Content => {
            if splits_documents(old) {
                return Err(
                    refused(path, "long documents are stored in pieces (`overflow split`)").help(by_keys)
                );
            }
            if let Some(differs) = differing_option(&content_options(old), &content_options(options)) {
                let what =
                    format!("its contents cannot be compared with those of this conversion: {differs}");
                return Err(refused(path, what)
                    .help(format!("convert with `like {}`, or {by_keys}", printable_path(path))));
            }
            let version = env!("CARGO_PKG_VERSION");
            let has_images = manifest.kind() == Kind::Images || manifest.vision().is_some();
            if has_images && manifest.dsconvert != version {
                let what = format!(
                    "it was written by dsconvert {}, whose encoders may differ from those of {version}, so stored images \
                     cannot be compared",
                    manifest.dsconvert
                );
                return Err(refused(path, what).help(by_keys));
            }
            Ok(())
        }
    }
}

/// Returns whether a dataset with these options may store a document in several records.
fn splits_documents(options: &Value) -> bool {
    options["overflow"].as_str().is_some_and(|overflow| overflow.starts_with("split"))
}

/// Returns the options that determine the stored content of an item.
fn content_options(options: &Value) -> Value {
    let names =
        ["tokenizer", "tokenization", "normalize", "chat", "max_length", "overflow", "image", "multimodal"];
    let mut found = Map::new();
    for name in names {
        let Some(value) = options.get(name) else { continue };
        let mut value = value.clone();
        if let Value::Object(members) = &mut value {
            // All engines produce the same ids.
            for same in ["engine", "verify", "max_reference_bytes"] {
                members.remove(same);
            }
        }
        found.insert(name.to_owned(), value);
    }
    Value::Object(found)
}

impl Exclusion {
    /// Resolves local paths: parts may run in another current directory.
    pub(super) fn make_absolute(&mut self) -> Result<()> {
        for ExcludedDataset { path, .. } in &mut self.datasets {
            if !ObjectUrl::is_url(path) {
                *path = std::path::absolute(&*path).map_err(|e| Error::io("resolve the path", &*path, e))?;
            }
        }
        Ok(())
    }

    /// Returns the hashes of the items to leave out; `None` if there are no excluded datasets. They are stored in the
    /// folder `work`, and those that an earlier attempt at the same plan has stored are reused.
    ///
    /// # Errors
    ///
    /// Fails if a dataset cannot be read or is not the one that was planned, or if the run is stopped.
    pub(super) fn items(&self, work: &Path, workers: &Workers, stop: &Stop) -> Result<Option<ExcludedItems>> {
        if self.datasets.is_empty() {
            return Ok(None);
        }
        let path = work.join(EXCLUDED_NAME);
        if !is_stored(&path)? {
            self.write(&path, work, workers, stop)?;
        }
        Ok(Some(ExcludedItems { hashes: SortedHashes::open(&path)?, compared: self.compared }))
    }

    /// Writes the hashes to `path`.
    fn write(&self, path: &Path, work: &Path, workers: &Workers, stop: &Stop) -> Result<()> {
        let mut ranges = Vec::new();
        for ExcludedDataset { path, fingerprint } in &self.datasets {
            let dataset = Dataset::open(path).map_err(|e| e.of_option(EXCLUDE))?;
            if dataset.manifest().fingerprint != *fingerprint {
                return Err(refused(path, "the dataset has been replaced since the conversion was planned")
                    .help("plan again with `overwrite`"));
            }
            let is_split = splits_documents(&dataset.manifest().options);
            let fields: &[&str] = match (self.compared, dataset.manifest().kind()) {
                (Compared::Keys, _) if is_split => &[KEY, ORIGIN],
                (Compared::Keys, _) => &[KEY],
                (Compared::Content, Kind::Text) if dataset.schema().holds_multimodal() => {
                    &[INPUT_IDS, IMAGES]
                }
                (Compared::Content, Kind::Text) => &[INPUT_IDS],
                (Compared::Content, Kind::Images) => &[IMAGE, WIDTH, HEIGHT],
                (Compared::Content, Kind::Records) => &[], // refused: no conversion of sources makes them
            };
            // A checksum covers a whole record, so those of contents are verified. Keys are read alone, which is the reason to
            // compare them: checking them would read all images or ids.
            let dataset = match self.compared {
                Compared::Content => dataset,
                Compared::Keys => dataset.unverified(),
            };
            for split in dataset.splits() {
                let split = split.select(fields)?;
                for start in (0..split.len()).step_by(KEYS_AT_ONCE as usize) {
                    ranges.push((split.clone(), start..split.len().min(start + KEYS_AT_ONCE)));
                }
            }
        }
        let sort = Mutex::new(ExternalSort::<HASH_BYTES>::new(work, SORT_BYTES));
        workers.for_all(&ranges, "reading the excluded datasets", stop, |(split, range)| {
            let mut rest = range.clone();
            while !rest.is_empty() {
                stop.check()?;
                let records = self.read(split, &mut rest)?;
                let mut sort = sort.lock().unwrap_or_else(PoisonError::into_inner);
                records.iter().try_for_each(|record| sort.push(self.hash(record)?))?;
            }
            Ok(())
        })?;
        let mut file = NewFile::create_shared(path)?;
        let mut last = None;
        for hash in sort.into_inner().unwrap_or_else(PoisonError::into_inner).finish()? {
            let hash = hash?;
            if last.replace(hash) != Some(hash) {
                file.write_all(&hash).map_err(|e| Error::io("write", path, e))?;
            }
        }
        store(file)
    }

    /// Reads the next records of `range`, and removes them from it.
    fn read(&self, split: &Split, range: &mut Range<u64>) -> Result<Vec<Record>> {
        let mut end = range.end;
        if self.compared == Compared::Content {
            let mut bytes = 0;
            end = range.start;
            while end < range.end && (bytes < CONTENT_AT_ONCE) {
                bytes += split.entry(end)?.bytes;
                end += 1;
            }
        }
        let records = split.get_many(&(range.start..end).collect::<Vec<_>>())?;
        range.start = end;
        Ok(records)
    }

    /// Returns the hash of what is compared.
    fn hash(&self, record: &Record) -> Result<ItemHash> {
        let missing = || Error::corrupt("a record of an excluded dataset lacks a field that all have");
        Ok(match self.compared {
            Compared::Keys => {
                let key = record.key().ok_or_else(missing)?;
                hash_of(&[document_of(key, record.origin()).as_bytes()])
            }
            Compared::Content => match record.input_ids() {
                Some(ids) => match record.get(IMAGES) {
                    Some(sample::Value::Files(images)) => hash_of_ids(ids, images),
                    _ => hash_of_ids(ids, &[]),
                },
                None => match (record.image(), record.width(), record.height()) {
                    (Some(image), Some(width), Some(height)) => hash_of_image(image, width, height),
                    _ => return Err(missing()),
                },
            },
        })
    }
}

/// Returns the key of the document that a record is a piece of. The key and the origin of a piece end with the same `@`
/// and token number. `origin` is given only if there may be pieces.
fn document_of<'a>(key: &'a str, origin: Option<&str>) -> &'a str {
    match (key.rsplit_once('@'), origin.and_then(|origin| origin.rsplit_once('@'))) {
        (Some((document, start)), Some((_, same)))
            if start == same && !start.is_empty() && start.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            document
        }
        _ => key,
    }
}

fn hash_of(parts: &[&[u8]]) -> ItemHash {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let hash = hash.finalize();
    std::array::from_fn(|i| hash[i])
}

fn hash_of_ids(ids: &Ids, images: &[Bytes]) -> ItemHash {
    let lengths: Vec<[u8; 8]> = images.iter().map(|image| (image.len() as u64).to_le_bytes()).collect();
    let images = lengths.iter().zip(images).flat_map(|(length, image)| [&length[..], image]);
    hash_of(&std::iter::once(&ids.as_bytes()[..]).chain(images).collect::<Vec<&[u8]>>())
}

fn hash_of_image(image: &[u8], width: u32, height: u32) -> ItemHash {
    hash_of(&[&width.to_le_bytes(), &height.to_le_bytes(), image])
}

/// The items to leave out.
pub(super) struct ExcludedItems {
    hashes: SortedHashes,
    compared: Compared,
}

impl ExcludedItems {
    /// Returns whether the item with this key is left out because of its key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.compared == Compared::Keys && self.hashes.contains(&hash_of(&[key.as_bytes()]))
    }

    /// Returns whether the document with these ids and images is left out because of its content.
    pub(super) fn has_ids(&self, ids: &Ids, images: &[Bytes]) -> bool {
        self.compared == Compared::Content && self.hashes.contains(&hash_of_ids(ids, images))
    }

    /// Returns whether an image is left out because of its content.
    pub(super) fn has_image(&self, image: &[u8], width: u32, height: u32) -> bool {
        self.compared == Compared::Content && self.hashes.contains(&hash_of_image(image, width, height))
    }
}

/// A mapped file of sorted hashes.
struct SortedHashes(Blob);

impl SortedHashes {
    fn open(path: &Path) -> Result<Self> {
        let blob = Blob::open(path, Access::Map, None)?;
        match blob.as_slice() {
            Some(_) => Ok(Self(blob)),
            None => Err(Error::internal("the hashes of the excluded items are not mapped")),
        }
    }

    fn contains(&self, wanted: &ItemHash) -> bool {
        let hashes = self.0.as_slice().unwrap_or_default().as_chunks::<HASH_BYTES>().0;
        hashes.binary_search(wanted).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_piece_is_that_of_its_document() {
        for (key, origin, document) in [
            ("a@0", Some("t.jsonl#5@0"), "a"),
            ("a@12", Some("a@12"), "a"),
            // Whole documents.
            ("a@0", Some("t.jsonl#5"), "a@0"),
            ("a@3", Some("t@0"), "a@3"),
            ("a@", Some("t@"), "a@"),
            ("a@x", Some("t@x"), "a@x"),
            ("a", Some("t"), "a"),
            // No pieces.
            ("a@0", None, "a@0"),
        ] {
            assert_eq!(document_of(key, origin), document, "{key} {origin:?}");
        }
    }

    #[test]
    fn engines_do_not_change_the_content_but_tokens_do() {
        let options = |engine: &str, add_eos: bool| json!({ "tokenizer": "bytes", "seed": 1, "tokenization": { "engine": engine, "add_eos": add_eos } });
        let differs = |a: &Value, b: &Value| differing_option(&content_options(a), &content_options(b));
        assert_eq!(differs(&options("fast", true), &options("auto", true)), None);
        assert!(differs(&options("fast", true), &options("fast", false)).unwrap().contains("`add_eos`"));
    }
}
