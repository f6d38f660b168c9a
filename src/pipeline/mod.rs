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
mod images;
mod job_file;
mod keys;
mod lines;
mod memory;
mod outcome;
mod output;
mod output_check;
mod output_state;
mod parts;
mod plan;
mod planned_output;
mod predict;
mod progress;
mod publish;
mod removal;
mod repair;
mod rows;
mod run;
mod schedule;
mod selection;
mod shuffle;
mod source_checks;
mod split_index;
mod stage;
mod status;
mod stop;
mod text;
mod timing;
mod totals;
mod unit;
mod unit_dirs;
mod unit_options;
mod unit_result;
mod unit_store;
mod units;
mod workers;

pub use converted_units::ConvertedUnits;
pub use dedup::Dedup;
pub use estimate::{Estimate, MIN_SAMPLE};
pub use events::{Event, EventLevel};
pub use images::{
    ImageField, ImageFields, ImageInput, ImagesJob, ImagesOptions, ListedImage, SidecarSummary, Sidecars,
};
pub use output_state::{Existing, ResumeCheck};
pub use parts::{PartOutcome, merge, run_units};
pub use plan::PlanSummary;
pub use predict::Prediction;
pub use progress::{Progress, Snapshot};
pub use run::{Job, Outcome, check_inputs, check_output};
pub use selection::{Selection, ranges};
pub use status::{Status, status};
pub use stop::Stop;
pub use text::{
    DEFAULT_MAX_DOCUMENT_BYTES, DEFAULT_TEXT_FIELD, LengthRange, MAX_PACK_TOKENS, Overflow, TextInput,
    TextJob, TextOptions, TextShape,
};
pub use timing::{Activity, Phase};
pub use totals::Totals;

pub use crate::source::split_by::SplitBy;
pub use crate::source::warning::{Remedy, Warning};
