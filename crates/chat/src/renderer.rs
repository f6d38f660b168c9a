//! `ChatRenderer`: renders chats with one template, and finds out what is trained.

mod probes;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::chat::{ArgumentText, Chat, ChatInput, Field, Message, RESERVED_ARGUMENTS, note};
use crate::error::{ErrorKind, TemplateError};
use crate::options::{ChatOptions, FinalStop, HistoryThinking, JoinParts, NotRendered, TrainOn};
use crate::parts::trained_parts;
use crate::reject::{ChatReject, ChatRejectCode, invalid};
use crate::rendered::{RenderOptions, Rendered};
use crate::spans::{AddedTokens, Layout, Turn, TurnRule, disjoint, merged, trained_of_others, without};
use crate::template::Template;
use crate::value::Value;

/// A chat as text, with who wrote it, and what is trained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedChat {
    /// The text.
    pub text: String,
    /// Consecutive ranges that cover the text.
    pub pieces: Vec<ChatPiece>,
    /// Ranges of bytes that are trained, in order and disjoint. Only generation blocks may be adjacent: `transformers`
    /// finds the tokens of each one.
    pub trained: Vec<Range<usize>>,
    /// What a report counts.
    pub notes: Vec<&'static str>,
    /// Keys of messages that the template does not read, each once.
    pub unread_keys: Vec<String>,
}

/// A part of a rendered chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPiece {
    /// The byte after its last one.
    pub end: usize,
    /// Who wrote it.
    pub source: Source,
}

/// Who wrote a part of a rendered chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The template.
    Template,
    /// The chat.
    Content {
        /// The message. None for tools, documents and variables of the template.
        message: Option<u32>,
        /// The role of the message; `tools` for the tools of the chat, and else empty.
        role: Arc<str>,
    },
}

/// Arguments with which known templates write the reasoning of earlier turns.
const KEEP_THINKING: [(&str, bool); 3] =
    [("preserve_thinking", true), ("truncate_history_thinking", false), ("clear_thinking", false)];

/// What a chat may cost: steps and bytes of [`RenderOptions`], and so many more for each byte of its JSON.
const COST_PER_BYTE: u64 = 8;
/// What a probe may cost, as a part of that. There are some forty probes of four messages.
const PROBE_PART: u64 = 64;

/// A chat template with its options. It is probed once, and shared by threads.
#[derive(Debug)]
pub struct ChatRenderer {
    template: Template,
    options: ChatOptions,
    render: RenderOptions,
    tokens: AddedTokens,
    /// The variables of all chats that the template reads, as JSON. The last value of a name counts.
    variables: Vec<(String, String)>,
    argument_text: ArgumentText,
    /// Whether the template writes keys of messages that it does not name.
    writes_other_keys: bool,
    /// How the turns of the assistant are inferred, where they are.
    rule: Option<TurnRule>,
}

fn unusable(message: impl Into<String>) -> TemplateError {
    TemplateError::of(ErrorKind::Unsupported, message)
}

impl ChatRenderer {
    /// Compiles a template and renders probe chats with it. Errors name the line of the template, or the option to change.
    pub fn new(template: &str, options: ChatOptions) -> Result<ChatRenderer, TemplateError> {
        Self::of(Template::compile(template)?, options)
    }

    /// Renders probe chats with a template. Errors are those of [`ChatRenderer::new`].
    pub fn of(template: Template, options: ChatOptions) -> Result<ChatRenderer, TemplateError> {
        if let Some(name) = RESERVED_ARGUMENTS.iter().find(|name| options.args.contains_key(**name)) {
            return Err(unusable(format!("`args` may not contain `{name}`")));
        }
        let tokens = AddedTokens::new(&options.added_tokens)
            .map_err(|e| unusable(format!("the added tokens cannot be searched for: {e}")))?;
        let now = options.now.map(|now| now.seconds());
        let render = RenderOptions { now, ..RenderOptions::default() };
        let history = (options.history_thinking == HistoryThinking::Keep).then_some(KEEP_THINKING);
        let history = history.iter().flatten().map(|(name, value)| ((*name).to_owned(), value.to_string()));
        let json = |(name, value): (&String, &serde_json::Value)| (name.clone(), value.to_string());
        let variables =
            options.special_tokens.iter().map(json).chain(history).chain(options.args.iter().map(json));
        let variables = variables.filter(|(name, _)| template.reads(name)).collect();
        let argument_text = ArgumentText::Keep;
        let mut renderer = ChatRenderer {
            template,
            options,
            render,
            tokens,
            variables,
            argument_text,
            writes_other_keys: false,
            rule: None,
        };
        renderer.argument_text = renderer.probe_arguments()?;
        renderer.writes_other_keys = renderer.probe_other_keys();
        if renderer.options.history_thinking == HistoryThinking::Keep && !renderer.keeps_history()? {
            return Err(unusable(
                "the template cannot keep the reasoning of earlier turns; leave out `history_thinking keep`, or change the template",
            ));
        }
        renderer.rule = renderer.find_rule()?;
        Ok(renderer)
    }

    /// Whether the template has generation blocks, which then decide what is trained.
    pub fn has_generation_blocks(&self) -> bool {
        self.template.has_generation_blocks()
    }

    /// Renders one chat: a JSON object with `messages`, optionally `tools`, `documents` and `chat_template_kwargs`, or with
    /// `prompt` and `completion`.
    pub fn render(&self, chat: &str) -> Result<RenderedChat, ChatReject> {
        let mut chat = match ChatInput::parse(chat, self.argument_text, self.options.images)? {
            ChatInput::Chat(chat) => chat,
            ChatInput::Pair { prompt, completion } => return trained_pair(&prompt, &completion),
        };
        self.check_roles(&chat.messages)?;
        let rendered = self.run_with_texts(&mut chat, false)?;
        let layout = Layout::new(&rendered, &chat.origins, chat.messages.len());
        let mut notes = chat.notes.clone();
        self.check_rendered(&chat, &layout, &mut notes)?;
        let mut trained = self.trained(&chat, &rendered, &layout)?;
        if layout.has_python_form(&trained) {
            return Err(invalid(
                "the template writes Python's form of a list, an object or None, such as ['a'], into the text to train on"
                    .to_owned(),
            ));
        }
        let mut pieces = pieces_of(&chat, &rendered, &layout);
        let open = self.rule.as_ref().is_some_and(|rule| !rule.last_closed && !self.tokens.is_empty());
        let last_is_trained = trained.last().is_some_and(|range| range.end == rendered.text.len());
        let stop = match &self.options.final_stop {
            Some(FinalStop::Token(token))
                if open && chat.messages.last().is_some_and(|last| *last.role == *"assistant") =>
            {
                Some(token.clone())
            }
            _ => None,
        };
        let mut text = rendered.text;
        if let Some(stop) = stop {
            text.push_str(&stop);
            push_piece(&mut pieces, text.len(), Source::Template);
            if last_is_trained && let Some(last) = trained.last_mut() {
                last.end = text.len();
            }
        }
        for pair in chat.messages.windows(2) {
            if pair.iter().all(|message| *message.role == *"assistant") {
                note(&mut notes, "adjacent-assistant");
            }
        }
        if chat.messages.iter().any(|message| *message.role == *"assistant" && !message.has_answer) {
            note(&mut notes, "empty-answer");
        }
        let last_answer = chat.last_answer();
        let is_wanted = |number: usize, role: &str| self.is_wanted(number, role, last_answer);
        if chat
            .messages
            .iter()
            .enumerate()
            .any(|(at, message)| message.flags.on && !is_wanted(at, &message.role))
        {
            note(&mut notes, "flagged-other-turn");
        }
        if trained.is_empty() && self.options.train_on != TrainOn::None {
            return Err(ChatReject {
                code: ChatRejectCode::NothingToTrain,
                message: self.nothing_to_train(&chat.messages),
            });
        }
        let unread_keys = self.unread_keys(&mut chat);
        Ok(RenderedChat { text, pieces, trained, notes, unread_keys })
    }

    /// Renders the messages of a chat that a model is to answer, with the generation prompt. Nothing of it is trained.
    pub fn render_prompt(&self, chat: &str) -> Result<RenderedChat, ChatReject> {
        let ChatInput::Chat(mut chat) = ChatInput::parse(chat, self.argument_text, self.options.images)?
        else {
            return Err(invalid("the prompt is not a list of messages".to_owned()));
        };
        self.check_roles(&chat.messages)?;
        let rendered = self.run_with_texts(&mut chat, true)?;
        let layout = Layout::new(&rendered, &chat.origins, chat.messages.len());
        let mut notes = chat.notes.clone();
        self.check_rendered(&chat, &layout, &mut notes)?;
        let pieces = pieces_of(&chat, &rendered, &layout);
        let unread_keys = self.unread_keys(&mut chat);
        Ok(RenderedChat { text: rendered.text, pieces, trained: Vec::new(), notes, unread_keys })
    }

    /// The keys of messages that the template does not read.
    fn unread_keys(&self, chat: &mut Chat) -> Vec<String> {
        let unread = |key: &String| !self.writes_other_keys && !self.template.mentions(key);
        std::mem::take(&mut chat.other_keys).into_iter().filter(unread).collect()
    }

    /// Refuses roles of ms-swift, whose calls are turns of the assistant, unless the template names them. A template that
    /// writes any role would make them turns of somebody else.
    fn check_roles(&self, messages: &[Message]) -> Result<(), ChatReject> {
        const SWIFT: [&str; 2] = ["tool_call", "tool_response"];
        let is_unknown = |role: &str| SWIFT.contains(&role) && !self.template.literals().contains(&role);
        match messages.iter().position(|message| is_unknown(&message.role)) {
            None => Ok(()),
            Some(at) => Err(invalid(format!(
                "the template does not name the role `{}` of messages[{at}], which ms-swift uses: calls are `tool_calls` of the assistant, and results have the role tool",
                messages.get(at).map_or("", |message| &message.role)
            ))),
        }
    }

    /// Renders a chat. Contents of text parts are given as text where the template does not read lists.
    fn run_with_texts(&self, chat: &mut Chat, generation_prompt: bool) -> Result<Rendered, ChatReject> {
        let all = chat.messages.len();
        let rendered = self.run(chat, all, generation_prompt, None);
        if !chat.has_text_parts() {
            return rendered;
        }
        let separator = self.options.join_parts.map(JoinParts::separator);
        match rendered {
            Ok(rendered) => {
                let chosen = self.contents_to_join(chat, &Layout::new(&rendered, &chat.origins, all));
                if chosen.is_empty() {
                    return Ok(rendered);
                }
                chat.join_parts(separator, |number| chosen.contains(&(number as u32)))?;
                self.run(chat, all, generation_prompt, None)
            }
            Err(error) if error.code == ChatRejectCode::InvalidChat => {
                // Other errors are not about the parts.
                match chat.join_parts(separator, |_| true) {
                    Ok(()) => self.run(chat, all, generation_prompt, None).map_err(|_| error),
                    Err(several) => {
                        chat.join_parts(Some(""), |_| true)?;
                        Err(if self.run(chat, all, generation_prompt, None).is_ok() {
                            several
                        } else {
                            error
                        })
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The messages whose lists of text parts the template does not iterate over. It writes them as Python would print them or as
    /// JSON, or it tests whether a content is text and writes nothing of others.
    fn contents_to_join(&self, chat: &Chat, layout: &Layout<'_>) -> BTreeSet<u32> {
        let mut chosen = layout.contents_as_lists();
        let is_one = |number: u32| {
            let count = chat.text_part_count(number as usize);
            count == Some(1) || count.is_some() && self.options.join_parts.is_some()
        };
        let (unwritten, lost) = layout.unwritten_parts();
        if !chosen.is_empty() || lost.iter().any(|number| is_one(*number)) {
            chosen.extend(unwritten.into_iter().filter(|number| is_one(*number)));
        }
        chosen
    }

    /// Renders the first messages of a chat.
    fn run(
        &self,
        chat: &Chat,
        messages: usize,
        generation_prompt: bool,
        thinking: Option<bool>,
    ) -> Result<Rendered, ChatReject> {
        // A variable that is set again keeps its last value. There are not more of them than the template has names.
        let mut context: Vec<(&str, Value)> = Vec::with_capacity(16);
        let mut set = |name, value| match context.iter_mut().find(|(other, _)| *other == name) {
            Some((_, other)) => *other = value,
            None => context.push((name, value)),
        };
        for (name, json) in &self.variables {
            // What serde_json writes is JSON.
            set(name, Value::from_json(json).unwrap_or_else(|_| Value::none()));
        }
        let arguments = chat.arguments.iter().filter(|(name, _)| self.template.reads(name));
        arguments.for_each(|(name, value)| set(name, value.clone()));
        if let Some(thinking) = thinking {
            set("enable_thinking", thinking.into());
            set("thinking", thinking.into());
        }
        let all = chat.values.as_slice();
        set("messages", Value::list(all.get(..messages).unwrap_or(all).to_vec()));
        set("tools", chat.tools.clone());
        set("documents", chat.documents.clone());
        set("add_generation_prompt", generation_prompt.into());
        let RenderOptions { now, steps, bytes } = self.render;
        let more = COST_PER_BYTE * chat.bytes as u64;
        let options = match chat.is_probe {
            true => RenderOptions { now, steps: steps / PROBE_PART, bytes: bytes / PROBE_PART },
            false => RenderOptions { now, steps: steps + more, bytes: bytes + more },
        };
        self.template.render(&context, &options).map_err(|error| ChatReject {
            code: match error.kind() {
                ErrorKind::Limit => ChatRejectCode::TooLarge,
                _ => ChatRejectCode::InvalidChat,
            },
            message: error.to_string(),
        })
    }

    /// Refuses a chat of which a part is lost.
    fn check_rendered(
        &self,
        chat: &Chat,
        layout: &Layout<'_>,
        notes: &mut Vec<&'static str>,
    ) -> Result<(), ChatReject> {
        let mut rendered = vec![false; chat.origins.len()];
        for (_, source) in layout.pieces(0..layout.text.len()) {
            if let Some(rendered) = (source as usize).checked_sub(1).and_then(|at| rendered.get_mut(at)) {
                *rendered = true;
            }
        }
        // What is written of contents with reasoning inside.
        let mut written: Vec<Option<String>> = chat
            .origins
            .iter()
            .map(|origin| origin.inner_reasoning.as_ref().map(|_| String::new()))
            .collect();
        for (range, source) in layout.pieces(0..layout.text.len()) {
            let slot = (source as usize).checked_sub(1).and_then(|at| written.get_mut(at));
            if let (Some(Some(written)), Some(text)) = (slot, layout.text.get(range)) {
                written.push_str(text);
            }
        }
        let last = |role: &str| chat.messages.iter().rposition(|message| *message.role == *role);
        let (last_user, last_answer) = (last("user"), last("assistant"));
        for ((origin, rendered), written) in chat.origins.iter().zip(rendered).zip(&written) {
            if let (Some(reasoning), Some(written)) = (&origin.inner_reasoning, written)
                && !written.contains(reasoning.as_str())
            {
                note(notes, "reasoning-dropped");
            }
            if rendered || !origin.needed {
                continue;
            }
            let number = origin.message.map_or(0, |message| message as usize);
            let what = match origin.field {
                Field::Tools => {
                    note(notes, "tools-not-rendered");
                    continue;
                }
                Field::Other | Field::PartKeys | Field::Role => continue,
                Field::Reasoning if last_answer != Some(number) || last_user > Some(number) => {
                    note(notes, "reasoning-dropped");
                    continue;
                }
                Field::Reasoning => format!("the reasoning of messages[{number}]"),
                Field::Content(None) => format!("the content of messages[{number}]"),
                Field::Content(Some(part)) => format!("messages[{number}].content[{part}]"),
                Field::ToolCall(call) => format!("messages[{number}].tool_calls[{call}]"),
                Field::FunctionCall => format!("the `function_call` of messages[{number}]"),
            };
            if self.options.not_rendered == NotRendered::Reject {
                return Err(ChatReject {
                    code: ChatRejectCode::NotRendered,
                    message: format!(
                        "the template writes nothing of {what}; `not_rendered allow` keeps such chats"
                    ),
                });
            }
            note(notes, "not-rendered");
        }
        Ok(())
    }

    fn nothing_to_train(&self, messages: &[Message]) -> String {
        let message = format!("no text of the chat is trained with `train_on {}`", self.options.train_on);
        let TrainOn::Roles(_) = &self.options.train_on else {
            let has_flags = messages.iter().any(|message| message.flags.off);
            let why = if has_flags { "; flags of its messages switch training off" } else { "" };
            return format!("{message}{}{why}", self.with_parts());
        };
        let roles: BTreeSet<&str> = messages.iter().map(|message| &*message.role).collect();
        let roles: Vec<&str> = roles.into_iter().take(8).collect();
        format!(
            "{message}{}; its roles are {}, and `train_on last` trains the last turn",
            self.with_parts(),
            roles.join(", ")
        )
    }

    /// The option `train_parts` for messages, if it is not the default.
    fn with_parts(&self) -> String {
        match self.options.train_parts {
            parts if parts.is_all() => String::new(),
            parts => format!(" and `train_parts {parts}`"),
        }
    }

    /// Whether `train_on` names a message.
    fn is_wanted(&self, number: usize, role: &str, last_answer: Option<usize>) -> bool {
        match &self.options.train_on {
            TrainOn::Assistant => role == "assistant",
            TrainOn::Last => Some(number) == last_answer,
            TrainOn::All => true,
            TrainOn::None => false,
            TrainOn::Roles(roles) => roles.iter().any(|wanted| wanted == role),
        }
    }

    /// The trained ranges.
    fn trained(
        &self,
        chat: &Chat,
        rendered: &Rendered,
        layout: &Layout<'_>,
    ) -> Result<Vec<Range<usize>>, ChatReject> {
        let last_answer = chat.last_answer();
        let wanted = |number: usize, role: &str| self.is_wanted(number, role, last_answer);
        let mut ranges = Vec::new();
        if self.options.train_on == TrainOn::All {
            let mut holes = Vec::new();
            for (number, message) in chat.messages.iter().enumerate().filter(|(_, message)| message.flags.off)
            {
                holes.extend(layout.turn(number, &message.role).map_err(invalid)?);
            }
            return Ok(without(std::slice::from_ref(&(0..layout.text.len())), &holes));
        }
        let parts = self.options.train_parts;
        let is_wanted = |number: usize, message: &Message| {
            wanted(number, &message.role) && !message.flags.off && !message.in_prompt
        };
        for (number, message) in chat.messages.iter().enumerate() {
            if !is_wanted(number, message) {
                continue;
            }
            let range = match &self.rule {
                // All text of others is content.
                _ if *message.role != *"assistant" && !parts.content => continue,
                _ if *message.role != *"assistant" => {
                    trained_of_others(layout, number, &message.role).map(Vec::from_iter)
                }
                Some(rule) => rule
                    .trained(layout, number, &chat.messages, &self.tokens)
                    .map(|range| self.in_parts(layout, number, Vec::from_iter(range))),
                None => continue,
            };
            ranges.extend(range.map_err(invalid)?);
        }
        if self.has_generation_blocks() {
            let answers =
                || chat.messages.iter().enumerate().filter(|(_, message)| *message.role == *"assistant");
            if parts.is_all() && answers().all(|(number, message)| is_wanted(number, message)) {
                ranges.extend(rendered.generation.iter().cloned());
            } else {
                // Blocks inside of others end first.
                let blocks = disjoint(rendered.generation.clone());
                for (number, _) in answers().filter(|(number, message)| is_wanted(*number, message)) {
                    match &layout.turns[number] {
                        Turn::Empty => {}
                        Turn::One(turn) => {
                            let first = blocks.partition_point(|block| block.end <= turn.start);
                            let inside = blocks[first..].iter().take_while(|block| block.start < turn.end);
                            let cut =
                                |block: &Range<usize>| block.start.max(turn.start)..block.end.min(turn.end);
                            ranges.extend(self.in_parts(layout, number, inside.map(cut).collect()));
                        }
                        Turn::Split => {
                            return Err(invalid(format!(
                                "the template writes messages[{number}] in several places"
                            )));
                        }
                    }
                }
                let turns: Vec<_> = layout
                    .turns
                    .iter()
                    .filter_map(|turn| match turn {
                        Turn::One(turn) => Some(turn.clone()),
                        _ => None,
                    })
                    .collect();
                if !without(&blocks, &turns).is_empty() {
                    return Err(invalid("the template writes a generation block outside of its loop over the messages, so that its message is not known".to_owned()));
                }
            }
        }
        Ok(if self.has_generation_blocks() { disjoint(ranges) } else { merged(ranges) })
    }

    /// The parts to train of the ranges of a turn of the assistant.
    fn in_parts(&self, layout: &Layout<'_>, number: usize, ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
        match self.options.train_parts {
            parts if parts.is_all() => ranges,
            parts => trained_parts(layout, number, &ranges, parts, &self.tokens),
        }
    }
}

/// Who wrote each part of a rendered chat.
fn pieces_of(chat: &Chat, rendered: &Rendered, layout: &Layout<'_>) -> Vec<ChatPiece> {
    let (nobody, tools): (Arc<str>, Arc<str>) = ("".into(), "tools".into());
    let role = |message: u32| chat.messages.get(message as usize).map_or(&nobody, |message| &message.role);
    let mut pieces: Vec<ChatPiece> = Vec::with_capacity(rendered.pieces.len());
    for piece in &rendered.pieces {
        let source = match layout.origin(piece.source) {
            None => Source::Template,
            Some(origin) => Source::Content {
                message: origin.message,
                role: match origin.message {
                    Some(message) => role(message).clone(),
                    None if origin.field == Field::Tools => tools.clone(),
                    None => nobody.clone(),
                },
            },
        };
        push_piece(&mut pieces, piece.end, source);
    }
    pieces
}

fn push_piece(pieces: &mut Vec<ChatPiece>, end: usize, source: Source) {
    match pieces.last_mut() {
        Some(last) if last.source == source => last.end = end,
        _ => pieces.push(ChatPiece { end, source }),
    }
}

/// Two texts as one, of which the second one is trained. No template is used, and nothing is added.
pub fn render_pair(prompt: &str, completion: &str) -> RenderedChat {
    let text = format!("{prompt}{completion}");
    let piece = |end: usize, message: u32, role: &str| ChatPiece {
        end,
        source: Source::Content { message: Some(message), role: role.into() },
    };
    let mut pieces = vec![piece(prompt.len(), 0, "user"), piece(text.len(), 1, "assistant")];
    let mut start = 0;
    pieces.retain(|piece| std::mem::replace(&mut start, piece.end) < piece.end);
    let trained = std::iter::once(prompt.len()..text.len()).filter(|_| !completion.is_empty()).collect();
    RenderedChat { pieces, trained, text, ..RenderedChat::default() }
}

fn trained_pair(prompt: &str, completion: &str) -> Result<RenderedChat, ChatReject> {
    if completion.is_empty() {
        return Err(ChatReject {
            code: ChatRejectCode::NothingToTrain,
            message: "the completion is empty".to_owned(),
        });
    }
    Ok(render_pair(prompt, completion))
}
