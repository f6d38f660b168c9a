//! Rows of Alpaca: an instruction, an optional input, and the output.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::sample::{Reject, RejectCode};

const START: &str = "Below is an instruction that describes a task";
const WITH_INPUT: &str = ", paired with an input that provides further context";
const END: &str = ". Write a response that appropriately completes the request.";

/// A row of Alpaca. Members that only chats have are passed on as JSON.
#[derive(Deserialize)]
pub(super) struct AlpacaRow<'a> {
    instruction: String,
    #[serde(default)]
    input: Option<String>,
    output: String,
    /// Earlier questions and answers, as in LLaMA-Factory.
    #[serde(default)]
    history: Option<Vec<(String, String)>>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_kwargs: Option<&'a RawValue>,
}

impl<'a> AlpacaRow<'a> {
    pub(super) fn read(row: &'a str) -> Result<Self, Reject> {
        serde_json::from_str(row).map_err(|e| {
            let message = format!(
                "the row is not one of Alpaca: instruction, input and output are texts, and history is a list of pairs of \
                 texts ({e})"
            );
            Reject::new(RejectCode::InvalidChat, message)
        })
    }

    fn input(&self) -> Option<&str> {
        self.input.as_deref().filter(|input| !input.is_empty())
    }

    /// Returns a chat with the question as LLaMA-Factory and ms-swift compose it: instruction and input, one below the other.
    pub(super) fn into_chat(self) -> String {
        let question = match self.input() {
            Some(input) if self.instruction.is_empty() => input.to_owned(),
            Some(input) => format!("{}\n{input}", self.instruction),
            None => self.instruction.clone(),
        };
        let turns = self.history.unwrap_or_default().into_iter().chain([(question, self.output)]);
        let messages: Vec<Value> = turns
            .flat_map(|(question, answer)| {
                [
                    json!({"role": "user", "content": question}),
                    json!({"role": "assistant", "content": answer}),
                ]
            })
            .collect();
        let mut chat = Map::new();
        chat.insert("messages".to_owned(), messages.into());
        let mut text = Value::Object(chat).to_string();
        text.pop();
        for (name, json) in [
            ("system", self.system),
            ("tools", self.tools),
            ("chat_template_kwargs", self.chat_template_kwargs),
        ] {
            if let Some(json) = json {
                text.extend([",\"", name, "\":", json.get()]);
            }
        }
        text.push('}');
        text
    }

    /// Returns the prompt with which Alpaca was trained, as in the column `text` of the published dataset, and the output.
    pub(super) fn into_pair(self) -> (String, String) {
        let instruction = &self.instruction;
        let prompt = match self.input() {
            Some(input) => format!(
                "{START}{WITH_INPUT}{END}\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
            ),
            None => format!("{START}{END}\n\n### Instruction:\n{instruction}\n\n### Response:\n"),
        };
        (prompt, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_and_input_are_one_question() {
        let row = r#"{"instruction":"Add.","input":"1 1","output":"2","history":[["a","b"]],"system":"s"}"#;
        let chat: Value = serde_json::from_str(&AlpacaRow::read(row).unwrap().into_chat()).unwrap();
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let messages = [
            message("user", "a"),
            message("assistant", "b"),
            message("user", "Add.\n1 1"),
            message("assistant", "2"),
        ];
        assert_eq!(chat, json!({"messages": messages, "system": "s"}));
        let (prompt, completion) = AlpacaRow::read(row).unwrap().into_pair();
        assert!(prompt.contains("### Input:\n1 1\n\n") && completion == "2", "{prompt}");
        let bare = r#"{"instruction":"Add.","input":"","output":"2"}"#;
        let (prompt, _) = AlpacaRow::read(bare).unwrap().into_pair();
        assert!(
            !prompt.contains("Input") && prompt.ends_with("### Instruction:\nAdd.\n\n### Response:\n"),
            "{prompt}"
        );
        let wrong = [
            r#"{"instruction":"a"}"#,
            r#"{"instruction":5,"output":""}"#,
            r#"{"instruction":"","output":"","history":[["a"]]}"#,
        ];
        for wrong in wrong {
            assert_eq!(AlpacaRow::read(wrong).err().unwrap().code, RejectCode::InvalidChat, "{wrong}");
        }
    }
}
