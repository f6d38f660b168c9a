//! Parts of a turn of the assistant: content, reasoning and calls of tools, for `train_parts`.
//!
//! Who wrote each character says which part it is. Text of the template belongs to the part that it wraps.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::chat::Field;
use crate::spans::{AddedTokens, Layout, merged};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The parts of turns that are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainParts {
    /// Content.
    pub content: bool,
    /// Reasoning, with its markers and the newlines after them.
    pub reasoning: bool,
    /// Calls of tools, with their wrappers.
    pub tool_calls: bool,
}

impl Default for TrainParts {
    fn default() -> Self {
        TrainParts { content: true, reasoning: true, tool_calls: true }
    }
}

impl TrainParts {
    /// Whether turns are trained whole.
    pub fn is_all(self) -> bool {
        self == TrainParts::default()
    }

    fn has(self, part: Part) -> bool {
        match part {
            Part::Content => self.content,
            Part::Reasoning => self.reasoning,
            Part::ToolCalls => self.tool_calls,
        }
    }
}

impl FromStr for TrainParts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = TrainParts { content: false, reasoning: false, tool_calls: false };
        for name in text.split(',') {
            match name.trim() {
                "content" => parts.content = true,
                "reasoning" => parts.reasoning = true,
                "tool_calls" => parts.tool_calls = true,
                _ => return Err("use one or more of content, reasoning and tool_calls".to_owned()),
            }
        }
        Ok(parts)
    }
}

impl fmt::Display for TrainParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            [(self.content, "content"), (self.reasoning, "reasoning"), (self.tool_calls, "tool_calls")];
        let names: Vec<&str> = names.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name).collect();
        f.write_str(&names.join(","))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Content,
    Reasoning,
    ToolCalls,
}

/// A run of characters of one part.
#[derive(Clone, Debug)]
struct PartRun {
    range: Range<usize>,
    /// None for text of the template.
    part: Option<Part>,
    /// Whether there is more than white space and markers.
    is_filled: bool,
    /// Whether it ends with the marker that closes reasoning.
    is_closed: bool,
}

/// Reasoning between markers: `<think>…</think>` with the newlines after it.
struct Thought {
    range: Range<usize>,
    is_filled: bool,
}

/// Those characters of the turn of message `number` that belong to the `wanted` parts. `trained` are the ranges of the turn that could be trained, in
/// order. The end of the turn belongs to its last part that is not empty.
pub(crate) fn trained_parts(
    layout: &Layout<'_>,
    number: usize,
    trained: &[Range<usize>],
    wanted: TrainParts,
    tokens: &AddedTokens,
) -> Vec<Range<usize>> {
    let (Some(first), Some(last)) = (trained.first(), trained.last()) else { return Vec::new() };
    let runs = runs(layout, number, first.start..last.end);
    let thoughts = thoughts(layout.text, &runs_without_text(&runs), first.start..last.end);
    let runs = with_thoughts(runs, &thoughts);
    if !runs.iter().any(|run| run.is_filled && run.part.is_some_and(|part| wanted.has(part))) {
        return Vec::new();
    }
    let kept = merged(
        attributed(layout.text, runs, tokens)
            .into_iter()
            .filter(|(_, part)| wanted.has(*part))
            .map(|(range, _)| range)
            .collect(),
    );
    let mut out = Vec::new();
    for range in trained {
        let next = kept.partition_point(|kept| kept.end <= range.start);
        let inside = kept.iter().skip(next).take_while(|kept| kept.start < range.end);
        out.extend(inside.map(|kept| kept.start.max(range.start)..kept.end.min(range.end)));
    }
    out
}

/// The runs of a range by the fields of message `number` that have written them.
fn runs(layout: &Layout<'_>, number: usize, range: Range<usize>) -> Vec<PartRun> {
    let mut runs: Vec<PartRun> = Vec::new();
    for (range, source) in layout.pieces(range) {
        let origin = layout.origin(source).filter(|origin| origin.message == u32::try_from(number).ok());
        let part = origin.and_then(|origin| match origin.field {
            Field::Content(_) => Some(Part::Content),
            Field::Reasoning => Some(Part::Reasoning),
            Field::ToolCall(_) | Field::FunctionCall => Some(Part::ToolCalls),
            Field::Tools | Field::PartKeys | Field::Role | Field::Other => None,
        });
        let is_blank = || layout.text.get(range.clone()).is_none_or(|text| text.trim().is_empty());
        // White space alone is no part.
        let part = part.filter(|part| *part == Part::ToolCalls || !is_blank());
        let is_filled = part.is_some();
        match runs.last_mut() {
            Some(last) if last.part == part => {
                last.range.end = range.end;
                last.is_filled |= is_filled;
            }
            _ => runs.push(PartRun { range, part, is_filled, is_closed: false }),
        }
    }
    runs
}

/// The ranges in which a marker is no marker: fields of reasoning and calls may hold any text.
fn runs_without_text(runs: &[PartRun]) -> Vec<Range<usize>> {
    let is_other = |run: &&PartRun| matches!(run.part, Some(Part::Reasoning | Part::ToolCalls));
    runs.iter().filter(is_other).map(|run| run.range.clone()).collect()
}

/// The reasoning between markers in contents and in text of the template. The first marker may only close: the header of the
/// turn has opened it.
fn thoughts(text: &str, others: &[Range<usize>], turn: Range<usize>) -> Vec<Thought> {
    const NAME: &str = "think>";
    let Some(inside) = text.get(turn.clone()) else { return Vec::new() };
    let is_other = |at: usize| {
        others.get(others.partition_point(|other| other.end <= at)).is_some_and(|other| other.start <= at)
    };
    let mut thoughts = Vec::new();
    let mut open = Some(turn.start..turn.start);
    for (at, _) in inside.match_indices(NAME) {
        let end = turn.start + at + NAME.len();
        let before = |marker: &str| text.get(turn.start..end).is_some_and(|text| text.ends_with(marker));
        if is_other(end - 1) {
            continue;
        }
        if before(CLOSE) {
            let Some(start) = open.take() else { continue };
            let is_filled =
                text.get(start.end..end - CLOSE.len()).is_some_and(|text| !text.trim().is_empty());
            let rest = text.get(end..turn.end).unwrap_or_default();
            let newlines = rest.len() - rest.trim_start_matches('\n').len();
            thoughts.push(Thought { range: start.start..end + newlines, is_filled });
        } else if before(OPEN) && open.as_ref().is_none_or(Range::is_empty) {
            open = Some(end - OPEN.len()..end);
        }
    }
    thoughts
}

/// The runs, of which contents and text of the template are reasoning where they are in a thought.
fn with_thoughts(runs: Vec<PartRun>, thoughts: &[Thought]) -> Vec<PartRun> {
    let mut out: Vec<PartRun> = Vec::new();
    for run in runs {
        let is_text = matches!(run.part, None | Some(Part::Content));
        let mut start = run.range.start;
        let next = thoughts.partition_point(|thought| thought.range.end <= start);
        let inside = thoughts.iter().skip(next).take_while(|thought| thought.range.start < run.range.end);
        for Thought { range, is_filled } in inside.filter(|_| is_text) {
            let thought = range.start.max(start)..range.end.min(run.range.end);
            out.push(PartRun { range: start..thought.start, ..run.clone() });
            start = thought.end;
            out.push(PartRun {
                is_closed: thought.end == range.end,
                range: thought,
                part: Some(Part::Reasoning),
                is_filled: *is_filled,
            });
        }
        out.push(PartRun { range: start..run.range.end, ..run });
    }
    out.retain(|run| !run.range.is_empty());
    out
}

/// The part that each character belongs to.
fn attributed(text: &str, runs: Vec<PartRun>, tokens: &AddedTokens) -> Vec<(Range<usize>, Part)> {
    let last = runs.iter().rfind(|run| run.is_filled).and_then(|run| run.part);
    let mut out = Vec::with_capacity(runs.len());
    for (at, run) in runs.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| runs.get(before));
        let next = runs.get(at + 1).and_then(|next| next.part);
        let (before, is_closed) = before.map_or((None, false), |run| (run.part, run.is_closed));
        let part = match (run.part, before, next) {
            (Some(part), ..) => part,
            (None, _, None) => match last {
                Some(part) => part,
                None => continue,
            },
            (None, Some(Part::Reasoning), Some(next)) if next != Part::Reasoning && !is_closed => {
                let closing = run.range.start
                    + text.get(run.range.clone()).map_or(0, |between| closing(between, tokens));
                out.push((run.range.start..closing, Part::Reasoning));
                out.push((closing..run.range.end, next));
                continue;
            }
            (None, Some(Part::ToolCalls), Some(_)) => Part::ToolCalls,
            (None, _, Some(next)) => next,
        };
        out.push((run.range.clone(), part));
    }
    out
}

/// The length of what closes reasoning: the text through the first added token, and newlines.
fn closing(between: &str, tokens: &AddedTokens) -> usize {
    let token = tokens.through_first(between).len();
    let rest = between.get(token..).unwrap_or_default();
    between.len() - rest.trim_start_matches('\n').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_as_they_are_read() {
        for text in ["content", "reasoning", "content,tool_calls", "content,reasoning,tool_calls"] {
            assert_eq!(text.parse::<TrainParts>().unwrap().to_string(), text);
        }
        assert_eq!("tool_calls, content".parse::<TrainParts>().unwrap().to_string(), "content,tool_calls");
        for wrong in ["", "content,", "thinking"] {
            assert!(wrong.parse::<TrainParts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn thoughts_are_between_the_first_markers() {
        let found = |text: &str| {
            let found = thoughts(text, &[], 0..text.len());
            found.iter().map(|thought| text[thought.range.clone()].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            found("<think>a</think>\n\nb<think></think>c"),
            ["<think>a</think>\n\n", "<think></think>"]
        );
        assert_eq!(found("a</think>\nb</think>"), ["a</think>\n"]);
        assert_eq!(found("x <think>a<think>b</think>"), ["<think>a<think>b</think>"]);
        assert_eq!(found("only <think> open"), [""; 0]);
    }
}
