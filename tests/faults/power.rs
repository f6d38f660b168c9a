//! Power cuts: checks the files that each one leaves, and finishes the conversion from them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::disk::{Content, Disk, Loss, content_of, visible};
use crate::inject::{Action, Fault, Library, run_all, run_plainly};
use crate::random::Random;
use crate::record::{Recording, log_of, read_ops};
use crate::scenario::{copy, describe, differences, merge_command, path, remove, run_command};
use crate::tree::{Tree, tree};

/// Maximum number of attempts to record a killed run: a thread may be killed between its call and the record of it.
const ATTEMPTS: usize = 10;

/// The commands of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// `images` or `text`, with this option for the initial content of the output directory.
    Convert(&'static str),
    /// `plan`, two `run`s at the same time, `merge`.
    Parts,
}

/// A conversion whose file system calls are recorded.
pub struct PowerCase {
    pub name: String,
    kind: &'static str,
    source: PathBuf,
    options: String,
    steps: Steps,
    /// A directory with the initial content of the output directory, and its visible files.
    before: Option<(PathBuf, Tree)>,
    /// The output of an undisturbed run.
    whole: Tree,
}

/// How many power cuts are tried.
#[derive(Debug, Clone, Copy)]
pub struct Cuts {
    /// Power cuts per recording after which the conversion is finished; `None` for all.
    pub finished: Option<usize>,
    /// Kills per case after which it is recorded again; `None` for one of each kind.
    pub kills: Option<usize>,
}

/// Results of one case.
#[derive(Debug, Default)]
pub struct Tried {
    pub recordings: usize,
    pub calls: usize,
    /// Number of contents of the disk that were checked.
    pub checked: usize,
    /// Number of contents from which the conversion was finished.
    pub finished: usize,
    pub failures: Vec<String>,
}

impl PowerCase {
    /// Creates a case with sources and options, in `root`. `before` is the initial output directory.
    pub fn new(
        name: &str,
        root: &Path,
        (kind, source, options): (&'static str, &Path, &str),
        steps: Steps,
        before: Option<PathBuf>,
    ) -> Self {
        let (name, source, options) = (name.to_owned(), source.to_owned(), options.to_owned());
        let mut case = Self { name, kind, source, options, steps, before: None, whole: Tree::new() };
        case.before = before.map(|dir| {
            let mut files = tree(&dir);
            files.retain(|name, _| !name.starts_with(".dsconvert/"));
            (dir, files)
        });
        let whole = root.join("whole");
        remove(&whole);
        let ran = run_plainly(&case.convert(&whole, ""));
        assert_eq!(ran.status, Some(0), "{}: {}", case.name, ran.stderr);
        case.whole = tree(&whole);
        case
    }

    fn convert(&self, out: &Path, more: &str) -> Vec<String> {
        let mut args = vec![self.kind.to_owned(), path(&self.source), "--out".to_owned(), path(out)];
        args.extend(self.options.split_whitespace().chain(more.split_whitespace()).map(str::to_owned));
        args
    }

    fn plan(&self, out: &Path, more: &str) -> Vec<String> {
        let mut args = self.convert(out, more);
        args.insert(0, "plan".to_owned());
        args
    }

    /// Returns the commands of each step. The commands of one step run at the same time.
    fn steps(&self, out: &Path) -> Vec<Vec<Vec<String>>> {
        match self.steps {
            Steps::Convert(how) => vec![vec![self.convert(out, how)]],
            Steps::Parts => {
                let part = |part: &str| {
                    run_command(out).into_iter().chain(["--part".to_owned(), part.to_owned()]).collect()
                };
                vec![vec![self.plan(out, "")], vec![part("1/2"), part("2/2")], vec![merge_command(out)]]
            }
        }
    }

    /// Returns the commands that finish the conversion after `done` steps. With `is_old`, the initial content is still
    /// there.
    fn rest(&self, out: &Path, done: usize, is_old: bool) -> Vec<Vec<String>> {
        match self.steps {
            // The dataset of other options is still whole, or its removal continues.
            Steps::Convert("--overwrite") if is_old => vec![self.convert(out, "--overwrite")],
            Steps::Convert("--resume=repair") => vec![self.convert(out, "--resume=repair")],
            Steps::Convert(_) => vec![self.convert(out, "--resume")],
            Steps::Parts => {
                let all = [self.plan(out, "--resume"), run_command(out), merge_command(out)];
                all.into_iter().skip(done.min(2)).collect()
            }
        }
    }

    /// Tries power cuts. Everything happens below `disk`.
    pub fn try_all(&self, library: &Library, disk: &Path, cuts: Cuts, seed: u64) -> Tried {
        let mut random = Random::new(&self.name, seed);
        let mut tried = Tried::default();
        let recording = self.record(library, disk);
        self.cut(&recording, disk, cuts.finished, &mut random, &mut tried);
        let mut kills = self.kills(library, disk);
        if let Some(limit) = cuts.kills {
            random.shuffle(&mut kills);
            // Always keeps the kills that decide whether a dataset or a finished unit exists, and the first `mkdir`.
            let is_key = |(_, _, what): &(usize, Fault, String)| {
                ["/manifest.json", "/pending.json", "/attempt", "/out"].iter().any(|end| what.ends_with(end))
            };
            let (mut chosen, mut others): (Vec<_>, Vec<_>) = kills.into_iter().partition(is_key);
            others.truncate(limit);
            chosen.append(&mut others);
            kills = chosen;
        }
        let finished = cuts.finished.map(|limit| limit.div_ceil(5));
        for (step, fault, what) in kills {
            let name = format!("{}, killed after {what} ({fault})", self.name);
            match self.record_after_kill(library, disk, step, &fault, name) {
                Ok(recording) => self.cut(&recording, disk, finished, &mut random, &mut tried),
                Err(failure) => tried.failures.push(failure),
            }
        }
        tried
    }

    /// Empties `disk` and returns the path of the output directory on it, with its initial content.
    fn reset(&self, disk: &Path) -> PathBuf {
        remove(disk);
        std::fs::create_dir_all(disk).unwrap();
        let out = disk.join("out");
        if let Some((before, _)) = &self.before {
            copy(before, &out);
        }
        out
    }

    /// Records all steps.
    fn record(&self, library: &Library, disk: &Path) -> Recording {
        let out = self.reset(disk);
        let (initial, mut ops, mut ends) = (content_of(disk), Vec::new(), BTreeMap::new());
        for (step, commands) in self.steps(&out).iter().enumerate() {
            let log = log_of(disk);
            for ran in run_all(commands.iter().map(|args| library.recorded(args, disk, &log))) {
                assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
            }
            ops.extend(read_ops(&log, disk));
            ends.insert(ops.len(), step + 1);
        }
        let recording = Recording { name: self.name.clone(), initial, ops, first_cut: 0, ends };
        assert!(recording.ops.len() > 50, "{}: the library was not loaded", self.name);
        assert!(
            recording.replayed() == content_of(disk),
            "{}: calls are missing in the recording",
            self.name
        );
        recording
    }

    /// Returns kills after calls that change a directory and are not synced yet, one for each group of similar files:
    /// step, fault, call.
    fn kills(&self, library: &Library, disk: &Path) -> Vec<(usize, Fault, String)> {
        let out = self.reset(disk);
        let log = log_of(disk);
        let (mut kills, mut seen) = (Vec::new(), BTreeSet::new());
        for (step, commands) in self.steps(&out).iter().enumerate() {
            for args in commands {
                let ran = library.run(args, &[disk], None, &log);
                assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
                let mut counts = BTreeMap::new();
                for (kind, path) in ran.log.lines().filter_map(|line| line.split_once(' ')) {
                    let nth = *counts.entry(kind).and_modify(|count| *count += 1).or_insert(1);
                    let Some(kind) = ["rename", "mkdir", "unlink"].into_iter().find(|&known| known == kind)
                    else {
                        continue;
                    };
                    let what = format!("{kind} {}", without_numbers(&path[path_length(disk)..]));
                    if seen.insert((step, what.clone())) {
                        kills.push((step, Fault { kind, nth, action: Action::KillAfter }, what));
                    }
                }
            }
        }
        kills
    }

    /// Records a step that is killed by `fault`, and then the commands that finish the conversion.
    fn record_after_kill(
        &self,
        library: &Library,
        disk: &Path,
        step: usize,
        fault: &Fault,
        name: String,
    ) -> Result<Recording, String> {
        for _ in 0..ATTEMPTS {
            let out = self.reset(disk);
            let steps = self.steps(&out);
            for args in steps[..step].iter().flatten() {
                let ran = run_plainly(args);
                assert_eq!(ran.status, Some(0), "{name}: {}", ran.stderr);
            }
            let initial = content_of(disk);
            let log = log_of(disk);
            let _killed = library.recorded_until(&steps[step][0], disk, &log, fault);
            let ops = read_ops(&log, disk);
            let first_cut = ops.len();
            let ends = BTreeMap::from([(first_cut, step)]);
            let mut recording = Recording { name: name.clone(), initial, ops, first_cut, ends };
            if recording.replayed() != content_of(disk) {
                continue;
            }
            let is_old = self.before.as_ref().is_some_and(|(_, old)| visible(&content_of(disk)) == *old);
            for (i, args) in self.rest(&out, step, is_old).iter().enumerate() {
                let log = log_of(disk);
                for ran in run_all([library.recorded(args, disk, &log)]) {
                    if ran.status != Some(0) {
                        return Err(format!("{name}; then {}", describe(&args.join(" "), &ran)));
                    }
                }
                recording.ops.extend(read_ops(&log, disk));
                recording.ends.insert(recording.ops.len(), step + i + 1);
            }
            assert!(recording.replayed() == content_of(disk), "{name}: calls are missing in the recording");
            return Ok(recording);
        }
        Err(format!("{name}: the calls of the killed process were never recorded completely"))
    }

    /// Cuts the power after every call of a recording, and finishes the conversion from some of the resulting contents.
    fn cut(
        &self,
        recording: &Recording,
        place: &Path,
        limit: Option<usize>,
        random: &mut Random,
        tried: &mut Tried,
    ) {
        let mut disk = Disk::new(&recording.initial);
        recording.ops[..recording.first_cut].iter().for_each(|op| disk.apply(op));
        let (mut left, mut promised, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for cut in recording.first_cut..=recording.ops.len() {
            if cut > recording.first_cut {
                disk.apply(&recording.ops[cut - 1]);
            }
            for loss in Loss::ALL {
                let content = disk.after_power_cut(loss, &mut |below| random.below(below));
                let done = recording.steps_done(cut);
                let mut hash = DefaultHasher::new();
                (&content, done).hash(&mut hash);
                if !seen.insert(hash.finish()) {
                    continue;
                }
                tried.checked += 1;
                let name = format!(
                    "{}, power cut after call {cut} of {} ({}), {loss:?} lost",
                    recording.name,
                    recording.ops.len(),
                    cut.checked_sub(1).map_or_else(String::new, |last| recording.ops[last].to_string()),
                );
                match self.check(&content, done) {
                    // A step that has ended with exit status 0 is never repeated.
                    Ok(()) if loss == Loss::Everything && recording.ends.contains_key(&cut) => {
                        promised.push((name, content, done));
                    }
                    Ok(()) => left.push((name, content, done)),
                    Err(why) => tried.failures.push(format!("{name}: {why}")),
                }
            }
        }
        tried.recordings += 1;
        tried.calls += recording.ops.len();
        random.shuffle(&mut left);
        left.truncate(limit.unwrap_or(usize::MAX));
        left.extend(promised);
        for (name, content, done) in left {
            tried.finished += 1;
            if let Err(why) = self.finish(&content, done, place) {
                tried.failures.push(format!("{name}: {why}"));
            }
        }
    }

    /// Checks the files that a power cut leaves after `done` finished steps.
    fn check(&self, content: &Content, done: usize) -> Result<(), String> {
        let left = visible(content);
        let is_done = done >= if self.steps == Steps::Parts { 3 } else { 1 };
        if left == self.whole {
            return Ok(());
        }
        if is_done {
            return Err(format!("exit status 0, but: {}", differences(&left, &self.whole)));
        }
        if !left.contains_key("manifest.json") {
            return Ok(());
        }
        let is_allowed = self.before.as_ref().is_some_and(|(_, old)| match self.steps {
            // Files are replaced one by one.
            Steps::Convert("--resume=repair") => left
                .iter()
                .all(|(name, bytes)| [&self.whole, old].iter().any(|tree| tree.get(name) == Some(bytes))),
            _ => left == *old,
        });
        match is_allowed {
            true => Ok(()),
            false => Err(format!("an incomplete dataset: {}", differences(&left, &self.whole))),
        }
    }

    /// Finishes the conversion from the files that a power cut leaves.
    fn finish(&self, content: &Content, done: usize, disk: &Path) -> Result<(), String> {
        remove(disk);
        std::fs::create_dir_all(disk).unwrap();
        for (name, bytes) in content {
            match bytes {
                None => std::fs::create_dir_all(disk.join(name)).unwrap(),
                Some(bytes) => std::fs::write(disk.join(name), &**bytes).unwrap(),
            }
        }
        let out = disk.join("out");
        let is_old = self.before.as_ref().is_some_and(|(_, old)| visible(content) == *old);
        for args in self.rest(&out, done, is_old) {
            let ran = run_plainly(&args);
            if ran.status != Some(0) {
                return Err(describe(&args.join(" "), &ran));
            }
        }
        let left = tree(&out);
        if left != self.whole || out.join(".dsconvert").exists() {
            return Err(format!("ended with different bytes: {}", differences(&left, &self.whole)));
        }
        Ok(())
    }
}

fn path_length(path: &Path) -> usize {
    path.to_str().unwrap().len()
}

/// Removes from a path what distinguishes units, parts and attempts.
fn without_numbers(path: &str) -> String {
    let names = path.split('/').map(|name| match name.starts_with("attempt-") {
        true => "attempt".to_owned(),
        false => name.chars().filter(|c| !c.is_ascii_digit()).collect(),
    });
    names.collect::<Vec<String>>().join("/")
}
