//! The pipeline: converts validated options into a committed dataset.
//!
//! ```text
//! sources ─▶ plan (work units) ─▶ tasks ─▶ outcomes, in order ─▶ stages ─▶ shards of the unit ─▶ commit
//!            plan.rs              schedule/                      stage.rs   unit.rs               commit.rs
//! ```
//!
//! A conversion (`conversion::Conversion`: images or text) divides its sources into units and turns tasks into outcomes
//! (`outcome::Outcome`). Stages (`stage::Stage`), such as shuffling and packing, may reorder or regroup the records.
//! Everything else in this module is shared by all conversions.

mod closed_unit;
mod commit;
mod continuation;
mod conversion;
mod converted_units;
mod dedup;
mod derived_files;
mod estimate;
mod events;
mod finalizer;
mod images;
mod job_file;
mod keys;
mod lines;
mod memory;
mod outcome;
mod output;
mod output_check;
mod parts;
mod plan;
mod planned_output;
mod predict;
mod progress;
mod publish;
mod repair;
mod rows;
mod run;
mod schedule;
mod selection;
mod shuffle;
mod split_index;
mod stage;
mod status;
mod stop;
pub(crate) mod testing;
mod text;
mod timing;
mod totals;
mod unit;
mod unit_dirs;
mod unit_options;
mod unit_result;
mod units;
mod workers;

pub use converted_units::ConvertedUnits;
pub use dedup::Dedup;
pub use estimate::{Estimate, MIN_SAMPLE};
pub use events::{Event, EventLevel};
pub use images::{ImageField, ImageFields, ImageInput, ImagesJob, ImagesOptions};
pub use parts::{PartReport, merge, run_units};
pub use plan::PlanSummary;
pub use predict::Prediction;
pub use progress::{Progress, Snapshot};
pub use run::{Job, Report, check_output};
pub use selection::{Selection, ranges};
pub use status::{Status, status};
pub use stop::Stop;
pub use text::{
    DEFAULT_MAX_DOCUMENT_BYTES, DEFAULT_TEXT_FIELD, LengthRange, MAX_PACK_TOKENS, Overflow, TextInput,
    TextJob, TextOptions, TextShape,
};
pub use timing::{Activity, Phase};
pub use totals::Totals;

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::printable::printable_path;
use crate::source::file_list::SourceFiles;
use crate::source::named_files::ENCODED_NAMES;
use crate::source::source_file::SourceFile;
pub use crate::source::split_by::SplitBy;
use crate::source::splits::Splits;
pub use crate::source::warning::{Remedy, Warning};

/// Refuses two files with the same origin: files with the same path in sources with the same label, and files whose names
/// become equal because one of them is not UTF-8 and is percent-encoded.
fn check_origins(files: SourceFiles<'_>, sources: &[SourceSpec]) -> Result<()> {
    if sources.len() < 2 && files.iter().all(|file| file.relative.to_str().is_some()) {
        return Ok(());
    }
    let hash = |file: &SourceFile| xxh3_64(file.origin.as_bytes());
    let mut hashes: Vec<u64> = files.iter().map(|file| hash(&file)).collect();
    hashes.sort_unstable();
    let repeated: HashSet<u64> =
        hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    if repeated.is_empty() {
        return Ok(());
    }
    drop(hashes);
    let mut sorted: Vec<_> = files.iter().filter(|file| repeated.contains(&hash(file))).collect();
    sorted.sort_by(|a, b| a.origin.cmp(&b.origin));
    let Some(pair) = sorted.windows(2).find(|pair| pair[0].origin == pair[1].origin) else { return Ok(()) };
    let (a, b) = (&pair[0], &pair[1]);
    let path = |file: &SourceFile| {
        // With the member of an archive.
        let root = &sources[file.source as usize].path;
        let path = if file.is_named() { root.clone() } else { root.join(&file.relative) };
        printable_path(&path).to_string()
    };
    Err(match a.source == b.source {
        true => Error::usage(format!("two files have the key {:?}: {} and {}", a.origin, path(a), path(b)))
            .help(ENCODED_NAMES),
        false => Error::usage(format!(
            "two sources contain a file with the key {:?}: {} and {}",
            a.origin,
            path(a),
            path(b)
        ))
        .help("give one source another label, as LABEL=PATH, or list the path only once"),
    })
}

/// Returns the error for `--split` on sources whose names already define splits. `--layout` with the value `other`
/// ignores those names.
fn splits_twice(given: &Splits, other: &str) -> Error {
    let names = given.names.join(", ");
    Error::usage(format!(
        "`split` cannot be used: the sources already define the splits {names} {}",
        given.by
    ))
    .help(format!("leave out `split`, or ignore the existing splits with `layout {other}`"))
}
