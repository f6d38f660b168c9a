//! From finished units to a dataset: indexes, shards to their place, manifest.
//!
//! All files but the shards are first written to `.dsconvert/staged`, and then the manifest to `.dsconvert/pending.json`.
//! Only then is anything moved to its final place, so that after a crash the pending manifest lists whatever may be
//! there. Its own move to the final place is the commit. Every step can be repeated. Units and plan are removed only
//! after the commit is durable.
//!
//! For a dataset in object storage, the staged files and the manifest are sent there instead (`publish`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::derived_files::{DerivedFiles, file_entry};
use super::finished::{UnitDirs, UnitResult, UnitShard, difference, shard_path};
use super::keys::KeyCheck;
use super::memory::SORT_BYTES;
use super::outcome::ContentHash;
use super::output::OutputDir;
use super::stop::Stop;
use super::totals::Totals;
use super::unit::REJECTS_NAME;
use super::workers::{FILE_THREADS, for_all, in_order};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::manifest::{Counts, MANIFEST_NAME, MANIFEST_VERSION, Manifest, PlanInfo, Sources, TOKENIZER_NAME};
use crate::options::MaxRejects;
use crate::printable::printable;
use crate::schema::Schema;
use crate::source::skipped::SkippedTypes;
use crate::storage::{create_dir, lstat, rename, resolve, sync_dir, write_file};

/// Rejects that an error message shows.
const SHOWN_REJECTS: usize = 3;

/// What the commit needs beside the units.
pub(super) struct Commit<'a> {
    pub dir: &'a OutputDir,
    pub plan_id: &'a str,
    pub units: u32,
    pub format: Format,
    pub schema: &'a Schema,
    pub splits: &'a [String],
    pub options: &'a serde_json::Value,
    pub tokenizer: Option<serde_json::Value>,
    /// Bytes of `tokenizer.json`.
    pub tokenizer_json: Option<&'a [u8]>,
    /// Labels, files and bytes, as planned.
    pub sources: Sources,
    /// Files that the plan left out.
    pub skipped: &'a SkippedTypes,
    /// The listing and its division into units.
    pub plan: PlanInfo,
    /// Paths of the sources, for people.
    pub paths: String,
    pub max_rejects: MaxRejects,
    /// Turns the content hash into the fingerprint.
    pub fingerprint: &'a dyn Fn(&str) -> String,
    pub stop: &'a Stop,
}

/// A dataset that was committed just now.
pub(super) struct Committed {
    pub manifest: Manifest,
    pub totals: Totals,
}

/// Why nothing was committed.
pub(super) struct CommitFailure {
    pub error: Error,
    /// Whether the finished units can still become a dataset. If not, nothing of the run is worth keeping.
    pub worth_resuming: bool,
}

impl From<Error> for CommitFailure {
    fn from(error: Error) -> Self {
        Self { error, worth_resuming: true }
    }
}

impl Commit<'_> {
    /// Commits, or says why not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`] when no record came out or too many items were rejected; [`ErrorKind::Usage`] when
    /// two records have one key.
    pub(super) fn run(mut self) -> Result<Committed, CommitFailure> {
        let dirs = UnitDirs::new(&self.dir.work());
        if let Some(remote) = self.dir.remote() {
            remote.fetch_units(&dirs, self.units, self.plan_id, self.stop)?;
        }
        let mut units = Vec::new();
        let mut counts = Counts::default();
        let mut totals = Totals::planned(self.skipped);
        let mut content = ContentHash::default();
        let mut reject_codes = BTreeMap::new();
        let mut notes = BTreeMap::new();
        let ordinals: Vec<u32> = (0..self.units).collect();
        let read = |unit: &u32| dirs.result(*unit, self.plan_id);
        in_order(&ordinals, "reading finished units", &Stop::default(), read, |_, mut unit| {
            counts.add(&unit.counts());
            totals.add(&unit);
            content.add(&[u128::from_str_radix(&unit.content, 16).unwrap_or_default()]);
            add_all(&mut reject_codes, &unit.reject_codes);
            add_all(&mut notes, &unit.notes);
            unit.drop_sums();
            units.push(unit);
            Ok(())
        })?;
        self.check_outcomes(&counts, &totals, &units, &dirs)?;
        self.sources.skipped = totals.skipped.count();
        self.sources.content = format!("xxh3-128:{:032x}", content.digest());

        // Before anything is moved: when keys repeat, nothing of this run is worth keeping.
        KeyCheck {
            dir: self.dir,
            dirs: &dirs,
            units: &units,
            splits: self.splits,
            format: self.format,
            schema: self.schema,
        }
        .run(SORT_BYTES)
        .map_err(|error| CommitFailure { worth_resuming: error.kind() != ErrorKind::Usage, error })?;
        let staged = self.dir.staged();
        let derived = DerivedFiles {
            work: &self.dir.work(),
            staged: &staged,
            kind: self.schema.kind,
            splits: self.splits,
            dirs: &dirs,
            units: &units,
        }
        .write()?;
        let mut files = derived.lists;
        if let Some(json) = self.tokenizer_json {
            files.push(file_entry(TOKENIZER_NAME, write_file(&staged.join(TOKENIZER_NAME), json)?));
        }
        let mut manifest = Manifest {
            manifest_version: MANIFEST_VERSION,
            digest: None,
            dsconvert: env!("CARGO_PKG_VERSION").to_owned(),
            fingerprint: (self.fingerprint)(&self.sources.content),
            format: self.format,
            schema: self.schema.clone(),
            options: self.options.clone(),
            tokenizer: self.tokenizer.take(),
            sources: std::mem::take(&mut self.sources),
            plan: Some(std::mem::take(&mut self.plan)),
            counts,
            reject_codes,
            notes,
            splits: derived.splits,
            shard_table: derived.shard_table,
            files,
        };
        let json = manifest.seal()?;
        if let Some(remote) = self.dir.remote() {
            remote.commit(&units, &staged, &manifest, json, self.stop)?;
            return Ok(Committed { manifest, totals });
        }
        write_file(&self.dir.pending(), &json)?;
        self.place_shards(&dirs, &units)?;
        self.place_staged(&manifest)?;
        sync_dir(self.dir.path())?;
        rename(&self.dir.pending(), &self.dir.path().join(MANIFEST_NAME))?;
        Ok(Committed { manifest, totals })
    }

    fn check_outcomes(
        &self,
        counts: &Counts,
        totals: &Totals,
        units: &[UnitResult],
        dirs: &UnitDirs,
    ) -> Result<(), CommitFailure> {
        let records: u64 = units.iter().flat_map(|u| &u.splits).map(|s| s.records).sum();
        if records > 0 && !self.max_rejects.exceeded(counts.rejected, counts.found) {
            return Ok(());
        }
        let mut message = match counts.found {
            0 => self.nothing_found(&totals.skipped),
            found if records == 0 => format!(
                "no record came out: of {found} items {} were rejected, {} filtered, {} duplicates",
                counts.rejected, counts.filtered, counts.duplicates
            ),
            found => format!(
                "{} of {found} items were rejected, which is more than --max-rejects {}",
                counts.rejected, self.max_rejects
            ),
        };
        for line in self.first_rejects(units, dirs) {
            message.push_str("\n  ");
            message.push_str(&line);
        }
        let help = match counts.found {
            0 => totals.skipped.advice(self.schema.kind),
            _ if records == 0 => Some("check the sources and options against these messages".to_owned()),
            _ => Some("mend the sources, or accept them with a larger --max-rejects and --resume".to_owned()),
        };
        let help = help.unwrap_or_else(|| "check the sources and their file types".to_owned());
        let error = Error::new(ErrorKind::NotCommitted, message).help(help);
        Err(CommitFailure { error, worth_resuming: records > 0 })
    }

    /// `nothing was found to convert in photos; 3 files were skipped: 2 .pdf, 1 .md`
    fn nothing_found(&self, skipped: &SkippedTypes) -> String {
        let instead = match skipped.count() {
            0 => "; there are no files".to_owned(),
            1 => format!("; 1 file was skipped: {skipped}"),
            count => format!("; {count} files were skipped: {skipped}"),
        };
        format!("nothing was found to convert in {}{instead}", self.paths)
    }

    /// The first few rejects, for people.
    fn first_rejects(&self, units: &[UnitResult], dirs: &UnitDirs) -> Vec<String> {
        let mut shown = Vec::new();
        for unit in units.iter().filter(|u| u.counts().rejected > 0) {
            let path = dirs.done(unit.unit).join(REJECTS_NAME);
            if let Err(error) = read_rejects(&path, &mut shown) {
                shown.push(error.to_string());
            }
            if shown.len() >= SHOWN_REJECTS {
                break;
            }
        }
        shown
    }

    /// Moves all shards to their place. Every one must be there afterwards, with the size it was written with: moved
    /// now, or by an earlier commit that was interrupted.
    fn place_shards(&self, dirs: &UnitDirs, units: &[UnitResult]) -> Result<()> {
        for (ordinal, split) in self.splits.iter().enumerate() {
            if units.iter().all(|unit| unit.splits[ordinal].shards.is_empty()) {
                continue;
            }
            let folder = resolve(self.dir.path(), split)?;
            create_dir(&folder)?;
            let out = self.dir.path();
            let place = |unit: &UnitResult| {
                let mut shards = unit.splits[ordinal].shards.iter();
                shards.try_for_each(|shard| place_shard(out, dirs, unit.unit, split, shard))
            };
            // A commit that has begun is not interrupted.
            for_all(units, FILE_THREADS, "moving shards", &Stop::default(), place)?;
            sync_dir(&folder)?;
        }
        Ok(())
    }

    /// Moves all other files to their place.
    fn place_staged(&self, manifest: &Manifest) -> Result<()> {
        let out = self.dir.path();
        let index = resolve(out, "index")?;
        create_dir(&index)?;
        for (path, ..) in manifest.listed_files() {
            let (from, to) = (self.dir.staged().join(path), resolve(out, path)?);
            std::fs::rename(&from, &to).map_err(|e| Error::io("move the file", &from, e))?;
        }
        sync_dir(&index)
    }
}

/// Moves a shard to its place, or finds it there.
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

/// Adds the first rejects of a file to `shown`, until there are enough.
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

fn add_all(sum: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>) {
    for (name, count) in other {
        *sum.entry(name.clone()).or_default() += count;
    }
}
