//! Reports: an HTML page, plots and a contact sheet of a dataset, and the run report of a conversion.
//!
//! A report is made in two steps. [`DatasetReport::of`] reads the dataset once, in bounded memory, into plain
//! structs; the page, the plots and the summary for notebooks only format these. Parts that cannot be read are listed
//! as problems of the report, which covers the rest.
//!
//! ```text
//! dataset ─▶ gather ─▶ DatasetReport ─▶ page (HTML), svg (plots), summary (notebooks)
//!                └──── contact_sheet (PNG)
//! ```
//!
//! Every string of a dataset passes through `escape` before it enters HTML or SVG.

mod escape;
mod gather;
mod histogram;
mod page;
mod run;
mod svg;
mod thumbnail;
mod vocabulary;

pub use escape::escape;
pub(crate) use gather::BucketShare;
pub use gather::{
    BucketShares, ClassCounts, Curves, DatasetReport, DecodedSample, ImageStats, LabelCounts, RejectExamples,
    ReportOptions, SplitReport, TextStats, Thumbnail, TokenCount, TrainedStats,
};
pub use histogram::{Bin, Histogram};
pub use page::{page_html, summary_html};
pub use run::bytes_per_token;
pub use run::{
    ActivityTimes, Host, PartUnits, RUN_REPORT_VERSION, RunReport, peak_memory_bytes, run_reports,
};
pub use svg::plots_svg;
pub use thumbnail::contact_sheet;
pub use vocabulary::ShownToken;
pub(crate) use vocabulary::Vocabulary;

/// Returns the name of a note as words. A name from the data follows a colon, and stays as it is.
pub(crate) fn note_name(name: &str) -> String {
    match name.split_once(':') {
        Some((kind, name)) => format!("{} {name}", kind.replace('_', " ")),
        None => name.replace('_', " "),
    }
}
