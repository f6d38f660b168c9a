//! Marks of the tokens to train on: what `--verify` finds in them, and how a decoded record shows them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;

use crate::cli::print;
use crate::error::Result;
use crate::numbers::plural;
use crate::printable::printable;
use crate::reader::{Dataset, Record};
use crate::report::Vocabulary;
use crate::sample::Value;
use crate::schema::ASSISTANT_MASKS;

/// Returns the marks of a record, one per token: 1 for tokens to train on.
pub(super) fn marks(record: &Record) -> Option<&[u8]> {
    match record.get(ASSISTANT_MASKS)? {
        Value::Bytes(marks) if record.schema().masks_field().is_some() => Some(marks),
        _ => None,
    }
}

/// Returns the ranges of equal marks, in order, each with whether its tokens are trained on.
fn spans(marks: &[u8]) -> impl Iterator<Item = (Range<usize>, bool)> {
    let mut start = 0;
    marks.chunk_by(|a, b| a == b).map(move |same| {
        let range = start..start + same.len();
        start = range.end;
        (range, same[0] != 0)
    })
}

/// Something unusual about the tokens to train on, which no checksum finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Oddity {
    NothingTrained,
    NoHeader,
    OpenEnd,
    DoubledBos,
}

impl Oddity {
    /// Returns the warning about `records`.
    fn warning(self, records: u64) -> String {
        let records = plural(records, "record");
        match self {
            Self::NothingTrained => format!("no token of {records} is trained on"),
            Self::NoHeader => {
                format!("text of {records} is trained on from the first token on, without a header before it")
            }
            Self::OpenEnd => format!(
                "text of {records} is trained on without the added token that ends it, so a model does not learn to stop \
                 there"
            ),
            Self::DoubledBos => format!("two BOS tokens are at the start of {records}"),
        }
    }
}

/// What the checks of the marks need of a dataset.
#[derive(Debug, Default)]
pub(super) struct MaskRules {
    /// `None` if the tokens cannot be decoded; the ends are then not checked.
    vocabulary: Option<Vocabulary>,
    bos: Option<u32>,
    /// Whether the options train on nothing.
    trains_on_nothing: bool,
    /// Whether a record may start within a document, or be trained on as a whole.
    may_start_anywhere: bool,
    /// Whether only parts of turns are trained, whose ends need not be.
    trains_parts: bool,
}

impl MaskRules {
    /// Creates the rules for ids of this vocabulary.
    pub(super) fn of_vocabulary(vocabulary: Vocabulary, bos: Option<u32>) -> Self {
        Self { vocabulary: Some(vocabulary), bos, ..Self::default() }
    }

    /// Returns what is unusual about a record.
    fn oddities(&self, ids: &[u32], marks: &[u8]) -> Vec<Oddity> {
        let mut trained = spans(marks).filter(|(_, trained)| *trained).map(|(range, _)| range).peekable();
        let mut found = Vec::new();
        match trained.peek() {
            None if !self.trains_on_nothing => found.push(Oddity::NothingTrained),
            Some(first) if first.start == 0 && !self.may_start_anywhere => found.push(Oddity::NoHeader),
            _ => {}
        }
        if !self.trains_parts && trained.any(|range| range.end < ids.len() && self.is_open(&ids[range])) {
            found.push(Oddity::OpenEnd);
        }
        if self.has_two_bos(ids) {
            found.push(Oddity::DoubledBos);
        }
        found
    }

    fn has_two_bos(&self, ids: &[u32]) -> bool {
        let is_special = |id| self.vocabulary.as_ref().is_some_and(|vocabulary| vocabulary.is_special(id));
        let is_bos = |id| self.bos.map_or_else(|| is_special(id), |bos| bos == id);
        matches!(ids, [first, second, ..] if first == second && is_bos(*first))
    }

    /// Returns what is unusual about a document that another program has written, each with a name. Nothing says where
    /// such a document starts, or whether it is trained on as a whole.
    pub(super) fn document_oddities(&self, ids: &[u32], mask: Option<&[u8]>) -> Vec<(&'static str, String)> {
        let Some(vocabulary) = &self.vocabulary else { return nothing_trained(mask) };
        // Two at the start are a doubled BOS token, unless that is another one.
        let is_padding = |(count, id): (usize, u32), is_start: bool| {
            let may_be_bos = is_start && self.bos.is_none_or(|bos| bos == id);
            vocabulary.is_special(id) && count > if may_be_bos { 2 } else { 1 }
        };
        let ends = [(run(ids.iter()), true), (run(ids.iter().rev()), false)];
        let padding = ends.into_iter().find(|(run, is_start)| is_padding(*run, *is_start));
        let mut found = nothing_trained(mask);
        if let Some(((count, id), is_start)) = padding {
            let place = if is_start { "start" } else { "end" };
            let message =
                format!("{count} special tokens with the id {id} are at the {place} of the document");
            found.push(("padding", message));
        } else if self.has_two_bos(ids) {
            found.push(("two-bos", "two BOS tokens are at the start of the document".to_owned()));
        }
        let mut trained =
            spans(mask.unwrap_or_default()).filter(|(_, trained)| *trained).map(|(range, _)| range);
        let is_next = |range: &Range<usize>| ids.get(range.end).is_some_and(|&id| vocabulary.is_added(id));
        if let Some(range) = trained.find(|range| is_next(range) && self.is_open(&ids[range.clone()])) {
            let what = "is an added token that ends what is trained on, but is not trained on itself: a model does not \
                        learn to stop there, or the mask is shifted";
            found.push(("open-end", format!("token {} {what}", range.end)));
        }
        found
    }

    /// Returns whether tokens that are trained on end without an added token. White space may follow it.
    fn is_open(&self, ids: &[u32]) -> bool {
        let Some(vocabulary) = &self.vocabulary else { return false };
        let end = ids.iter().rev().find(|id| !vocabulary.is_white_space(**id));
        end.is_none_or(|id| !vocabulary.is_added(*id))
    }
}

/// Returns the number of equal ids at the start, and the id.
fn run<'a>(mut ids: impl Iterator<Item = &'a u32>) -> (usize, u32) {
    let Some(&first) = ids.next() else { return (0, 0) };
    (1 + ids.take_while(|id| **id == first).count(), first)
}

/// Returns the finding of a document without a token to train on, among others of its row.
fn nothing_trained(mask: Option<&[u8]>) -> Vec<(&'static str, String)> {
    match mask {
        Some(mask) if !mask.contains(&1) => {
            vec![("nothing-to-train", "no token of the document is to be trained on".to_owned())]
        }
        _ => Vec::new(),
    }
}

/// Checks of the marks of a dataset, by any number of threads.
pub(super) struct MaskChecks {
    rules: MaskRules,
    /// Why ends cannot be checked.
    not_checked: Option<String>,
    found: Mutex<BTreeMap<Oddity, OddRecords>>,
}

/// The records with an oddity.
#[derive(Debug)]
struct OddRecords {
    count: u64,
    /// Number and key of the first of them.
    first: (u64, String),
}

impl MaskChecks {
    /// Returns the checks for `dataset`; `None` if it marks no tokens.
    pub(super) fn of(dataset: &Dataset) -> Result<Option<Self>> {
        if dataset.schema().masks_field().is_none() {
            return Ok(None);
        }
        let manifest = dataset.manifest();
        let (vocabulary, not_checked) = match Vocabulary::of(dataset, None)? {
            Ok(vocabulary) => (Some(vocabulary), None),
            Err(why) => (None, Some(why)),
        };
        let bos = manifest.tokenizer.as_ref().and_then(|tokenizer| tokenizer.get("bos")?.get("id")?.as_u64());
        let trains_on = |what| has_option(&manifest.options, "train_on", |value| value == what);
        let has = |name, accepts: fn(&Json) -> bool| has_option(&manifest.options, name, accepts);
        let splits = has("overflow", |value| value.as_str().is_some_and(|value| value.starts_with("split")));
        let cuts = splits || has("pack", |value| !value.is_null());
        let rules = MaskRules {
            vocabulary,
            bos: bos.and_then(|id| u32::try_from(id).ok()),
            trains_on_nothing: trains_on("none"),
            may_start_anywhere: cuts || trains_on("all"),
            trains_parts: has("train_parts", |value| !value.is_null()),
        };
        Ok(Some(Self { rules, not_checked, found: Mutex::default() }))
    }

    /// Checks a record.
    pub(super) fn check(&self, record: &Record) {
        let (Some(ids), Some(marks)) = (record.input_ids(), marks(record)) else { return };
        let ids: Vec<u32> = ids.iter().collect();
        for oddity in self.rules.oddities(&ids, marks) {
            let example = (record.ordinal(), record.key().unwrap_or_default().to_owned());
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let odd = found.entry(oddity).or_insert_with(|| OddRecords { count: 0, first: example.clone() });
            odd.count += 1;
            // The same for any number of threads.
            if example < odd.first {
                odd.first = example;
            }
        }
    }

    /// Returns a warning for each kind of oddity that was found.
    pub(super) fn warnings(self) -> Vec<String> {
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let warning = |(oddity, OddRecords { count, first: (number, key) }): (Oddity, OddRecords)| {
            format!("{}: for example, record {number} with the key {key:?}", oddity.warning(count))
        };
        let unchecked =
            self.not_checked.map(|why| format!("the ends of what is trained on are not checked: {why}"));
        found.into_iter().map(warning).chain(unchecked).collect()
    }
}

/// Returns whether options, or a group of them, have `name` with a value that `accepts`.
fn has_option(options: &Json, name: &str, accepts: impl Fn(&Json) -> bool + Copy) -> bool {
    let of_group = |(member, value): (&String, &Json)| match member == name {
        true => accepts(value),
        false => has_option(value, name, accepts),
    };
    options.as_object().is_some_and(|options| options.iter().any(of_group))
}

/// A decoded record, divided where the marks of its tokens change.
pub(super) struct DecodedText {
    /// Texts, each with whether it is trained on.
    pieces: Vec<(String, bool)>,
    /// Maximum number of characters to print.
    limit: usize,
}

impl DecodedText {
    /// Decodes the ids of a record.
    pub(super) fn of(record: &Record, vocabulary: &Vocabulary, limit: usize) -> Self {
        let ids: Vec<u32> = record.input_ids().into_iter().flat_map(|ids| ids.iter()).collect();
        let text = |ids: &[u32]| vocabulary.text(ids.iter().copied());
        let pieces = match marks(record).filter(|marks| marks.len() == ids.len()) {
            Some(marks) => spans(marks).map(|(range, trained)| (text(&ids[range]), trained)).collect(),
            None => vec![(text(&ids), false)],
        };
        Self { pieces, limit }
    }

    /// Prints the lines of the text. What is trained on is in color on a terminal, and in double brackets elsewhere.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  text:")?;
        let highlight = if print::has_styles() { Highlight::COLOR } else { Highlight::BRACKETS };
        for line in self.lines(&highlight) {
            writeln!(out, "{}", format!("    {line}").trim_end())?;
        }
        let all: usize = self.pieces.iter().map(|(text, _)| text.chars().count()).sum();
        match all.saturating_sub(self.limit) {
            0 => Ok(()),
            more => writeln!(out, "    … and {}; --json shows all", plural(more as u64, "more character")),
        }
    }

    /// Returns the first lines, without control characters of the text.
    fn lines(&self, highlight: &Highlight) -> Vec<String> {
        let (mut lines, mut line, mut left) = (Vec::new(), String::new(), self.limit);
        for (text, trained) in &self.pieces {
            let shown: String = text.chars().take(left).collect();
            left -= shown.chars().count();
            if shown.is_empty() {
                continue;
            }
            let [start, end] = if *trained { highlight.around } else { ["", ""] };
            let each_line = *trained && highlight.each_line;
            if !each_line {
                line.push_str(start);
            }
            let mut parts = shown.split('\n').peekable();
            while let Some(part) = parts.next() {
                let ends_line = parts.peek().is_some();
                let part = part.strip_suffix('\r').filter(|_| ends_line).unwrap_or(part);
                match each_line && (ends_line || !part.is_empty()) {
                    true => {
                        let line_end = if ends_line { "↵" } else { "" };
                        line.extend([start, &printable(part), line_end, end]);
                    }
                    false => line.push_str(&printable(part)),
                }
                if ends_line {
                    lines.push(std::mem::take(&mut line));
                }
            }
            if !each_line {
                line.push_str(end);
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        lines
    }
}

/// How text that is trained on is shown.
struct Highlight {
    /// What is before and after it.
    around: [&'static str; 2],
    /// Whether each line is marked. Line ends are then marked, too.
    each_line: bool,
}

impl Highlight {
    /// Black on green.
    const COLOR: Self = Self { around: ["\u{1b}[30;42m", "\u{1b}[0m"], each_line: true };
    const BRACKETS: Self = Self { around: ["[[", "]]"], each_line: false };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the oddities of bytes, with `^` for BOS (256), `$` for EOS (257), and the tokens to train on in braces.
    fn oddities(text: &str, rules: &MaskRules) -> Vec<Oddity> {
        let (mut ids, mut marks, mut trained) = (Vec::new(), Vec::new(), 0);
        for byte in text.bytes() {
            match byte {
                b'{' => trained = 1,
                b'}' => trained = 0,
                b'^' => ids.push(256),
                b'$' => ids.push(257),
                other => ids.push(other.into()),
            }
            marks.resize(ids.len(), trained);
        }
        rules.oddities(&ids, &marks)
    }

    #[test]
    fn marks_that_no_template_should_give_are_found() {
        let rules =
            || MaskRules { vocabulary: Some(Vocabulary::bytes()), bos: Some(256), ..MaskRules::default() };
        let found = |text| oddities(text, &rules());
        assert_eq!(found("^ab:{cd$\n}ef:{gh$}"), []);
        // The last turn may be cut off, but not one before it.
        assert_eq!(found("^ab:{cd$}\nef:{gh}"), []);
        assert_eq!(found("^ab:{cd}$\nef:{gh$}"), [Oddity::OpenEnd]);
        assert_eq!(found("^ab:cd$\nef:gh$"), [Oddity::NothingTrained]);
        assert_eq!(found("{ab$}"), [Oddity::NoHeader]);
        assert_eq!(found("^^ab:{cd$}"), [Oddity::DoubledBos]);
        assert_eq!(found("aab:{cd$}"), []);
        assert_eq!(found("ab:{ \n }cd"), [Oddity::OpenEnd]);
        let nothing = MaskRules { trains_on_nothing: true, ..rules() };
        assert_eq!(oddities("^ab$", &nothing), []);
        let anywhere = MaskRules { may_start_anywhere: true, ..rules() };
        assert_eq!(oddities("{ab$}cd", &anywhere), []);
        // Without the tokens, only what follows from the ids is checked.
        let unknown = MaskRules { vocabulary: None, ..rules() };
        assert_eq!(oddities("^^ab:{cd} ef", &unknown), [Oddity::DoubledBos]);
        assert_eq!(oddities("^^ab:{cd} ef", &MaskRules::default()), []);
    }

    #[test]
    fn options_are_found_in_groups() {
        let options = json!({"pack": null, "chat": {"train_on": "none"}, "output": {"seed": 1}});
        assert!(has_option(&options, "train_on", |value| value == "none"));
        assert!(!has_option(&options, "train_on", |value| value == "all"));
        assert!(!has_option(&options, "pack", |value| !value.is_null()));
        assert!(!has_option(&options, "overflow", |value| !value.is_null()));
    }

    #[test]
    fn what_is_trained_on_is_marked_on_every_line() {
        let pieces = [("user\n", false), ("a\u{1b}[2J\n\nb", true), ("\n", false), ("c", true)];
        let text = |limit| DecodedText {
            pieces: pieces.map(|(text, trained)| (text.to_owned(), trained)).into(),
            limit,
        };
        assert_eq!(text(100).lines(&Highlight::BRACKETS), ["user", "[[a\\u{1b}[2J", "", "b]]", "[[c]]"]);
        let [start, end] = Highlight::COLOR.around;
        let colored = |text: &str| format!("{start}{text}{end}");
        assert_eq!(
            text(100).lines(&Highlight::COLOR),
            ["user".to_owned(), colored("a\\u{1b}[2J↵"), colored("↵"), colored("b"), colored("c")]
        );
        assert_eq!(text(6).lines(&Highlight::BRACKETS), ["user", "[[a]]"]);
        let mut out = Vec::new();
        text(6).print(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("… and 9 more characters; --json shows all"));
    }
}
