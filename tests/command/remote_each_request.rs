//! A fault at every single request to an object store: whether the request fails or the process dies, the run or the
//! next one ends with the objects of a local run.
//!
//! By default, one event is tried at each request; the exhaustive tests of `faults` try all of them (`tier`).

use std::path::PathBuf;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use objects::{Fault, Faults};

use crate::remote_setup::*;
use crate::support::*;
use crate::tier;

/// Number of requests tried at the same time, each in a case of its own.
const THREADS: usize = 2;

/// An event at a request.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request fails and the client retries it. After a lost response, the retry finds the object already created.
    Fails(Fault),
    /// The process is killed before or after the request is served.
    Killed(Fault),
    /// The server stops answering.
    Dies,
}

const EVENTS: [Event; 6] = [
    Event::Fails(Fault::Internal),
    Event::Fails(Fault::Dropped),
    Event::Fails(Fault::LostResponse),
    Event::Killed(Fault::Held),
    Event::Killed(Fault::HeldResponse),
    Event::Dies,
];

/// The commands under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commands {
    /// One run.
    Convert,
    /// One run with a shard that is uploaded in several parts.
    ConvertLarge,
    /// Two concurrent `run`s of the same units, then two concurrent `merge`s.
    Concurrent,
}

/// The events to try at the request `nth`.
fn events(seed: u64, nth: u64) -> Vec<Event> {
    match tier::is_exhaustive("faults") || tier::lists("every-error") {
        true => EVENTS.to_vec(),
        false => vec![EVENTS[((nth + seed) % EVENTS.len() as u64) as usize]],
    }
}

/// Options that put one large document into one shard.
const LARGE: &str = "--tokenizer bytes --format msgpack --max-document-bytes 64MiB";

/// A corpus, and the files that a local run makes from it.
struct Case {
    commands: Commands,
    setup: Setup,
    source: PathBuf,
    options: &'static str,
    local: Tree,
}

impl Case {
    fn new(commands: Commands) -> Self {
        let setup = Setup::new();
        let (source, options) = if commands == Commands::ConvertLarge {
            let source = setup.path("large.txt");
            std::fs::write(&source, "some text ".repeat(1 << 20)).unwrap();
            (source, LARGE)
        } else {
            (corpus_with_rejects(setup.dir.path(), 60, 7, 9), TEXT)
        };
        let local = setup.path("local");
        convert("text", &source, &local, options).exits(0);
        let local = tree(&local);
        Self { commands, setup, source, options, local }
    }

    fn convert(&self, more: &str) -> String {
        conversion("text", &self.source, &format!("{} {more}", self.options))
    }

    /// Empties the bucket and, if the commands start with `run`, stores the plan.
    fn reset(&self) {
        self.setup.server.set_faults(Faults::default());
        self.setup.server.keys("bucket/").iter().for_each(|key| self.setup.server.delete(key));
        if self.commands == Commands::Concurrent {
            self.setup.run("a", &format!("plan {}", self.convert(""))).exits(0);
        }
    }

    /// The steps in order; the commands of a step run concurrently, each on its own machine.
    fn steps(&self) -> Vec<Vec<String>> {
        let twice = |args: &str| vec![args.to_owned(); 2];
        match self.commands {
            Commands::Convert | Commands::ConvertLarge => vec![vec![self.convert("")]],
            Commands::Concurrent => {
                vec![twice(&format!("run {OUT}")), twice(&format!("merge {OUT} --max-rejects 50%"))]
            }
        }
    }

    /// The number of requests of a run without faults.
    fn count_requests(&self) -> u64 {
        self.reset();
        let before = self.setup.server.counts().requests;
        for step in self.steps() {
            Ran::of(self.setup.start("a", &step[0]).wait_with_output().unwrap()).exits(0);
        }
        assert_same(&self.setup.objects(), &self.local);
        self.setup.server.counts().requests - before
    }

    /// Triggers `event` at the request `nth`, and finishes the conversion with another run. Returns whether the event
    /// occurred.
    fn survives(&self, nth: u64, event: Event) -> bool {
        self.reset();
        let server = &self.setup.server;
        let uploads = server.open_uploads();
        let (before, number) = (server.counts().faults, server.counts().requests + nth);
        server.set_faults(match event {
            Event::Fails(fault) | Event::Killed(fault) => {
                Faults { nth: Some((number, fault)), ..Faults::default() }
            }
            Event::Dies => Faults { dies_after: Some(number), ..Faults::default() },
        });
        for step in self.steps() {
            let children: Vec<Child> = (step.iter().zip(["a", "b"]))
                .map(|(args, machine)| self.start(machine, args, event))
                .collect();
            let all_succeeded = self.wait(children, event, before);
            if !all_succeeded {
                break;
            }
        }
        let occurred = server.counts().faults > before;
        server.set_faults(Faults::default());
        // The server works again for the next run, which is on a machine without local files.
        let ran = self.setup.run("c", &self.convert("--resume"));
        assert_eq!(ran.status, 0, "request {nth}, {event:?}: {}", ran.stderr);
        assert_same(&self.setup.objects(), &self.local);
        self.setup.assert_clean("c");
        // A multipart upload may be left over only if its id was lost with a response or with the process.
        if matches!(event, Event::Fails(Fault::Internal | Fault::Dropped)) {
            assert_eq!(server.open_uploads(), uploads, "request {nth}, {event:?}");
        }
        occurred
    }

    /// Starts a command, without retries if the server is going to stop answering.
    fn start(&self, machine: &str, args: &str, event: Event) -> Child {
        let args: Vec<&str> = args.split_whitespace().collect();
        let mut command = self.setup.command(machine, &args);
        if matches!(event, Event::Dies) {
            command.env("DSCONVERT_RETRY_SECONDS", "0");
        }
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    }

    /// Waits for the commands, and kills the first one at the fault of a `Killed` event. Returns whether all succeeded.
    fn wait(&self, mut children: Vec<Child>, event: Event, faults_before: u64) -> bool {
        if matches!(event, Event::Killed(_)) {
            let started = Instant::now();
            while self.setup.server.counts().faults == faults_before
                && children[0].try_wait().unwrap().is_none()
                && started.elapsed() < Duration::from_secs(60)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.setup.server.counts().faults > faults_before {
                children[0].kill().unwrap();
                self.setup.server.set_faults(Faults::default());
            }
        }
        let ends = children.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap()));
        let ends: Vec<Ran> = ends.collect();
        for ran in &ends {
            assert!(!ran.stderr.contains("this is a bug"), "{}", ran.stderr);
        }
        let unharmed = match event {
            Event::Fails(_) => &ends[..],
            Event::Killed(_) => &ends[1..],
            Event::Dies => &[],
        };
        unharmed.iter().for_each(|ran| assert_eq!(ran.status, 0, "{event:?}: {}", ran.stderr));
        ends.iter().all(|ran| ran.status == 0)
    }
}

/// Tries every `step`-th request.
fn sweep(commands: Commands, step: u64) {
    let seed = tier::seed();
    let total = Case::new(commands).count_requests();
    assert!(total > 12, "{total}");
    let (next, occurred) = (AtomicU64::new(0), Mutex::new((0u64, 0u64)));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let case = Case::new(commands);
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed) * step;
                    if nth >= total {
                        break;
                    }
                    for event in events(seed, nth / step) {
                        let hit = case.survives(nth, event);
                        let mut occurred = occurred.lock().unwrap();
                        *occurred = (occurred.0 + u64::from(hit), occurred.1 + 1);
                    }
                }
            });
        }
    });
    let (occurred, tried) = occurred.into_inner().unwrap();
    tier::report(&format!("faults: {tried} at {total} requests to object storage ({commands:?})"));
    assert!(occurred * 4 >= tried * 3, "{commands:?}: {occurred} of {tried}");
}

#[test]
fn a_run_survives_a_fault_at_each_request() {
    sweep(Commands::Convert, 1);
}

#[test]
fn a_large_upload_survives_a_fault_at_each_request() {
    sweep(Commands::ConvertLarge, 3);
}

#[test]
fn concurrent_processes_survive_a_fault_at_each_request() {
    sweep(Commands::Concurrent, 3);
}
