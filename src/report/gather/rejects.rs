//! Examples of rejects.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use super::Problems;
use crate::error::Error;
use crate::reader::Dataset;

/// Name of the file that lists rejects.
const REJECTS_NAME: &str = "rejects.jsonl";
/// Maximum number of examples per reason.
const EXAMPLES: usize = 5;
/// Maximum number of bytes of the list to read.
const MAX_BYTES: u64 = 32 << 20;
/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// Rejects with the same reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectExamples {
    /// Reason code.
    pub code: String,
    /// Number of rejects.
    pub count: u64,
    /// Origin and message of the first rejects.
    pub examples: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct StoredReject {
    origin: String,
    code: String,
    message: String,
}

/// Returns the first rejects of every reason, the most frequent reason first.
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
    let mut read_examples = || -> Result<(), Error> {
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
            let Ok(parsed) = serde_json::from_slice::<StoredReject>(&line) else { continue };
            if let Some(reject) = found.iter_mut().find(|reject| reject.code == parsed.code)
                && reject.examples.len() < EXAMPLES
            {
                reject.examples.push((parsed.origin, parsed.message));
            }
        }
        Ok(())
    };
    let read = read_examples();
    problems.ok_or_add("the list of rejects cannot be read", read);
    found
}
