//! Helpers that run the binary and read what it wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dsconvert::reader::{Dataset, Record};
use serde_json::Value;

pub use crate::tree::{Tree, tree};

/// All formats.
pub const FORMATS: [&str; 4] = ["parquet", "arrow", "msgpack", "protobuf"];

/// The path of a file or folder in the repository's fixtures.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path)
}

/// What a run of the binary printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
        Self {
            status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts the exit status, showing what was printed if it is another.
    #[track_caller]
    pub fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard error contains each of `parts`.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        }
        self
    }
}

/// A user without privileges.
pub const NOBODY: u32 = 65_534;

/// Runs a command as a user whom permissions stop. Returns `None` if that user cannot run the binary.
pub fn unprivileged(command: &mut Command) -> Option<Ran> {
    use std::os::unix::process::CommandExt;
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    command.output().ok().map(Ran::of)
}

/// Sets the permissions of a file or folder.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// The command `dsconvert ARGS…`, not yet started.
pub fn command<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dsconvert"));
    command.args(args);
    command
}

/// Runs `dsconvert KIND SOURCE --out OUT OPTIONS…`; `options` is split at whitespace.
pub fn convert(kind: &str, source: &Path, out: &Path, options: &str) -> Ran {
    let mut command = command([kind]);
    command.arg(source).arg("--out").arg(out).args(options.split_whitespace());
    Ran::of(command.output().unwrap())
}

/// Runs the command, which must succeed, and returns its peak resident memory in bytes, which only Linux reports.
pub fn peak_bytes(mut command: Command) -> Option<u64> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = None;
    loop {
        // The high-water mark never falls, so the last value read misses at most the last moments of the run.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        peak = kilobytes.map(|kb| kb << 10).or(peak);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{:?}", Ran::of(child.wait_with_output().unwrap()));
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Copies every file below `from`.
pub fn copy_dir(from: &Path, to: &Path) {
    for (name, bytes) in tree(from) {
        let path = to.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Asserts that two trees are equal, naming the first file that is not.
#[track_caller]
pub fn assert_same(a: &Tree, b: &Tree) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in a {
        assert!(bytes == &b[name], "{name} differs");
    }
}

/// The manifest of a dataset.
pub fn manifest(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap()
}

/// Asserts the outcomes in the manifest: converted, filtered, duplicates, rejected; and that they add up.
#[track_caller]
pub fn assert_outcomes(out: &Path, outcomes: [u64; 4]) {
    let manifest = manifest(out);
    let of = |value: &Value| {
        ["converted", "filtered", "duplicates", "rejected"].map(|n| value[n].as_u64().unwrap())
    };
    assert_eq!(of(&manifest), outcomes);
    assert_eq!(manifest["found"].as_u64().unwrap(), outcomes.iter().sum::<u64>());
    for split in manifest["splits"].as_object().unwrap().values() {
        assert_eq!(split["found"].as_u64().unwrap(), of(split).iter().sum::<u64>());
    }
}

/// The lines of `rejects.jsonl` as (origin, code).
pub fn rejects(out: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(out.join("rejects.jsonl")).unwrap();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let part = |name: &str| line[name].as_str().unwrap().to_owned();
            assert!(!part("message").is_empty());
            (part("origin"), part("code"))
        })
        .collect()
}

/// Writes a jsonl file of `documents` documents of different lengths.
pub fn corpus(path: &Path, documents: usize) {
    let mut text = String::new();
    let mut state = 1u64;
    for id in 0..documents {
        // A linear congruential generator with a fixed seed, so that the corpus is always the same.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let words = (state >> 33) % 60 + 1;
        let body =
            (0..words).map(|w| format!("w{}", (state >> (w % 40)) % 977)).collect::<Vec<_>>().join(" ");
        text.push_str(&serde_json::json!({"id": id, "text": body}).to_string());
        text.push('\n');
    }
    std::fs::write(path, text).unwrap();
}

/// Writes `documents` documents, the first `repeated` of them a second time, and `bad` lines that are not JSON.
pub fn corpus_with_rejects(dir: &Path, documents: usize, repeated: usize, bad: usize) -> PathBuf {
    let path = dir.join("c.jsonl");
    corpus(&path, documents);
    let text = std::fs::read_to_string(&path).unwrap();
    let again: String = text.lines().take(repeated).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, format!("{text}{again}{}", "bad\n".repeat(bad))).unwrap();
    path
}

/// All records of a dataset.
pub fn records(out: &Path) -> Vec<Record> {
    let dataset = Dataset::open(out).unwrap();
    dataset.splits().flat_map(|split| split.iter().map(Result::unwrap).collect::<Vec<_>>()).collect()
}

/// The origins and texts of a dataset made with the tokenizer `bytes`.
pub fn texts(out: &Path) -> Vec<(String, String)> {
    records(out)
        .iter()
        .map(|record| {
            let bytes: Vec<u8> = record.input_ids().unwrap().iter().map(|id| id as u8).collect();
            (record.origin().unwrap().to_owned(), String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect()
}

/// The texts of a dataset made with the tokenizer `bytes`.
pub fn only_texts(out: &Path) -> Vec<String> {
    texts(out).into_iter().map(|(_, text)| text).collect()
}
