//! A worker process that runs cases until its budget is spent, or a case ends it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};

use crate::finding::Finding;
use crate::mutate::mutant;
use crate::random::Random;
use crate::targets::{Target, Verdict};
use crate::{Result, targets};

/// Address space of a worker: far above what any input needs, far below what damaged files may request.
const ADDRESS_SPACE: u64 = 6 << 30;
/// Stack of the thread that runs cases, as large as that of threads of the loader and the converter.
const STACK_BYTES: usize = 2 << 20;

/// Task of a worker, which it reads from a file.
pub(crate) struct Order {
    pub(crate) target: String,
    pub(crate) seed: u64,
    pub(crate) first: u64,
    /// Maximum number of cases.
    pub(crate) cases: u64,
    pub(crate) time: Duration,
    pub(crate) findings: PathBuf,
    /// File to which the worker writes its [`State`].
    pub(crate) state: PathBuf,
}

impl Order {
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let order = json!({
            "target": self.target,
            "seed": self.seed,
            "first": self.first,
            "cases": self.cases,
            "milliseconds": self.time.as_millis() as u64,
            "findings": self.findings,
            "state": self.state,
        });
        Ok(std::fs::write(path, order.to_string())?)
    }

    fn read(path: &Path) -> Result<Self> {
        let order: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let text = |name: &str| order[name].as_str().map(str::to_owned).ok_or_else(|| format!("no {name}"));
        let number = |name: &str| order[name].as_u64().ok_or_else(|| format!("no {name}"));
        Ok(Self {
            target: text("target")?,
            seed: number("seed")?,
            first: number("first")?,
            cases: number("cases")?,
            time: Duration::from_millis(number("milliseconds")?),
            findings: text("findings")?.into(),
            state: text("state")?.into(),
        })
    }
}

/// Progress of a worker, readable at any time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// The case that is running.
    pub(crate) case: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) wrong: u64,
    pub(crate) panics: u64,
    /// 1 once the target is built, 2 once the budget is spent.
    pub(crate) stage: u64,
}

impl State {
    fn store(&self, file: &File) -> Result<()> {
        let numbers = [self.case, self.accepted, self.refused, self.wrong, self.panics, self.stage];
        Ok(file.write_all_at(numbers.map(u64::to_le_bytes).as_flattened(), 0)?)
    }

    /// Reads the state in `path`. Returns the initial state if there is none yet.
    pub(crate) fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        Self { case: next(), accepted: next(), refused: next(), wrong: next(), panics: next(), stage: next() }
    }
}

/// Runs the order in the file `order`.
pub(crate) fn run(order: &Path) -> Result<()> {
    let order = Order::read(order)?;
    limit_address_space()?;
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run_order(&order))?;
    thread.join().map_err(|_| "the worker itself panicked")?
}

/// Limits the address space of this process.
pub(crate) fn limit_address_space() -> Result<()> {
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    Ok(setrlimit(Resource::As, limit)?)
}

fn run_order(order: &Order) -> Result<()> {
    let file = File::create(&order.state)?;
    let scratch = tempfile::Builder::new().prefix("dsconvert-fuzz-").tempdir()?;
    let mut target = targets::build(&order.target, scratch.path())?;
    // Decoders report some damage by a panic that the library catches.
    std::panic::set_hook(Box::new(dsconvert::decode::avif::contain_panic));
    if order.first == 0 {
        check_inputs(&mut *target)?;
    }
    let started = Instant::now();
    let mut state = State { case: order.first, stage: 1, ..State::default() };
    for case in order.first..order.first.saturating_add(order.cases) {
        if started.elapsed() >= order.time {
            break;
        }
        state.case = case;
        state.store(&file)?;
        let finding = Finding::of(&*target, &order.target, order.seed, case);
        match verdict(&mut *target, finding.input, &finding.bytes) {
            Ok(Verdict::Accepted) => state.accepted += 1,
            Ok(Verdict::Refused) => state.refused += 1,
            Ok(Verdict::Wrong(what)) => {
                state.wrong += 1;
                finding.save(&order.findings, &format!("wrong: {what}"))?;
            }
            Err(what) => {
                state.panics += 1;
                finding.save(&order.findings, &what)?;
            }
        }
    }
    state.stage = 2;
    state.store(&file)
}

/// Checks that the unmodified inputs are accepted: mutants of rejected files would show little.
fn check_inputs(target: &mut dyn Target) -> Result<()> {
    for input in 0..target.inputs().len() {
        let bytes = target.inputs()[input].bytes.clone();
        let what = match verdict(target, input, &bytes) {
            Ok(Verdict::Accepted) => continue,
            Ok(Verdict::Refused) => "refused".to_owned(),
            Ok(Verdict::Wrong(what)) | Err(what) => what,
        };
        return Err(format!("the input {} is not accepted: {what}", target.inputs()[input].name).into());
    }
    Ok(())
}

/// Runs one case. The error describes a panic.
pub(crate) fn verdict(target: &mut dyn Target, input: usize, bytes: &[u8]) -> Result<Verdict, String> {
    catch_unwind(AssertUnwindSafe(|| target.check(input, bytes))).map_err(|panic| {
        let what = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        format!("panic: {what}")
    })
}

impl Finding {
    /// Returns the mutant of a case.
    pub(crate) fn of(target: &dyn Target, name: &str, seed: u64, case: u64) -> Self {
        let (input, bytes) = mutant(target.inputs(), &mut Random::of_case(name, seed, case));
        let input_name = target.inputs().get(input).map(|input| input.name.clone()).unwrap_or_default();
        Self { target: name.to_owned(), seed, case, input, input_name, bytes }
    }
}
