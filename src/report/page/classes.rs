//! Page section for classes: the records of each, with the splits side by side, so that a class which a split lacks is seen.

use super::elements::bar;
use super::overview::MAX_ROWS;
use crate::numbers::{count, plural, share_of_whole, up_to_three_digits};
use crate::report::escape::{clipped, escape};
use crate::report::gather::{DatasetReport, LabelCounts};

/// Maximum number of classes to list.
const SHOWN_CLASSES: usize = 50;
/// Maximum number of classes without a record to name.
const NAMED_EMPTY: usize = 5;
/// Maximum number of characters of a class name.
const NAME_CHARACTERS: usize = 80;

pub(super) fn section(out: &mut String, report: &DatasetReport) {
    let splits: Vec<(&str, &LabelCounts)> = report
        .splits
        .iter()
        .take(MAX_ROWS)
        .filter_map(|split| Some((split.name.as_str(), split.images.as_ref()?.classes.as_ref()?)))
        .collect();
    if !splits.is_empty() {
        balance(out, &report.manifest.schema.class_names, &splits);
    }
}

fn balance(out: &mut String, names: &[String], splits: &[(&str, &LabelCounts)]) {
    out.push_str("<section class=\"card\">\n<h3>Class balance</h3>\n");
    for (split, found) in splits {
        out.push_str(&format!(
            "<p class=\"soft\"><bdi>{}</bdi>: {}.</p>\n",
            clipped(split, NAME_CHARACTERS),
            escape(&facts(names, found))
        ));
    }
    let of = |found: &LabelCounts, label: usize| found.counts.get(label).copied().unwrap_or(0);
    let total =
        |label: usize| splits.iter().fold(0u64, |sum, (_, found)| sum.saturating_add(of(found, label)));
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|label| (std::cmp::Reverse(total(*label)), *label));
    if order.is_empty() {
        out.push_str("</section>\n");
        return;
    }
    out.push_str("<div class=\"scroll tall\" tabindex=\"0\"><table><thead><tr><th scope=\"col\" rowspan=\"2\">class</th>");
    for (split, _) in splits {
        out.push_str(&format!(
            "<th scope=\"colgroup\" colspan=\"3\"><bdi>{}</bdi></th>",
            clipped(split, NAME_CHARACTERS)
        ));
    }
    out.push_str("</tr><tr>");
    for _ in splits {
        out.push_str("<th scope=\"col\" class=\"bar\">records</th><th scope=\"col\" class=\"n\">number</th><th scope=\"col\" class=\"n\">share</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for &label in order.iter().take(SHOWN_CLASSES) {
        let name = names.get(label).map_or("", String::as_str);
        out.push_str(&format!("<tr><th scope=\"row\"><bdi>{}</bdi></th>", clipped(name, NAME_CHARACTERS)));
        for (_, found) in splits {
            let (number, most) = (of(found, label), found.counts.iter().max().copied().unwrap_or(0));
            let class = if number == 0 { "n none" } else { "n" };
            out.push_str(&format!(
                "{}<td class=\"{class}\">{}</td><td class=\"n\">{}</td>",
                bar(number as f64 / most.max(1) as f64),
                count(number),
                escape(&share_of_whole(number as f64 / found.read.max(1) as f64))
            ));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    let hidden = order.get(SHOWN_CLASSES..).unwrap_or_default();
    if !hidden.is_empty() {
        let read = splits.iter().fold(0u64, |sum, (_, found)| sum.saturating_add(found.read));
        let records = hidden.iter().fold(0u64, |sum, label| sum.saturating_add(total(*label)));
        out.push_str(&format!(
            "<p class=\"note\">The {SHOWN_CLASSES} most frequent classes; {} {} of the records.</p>\n",
            if hidden.len() == 1 {
                "1 other has".to_owned()
            } else {
                format!("{} others have", count(hidden.len() as u64))
            },
            escape(&share_of_whole(records as f64 / read.max(1) as f64))
        ));
    }
    out.push_str("</section>\n");
}

/// Returns what the classes of a split have in common, and those without a record.
fn facts(names: &[String], found: &LabelCounts) -> String {
    let mut present: Vec<u64> = found.counts.iter().copied().filter(|count| *count > 0).collect();
    present.sort_unstable();
    let mut facts = vec![match names.len() {
        1 => "1 class".to_owned(),
        classes => format!("{} classes", count(classes as u64)),
    }];
    if let (Some(&least), Some(&most)) = (present.first(), present.last()) {
        if least == most {
            facts.push(format!("each has {}", plural(most, "record")));
        } else {
            // Of an even number of classes, the smaller one of the middle, as in the order from the largest.
            let median = present.get((present.len() - 1) / 2).copied().unwrap_or(least);
            facts.push(format!("{} to {} records, median {}", count(least), count(most), count(median)));
            facts.push(format!(
                "the largest is {} times the smallest",
                up_to_three_digits(most as f64 / least as f64)
            ));
        }
    }
    let empty: Vec<&str> = names
        .iter()
        .enumerate()
        .filter(|(label, _)| found.counts.get(*label).copied().unwrap_or(0) == 0)
        .map(|(_, name)| name.as_str())
        .collect();
    if !empty.is_empty() {
        let named: Vec<&str> = empty.iter().take(NAMED_EMPTY).copied().collect();
        let more = if empty.len() > named.len() { ", …" } else { "" };
        facts.push(format!("{} without a record ({}{more})", count(empty.len() as u64), named.join(", ")));
    }
    if found.unlabeled > 0 {
        facts.push(format!("{} without a label", plural(found.unlabeled, "record")));
    }
    format!("{}; counted in {}", facts.join("; "), plural(found.read, "record"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(counts: &[u64], read: u64) -> String {
        let names: Vec<String> = (0..counts.len()).map(|i| format!("c{i}")).collect();
        let mut out = String::new();
        let found = LabelCounts { counts: counts.to_vec(), unlabeled: 0, read };
        balance(&mut out, &names, &[("train", &found)]);
        out
    }

    #[test]
    fn a_share_is_neither_rounded_to_all_nor_to_nothing() {
        let all = shown(&[3000, 1], 3001);
        assert!(all.contains(">&gt;99.9%<") && all.contains(">&lt;0.1%<"), "{all}");
        let mut many = vec![60; 50];
        many.push(1);
        assert!(shown(&many, 3001).contains("1 other has &lt;0.1% of the records"));
        many.extend([0, 0]);
        assert!(shown(&many, 3001).contains("3 others have &lt;0.1% of the records"));
    }

    #[test]
    fn a_class_that_one_split_lacks_is_named_and_marked() {
        let names = ["cat", "dog"].map(str::to_owned);
        let train = LabelCounts { counts: vec![3, 2], unlabeled: 1, read: 6 };
        let test = LabelCounts { counts: vec![0, 4], unlabeled: 0, read: 4 };
        let mut out = String::new();
        balance(&mut out, &names, &[("train", &train), ("test", &test)]);
        assert!(
            out.contains("1 without a record (cat)") && out.contains("1 record without a label"),
            "{out}"
        );
        assert_eq!(out.matches("<td class=\"n none\">0</td>").count(), 1);
        // Sorted by the records of all splits.
        assert!(out.find("<bdi>dog</bdi>") < out.find("<bdi>cat</bdi>"));
    }
}
