//! The commit: turns finished units into a dataset by writing indexes, moving shards and writing the manifest.
//!
//! All files except the shards are first written to `.dsconvert/staged`, then the manifest to
//! `.dsconvert/pending.json`. Only after that are files moved to their final location, so that after a crash the
//! pending manifest lists everything that may be there. Moving the manifest itself to its final location is the commit.
//! Every step can be repeated. Units and plan are removed only after the commit is durable.
//!
//! For a dataset in object storage, the staged files and the manifest are uploaded instead (`remote`).
//!
//! Keys that are origins are unique by construction. Keys from a field may repeat: each unit stores the hashes of its keys,
//! and the commit sorts all of them on disk and compares the keys themselves where hashes are equal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::derived_files::{FinishedUnits, SORT_BYTES, file_entry};
use super::outcome::ContentHash;
use super::stop::Stop;
use super::unit::{REJECTS_NAME, keys_name, rows};
use super::units::{Totals, UnitDirs, UnitResult, UnitShard, add_all, difference, shard_path};
use super::workers::{for_all, in_order};
use super::writer::DatasetWriter;
use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::index::sort::ExternalSort;
use crate::manifest::{Binding, Counts, MANIFEST_NAME, Manifest, PlanInfo, Sources, TOKENIZER_NAME};
use crate::numbers::{count, plural};
use crate::printable::printable;
use crate::sample::Value;
use crate::schema::{KEY, ORIGIN, Schema};
use crate::size::MaxRejects;
use crate::storage::{Access, Blob, create_dir, lstat, rename, resolve, sync_dir, write_shared_file};

/// Number of rejects shown in an error message.
const SHOWN_REJECTS: usize = 3;

/// A commit of a dataset. The working directory stays.
pub struct Commit<'a> {
    /// The writer of the units, all of which must be finished.
    pub writer: &'a DatasetWriter,
    /// What the manifest says besides what the units determine.
    pub parts: &'a ManifestParts<'a>,
    /// Limit on rejects; if it is exceeded, nothing is committed.
    pub max_rejects: MaxRejects,
    /// Request to stop.
    pub stop: &'a Stop,
}

/// Returns a message and a help, given the number of skipped files by type.
pub(super) type NothingFound<'a> = dyn Fn(&BTreeMap<String, u64>) -> (String, Option<String>) + 'a;

/// What the manifest says about the origin of the records, besides what the units determine.
pub struct ManifestParts<'a> {
    /// Options that determine the records.
    pub options: &'a serde_json::Value,
    /// Description of the tokenizer, if there is one.
    pub tokenizer: Option<&'a serde_json::Value>,
    /// Bytes of `tokenizer.json`.
    pub tokenizer_json: Option<&'a [u8]>,
    /// The sources, without the files that were skipped and the hash of the content.
    pub sources: Sources,
    /// The dataset whose records the fields belong to, if this is a companion.
    pub binding: Option<&'a Binding>,
    /// Files that were skipped before the units were written, by type.
    pub skipped: &'a BTreeMap<String, u64>,
    /// How the sources are divided into units, if there are sources.
    pub plan: Option<PlanInfo>,
    /// Returns the fingerprint of the dataset, given the hash of the content.
    pub fingerprint: &'a dyn Fn(&str) -> String,
    /// Returns a message for a dataset without items, and how to get some, given the number of skipped files by type.
    pub nothing_found: &'a NothingFound<'a>,
}

/// The result of a successful commit.
pub struct Committed {
    /// The committed manifest.
    pub manifest: Manifest,
    /// Sums over the units.
    pub totals: Totals,
}

/// The reason why nothing was committed.
pub struct CommitFailure {
    /// The error.
    pub error: Error,
    /// Whether the finished units can still become a dataset. Otherwise, they are not worth keeping.
    pub worth_resuming: bool,
}

impl From<Error> for CommitFailure {
    fn from(error: Error) -> Self {
        Self { error, worth_resuming: true }
    }
}

impl Commit<'_> {
    /// Commits the dataset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] if there are no records, too many items were rejected, or two records have the same key;
    /// [`ErrorKind::NothingNew`] if there are no records because excluded datasets have them.
    pub fn run(self) -> Result<Committed, CommitFailure> {
        let (dir, dirs, planned) = (self.writer.dir(), self.writer.dirs(), self.writer.units());
        let parts = self.parts;
        if let Some(remote) = dir.remote() {
            remote.fetch_units(dirs, planned.count, &planned.plan, self.stop)?;
        }
        let mut units = Vec::new();
        let mut counts = Counts::default();
        let mut totals = Totals { skipped: parts.skipped.clone(), ..Totals::default() };
        let classes = planned.schema.class_names.len();
        let mut labels = vec![vec![0; classes]; planned.splits.len()];
        let mut content = ContentHash::default();
        let mut reject_codes = BTreeMap::new();
        let mut notes = BTreeMap::new();
        let ordinals: Vec<u32> = (0..planned.count).collect();
        let read = |unit: &u32| dirs.result(*unit, &planned.plan);
        in_order(&ordinals, "reading finished units", &Stop::default(), read, |_, mut unit| {
            counts.add(&unit.counts());
            totals.text_bytes += unit.text_bytes;
            add_all(&mut totals.skipped, &unit.skipped);
            for (sums, split) in labels.iter_mut().zip(&unit.splits) {
                sums.iter_mut().zip(&split.labels).for_each(|(sum, records)| *sum += records);
            }
            content.add(&[u128::from_str_radix(&unit.content, 16).unwrap_or_default()]);
            add_all(&mut reject_codes, &unit.reject_codes);
            add_all(&mut notes, &unit.notes);
            unit.clear_summed();
            units.push(unit);
            Ok(())
        })?;
        self.check_outcomes(&counts, &totals, &notes, &units)?;
        let sources = Sources {
            skipped: totals.skipped.values().sum(),
            content: format!("xxh3-128:{:032x}", content.digest()),
            ..parts.sources.clone()
        };

        // Before anything is moved: if keys repeat, the units can never become a dataset.
        let finished = FinishedUnits { writer: self.writer, units: &units };
        finished.check_keys().map_err(|error| CommitFailure {
            worth_resuming: error.kind() != ErrorKind::NotCommitted,
            error,
        })?;
        let staged = dir.staged();
        let mut derived = finished.write_derived()?;
        if planned.schema.label_field().is_some() {
            for (name, counts) in planned.splits.iter().zip(labels) {
                derived.splits.entry(name.clone()).and_modify(|split| split.class_counts = Some(counts));
            }
        }
        let mut files = derived.lists;
        if let Some(json) = parts.tokenizer_json {
            files.push(file_entry(TOKENIZER_NAME, write_shared_file(&staged.join(TOKENIZER_NAME), json)?));
        }
        let mut manifest = Manifest {
            manifest_version: Manifest::version(&planned.schema),
            digest: None,
            dsconvert: env!("CARGO_PKG_VERSION").to_owned(),
            fingerprint: (parts.fingerprint)(&sources.content),
            format: planned.format,
            schema: Schema::clone(&planned.schema),
            options: parts.options.clone(),
            tokenizer: parts.tokenizer.cloned(),
            sources,
            binding: parts.binding.cloned(),
            plan: parts.plan.clone(),
            counts,
            reject_codes,
            notes,
            splits: derived.splits,
            shard_table: derived.shard_table,
            files,
        };
        let json = manifest.seal()?;
        if let Some(remote) = dir.remote() {
            remote.commit(&units, &staged, &manifest, json, self.stop)?;
            return Ok(Committed { manifest, totals });
        }
        write_shared_file(&dir.pending(), &json)?;
        self.place_shards(&units)?;
        place_staged(&staged, dir.path(), &manifest.listed_files().collect::<Vec<_>>())?;
        sync_dir(dir.path())?;
        rename(&dir.pending(), &dir.path().join(MANIFEST_NAME))?;
        Ok(Committed { manifest, totals })
    }

    fn check_outcomes(
        &self,
        counts: &Counts,
        totals: &Totals,
        notes: &BTreeMap<String, u64>,
        units: &[UnitResult],
    ) -> Result<(), CommitFailure> {
        let records: u64 = units.iter().flat_map(|u| &u.splits).map(|s| s.records).sum();
        if records > 0 && !self.max_rejects.exceeded(counts.rejected, counts.found) {
            return Ok(());
        }
        let (items, rejected) = (plural(counts.found, "item"), count(counts.rejected));
        let were = if counts.rejected == 1 { "was" } else { "were" };
        let (filtered, duplicates) = (count(counts.filtered), plural(counts.duplicates, "duplicate"));
        let outcomes = format!("{items}, {rejected} {were} rejected, {filtered} filtered, {duplicates}");
        let excluded = notes.get("excluded").copied().unwrap_or(0);
        let is_accepted = !self.max_rejects.exceeded(counts.rejected, counts.found);
        if records == 0 && excluded > 0 && excluded == counts.filtered && is_accepted {
            let message = format!(
                "nothing new: of {outcomes}; the excluded datasets have all that can be converted, and no dataset was written"
            );
            let error = Error::new(ErrorKind::NothingNew, message);
            return Err(CommitFailure { error, worth_resuming: false });
        }
        let (mut message, help) = if counts.found == 0 {
            let (nothing, advice) = (self.parts.nothing_found)(&totals.skipped);
            (nothing, advice.unwrap_or_else(|| "check the sources and their file types".to_owned()))
        } else if records == 0 {
            let help = if counts.rejected == 0 && counts.filtered > 0 {
                "the filters leave nothing: relax or leave out the options that filter"
            } else {
                "check the sources and options against these messages"
            };
            (format!("no records were produced: of {outcomes}"), help.to_owned())
        } else {
            let (limit, accepting) = (self.max_rejects, self.stop.continuation().accepting_rejects());
            (
                format!("{rejected} of {items} {were} rejected, which is more than `max_rejects {limit}`"),
                format!("fix the sources; or, to accept the rejects, {accepting}"),
            )
        };
        for line in self.first_rejects(units) {
            message.push_str("\n  ");
            message.push_str(&line);
        }
        let error = Error::new(ErrorKind::NotCommitted, message).help(help);
        Err(CommitFailure { error, worth_resuming: records > 0 })
    }

    /// Returns the first few rejects, for error messages.
    fn first_rejects(&self, units: &[UnitResult]) -> Vec<String> {
        let mut shown = Vec::new();
        for unit in units.iter().filter(|u| u.counts().rejected > 0) {
            let path = self.writer.dirs().done(unit.unit).join(REJECTS_NAME);
            if let Err(error) = read_rejects(&path, &mut shown) {
                shown.push(error.to_string());
            }
            if shown.len() >= SHOWN_REJECTS {
                break;
            }
        }
        shown
    }

    /// Moves all shards to their final location. Afterwards, every shard must be there with the size it was written
    /// with, moved either now or by an earlier, interrupted commit.
    fn place_shards(&self, units: &[UnitResult]) -> Result<()> {
        let (out, dirs) = (self.writer.dir().path(), self.writer.dirs());
        for (ordinal, split) in self.writer.units().splits.iter().enumerate() {
            if units.iter().all(|unit| unit.splits[ordinal].shards.is_empty()) {
                continue;
            }
            let folder = resolve(out, split)?;
            create_dir(&folder)?;
            let place = |unit: &UnitResult| {
                let mut shards = unit.splits[ordinal].shards.iter();
                shards.try_for_each(|shard| place_shard(out, dirs, unit.unit, split, shard))
            };
            // A commit that has started is not interrupted.
            for_all(units, "moving shards", &Stop::default(), place)?;
            sync_dir(&folder)?;
        }
        Ok(())
    }
}

/// Moves `files` (path, size, SHA-256) from the folder `staged` to their final location in `out`. Checks the sizes of
/// all of them before the first is moved: without a file lock, another process may have committed meanwhile.
fn place_staged(staged: &Path, out: &Path, files: &[(&str, u64, &str)]) -> Result<()> {
    for &(path, bytes, _) in files {
        if let Some(why) = difference(&staged.join(path), bytes, None)? {
            let message = format!("{path} {why}, so nothing was committed");
            return Err(Error::new(ErrorKind::NotCommitted, message).at_path(staged.join(path)).help(
                "another dsconvert may be writing to this output directory: wait for it to end, then repeat the command",
            ));
        }
    }
    let index = resolve(out, "index")?;
    create_dir(&index)?;
    for &(path, ..) in files {
        let (from, to) = (staged.join(path), resolve(out, path)?);
        std::fs::rename(&from, &to).map_err(|e| Error::io("move the file", &from, e))?;
    }
    sync_dir(&index)
}

/// Moves a shard to its final location, unless it is already there.
fn place_shard(out: &Path, dirs: &UnitDirs, unit: u32, split: &str, shard: &UnitShard) -> Result<()> {
    let from = dirs.done(unit).join(&shard.name);
    let to = out.join(shard_path(split, &shard.name));
    let moved = lstat(&from)?.is_none();
    if let Some(why) = difference(if moved { &to } else { &from }, shard.bytes, None)? {
        return Err(dirs.unusable(unit, &format!("{} {why}", shard.name)));
    }
    match moved {
        true => Ok(()),
        false => std::fs::rename(&from, &to).map_err(|e| Error::io("move the shard", &from, e)),
    }
}

/// Appends the first rejects of a file to `shown`, up to [`SHOWN_REJECTS`].
fn read_rejects(path: &Path, shown: &mut Vec<String>) -> Result<()> {
    let fail = |e| Error::io("read", path, e);
    let mut lines = BufReader::new(File::open(path).map_err(fail)?).lines();
    while shown.len() < SHOWN_REJECTS
        && let Some(line) = lines.next().transpose().map_err(fail)?
    {
        let reject: serde_json::Value = serde_json::from_str(&line)
            .map_err(|e| Error::corrupt("this is not a list of rejects").at_path(path).caused_by(e))?;
        let part = |name: &str| reject[name].as_str().unwrap_or_default().to_owned();
        let line = format!("{}: {} ({})", part("origin"), part("message"), part("code"));
        shown.push(printable(&line).into_owned());
    }
    Ok(())
}

const HASH_BYTES: usize = 16;
/// Size of a sort row: hash, split (2 bytes), unit (4 bytes), row in unit and split (8 bytes). Big-endian, so that
/// equal keys sort in plan order.
const ROW_BYTES: usize = HASH_BYTES + 2 + 4 + 8;

/// The location of a record: split, unit and row.
struct KeyRow {
    split: usize,
    unit: u32,
    row: u64,
}

impl KeyRow {
    fn to_bytes(&self, hash: [u8; HASH_BYTES]) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..HASH_BYTES].copy_from_slice(&hash);
        bytes[16..18].copy_from_slice(&(self.split as u16).to_be_bytes());
        bytes[18..22].copy_from_slice(&self.unit.to_be_bytes());
        bytes[22..].copy_from_slice(&self.row.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; ROW_BYTES]) -> Self {
        Self {
            split: usize::from(u16::from_be_bytes([bytes[16], bytes[17]])),
            unit: u32::from_be_bytes(std::array::from_fn(|i| bytes[18 + i])),
            row: u64::from_be_bytes(std::array::from_fn(|i| bytes[22 + i])),
        }
    }
}

impl FinishedUnits<'_> {
    /// Checks that no key occurs twice in the dataset, across all splits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] naming the key and both origins.
    fn check_keys(&self) -> Result<()> {
        let mut sort = ExternalSort::<ROW_BYTES>::new(self.writer.dir().work(), SORT_BYTES);
        for unit in self.units {
            for (split, part) in unit.splits.iter().enumerate() {
                let name = keys_name(&part.name);
                if unit.files.iter().all(|file| file.name != name) {
                    continue;
                }
                let path = self.writer.dirs().done(unit.unit).join(name);
                let mut file = BufReader::new(File::open(&path).map_err(|e| Error::io("open", &path, e))?);
                for row in 0..part.records {
                    let mut hash = [0; HASH_BYTES];
                    file.read_exact(&mut hash).map_err(|e| Error::io("read", &path, e))?;
                    sort.push(KeyRow { split, unit: unit.unit, row }.to_bytes(hash))?;
                }
            }
        }
        let mut previous: Option<[u8; ROW_BYTES]> = None;
        for entry in sort.finish()? {
            let entry = entry?;
            if let Some(previous) = previous.filter(|b| b[..HASH_BYTES] == entry[..HASH_BYTES]) {
                self.compare_keys(&KeyRow::from_bytes(&previous), &KeyRow::from_bytes(&entry))?;
            }
            previous = Some(entry);
        }
        Ok(())
    }

    fn compare_keys(&self, first: &KeyRow, second: &KeyRow) -> Result<()> {
        let ((key, first), (other, second)) = (self.read_key(first)?, self.read_key(second)?);
        if key != other {
            return Ok(());
        }
        let message =
            format!("two items have the key {key:?}, so nothing was committed: {first} and {second}");
        Err(Error::new(ErrorKind::NotCommitted, message)
            .help("keys must be unique in a dataset: choose another `key_field`, or leave it out"))
    }

    /// Returns the key and the origin of a record.
    fn read_key(&self, wanted: &KeyRow) -> Result<(String, String)> {
        let (dirs, planned) = (self.writer.dirs(), self.writer.units());
        let unit = &self.units[wanted.unit as usize];
        let part = &unit.splits[wanted.split];
        let missing = || Error::corrupt("a key hash belongs to no record");
        let entry = rows(dirs, unit, wanted.split)?.nth(wanted.row as usize).ok_or_else(missing)??;
        let shard = part.shards.get(entry.shard as usize).ok_or_else(missing)?;
        let path = self.writer.dir().find_shard(dirs, unit.unit, part, shard)?;
        let path = path.ok_or_else(|| dirs.unusable(unit.unit, &format!("{} is missing", shard.name)))?;
        let blob = Blob::open(&path, Access::Read, Some(shard.bytes))?;
        let record = format::open(planned.format, Arc::clone(&planned.schema), blob)?.get(entry.placed())?;
        let text = |name: &str| match planned.schema.index_of(name).and_then(|i| record.values.get(i)) {
            Some(Value::Text(text)) => text.as_str().to_owned(),
            _ => String::new(),
        };
        // Records of any kind have no origin.
        let origin = match planned.schema.index_of(ORIGIN) {
            Some(_) => text(ORIGIN),
            None => format!("record {} of unit {}", wanted.row, wanted.unit),
        };
        Ok((text(KEY), origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_file_of_another_size_is_not_committed() {
        let dir = tempfile::tempdir().unwrap();
        let (staged, out) = (dir.path().join("staged"), dir.path());
        std::fs::create_dir_all(staged.join("index")).unwrap();
        let (table, list) = ("index/shards.arrow", "rejects.jsonl");
        let files = [(list, 2, ""), (table, 3, "")];
        std::fs::write(staged.join(list), "ab").unwrap();
        for (content, why) in [(None, "is missing"), (Some("ab"), "has 2 bytes instead of 3")] {
            content.iter().for_each(|content| std::fs::write(staged.join(table), content).unwrap());
            let error = place_staged(&staged, out, &files).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotCommitted);
            assert!(error.to_string().contains(&format!("{table} {why}")), "{error}");
            assert!(error.remedy().is_some_and(|help| help.contains("another dsconvert")), "{error:?}");
            assert!(!out.join(list).exists() && staged.join(list).exists());
        }
        std::fs::write(staged.join(table), "abc").unwrap();
        place_staged(&staged, out, &files).unwrap();
        assert!(out.join(list).exists() && out.join(table).exists());
    }
}
