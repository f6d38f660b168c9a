//! Which characters of a rendered chat are trained: `TurnRule` for templates without generation blocks.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::chat::{Field, Message, Origin};
use crate::rendered::{Piece, Rendered};
use crate::value::{Source, TEMPLATE};

/// Strings of the added tokens of a tokenizer. White space is left out.
#[derive(Clone, Debug)]
pub(crate) struct AddedTokens {
    tokens: Vec<String>,
    /// Finds the longest token at the first place with one.
    finder: AhoCorasick,
}

impl AddedTokens {
    pub(crate) fn new(tokens: &[String]) -> Result<AddedTokens, aho_corasick::BuildError> {
        let tokens: Vec<String> = tokens.iter().filter(|token| !token.trim().is_empty()).cloned().collect();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&tokens)?;
        Ok(AddedTokens { tokens, finder })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(crate) fn contains(&self, token: &str) -> bool {
        self.tokens.iter().any(|known| known == token)
    }

    /// The first token in a text; the longest one of those that start there.
    fn find(&self, text: &str) -> Option<Range<usize>> {
        self.finder.find(text).map(|token| token.range())
    }

    /// The start of a text, through its first token; empty without a token.
    pub(crate) fn through_first(&self, text: &str) -> String {
        self.find(text).and_then(|token| text.get(..token.end)).unwrap_or_default().to_owned()
    }

    /// Whether a token is the end of a text, before white space.
    fn closes(&self, text: &str) -> bool {
        let text = text.trim_end();
        self.tokens.iter().any(|token| text.ends_with(token.trim_end()))
    }

    /// A text without the spaces after the token that closes it. A token of the next turn may start with them, such as `▁[` of
    /// `</s> [INST]`. Newlines after the token stay.
    fn without_space<'a>(&self, text: &'a str) -> &'a str {
        let closed = text.trim_end_matches(|c: char| c.is_whitespace() && c != '\n');
        let is_closed = |text: &str| self.tokens.iter().any(|token| text.ends_with(token.as_str()));
        if closed.len() < text.len() && !is_closed(text) && is_closed(closed) { closed } else { text }
    }

    /// The length of the longest common prefix of two texts that splits no token of either.
    pub(crate) fn common_prefix(&self, left: &str, right: &str) -> usize {
        let mut length = left.bytes().zip(right.bytes()).take_while(|(a, b)| a == b).count();
        while !left.is_char_boundary(length) || !right.is_char_boundary(length) {
            length -= 1;
        }
        length.min(self.unsplit(left, length)).min(self.unsplit(right, length))
    }

    /// The start of the token of `text` that contains `at` inside, or else `at`.
    fn unsplit(&self, text: &str, at: usize) -> usize {
        let mut start = 0;
        while let Some(token) = text.get(start..).and_then(|rest| self.find(rest)) {
            let token = start + token.start..start + token.end;
            if token.start >= at {
                break;
            }
            if token.end > at {
                return token.start;
            }
            start = token.end;
        }
        at
    }
}

/// The text that was emitted for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Empty,
    One(Range<usize>),
    /// In several places.
    Split,
}

/// A rendered chat, and what its pieces say.
pub(crate) struct Layout<'a> {
    pub(crate) text: &'a str,
    pieces: &'a [Piece],
    origins: &'a [Origin],
    /// The turn of each message.
    pub(crate) turns: Vec<Turn>,
    /// Where the first piece of content or reasoning of each message starts, and the last one ends.
    extents: Vec<Option<Range<usize>>>,
    /// The pieces that the template has not written.
    contents: Vec<usize>,
    /// The end of the text that was emitted for messages.
    after_loop: usize,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(rendered: &'a Rendered, origins: &'a [Origin], messages: usize) -> Layout<'a> {
        let mut turns = vec![Turn::Empty; messages];
        let mut extents: Vec<Option<Range<usize>>> = vec![None; messages];
        let mut contents = Vec::new();
        let (mut start, mut emitted, mut last) = (0, 0, None);
        for (at, piece) in rendered.pieces.iter().enumerate() {
            let origin = origin_of(origins, piece.source);
            // The template writes a role into the header of a turn.
            if piece.source != TEMPLATE && origin.is_none_or(|origin| origin.field != Field::Role) {
                contents.push(at);
            }
            if let Some(origin) = origin
                && matches!(origin.field, Field::Content(_) | Field::Reasoning)
                && let Some(extent) = origin.message.and_then(|message| extents.get_mut(message as usize))
            {
                *extent = Some(extent.as_ref().map_or(start, |extent| extent.start)..piece.end);
            }
            if let Some(turn) = piece.turn
                && let Some(slot) = turns.get_mut(turn as usize)
            {
                *slot = match slot {
                    Turn::Empty => Turn::One(start..piece.end),
                    Turn::One(range) if range.end == start => Turn::One(range.start..piece.end),
                    _ => Turn::Split,
                };
                (emitted, last) = (piece.end, Some(turn as usize));
            }
            start = piece.end;
        }
        // Text after the loop belongs to the last message, even if its iteration has emitted nothing.
        if let Some(last) = last
            && emitted < start
            && let Some(slot) = turns.last_mut()
        {
            *slot = match slot {
                Turn::Empty => Turn::One(emitted..start),
                Turn::One(range) if last + 1 == messages => Turn::One(range.start..start),
                _ => Turn::Split,
            };
        }
        let Rendered { text, pieces, .. } = rendered;
        Layout { text, pieces, origins, turns, extents, contents, after_loop: emitted }
    }

    /// The pieces of a range, cut at its ends.
    pub(crate) fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, Source)> {
        let first = self.pieces.partition_point(|piece| piece.end <= range.start);
        let mut start = range.start;
        self.pieces[first..].iter().map_while(move |piece| {
            let end = piece.end.min(range.end);
            let cut = (start < end).then_some((start..end, piece.source));
            start = end;
            cut
        })
    }

    /// The text at the start of a range that the template has written.
    pub(crate) fn template_text(&self, range: Range<usize>) -> &'a str {
        let next = self.contents.partition_point(|at| self.pieces[*at].end <= range.start);
        let content = self.contents.get(next).map_or(range.end, |at| {
            let start = at.checked_sub(1).map_or(0, |before| self.pieces[before].end);
            start.clamp(range.start, range.end)
        });
        self.text.get(range.start..content).unwrap_or_default()
    }

    /// The end of the last text that the template has not written.
    fn after_contents(&self) -> usize {
        self.contents.last().map_or(0, |at| self.pieces[*at].end)
    }

    pub(crate) fn origin(&self, source: Source) -> Option<&'a Origin> {
        origin_of(self.origins, source)
    }

    /// The message other than `number` whose text is in a range.
    fn foreign(&self, range: Range<usize>, number: usize) -> Option<u32> {
        let origins = self.pieces(range).filter_map(|(_, source)| self.origin(source));
        let mut messages = origins
            .filter(|origin| !matches!(origin.field, Field::Other | Field::PartKeys | Field::Role))
            .filter_map(|origin| origin.message);
        messages.find(|message| *message as usize != number)
    }

    /// The messages of whose contents the template has written a list: Python's form of one, or JSON with the keys of parts.
    pub(crate) fn contents_as_lists(&self) -> BTreeSet<u32> {
        let is_list = |piece: &&Piece, origin: &Origin| match origin.field {
            Field::Content(_) => piece.python_form,
            field => field == Field::PartKeys,
        };
        let pieces = self.pieces.iter().filter_map(|piece| Some((piece, self.origin(piece.source)?)));
        pieces
            .filter(|(piece, origin)| is_list(piece, origin))
            .filter_map(|(_, origin)| origin.message)
            .collect()
    }

    /// The messages with a list of parts of which the template writes nothing, and those among them that lose a text by it.
    pub(crate) fn unwritten_parts(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut unwritten, mut lost, mut written) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        if !self.origins.iter().any(|origin| matches!(origin.field, Field::Content(Some(_)))) {
            return (unwritten, lost);
        }
        let sources: BTreeSet<Source> = self.pieces.iter().map(|piece| piece.source).collect();
        for (source, origin) in (1..).zip(self.origins) {
            let (Field::Content(Some(_)), Some(message)) = (origin.field, origin.message) else { continue };
            if sources.contains(&source) {
                written.insert(message);
                continue;
            }
            unwritten.insert(message);
            if origin.needed {
                lost.insert(message);
            }
        }
        unwritten.retain(|message| !written.contains(message));
        lost.retain(|message| !written.contains(message));
        (unwritten, lost)
    }

    /// Whether Python's form of a list, an object or `None` is in one of the ranges, which are in order.
    pub(crate) fn has_python_form(&self, ranges: &[Range<usize>]) -> bool {
        let mut start = 0;
        self.pieces.iter().any(|piece| {
            let range = start..piece.end;
            start = piece.end;
            let next = || ranges.get(ranges.partition_point(|trained| trained.end <= range.start));
            piece.python_form && next().is_some_and(|trained| trained.start < range.end)
        })
    }

    /// Whether content or reasoning of a message is outside of a range. The name of a call may be in the turn of its result.
    fn strays(&self, range: &Range<usize>, number: usize) -> bool {
        let extent = self.extents.get(number).and_then(Option::as_ref);
        extent.is_some_and(|extent| extent.start < range.start || extent.end > range.end)
    }

    /// The turn of a message, which must hold all of its text and no text of another message.
    pub(crate) fn turn(&self, number: usize, role: &str) -> Result<Option<Range<usize>>, String> {
        let refuse = |what: &str| {
            format!(
                "{what}; add generation blocks to the template: {{% generation %}} … {{% endgeneration %}}"
            )
        };
        let range = match self.turns.get(number) {
            Some(Turn::One(range)) => range.clone(),
            Some(Turn::Split) => {
                return Err(refuse(&format!("the template writes messages[{number}] in several places")));
            }
            _ => 0..0,
        };
        if let Some(other) = self.foreign(range.clone(), number) {
            return Err(refuse(&format!(
                "the template writes text of messages[{other}] into the turn of messages[{number}]"
            )));
        }
        if self.strays(&range, number) {
            return Err(refuse(&format!(
                "the template writes text of messages[{number}] ({role}) outside of its turn"
            )));
        }
        Ok((!range.is_empty()).then_some(range))
    }
}

fn origin_of(origins: &[Origin], source: Source) -> Option<&Origin> {
    origins.get((source as usize).checked_sub(1)?)
}

/// What is trained of the turns of the assistant: found once for each template, by rendering probe chats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnRule {
    /// What a template writes before the answer to a user, as in its generation prompt.
    pub(crate) header: String,
    /// What a template writes before the answer after the result of a tool, where it differs.
    pub(crate) header_after_tool: Option<String>,
    /// Whether an added token closes the turns before the last one.
    pub(crate) closed: bool,
    /// Whether an added token closes the last turn.
    pub(crate) last_closed: bool,
    /// What ends both a turn before the last one and the last one, if there is an added token in it.
    pub(crate) closing: String,
    /// Why a call and its result cannot be told apart, if they cannot.
    pub(crate) results_inside: Option<String>,
}

impl TurnRule {
    /// The start of the text after the header of a turn.
    fn after_header(
        &self,
        layout: &Layout<'_>,
        turn: &Range<usize>,
        after_tool: bool,
        tokens: &AddedTokens,
    ) -> usize {
        let written = layout.template_text(turn.clone());
        let headers = match &self.header_after_tool {
            Some(header) if after_tool => [header.as_str(), self.header.as_str()],
            other => [self.header.as_str(), other.as_deref().unwrap_or_default()],
        };
        let known = || headers.iter().filter(|header| !header.is_empty());
        if let Some(header) = known().find(|header| written.starts_with(**header)) {
            return turn.start + header.len();
        }
        // Some templates write the start of the text, such as a default system message, in the first iteration.
        if let Some(end) = known().find_map(|header| Some(written.find(*header)? + header.len())) {
            return turn.start + end;
        }
        // A turn may have less of the header: some templates write `<think>` as a part of it.
        turn.start + tokens.common_prefix(written, headers[0])
    }

    /// The trained range of a turn of the assistant.
    pub(crate) fn trained(
        &self,
        layout: &Layout<'_>,
        number: usize,
        messages: &[Message],
        tokens: &AddedTokens,
    ) -> Result<Option<Range<usize>>, String> {
        let Some(message) = messages.get(number) else { return Ok(None) };
        let Some(turn) = layout.turn(number, &message.role)? else { return Ok(None) };
        let is_result = |message: &Message| *message.role == *"tool";
        if let Some(reason) =
            self.results_inside.as_ref().filter(|_| messages.get(number + 1).is_some_and(is_result))
        {
            return Err(reason.clone());
        }
        let after_tool = number
            .checked_sub(1)
            .and_then(|before| messages.get(before))
            .is_some_and(|before| *before.role == *"tool");
        let start = self.after_header(layout, &turn, after_tool, tokens);
        let mut end = turn.end;
        if !self.closed && end < layout.text.len() {
            // The template closes a turn with the start of the next one.
            let next = layout.template_text(end..layout.text.len());
            end += tokens.find(next).map_or(0, |token| token.end);
        }
        if turn.end == layout.text.len() {
            end = end.min(self.before_prompt(layout).max(self.after_closing(layout, start)));
        }
        if let Some(text) = layout.text.get(start..end) {
            end = start + tokens.without_space(text).len();
        }
        Ok((start < end).then_some(start..end))
    }

    /// The end of what closes the last turn, whose text after its header starts at `start`. Generation prompts may start with
    /// it, too.
    fn after_closing(&self, layout: &Layout<'_>, start: usize) -> usize {
        let content = layout.after_contents().max(start);
        let rest = layout.text.get(content..).filter(|_| !self.closing.is_empty());
        rest.and_then(|rest| rest.find(&self.closing)).map_or(0, |at| content + at + self.closing.len())
    }

    /// The end of the text without a generation prompt, which a few templates write even if they should not.
    fn before_prompt(&self, layout: &Layout<'_>) -> usize {
        let (text, header) = (layout.text.trim_end(), self.header.trim());
        let tail = layout.text[layout.after_loop..].trim();
        if tail.is_empty() || header.is_empty() {
            layout.text.len()
        } else if header.starts_with(tail) {
            layout.after_loop
        } else if tail.ends_with(header) {
            text.len() - header.len()
        } else {
            layout.text.len()
        }
    }
}

/// The trained range of a turn that the assistant has not written: from its first character of content to its end.
pub(crate) fn trained_of_others(
    layout: &Layout<'_>,
    number: usize,
    role: &str,
) -> Result<Option<Range<usize>>, String> {
    let Some(turn) = layout.turn(number, role)? else { return Ok(None) };
    let start = turn.start + layout.template_text(turn.clone()).len();
    Ok((start < turn.end).then_some(start..turn.end))
}

/// What one probe says of a turn of the assistant.
pub(crate) struct Probe {
    /// What both the generation prompt and the turn start with. None if they cannot be compared.
    pub(crate) header: Option<String>,
    /// Whether the generation prompt is empty, or white space.
    pub(crate) no_prompt: bool,
    /// What the template writes before the content.
    pub(crate) written: String,
    pub(crate) closed: bool,
}

impl Probe {
    /// Compares a turn with the generation prompt of the chat before it.
    pub(crate) fn new(
        layout: &Layout<'_>,
        turn: &Range<usize>,
        prompt: Option<&Rendered>,
        tokens: &AddedTokens,
    ) -> Probe {
        let written = layout.template_text(turn.clone());
        let prompt = prompt.and_then(|prompt| prompt.text.strip_prefix(&layout.text[..turn.start]));
        let header = prompt.map(|prompt| written[..tokens.common_prefix(prompt, written)].to_owned());
        Probe {
            header,
            no_prompt: prompt.is_some_and(|prompt| prompt.trim().is_empty()),
            written: written.to_owned(),
            closed: tokens.closes(&layout.text[turn.clone()]),
        }
    }
}

/// What a template writes both after an answer in the middle and after the last one.
pub(crate) fn closing(layout: &Layout<'_>, answers: [&str; 2], tokens: &AddedTokens) -> Option<String> {
    let after = |answer: &str| {
        let end = layout.text.find(answer)? + answer.len();
        Some(layout.template_text(end..layout.text.len()))
    };
    let (middle, last) = (after(answers[0])?, after(answers[1])?);
    Some(middle[..tokens.common_prefix(middle, last)].to_owned())
}

/// The header that all probes agree on. None if the generation prompt and the turns start differently.
pub(crate) fn common_header(probes: &[Probe], tokens: &AddedTokens) -> Option<String> {
    let fold = |texts: &mut dyn Iterator<Item = &str>| -> Option<String> {
        let first = texts.next()?.to_owned();
        Some(texts.fold(first, |header, text| header[..tokens.common_prefix(&header, text)].to_owned()))
    };
    let compared: Vec<&Probe> = probes.iter().filter(|probe| probe.header.is_some()).collect();
    if compared.is_empty() {
        return None;
    }
    if compared.iter().all(|probe| probe.no_prompt) {
        // The template has no generation prompt: what it writes before all answers is their header, unless that is only
        // white space, which a model writes, too.
        let written = fold(&mut probes.iter().map(|probe| probe.written.as_str()))?;
        return Some(if written.trim().is_empty() { String::new() } else { written });
    }
    let header = fold(&mut compared.iter().filter_map(|probe| probe.header.as_deref()))?;
    Some(header).filter(|header| !header.trim().is_empty())
}

/// The same characters as disjoint ranges in order, none adjacent to another.
pub(crate) fn merged(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    joined(ranges, |last, range| range.start <= last.end)
}

/// The same characters as disjoint ranges in order. Adjacent ranges stay separate.
pub(crate) fn disjoint(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    joined(ranges, |last, range| range.start < last.end)
}

fn joined(
    mut ranges: Vec<Range<usize>>,
    is_one: impl Fn(&Range<usize>, &Range<usize>) -> bool,
) -> Vec<Range<usize>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if is_one(last, &range) => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Those parts of `ranges` that are in none of `holes`.
pub(crate) fn without(ranges: &[Range<usize>], holes: &[Range<usize>]) -> Vec<Range<usize>> {
    let holes = merged(holes.to_vec());
    let mut out = Vec::new();
    for range in ranges {
        let mut start = range.start;
        let first = holes.partition_point(|hole| hole.end <= range.start);
        for hole in holes[first..].iter().take_while(|hole| hole.start < range.end) {
            out.push(start..hole.start.max(start));
            start = start.max(hole.end);
        }
        out.push(start..range.end);
    }
    merged(out)
}
