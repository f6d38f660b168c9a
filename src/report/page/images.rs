//! Page sections for classes and thumbnails.

use super::elements::{bar, base64};
use crate::numbers::{count, plural, share_of_whole, up_to_three_digits};
use crate::report::escape::{clipped, escape};
use crate::report::gather::{Classes, ImageStats, Thumbnail};

/// Maximum number of characters of a caption.
const CAPTION_CHARACTERS: usize = 120;
/// Maximum number of characters of a class name.
const NAME_CHARACTERS: usize = 80;

pub(super) fn section(out: &mut String, images: &ImageStats) {
    if !images.thumbnails.is_empty() {
        out.push_str(&format!(
            "<section class=\"card\">\n<h3>{} of this split</h3>\n",
            plural(images.thumbnails.len() as u64, "image")
        ));
        contact_sheet(out, &images.thumbnails);
        out.push_str("</section>\n");
    }
    if let Some(classes) = &images.classes {
        balance(out, classes);
    }
}

/// Appends thumbnails side by side.
pub(super) fn contact_sheet(out: &mut String, thumbnails: &[Thumbnail]) {
    out.push_str("<div class=\"sheet\">\n");
    for image in thumbnails {
        let name = image.class.as_deref().unwrap_or(&image.key);
        let (width, height) = image.size;
        out.push_str("<figure><div class=\"frame\">");
        match &image.jpeg {
            Ok(jpeg) => out.push_str(&format!(
                "<img src=\"data:image/jpeg;base64,{}\" width=\"{}\" height=\"{}\" alt=\"{}\" title=\"{}\">",
                base64(jpeg),
                image.shown.0,
                image.shown.1,
                clipped(&format!("Record {}, {name}", image.record), 200),
                clipped(&image.key, 300)
            )),
            Err(why) => out.push_str(&format!("<p>cannot be shown: {}</p>", clipped(why, 120))),
        }
        out.push_str(&format!(
            "</div><figcaption><b><bdi>{}</bdi></b>{}<span class=\"soft\">{} · {width}×{height}</span></figcaption></figure>\n",
            clipped(name, NAME_CHARACTERS),
            image.caption.as_deref().map_or_else(String::new, |caption| {
                format!("<bdi>{}</bdi><br>", clipped(caption, CAPTION_CHARACTERS))
            }),
            count(image.record),
        ));
    }
    out.push_str("</div>\n");
}

fn balance(out: &mut String, classes: &Classes) {
    out.push_str("<section class=\"card\">\n<h3>Class balance</h3>\n");
    let most = classes.top.first().map_or(0, |top| top.1);
    let mut facts = vec![format!(
        "{} {}",
        count(classes.classes),
        if classes.classes == 1 { "class" } else { "classes" }
    )];
    if most == classes.least && most > 0 {
        facts.push(format!("each has {}", plural(most, "record")));
    } else if most > 0 {
        facts.push(format!(
            "{} to {} records, median {}",
            count(classes.least),
            count(most),
            count(classes.median)
        ));
        facts.push(format!(
            "the largest is {} times the smallest",
            up_to_three_digits(most as f64 / classes.least.max(1) as f64)
        ));
    }
    if classes.empty > 0 {
        facts.push(format!("{} without a record", count(classes.empty)));
    }
    if classes.unlabeled > 0 {
        facts.push(format!("{} without a label", plural(classes.unlabeled, "record")));
    }
    out.push_str(&format!(
        "<p class=\"soft\">{}; counted in {}.</p>\n",
        escape(&facts.join("; ")),
        plural(classes.read, "record")
    ));
    if classes.top.is_empty() {
        out.push_str("</section>\n");
        return;
    }
    out.push_str("<div class=\"scroll tall\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">class</th><th scope=\"col\" class=\"bar\">records</th><th scope=\"col\" class=\"n\">number</th><th scope=\"col\" class=\"n\">share</th></tr></thead><tbody>\n");
    for (name, number) in &classes.top {
        out.push_str(&format!(
            "<tr><th scope=\"row\"><bdi>{}</bdi></th>{}<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            clipped(name, NAME_CHARACTERS),
            bar(*number as f64 / most.max(1) as f64),
            count(*number),
            escape(&share_of_whole(*number as f64 / classes.read.max(1) as f64))
        ));
    }
    out.push_str("</tbody></table></div>\n");
    let hidden = classes.classes.saturating_sub(classes.top.len() as u64);
    if hidden > 0 {
        let listed: u64 = classes.top.iter().map(|top| top.1).sum();
        out.push_str(&format!(
            "<p class=\"note\">The {} most frequent classes; {} {} of the records.</p>\n",
            classes.top.len(),
            if hidden == 1 { "1 other has".to_owned() } else { format!("{} others have", count(hidden)) },
            escape(&share_of_whole(
                classes.read.saturating_sub(listed + classes.unlabeled) as f64 / classes.read.max(1) as f64
            ))
        ));
    }
    out.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(top: &[u64], classes: u64) -> String {
        let top: Vec<(String, u64)> = (0..).zip(top).map(|(i, n)| (format!("c{i}"), *n)).collect();
        let read = 3001;
        let mut out = String::new();
        balance(&mut out, &Classes { top, classes, read, least: 1, ..Classes::default() });
        out
    }

    #[test]
    fn a_share_is_neither_rounded_to_all_nor_to_nothing() {
        let all = shown(&[3000, 1], 2);
        assert!(all.contains(">&gt;99.9%<") && all.contains(">&lt;0.1%<"), "{all}");
        assert!(shown(&[3000], 2).contains("1 other has &lt;0.1% of the records"));
        assert!(shown(&[3001], 4).contains("3 others have 0.0% of the records"));
    }
}
