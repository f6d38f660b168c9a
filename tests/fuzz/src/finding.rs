//! Findings: mutants that went wrong, saved as files that can be replayed.
//!
//! A file has one line of JSON with target, seed, case, input and what happened, followed by the bytes of the mutant.
//! It can therefore be replayed after the inputs or the mutations have changed.

use std::path::Path;

use serde_json::{Value, json};

use crate::targets::Verdict;
use crate::{Result, targets, worker};

/// A mutated file.
pub(crate) struct Finding {
    pub(crate) target: String,
    pub(crate) seed: u64,
    pub(crate) case: u64,
    /// Ordinal of the mutated input of the target.
    pub(crate) input: usize,
    pub(crate) input_name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Finding {
    pub(crate) fn save(&self, dir: &Path, what: &str) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let head = json!({
            "target": self.target,
            "seed": self.seed,
            "case": self.case,
            "input": self.input_name,
            "what": what,
        });
        let mut file = head.to_string().into_bytes();
        file.push(b'\n');
        file.extend_from_slice(&self.bytes);
        let name = format!("{}-{}-{}.mutant", self.target, self.seed, self.case);
        Ok(std::fs::write(dir.join(name), file)?)
    }
}

/// Runs the saved mutant `file` in this process, and returns whether nothing went wrong.
pub(crate) fn replay(file: &Path) -> Result<bool> {
    let saved = std::fs::read(file)?;
    let end = saved.iter().position(|&b| b == b'\n').ok_or("the file has no line of JSON")?;
    let (head, bytes) = (&saved[..end], &saved[end + 1..]);
    let head: Value = serde_json::from_slice(head)?;
    let text = |name: &str| head[name].as_str().ok_or_else(|| format!("the file does not name its {name}"));
    let scratch = tempfile::Builder::new().prefix("dsconvert-fuzz-").tempdir()?;
    let mut target = targets::build(text("target")?, scratch.path())?;
    let name = text("input")?;
    let input = target.inputs().iter().position(|input| input.name == name);
    let input = input.ok_or_else(|| format!("the target has no input {name}"))?;
    println!("{} bytes instead of {name}; found: {}", bytes.len(), text("what").unwrap_or_default());
    worker::limit_address_space()?;
    Ok(match worker::verdict(&mut *target, input, bytes) {
        Ok(Verdict::Wrong(what)) => {
            println!("wrong: {what}");
            false
        }
        Ok(Verdict::Accepted) => {
            println!("accepted");
            true
        }
        Ok(Verdict::Refused) => {
            println!("refused");
            true
        }
        Err(panic) => {
            println!("{panic}");
            false
        }
    })
}
