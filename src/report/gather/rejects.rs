//! Examples of rejects.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use super::Problems;
use crate::error::Error;
use crate::reader::Dataset;

/// Name of the file that lists rejects.
const REJECTS_NAME: &str = "rejects.jsonl";
/// Examples of one reason.
const EXAMPLES: usize = 5;
/// Bytes of the list that are read.
const MAX_BYTES: u64 = 32 << 20;
/// Longest line that is read.
const MAX_LINE: u64 = 1 << 20;

/// Rejects of one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectExamples {
    /// The reason.
    pub code: String,
    /// How many there are.
    pub count: u64,
    /// Origin and message of the first ones.
    pub examples: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Line {
    origin: String,
    code: String,
    message: String,
}

/// The first rejects of every reason, the most frequent reason first.
pub(super) fn examples(dataset: &Dataset, problems: &mut Problems) -> Vec<RejectExamples> {
    let manifest = dataset.manifest();
    let mut found: Vec<RejectExamples> = manifest
        .reject_codes
        .iter()
        .map(|(code, count)| RejectExamples { code: code.clone(), count: *count, examples: Vec::new() })
        .collect();
    found.sort_by_key(|reject| std::cmp::Reverse(reject.count));
    let Some(file) =
        manifest.files.iter().find(|file| file.path == REJECTS_NAME).filter(|_| !found.is_empty())
    else {
        return found;
    };
    let read = || -> Result<(), Error> {
        let blob = dataset.open_file(file)?;
        let failed = |e| Error::io("read", blob.path(), e);
        let bytes = blob.read(0, blob.len().min(MAX_BYTES))?;
        let mut reader = BufReader::new(&bytes[..]);
        let mut line = Vec::new();
        while found.iter().any(|reject| (reject.examples.len() as u64) < reject.count.min(EXAMPLES as u64)) {
            line.clear();
            if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            let Ok(parsed) = serde_json::from_slice::<Line>(&line) else { continue };
            if let Some(reject) = found.iter_mut().find(|reject| reject.code == parsed.code)
                && reject.examples.len() < EXAMPLES
            {
                reject.examples.push((parsed.origin, parsed.message));
            }
        }
        Ok(())
    };
    let mut read = read;
    let read = read();
    problems.kept("the list of rejects cannot be read", read);
    found
}
