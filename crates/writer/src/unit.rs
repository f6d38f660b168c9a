//! A work unit: its shards, the rows for the indexes, and its result.
//!
//! A unit is built in `.dsconvert/units/<unit>/<attempt>/`, and becomes final when that folder is renamed to `done`. In
//! object storage, it becomes final when its `unit.json` is created, after its other files were uploaded (`remote`).
//! Until the commit, the folder holds the shards under their final names, and next to them:
//!
//! | file | bytes |
//! |---|---|
//! | `unit.json` | [`UnitResult`] and its SHA-256 |
//! | `<split>.rows` | one row per record, 48 bytes |
//! | `rejects.jsonl` | one line per rejected item |
//! | `filtered.jsonl` | one line per filtered item |
//! | `duplicates.jsonl` | one line per duplicate item, if there are any |
//! | `<split>.keys` | 16 bytes XXH3-128 of each record's key, if keys may repeat |

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::outcome::{ContentHash, ConvertedRecord, ItemOutcome, MAX_NAMES, Outcomes};
use super::remote::Remote;
use super::stage::{Finished, NextStage, Stages};
use super::stop::Stop;
use super::units::{
    PlannedUnits, RESULT_NAME, UnitDirs, UnitFile, UnitResult, UnitShard, UnitSplit, UnitState, add_all,
    different_unit, shard_path,
};
use crate::error::{Error, Result};
use crate::format::{self, Format, ShardWriter};
use crate::index::IndexEntry;
use crate::sample::{Value, index_values};
use crate::schema::MAX_INDEX_COLUMNS;
use crate::storage::{
    NewFile, Writeback, Written, create_dir, lstat, random, remove_dir_all, remove_file, rename, write_file,
};

/// Number of the next attempt in this process.
static NEXT_ATTEMPT: AtomicU64 = AtomicU64::new(0);

/// File with the unit's rejects.
pub(crate) const REJECTS_NAME: &str = "rejects.jsonl";
/// File with the items that the user's criteria excluded.
pub(crate) const FILTERED_NAME: &str = "filtered.jsonl";
/// File with the duplicate items; exists only if there are any.
pub(crate) const DUPLICATES_NAME: &str = "duplicates.jsonl";

/// Returns the name of a shard: `train-000042-00.parquet` is the first of unit 42.
fn shard_name(split: &str, unit: u32, ordinal: u32, format: Format) -> String {
    format!("{split}-{unit:06}-{ordinal:02}.{}", format.extension())
}

/// Returns the unit of a shard, given its name.
pub fn unit_of_shard(name: &str) -> Option<u32> {
    let (stem, _) = name.rsplit_once('.')?;
    let (rest, ordinal) = stem.rsplit_once('-')?;
    let (_, unit) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (unit.len() >= 6 && digits(unit) && ordinal.len() >= 2 && digits(ordinal)).then(|| unit.parse().ok())?
}

/// Builder of a unit. If dropped without [`UnitSink::close`], it leaves only files that the next attempt removes.
pub struct UnitSink {
    attempt: u64,
    context: Arc<UnitContext>,
    dir: PathBuf,
    /// The result so far, without the shards and other files.
    result: UnitResult,
    splits: Vec<SplitSink>,
    rejects: NewFile,
    filtered: NewFile,
    duplicates: Option<NewFile>,
    /// Index of the label field, if there is one.
    label: Option<usize>,
    /// Sum of the lengths of all records.
    length: u64,
    content: ContentHash,
    /// Items of the current compressed member that were converted before its checksum was reached.
    unchecked: u64,
    stages: Stages,
}

#[derive(Default)]
struct SplitSink {
    rows: Option<NewFile>,
    keys: Option<NewFile>,
    open: Option<OpenShard>,
    shards: u32,
}

struct OpenShard {
    name: String,
    writer: Box<dyn ShardWriter>,
    records: u64,
    canonical_bytes: u64,
}

impl UnitSink {
    /// Returns the number of the unit.
    pub(crate) fn unit(&self) -> u32 {
        self.result.unit
    }

    /// Starts an attempt at `unit`.
    pub fn create(unit: u32, context: &Arc<UnitContext>, stages: Stages) -> Result<Self> {
        let attempt = NEXT_ATTEMPT.fetch_add(1, Ordering::Relaxed);
        let dir = context.dirs.unit(unit).join(attempt_name());
        create_dir(&dir)?;
        let PlannedUnits { plan, splits, schema, .. } = &*context.units;
        let empty = |name: &String| UnitSplit { name: name.clone(), ..UnitSplit::default() };
        Ok(Self {
            attempt,
            context: Arc::clone(context),
            result: UnitResult {
                unit,
                plan: plan.clone(),
                splits: splits.iter().map(empty).collect(),
                ..UnitResult::default()
            },
            splits: splits.iter().map(|_| SplitSink::default()).collect(),
            rejects: NewFile::create(&dir.join(REJECTS_NAME))?,
            filtered: NewFile::create(&dir.join(FILTERED_NAME))?,
            duplicates: None,
            label: schema.label_field(),
            length: 0,
            content: ContentHash::default(),
            unchecked: 0,
            stages,
            dir,
        })
    }

    /// Returns the name under which a name from the data is counted. Tasks arrive in order, so that the first names are the
    /// same in each run.
    fn counted_name(&self, name: String) -> String {
        let notes = &self.result.notes;
        let is_full = || notes.keys().filter(|name| name.contains(':')).count() >= MAX_NAMES;
        match notes.contains_key(&name) || !is_full() {
            true => name,
            false => format!("{}:…", name.split(':').next().unwrap_or_default()),
        }
    }

    /// Writes the outcomes of the next task. Full shards are appended to `closed`.
    pub fn write(&mut self, outcomes: Outcomes, closed: &mut Vec<ClosedShard>) -> Result<()> {
        add_all(&mut self.result.skipped, &outcomes.skipped);
        self.result.source_bytes += outcomes.source_bytes;
        self.result.text_bytes += outcomes.text_bytes;
        self.content.add(&outcomes.content);
        let member = outcomes.member;
        if member.start.is_some() {
            self.unchecked = 0;
        }
        self.unchecked += member.converted;
        if member.damaged && self.unchecked > 0 {
            let unchecked = std::mem::take(&mut self.unchecked);
            *self.result.notes.entry("after_damage".to_owned()).or_default() += unchecked;
        }
        for (name, count) in outcomes.notes {
            let name = match name {
                Cow::Borrowed(name) => name.to_owned(),
                Cow::Owned(name) => self.counted_name(name),
            };
            *self.result.notes.entry(name).or_default() += count;
        }
        for outcome in outcomes.list {
            match outcome {
                ItemOutcome::Converted(converted) => {
                    let counts = &mut self.result.splits[usize::from(converted.split)].counts;
                    counts.found += u64::from(!converted.continues);
                    counts.converted += u64::from(!converted.continues);
                    self.run_stages(closed, |stages, out| stages.push(converted, out))?;
                }
                ItemOutcome::Rejected { split, origin, reject } => {
                    let UnitSplit { name, counts, .. } = &mut self.result.splits[usize::from(split)];
                    let (code, message) = (reject.code.name(), reject.message);
                    let line = json!({ "origin": origin, "split": name, "code": code, "message": message });
                    json_line(&mut self.rejects, &line)?;
                    *self.result.reject_codes.entry(code.to_owned()).or_default() += 1;
                    counts.found += 1;
                    counts.rejected += 1;
                }
                ItemOutcome::Duplicate { split, origin, of } => {
                    let UnitSplit { name, counts, .. } = &mut self.result.splits[usize::from(split)];
                    let file = created(&mut self.duplicates, || self.dir.join(DUPLICATES_NAME))?;
                    json_line(file, &json!({ "origin": origin, "split": name, "of": of }))?;
                    counts.found += 1;
                    counts.duplicates += 1;
                }
                ItemOutcome::Filtered { split, origin, reason } => {
                    let UnitSplit { name, counts, .. } = &mut self.result.splits[usize::from(split)];
                    let line = json!({ "origin": origin, "split": name, "reason": reason });
                    json_line(&mut self.filtered, &line)?;
                    counts.found += 1;
                    counts.filtered += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs the stages, and writes the records they return.
    fn run_stages<T>(
        &mut self,
        closed: &mut Vec<ClosedShard>,
        run: impl FnOnce(&mut Stages, &mut NextStage<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut stages = std::mem::take(&mut self.stages);
        let result = run(&mut stages, &mut |converted| self.write_record(&converted, closed));
        self.stages = stages;
        result
    }

    fn write_record(&mut self, converted: &ConvertedRecord, closed: &mut Vec<ClosedShard>) -> Result<()> {
        let ordinal = usize::from(converted.split);
        self.cut(ordinal, converted.canonical_bytes, closed)?;
        let (split, part) = (&mut self.splits[ordinal], &mut self.result.splits[ordinal]);
        let name = &part.name;
        let rows = created(&mut split.rows, || self.dir.join(rows_name(name)))?;
        let shard = match &mut split.open {
            Some(shard) => shard,
            None => {
                let name = shard_name(name, self.result.unit, split.shards, self.context.units.format);
                let file = NewFile::create(&self.dir.join(&name))?.with_writeback(&self.context.writeback);
                let writer =
                    format::writer(self.context.units.format, Arc::clone(&self.context.units.schema), file)?;
                split.open.insert(OpenShard { name, writer, records: 0, canonical_bytes: 0 })
            }
        };
        let placed = shard.writer.push(&converted.record)?;
        if let Some(Value::Int(label)) = self.label.and_then(|field| converted.record.values.get(field)) {
            count_label(&mut part.labels, *label, self.context.units.schema.class_names.len());
        }
        shard.records += 1;
        shard.canonical_bytes += converted.canonical_bytes;
        part.records += 1;
        self.length = self.length.saturating_add(converted.length);
        let columns = index_values(&self.context.units.schema, &converted.record.values);
        let row = IndexEntry {
            shard: split.shards,
            position: placed.position,
            bytes: placed.bytes,
            length: converted.length,
            crc32c: converted.crc32c,
            columns: columns
                .ok_or_else(|| Error::internal("the record lacks what the record index stores"))?,
        };
        append(rows, &row_to_bytes(&row))?;
        if let Some(hash) = converted.key_hash {
            let keys = created(&mut split.keys, || self.dir.join(keys_name(name)))?;
            append(keys, &hash.to_be_bytes())?;
        }
        Ok(())
    }

    /// Closes the open shard of a split if a record of `next_bytes` bytes no longer fits.
    fn cut(&mut self, split: usize, next_bytes: u64, closed: &mut Vec<ClosedShard>) -> Result<()> {
        let full = self.splits[split].open.as_ref().is_some_and(|shard| {
            shard.canonical_bytes + next_bytes > self.context.units.shard_bytes
                || self.context.units.shard_records.is_some_and(|limit| shard.records >= limit)
        });
        if full { self.close_shard(split, closed) } else { Ok(()) }
    }

    fn close_shard(&mut self, split: usize, closed: &mut Vec<ClosedShard>) -> Result<()> {
        if let Some(shard) = self.splits[split].open.take() {
            self.splits[split].shards += 1;
            let file = shard.writer.finish()?;
            closed.push(ClosedShard {
                attempt: self.attempt,
                context: Arc::clone(&self.context),
                split,
                name: shard.name,
                records: shard.records,
                file,
            });
        }
        Ok(())
    }

    /// Writes records that the stages have held back, after the last task. Called until all of them are written. Full
    /// shards are appended to `closed`.
    pub fn finish_stages(&mut self, closed: &mut Vec<ClosedShard>) -> Result<Finished> {
        self.run_stages(closed, Stages::finish)
    }

    /// Ends the unit, after [`UnitSink::finish_stages`]. The last shards are appended to `closed`; the returned
    /// [`ClosedUnit`] is finished after them.
    pub fn close(mut self, closed: &mut Vec<ClosedShard>) -> Result<ClosedUnit> {
        for (name, count) in self.stages.notes() {
            *self.result.notes.entry(name.to_owned()).or_default() += count;
        }
        self.result.content = format!("{:032x}", self.content.digest());
        for split in 0..self.splits.len() {
            self.close_shard(split, closed)?;
        }
        let mut sidecars = vec![self.rejects, self.filtered];
        sidecars.extend(self.duplicates);
        for split in self.splits {
            sidecars.extend(split.rows);
            sidecars.extend(split.keys);
        }
        Ok(ClosedUnit {
            attempt: self.attempt,
            context: self.context,
            dir: self.dir,
            result: self.result,
            length: self.length,
            sidecars,
        })
    }
}

/// Counts a record with `label`. There are as many counters as `classes`.
fn count_label(labels: &mut Vec<u64>, label: i64, classes: usize) {
    labels.resize(classes, 0);
    if let Some(count) = usize::try_from(label).ok().and_then(|label| labels.get_mut(label)) {
        *count += 1;
    }
}

/// Returns the name of the file with the key hashes of a split.
pub(crate) fn keys_name(split: &str) -> String {
    format!("{split}.keys")
}

/// Returns a folder name for an attempt that is unique across all machines: 128 random bits. Process IDs are not
/// unique, because every container counts from 1.
fn attempt_name() -> String {
    format!("attempt-{:016x}{:016x}", random(), random())
}

/// A shard that is completely written but not yet durable. Finalizing it may wait for the disk, so it happens outside
/// the workers.
pub struct ClosedShard {
    /// Number of the attempt, unique in this process.
    pub attempt: u64,
    pub(crate) context: Arc<UnitContext>,
    pub(crate) split: usize,
    /// File name.
    pub name: String,
    pub(crate) records: u64,
    pub(crate) file: NewFile,
}

/// A unit whose records are all written; [`ClosedUnit::finish`] makes it final.
pub struct ClosedUnit {
    /// Number of the attempt, unique in this process.
    pub attempt: u64,
    pub(crate) context: Arc<UnitContext>,
    pub(crate) dir: PathBuf,
    /// The result, without the shards and other files.
    pub result: UnitResult,
    /// Sum of the lengths of all records.
    pub length: u64,
    pub(crate) sidecars: Vec<NewFile>,
}

impl ClosedShard {
    /// Waits until the shard is durable on disk or uploaded to object storage.
    pub fn commit(self, stop: &Stop) -> Result<(usize, UnitShard)> {
        let written = match &self.context.remote {
            None => self.file.commit()?,
            Some(remote) => {
                let path = self.file.path().to_owned();
                let written = self.file.finish()?;
                let name = shard_path(&self.context.units.splits[self.split], &self.name);
                remote.check_uncommitted()?;
                remote.upload(&path, &name, Some(&written), stop)?;
                remove_file(&path)?;
                written
            }
        };
        let Written { bytes, sha256 } = written;
        Ok((self.split, UnitShard { name: self.name, records: self.records, bytes, sha256 }))
    }
}

impl ClosedUnit {
    /// Makes the unit final. `shards` are all its shards, in the order in which they were closed.
    pub fn finish(mut self, shards: Vec<(usize, UnitShard)>, stop: &Stop) -> Result<UnitResult> {
        for (split, shard) in shards {
            self.result.splits[split].shards.push(shard);
        }
        for sidecar in self.sidecars {
            let name = sidecar.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Written { bytes, sha256 } = sidecar.commit()?;
            self.result.files.push(UnitFile { name, bytes, sha256 });
        }
        write_file(&self.dir.join(RESULT_NAME), &self.result.to_bytes()?)?;
        if let Some(remote) = &self.context.remote {
            remote.finish_unit(&self.result, &self.dir, stop)?;
        }
        let done = self.context.dirs.done(self.result.unit);
        if let Err(error) = rename(&self.dir, &done) {
            // If another process has finished the same unit meanwhile, the first result stays.
            if lstat(&done.join(RESULT_NAME))?.is_none() {
                return Err(error);
            }
            remove_dir_all(&self.dir)?;
            if self.context.dirs.result(self.result.unit, &self.result.plan)? != self.result {
                return Err(different_unit(self.result.unit).at_path(done));
            }
        }
        Ok(self.result)
    }
}

/// What the units of a dataset share while they are written.
pub struct UnitContext {
    /// The units of the dataset.
    pub(crate) units: Arc<PlannedUnits>,
    /// Directories of the units.
    pub(crate) dirs: UnitDirs,
    /// Thread that flushes growing shards to disk.
    pub(crate) writeback: Writeback,
    /// Destination of finished units, if it is object storage.
    pub(crate) remote: Option<Remote>,
}

impl UnitContext {
    /// Returns whether a process has finished `unit`.
    pub(crate) fn is_finished(&self, unit: u32) -> Result<bool> {
        let plan = &self.units.plan;
        match &self.remote {
            None => Ok(self.dirs.result(unit, plan).is_ok()),
            Some(remote) => Ok(matches!(remote.check_unit(unit, plan, None)?, UnitState::Done(_))),
        }
    }

    /// Fails if the thread that flushes growing shards has panicked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind).
    pub fn check(&self) -> Result<()> {
        self.writeback.check()
    }
}

/// Bytes of a row: an entry of the record index whose shard is its ordinal in its unit and split, because the number of
/// the shard in the dataset is not known yet.
const ROW_BYTES: usize = 32 + MAX_INDEX_COLUMNS * size_of::<u32>();

fn row_to_bytes(row: &IndexEntry) -> [u8; ROW_BYTES] {
    let mut out = [0; ROW_BYTES];
    out[0..8].copy_from_slice(&row.position.to_le_bytes());
    out[8..16].copy_from_slice(&row.bytes.to_le_bytes());
    out[16..24].copy_from_slice(&row.length.to_le_bytes());
    out[24..28].copy_from_slice(&row.shard.to_le_bytes());
    out[28..32].copy_from_slice(&row.crc32c.to_le_bytes());
    for (to, column) in out[32..].as_chunks_mut().0.iter_mut().zip(row.columns) {
        *to = column.to_le_bytes();
    }
    out
}

fn row_from_bytes(row: &[u8; ROW_BYTES]) -> IndexEntry {
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| row[at + i]));
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| row[at + i]));
    IndexEntry {
        position: u64_at(0),
        bytes: u64_at(8),
        length: u64_at(16),
        shard: u32_at(24),
        crc32c: u32_at(28),
        columns: std::array::from_fn(|i| u32_at(32 + i * size_of::<u32>())),
    }
}

/// Returns the name of the file with the rows of a split.
fn rows_name(split: &str) -> String {
    format!("{split}.rows")
}

/// Reads the rows of a split of a finished unit, in order. The shard of a row is its ordinal in its unit and split.
pub(crate) fn rows(
    dirs: &UnitDirs,
    unit: &UnitResult,
    split: usize,
) -> Result<impl Iterator<Item = Result<IndexEntry>>> {
    let UnitSplit { name, records, .. } = &unit.splits[split];
    let path = dirs.done(unit.unit).join(rows_name(name));
    let mut file = match records {
        // A split without records has no file.
        0 => None,
        _ => {
            // Most units are large. For many small units, allocating buffers of full size would dominate.
            let bytes = usize::try_from(*records).unwrap_or(usize::MAX).saturating_mul(ROW_BYTES);
            let file = File::open(&path).map_err(|e| Error::io("read", &path, e))?;
            Some(BufReader::with_capacity(bytes.min(1 << 18), file))
        }
    };
    Ok((0..*records).map_while(move |_| {
        let mut row = [0; ROW_BYTES];
        let read = file.as_mut()?.read_exact(&mut row);
        Some(read.map(|()| row_from_bytes(&row)).map_err(|e| Error::io("read", &path, e)))
    }))
}

/// Returns the file in `slot`, which is created at `path` if there is none.
fn created(slot: &mut Option<NewFile>, path: impl FnOnce() -> PathBuf) -> Result<&mut NewFile> {
    match slot {
        Some(file) => Ok(file),
        none => Ok(none.insert(NewFile::create(&path())?)),
    }
}

/// Appends `line` as a line of JSON.
fn json_line(file: &mut NewFile, line: &serde_json::Value) -> Result<()> {
    append(file, format!("{line}\n").as_bytes())
}

/// Appends `bytes`.
fn append(file: &mut NewFile, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|e| Error::io("write", file.path(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_contain_the_unit() {
        for (split, unit, ordinal) in [("train", 0, 0), ("my-split-3", 42, 7), ("v.1", 1_234_567, 123)] {
            let name = shard_name(split, unit, ordinal, Format::Protobuf);
            assert_eq!(unit_of_shard(&name), Some(unit), "{name}");
        }
        for other in
            ["rejects.jsonl", "tokenizer.json", "train.records-0000.arrow", "a-1-2.pb", "shards.arrow"]
        {
            assert_eq!(unit_of_shard(other), None, "{other}");
        }
    }

    #[test]
    fn attempt_names_are_unique() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(|_| attempt_name()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == "attempt-".len() + 32));
    }

    #[test]
    fn rows_round_trip() {
        let row =
            IndexEntry { shard: 1, position: 2 << 32, bytes: 3, length: 4, crc32c: 5, columns: [6, 7, 8, 9] };
        assert_eq!(row_from_bytes(&row_to_bytes(&row)), row);
    }
}
