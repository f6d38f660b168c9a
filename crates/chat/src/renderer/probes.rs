//! Probe chats: what a template does with reasoning, arguments and other keys, and where its turns start and end. They are
//! rendered once for each template.

use super::{ChatRenderer, unusable};
use crate::chat::{ArgumentText, Chat, ChatInput};
use crate::error::TemplateError;
use crate::options::{FinalStop, TrainOn};
use crate::reject::{ChatReject, ChatRejectCode};
use crate::rendered::Rendered;
use crate::spans::{Layout, Probe, TurnRule, closing, common_header};

/// The answers of probe chats. Their words, like the others of probes, are in no template.
const ANSWERS: [&str; 2] = ["Answer Wzq one", "Answer Wzq two"];

impl ChatRenderer {
    /// Whether the template writes the reasoning of an earlier turn.
    pub(super) fn keeps_history(&self) -> Result<bool, TemplateError> {
        for in_parts in [false, true] {
            let Some(chat) = self.probe(in_parts, true) else { continue };
            let rendered = self.run_probe(&chat, chat.messages.len(), false, None).map_err(unusable)?;
            if rendered.is_ok_and(|rendered| rendered.text.contains("Why Kzq one")) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Renders the first messages of a probe. The inner error is what the template refuses; a template that is too expensive
    /// for a probe is refused itself.
    fn run_probe(
        &self,
        chat: &Chat,
        messages: usize,
        generation_prompt: bool,
        thinking: Option<bool>,
    ) -> Result<Result<Rendered, ChatReject>, String> {
        match self.run(chat, messages, generation_prompt, thinking) {
            Err(reject) if reject.code == ChatRejectCode::TooLarge => {
                Err(format!("the template is too expensive for a chat of four messages: {}", reject.message))
            }
            result => Ok(result),
        }
    }

    /// How the template reads arguments that are given as text.
    pub(super) fn probe_arguments(&self) -> Result<ArgumentText, TemplateError> {
        for in_parts in [false, true] {
            let ways = [(ArgumentText::Keep, r#"{"kzq": "vzq"}"#), (ArgumentText::Parse, "vzq")];
            for (argument_text, wanted) in ways {
                let Some(chat) = self.tool_probe(in_parts, argument_text) else { continue };
                let rendered = self.run_probe(&chat, chat.messages.len(), false, None).map_err(unusable)?;
                if rendered.is_ok_and(|rendered| rendered.text.contains(wanted)) {
                    return Ok(argument_text);
                }
            }
        }
        Ok(ArgumentText::Keep)
    }

    /// Whether the template writes whole messages, such as `message | tojson`.
    pub(super) fn probe_other_keys(&self) -> bool {
        let messages = [("user", "Question Jzq"), ("assistant", "Answer Wzq")]
            .map(|(role, text)| format!(r#"{{"role": "{role}", "content": "{text}", "kzq_other": "Ozq"}}"#));
        let chat = probe_chat(&messages, self.argument_text);
        let rendered = chat.and_then(|chat| self.run(&chat, chat.messages.len(), false, None).ok());
        rendered.is_some_and(|rendered| rendered.text.contains("Ozq"))
    }

    /// A chat of two questions and answers, whose contents are texts or lists of parts.
    fn probe(&self, in_parts: bool, reasoning: bool) -> Option<Box<Chat>> {
        let message = |role: &str, text: &str| {
            format!(r#"{{"role": "{role}", "content": {}}}"#, content(text, in_parts))
        };
        let answer = |number: &str, answer: &str| {
            let reasoning = if reasoning {
                format!(r#""reasoning_content": "Why Kzq {number}", "#)
            } else {
                String::new()
            };
            format!(r#"{{"role": "assistant", {reasoning}"content": {}}}"#, content(answer, in_parts))
        };
        let messages = [
            message("user", "Question Jzq one"),
            answer("one", ANSWERS[0]),
            message("user", "Question Jzq two"),
            answer("two", ANSWERS[1]),
        ];
        probe_chat(&messages, self.argument_text)
    }

    /// A chat with a call of a tool.
    fn tool_probe(&self, in_parts: bool, argument_text: ArgumentText) -> Option<Box<Chat>> {
        let call = r#"{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "czq123456", "function": {"name": "fzq", "arguments": "{\"kzq\": \"vzq\"}"}}]}"#;
        let message = |role: &str, text: &str| {
            format!(
                r#"{{"role": "{role}", "tool_call_id": "czq123456", "content": {}}}"#,
                content(text, in_parts)
            )
        };
        let messages = [
            message("user", "Question Jzq"),
            call.to_owned(),
            message("tool", "Result Rzq"),
            message("assistant", "Answer Wzq"),
        ];
        probe_chat(&messages, argument_text)
    }

    /// The rule for the turns of the assistant, if they are needed and the template has no generation blocks.
    pub(super) fn find_rule(&self) -> Result<Option<TurnRule>, TemplateError> {
        let stop = match &self.options.final_stop {
            Some(FinalStop::Token(token)) => Some(token.as_str()),
            _ => None,
        };
        if self.has_generation_blocks() {
            return match stop {
                Some(_) => Err(unusable(
                    "`final_stop` has no effect on a template with generation blocks; leave it out",
                )),
                None => Ok(None),
            };
        }
        let needed = match &self.options.train_on {
            TrainOn::Assistant | TrainOn::Last => true,
            TrainOn::All | TrainOn::None => stop.is_some(),
            TrainOn::Roles(roles) => stop.is_some() || roles.iter().any(|role| role == "assistant"),
        };
        if !needed {
            return Ok(None);
        }
        let rule = self.probe_turns().map_err(unusable)?;
        if !self.tokens.is_empty() {
            match stop {
                Some(_) if rule.last_closed => {
                    return Err(unusable(
                        "`final_stop` has no effect: the template closes the last turn; leave it out",
                    ));
                }
                Some(token) if !self.tokens.contains(token) => {
                    return Err(unusable(format!(
                        "`final_stop` \"{token}\" is not an added token of the tokenizer"
                    )));
                }
                None if !rule.last_closed && self.options.final_stop.is_none() => {
                    return Err(unusable(
                        "no token closes the last turn of the assistant: name the token that a model should stop with, `final_stop TOKEN`, or `final_stop none`",
                    ));
                }
                _ => {}
            }
        }
        Ok(Some(rule))
    }

    fn probe_turns(&self) -> Result<TurnRule, String> {
        let mut fault = None;
        for in_parts in [false, true] {
            let mut rule = TurnRule { closed: true, last_closed: true, ..TurnRule::default() };
            let (mut probes, mut tool_probes) = (Vec::new(), Vec::new());
            let mut closings: Option<String> = None;
            for thinking in [None, Some(true), Some(false)] {
                for reasoning in [false, true] {
                    let Some(chat) = self.probe(in_parts, reasoning) else { continue };
                    let rendered = match self.run_probe(&chat, chat.messages.len(), false, thinking)? {
                        Ok(rendered) => rendered,
                        Err(error) => {
                            fault.get_or_insert(error.message);
                            continue;
                        }
                    };
                    let layout = Layout::new(&rendered, &chat.origins, chat.messages.len());
                    if let Some(found) = closing(&layout, ANSWERS, &self.tokens) {
                        let known = closings.get_or_insert_with(|| found.clone());
                        known.truncate(self.tokens.common_prefix(known, &found));
                    }
                    let turns = [(1, ANSWERS[0], &mut rule.closed), (3, ANSWERS[1], &mut rule.last_closed)];
                    for (number, answer, closed) in turns {
                        if !layout.text.contains(answer) {
                            continue;
                        }
                        let Some(turn) = layout.turn(number, "assistant")? else { continue };
                        let prompt = self.run_probe(&chat, number, true, thinking)?.ok();
                        let probe = Probe::new(&layout, &turn, prompt.as_ref(), &self.tokens);
                        *closed &= probe.closed;
                        probes.push(probe);
                    }
                }
                let Some(chat) = self.tool_probe(in_parts, self.argument_text) else { continue };
                let Ok(rendered) = self.run_probe(&chat, chat.messages.len(), false, thinking)? else {
                    continue;
                };
                let layout = Layout::new(&rendered, &chat.origins, chat.messages.len());
                rule.results_inside = rule.results_inside.or(layout.turn(1, "assistant").err());
                if let Ok(Some(turn)) = layout.turn(3, "assistant") {
                    let prompt = self.run_probe(&chat, 3, true, thinking)?.ok();
                    tool_probes.push(Probe::new(&layout, &turn, prompt.as_ref(), &self.tokens));
                }
            }
            if probes.is_empty() {
                continue;
            }
            rule.header = common_header(&probes, &self.tokens).ok_or(
                "the turns of the assistant start differently from the generation prompt, so that their header is not known; add generation blocks to the template: {% generation %} … {% endgeneration %}",
            )?;
            // One that starts alike has more of the turn only because these probes have fewer kinds of turns.
            rule.header_after_tool = common_header(&tool_probes, &self.tokens)
                .filter(|header| self.tokens.common_prefix(header, &rule.header) == 0);
            if self.tokens.is_empty() {
                (rule.closed, rule.last_closed) = (true, true);
            }
            // What follows the first token may be the start of another turn.
            rule.closing = closings.map(|closing| self.tokens.through_first(&closing)).unwrap_or_default();
            // Something else may follow, such as a generation prompt that is always written.
            rule.last_closed |= !rule.closing.is_empty();
            return Ok(rule);
        }
        Err(match fault {
            Some(fault) => format!("the template does not render a question and its answer: {fault}"),
            None => "the template writes nothing of the answer of a chat with a question and its answer"
                .to_owned(),
        })
    }
}

/// The content of a message of a probe: a text, or a list of one part.
fn content(text: &str, in_parts: bool) -> String {
    if in_parts { format!(r#"[{{"type": "text", "text": "{text}"}}]"#) } else { format!("\"{text}\"") }
}

fn probe_chat(messages: &[String], argument_text: ArgumentText) -> Option<Box<Chat>> {
    match ChatInput::parse(&format!("{{\"messages\": [{}]}}", messages.join(", ")), argument_text, false) {
        Ok(ChatInput::Chat(mut chat)) => {
            chat.is_probe = true;
            Some(chat)
        }
        _ => None,
    }
}
