//! Opens datasets and lists their splits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format;
use dsconvert_dataset::index::{Segment, ShardTable};
use dsconvert_dataset::manifest::{FileEntry, Manifest};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::storage::{Blob, Location};
use dsconvert_vision::Processor;
use serde::Deserialize;

use super::companions::{Joined, check_companion, joined_schema};
use super::dataset_state::{DatasetState, check_sha256};
use super::open_options::OpenOptions;
use super::split::{Split, SplitState};

impl OpenOptions {
    /// Opens the dataset in the directory `path`, or at a URL in object storage such as `s3://bucket/dataset`
    /// (with the feature `remote`).
    ///
    /// Reads the manifest and the shard table. Every other file is opened when it is first needed, and its size is
    /// checked then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when there is no dataset, [`ErrorKind::Unsupported`] when it has a newer version or needs a
    /// feature that this build lacks, [`ErrorKind::Usage`] when an option does not apply, [`ErrorKind::Corrupt`] when
    /// the manifest and the shard table are inconsistent. Also [`ErrorKind::Usage`] when a companion does not belong to the
    /// dataset, or has a field of a name that is taken.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Dataset> {
        let location = Location::new(path.as_ref(), &self.remote)?;
        let dir = location.path();
        let manifest = Manifest::read_at(&location)?;
        format::check_built(manifest.format).map_err(|e| e.at_path(dir))?;
        let file = &manifest.shard_table;
        let blob = location.read_again_if_damaged(&[(&file.path, &file.sha256)], || {
            let blob = location.open(&file.path, file.bytes, &file.sha256, self.access)?;
            // Read once, so that the bytes that are hashed are the bytes that are parsed.
            let blob = Blob::from_bytes(blob.path(), blob.read(0, blob.len())?);
            check_sha256(&blob, &file.sha256, |_| {})?;
            Ok(blob)
        })?;
        let shards = ShardTable::read(Segment { blob, records: file.records })?;
        check_shards(&manifest, &shards).map_err(|e| e.at_path(dir))?;
        let schema = Arc::new(manifest.schema.clone());
        // Those of the dataset, and of each companion.
        let options = self.clone().without_companions();
        let state = Arc::new(DatasetState { location, manifest, shards, schema, options });
        Dataset::of(state).with_companions(&self.companions)
    }
}

/// An opened, committed dataset. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Dataset {
    state: Arc<DatasetState>,
    splits: Vec<Arc<SplitState>>,
    /// Datasets whose fields are added to the records.
    companions: Vec<Self>,
    /// The fields of the dataset and of its companions.
    schema: Arc<Schema>,
}

impl Dataset {
    /// Opens the dataset in the directory `path` with the default [`OpenOptions`].
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    fn of(state: Arc<DatasetState>) -> Self {
        let names = state.manifest.splits.keys().cloned();
        let splits = names.map(|name| Arc::new(SplitState::new(Arc::clone(&state), name))).collect();
        let schema = Arc::clone(&state.schema);
        Self { state, splits, companions: Vec::new(), schema }
    }

    /// Opens the companions at `paths`, and adds their fields.
    fn with_companions(mut self, paths: &[PathBuf]) -> Result<Self> {
        for path in paths {
            let companion = self.state.options.open(path)?;
            check_companion(&self, &companion)?;
            self.companions.push(companion);
            // A companion may be made from the fields of those before it.
            self.schema = Arc::new(joined_schema(&self.state.schema, &self.companions)?);
        }
        Ok(self)
    }

    /// Returns the schema without the fields of companions.
    pub(super) fn stored_schema(&self) -> &Schema {
        &self.state.schema
    }

    /// Returns the datasets whose fields are added to the records ([`OpenOptions::add_companion`]).
    pub fn companions(&self) -> &[Self] {
        &self.companions
    }

    /// Returns the identifier of the records: the fingerprint in the manifest, and those of the companions.
    pub fn fingerprint(&self) -> String {
        let all = std::iter::once(self).chain(&self.companions);
        all.map(|dataset| dataset.manifest().fingerprint.as_str()).collect::<Vec<_>>().join("+")
    }

    /// Returns whether the dataset is in object storage, where reading may wait for minutes.
    pub fn is_remote(&self) -> bool {
        self.state.location.is_remote()
    }

    /// Returns the same dataset without checksum verification, for reading a few fields of many records.
    #[must_use]
    pub fn unverified(&self) -> Self {
        let options = self.state.options.clone().verify_checksums(false);
        Self {
            companions: self.companions.iter().map(Self::unverified).collect(),
            schema: Arc::clone(&self.schema),
            ..Self::of(Arc::new(DatasetState { options, ..DatasetState::clone(&self.state) }))
        }
    }

    /// Returns the directory or URL.
    pub fn path(&self) -> &Path {
        self.state.path()
    }

    /// Returns the location of the dataset's files.
    pub fn location(&self) -> &Location {
        &self.state.location
    }

    /// Opens a file that the manifest lists in addition to shards and indexes, such as `rejects.jsonl`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when it is missing, [`ErrorKind::Corrupt`] when its size differs from the manifest.
    pub fn open_file(&self, file: &FileEntry) -> Result<Blob> {
        self.state.open(&file.path, file.bytes, &file.sha256)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// Returns the schema of the records: kind, fields and class names, with the fields of companions.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the names of the classes in label order. Empty if there are no labels.
    pub fn class_names(&self) -> &[String] {
        &self.state.schema.class_names
    }

    /// Returns the processor with which the images of chats were counted, if records have such images.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the manifest describes it in a way that this build does not know.
    pub fn vision(&self) -> Result<Option<Processor>> {
        let Some(value) = self.manifest().vision() else { return Ok(None) };
        Processor::deserialize(value).map(Some).map_err(|e| {
            Error::new(
                ErrorKind::Unsupported,
                "the processor of images in the manifest is of an unknown kind",
            )
            .caused_by(e)
            .at_path(self.path())
            .help("install the dsconvert that wrote the dataset, or a newer one")
        })
    }

    /// Returns the table of all shards.
    pub fn shards(&self) -> &ShardTable {
        &self.state.shards
    }

    /// Returns the splits, sorted by name.
    pub fn splits(&self) -> impl ExactSizeIterator<Item = Split> {
        self.splits.iter().map(|split| {
            let split = Split::whole(Arc::clone(split));
            if self.companions.is_empty() {
                return split;
            }
            // Without records, a split need not be in a companion, and nothing is read.
            let of = |companion: &Self| companion.splits().find(|other| other.name() == split.name());
            let added =
                self.companions.iter().map(|companion| of(companion).unwrap_or_else(|| split.clone()));
            split.joined_with(Joined::new(split.clone(), added.collect(), Arc::clone(&self.schema)))
        })
    }

    /// Returns the split `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when there is no such split; the remedy lists the existing ones.
    pub fn split(&self, name: &str) -> Result<Split> {
        self.splits().find(|s| s.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.state.manifest.splits.keys().map(String::as_str).collect();
            let help = match names.as_slice() {
                [only] => format!(
                    "its only split is {only}; to hold out some records, convert with `split {only}=0.9,{name}=0.1`"
                ),
                _ => format!("its splits are {}", names.join(", ")),
            };
            Error::new(ErrorKind::Usage, format!("the dataset has no split {name:?}"))
                .at_path(self.path())
                .help(help)
        })
    }

    pub(super) fn state(&self) -> &DatasetState {
        &self.state
    }
}

/// Checks that the shard table matches the manifest.
fn check_shards(manifest: &Manifest, shards: &ShardTable) -> Result<()> {
    let unit = manifest.schema.length_unit();
    for (name, split) in &manifest.splits {
        let listed = shards.split(name);
        let records = listed.map_or(0, |s| s.records);
        let entries = listed.map_or(&[][..], |s| &s.shards);
        let bytes = entries.iter().try_fold(0u64, |sum, e| sum.checked_add(e.bytes));
        if (records, entries.len() as u64, bytes) != (split.records, split.shards, Some(split.bytes)) {
            return Err(Error::corrupt(format!("manifest and shard table disagree about split {name:?}")));
        }
        if split.length.unit != unit {
            let (found, kind) = (split.length.unit.name(), manifest.kind().name());
            return Err(Error::corrupt(format!(
                "the lengths of split {name:?} are in {found}, which is not the unit of {kind}"
            )));
        }
    }
    if let Some(plan) = &manifest.plan
        && let Some(shard) = shards.shards().find(|shard| shard.unit().is_none_or(|unit| unit >= plan.units))
    {
        return Err(Error::corrupt(format!(
            "{} belongs to none of the {} work units in the manifest",
            shard.path(),
            plan.units
        )));
    }
    match shards.splits.iter().find(|s| !manifest.splits.contains_key(&s.name)) {
        Some(split) => Err(Error::corrupt(format!(
            "split {:?} is in the shard table, but not in the manifest",
            split.name
        ))),
        None => Ok(()),
    }
}
