//! One work unit: its shards, the rows for the indexes, and its result.
//!
//! A unit is built in `.dsconvert/units/<unit>/<attempt>/` and becomes final when that folder is renamed to `done`.
//! Until the commit, the folder holds the shards under their final names, and beside them:
//!
//! | file | bytes |
//! |---|---|
//! | `unit.json` | [`UnitResult`] |
//! | `<split>.rows` | one [`RowEntry`] per record, 40 bytes |
//! | `rejects.jsonl` | one line per item that was rejected |
//! | `filtered.jsonl` | one line per item that was left out |
//! | `duplicates.jsonl` | one line per item that is the same as another, when there is any |
//! | `<split>.keys` | 16 bytes XXH3-128 of each record's key, when keys may repeat |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::conversion::Cuts;
use super::lines::{DuplicateLine, FilteredLine, RejectLine, append, json_line};
use super::outcome::{ContentHash, Converted, Outcome, Outcomes};
use super::pack::Packer;
use super::rows::{RowEntry, rows_name};
use super::shuffle::Window;
use crate::error::{Error, Result};
use crate::format::{self, ShardWriter};
use crate::manifest::Counts;
use crate::schema::Schema;
use crate::storage::{NewFile, Writeback, Written, create_dir, remove_dir_all, rename, write_file};

/// Tells attempts of one process apart.
static NEXT_ATTEMPT: AtomicU64 = AtomicU64::new(0);

/// Name of the folder that a finished attempt is renamed to.
const DONE: &str = "done";
const RESULT_NAME: &str = "unit.json";
/// File of the unit's rejects.
pub(super) const REJECTS_NAME: &str = "rejects.jsonl";
/// File of the items that the user's criteria left out.
pub(super) const FILTERED_NAME: &str = "filtered.jsonl";
/// File of the items that are the same as others; there only when there is any.
pub(super) const DUPLICATES_NAME: &str = "duplicates.jsonl";

/// What a finished unit consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitResult {
    pub unit: u32,
    /// Identity of the plan the unit belongs to.
    pub plan: String,
    pub splits: Vec<UnitSplit>,
    pub reject_codes: BTreeMap<String, u64>,
    pub notes: BTreeMap<String, u64>,
    pub skipped: u64,
    pub source_bytes: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// XXH3-128 over the content hashes, in hexadecimal.
    pub content: String,
}

/// What a unit has for one split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitSplit {
    pub counts: Counts,
    pub records: u64,
    pub shards: Vec<UnitShard>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitShard {
    pub name: String,
    pub records: u64,
    pub bytes: u64,
    pub sha256: String,
}

impl UnitResult {
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.splits.iter().for_each(|s| sum.add(&s.counts));
        sum
    }
}

/// Where the units of an output directory live.
#[derive(Debug, Clone)]
pub(super) struct UnitDirs {
    root: PathBuf,
}

impl UnitDirs {
    pub(super) fn new(work: &Path) -> Self {
        Self { root: work.join("units") }
    }

    fn unit(&self, unit: u32) -> PathBuf {
        self.root.join(format!("{unit:06}"))
    }

    /// Folder of the finished unit.
    pub(super) fn done(&self, unit: u32) -> PathBuf {
        self.unit(unit).join(DONE)
    }

    /// Removes what dead attempts at units left behind. Only the holder of the lock may do this.
    pub(super) fn remove_leftovers(&self) -> Result<()> {
        let list = |dir: &Path| match std::fs::read_dir(dir) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(|e| Error::io("list", dir, e)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(Error::io("list", dir, e)),
        };
        for unit in list(&self.root)? {
            for attempt in list(&unit.path())? {
                if attempt.file_name() != DONE {
                    remove_dir_all(&attempt.path())?;
                }
            }
        }
        Ok(())
    }

    /// The result of a unit that is finished under the plan `plan`.
    pub(super) fn result(&self, unit: u32, plan: &str) -> Result<Option<UnitResult>> {
        match self.any_result(unit)? {
            Some(result) if result.plan != plan || result.unit != unit => {
                Err(Error::corrupt("the result of a finished unit belongs to another plan")
                    .at_path(self.done(unit))
                    .help("start again with --overwrite"))
            }
            other => Ok(other),
        }
    }

    /// The result of a finished unit, whatever plan it belongs to.
    pub(super) fn any_result(&self, unit: u32) -> Result<Option<UnitResult>> {
        let path = self.done(unit).join(RESULT_NAME);
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &path, e)),
        };
        let result = serde_json::from_slice(&json).map_err(|e| {
            Error::corrupt("the result of a finished unit cannot be read")
                .at_path(&path)
                .help("start again with --overwrite")
                .caused_by(e)
        })?;
        Ok(Some(result))
    }
}

/// Builds one unit. Dropped without [`UnitSink::close`], it leaves only files that the next attempt removes.
pub(super) struct UnitSink {
    unit: u32,
    attempt: u64,
    plan: String,
    dirs: UnitDirs,
    dir: PathBuf,
    cuts: Cuts,
    writeback: Writeback,
    schema: Arc<Schema>,
    split_names: Vec<String>,
    splits: Vec<SplitSink>,
    rejects: NewFile,
    filtered: NewFile,
    duplicates: Option<NewFile>,
    reject_codes: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
    skipped: u64,
    source_bytes: u64,
    text_bytes: u64,
    content: ContentHash,
    /// Items of the compressed member that is being read which were converted before its checksum was met.
    unchecked: u64,
    /// With `--shuffle`.
    window: Option<Window>,
}

#[derive(Default)]
struct SplitSink {
    counts: Counts,
    records: u64,
    rows: Option<NewFile>,
    keys: Option<NewFile>,
    open: Option<OpenShard>,
    shards: u32,
    /// With `--pack`.
    packer: Option<Packer>,
}

struct OpenShard {
    name: String,
    writer: Box<dyn ShardWriter>,
    records: u64,
    canonical_bytes: u64,
}

/// A shard whose bytes are all written but not yet durable. Making it so may wait for the disk: it is done away from
/// the workers.
pub(super) struct ClosedShard {
    attempt: u64,
    split: usize,
    name: String,
    records: u64,
    file: NewFile,
}

/// A unit whose records are all written; [`ClosedUnit::finish`] makes it final.
pub(super) struct ClosedUnit {
    attempt: u64,
    dirs: UnitDirs,
    dir: PathBuf,
    result: UnitResult,
    sidecars: Vec<NewFile>,
}

impl UnitSink {
    /// Starts an attempt at `unit`.
    pub(super) fn create(
        unit: u32,
        plan: &str,
        dirs: &UnitDirs,
        cuts: &Cuts,
        writeback: &Writeback,
        schema: &Arc<Schema>,
        split_names: &[String],
    ) -> Result<Self> {
        let attempt = NEXT_ATTEMPT.fetch_add(1, Ordering::Relaxed);
        let dir = dirs.unit(unit).join(format!("attempt-{}-{attempt}", std::process::id()));
        create_dir(&dir)?;
        Ok(Self {
            unit,
            attempt,
            plan: plan.to_owned(),
            dirs: dirs.clone(),
            cuts: cuts.clone(),
            writeback: writeback.clone(),
            schema: Arc::clone(schema),
            split_names: split_names.to_vec(),
            splits: split_names.iter().map(|_| SplitSink::default()).collect(),
            rejects: NewFile::create(&dir.join(REJECTS_NAME))?,
            filtered: NewFile::create(&dir.join(FILTERED_NAME))?,
            duplicates: None,
            reject_codes: BTreeMap::new(),
            notes: BTreeMap::new(),
            skipped: 0,
            source_bytes: 0,
            text_bytes: 0,
            content: ContentHash::default(),
            unchecked: 0,
            window: cuts.shuffle_seed.map(Window::new),
            dir,
        })
    }

    /// Writes the outcomes of the next task. Shards that are full go to `closed`.
    pub(super) fn write(&mut self, outcomes: Outcomes, closed: &mut Vec<ClosedShard>) -> Result<()> {
        self.skipped += outcomes.skipped;
        self.source_bytes += outcomes.source_bytes;
        self.text_bytes += outcomes.text_bytes;
        self.content.add(&outcomes.content);
        let member = outcomes.member;
        self.unchecked = if member.starts { member.converted } else { self.unchecked + member.converted };
        if member.damaged && self.unchecked > 0 {
            let unchecked = std::mem::take(&mut self.unchecked);
            *self.notes.entry("after_damage".to_owned()).or_default() += unchecked;
        }
        for (name, count) in outcomes.notes {
            *self.notes.entry(name.to_owned()).or_default() += count;
        }
        for outcome in outcomes.list {
            match outcome {
                Outcome::Converted(converted) => {
                    let counts = &mut self.splits[usize::from(converted.split)].counts;
                    counts.found += u64::from(!converted.continues);
                    counts.converted += u64::from(!converted.continues);
                    match &mut self.window {
                        None => self.pack(converted, closed)?,
                        Some(window) => {
                            let full = window.push(converted).unwrap_or_default();
                            full.into_iter().try_for_each(|converted| self.pack(converted, closed))?;
                        }
                    }
                }
                Outcome::Rejected { split, origin, reject } => {
                    let split = usize::from(split);
                    let line = RejectLine {
                        origin: &origin,
                        split: &self.split_names[split],
                        code: reject.code.name(),
                        message: &reject.message,
                    };
                    json_line(&mut self.rejects, &line)?;
                    *self.reject_codes.entry(reject.code.name().to_owned()).or_default() += 1;
                    self.splits[split].counts.found += 1;
                    self.splits[split].counts.rejected += 1;
                }
                Outcome::Duplicate { split, origin, of } => {
                    let split = usize::from(split);
                    let line = DuplicateLine { origin: &origin, split: &self.split_names[split], of: &of };
                    let file = match &mut self.duplicates {
                        Some(file) => file,
                        none => none.insert(NewFile::create(&self.dir.join(DUPLICATES_NAME))?),
                    };
                    json_line(file, &line)?;
                    self.splits[split].counts.found += 1;
                    self.splits[split].counts.duplicates += 1;
                }
                Outcome::Filtered { split, origin, reason } => {
                    let split = usize::from(split);
                    let line =
                        FilteredLine { origin: &origin, split: &self.split_names[split], reason: &reason };
                    json_line(&mut self.filtered, &line)?;
                    self.splits[split].counts.found += 1;
                    self.splits[split].counts.filtered += 1;
                }
            }
        }
        Ok(())
    }

    /// Writes a record, or with `--pack` the rows that it completes.
    fn pack(&mut self, converted: Converted, closed: &mut Vec<ClosedShard>) -> Result<()> {
        let Some(pack) = self.cuts.pack else { return self.record(&converted, closed) };
        let split = converted.split;
        let packer = &mut self.splits[usize::from(split)].packer;
        let rows = packer.get_or_insert_with(|| Packer::new(split, pack)).push(converted)?;
        rows.iter().try_for_each(|row| self.record(row, closed))
    }

    fn record(&mut self, converted: &Converted, closed: &mut Vec<ClosedShard>) -> Result<()> {
        let ordinal = usize::from(converted.split);
        self.cut(ordinal, converted.canonical_bytes, closed)?;
        let split = &mut self.splits[ordinal];
        let name = &self.split_names[ordinal];
        if split.rows.is_none() {
            split.rows = Some(NewFile::create(&self.dir.join(rows_name(name)))?);
        }
        let shard = match &mut split.open {
            Some(shard) => shard,
            None => {
                let name =
                    format!("{name}-{:06}-{:02}.{}", self.unit, split.shards, self.cuts.format.extension());
                let file = NewFile::create(&self.dir.join(&name))?.with_writeback(&self.writeback);
                let writer = format::writer(self.cuts.format, Arc::clone(&self.schema), file)?;
                split.open.insert(OpenShard { name, writer, records: 0, canonical_bytes: 0 })
            }
        };
        let placed = shard.writer.push(&converted.record)?;
        shard.records += 1;
        shard.canonical_bytes += converted.canonical_bytes;
        split.records += 1;
        let row = RowEntry {
            shard: split.shards,
            position: placed.position,
            bytes: placed.bytes,
            length: converted.length,
            crc32c: converted.crc32c,
            width: converted.width,
            height: converted.height,
        };
        if let Some(rows) = &mut split.rows {
            append(rows, &row.to_bytes())?;
        }
        if let Some(hash) = converted.key_hash {
            if split.keys.is_none() {
                split.keys = Some(NewFile::create(&self.dir.join(keys_name(name)))?);
            }
            if let Some(keys) = &mut split.keys {
                append(keys, &hash.to_be_bytes())?;
            }
        }
        Ok(())
    }

    /// Closes the open shard of a split when a record of `next_bytes` no longer belongs into it.
    fn cut(&mut self, split: usize, next_bytes: u64, closed: &mut Vec<ClosedShard>) -> Result<()> {
        let full = self.splits[split].open.as_ref().is_some_and(|shard| {
            shard.canonical_bytes + next_bytes > self.cuts.shard_bytes
                || self.cuts.shard_records.is_some_and(|limit| shard.records >= limit)
        });
        if full { self.close_shard(split, closed) } else { Ok(()) }
    }

    fn close_shard(&mut self, split: usize, closed: &mut Vec<ClosedShard>) -> Result<()> {
        if let Some(shard) = self.splits[split].open.take() {
            self.splits[split].shards += 1;
            let file = shard.writer.finish()?;
            closed.push(ClosedShard {
                attempt: self.attempt,
                split,
                name: shard.name,
                records: shard.records,
                file,
            });
        }
        Ok(())
    }

    /// Writes the rows of what waits to be packed, and takes note of what became of all rows.
    fn finish_packing(&mut self, closed: &mut Vec<ClosedShard>) -> Result<()> {
        for split in 0..self.splits.len() {
            let Some(mut packer) = self.splits[split].packer.take() else { continue };
            packer.finish()?.iter().try_for_each(|row| self.record(row, closed))?;
            let counts = packer.counts;
            for (name, count) in [
                ("packed_rows", counts.rows),
                ("packed_tokens", counts.tokens),
                ("packed_places", counts.places),
                ("packed_documents_cut", counts.cut),
            ] {
                *self.notes.entry(name.to_owned()).or_default() += count;
            }
        }
        Ok(())
    }

    /// Ends the unit: the last shards go to `closed`, and the rest waits for them in the [`ClosedUnit`].
    pub(super) fn close(mut self, closed: &mut Vec<ClosedShard>) -> Result<ClosedUnit> {
        let left = self.window.as_mut().map(Window::take).unwrap_or_default();
        left.into_iter().try_for_each(|converted| self.pack(converted, closed))?;
        self.finish_packing(closed)?;
        for split in 0..self.splits.len() {
            self.close_shard(split, closed)?;
        }
        let mut sidecars = vec![self.rejects, self.filtered];
        sidecars.extend(self.duplicates);
        let mut splits = Vec::new();
        for split in self.splits {
            sidecars.extend(split.rows);
            sidecars.extend(split.keys);
            splits.push(UnitSplit { counts: split.counts, records: split.records, shards: Vec::new() });
        }
        let result = UnitResult {
            unit: self.unit,
            plan: self.plan,
            splits,
            reject_codes: self.reject_codes,
            notes: self.notes,
            skipped: self.skipped,
            source_bytes: self.source_bytes,
            text_bytes: self.text_bytes,
            content: format!("{:032x}", self.content.digest()),
        };
        Ok(ClosedUnit { attempt: self.attempt, dirs: self.dirs, dir: self.dir, result, sidecars })
    }
}

impl ClosedShard {
    /// Number of the attempt, unique in this process.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Waits for the disk.
    pub(super) fn commit(self) -> Result<(usize, UnitShard)> {
        let Written { bytes, sha256 } = self.file.commit()?;
        Ok((self.split, UnitShard { name: self.name, records: self.records, bytes, sha256 }))
    }
}

impl ClosedUnit {
    /// Number of the attempt, unique in this process.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Makes the unit final. `shards` are all its shards in the order they were closed.
    pub(super) fn finish(mut self, shards: Vec<(usize, UnitShard)>) -> Result<UnitResult> {
        for (split, shard) in shards {
            self.result.splits[split].shards.push(shard);
        }
        for sidecar in self.sidecars {
            sidecar.commit()?;
        }
        let json = serde_json::to_vec(&self.result)
            .map_err(|e| Error::corrupt("the result of a unit cannot be written as JSON").caused_by(e))?;
        write_file(&self.dir.join(RESULT_NAME), &json)?;
        rename(&self.dir, &self.dirs.done(self.result.unit))?;
        Ok(self.result)
    }
}

/// Name of the file with the key hashes of a split.
pub(super) fn keys_name(split: &str) -> String {
    format!("{split}.keys")
}
