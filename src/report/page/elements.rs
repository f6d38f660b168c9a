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

/// Encodes Base64 with padding, as in `data:` URLs and policy hashes.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_encodes_the_vectors_of_rfc_4648() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, expected) in cases {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbf]), "/++/");
    }

    #[test]
    fn names_and_values_are_escaped_and_truncated() {
        let mut out = String::new();
        pairs(&mut out, [("<b>", "x".repeat(10_000))]);
        assert!(out.contains("&lt;b&gt;") && out.len() < 1000);
    }
}
