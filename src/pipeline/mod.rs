//! The pipeline: converts validated options into a committed dataset.
//!
//! ```text
//! sources ─▶ plan (work units) ─▶ tasks ─▶ outcomes, in order ─▶ stages ─▶ shards of the unit ─▶ commit
//!            plan.rs              schedule/                      stage.rs   unit.rs               commit.rs
//! ```
//!
//! A conversion (`job::Conversion`: images or text) divides its sources into units and turns tasks into outcomes
//! (`outcome::ItemOutcome`). Stages (`stage::Stage`), such as shuffling and packing, may reorder or regroup the records.
//! Everything else in this module is shared by all conversions.

mod dedup;
mod estimate;
mod exclude;
mod images;
mod job;
mod job_file;
mod memory;
mod parts;
mod plan;
mod plan_summary;
mod predict;
mod progress;
mod run;
mod run_units;
mod schedule;
mod selection;
pub(crate) mod shuffle;
mod skipped_advice;
mod source_checks;
mod split_group;
mod status;
mod stored_job;
mod text;

pub use dsconvert_writer::layout::{Existing, ResumeCheck};
pub use dsconvert_writer::stop::Stop;
pub use dsconvert_writer::units::{ConvertedUnits, Totals};
pub use estimate::{Estimate, MIN_SAMPLE};
pub use images::{ImageConversion, ImageInput, ImagesJob, ImagesOptions};
pub(crate) use job::Conversion;
pub use job::Job;
pub use parts::{PartOutcome, merge, run_units};
pub use plan_summary::{ExcludedSummary, PlanSummary, SidecarSummary};
pub(crate) use predict::Predicted;
pub use predict::Prediction;
pub use progress::{Activity, Event, EventLevel, Phase, Progress, Snapshot};
pub use run::{RunOutcome, check_excluded, check_inputs, check_output};
pub use selection::{Selection, ranges};
pub use status::{Status, status};
pub(crate) use text::{FIT_SAMPLES, FIT_SQUARED_ERROR, UNREAD_FIELD, UNREAD_MESSAGE_KEY};
pub use text::{
    IdsFinding, IdsReport, OddDocument, TextConversion, TextInput, TextJob, TextOptions, check_ids,
};

pub use crate::recipe::{
    DEFAULT_MAX_DOCUMENT_BYTES, DEFAULT_TEXT_FIELD, Dedup, ImageFields, LengthRange, ListedImage,
    MAX_PACK_TOKENS, Overflow, Sidecars, TextShape,
};
pub use crate::source::names::layout::SplitBy;
pub use crate::warning::{Remedy, Warning};
