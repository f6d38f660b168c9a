//! Page sections for tokens and documents.

use unicode_normalization_alignments::char::is_combining_mark;

use super::elements::bar;
use crate::numbers::{count, plural, share_of_whole, up_to_three_digits};
use crate::report::ShownToken;
use crate::report::escape::{clipped, escape, push_escaped};
use crate::report::gather::{DatasetReport, TextStats};

/// CSS classes that alternate between adjacent tokens.
const TINTS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];
/// Maximum number of characters of a token in the list of frequent ones.
const TOKEN_CHARACTERS: usize = 40;

pub(super) fn section(out: &mut String, report: &DatasetReport, text: &TextStats) {
    out.push_str("<div class=\"pair\">\n<section class=\"card\">\n<h3>Documents, token by token</h3>\n");
    if let Some(why) = &report.no_text {
        out.push_str(&format!("<p class=\"soft\">Ids are shown, because {}.</p>\n", clipped(why, 400)));
    }
    if text.documents.iter().any(|document| !document.trained.is_empty()) {
        out.push_str("<p class=\"soft\"><span class=\"tokens\"><mark class=\"a\">Underlined tokens</mark></span> are trained on.</p>\n");
    }
    for (number, document) in text.documents.iter().enumerate() {
        let open = if number < 3 { " open" } else { "" };
        out.push_str(&format!(
            "<details{open}><summary><bdi>{}</bdi> <span class=\"soft\">record {}, {}</span></summary>\n<div class=\"tokens\" dir=\"auto\" tabindex=\"0\">",
            clipped(&document.key, 120),
            count(document.record),
            plural(document.length, "token")
        ));
        let trained = document.trained.iter().copied().chain(std::iter::repeat(false));
        for (((id, token), tint), trained) in document.tokens.iter().zip(TINTS.iter().cycle()).zip(trained) {
            let special = if token.as_ref().is_some_and(|token| token.special) { " special" } else { "" };
            let (element, title) = if trained { ("mark", ", trained on") } else { ("span", "") };
            out.push_str(&format!("<{element} class=\"{tint}{special}\" title=\"{id}{title}\">"));
            match token {
                Some(token) => push_bytes(out, &token.bytes, true),
                None => out.push_str(&format!("{id} ")),
            }
            out.push_str(&format!("</{element}>"));
        }
        let more = document.length.saturating_sub(document.tokens.len() as u64);
        if more > 0 {
            out.push_str(&format!(" <i>… and {}</i>", plural(more, "more token")));
        }
        out.push_str("</div></details>\n");
    }
    if text.documents.is_empty() {
        out.push_str("<p class=\"soft\">No record can be read.</p>\n");
    }
    out.push_str("</section>\n");
    frequent(out, report, text);
    out.push_str("</div>\n");
}

fn frequent(out: &mut String, report: &DatasetReport, text: &TextStats) {
    out.push_str("<section class=\"card\">\n<h3>Most frequent tokens</h3>\n");
    let mut facts = format!("{} in {}", plural(text.tokens, "token"), plural(text.records, "record"));
    if let Some(most) = text.most_per_record {
        facts.push_str(&format!(", at most {} of each", count(most)));
    }
    if text.top.iter().any(|token| token.interval.is_some()) {
        facts.push_str(", a sample; shares have 95% confidence intervals");
    }
    facts.push_str(&format!("; {}", plural(text.distinct, "distinct id")));
    let vocabulary =
        report.manifest.tokenizer.as_ref().and_then(|tokenizer| tokenizer.get("vocab_size")?.as_u64());
    if let Some(size) = vocabulary.filter(|size| *size > 0) {
        facts.push_str(&format!(" of {} in the vocabulary", count(size)));
    }
    match text.bytes_per_token {
        Some(bytes) => {
            facts.push_str(&format!("; {} bytes of decoded text per token", up_to_three_digits(bytes)))
        }
        None => facts.push_str("; bytes per token are unknown without the tokenizer"),
    }
    out.push_str(&format!("<p class=\"soft\">{facts}.</p>\n"));
    if text.top.is_empty() {
        out.push_str("</section>\n");
        return;
    }
    out.push_str("<div class=\"scroll tall\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">token</th><th scope=\"col\" class=\"n\">id</th><th scope=\"col\" class=\"bar\">occurrences</th><th scope=\"col\" class=\"n\">number</th><th scope=\"col\" class=\"n\">share</th></tr></thead><tbody>\n");
    let most = text.top.first().map_or(1, |token| token.count.max(1));
    for token in &text.top {
        let mut share = share_of_whole(token.count as f64 / text.tokens.max(1) as f64);
        if let Some((low, high)) = token.interval {
            share.push_str(&format!(" ({} to {})", share_of_whole(low), share_of_whole(high)));
        }
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td>{}<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            token.shown.as_ref().map_or_else(|| "–".to_owned(), shown),
            token.id,
            bar(token.count as f64 / most as f64),
            count(token.count),
            escape(&share)
        ));
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn shown(token: &ShownToken) -> String {
    let special = if token.special { " special" } else { "" };
    let mut out = format!("<bdi class=\"token{special}\">");
    let start = clipped_token(&token.bytes, TOKEN_CHARACTERS);
    push_bytes(&mut out, start, false);
    if start.len() < token.bytes.len() {
        out.push('…');
    }
    out.push_str("</bdi>");
    out
}

/// Returns at most `max` characters from the start of a token. A byte that is not valid UTF-8 counts as a character. The
/// cut is neither in a character nor before a combining mark.
fn clipped_token(bytes: &[u8], max: usize) -> &[u8] {
    let mut start = 0;
    let characters = bytes.utf8_chunks().flat_map(|chunk| {
        let (valid, invalid) = (chunk.valid(), start + chunk.valid().len());
        let of_text = valid.char_indices().map({
            let start = start;
            move |(at, c)| (start + at, is_combining_mark(c))
        });
        start = invalid + chunk.invalid().len();
        of_text.chain((invalid..start).map(|at| (at, false)))
    });
    let places: Vec<(usize, bool)> = characters.take(max + 1).collect();
    if places.len() <= max {
        return bytes;
    }
    let cut = places.iter().rev().find(|(at, is_mark)| *at > 0 && !is_mark).or(places.last());
    cut.and_then(|(at, _)| bytes.get(..*at)).unwrap_or(bytes)
}

/// Appends the text of a token. Line ends, tabs and bytes that are not valid UTF-8 are marked. With `breaks`, line ends
/// also break the line on the page.
fn push_bytes(out: &mut String, bytes: &[u8], breaks: bool) {
    for chunk in bytes.utf8_chunks() {
        for piece in chunk.valid().split_inclusive(['\n', '\t']) {
            let (text, mark) = match (piece.strip_suffix('\n'), piece.strip_suffix('\t')) {
                (Some(text), _) => (text, Some(if breaks { "<i>↵</i>\n" } else { "<i>↵</i>" })),
                (_, Some(text)) => (text, Some("<i>→</i>\t")),
                _ => (piece, None),
            };
            push_escaped(out, text);
            out.push_str(mark.unwrap_or_default());
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("<i>‹{byte:02x}›</i>"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tokens_are_clipped_between_characters() {
        let clip = |text: &str, max| clipped_token(text.as_bytes(), max).to_vec();
        assert_eq!(clip("日本語", 3), "日本語".as_bytes());
        assert_eq!(clip("日本語", 2), "日本".as_bytes());
        assert_eq!(clip("ae\u{301}o", 2), b"a");
        assert_eq!(clip("ae\u{301}o", 3), "ae\u{301}".as_bytes());
        assert_eq!(clip("e\u{301}\u{302}\u{303}", 2), "e\u{301}".as_bytes());
        assert_eq!(clipped_token(b"a\xff\xe2\x82b", 3), b"a\xff\xe2");
        let token = |text: &str| ShownToken { bytes: text.as_bytes().into(), special: false };
        assert_eq!(shown(&token(&"x".repeat(40))), format!("<bdi class=\"token\">{}</bdi>", "x".repeat(40)));
        // The cut counts characters, not bytes.
        let long = format!("a{}", "日".repeat(100));
        assert_eq!(shown(&token(&long)), format!("<bdi class=\"token\">a{}…</bdi>", "日".repeat(39)));
    }

    #[test]
    fn bytes_of_tokens_become_text_marks_or_hexadecimal() {
        let shown = |bytes: &[u8], breaks| {
            let mut out = String::new();
            push_bytes(&mut out, bytes, breaks);
            out
        };
        assert_eq!(shown(b"a<b\nc\t", true), "a&lt;b<i>↵</i>\nc<i>→</i>\t");
        assert_eq!(shown(b"\n\n", false), "<i>↵</i><i>↵</i>");
        assert_eq!(shown(b"\xe2\x82x\xff", true), "<i>‹e2›</i><i>‹82›</i>x<i>‹ff›</i>");
        assert_eq!(shown("\u{202e}".as_bytes(), true), "\\u{202e}");
    }
}
