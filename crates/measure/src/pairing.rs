//! Pairs the items of two targets, and checks that both targets deliver the same.
//!
//! Items are paired by their origin, with or without the label of its source: the path under the folder and, for
//! documents, the offset. A dataset may lack only as many items as its conversion left out. All pairs, or a sample
//! of them, are loaded from both targets. The width and height of images and every token id of documents must be the same.

use std::collections::HashMap;
use std::sync::Arc;

use super::batch::BatchWorker;
use super::order::ItemSet;
use super::target::{BenchTarget, TargetKind};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::sampling;

/// Maximum number of pairs to load and compare.
const MAX_CHECKED: u64 = 500;

/// The items that two targets have in common.
#[derive(Debug)]
pub(super) struct PairedItems {
    /// Items that both hold, in the order of the first target.
    pub(super) items: [ItemSet; 2],
    /// Number of pairs that were loaded and compared.
    pub(super) checked: u64,
}

/// Returns `name` without the label of its source, which is one of `labels`. The label of a folder may contain `#`, and
/// that of a file matched by a pattern `/`.
fn without_label<'a>(name: &'a str, labels: &[String]) -> &'a str {
    let rest = |label: &String| {
        name.strip_prefix(label.as_str()).filter(|rest| rest.is_empty() || rest.starts_with(['/', '#']))
    };
    // Of two labels such as `a` and `a#b`, the longer one leaves the shorter rest.
    match labels.iter().filter_map(rest).min_by_key(|rest| rest.len()) {
        Some(rest) => rest.strip_prefix('/').unwrap_or(rest),
        None => name,
    }
}

/// Returns the error for two targets that cannot be compared.
fn not_comparable(targets: [&BenchTarget; 2], what: String, help: &str) -> Error {
    let [a, b] = targets.map(|target| target.path().to_string_lossy().into_owned());
    Error::usage(format!("{a} and {b} cannot be compared: {what}")).help(help.to_owned())
}

/// Pairs the items that both targets hold, and checks that both deliver the same shapes.
pub(super) fn pair(targets: [&BenchTarget; 2]) -> Result<PairedItems> {
    let [a, b] = targets;
    if a.kind().is_text() != b.kind().is_text() {
        let what = format!("one is {}, the other {}", kind(a.kind()), kind(b.kind()));
        return Err(not_comparable(targets, what, "compare images with images, or text with text"));
    }
    if a.kind().is_text() && !(a.has_tokens() && b.has_tokens()) {
        let what = "text files deliver no tokens without a tokenizer".to_owned();
        return Err(not_comparable(targets, what, "name the tokenizer"));
    }
    let pairs = pairs(targets)?;
    let checked = check(targets, &pairs)?;
    let side = |ordinals: Vec<u64>, target: &BenchTarget| {
        let all = ordinals.len() as u64 == target.items() && ordinals.is_sorted();
        ItemSet { count: ordinals.len() as u64, subset: (!all).then(|| Arc::new(ordinals)) }
    };
    let (first, second) = pairs.into_iter().unzip();
    Ok(PairedItems { items: [side(first, a), side(second, b)], checked })
}

fn kind(kind: TargetKind) -> &'static str {
    if kind.is_text() { "a corpus of text" } else { "a set of images" }
}

/// Returns the part of a name by which items are paired, given the labels of the sources.
type NameOf = for<'a> fn(&'a str, &[String]) -> &'a str;

/// Returns the ordinals of `names`; `None` if a name occurs twice, as that of files in several sources may without its
/// label.
fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Option<HashMap<&'a str, u64>> {
    let mut ordinals = HashMap::new();
    names.zip(0..).all(|(name, ordinal)| ordinals.insert(name, ordinal).is_none()).then_some(ordinals)
}

/// Returns the ordinals of the items that both targets hold.
fn pairs(targets: [&BenchTarget; 2]) -> Result<Vec<(u64, u64)>> {
    let [a, b] = targets;
    let (names_a, names_b) = (a.names()?, b.names()?);
    // The label of a single file is its name, which is part of the path if the other target is the folder of that file.
    let whole: NameOf = |name, _| name;
    let mut best: Vec<(u64, u64)> = Vec::new();
    for [name_a, name_b] in
        [[whole, whole], [without_label, without_label], [without_label, whole], [whole, without_label]]
    {
        let names_a: Vec<&str> = names_a.iter().map(|name| name_a(name, a.labels())).collect();
        let by_name = unique(names_b.iter().map(|name| name_b(name, b.labels())));
        let (Some(_), Some(by_name)) = (unique(names_a.iter().copied()), by_name) else { continue };
        let found = names_a.iter().zip(0..);
        let found: Vec<(u64, u64)> = found.filter_map(|(name, i)| Some((i, *by_name.get(name)?))).collect();
        if found.len() > best.len() {
            best = found;
        }
    }
    let both = best.len() as u64;
    for (target, other) in [(a, b), (b, a)] {
        let missing = target.items().saturating_sub(both);
        if missing > other.left_out() {
            let name = |t: &BenchTarget| t.path().to_string_lossy().into_owned();
            let what = format!(
                "{} has {}, but only {both} are in {}, whose conversion left out {}",
                name(target),
                plural(target.items(), "item"),
                name(other),
                other.left_out()
            );
            let help =
                "convert exactly this folder, without splitting or packing, and compare it with all splits";
            return Err(not_comparable(targets, what, help));
        }
    }
    if best.is_empty() {
        return Err(not_comparable(
            targets,
            "they have no items in common".to_owned(),
            "compare a dataset with its source",
        ));
    }
    Ok(best)
}

/// Loads pairs from both targets, and returns how many match. Items that load from neither are skipped.
fn check(targets: [&BenchTarget; 2], pairs: &[(u64, u64)]) -> Result<u64> {
    let open = [targets[0].open()?, targets[1].open()?];
    let [mut first, mut second]: [Box<dyn BatchWorker + '_>; 2] = [open[0].worker(), open[1].worker()];
    let mut checked = 0;
    for at in sampling::sample(pairs.len() as u64, MAX_CHECKED) {
        let Some(&(i, j)) = usize::try_from(at).ok().and_then(|at| pairs.get(at)) else { continue };
        let name = targets[0].name_of(i);
        match (first.shape(i), second.shape(j)) {
            (Ok(a), Ok(b)) if a == b => checked += 1,
            (Ok(a), Ok(b)) => {
                let what = format!("{name} is {a} in the first and {b} in the second");
                let help = match targets[0].kind().is_text() {
                    true => "give the tokenizer and text options that the dataset was converted with",
                    false => "give the pixel options that the dataset was converted with",
                };
                return Err(not_comparable(targets, what, help));
            }
            (Err(_), Err(_)) => {}
            (Err(why), _) | (_, Err(why)) => {
                let what = format!("{name} loads from only one of them: {why}");
                return Err(not_comparable(
                    targets,
                    what,
                    "check the dataset with `dsconvert inspect --verify`",
                ));
            }
        }
    }
    if checked == 0 {
        return Err(not_comparable(targets, "no item could be loaded".to_owned(), "check the files"));
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_at_a_folder_or_an_offset() {
        let labels = ["photos", "a.jsonl", "c", "c#d", "one.txt", "x/y.jsonl"].map(str::to_owned);
        for (name, without) in [
            ("photos/a/b.jpg", "a/b.jpg"),
            ("a.jsonl#12", "#12"),
            ("c/a.jsonl#0", "a.jsonl#0"),
            ("c#d/a.jsonl#0", "a.jsonl#0"),
            ("one.txt", ""),
            ("x/y.jsonl#7", "#7"),
            ("photos-2/a.jpg", "photos-2/a.jpg"),
        ] {
            assert_eq!(without_label(name, &labels), without);
            assert_eq!(without_label(name, &[]), name);
        }
    }
}
