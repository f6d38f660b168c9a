//! Summaries of runs, stored plans and dry runs.

mod chats;
mod plan;
mod prediction;
mod run;

pub(super) use plan::{buckets, late_warnings, plan, stored, warnings};
pub(super) use prediction::prediction;
pub(super) use run::{merged, next_step, report, times};

use crate::cli::flags::with_flags;
use crate::format::Format;
use crate::numbers::listed;
use crate::numbers::{count, plural};
use crate::pipeline::{PlanSummary, SidecarSummary, SplitBy};
use crate::printable::{printable, printable_path};
use crate::schema::{IMAGE, Kind};
use std::fmt::{Display, Write};

/// Maximum number of names of fields or columns to print.
const SHOWN_FIELDS: usize = 20;
/// Maximum number of class names to print.
const SHOWN_CLASSES: usize = 8;

/// Text that is built line by line.
#[derive(Default)]
pub(super) struct Lines(pub(super) String);

impl Lines {
    pub(super) fn add(&mut self, line: impl Display) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Formats the names of the splits, and how records are assigned to them. `files` are the numbers of files per split.
fn splits(plan: &PlanSummary, files: Option<&[u64]>) -> String {
    let counts = files.into_iter().flatten().map(|n| format!(" ({})", plural(*n, "file")));
    let counts = counts.chain(std::iter::repeat(String::new()));
    let names: Vec<String> =
        plan.splits.iter().zip(counts).map(|(name, count)| format!("{name}{count}")).collect();
    let by = match plan.split_by {
        None if plan.hashed_labels.is_empty() => ", by hash of the key".to_owned(),
        None => {
            let labels = listed(plan.hashed_labels.iter().map(|label| printable(label).into_owned()));
            format!(
                ", by hash of the key, which starts with the source's label ({labels}; LABEL=PATH sets it)"
            )
        }
        Some(SplitBy::Nothing) => String::new(),
        Some(by) if plan.split_folders.is_empty() => format!(", {by}"),
        Some(by) => {
            let folders = listed(plan.split_folders.iter().map(|name| printable(name).into_owned()));
            format!(", {by}: {folders}")
        }
    };
    format!("{}{by}", names.join(", "))
}

/// Formats what the sources have beside the items and which fields follow from them: names and texts of the lines.
/// `buckets` are those that are left out.
fn sources(plan: &PlanSummary, buckets: Option<String>) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> = metadata(plan).map(|text| ("metadata", text)).into_iter().collect();
    lines.extend(sidecars(plan).map(|text| ("sidecars", text)));
    let others = [
        ("images", images(plan)),
        ("buckets", buckets),
        ("fields", fields(plan)),
        ("left out", left_out(plan)),
        ("processor", plan.vision.as_ref().map(|vision| printable(&vision.to_string()).into_owned())),
    ];
    lines.extend(others.into_iter().filter_map(|(name, text)| Some((name, text?))));
    lines
}

/// Formats that a loader would read token ids faster from another format than `format`.
pub(super) fn faster_format(format: Format) -> Option<String> {
    let (faster, times) = format.faster_for_ids()?;
    Some(format!(
        "a loader reads token ids about {times} times as fast from {faster} (--format {faster}), and many times as fast if \
         they exceed 256 MiB"
    ))
}

/// Formats why there are no labels, if there are none.
fn no_labels(plan: &PlanSummary) -> Option<String> {
    let why = plan.no_labels.as_ref()?;
    Some(format!("no labels: {}", printable(&with_flags(why))))
}

/// Formats the metadata files in use, with the fields they add.
fn metadata(plan: &PlanSummary) -> Option<String> {
    if plan.metadata.is_empty() {
        return None;
    }
    let files = listed(plan.metadata.iter().map(|path| printable_path(path)));
    let fields = listed(plan.fields.iter().map(|name| printable(name).into_owned()));
    let fields = if fields.is_empty() { "no fields".to_owned() } else { format!("fields {fields}") };
    Some(format!("{files} ({fields})"))
}

/// Formats the files beside images that hold the values of fields, in one line for each field.
fn sidecars(plan: &PlanSummary) -> impl Iterator<Item = String> {
    plan.sidecars.iter().map(|sidecar| {
        let SidecarSummary { field, images, missing, empty, unpaired, example, .. } = sidecar;
        let mut parts = Vec::new();
        parts.extend((*missing > 0).then(|| format!("{} missing", count(*missing))));
        parts.extend((*empty > 0).then(|| format!("{} empty", count(*empty))));
        if let Some(example) = example {
            let (unpaired, example) = (count(*unpaired), printable(example));
            parts.push(format!("{unpaired} without an image and skipped, such as {example}"));
        }
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let (of, all) = (count(*images), plural(images + missing, "image"));
        printable(&format!("{field} beside {of} of {all}{parts}")).into_owned()
    })
}

/// Formats the images of samples and rows, if there are several or the main one is named.
fn images(plan: &PlanSummary) -> Option<String> {
    let main = match &plan.main_image {
        Some(main) if main != IMAGE => format!("image = {}", printable(main)),
        _ => IMAGE.to_owned(),
    };
    let fields = listed(plan.image_fields.iter().map(|field| printable(field).into_owned()));
    match (fields.is_empty(), &plan.main_image) {
        (true, None) => None,
        (true, Some(_)) => Some(main),
        (false, _) => Some(format!("{main}, {fields}")),
    }
}

/// Formats the fields of samples and rows that are not images, if there are any.
fn fields(plan: &PlanSummary) -> Option<String> {
    let is_shown = plan.kind == Kind::Images.name() && plan.metadata.is_empty() && !plan.fields.is_empty();
    is_shown.then(|| all_of(&plan.fields))
}

/// Formats the columns that are left out, if there are any.
fn left_out(plan: &PlanSummary) -> Option<String> {
    let count = plan.left_out.len() as u64;
    (count > 0).then(|| format!("{}: {}", plural(count, "column"), all_of(&plan.left_out)))
}

/// Lists the first names, and how many more there are.
fn all_of(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(SHOWN_FIELDS).map(|name| printable(name)).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Formats classes as `5 classes: dunes 6, flowers 1,200 and 3 more`. `records` returns the count of a label.
pub(super) fn class_counts(names: &[String], records: impl Fn(usize) -> u64) -> String {
    classes(names, |label, name| format!("{name} {}", count(records(label))))
}

/// Formats classes as `5 classes: dunes, flowers and 3 more`, or with what `show` returns for a label and a name.
pub(super) fn classes(names: &[String], show: impl Fn(usize, &str) -> String) -> String {
    let shown = names.iter().enumerate().take(SHOWN_CLASSES);
    let shown: Vec<String> = shown.map(|(label, name)| show(label, &printable(name))).collect();
    let (number, more) = (names.len(), names.len() - shown.len());
    let classes = if number == 1 { "class" } else { "classes" };
    let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    format!("{} {classes}: {}{more}", count(number as u64), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_counts_list_the_first_classes() {
        let names: Vec<String> = (0..1010).map(|i| format!("c{i}")).collect();
        assert_eq!(class_counts(&names[..1], |_| 1), "1 class: c0 1");
        assert_eq!(class_counts(&names[..2], |label| 1000 * label as u64), "2 classes: c0 0, c1 1,000");
        assert!(class_counts(&names, |_| 5).starts_with("1,010 classes: c0 5, c1 5, "));
        assert!(class_counts(&names, |_| 5).ends_with(", c7 5 and 1,002 more"));
        let plain = |names: &[String]| classes(names, |_, name| name.to_owned());
        assert_eq!(plain(&names[..1]), "1 class: c0");
        assert!(plain(&names).starts_with("1,010 classes: c0, c1, "));
    }
}
