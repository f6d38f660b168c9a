//! An object store, and simulated machines that write to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use objects::{Fault, Faults, Server};
use serde_json::Value;

use crate::support::*;

/// The URL of the output.
pub const OUT: &str = "s3://bucket/some/set";
/// The prefix of its keys on the server.
pub const PREFIX: &str = "bucket/some/set/";

pub const TEXT: &str = "--tokenizer bytes --dedup exact --filter-length 30:9999 --unit-bytes 4096 --shard-records 5 \
                    --format protobuf --max-rejects 50%";

/// An object store, and a folder with the local files of the machines.
pub struct Setup {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

impl Setup {
    pub fn new() -> Self {
        Self { server: Server::start(0, Faults::default()).unwrap(), dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a corpus; returns its path and the files that a local run makes from it.
    pub fn corpus(&self) -> (PathBuf, Tree) {
        let source = corpus_with_rejects(self.dir.path(), 120, 7, 9);
        let local = self.path("local");
        convert("text", &source, &local, TEXT).exits(0);
        (source, tree(&local))
    }

    /// `dsconvert ARGS` on a machine called `machine`, which has its own scratch directory.
    pub fn command(&self, machine: &str, args: &[&str]) -> Command {
        let scratch = self.path(machine);
        std::fs::create_dir_all(&scratch).unwrap();
        let mut command = command(args);
        command.env("TMPDIR", scratch).env("DSCONVERT_RETRY_SECONDS", "60").envs(self.server.environment());
        command
    }

    pub fn run(&self, machine: &str, args: &str) -> Ran {
        let args: Vec<&str> = args.split_whitespace().collect();
        Ran::of(self.command(machine, &args).output().unwrap())
    }

    pub fn start(&self, machine: &str, args: &str) -> Child {
        let args: Vec<&str> = args.split_whitespace().collect();
        self.command(machine, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `dsconvert KIND SOURCE --out OUT OPTIONS…` on machine `a`.
    pub fn convert(&self, kind: &str, source: &Path, options: &str) -> Ran {
        self.run("a", &conversion(kind, source, options))
    }

    /// Holds requests whose method and path contain `only`, until [`Self::release`].
    pub fn hold(&self, only: &str) {
        let faults =
            Faults { one_in: 1, kinds: vec![Fault::Held], only: Some(only.to_owned()), ..Faults::default() };
        self.server.set_faults(faults);
    }

    /// Waits until a request is held.
    #[track_caller]
    pub fn wait_for_held(&self) {
        let started = Instant::now();
        while self.server.counts().faults == 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "no request was held");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Closes the connections of the requests that are held. Their clients send them again.
    pub fn release(&self) {
        self.server.set_faults(Faults::default());
    }

    /// The objects of the dataset.
    pub fn objects(&self) -> Tree {
        let keys = self.server.keys(PREFIX);
        keys.iter().map(|key| (key[PREFIX.len()..].to_owned(), self.server.get(key).unwrap())).collect()
    }

    /// Asserts that the scratch directory of the machine is empty.
    #[track_caller]
    pub fn assert_clean(&self, machine: &str) {
        let left: Vec<String> = tree(&self.path(machine)).into_keys().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    pub fn has_manifest(&self) -> bool {
        self.server.get(&format!("{PREFIX}manifest.json")).is_some()
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run("a", &format!("status {OUT} --json")).exits(0).stdout).unwrap()
    }
}

/// The arguments of `dsconvert KIND SOURCE --out OUT OPTIONS…`.
pub fn conversion(kind: &str, source: &Path, options: &str) -> String {
    format!("{kind} {} --out {OUT} {options}", source.display())
}
