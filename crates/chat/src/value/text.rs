//! `Text`: strings with a mark on every character.
//!
//! A mark is the reason for this crate: other implementations of Jinja2 return plain text, in which `<|im_end|>` from a
//! user looks like the one of the template. A string has a mark for each run of characters, and whatever makes a string
//! of others (slices, `replace`, `join`, filters) keeps the marks of the characters it takes. Where characters are made
//! up, such as the filling of `center`, they belong to the template, unless they stand for something of the chat, such
//! as the digits of a number.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::budget::Budget;
use crate::error::Result;

/// Who wrote a character: [`TEMPLATE`], or a number that the caller gave to a part of the input with [`Value::mark`](crate::Value::mark).
pub type Source = u32;

/// The source of characters that the template writes itself.
pub const TEMPLATE: Source = 0;

/// Added to the source of characters of which Python's form of a list, an object or `None` consists.
pub(crate) const FORM: Source = 1 << 31;

/// Text that no iteration over the messages has emitted.
pub(crate) const NO_TURN: u32 = u32::MAX;

/// What is known of a run of characters: who wrote it, and in which iteration over the messages it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) source: Source,
    pub(crate) turn: u32,
}

impl Mark {
    pub(crate) const TEMPLATE: Mark = Mark { source: TEMPLATE, turn: NO_TURN };

    pub(crate) fn of(source: Source) -> Mark {
        Mark { source, turn: NO_TURN }
    }

    /// The mark of characters that are emitted in `turn`, unless they were captured in another one.
    fn in_turn(self, turn: u32) -> Mark {
        if self.turn == NO_TURN { Mark { turn, ..self } } else { self }
    }
}

/// A string whose characters are marked. Slices share the characters.
#[derive(Clone)]
pub struct Text {
    buffer: Arc<str>,
    start: u32,
    end: u32,
    marks: Marks,
}

/// Most texts have one mark: a literal of the template, or the content of a message.
#[derive(Clone)]
enum Marks {
    One(Mark),
    /// The end of each run in the buffer, ascending; the last one is the length of the buffer.
    Many(Rc<[(u32, Mark)]>),
}

impl Text {
    /// Text from one source.
    pub fn new(text: impl Into<Arc<str>>, source: Source) -> Text {
        Text::marked(text.into(), Mark::of(source))
    }

    /// Text with one mark.
    pub(crate) fn marked(buffer: Arc<str>, mark: Mark) -> Text {
        // Longer texts than 4 GiB are refused before: `from_json` and the limit of the output.
        let end = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        Text { buffer, start: 0, end, marks: Marks::One(mark) }
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        self.buffer.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether these are the characters `text`. Most names differ in length.
    pub(super) fn is(&self, text: &str) -> bool {
        self.len() == text.len() && self.as_str() == text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The number of runs of characters with the same mark.
    pub(crate) fn runs(&self) -> usize {
        match &self.marks {
            Marks::One(_) => 1,
            Marks::Many(runs) => {
                let first = runs.partition_point(|(end, _)| *end <= self.start);
                let last = runs.partition_point(|(end, _)| *end < self.end);
                last.saturating_sub(first) + 1
            }
        }
    }

    /// The bytes `range`, which must be on character boundaries.
    pub(crate) fn slice(&self, range: Range<usize>) -> Text {
        let end = self.start + u32::try_from(range.end).unwrap_or(u32::MAX).min(self.end - self.start);
        let start =
            (self.start + u32::try_from(range.start).unwrap_or(u32::MAX).min(self.end - self.start)).min(end);
        Text { buffer: self.buffer.clone(), start, end, marks: self.marks.clone() }
    }

    /// A part of this text, found by the methods of `str`.
    pub(crate) fn part(&self, part: &str) -> Text {
        let start = (part.as_ptr() as usize).wrapping_sub(self.as_str().as_ptr() as usize);
        self.slice(start..start.saturating_add(part.len()))
    }

    /// The runs of characters with the same mark.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&str, Mark)> {
        let (one, many): (Option<Mark>, &[(u32, Mark)]) = match &self.marks {
            Marks::One(mark) => (Some(*mark), &[]),
            Marks::Many(runs) => (None, &runs[runs.partition_point(|(end, _)| *end <= self.start)..]),
        };
        let mut at = self.start;
        let runs = many.iter().map_while(move |(end, mark)| {
            let end = (*end).min(self.end);
            let piece = (at < end).then(|| (&self.buffer[at as usize..end as usize], *mark));
            at = end;
            piece
        });
        one.filter(|_| !self.is_empty()).map(|mark| (self.as_str(), mark)).into_iter().chain(runs)
    }

    /// The mark of the first character.
    pub(crate) fn first_mark(&self) -> Mark {
        match &self.marks {
            Marks::One(mark) => *mark,
            Marks::Many(_) => self.pieces().next().map_or(Mark::TEMPLATE, |(_, mark)| mark),
        }
    }

    /// The mark of all characters, if there is only one.
    pub(crate) fn uniform(&self) -> Option<Mark> {
        match &self.marks {
            Marks::One(mark) => Some(*mark),
            Marks::Many(_) => None,
        }
    }

    /// Text whose pieces are replaced one by one, with their marks.
    pub(crate) fn map(&self, change: impl Fn(&str) -> String) -> Text {
        if let Some(mark) = self.uniform() {
            return Text::marked(change(self.as_str()).into(), mark);
        }
        let mut text = TextBuilder::default();
        for (piece, mark) in self.pieces() {
            text.push(&change(piece), mark);
        }
        text.finish()
    }

    /// `len()` of Python, which counts code points.
    pub(crate) fn chars(&self) -> usize {
        self.as_str().chars().count()
    }

    pub(super) fn mark_all(&mut self, mark: Mark) {
        self.marks = Marks::One(mark);
    }
}

impl Budget {
    /// Pays for a copy of a text.
    #[inline]
    pub(crate) fn make_text(&mut self, text: &Text) -> Result<()> {
        self.make_runs(text.len(), text.runs())
    }

    /// Pays for a copy of a text that is being built.
    pub(crate) fn make_built(&mut self, text: &TextBuilder) -> Result<()> {
        self.make_runs(text.len(), text.runs.len())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::marked(text.into(), Mark::TEMPLATE)
    }
}

/// Collects marked text.
#[derive(Default)]
pub(crate) struct TextBuilder {
    pub(crate) text: String,
    /// The end of each run of characters with the same mark. Neighbors differ.
    pub(crate) runs: Vec<(u32, Mark)>,
}

impl TextBuilder {
    /// Creates a buffer for about so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> TextBuilder {
        const BYTES_PER_RUN: usize = 64;
        TextBuilder { text: String::with_capacity(bytes), runs: Vec::with_capacity(bytes / BYTES_PER_RUN) }
    }

    /// Appends text, to the last run if it has the same mark.
    pub(crate) fn push(&mut self, text: &str, mark: Mark) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        match self.runs.last_mut() {
            Some((last, same)) if *same == mark => *last = end,
            _ => self.runs.push((end, mark)),
        }
    }

    pub(crate) fn push_char(&mut self, c: char, mark: Mark) {
        self.push(c.encode_utf8(&mut [0; 4]), mark);
    }

    pub(crate) fn push_text(&mut self, text: &Text) {
        self.push_in_turn(text, NO_TURN);
    }

    /// As `push_text`; characters that were not captured in an iteration over the messages belong to `turn`.
    pub(crate) fn push_in_turn(&mut self, text: &Text, turn: u32) {
        match text.uniform() {
            Some(mark) => self.push(text.as_str(), mark.in_turn(turn)),
            None => text.pieces().for_each(|(piece, mark)| self.push(piece, mark.in_turn(turn))),
        }
    }

    /// As `push`, after it is paid for.
    pub(crate) fn push_paid(&mut self, text: &str, mark: Mark, budget: &mut Budget) -> Result<()> {
        budget.make(text.len())?;
        self.push(text, mark);
        Ok(())
    }

    /// Marks all characters as Python's form of a value.
    pub(super) fn mark_form(&mut self) {
        self.runs.iter_mut().for_each(|(_, mark)| mark.source |= FORM);
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends another text as [`push_in_turn`](Self::push_in_turn) does.
    pub(crate) fn append_in_turn(&mut self, other: &TextBuilder, turn: u32) {
        let mut start = 0;
        for (end, mark) in &other.runs {
            self.push(other.text.get(start..*end as usize).unwrap_or_default(), mark.in_turn(turn));
            start = *end as usize;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.runs.clear();
    }

    /// The text so far. The buffer can be used again after `clear`.
    pub(crate) fn finish(&self) -> Text {
        let marks = match self.runs.as_slice() {
            [] => Marks::One(Mark::TEMPLATE),
            [(_, mark)] => Marks::One(*mark),
            runs => Marks::Many(runs.into()),
        };
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        Text { buffer: self.text.as_str().into(), start: 0, end, marks }
    }
}
