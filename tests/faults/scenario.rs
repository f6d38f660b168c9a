//! Scenarios: a command, the initial content of its output directory, and the checks after a fault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::inject::{Action, Fault, Library, Ran, counts, run_plainly, start_plainly};
use crate::sources::{write_images, write_tables, write_text};
use crate::tree::{Tree, tree};

/// How a run with a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Succeeded,
    Failed,
    Killed,
    /// The run made fewer calls than the one that counted them.
    NotFired,
}

/// The command under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    /// `images` or `text`.
    Convert,
    /// `inspect --verify`, with these options.
    Verify(&'static str),
    /// `plan images` or `plan text`.
    Plan,
    /// `run` of all units.
    Run,
    /// The same, while another process converts the same units.
    RunBeside,
    /// `merge` of finished units.
    Merge,
    /// `--resume=repair` of a dataset with damaged shards.
    Repair,
    /// `export`.
    Export,
}

/// Initial content of the output directory.
enum Before {
    Nothing,
    /// A plan.
    Planned,
    /// A plan whose units are finished.
    Converted,
    /// A run that was killed after this percentage of its renames.
    KilledRun(u32),
    /// The finished dataset.
    Finished,
    /// The dataset with an altered first shard and without its last one.
    Damaged,
    /// The same, with an altered shard table.
    DamagedIndex,
    /// A dataset with other options.
    Other(&'static str),
    /// The same, after an overwrite that was killed after this percentage of its unlinks.
    KilledOverwrite(&'static str, u32),
}

pub struct Scenario {
    pub name: String,
    root: PathBuf,
    source: PathBuf,
    kind: &'static str,
    options: String,
    before: Before,
    tested: Tested,
    /// Copy of the initial output directory.
    template: Option<PathBuf>,
    /// Initial content of the output directory, if it is a dataset.
    old: Option<Tree>,
    /// Output of an undisturbed run.
    whole: Tree,
}

/// The index that lists all shards.
pub const SHARD_TABLE: &str = "index/shards.arrow";
pub const TEXT: &str = "--tokenizer bytes --unit-bytes 4096 --shard-records 8";
pub const RICH: &str = "--tokenizer bytes --unit-bytes 4096 --shard-records 4 --dedup exact --shuffle --pack 64 \
                    --filter-length 4:400 --split train=0.7,validation=0.3 --max-rejects 50%";
pub const KEYED: &str = "--tokenizer bytes --unit-bytes 4096 --key-field id --keep-fields id:int64";
pub const IMAGES: &str = "--unit-bytes 4096 --shard-records 2 --encode keep --max-rejects 50%";
const COPIES: &str = "--unit-bytes 4096 --encode keep --max-rejects 50% --dedup bytes --shuffle";

/// Returns all scenarios, which are small enough that every call of a run can fail.
pub fn all(root: &Path) -> Vec<Scenario> {
    let text = root.join("text");
    let tables = root.join("tables");
    // A dataset that has the documents of the first file.
    let old = root.join("excluded");
    write_text(&root.join("part/text"), 1);
    let part = words(&["text", &path(&root.join("part/text")), "--out", &path(&old), "--tokenizer", "bytes"]);
    assert_eq!(run_plainly(&part).status, Some(0));
    let images = root.join("images");
    write_text(&text, 2);
    write_tables(&tables);
    write_images(&images);
    let mut all = Vec::new();
    let mut add = |kind, source: &Path, options: &str, before| {
        all.push(Scenario::new(root, kind, source, options, before));
    };
    for format in ["msgpack", "parquet", "arrow", "protobuf"] {
        let with = |options: &str| format!("{options} --format {format}");
        add("text", &text, &with(TEXT), Before::Nothing);
        add("text", &text, &with(RICH), Before::Nothing);
        add("text", &text, &with(KEYED), Before::Nothing);
        add("images", &images, &with(IMAGES), Before::Nothing);
        add("images", &images, &with(COPIES), Before::Nothing);
        add("text", &text, &with(TEXT), Before::KilledRun(40));
        add("text", &text, &with(RICH), Before::KilledRun(90));
        add("images", &images, &with(COPIES), Before::KilledRun(85));
        add("text", &text, &with(TEXT), Before::Finished);
        add("text", &text, &with(&format!("{TEXT} --resume=verify")), Before::Finished);
        add("text", &text, &with(TEXT), Before::Other(RICH));
        add("images", &images, &with(IMAGES), Before::Other(COPIES));
        add("text", &text, &with(TEXT), Before::KilledOverwrite(RICH, 20));
    }
    for (format, options, kind, source) in [
        ("msgpack", RICH, "text", &text),
        ("parquet", KEYED, "text", &text),
        ("protobuf", IMAGES, "images", &images),
    ] {
        for (tested, before) in [
            (Tested::Plan, Before::Nothing),
            (Tested::Run, Before::Planned),
            (Tested::RunBeside, Before::Planned),
            (Tested::Merge, Before::Converted),
        ] {
            let options = format!("{options} --format {format}");
            let scenario = Scenario::new(root, kind, source, &options, before);
            all.push(scenario.of(tested, &format!("{tested:?} {kind} {options}").to_lowercase()));
        }
    }
    for (format, options, kind, source, before) in [
        ("msgpack", RICH, "text", &text, Before::Damaged),
        ("parquet", IMAGES, "images", &images, Before::Damaged),
        ("arrow", RICH, "text", &text, Before::DamagedIndex),
    ] {
        let options = format!("{options} --format {format}");
        let scenario = Scenario::new(root, kind, source, &options, before);
        all.push(scenario.of(Tested::Repair, &format!("repair {kind} {options}")));
    }
    let mut add = |kind, source: &Path, options: &str, before| {
        all.push(Scenario::new(root, kind, source, options, before));
    };
    add("text", &tables, "--tokenizer bytes --max-rejects 50%", Before::Nothing);
    add("text", &text, &format!("{TEXT} --format msgpack --exclude {}", path(&old)), Before::Nothing);
    let exported = root.join("exported");
    let options = words(&["--tokenizer", "bytes", "--shard-records", "8"]);
    let made = [words(&["text", &path(&text), "--out", &path(&exported)]), options].concat();
    assert_eq!(run_plainly(&made).status, Some(0));
    for (options, before) in [
        ("--to tokens", Before::Nothing),
        ("--to tokens --layout olmo --parts 2", Before::Nothing),
        ("--to megatron --parts 3", Before::Nothing),
        ("--to megatron --mixture 1 --epoch-steps 30 --parts 2", Before::Nothing),
        ("--to webdataset --parts 2", Before::Nothing),
        ("--to hf", Before::Nothing),
        ("--to megatron --parts 3", Before::KilledRun(40)),
        ("--to hf --parts 2", Before::KilledRun(90)),
    ] {
        let scenario = Scenario::new(root, "export", &exported, options, before);
        let name = scenario.name.clone();
        all.push(scenario.of(Tested::Export, &name));
    }
    for (access, format) in
        [("", "msgpack"), ("--no-mmap", "msgpack"), ("", "parquet"), ("--no-mmap", "arrow")]
    {
        let options = format!("{TEXT} --format {format}");
        let scenario = Scenario::new(root, "text", &text, &options, Before::Finished);
        all.push(scenario.of(Tested::Verify(access), &format!("inspect --verify {access} {format}")));
    }
    all
}

impl Scenario {
    fn new(root: &Path, kind: &'static str, source: &Path, options: &str, before: Before) -> Self {
        let doing = match &before {
            Before::Nothing | Before::Planned | Before::Converted => "convert".to_owned(),
            Before::KilledRun(at) => format!("resume after a kill at {at}%"),
            Before::Finished | Before::Damaged | Before::DamagedIndex => "resume when finished".to_owned(),
            Before::Other(_) => "overwrite".to_owned(),
            Before::KilledOverwrite(_, at) => format!("resume an overwrite killed at {at}%"),
        };
        Self {
            name: format!("{doing} {kind} {options}"),
            root: root.to_owned(),
            source: source.to_owned(),
            kind,
            options: format!("{options} --threads 1"),
            before,
            tested: Tested::Convert,
            template: None,
            old: None,
            whole: Tree::new(),
        }
    }

    fn of(self, tested: Tested, name: &str) -> Self {
        Self { tested, name: name.to_owned(), ..self }
    }

    fn args(&self, out: &Path, options: &str, more: &str) -> Vec<String> {
        let mut args = vec![self.kind.to_owned(), path(&self.source), "--out".to_owned(), path(out)];
        args.extend(options.split_whitespace().chain(more.split_whitespace()).map(str::to_owned));
        args
    }

    fn plan(&self, out: &Path, more: &str) -> Vec<String> {
        let mut args = self.args(out, &self.options, more);
        args.insert(0, "plan".to_owned());
        args
    }

    /// Returns the command under test.
    fn command(&self, out: &Path) -> Vec<String> {
        match self.tested {
            Tested::Verify(access) => words(&["inspect", &path(out), "--verify", "--threads=1"])
                .into_iter()
                .chain(access.split_whitespace().map(str::to_owned))
                .collect(),
            Tested::Plan => self.plan(out, ""),
            Tested::Run | Tested::RunBeside => run_command(out),
            Tested::Merge => merge_command(out),
            Tested::Repair => self.args(out, &self.options, "--resume=repair"),
            Tested::Convert | Tested::Export => {
                let how = match self.before {
                    Before::Nothing => "",
                    _ if self.options.contains("--resume") => "",
                    Before::Other(_) => "--overwrite",
                    _ => "--resume",
                };
                self.args(out, &self.options, how)
            }
        }
    }

    /// Returns the commands that finish the dataset after a fault. After exit status 0, the work of the command itself
    /// is not repeated.
    fn commands_to_finish(&self, out: &Path, end: End, is_old: bool) -> Vec<Vec<String>> {
        let again = end != End::Succeeded;
        match self.tested {
            Tested::Plan if again => vec![self.plan(out, "--resume"), run_command(out), merge_command(out)],
            Tested::Plan => vec![run_command(out), merge_command(out)],
            Tested::Run | Tested::RunBeside if again => vec![run_command(out), merge_command(out)],
            Tested::Run | Tested::RunBeside | Tested::Merge => vec![merge_command(out)],
            Tested::Repair => vec![self.command(out)],
            Tested::Convert | Tested::Export | Tested::Verify(_) => {
                // The dataset of other options is still whole, or its removal continues.
                let how = if is_old { "--overwrite" } else { "--resume" };
                vec![self.args(out, &self.options.replace("--resume=verify", ""), how)]
            }
        }
    }

    /// Makes the output of an undisturbed run, and the initial output directory.
    pub fn prepare(&mut self, library: &Library) {
        let options = self.options.replace("--resume=verify", "");
        let out = self.root.join("whole");
        remove(&out);
        let ran = run_plainly(&self.args(&out, &options, ""));
        assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
        if self.tested != Tested::Export {
            let verified = run_plainly(&["inspect".to_owned(), path(&out), "--verify".to_owned()]);
            assert_eq!(verified.status, Some(0), "{}: {}", self.name, verified.stderr);
        }
        self.whole = tree(&out);
        let template = self.root.join("template");
        remove(&template);
        let (log, target) = (self.root.join("template.log"), self.root.join("out-0"));
        remove(&target);
        // Everything runs in the same place, so that templates do not depend on their location.
        let killed = |options: &str, more: &str, kind: &'static str, percent: u32, old: Option<&Path>| {
            old.inspect(|old| copy(old, &target));
            let args = self.args(&target, options, more);
            let all = counts(&library.run(&args, &[&target], None, &log).log)[kind];
            remove(&target);
            old.inspect(|old| copy(old, &target));
            let fault = Fault { kind, nth: (all * percent / 100).max(1), action: Action::KillAfter };
            assert_eq!(library.run(&args, &[&target], Some(&fault), &log).status, None, "{}", self.name);
            copy(&target, &template);
            remove(&target);
        };
        match self.before {
            Before::Nothing => return,
            Before::Planned | Before::Converted => {
                // Everything runs in the same place, because a plan has absolute paths.
                let mut commands = vec![self.plan(&target, "")];
                if matches!(self.before, Before::Converted) {
                    commands.push(run_command(&target));
                }
                for command in commands {
                    let ran = run_plainly(&command);
                    assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
                }
                copy(&target, &template);
                remove(&target);
            }
            Before::Finished => copy(&out, &template),
            Before::Damaged => {
                copy(&out, &template);
                damage(&template);
            }
            Before::DamagedIndex => {
                copy(&out, &template);
                damage(&template);
                alter(&template.join(SHARD_TABLE));
            }
            Before::KilledRun(percent) => killed(&options, "", "rename", percent, None),
            Before::Other(other) | Before::KilledOverwrite(other, _) => {
                let old = self.root.join("old");
                remove(&old);
                // Another format, so that hardly any file has the same name.
                let format = if options.contains("msgpack") { "protobuf" } else { "msgpack" };
                let args = self.args(&old, other, &format!("--format {format}"));
                let ran = run_plainly(&args);
                assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
                match self.before {
                    Before::KilledOverwrite(_, percent) => {
                        killed(&options, "--overwrite", "unlink", percent, Some(&old));
                    }
                    _ => copy(&old, &template),
                }
            }
        }
        self.old = template.join("manifest.json").exists().then(|| tree(&template));
        self.template = Some(template);
    }

    /// Returns the name of the file that is written last.
    fn commit_file(&self) -> &'static str {
        if self.tested == Tested::Export { "export.json" } else { "manifest.json" }
    }

    /// Gives the output directory its initial content.
    fn reset(&self, out: &Path) {
        remove(out);
        if let Some(template) = &self.template {
            copy(template, out);
        }
    }

    /// Runs the command undisturbed, which must succeed, and returns the number of calls of each kind.
    pub fn count_calls(&self, library: &Library) -> BTreeMap<&'static str, u32> {
        let out = self.root.join("out-0");
        self.reset(&out);
        let ran = library.run(&self.command(&out), &[&out, &self.source], None, &self.root.join("log-0"));
        assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
        for command in self.commands_to_finish(&out, End::Succeeded, false) {
            let ran = run_plainly(&command);
            assert_eq!(ran.status, Some(0), "{}: {}", self.name, ran.stderr);
        }
        assert!(tree_if_any(&out) == self.whole, "{}: different bytes without any fault", self.name);
        let counts = counts(&ran.log);
        assert!(counts.values().sum::<u32>() > 50, "{}: the library was not loaded: {counts:?}", self.name);
        counts
    }

    /// Runs the command with `fault`, then finishes the dataset. The error describes what is wrong.
    pub fn survives(&self, library: &Library, fault: &Fault, thread: usize) -> Result<End, String> {
        let out = self.root.join(format!("out-{thread}"));
        self.reset(&out);
        let log = self.root.join(format!("log-{thread}"));
        let beside = (self.tested == Tested::RunBeside).then(|| start_plainly(&run_command(&out)));
        let ran = library.run(&self.command(&out), &[&out, &self.source], Some(fault), &log);
        if let Some(beside) = beside {
            let beside = beside.join().unwrap();
            if beside.status != Some(0) {
                return Err(describe("the concurrent process failed", &beside));
            }
        }
        let end = match (ran.status, fault.action) {
            (Some(0 | 3), _) if ran.log.is_empty() => End::NotFired,
            (Some(0), _) => End::Succeeded,
            (Some(3), _) => End::Failed,
            (None, Action::KillBefore | Action::KillAfter) => End::Killed,
            _ => return Err(describe("ended with an unexpected status", &ran)),
        };
        let verifies = matches!(self.tested, Tested::Verify(_));
        let says_why = ran.stderr.lines().any(|line| line.starts_with("error: "));
        if end == End::Failed && !verifies && !says_why {
            return Err(describe("failed without a message", &ran));
        }
        let mut left = tree_if_any(&out);
        let has_work = left.keys().any(|name| name.starts_with(".dsconvert/"));
        left.retain(|name, _| !name.starts_with(".dsconvert/"));
        let is_whole = left == self.whole;
        let is_old = self.old.as_ref().is_some_and(|old| left == *old);
        // Shards are replaced one by one.
        let is_either = |name: &String, bytes| {
            self.whole.get(name) == Some(bytes)
                || self.old.as_ref().is_some_and(|old| old.get(name) == Some(bytes))
        };
        let is_between =
            self.tested == Tested::Repair && left.iter().all(|(name, bytes)| is_either(name, bytes));
        if left.contains_key(self.commit_file()) && !is_whole && !is_old && !is_between {
            return Err(describe(
                &format!("an incomplete dataset: {}", differences(&left, &self.whole)),
                &ran,
            ));
        }
        if verifies {
            return if is_whole && !has_work {
                Ok(end)
            } else {
                Err(describe("inspect has changed files", &ran))
            };
        }
        let commits =
            matches!(self.tested, Tested::Convert | Tested::Export | Tested::Merge | Tested::Repair);
        if end == End::Succeeded && commits && !is_whole {
            return Err(describe("exit 0 without the dataset", &ran));
        }
        if left.contains_key("manifest.json") && end != End::Succeeded && !is_between {
            let verified = run_plainly(&["inspect".to_owned(), path(&out), "--verify".to_owned()]);
            if verified.status != Some(0) {
                return Err(describe("a manifest, but --verify fails", &verified));
            }
        }
        if is_whole && !has_work && !out.join(".dsconvert").exists() {
            return Ok(end);
        }
        for command in self.commands_to_finish(&out, end, is_old && !is_whole) {
            let next = run_plainly(&command);
            if next.status != Some(0) {
                let what = describe(&command.join(" "), &next);
                return Err(format!("{}; then {what}", describe("was not finished", &ran)));
            }
        }
        let left = tree_if_any(&out);
        if left != self.whole || out.join(".dsconvert").exists() {
            let what = differences(&left, &self.whole);
            return Err(format!("{}; then {what}", describe("ended with different bytes", &ran)));
        }
        Ok(end)
    }
}

/// Alters the first shard of a dataset, and removes the last one.
pub fn damage(dataset: &Path) {
    let files = tree(dataset);
    let is_shard = |name: &&String| name.contains("-0000") && !name.starts_with("index/");
    let mut shards = files.iter().filter(|(name, _)| is_shard(name));
    let (first, _) = shards.next().unwrap();
    let (last, _) = shards.next_back().unwrap();
    alter(&dataset.join(first));
    std::fs::remove_file(dataset.join(last)).unwrap();
}

/// Alters a byte in the middle of a file.
pub fn alter(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

pub fn run_command(out: &Path) -> Vec<String> {
    words(&["run", &path(out), "--threads", "1"])
}

pub fn merge_command(out: &Path) -> Vec<String> {
    words(&["merge", &path(out), "--threads", "1", "--max-rejects", "50%"])
}

/// Describes a run in a failure message.
pub fn describe(what: &str, ran: &Ran) -> String {
    format!("{what} ({:?}; {}; {})", ran.status, ran.log.trim(), ran.stderr.trim().replace('\n', " "))
}

/// Lists the files that only one tree has, or that differ.
pub fn differences(a: &Tree, b: &Tree) -> String {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let names = names.into_iter().filter(|name| a.get(*name) != b.get(*name));
    names.map(|name| format!("{name} ({:?} bytes)", a.get(name).map(Vec::len))).collect::<Vec<_>>().join(", ")
}

pub fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub fn remove(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{}: {e}", dir.display()),
        _ => {}
    }
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns every file below `dir`, which need not exist.
fn tree_if_any(dir: &Path) -> Tree {
    if dir.exists() { tree(dir) } else { Tree::new() }
}
