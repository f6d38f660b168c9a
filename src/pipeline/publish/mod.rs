//! Datasets in object storage.
//!
//! A run always works in a local output directory. If the output is a URL, that directory is a [`ScratchDir`] of
//! the process, and [`Remote`] copies files between it and the store. Only the store determines what is finished:
//! losing a scratch directory costs only the units in progress, and any machine can continue.
//!
//! | object under the output's prefix | when |
//! |---|---|
//! | `.dsconvert/<plan>/plan.jsonl`, `job.jsonl`, `tokenizer.json` | planning; `<plan>` is the identity of the plan |
//! | `.dsconvert/plan.json` | after them, create-only: the plan that this prefix belongs to |
//! | `.dsconvert/<plan>/duplicates`, `duplicates.sha256` | after the pass that finds duplicates |
//! | `<split>/<shard>` | when a shard is closed |
//! | `.dsconvert/units/<unit>/…` | when a unit is finished: its small files, then `unit.json`, create-only |
//! | `index/…`, `rejects.jsonl`, … | commit, after all shards were checked |
//! | `manifest.json` | last, create-only |
//!
//! After the commit, everything under `.dsconvert/` is deleted. Two processes that work on the same plan write the same
//! bytes under the same names, and neither starts an upload of a shard or index once the manifest exists. A second plan
//! is refused by the create-only `plan.json` during a run, and by the manifest afterwards.

mod commit;
mod plan;
mod remote;
mod scratch_dir;
mod transfer;
mod units;

pub(super) use plan::PlanId;
pub(super) use remote::{Remote, adapt_help, may_be_overtaken};
pub(super) use scratch_dir::ScratchDir;
pub(super) use units::UPLOADS;
