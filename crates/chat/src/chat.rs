//! `Chat`: reads a conversation from JSON, and normalizes it as `transformers` does.

mod contents;
pub(crate) mod sharegpt;

use std::sync::Arc;

use self::contents::split_reasoning;

use crate::budget::Budget;
use crate::flags::{TrainFlags, is_flag};
use crate::reject::{ChatReject, ChatRejectCode, invalid};
use crate::value::{JsonError, Map, Source, TEMPLATE, Value};

/// Longer texts are rejected before they are parsed.
pub(crate) const MAX_CHAT_BYTES: usize = 32 << 20;

/// Memory of the values that a chat may hold. One of 100,000 messages takes most of it.
const MAX_VALUE_BYTES: u64 = 96 << 20;

/// Names of the reasoning of a message. The first is the one that most templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Roles that templates write as a part of their own tokens, such as `<|user|>`. Other roles are content of the chat.
const KNOWN_ROLES: [&str; 10] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
    "model",
    "ipython",
    "observation",
    "environment",
];

/// Other keys of the messages of a chat that are reported.
const MAX_OTHER_KEYS: usize = 64;

/// Arguments that the renderer passes itself.
pub(crate) const RESERVED_ARGUMENTS: [&str; 4] =
    ["messages", "tools", "add_generation_prompt", "chat_template"];

/// How a template reads the arguments of a tool call that are given as JSON in a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ArgumentText {
    /// It writes the string as it is.
    #[default]
    Keep,
    /// It needs the object.
    Parse,
}

/// A row of the user.
pub(crate) enum ChatInput {
    Chat(Box<Chat>),
    /// Two texts, which are joined without a template.
    Pair {
        prompt: String,
        completion: String,
    },
}

/// A conversation, ready to be rendered.
pub(crate) struct Chat {
    pub(crate) messages: Vec<Message>,
    /// The messages as the template sees them. What they hold is marked with the number of its origin.
    pub(crate) values: Vec<Value>,
    pub(crate) tools: Value,
    pub(crate) documents: Value,
    /// `chat_template_kwargs` of the row.
    pub(crate) arguments: Map,
    /// The origin of source `n` is at `n - 1`.
    pub(crate) origins: Vec<Origin>,
    pub(crate) notes: Vec<&'static str>,
    /// The size of the JSON.
    pub(crate) bytes: usize,
    /// Whether the chat examines a template.
    pub(crate) is_probe: bool,
    /// Keys of messages that only some templates read, each once.
    pub(crate) other_keys: Vec<String>,
}

impl Chat {
    /// The last message of the assistant.
    pub(crate) fn last_answer(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| *message.role == *"assistant")
    }
}

pub(crate) struct Message {
    pub(crate) role: Arc<str>,
    /// `train: false`, `weight: 0` and the like.
    pub(crate) flags: TrainFlags,
    /// Whether this is a message of a prompt, of which a completion is trained.
    pub(crate) in_prompt: bool,
    /// Whether there is content, reasoning, or a call of a tool.
    pub(crate) has_answer: bool,
}

/// A part of the input that has a source of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    /// The message. None for tools, documents and arguments.
    pub(crate) message: Option<u32>,
    pub(crate) field: Field,
    /// Whether a template that writes nothing of it loses something.
    pub(crate) needed: bool,
    /// Reasoning inside of the content, between `<think>` and `</think>`.
    pub(crate) inner_reasoning: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// The content, or a part of it.
    Content(Option<usize>),
    Reasoning,
    ToolCall(usize),
    FunctionCall,
    Tools,
    /// The keys of the parts of a content, which only a template writes that does not iterate over the parts.
    PartKeys,
    /// A role that templates do not know.
    Role,
    Other,
}

impl ChatInput {
    /// Reads an object with `messages` (or `conversations`), or with `prompt` and `completion`. With `images`, parts of contents may
    /// be images.
    pub(crate) fn parse(
        text: &str,
        argument_text: ArgumentText,
        images: bool,
    ) -> Result<ChatInput, ChatReject> {
        if text.len() > MAX_CHAT_BYTES {
            return Err(ChatReject {
                code: ChatRejectCode::TooLarge,
                message: format!("the chat has {} bytes, more than {MAX_CHAT_BYTES}", text.len()),
            });
        }
        let mut budget = Budget::new(u64::MAX, MAX_VALUE_BYTES);
        let mut row = Value::from_json_within(text, &mut budget).map_err(|error| match error.message {
            JsonError::TOO_LARGE => ChatReject {
                code: ChatRejectCode::TooLarge,
                message: format!("the chat is too large: {error}"),
            },
            _ => invalid(format!("the chat is not JSON: {error}")),
        })?;
        let found = kind(&row);
        let row = row
            .as_map_mut()
            .ok_or_else(|| invalid(format!("the chat is {found}, not an object with `messages`")))?;
        // The keys stay: to remove one of many is to index the others again.
        let mut take = |name: &str| {
            let value = row.get_mut(name).map(|value| std::mem::replace(value, Value::none()));
            value.filter(|value| !value.is_none())
        };
        let mut reader = ChatReader {
            argument_text,
            images,
            budget,
            origins: Vec::new(),
            notes: Vec::new(),
            other_keys: Vec::new(),
        };
        let (mut messages, mut prompt_messages) = match (
            take("messages"),
            take("conversations"),
            take("prompt"),
            take("completion"),
        ) {
            (Some(messages), _, None, None) | (None, Some(messages), None, None) => {
                (reader.list("messages", messages)?, 0)
            }
            (None, None, Some(prompt), Some(completion)) => match (prompt.as_str(), completion.as_str()) {
                (Some(prompt), Some(completion)) => {
                    return Ok(ChatInput::Pair {
                        prompt: prompt.to_owned(),
                        completion: completion.to_owned(),
                    });
                }
                (None, None) => {
                    let mut messages = reader.list("prompt", prompt)?;
                    let prompt_messages = messages.len();
                    messages.append(&mut reader.list("completion", completion)?);
                    (messages, prompt_messages)
                }
                _ => {
                    return Err(invalid(format!(
                        "the prompt is {} and the completion {}; expected two texts, or two lists of messages",
                        kind(&prompt),
                        kind(&completion)
                    )));
                }
            },
            (None, None, Some(_), None) => return Err(invalid("the pair has no completion".into())),
            (None, None, None, Some(_)) => return Err(invalid("the pair has no prompt".into())),
            (None, None, None, None) => return Err(invalid("the chat has no messages".into())),
            _ => return Err(invalid("the chat has both messages and a prompt or completion".into())),
        };
        if messages.is_empty() {
            return Err(invalid("the chat has no messages".into()));
        }
        if let Some(system) = take("system")
            && add_system(&mut messages, &system)?
        {
            prompt_messages += usize::from(prompt_messages > 0);
        }
        let tools = reader.tools(take("tools"))?;
        let mut documents = match take("documents") {
            None => Value::none(),
            Some(documents) => Value::list(reader.list("documents", documents)?),
        };
        documents.mark(reader.source(None, Field::Other, false));
        let arguments = reader.arguments(take("chat_template_kwargs"))?;
        let (mut read, mut values) = (Vec::with_capacity(messages.len()), Vec::with_capacity(messages.len()));
        for (at, message) in messages.into_iter().enumerate() {
            let (mut message, value) = reader.message(at, message)?;
            message.in_prompt = at < prompt_messages;
            read.push(message);
            values.push(value);
        }
        let ChatReader { origins, notes, other_keys, .. } = reader;
        Ok(ChatInput::Chat(Box::new(Chat {
            messages: read,
            values,
            tools,
            documents,
            arguments,
            origins,
            notes,
            bytes: text.len(),
            is_probe: false,
            other_keys,
        })))
    }
}

struct ChatReader {
    argument_text: ArgumentText,
    /// Whether parts of contents may be images.
    images: bool,
    /// What the values of the chat may still take.
    budget: Budget,
    origins: Vec<Origin>,
    notes: Vec<&'static str>,
    other_keys: Vec<String>,
}

impl ChatReader {
    fn source(&mut self, message: Option<u32>, field: Field, needed: bool) -> Source {
        self.origins.push(Origin { message, field, needed, inner_reasoning: None });
        u32::try_from(self.origins.len()).unwrap_or(TEMPLATE)
    }

    /// Marks text of a message that a template should write.
    fn mark_needed(&mut self, number: u32, field: Field, value: &mut Value) {
        let (needed, inner_reasoning) = match value.as_str() {
            Some(text) if matches!(field, Field::Content(_)) => {
                let (reasoning, answer) = split_reasoning(text);
                (
                    !answer.trim().is_empty(),
                    reasoning.filter(|reasoning| !reasoning.is_empty()).map(str::to_owned),
                )
            }
            Some(text) => (!text.trim().is_empty(), None),
            None => (!value.is_none() && value.as_list().is_none_or(|items| !items.is_empty()), None),
        };
        let source = self.source(Some(number), field, needed);
        if let Some(origin) = self.origins.last_mut() {
            origin.inner_reasoning = inner_reasoning;
        }
        value.mark(source);
    }

    fn message(&mut self, at: usize, mut value: Value) -> Result<(Message, Value), ChatReject> {
        let number = u32::try_from(at).map_err(|_| invalid("the chat has too many messages".into()))?;
        let found = kind(&value);
        let fields =
            value.as_map_mut().ok_or_else(|| invalid(format!("messages[{at}] is {found}, not an object")))?;
        fields.retain(|_, value| !value.is_none());
        if fields.get("role").is_none() && fields.get("from").is_some() {
            *fields = self.sharegpt_message(at, fields)?;
        }
        let role = match fields.get("role") {
            Some(role) => match role.as_str() {
                Some(role) => Arc::<str>::from(role),
                None => {
                    return Err(invalid(format!("the role of messages[{at}] is {}, not text", kind(role))));
                }
            },
            None => return Err(invalid(format!("messages[{at}] has no `role`"))),
        };
        let flags = TrainFlags::of(at, fields)?;
        // Each key is visited once: a lookup of a key that is not there costs as much.
        let (mut has_content, mut has_reasoning, mut has_calls, mut has_empty_calls) =
            (None, false, false, false);
        // Names, numbers of calls and whatever else a message has.
        let other = self.source(Some(number), Field::Other, false);
        for (name, value) in fields.iter_mut() {
            match name {
                "role" if KNOWN_ROLES.contains(&&*role) => {}
                "role" => value.mark(self.source(Some(number), Field::Role, false)),
                "content" => {
                    self.content(at, number, &role, value)?;
                    let is_text = value.as_str() != Some("");
                    has_content = Some(is_text && value.as_list().is_none_or(|parts| !parts.is_empty()));
                }
                "tool_calls" if value.as_list().is_some_and(<[Value]>::is_empty) => has_empty_calls = true,
                "tool_calls" => {
                    self.tool_calls(at, number, value)?;
                    has_calls = true;
                }
                "function_call" => {
                    self.mark_needed(number, Field::FunctionCall, value);
                    has_calls = true;
                }
                name if REASONING.contains(&name) => has_reasoning = true,
                name => {
                    let is_known = is_flag(name) || self.other_keys.iter().any(|known| known == name);
                    if !is_known && self.other_keys.len() < MAX_OTHER_KEYS {
                        self.other_keys.push(name.to_owned());
                    }
                    value.mark(other);
                }
            }
        }
        if has_empty_calls {
            fields.remove("tool_calls");
        }
        let has_content = match has_content {
            Some(has_content) => has_content,
            None if *role == *"assistant" && (has_reasoning || has_calls) => false,
            None => return Err(invalid(format!("messages[{at}] has no `content`"))),
        };
        let has_answer = has_content || has_calls || has_reasoning;
        if has_reasoning && let Some(reasoning) = REASONING.iter().find_map(|name| fields.get(name)) {
            let mut reasoning = reasoning.clone();
            // As `transformers` does, so that templates may read either name.
            self.mark_needed(number, Field::Reasoning, &mut reasoning);
            let mut aliased = Map::new();
            aliased.insert("thinking", reasoning.clone());
            for (name, value) in fields.iter_mut() {
                let mut value = std::mem::replace(value, Value::none());
                if REASONING.contains(&name) {
                    value.mark(reasoning.source());
                }
                aliased.insert(name, value);
            }
            aliased.insert("reasoning_content", reasoning);
            *fields = aliased;
        }
        fields.mark_keys(other);
        fields.set_message(number);
        Ok((Message { role, flags, in_prompt: false, has_answer }, value))
    }

    fn tool_calls(&mut self, at: usize, number: u32, value: &mut Value) -> Result<(), ChatReject> {
        let found = kind(value);
        let read = |calls: &mut Vec<Value>| {
            for (number_of_call, call) in calls.iter_mut().enumerate() {
                let found = kind(call);
                match call.as_map_mut() {
                    Some(call) => self.call_arguments(call),
                    None => {
                        return Err(invalid(format!(
                            "messages[{at}].tool_calls[{number_of_call}] is {found}, not an object"
                        )));
                    }
                }
                self.mark_needed(number, Field::ToolCall(number_of_call), call);
            }
            Ok(())
        };
        let not_a_list = || invalid(format!("`tool_calls` of messages[{at}] is {found}, not a list"));
        value.update_list(read).ok_or_else(not_a_list)?
    }

    fn call_arguments(&mut self, call: &mut Map) {
        let arguments = match call.get_mut("function") {
            Some(function) if function.as_map().is_some() => {
                function.as_map_mut().and_then(|function| function.get_mut("arguments"))
            }
            _ => call.get_mut("arguments"),
        };
        let Some(arguments) = arguments else { return };
        if self.argument_text == ArgumentText::Parse
            && let Some(parsed) =
                arguments.as_str().and_then(|text| Value::from_json_within(text, &mut self.budget).ok())
            && parsed.as_map().is_some()
        {
            *arguments = parsed;
        } else if has_null(arguments) {
            note(&mut self.notes, "null-in-arguments");
        }
    }

    /// The list of tools: objects, or texts that hold them as JSON.
    fn tools(&mut self, tools: Option<Value>) -> Result<Value, ChatReject> {
        let Some(tools) = tools.map(|tools| self.parse_if_text(tools)).filter(|tools| !tools.is_none())
        else {
            return Ok(Value::none());
        };
        let mut read = Vec::new();
        for (at, tool) in self.list("tools", tools)?.into_iter().enumerate() {
            let mut tool = self.parse_if_text(tool);
            if tool.as_map().is_none() {
                return Err(invalid(format!("tools[{at}] is {}, not an object", kind(&tool))));
            }
            if has_null(&tool) {
                note(&mut self.notes, "null-in-tools");
            }
            tool.mark(self.source(None, Field::Tools, true));
            read.push(tool);
        }
        Ok(Value::list(read))
    }

    fn arguments(&mut self, arguments: Option<Value>) -> Result<Map, ChatReject> {
        let arguments = arguments.map(|arguments| self.parse_if_text(arguments));
        let Some(mut arguments) = arguments.filter(|value| !value.is_none()) else {
            return Ok(Map::new());
        };
        arguments.mark(self.source(None, Field::Other, false));
        let found = kind(&arguments);
        let arguments = arguments
            .as_map_mut()
            .ok_or_else(|| invalid(format!("`chat_template_kwargs` is {found}, not an object")))?;
        // Parquet and Arrow give each row all members of a struct.
        arguments.retain(|_, value| !value.is_none());
        match RESERVED_ARGUMENTS.iter().find(|name| arguments.get(name).is_some()) {
            Some(name) => Err(invalid(format!("`chat_template_kwargs` may not contain `{name}`"))),
            None => Ok(std::mem::take(arguments)),
        }
    }

    fn list(&mut self, name: &str, value: Value) -> Result<Vec<Value>, ChatReject> {
        let mut value = self.parse_if_text(value);
        let found = kind(&value);
        value.update_list(std::mem::take).ok_or_else(|| invalid(format!("`{name}` is {found}, not a list")))
    }

    /// Columns of tables often hold lists and objects as JSON in a string.
    fn parse_if_text(&mut self, value: Value) -> Value {
        match value.as_str().and_then(|text| Value::from_json_within(text, &mut self.budget).ok()) {
            Some(parsed) if parsed.is_none() || parsed.as_list().is_some() || parsed.as_map().is_some() => {
                parsed
            }
            _ => value,
        }
    }
}

/// Adds the system message of the row, unless the chat starts with the same one. Returns whether it was added.
fn add_system(messages: &mut Vec<Value>, system: &Value) -> Result<bool, ChatReject> {
    let Some(system) = system.as_str() else {
        return Err(invalid(format!("`system` is {}, not text", kind(system))));
    };
    if system.is_empty() {
        return Ok(false);
    }
    let first = messages.first().and_then(Value::as_map);
    let named = |names: [&str; 2]| first.and_then(|first| names.iter().find_map(|name| first.get(name)));
    if named(["role", "from"])
        .and_then(Value::as_str)
        .is_some_and(|role| matches!(role, "system" | "developer"))
    {
        let own = named(["content", "value"]);
        let own = match own.and_then(Value::as_list) {
            Some([part]) => part.as_map().and_then(|part| part.get("text")),
            _ => own,
        };
        return match own.and_then(Value::as_str) == Some(system) {
            true => Ok(false),
            false => Err(ChatReject {
                code: ChatRejectCode::TwoSystems,
                message: "the row has a system message, and its list of messages starts with another one"
                    .to_owned(),
            }),
        };
    }
    let mut message = Map::new();
    message.insert("role", Value::str("system", TEMPLATE));
    message.insert("content", Value::str(system, TEMPLATE));
    messages.insert(0, message.into());
    Ok(true)
}

fn has_null(value: &Value) -> bool {
    match (value.as_list(), value.as_map()) {
        (Some(items), _) => items.iter().any(has_null),
        (_, Some(map)) => map.iter().any(|(_, value)| has_null(value)),
        _ => value.is_none(),
    }
}

pub(crate) fn note(notes: &mut Vec<&'static str>, name: &'static str) {
    if !notes.contains(&name) {
        notes.push(name);
    }
}

fn kind(value: &Value) -> &'static str {
    if value.is_none() {
        "null"
    } else if value.as_str().is_some() {
        "text"
    } else if value.as_bool().is_some() {
        "true or false"
    } else if value.as_f64().is_some() {
        "a number"
    } else if value.as_list().is_some() {
        "a list"
    } else {
        "an object"
    }
}
