//! The preloaded libraries that make calls fail or record them, and runs of the binary with them.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kinds of calls, as in `inject.c`.
pub const KINDS: [&str; 11] =
    ["open", "read", "readdir", "write", "fsync", "rename", "unlink", "stat", "mkdir", "close", "mmap"];

/// Time limit of a run, longer than any run takes.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Effect of a fault on the call.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    Error {
        errno: i32,
        always: bool,
    },
    /// Only half of the bytes are transferred.
    Short,
    KillBefore,
    KillAfter,
}

/// A fault of one call.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: &'static str,
    /// Number of the call, counted from 1.
    pub nth: u32,
    pub action: Action,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, nth, action } = self;
        match action {
            Action::Error { errno, always } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                let how = if *always { " from then on" } else { "" };
                write!(f, "{kind} {nth}{how}: {error}")
            }
            Action::Short => write!(f, "{kind} {nth}: short"),
            Action::KillBefore => write!(f, "{kind} {nth}: killed before"),
            Action::KillAfter => write!(f, "{kind} {nth}: killed after"),
        }
    }
}

impl Fault {
    /// Sets the environment variables that make the library inject the fault into `command`.
    fn configure(&self, command: &mut Command) {
        let Self { kind, nth, action } = self;
        command.env("FAULT_KIND", kind).env("FAULT_NTH", nth.to_string());
        match action {
            Action::Error { errno, always } => {
                command.env("FAULT_ERRNO", errno.to_string());
                if *always {
                    command.env("FAULT_ALWAYS", "1");
                }
            }
            Action::Short => drop(command.env("FAULT_ACTION", "short")),
            Action::KillBefore => drop(command.env("FAULT_ACTION", "kill-before")),
            Action::KillAfter => drop(command.env("FAULT_ACTION", "kill-after")),
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Ran {
    /// `None` after SIGKILL.
    pub status: Option<i32>,
    pub stderr: String,
    /// The counted calls or, with a fault, the call that it hit.
    pub log: String,
}

/// The compiled `inject.c` and `record.c`.
pub struct Library {
    inject: PathBuf,
    record: PathBuf,
}

impl Library {
    /// Compiles both into `dir`.
    pub fn compile(dir: &Path) -> Self {
        let compiled = |name: &str| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults").join(name);
            let library = dir.join(name).with_extension("so");
            let mut command = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
            command
                .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
                .arg(&library)
                .arg(source)
                .arg("-ldl");
            assert!(command.status().unwrap().success(), "{command:?}");
            library
        };
        Self { inject: compiled("inject.c"), record: compiled("record.c") }
    }

    /// Runs the binary with `args`, and counts its calls on files below `dirs` or makes one of them fail.
    pub fn run(&self, args: &[String], dirs: &[&Path], fault: Option<&Fault>, log: &Path) -> Ran {
        let dirs: Vec<&str> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
        let mut command = command(args);
        command.env("LD_PRELOAD", &self.inject).env("FAULT_DIRS", dirs.join(":")).env("FAULT_LOG", log);
        if let Some(fault) = fault {
            fault.configure(&mut command);
        }
        let _ = std::fs::remove_file(log);
        let mut ran = run(command);
        ran.log = std::fs::read_to_string(log).unwrap_or_default();
        ran
    }

    /// Returns a command that runs the binary with `args` and appends every call that changes files below `dir` to
    /// `log`.
    pub fn recorded(&self, args: &[String], dir: &Path, log: &Path) -> Command {
        let mut command = command(args);
        command.env("LD_PRELOAD", &self.record).env("RECORD_DIR", dir).env("RECORD_LOG", log);
        command
    }

    /// Runs the command of [`Self::recorded`] with a fault at a call on a file below `dir`.
    pub fn recorded_until(&self, args: &[String], dir: &Path, log: &Path, fault: &Fault) -> Ran {
        let mut command = self.recorded(args, dir, log);
        // `inject` comes first: a process that is killed after a call is killed after the record of the call.
        let mut both = self.inject.clone().into_os_string();
        both.push(":");
        both.push(&self.record);
        command.env("LD_PRELOAD", both).env("FAULT_DIRS", dir);
        fault.configure(&mut command);
        run(command)
    }
}

/// Runs the binary without faults.
pub fn run_plainly(args: &[String]) -> Ran {
    run(command(args))
}

/// Runs commands concurrently and returns their results in order.
pub fn run_all(commands: impl IntoIterator<Item = Command>) -> Vec<Ran> {
    let running: Vec<_> =
        commands.into_iter().map(|command| std::thread::spawn(move || run(command))).collect();
    running.into_iter().map(|run| run.join().unwrap()).collect()
}

/// Starts the binary without faults.
pub fn start_plainly(args: &[String]) -> std::thread::JoinHandle<Ran> {
    let command = command(args);
    std::thread::spawn(move || run(command))
}

fn command(args: &[String]) -> Command {
    // A release build makes the long run twice as fast.
    let binary = std::env::var_os("DSCONVERT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_dsconvert").into());
    let mut command = Command::new(binary);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command) -> Ran {
    let started = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut pause = Duration::from_millis(2);
    // The output is small enough for the pipe.
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > TIME_LIMIT {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(4));
    };
    let stderr = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    let code =
        status.code().or_else(|| status.signal().filter(|&signal| signal != 9).map(|signal| 128 + signal));
    Ran { status: code, stderr, log: String::new() }
}

/// Returns the number of calls of each kind in a log.
pub fn counts(log: &str) -> BTreeMap<&'static str, u32> {
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let kind = line.split(' ').next().unwrap_or_default();
        let kind = KINDS.into_iter().find(|&known| known == kind).unwrap();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}
