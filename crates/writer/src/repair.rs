//! Check and repair of a committed dataset. Units are converted again: those of damaged shards or, for an index, all.
//!
//! A file is replaced only by the bytes that were committed, with the size and SHA-256 that the dataset lists. The
//! dataset stays committed throughout, and an interrupted repair continues with the units that it has finished.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::derived_files::FinishedUnits;
use super::output::OutputDir;
use super::stop::Stop;
use super::unit::unit_of_shard;
use super::units::{CheckLevel, UnitDirs, UnitShard, UnitSplit, difference, shard_path};
use super::workers::Workers;
use super::writer::DatasetWriter;
use crate::error::{Error, ErrorKind, Result};
use crate::index::SHARD_TABLE_PATH;
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::storage::{create_dir, folder_of, hex, lstat, rename, resolve, write_file};

/// A file of a committed dataset that is missing or altered.
pub struct DamagedFile {
    path: PathBuf,
    /// Completes the phrase "this file …".
    why: String,
    sha256: String,
}

impl DamagedFile {
    fn into_error(self) -> Error {
        Error::corrupt(format!("the dataset is committed, but this file {}", self.why)).at_path(self.path)
    }

    /// Refuses to repair the file if something is in its place that must not be replaced, before its units are converted.
    fn check_place(&self) -> Result<()> {
        let refuse = |path: &Path, what: &str| {
            Err(Error::corrupt(format!("{what}, so the dataset cannot be repaired"))
                .at_path(path)
                .help("remove it, then repair again"))
        };
        let folder = folder_of(&self.path);
        match (lstat(folder)?, lstat(&self.path)?) {
            (Some(meta), _) if !meta.is_dir() => {
                refuse(folder, "a folder of the dataset is not a folder any more")
            }
            (_, Some(meta)) if meta.is_dir() => refuse(&self.path, "a file of the dataset is a folder now"),
            (_, Some(meta)) if !meta.is_file() => {
                refuse(&self.path, "a file of the dataset is not a regular file any more")
            }
            _ => Ok(()),
        }
    }

    /// Returns the unit of a shard; `None` if the file is not a shard.
    fn unit(&self) -> Option<u32> {
        unit_of_shard(self.path.file_name()?.to_str()?)
    }
}

/// Says how to replace a dataset with these damaged files. Without its shard table, its shards are unknown, so that they
/// cannot be removed.
fn convert_again(damaged: &[DamagedFile]) -> &'static str {
    match damaged.iter().any(|file| file.path.ends_with(SHARD_TABLE_PATH)) {
        true => "convert again into another `out`",
        false => "convert again with `overwrite`",
    }
}

/// Refuses a dataset with damaged files, for a run that does not repair.
pub fn refuse_damaged(mut damaged: Vec<DamagedFile>, dir: &OutputDir) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let count = damaged.len();
    let again = convert_again(&damaged);
    let first = damaged.swap_remove(0);
    let help = match (dir.remote().is_some(), count) {
        (true, _) => "convert again into another prefix, and copy the damaged file from there".to_owned(),
        (false, 1) => format!("repair it with `resume=repair`, or {again}"),
        (false, _) => {
            format!("{count} files are damaged: repair them with `resume=repair`, or {again}")
        }
    };
    Err(first.into_error().help(help))
}

/// Returns the missing and altered files of the dataset: indexes and lists first, then shards in order. Omits the
/// shards while the shard table, which lists them, is damaged.
pub fn damaged_files(
    dir: &OutputDir,
    manifest: &Manifest,
    check: CheckLevel,
    workers: &Workers,
    stop: &Stop,
) -> Result<Vec<DamagedFile>> {
    let listing = dir.remote().map(|remote| remote.listing(None)).transpose()?;
    let difference = |name: &str, bytes: u64, sha256: Option<&str>| match dir.remote() {
        Some(remote) => remote.object_difference(name, bytes, listing.as_ref()),
        None => difference(&resolve(dir.path(), name)?, bytes, sha256),
    };
    let table = &manifest.shard_table;
    let listed = manifest.listed_files();
    let mut files: Vec<_> =
        listed.map(|(path, bytes, sha256)| (path.to_owned(), bytes, sha256.to_owned())).collect();
    if difference(&table.path, table.bytes, Some(&table.sha256))?.is_none() {
        let shards = dir.read_shards(manifest)?;
        files.extend(shards.shards().map(|shard| (shard.path(), shard.bytes, shard.sha256.clone())));
    }
    let numbered: Vec<_> = files.into_iter().enumerate().collect();
    let found = Mutex::new(BTreeMap::new());
    check.for_all(&numbered, workers, "checking the dataset", stop, |(at, (name, bytes, sha256))| {
        if let Some(why) = difference(name, *bytes, (check == CheckLevel::Hashes).then_some(sha256.as_str()))?
        {
            let damaged = DamagedFile { path: dir.shown().join(name), why, sha256: sha256.clone() };
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(*at, damaged);
        }
        Ok(())
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

/// A repair of a committed dataset.
pub struct Repair<'a> {
    /// The writer of the dataset.
    pub writer: &'a DatasetWriter,
    /// Bytes of `tokenizer.json`.
    pub tokenizer_json: Option<&'a [u8]>,
    /// Writes those of the given units again that are not finished.
    pub write: &'a dyn Fn(Vec<u32>) -> Result<()>,
    /// Returns what a unit is made from, for messages.
    pub made_from: &'a dyn Fn(u32) -> String,
    /// Takes a message for the user.
    pub note: &'a dyn Fn(String),
    /// Threads that hash files.
    pub workers: &'a Workers,
    /// Request to stop.
    pub stop: &'a Stop,
}

impl Repair<'_> {
    /// Regenerates damaged files. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if a regenerated file has other bytes than the committed one. If
    /// sources cannot be read, the same error as that of a run.
    pub fn run(&self, manifest: &Manifest) -> Result<u64> {
        let mut count = 0;
        let find = || {
            let damaged =
                damaged_files(self.writer.dir(), manifest, CheckLevel::Hashes, self.workers, self.stop)?;
            damaged.iter().try_for_each(DamagedFile::check_place)?;
            Ok::<_, Error>(damaged)
        };
        let mut damaged = find()?;
        let mut others: Vec<_> = damaged.extract_if(.., |file| file.unit().is_none()).collect();
        if !others.is_empty() {
            count += others.len() as u64;
            self.restore_tokenizer(&mut others)?;
            self.replace_derived(others)?;
            // With the shard table restored, all shards can be checked.
            damaged = find()?;
        }
        count += damaged.len() as u64;
        let shards: Vec<_> = damaged.iter().filter_map(|file| Some((file.unit()?, file))).collect();
        if !shards.is_empty() {
            self.replace_shards(&shards)?;
        }
        // An earlier repair may have died before the directory entries of the files that it replaced were durable.
        self.writer.dir().sync_files(manifest)?;
        Ok(count)
    }

    /// Writes the tokenizer again if it is damaged, and removes it from `damaged`.
    fn restore_tokenizer(&self, damaged: &mut Vec<DamagedFile>) -> Result<()> {
        let path = self.writer.dir().path().join(TOKENIZER_NAME);
        let Some(at) = damaged.iter().position(|file| file.path == path) else { return Ok(()) };
        let file = damaged.swap_remove(at);
        match self.tokenizer_json.filter(|json| hex(&Sha256::digest(json)) == file.sha256) {
            Some(json) => {
                (self.note)(format!("{TOKENIZER_NAME} {} and is written again", file.why));
                write_file(&path, json).map(drop)
            }
            None => {
                let why = "`tokenizer` is not the file that was committed";
                Err(not_reproducible(why, &file, convert_again(damaged)))
            }
        }
    }

    /// Regenerates indexes and lists from all units.
    fn replace_derived(&self, damaged: Vec<DamagedFile>) -> Result<()> {
        if damaged.is_empty() {
            return Ok(());
        }
        let out = self.writer.dir().path();
        for file in &damaged {
            let shown = file.path.strip_prefix(out).unwrap_or(&file.path).display();
            (self.note)(format!("{shown} {}: it is regenerated from all units", file.why));
        }
        let dirs = self.writer.dirs();
        self.write((0..self.writer.units().count).collect())?;
        let units = (0..self.writer.units().count).map(|unit| dirs.result(unit, &self.writer.units().plan));
        let staged = self.writer.dir().staged();
        let units = units.collect::<Result<Vec<_>>>()?;
        let made = FinishedUnits { writer: self.writer, units: &units }.write_derived()?;
        // All files are compared before the first is replaced: a difference shows that the conversion is not the same.
        let mut replacements = Vec::new();
        for file in &damaged {
            let name = file.path.strip_prefix(out).ok().and_then(Path::to_str);
            match name.filter(|name| made.sha256(name) == Some(&file.sha256)) {
                Some(name) => replacements.push((staged.join(name), &file.path)),
                None => {
                    return Err(not_reproducible(
                        "the regenerated units differ from the committed ones",
                        file,
                        convert_again(&damaged),
                    ));
                }
            }
        }
        replacements.iter().try_for_each(|(made, path)| replace(made, path))
    }

    /// Writes `units` again, except those that an interrupted repair has already written.
    fn write(&self, units: Vec<u32>) -> Result<()> {
        let dirs = self.writer.dirs();
        self.writer.dir().remove_leftovers()?;
        // An interrupted repair may have planned the sources with other times. Its units are not needed: what is made
        // now has to equal the committed files in any case.
        for &unit in &units {
            if dirs
                .read(unit, &self.writer.units().plan)
                .is_err_and(|error| error.kind() == ErrorKind::Corrupt)
            {
                dirs.remove(unit)?;
            }
        }
        (self.write)(units)
    }

    /// Regenerates damaged shards, given with their units.
    fn replace_shards(&self, shards: &[(u32, &DamagedFile)]) -> Result<()> {
        let units: BTreeSet<u32> = shards.iter().map(|(unit, _)| *unit).collect();
        for (unit, file) in shards {
            let (name, sources) = (file.path.file_name().unwrap_or_default(), (self.made_from)(*unit));
            let (name, why) = (name.display(), &file.why);
            (self.note)(format!("{name} {why}: unit {unit} is converted again, from {sources}"));
        }
        let dirs = self.writer.dirs();
        self.write(units.into_iter().collect())?;
        // All shards are compared before the first is replaced: a difference shows that the conversion is not the same.
        let made = shards.iter().map(|(unit, file)| self.regenerated_shard(dirs, *unit, file));
        let made = made.collect::<Result<Vec<_>>>()?;
        made.iter().zip(shards).try_for_each(|(made, (_, file))| replace(made, &file.path))
    }

    /// Returns the path of the regenerated shard.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if its bytes are not those that were committed.
    fn regenerated_shard(&self, dirs: &UnitDirs, unit: u32, file: &DamagedFile) -> Result<PathBuf> {
        let result = dirs.result(unit, &self.writer.units().plan)?;
        let has_same = |split: &UnitSplit| {
            let is_same = |made: &UnitShard| {
                made.sha256 == file.sha256 && file.path.ends_with(shard_path(&split.name, &made.name))
            };
            split.shards.iter().any(is_same)
        };
        match file.path.file_name().filter(|_| result.splits.iter().any(has_same)) {
            Some(name) => Ok(dirs.done(unit).join(name)),
            None => Err(not_reproducible(
                &format!("the regenerated unit {unit} differs from the committed one"),
                file,
                // The shard table is intact, or the damaged shard would not be known.
                convert_again(&[]),
            )),
        }
    }
}

/// Returns the error for a file that cannot be regenerated with the committed bytes.
fn not_reproducible(why: &str, file: &DamagedFile, convert_again: &str) -> Error {
    Error::corrupt(format!("{why}, so this file was not replaced")).at_path(&file.path).help(format!(
        "the sources or the build of dsconvert changed since the commit: restore the file, or {convert_again}"
    ))
}

/// Moves the file `made` to its final location, durably.
fn replace(made: &Path, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        create_dir(folder)?;
    }
    rename(made, path)
}
