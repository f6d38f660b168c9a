//! Checking a committed dataset, and repairing it: the units of damaged shards are converted again.
//!
//! A file is replaced only by the bytes that were committed: size and SHA-256 are those that the dataset lists. The dataset
//! stays committed all the time, and a repair that was interrupted goes on with the units that it has finished.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::conversion::Conversion;
use super::finished::{Check, UnitDirs, difference};
use super::job_file::{JobHeader, StoredJob};
use super::output::OutputDir;
use super::progress::{Progress, Stop};
use super::unit::unit_of_shard;
use super::units::Units;
use super::workers::on_threads;
use crate::error::{Error, Result};
use crate::manifest::{Manifest, TOKENIZER_NAME};
use crate::options::RunOptions;
use crate::source::warning::listed;
use crate::storage::{create_dir, hex, rename, write_file};

/// A file of a committed dataset that is not what was written.
pub(super) struct DamagedFile {
    path: PathBuf,
    /// As in "this file …".
    why: String,
    sha256: String,
}

impl DamagedFile {
    fn into_error(self) -> Error {
        Error::corrupt(format!("the dataset is committed, but this file {}", self.why)).at_path(self.path)
    }

    /// As a shard; `None` when it is another file.
    fn as_shard(&self) -> Option<DamagedShard<'_>> {
        let name = self.path.file_name()?.to_str()?;
        let split = self.path.parent()?.file_name()?.to_str()?;
        Some(DamagedShard { file: self, split, name, unit: unit_of_shard(name)? })
    }
}

/// A shard that has to be made again.
struct DamagedShard<'a> {
    file: &'a DamagedFile,
    split: &'a str,
    name: &'a str,
    /// The unit it was made from.
    unit: u32,
}

/// The error of a dataset with damaged files, for a run that does not repair.
pub(super) fn refused(mut damaged: Vec<DamagedFile>) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let count = damaged.len();
    let first = damaged.swap_remove(0);
    let help = match (first.as_shard().is_some(), count) {
        (true, 1) => "repair it with --resume=repair, or convert again with --overwrite".to_owned(),
        (true, _) => format!(
            "{count} files are damaged: repair them with --resume=repair, or convert again with --overwrite"
        ),
        (false, _) => "restore the file, or convert again with --overwrite".to_owned(),
    };
    Err(first.into_error().help(help))
}

/// The files of the dataset that are not what was written: indexes and lists first, then shards in their order.
pub(super) fn damaged_files(
    dir: &OutputDir,
    manifest: &Manifest,
    check: Check,
    threads: usize,
    stop: &Stop,
) -> Result<Vec<DamagedFile>> {
    if let Some(remote) = dir.remote() {
        let found = remote.find_damaged(manifest, &dir.work(), stop)?;
        let damaged = found.into_iter().map(|(name, why)| DamagedFile {
            path: dir.shown().join(name),
            why,
            sha256: String::new(),
        });
        return Ok(damaged.collect());
    }
    let files = dir.files_of(manifest)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((path, bytes, sha256)) = files.get(place) else { return Ok(()) };
            stop.check()?;
            if let Some(why) = difference(path, *bytes, (check == Check::Hashes).then_some(sha256))? {
                let damaged = DamagedFile { path: path.clone(), why, sha256: sha256.clone() };
                found.lock().unwrap_or_else(PoisonError::into_inner).push((place, damaged));
            }
        }
    };
    on_threads(threads.max(1), "checking the dataset", stop, &work)?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, damaged)| damaged).collect())
}

/// A repair of a committed dataset.
#[derive(Clone, Copy)]
pub(super) struct Repair<'a> {
    pub(super) dir: &'a OutputDir,
    pub(super) header: &'a JobHeader,
    pub(super) run: &'a RunOptions,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a Stop,
}

impl Repair<'_> {
    /// Makes the files in `damaged` again. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) for files that cannot be made one by one, and when a shard comes out
    /// with other bytes than it was committed with; as a run, when sources cannot be read.
    pub(super) fn run<J: StoredJob, C: Conversion>(
        &self,
        job: &J,
        conversion: &C,
        damaged: Vec<DamagedFile>,
    ) -> Result<u64> {
        let count = damaged.len() as u64;
        let (files, others): (Vec<_>, Vec<_>) =
            damaged.into_iter().partition(|file| file.as_shard().is_some());
        for file in others {
            self.restore_tokenizer(job.tokenizer_json(), file)?;
        }
        let shards: Vec<_> = files.iter().filter_map(DamagedFile::as_shard).collect();
        self.replace_shards(job, conversion, &shards)?;
        Ok(count)
    }

    /// Of the files that are not shards, only the tokenizer can be made without a whole conversion.
    fn restore_tokenizer(&self, json: Option<&[u8]>, file: DamagedFile) -> Result<()> {
        let same = |json: &&[u8]| hex(&Sha256::digest(json)) == file.sha256;
        match json.filter(same).filter(|_| file.path == self.dir.path().join(TOKENIZER_NAME)) {
            Some(json) => {
                self.progress.note(format!("{TOKENIZER_NAME} {} and is written again", file.why));
                write_file(&file.path, json).map(drop)
            }
            None => Err(file.into_error().help(
                "only shards and the tokenizer can be repaired: restore the file, or convert again with --overwrite",
            )),
        }
    }

    fn replace_shards<J: StoredJob, C: Conversion>(
        &self,
        job: &J,
        conversion: &C,
        shards: &[DamagedShard<'_>],
    ) -> Result<()> {
        let wanted: BTreeSet<u32> = shards.iter().map(|shard| shard.unit).collect();
        for DamagedShard { file, name, unit, .. } in shards {
            let sources = listed(job.files_of_unit(*unit).iter().map(|file| file.origin.clone()));
            self.progress
                .note(format!("{name} {}: unit {unit} is converted again, from {sources}", file.why));
        }
        let dirs = UnitDirs::new(&self.dir.work());
        dirs.remove_leftovers()?;
        let units = Units { header: self.header, out: self.dir.path(), dirs: &dirs, remote: None };
        let todo = units.unfinished(
            wanted.into_iter().collect(),
            Check::Hashes,
            self.run.threads,
            self.progress,
            self.stop,
        )?;
        units.convert(conversion, todo, self.run, self.progress, self.stop)?;
        // All are compared before the first is replaced: a shard that differs says that the conversion is another one.
        let made = shards.iter().map(|shard| self.made_again(&dirs, shard)).collect::<Result<Vec<_>>>()?;
        for (made, shard) in made.iter().zip(shards) {
            let path = &shard.file.path;
            if let Some(folder) = path.parent() {
                create_dir(folder)?;
            }
            rename(made, path)?;
        }
        Ok(())
    }

    /// Where the shard is that its unit came out with, when it has the bytes that were committed.
    fn made_again(&self, dirs: &UnitDirs, shard: &DamagedShard<'_>) -> Result<PathBuf> {
        let &DamagedShard { file, split, name, unit } = shard;
        let result = dirs.result(unit, &self.header.plan)?;
        let splits = result.splits.iter().filter(|made| made.name == split);
        let same = splits.flat_map(|split| &split.shards).find(|made| made.name == name);
        match same.filter(|made| made.sha256 == file.sha256) {
            Some(_) => Ok(dirs.done(unit).join(name)),
            None => Err(Error::corrupt(format!(
                "unit {unit} does not come out as it was committed, so this shard stays as it is"
            ))
            .at_path(&file.path)
            .help(
                "the content of the sources, or the build of dsconvert, is another one than at the time: \
                 restore the file, or convert again with --overwrite",
            )),
        }
    }
}
