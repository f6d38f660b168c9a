//! The options of chats and pairs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use dsconvert_chat::{
    ChatOptions, DateTime, FinalStop, HistoryThinking, JoinParts, NotRendered, TrainOn, TrainParts,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::preference::Seam;
use crate::error::{Error, Result};
use crate::options::{
    Defined, Definition, Input, OptionValue, as_text, is_default, option_values, options, word_values,
};
use crate::source::items::text::fields::{JsonMember, TextFields};
use crate::transform::text::SpecialInText;

/// Field with the tools of a chat, if there is one.
const DEFAULT_TOOLS_FIELD: &str = "tools";
/// Field with the system message of a chat, if there is one.
const DEFAULT_SYSTEM_FIELD: &str = "system";
/// Value of `--system-field` for none.
pub(super) const NO_FIELD: &str = "none";
/// Field with the variables of the template for one chat, if there is one.
const KWARGS_FIELD: &str = "chat_template_kwargs";

options! {
    /// Every option of chats and pairs that affects the dataset.
    pub struct ChatRecipe {
        "Chats" {
            /// Field with a chat: a list of messages with role and content, or with from and value
            ///
            /// The messages are rendered with the chat template of the model, and only what the assistant writes is trained.
            [serde(skip_serializing_if = "is_default")]
            messages_field: Option<String> = None, "NAME";

            /// Field with the tools that a chat may call [default: tools, if there is such a field]
            [serde(skip_serializing_if = "is_default")]
            tools_field: Option<String> = None, "NAME", requires = Some("messages_field");

            /// Field with the system message of a chat [default: system, if there is such a field]; none: no field
            [serde(skip_serializing_if = "is_default")]
            system_field: Option<String> = None, "NAME";

            /// Read rows with instruction, input and output, as Alpaca has them
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            alpaca: Option<Alpaca> = None, "AS";

            /// Field with a prompt, which is not trained: a text or a list of messages
            [serde(skip_serializing_if = "is_default")]
            prompt_field: Option<String> = None, "NAME";

            /// Field with the completion of the prompt, which is trained: a text or a list of messages
            ///
            /// Texts are joined as they are, without a chat template, and --eos-token or the EOS token of the tokenizer follows
            /// unless they end with it.
            [serde(skip_serializing_if = "is_default")]
            completion_field: Option<String> = None, "NAME", requires = Some("prompt_field");

            /// Field with the preferred completion of a prompt: a list of messages, or a text with --prompt-field
            ///
            /// Records are preference pairs, as DPO takes them. Without --prompt-field, the prompt is what both lists of messages start
            /// with.
            [serde(skip_serializing_if = "is_default")]
            chosen_field: Option<String> = None, "NAME", requires = Some("rejected_field");

            /// Field with the completion that is not preferred
            [serde(skip_serializing_if = "is_default")]
            rejected_field: Option<String> = None, "NAME", requires = Some("chosen_field");

            /// Field that says whether the completion is good: records are completions with a label, as KTO takes them
            [serde(skip_serializing_if = "is_default")]
            label_field: Option<String> = None, "NAME", requires = Some("completion_field");

            /// Keep prompts as they are, without ids, for reinforcement learning such as GRPO
            ///
            /// Their length is that of the prompt with the tools and the start of the answer, for --max-length and --filter-length.
            [serde(skip_serializing_if = "is_default")]
            prompt_only: bool = false, "";

            /// Handling of preference pairs whose sides have different ids before their completions
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            seam: Seam = Seam::default(), "HOW";

            /// Token before a pair of texts; it is not trained
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            pair_bos: PairBos = PairBos::default(), "WHEN";

            /// Name of the template, of several in the configuration of a model [default: default; tool_use for chats with tools]
            [serde(skip_serializing_if = "is_default")]
            template_name: Option<String> = None, "NAME";

            /// Variables of the template, such as enable_thinking=false; values are JSON
            [serde(skip_serializing_if = "is_default")]
            template_arg: TemplateArgs = TemplateArgs::default(), "NAME=JSON";

            /// Time that templates print with strftime_now, as YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS
            [serde(skip_serializing_if = "is_default")]
            now: Option<DateTime> = None, "TIME";

            /// Text to train on: assistant, last (the last turn of the assistant), all, none, or roles such as user,assistant
            ///
            /// A message with "train": false, "loss": false, "weight": 0 or the like is never trained.
            [serde(skip_serializing_if = "is_default")]
            train_on: TrainOn = TrainOn::default(), "WHAT";

            /// Parts of these turns to train on: one or more of content, reasoning and tool_calls [default: all of them]
            ///
            /// Reasoning is <think>…</think> with the newlines after it, and a tool call is with its wrapper. The end of a turn is
            /// trained if its last part is. A turn without one of the parts is not trained.
            [serde(skip_serializing_if = "is_default")]
            train_parts: TrainParts = TrainParts::default(), "PARTS";

            /// Token that ends the last turn, for templates that leave it open; none: it stays open
            [serde(skip_serializing_if = "is_default")]
            final_stop: Option<FinalStop> = None, "TOKEN";

            /// Handling of special-token strings inside messages: text, parse or error, also by role as in text,assistant=error
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            special_in_content: SpecialInContent = SpecialInContent::default(), "POLICY";

            /// Reasoning of earlier turns, which many templates leave out
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            history_thinking: HistoryThinking = HistoryThinking::default(), "HOW";

            /// Handling of chats from which the template leaves out a message, reasoning or tool calls
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            not_rendered: NotRendered = NotRendered::default(), "POLICY";

            /// Text between the text parts of a message where the template does not iterate over them: empty, or \n
            ///
            /// Without it, a chat with several parts is rejected there. One part is its text.
            [serde(skip_serializing_if = "is_default")]
            join_parts: Option<JoinParts> = None, "TEXT";

            /// Accept a template that writes markers such as <|end|> that are no tokens of the tokenizer
            [serde(skip_serializing_if = "is_default")]
            allow_unknown_markers: bool = false, "";
        }
        groups {}
        values {
            /// The chat template, if chats are converted. The command line reads it from a file.
            [serde(skip_serializing_if = "is_default")] chat_template: Option<ChatTemplateSource> = None;
        }
    }
}

option_values! { Text: DateTime, TrainOn, TrainParts, FinalStop, JoinParts, SpecialInContent; }

word_values! {
    HistoryThinking {
        Template = "template", "As the template decides";
        Keep = "keep", "Rendered, if the template can";
    }
}

word_values! {
    NotRendered {
        Reject = "reject", "Reject them as not-rendered";
        Allow = "allow", "Convert what is rendered";
    }
}

/// How rows of Alpaca are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpaca {
    /// As chats.
    Chat,
    /// As pairs of texts.
    Pair,
}

word_values! {
    Alpaca {
        Chat = "chat", "Chats: system and history, if there are any, then instruction and input as one question, and the output";
        Pair = "pair", "Pairs of texts, with the prompts that Alpaca was trained on";
    }
}

/// The token before a pair of texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PairBos {
    /// What the post-processor adds.
    #[default]
    Auto,
    /// The BOS token.
    Add,
    /// None.
    None,
}

word_values! {
    PairBos {
        Auto = "auto", "What the tokenizer puts before a text: the BOS token, or nothing";
        Add = "add", "The BOS token";
        None = "none", "Nothing";
    }
}

/// The chat template of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatTemplateSource {
    /// Jinja source of each template by name. The usual name of an only template is `default`.
    pub templates: BTreeMap<String, String>,
    /// Special tokens of the model by name, such as `bos_token`, which templates print.
    #[serde(default, skip_serializing_if = "is_default")]
    pub special_tokens: Map<String, Value>,
}

/// Name of the template for chats.
pub(crate) const DEFAULT_TEMPLATE: &str = "default";
/// Name of the template for chats with tools.
pub(crate) const TOOL_TEMPLATE: &str = "tool_use";

/// Values of template variables by name, in the order in which they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TemplateArgs(pub Map<String, Value>);

impl OptionValue for TemplateArgs {
    const INPUT: Input = Input::List;

    fn parse(text: &str) -> Result<Self> {
        let wrong = |rest: &str| {
            Error::usage(format!("{rest:?} is not NAME=JSON"))
                .help("quote texts as JSON, as in reasoning_effort='\"high\"'")
        };
        let (mut args, mut rest) = (Map::new(), text);
        while !rest.is_empty() {
            let (name, value) =
                rest.split_once('=').filter(|(name, _)| is_name(name)).ok_or_else(|| wrong(rest))?;
            let mut values = serde_json::Deserializer::from_str(value).into_iter();
            let Some(Ok(json)) = values.next() else { return Err(wrong(rest)) };
            let after = value.get(values.byte_offset()..).unwrap_or_default().trim_start();
            args.insert(name.to_owned(), json);
            rest = match after.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.is_empty() => after,
                None => return Err(wrong(rest)),
            };
        }
        Ok(Self(args))
    }

    fn text(&self) -> Option<String> {
        let args: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!args.is_empty()).then(|| args.join(","))
    }
}

/// Returns whether a template can read a variable of this name.
fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c == '_' || c.is_alphanumeric())
}

/// Treatment of the strings of special tokens in what messages contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialInContent {
    /// For all roles that are not named.
    pub others: SpecialInText,
    /// By role.
    pub roles: BTreeMap<String, SpecialInText>,
}

impl SpecialInContent {
    /// Returns the treatment of the content of messages with this role.
    pub(crate) fn of(&self, role: &str) -> SpecialInText {
        self.roles.get(role).copied().unwrap_or(self.others)
    }
}

impl FromStr for SpecialInContent {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut policy = Self::default();
        for part in text.split(',') {
            match part.trim().split_once('=') {
                Some((role, value)) => {
                    policy.roles.insert(role.trim().to_owned(), SpecialInText::parse(value.trim())?);
                }
                None => policy.others = SpecialInText::parse(part.trim())?,
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for SpecialInContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |policy: &SpecialInText| policy.text().unwrap_or_default();
        f.write_str(&word(&self.others))?;
        self.roles.iter().try_for_each(|(role, policy)| write!(f, ",{role}={}", word(policy)))
    }
}

impl ChatRecipe {
    /// Returns whether records have a mask of the tokens to train on: items are chats or pairs.
    pub fn has_masks(&self) -> bool {
        self.messages_field.is_some()
            || self.prompt_field.is_some()
            || self.chosen_field.is_some()
            || self.alpaca.is_some()
    }

    /// Returns whether records are prompts with completions to compare or with a label.
    pub(crate) fn are_preferences(&self) -> bool {
        self.chosen_field.is_some() || self.label_field.is_some()
    }

    /// Returns whether every item is a chat, which needs a template.
    fn are_chats(&self) -> bool {
        self.messages_field.is_some() || self.alpaca == Some(Alpaca::Chat)
    }

    /// Returns whether items may be pairs of texts.
    pub(crate) fn may_be_pairs(&self) -> bool {
        self.prompt_field.is_some() || self.chosen_field.is_some() || self.alpaca == Some(Alpaca::Pair)
    }

    /// Returns the fields whose values make up a chat or a pair; `None` if items are texts.
    pub(super) fn fields(&self) -> Option<TextFields> {
        let member = |name, field: &str, option, is_required, is_nested| JsonMember {
            name,
            field: field.to_owned(),
            option,
            is_required,
            is_named: is_required,
            is_nested,
        };
        let mut members = match (&self.messages_field, &self.prompt_field, &self.completion_field) {
            _ if self.are_preferences() || self.prompt_only => self.preference_members(),
            (Some(messages), ..) => vec![member("messages", messages, "messages_field", true, true)],
            (None, Some(prompt), Some(completion)) => vec![
                member("prompt", prompt, "prompt_field", true, false),
                member("completion", completion, "completion_field", true, false),
            ],
            _ if self.alpaca.is_some() => vec![
                member("instruction", "instruction", "alpaca", true, false),
                member("input", "input", "alpaca", false, false),
                member("output", "output", "alpaca", true, false),
            ],
            _ => return None,
        };
        if self.alpaca == Some(Alpaca::Pair) {
            return Some(TextFields::Json(members));
        }
        if self.alpaca.is_some() {
            members.push(member("history", "history", "alpaca", false, true));
        }
        let tools = self.tools_field.as_deref().unwrap_or(DEFAULT_TOOLS_FIELD);
        members.push(JsonMember {
            is_named: self.tools_field.is_some(),
            ..member("tools", tools, "tools_field", false, true)
        });
        let system = self.system_field.as_deref();
        if system != Some(NO_FIELD) {
            members.push(JsonMember {
                is_named: system.is_some(),
                ..member("system", system.unwrap_or(DEFAULT_SYSTEM_FIELD), "system_field", false, false)
            });
        }
        members.push(member(KWARGS_FIELD, KWARGS_FIELD, "messages_field", false, true));
        Some(TextFields::Json(members))
    }

    /// Returns the options of the renderer.
    pub(crate) fn renderer_options(&self, added_tokens: Vec<String>, images: bool) -> ChatOptions {
        let template = self.chat_template.as_ref();
        ChatOptions {
            special_tokens: template.map(|template| template.special_tokens.clone()).unwrap_or_default(),
            args: self.template_arg.0.clone(),
            now: self.now,
            // No turn of a prompt is trained, so it need not be told apart from others.
            train_on: if self.prompt_only { TrainOn::None } else { self.train_on.clone() },
            train_parts: self.train_parts,
            final_stop: self.final_stop.clone(),
            history_thinking: self.history_thinking,
            not_rendered: self.not_rendered,
            join_parts: self.join_parts,
            added_tokens,
            images,
        }
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String, help: &str| Err(Error::usage(what).help(help));
        if self.alpaca.is_some() && (self.messages_field.is_some() || self.prompt_field.is_some()) {
            return refuse(
                "`alpaca` excludes `messages_field` and `prompt_field`: it names the fields itself"
                    .to_owned(),
                "leave out one of them",
            );
        }
        if self.messages_field.is_some() && self.prompt_field.is_some() {
            return refuse(
                "`messages_field` excludes `prompt_field`: an item is a chat or a pair".to_owned(),
                "leave out one of them; prompt and completion may be lists of messages",
            );
        }
        self.check_preferences()?;
        self.check_prompts()?;
        let is_alone = self.chosen_field.is_some() || self.prompt_only;
        if !is_alone && self.prompt_field.is_some() != self.completion_field.is_some() {
            return refuse(
                "`prompt_field` and `completion_field` belong together".to_owned(),
                "name both, or neither",
            );
        }
        if !self.has_masks() {
            let defaults = Self::default();
            let is_given = |option: &Definition<Self>| option.get(self) != option.get(&defaults);
            let given = Self::definitions().into_iter().find(is_given).map(|option| option.name);
            let template = self.chat_template.as_ref().map(|_| "chat_template");
            if let Some(name) = given.filter(|name| *name == "tools_field").or(template).or(given) {
                return refuse(
                    format!("`{name}` applies only to chats and pairs"),
                    "name their fields with `messages_field`, with `prompt_field` and `completion_field`, or with `chosen_field` and \
                     `rejected_field`",
                );
            }
        }
        let is_for_pairs = self.pair_bos == PairBos::default() || self.may_be_pairs();
        if !is_for_pairs && self.has_masks() {
            return refuse(
                "`pair_bos` applies only to pairs of texts".to_owned(),
                "leave it out: a chat template writes the BOS token itself",
            );
        }
        if !self.train_parts.is_all() && matches!(self.train_on, TrainOn::All | TrainOn::None) {
            return refuse(
                format!("`train_parts` excludes `train_on {}`: it chooses parts of turns", self.train_on),
                "leave out one of them",
            );
        }
        if self.alpaca == Some(Alpaca::Pair) {
            for (name, is_given) in [
                ("system_field", self.system_field.is_some()),
                ("tools_field", self.tools_field.is_some()),
                ("train_parts", !self.train_parts.is_all()),
            ] {
                if is_given {
                    return refuse(
                        format!("`{name}` applies only to chats, but `alpaca pair` makes pairs of texts"),
                        "use `alpaca chat`",
                    );
                }
            }
        }
        Ok(())
    }

    /// Refuses chats without a template, once it was looked for.
    pub(crate) fn check_template(&self) -> Result<()> {
        let help =
            "name it with `chat_template`: a Jinja file, a tokenizer_config.json, or the folder of the model";
        let Some(template) = &self.chat_template else {
            return match self.are_chats() {
                true => Err(Error::usage("there is no chat template beside the tokenizer").help(help)),
                false => Ok(()),
            };
        };
        let names = || template.templates.keys().cloned().collect::<Vec<_>>().join(", ");
        match &self.template_name {
            Some(name) if !template.templates.contains_key(name) => {
                Err(Error::usage(format!("there is no template {name:?}; there are {}", names()))
                    .of_option("template_name")
                    .help("name one of these"))
            }
            None if !template.templates.contains_key(DEFAULT_TEMPLATE) => {
                Err(Error::usage(format!("none of the templates is the default; there are {}", names()))
                    .help("choose one with `template_name`"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in ["a=1", "a={\"b\":[1,2],\"c\":\"x,y=z\"},enable_thinking=false", ""] {
            assert_eq!(TemplateArgs::parse(text).unwrap().text().unwrap_or_default(), text);
        }
        for wrong in ["a", "a=", "a=high", "1a=2", "a=1 b=2", "a=1,b", "=1"] {
            assert!(TemplateArgs::parse(wrong).is_err(), "{wrong}");
        }
        for text in ["text", "parse", "text,assistant=error,tool=parse"] {
            assert_eq!(text.parse::<SpecialInContent>().unwrap().to_string(), text);
        }
        let policy: SpecialInContent = "user=parse".parse().unwrap();
        assert_eq!((policy.of("user"), policy.of("tool")), (SpecialInText::Parse, SpecialInText::Text));
        assert!("text,user=never".parse::<SpecialInContent>().is_err());
    }

    #[test]
    fn options_of_chats_need_chats() {
        let refused = |recipe: ChatRecipe| recipe.check().unwrap_err().to_string();
        let all = TrainOn::All;
        assert!(
            refused(ChatRecipe { train_on: all, ..Default::default() })
                .starts_with("`train_on` applies only")
        );
        let [parts, all] = ["content", "all"];
        let (train_parts, train_on) = (parts.parse().unwrap(), all.parse().unwrap());
        let chats = ChatRecipe { messages_field: Some("m".to_owned()), train_parts, ..Default::default() };
        assert!(chats.check().is_ok());
        assert!(refused(ChatRecipe { train_on, ..chats }).contains("`train_parts` excludes `train_on all`"));
        let rows = ChatRecipe { alpaca: Some(Alpaca::Pair), train_parts, ..Default::default() };
        assert!(refused(rows).starts_with("`train_parts` applies only to chats"));
        let prompt_field = Some("p".to_owned());
        assert!(refused(ChatRecipe { prompt_field, ..Default::default() }).contains("belong together"));
        let chats = ChatRecipe { messages_field: Some("m".to_owned()), ..Default::default() };
        assert!(chats.check().is_ok() && chats.check_template().is_err());
        let templates = [("a".to_owned(), String::new())].into();
        let chat_template = Some(ChatTemplateSource { templates, ..Default::default() });
        let chats = ChatRecipe { chat_template, ..chats };
        assert!(chats.check_template().unwrap_err().to_string().contains("none of the templates"));
        let named = |name: &str| {
            ChatRecipe { template_name: Some(name.to_owned()), ..chats.clone() }.check_template()
        };
        assert!(named("a").is_ok() && named("b").is_err());
    }
}
