//! HTML building blocks that the sections share. Sections append markup, in which text of a dataset is escaped.

use crate::report::escape::{clipped, escape};

/// Appends a heading with an anchor.
pub(super) fn heading(out: &mut String, id: &str, title: &str) {
    out.push_str(&format!("<h2 id=\"{id}\">{}</h2>\n", escape(title)));
}

/// Appends tiles of names and values.
pub(super) fn numbers(out: &mut String, tiles: &[(&str, String)]) {
    out.push_str("<dl class=\"numbers\">\n");
    for (name, value) in tiles {
        out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value)));
    }
    out.push_str("</dl>\n");
}

/// Appends a table of names and values.
pub(super) fn pairs<N: AsRef<str>>(out: &mut String, rows: impl IntoIterator<Item = (N, String)>) {
    out.push_str("<table class=\"wide\"><tbody>\n");
    for (name, value) in rows {
        out.push_str(&format!(
            "<tr><th scope=\"row\"><bdi>{}</bdi></th><td><bdi>{}</bdi></td></tr>\n",
            breakable(&clipped(name.as_ref(), 120)),
            clipped(&value, 600)
        ));
    }
    out.push_str("</tbody></table>\n");
}

/// Allows line breaks after dots and underscores in escaped text.
fn breakable(escaped: &str) -> String {
    escaped.replace('.', ".<wbr>").replace('_', "_<wbr>")
}

/// Returns a table cell with a bar that fills `share` (0 to 1) of its width.
pub(super) fn bar(share: f64) -> String {
    let width = (share * 100.0).clamp(if share > 0.0 { 0.6 } else { 0.0 }, 100.0);
    format!(
        "<td class=\"bar\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect width=\"100\" height=\"10\"/><rect width=\"{width:.2}\" height=\"10\"/></svg></td>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_escaped_and_truncated() {
        let mut out = String::new();
        pairs(&mut out, [("<b>", "x".repeat(10_000))]);
        assert!(out.contains("&lt;b&gt;") && out.len() < 1000);
    }
}
