//! SVG pictures: the timeline of a run and the curve of a sweep.
//!
//! Colors are CSS classes with a dark variant, so the same file suits light and dark pages.

mod sweep;
mod timeline;

pub use timeline::timeline_svg;

use std::fmt::{self, Write};

/// Escapes text for XML and HTML, in elements and in quoted attributes. Characters that XML forbids become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Hues and lightnesses of workers: distinct for neighbors, dark enough for white text. `page/view.js` has the same
/// list.
const COLORS: [(u32, u32); 10] = [
    (212, 50),
    (24, 46),
    (152, 36),
    (268, 56),
    (340, 50),
    (190, 38),
    (46, 38),
    (300, 42),
    (100, 34),
    (4, 52),
];

/// Fill color for everything that belongs to a worker.
pub(crate) fn worker_fill(worker: u32) -> String {
    let (hue, lightness) = COLORS[worker as usize % COLORS.len()];
    let lightness = lightness - 8 * (worker / COLORS.len() as u32 % 3);
    format!("hsl({hue} 62% {lightness}%)")
}

/// Attributes of labels.
const SMALL: &str = "class=\"small\"";
const SMALL_MIDDLE: &str = "class=\"small\" text-anchor=\"middle\"";
const SMALL_END: &str = "class=\"small\" text-anchor=\"end\"";

/// An SVG picture under construction.
#[derive(Debug, Default)]
struct Canvas {
    body: String,
}

const STYLE: &str = "<style>\
svg{background:#fff}\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#333}\
.title{font-size:16px;font-weight:600;fill:#111}\
.small{font-size:11px;fill:#5a5a5a}\
.in{font-size:10px;fill:#fff;text-anchor:middle}\
.row{fill:#f0f1f3}\
.axis{stroke:#8a8f98;fill:none}\
.grid{stroke:#dfe2e6;fill:none}\
.queue{fill:#7d8590;fill-opacity:.45;stroke:#57606a;stroke-width:1}\
.wait{fill:#d1242f;fill-opacity:.28}\
.copy{fill:#8a8f98}\
.line{fill:none;stroke:#0969da;stroke-width:2}\
.dot{fill:#0969da}\
.limit{fill:none;stroke:#bc4c00;stroke-width:1.5;stroke-dasharray:6 4}\
.limit2{fill:none;stroke:#8250df;stroke-width:1.5;stroke-dasharray:2 4}\
@media (prefers-color-scheme:dark){\
svg{background:#14171c}text{fill:#d6dae0}.title{fill:#f2f4f7}.small{fill:#a0a7b1}.in{fill:#fff}\
.row{fill:#20242b}.axis{stroke:#6e7681}.grid{stroke:#2b3038}.queue{fill:#8b949e;stroke:#b1bac4}\
.wait{fill:#ff7b72;fill-opacity:.35}.line{stroke:#58a6ff}.dot{fill:#58a6ff}.limit{stroke:#f0883e}.limit2{stroke:#bc8cff}}\
</style>";

impl Canvas {
    /// Appends markup.
    fn add(&mut self, markup: fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(markup);
        self.body.push('\n');
    }

    /// Appends a path of the class `class`.
    fn path(&mut self, class: &str, path: fmt::Arguments<'_>) {
        self.add(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    fn text(&mut self, x: f64, y: f64, attributes: &str, text: &str) {
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escape(text)));
    }

    /// Returns the complete SVG file.
    fn finish(self, width: f64, height: f64, title: &str, description: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n<desc>{}</desc>\n{STYLE}\n{}</svg>\n",
            escape(title),
            escape(title),
            escape(description),
            self.body
        )
    }
}

/// Returns a round step size that divides `range` into at most `max_steps` parts.
fn nice_step(range: f64, max_steps: f64) -> f64 {
    let raw = range / max_steps;
    let power = 10f64.powf(raw.log10().floor());
    for factor in [1.0, 2.0, 5.0] {
        if factor * power >= raw {
            return factor * power;
        }
    }
    10.0 * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        assert_eq!(escape("<a b='\"&\0\n"), "&lt;a b=&#39;&quot;&amp;\u{fffd} ");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(30.0, 10.0), 5.0);
        assert_eq!(nice_step(7.0, 10.0), 1.0);
        assert_eq!(nice_step(0.3, 10.0).to_string(), "0.05");
    }
}
