//! A dataset that is being written: its units, their records, and the commit.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::json;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::commit::{Commit, CommitFailure, ManifestParts};
use super::layout::{Existing, PLAN_NAME, ResumeCheck};
use super::outcome::{ConvertedRecord, ItemOutcome, Outcomes};
use super::output::{CHOOSE_OR_REPLACE, OutputDir, OutputState, adapt_help, check, combine_errors};
use super::remote_units::PlanId;
use super::stage::Stages;
use super::stop::Stop;
use super::unit::{ClosedShard, UnitContext, UnitSink};
use super::units::{CheckLevel, PlannedUnits, UnitDirs, UnitResult, UnitShard, UnitState, shard_path};
use super::workers::Workers;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, check_record, check_schema};
use crate::index::check_split_name;
use crate::manifest::{Binding, Manifest, PlanInfo, Sources, listing_digest, listing_line};
use crate::numbers::plural;
use crate::sample::{Record, Reject, index_values, length_of};
use crate::schema::Schema;
use crate::size::MaxRejects;
use crate::storage::{Writeback, hex, write_shared_file};

/// Options of a [`DatasetWriter`].
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Number of units. A unit becomes final as a whole, and any process can write it.
    pub units: u32,
    /// Identity of what the records are made from, and how. Finished units are used again only with an equal one.
    pub fingerprint: String,
    /// Names of the splits.
    pub splits: Vec<String>,
    /// Format of the shards.
    pub format: Format,
    /// A shard is closed before the canonical size of its records exceeds this many bytes.
    pub shard_bytes: u64,
    /// A shard is closed when it holds this many records.
    pub shard_records: Option<u64>,
    /// How to treat existing content of the output.
    pub existing: Existing,
    /// Directory for files waiting to be uploaded to object storage; `None`: the system's temporary directory.
    pub scratch: Option<PathBuf>,
    /// Limit on rejects; [`DatasetWriter::commit`] refuses more.
    pub max_rejects: MaxRejects,
    /// Whether another call can continue after a commit that failed. Otherwise, it removes the units.
    pub is_resumable: bool,
}

impl WriterOptions {
    /// Creates the options for a dataset of `units` units with one split, `train`, and for an output that is empty.
    pub fn new(units: u32, fingerprint: impl Into<String>) -> Self {
        Self {
            units,
            fingerprint: fingerprint.into(),
            splits: vec!["train".to_owned()],
            format: Format::default(),
            shard_bytes: 256 << 20,
            shard_records: None,
            existing: Existing::default(),
            scratch: None,
            max_rejects: MaxRejects::default(),
            is_resumable: true,
        }
    }

    /// Returns what the units have in common.
    fn units_of(&self, schema: &Schema) -> Result<PlannedUnits> {
        let repeats = |at: usize| self.splits[..at].contains(&self.splits[at]);
        if self.units == 0 {
            return Err(Error::usage("a dataset has at least one unit").of_option("units"));
        }
        self.splits.iter().try_for_each(|split| check_split_name(split))?;
        if self.splits.is_empty() || (0..self.splits.len()).any(repeats) {
            return Err(
                Error::usage("a dataset has at least one split, and their names differ").of_option("splits")
            );
        }
        let schema = Arc::new(schema.clone().checked()?);
        check_schema(self.format, &schema)?;
        Ok(PlannedUnits {
            plan: hex(&Sha256::digest(self.plan(&schema))),
            count: self.units,
            schema,
            format: self.format,
            splits: self.splits.clone(),
            shard_bytes: self.shard_bytes,
            shard_records: self.shard_records,
        })
    }

    /// Returns the content of the plan: what the bytes of the units depend on, in one line.
    fn plan(&self, schema: &Schema) -> String {
        let Self { units, fingerprint, splits, format, shard_bytes, shard_records, .. } = self;
        let plan = json!({
            "dsconvert": env!("CARGO_PKG_VERSION"),
            "fingerprint": fingerprint,
            "units": units,
            "splits": splits,
            "format": format,
            "shard_bytes": shard_bytes,
            "shard_records": shard_records,
            "schema": schema,
        });
        format!("{plan}\n")
    }

    /// Stores the plan in `dir`.
    fn store_plan(&self, schema: &Schema, dir: &OutputDir) -> Result<()> {
        let stored = write_shared_file(&dir.work().join(PLAN_NAME), self.plan(schema).as_bytes())?;
        let Some(remote) = dir.remote() else { return Ok(()) };
        let id = PlanId { plan: stored.sha256, build: env!("CARGO_PKG_VERSION").to_owned() };
        remote.store_plan(&dir.work(), &id, &[PLAN_NAME], &Stop::default())
    }
}

/// What the manifest says about the origin of the records.
#[derive(Debug, Clone, Default)]
pub struct Provenance {
    /// Options that determine the records: a JSON object.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Description of the tokenizer and bytes of its `tokenizer.json`.
    pub tokenizer: Option<(serde_json::Value, Vec<u8>)>,
    /// Labels of the sources, if there are any.
    pub sources: Vec<String>,
    /// Names and sizes in bytes of the source files, if there are any.
    pub files: Vec<(String, u64)>,
    /// The dataset whose records the fields belong to, if this is a companion.
    pub binding: Option<Binding>,
}

/// The place of a record in the dataset. Created from the name of a split.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// Name of the split.
    pub split: &'a str,
    /// Whether this is a further record of the item of the previous one, which is already counted.
    pub continues: bool,
}

impl<'a> From<&'a str> for Placement<'a> {
    fn from(split: &'a str) -> Self {
        Self { split, continues: false }
    }
}

/// A dataset that is being written.
///
/// Units are written in any order, by any number of threads and processes. Each is complete or absent, whatever happens
/// to the process that writes it. [`Self::commit`] makes a dataset of them.
pub struct DatasetWriter {
    dir: OutputDir,
    dirs: UnitDirs,
    units: Arc<PlannedUnits>,
    /// What the units share that this process writes one by one.
    context: OnceLock<Arc<UnitContext>>,
    max_rejects: MaxRejects,
    is_resumable: bool,
    /// The manifest, if the same dataset was already committed.
    committed: Option<Box<Manifest>>,
}

impl DatasetWriter {
    /// Opens the output `out`, a directory or the URL of a prefix in object storage, for this process alone. Stores in it
    /// what the units have in common, unless an earlier process did.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the output is in use, or if it holds something that `existing` does not permit or that was
    /// written with other options. Nothing was written then.
    pub fn open(out: impl AsRef<Path>, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        let out = out.as_ref();
        Self::open_or_refuse(out, schema, options).map_err(|error| adapt_help(error, out))
    }

    fn open_or_refuse(out: &Path, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        let units = options.units_of(schema)?;
        check(out, options.scratch.as_deref(), options.existing, &[])?;
        if options.existing == Existing::Resume(ResumeCheck::Repair) {
            return Err(Error::usage("only a conversion can be repaired").of_option("resume"));
        }
        let (dir, state) = OutputDir::open(out, options.scratch.as_deref(), options.existing)?;
        let mut writer = Self::new(dir, units);
        writer.max_rejects = options.max_rejects;
        writer.is_resumable = options.is_resumable;
        match state {
            OutputState::Empty => options.store_plan(schema, &writer.dir)?,
            OutputState::Planned => writer.check_plan()?,
            OutputState::Committed(manifest) => {
                writer.dir.remove_work()?;
                if manifest.fingerprint != fingerprint(&writer.units.plan, &manifest.sources.content) {
                    let what = "a committed dataset already exists, but it was written with other options";
                    return Err(Error::usage(what).at_path(writer.dir.shown()).help(CHOOSE_OR_REPLACE));
                }
                writer.committed = Some(manifest);
                return Ok(writer);
            }
        }
        writer.dir.remove_leftovers()?;
        Ok(writer)
    }

    /// Opens an output that another process has [opened](Self::open) with the same schema and options, to write units of
    /// it. Any number of processes may do so at the same time, but not while one has it open for itself alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if no process has opened the output, one has it open, or it was opened with other options.
    pub fn join(out: impl AsRef<Path>, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        let out = out.as_ref();
        Self::join_or_refuse(out, schema, options).map_err(|error| adapt_help(error, out))
    }

    fn join_or_refuse(out: &Path, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        let units = options.units_of(schema)?;
        let resume = Existing::Resume(ResumeCheck::Sizes);
        let mut writer = Self::new(OutputDir::join(out, options.scratch.as_deref(), resume)?, units);
        writer.check_plan()?;
        writer.dir.share_lock()?;
        // Again: before the lock was held, another process may have committed or removed the output.
        writer.check_plan()?;
        Ok(writer)
    }

    /// Creates the writer of `units` whose plan the caller has stored in `dir`.
    pub fn new(dir: OutputDir, units: PlannedUnits) -> Self {
        Self {
            dirs: UnitDirs::new(&dir.work()),
            dir,
            units: Arc::new(units),
            context: OnceLock::new(),
            max_rejects: MaxRejects::default(),
            is_resumable: true,
            committed: None,
        }
    }

    /// Returns the output.
    pub fn dir(&self) -> &OutputDir {
        &self.dir
    }

    /// Returns the directories of the units.
    pub fn dirs(&self) -> &UnitDirs {
        &self.dirs
    }

    /// Returns what the units have in common.
    pub fn units(&self) -> &PlannedUnits {
        &self.units
    }

    /// Returns the manifest if the same dataset is already committed, so that nothing is left to do.
    pub fn committed(&self) -> Option<&Manifest> {
        self.committed.as_deref()
    }

    /// Returns the units that are not finished, ascending. Damaged units are among them.
    ///
    /// # Errors
    ///
    /// Fails if units cannot be read.
    pub fn unfinished(&self) -> Result<Vec<u32>> {
        if self.committed.is_some() {
            return Ok(Vec::new());
        }
        let all = (0..self.units.count).collect();
        let found = self.check(all, CheckLevel::Sizes, &Workers::start(1)?, &Stop::default(), &|_| {})?;
        Ok(found.into_keys().collect())
    }

    /// Checks `units` on all threads, because all their bytes may have to be read. Returns the unfinished ones, and
    /// calls `done` with the results of the others, in any order.
    pub fn check(
        &self,
        units: Vec<u32>,
        check: CheckLevel,
        workers: &Workers,
        stop: &Stop,
        done: &(dyn Fn(&UnitResult) + Sync),
    ) -> Result<BTreeMap<u32, UnitState>> {
        let PlannedUnits { plan, count, .. } = &*self.units;
        let unfinished = Mutex::new(BTreeMap::new());
        let add = |unit, state| match state {
            UnitState::Done(result) => done(&result),
            other => drop(unfinished.lock().unwrap_or_else(PoisonError::into_inner).insert(unit, other)),
        };
        if let Some(remote) = self.dir.remote() {
            remote.check_units(&units, *count, plan, stop, &add)?;
            return Ok(unfinished.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        // In most runs, no unit was finished before.
        if !self.dirs.any()? {
            return Ok(units.into_iter().map(|unit| (unit, UnitState::Missing)).collect());
        }
        check.for_all(&units, workers, "checking finished units", stop, |&unit| {
            add(unit, self.dirs.check(unit, plan, self.dir.path(), check)?);
            Ok(())
        })?;
        Ok(unfinished.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks `unit` as unfinished.
    pub fn remove(&self, unit: u32) -> Result<()> {
        match self.dir.remote() {
            None => self.dirs.remove(unit),
            Some(remote) => remote.remove_unit(unit),
        }
    }

    /// Starts to write units: returns what those that are written from now on share.
    pub fn start(&self) -> Arc<UnitContext> {
        Arc::new(UnitContext {
            units: Arc::clone(&self.units),
            dirs: self.dirs.clone(),
            writeback: Writeback::start(),
            remote: self.dir.remote().cloned(),
        })
    }

    /// Starts to write unit `unit`. Until [`UnitWriter::finish`], it does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is no such unit, or if the dataset is committed.
    pub fn unit(&self, unit: u32) -> Result<UnitWriter> {
        if unit >= self.units.count {
            let units = plural(self.units.count.into(), "unit");
            return Err(Error::usage(format!("there is no unit {unit}; the dataset has {units}")));
        }
        if self.committed.is_some() {
            return Err(Error::usage("the dataset is already committed").at_path(self.dir.shown()));
        }
        // A damaged unit would otherwise stay in place of the new one.
        let plan = &self.units.plan;
        let state = match self.dir.remote() {
            None => self.dirs.check(unit, plan, self.dir.path(), CheckLevel::Sizes)?,
            Some(remote) => remote.check_unit(unit, plan, None)?,
        };
        if matches!(state, UnitState::Damaged(_)) {
            self.remove(unit)?;
        }
        let context = self.context.get_or_init(|| self.start());
        let sink = UnitSink::create(unit, context, Stages::default())?;
        Ok(UnitWriter { context: Arc::clone(context), sink, shards: Vec::new() })
    }

    /// Commits the dataset. All units must be finished, and all keys must be unique.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] if units are missing, if there are no records, or if too many items were rejected. The
    /// finished units are kept. If two records have the same key, the units can never become a dataset and are removed.
    pub fn commit(mut self, provenance: &Provenance) -> Result<Manifest> {
        if let Some(manifest) = self.committed.take() {
            return Ok(*manifest);
        }
        if self.dir.is_shared() {
            return Err(Error::usage("several processes may be writing units")
                .at_path(self.dir.shown())
                .help(
                    "open the output for one process alone when all of them have ended, and commit there",
                ));
        }
        let unfinished = self.unfinished()?;
        if let Some(first) = unfinished.first() {
            let count = plural(self.units.count.into(), "unit");
            let message = format!("{} of {count} are not finished, such as {first}", unfinished.len());
            return Err(Error::new(ErrorKind::NotCommitted, message).at_path(self.dir.shown()));
        }
        let Provenance { options, tokenizer, sources, files, binding } = provenance;
        let parts = ManifestParts {
            options: &serde_json::Value::Object(options.clone()),
            tokenizer: tokenizer.as_ref().map(|(description, _)| description),
            tokenizer_json: tokenizer.as_ref().map(|(_, json)| json.as_slice()),
            sources: Sources {
                labels: sources.clone(),
                files: files.len() as u64,
                bytes: files.iter().map(|(_, bytes)| bytes).sum(),
                ..Sources::default()
            },
            binding: binding.as_ref(),
            skipped: &BTreeMap::new(),
            // The caller divides the items into units.
            plan: Some(PlanInfo {
                listing: listing_digest(files.iter().map(|(name, bytes)| listing_line(name, *bytes))),
                units: self.units.count,
                unit_bytes: 0,
                unit_pieces: 0,
            }),
            fingerprint: &|content| fingerprint(&self.units.plan, content),
            nothing_found: &|_| ("no unit has any item".to_owned(), None),
        };
        let stop = Stop::default();
        match (Commit { writer: &self, parts: &parts, max_rejects: self.max_rejects, stop: &stop }).run() {
            Ok(committed) => {
                // The dataset is committed in any case.
                self.dir.remove_work()?;
                Ok(committed.manifest)
            }
            Err(CommitFailure { error, worth_resuming: true }) if self.is_resumable => Err(error),
            Err(CommitFailure { error, .. }) => Err(combine_errors(error, self.abandon())),
        }
    }

    /// Removes everything of units that are not worth keeping, and the directory itself if this process created it.
    pub fn abandon(self) -> Result<()> {
        self.dir.abandon(self.units.count, &self.units.plan)
    }

    /// Refuses an output that was opened with another schema or other options, or not at all.
    fn check_plan(&self) -> Result<()> {
        let stored = match self.dir.remote() {
            Some(remote) => remote.plan()?.map(|id| id.plan),
            None => {
                let path = self.dir.work().join(PLAN_NAME);
                match std::fs::read(&path) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                    read => Some(hex(&Sha256::digest(read.map_err(|e| Error::io("read", &path, e))?))),
                }
            }
        };
        let (what, help) = match stored {
            Some(plan) if plan == self.units.plan => return Ok(()),
            Some(_) => (
                "the units here were written with another schema, or with other options",
                format!("use the same ones; or {CHOOSE_OR_REPLACE}"),
            ),
            None => {
                let help = "open it in one process before others join";
                ("no process has opened this output", help.to_owned())
            }
        };
        Err(Error::usage(what).at_path(self.dir.shown()).help(help))
    }
}

/// Returns the fingerprint of a dataset: the hash of its plan and of its content.
fn fingerprint(plan: &str, content: &str) -> String {
    hex(&Sha256::digest(json!({ "plan": plan, "content": content }).to_string()))
}

/// A unit that is being written. If it is dropped without [`UnitWriter::finish`], it leaves only files that the next
/// [`DatasetWriter::open`] removes.
///
/// Each item has exactly one outcome: one or more records, a reject, a criterion that excludes it, or the item that it
/// duplicates.
pub struct UnitWriter {
    context: Arc<UnitContext>,
    sink: UnitSink,
    /// The shards that are complete, with the ordinals of their splits.
    shards: Vec<(usize, UnitShard)>,
}

impl UnitWriter {
    /// Appends a record. Its length is computed from the record: the number of token ids, or width × height.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the values do not fit the schema, if there is no such split, or if the record is larger
    /// than the formats permit.
    pub fn push<'p>(&mut self, record: Record, placement: impl Into<Placement<'p>>) -> Result<()> {
        let Placement { split, continues } = placement.into();
        let split = self.split(split)?;
        let schema = &self.context.units.schema;
        // Before anything is counted or written.
        check_record(schema, &record)?;
        let length = length_of(schema, &record.values).map_err(Error::usage)?;
        if index_values(schema, &record.values).is_none() {
            let columns: Vec<&str> = schema.index_columns().collect();
            return Err(Error::usage(format!("a value of {} exceeds 32 bits", columns.join(" or ")))
                .help("the record index stores these fields, too, in 32 bits each"));
        }
        let mut converted = ConvertedRecord { continues, ..ConvertedRecord::new(split, record, length) };
        let key_hash = xxh3_128(converted.key());
        converted.key_hash = Some(key_hash);
        let mut content = key_hash.to_le_bytes().to_vec();
        content.extend(converted.crc32c.to_le_bytes());
        self.write(ItemOutcome::Converted(converted), vec![xxh3_128(&content)])
    }

    /// Counts an item that cannot become a record, and lists it in `rejects.jsonl`. `origin` says where it comes from.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is no such split.
    pub fn reject(&mut self, origin: impl Into<String>, reject: Reject, split: &str) -> Result<()> {
        let split = self.split(split)?;
        self.write(ItemOutcome::Rejected { split, origin: origin.into(), reject }, Vec::new())
    }

    /// Counts an item that is left out for `reason`, and lists it in `filtered.jsonl`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is no such split.
    pub fn filter(&mut self, origin: impl Into<String>, reason: impl Display, split: &str) -> Result<()> {
        let split = self.split(split)?;
        self.write(
            ItemOutcome::Filtered { split, origin: origin.into(), reason: reason.to_string() },
            Vec::new(),
        )
    }

    /// Counts an item that is the same as the item `of`, which is kept, and lists it in `duplicates.jsonl`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is no such split.
    pub fn duplicate(&mut self, origin: impl Into<String>, of: impl Into<String>, split: &str) -> Result<()> {
        let split = self.split(split)?;
        self.write(ItemOutcome::Duplicate { split, origin: origin.into(), of: of.into() }, Vec::new())
    }

    /// Removes what was uploaded of a unit that nobody finishes. Its local files are removed in any case.
    ///
    /// # Errors
    ///
    /// If objects cannot be deleted.
    pub fn abandon(self) -> Result<()> {
        let Some(remote) = &self.context.remote else { return Ok(()) };
        let splits = &self.context.units.splits;
        self.shards.iter().try_for_each(|(split, shard)| {
            remote.bucket().delete(&remote.object(&shard_path(&splits[*split], &shard.name))?)
        })
    }

    /// Makes the unit final. If another process has finished it meanwhile, that result stays.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] if the other result differs; otherwise, if files cannot be written.
    pub fn finish(mut self) -> Result<UnitResult> {
        let mut closed = Vec::new();
        // There are no stages that could hold records back.
        let unit = self.sink.close(&mut closed)?;
        commit_shards(closed, &mut self.shards)?;
        let result = unit.finish(self.shards, &Stop::default())?;
        self.context.check()?;
        Ok(result)
    }

    /// Makes the unit final, unless another process has finished it meanwhile: that result stays. Returns `None` if it has
    /// other records.
    ///
    /// # Errors
    ///
    /// If files cannot be written.
    pub fn finish_if_first(self) -> Result<Option<UnitResult>> {
        let (context, unit) = (Arc::clone(&self.context), self.sink.unit());
        match self.finish() {
            Ok(result) => Ok(Some(result)),
            Err(error) if error.kind() == ErrorKind::NotCommitted && context.is_finished(unit)? => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, outcome: ItemOutcome, content: Vec<u128>) -> Result<()> {
        let mut closed = Vec::new();
        self.sink.write(Outcomes { list: vec![outcome], content, ..Outcomes::default() }, &mut closed)?;
        commit_shards(closed, &mut self.shards)
    }

    /// Returns the ordinal of the split `name`.
    fn split(&self, name: &str) -> Result<u16> {
        let splits = &self.context.units.splits;
        let found = splits.iter().position(|split| split == name).and_then(|at| u16::try_from(at).ok());
        found.ok_or_else(|| {
            Error::usage(format!("there is no split {name:?}; the splits are {}", splits.join(", ")))
        })
    }
}

/// Makes the shards in `closed` durable, and appends them to `shards`.
fn commit_shards(closed: Vec<ClosedShard>, shards: &mut Vec<(usize, UnitShard)>) -> Result<()> {
    closed.into_iter().try_for_each(|shard| {
        shards.push(shard.commit(&Stop::default())?);
        Ok(())
    })
}
