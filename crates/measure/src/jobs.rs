//! Child processes that run rounds at the same time, for the option `jobs`.
//!
//! A child process gets the arguments of its parent plus a hidden flag, so it finds the same targets. It then
//! answers each [`JobRequest`] on its standard input with a [`Round`] on its standard output, one JSON object per line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::round::{Round, RoundSpec};
use crate::error::{Error, ErrorKind, Result};

/// Request to a child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRequest {
    /// Close all targets, so that their pages can leave the page cache. Answered with an empty round.
    Close,
    /// Open the target and run a round.
    Run(RoundSpec),
}

/// A child process that runs rounds.
#[derive(Debug)]
struct JobProcess {
    child: Child,
    /// Closed before waiting for the process.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Child processes that run rounds at the same time.
#[derive(Debug)]
pub(super) struct Jobs(Vec<JobProcess>);

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("a child process of the benchmark {what}"))
        .help("see its message above; try again with a single job")
}

impl Jobs {
    /// Starts `count` processes with `command`.
    pub(super) fn start(count: usize, mut command: impl FnMut() -> Command) -> Result<Self> {
        // If a process cannot be started, dropping `jobs` ends those that were.
        let mut jobs = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let mut command = command();
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(|e| failed("could not be started").caused_by(e))?;
            let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Error::internal("a child process has no pipes"));
            };
            jobs.0.push(JobProcess { child, requests: Some(requests), answers: BufReader::new(answers) });
        }
        Ok(jobs)
    }

    /// Sends each process its request, and joins the answers into one round.
    pub(super) fn ask(&mut self, request: impl Fn(usize) -> JobRequest) -> Result<Round> {
        for (ordinal, job) in self.0.iter_mut().enumerate() {
            let line = serde_json::to_string(&request(ordinal));
            let line = line.map_err(|e| Error::not_serialized("a request", e))?;
            let sent = job.requests.as_mut().map(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush()));
            match sent {
                Some(Ok(())) => {}
                Some(Err(e)) => return Err(failed("ended").caused_by(e)),
                None => return Err(failed("ended")),
            }
        }
        let mut all = Round::default();
        for job in &mut self.0 {
            let mut line = String::new();
            let read = job.answers.read_line(&mut line).map_err(|e| failed("cannot be read").caused_by(e))?;
            if read == 0 {
                return Err(failed("ended"));
            }
            all.join(serde_json::from_str(&line).map_err(|e| failed("sent an invalid answer").caused_by(e))?);
        }
        Ok(all)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in &mut self.0 {
            job.requests = None;
            // Closing the pipe ends an idle process, but not one in the middle of a round.
            let _ = job.child.kill();
            let _ = job.child.wait();
        }
    }
}

/// Answers requests until there are no more.
///
/// # Errors
///
/// If a round fails, or requests or answers cannot be transferred.
pub fn serve_rounds(
    requests: impl BufRead,
    mut answers: impl Write,
    mut run: impl FnMut(JobRequest) -> Result<Round>,
) -> Result<()> {
    let broken = |e: std::io::Error| failed("lost the connection to its parent").caused_by(e);
    for line in requests.lines() {
        let request = serde_json::from_str(&line.map_err(broken)?);
        let request = request.map_err(|e| Error::usage("invalid benchmark request").caused_by(e))?;
        let round = serde_json::to_string(&run(request)?);
        let round = round.map_err(|e| Error::not_serialized("a round", e))?;
        writeln!(answers, "{round}").and_then(|()| answers.flush()).map_err(broken)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_line_by_line() {
        let spec = RoundSpec {
            target: 1,
            order: super::super::ReadOrder::Random,
            threads: 2,
            decode: true,
            seed: 3,
            job: 1,
            jobs: 2,
            seconds: None,
            items: Some(4),
            single_pass: false,
        };
        let lines: Vec<String> = [JobRequest::Close, JobRequest::Run(spec.clone())]
            .iter()
            .map(|request| serde_json::to_string(request).unwrap())
            .collect();
        let (mut seen, mut answers) = (Vec::new(), Vec::new());
        serve_rounds(lines.join("\n").as_bytes(), &mut answers, |request| {
            seen.push(request);
            Ok(Round { items: seen.len() as u64, ..Round::default() })
        })
        .unwrap();
        assert_eq!(seen, [JobRequest::Close, JobRequest::Run(spec)]);
        let rounds: Vec<Round> =
            answers.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(rounds.iter().map(|r| r.items).collect::<Vec<_>>(), [1, 2]);
        assert!(serve_rounds(&b"nonsense\n"[..], Vec::new(), |_| Ok(Round::default())).is_err());
    }

    #[test]
    fn a_process_that_ends_early_is_an_error() {
        let mut jobs = Jobs::start(2, || Command::new("true")).unwrap();
        assert!(jobs.ask(|_| JobRequest::Close).is_err());
        assert!(Jobs::start(1, || Command::new("/nonexistent/program")).is_err());
    }
}
