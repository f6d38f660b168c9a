//! Messages of ShareGPT, with `from` and `value`.

use super::{ChatReader, kind};
use crate::reject::{ChatReject, invalid};
use crate::value::{Map, TEMPLATE, Value};

impl ChatReader {
    /// A message with `from` and `value`, in the names of OpenAI.
    pub(super) fn sharegpt_message(&mut self, at: usize, fields: &mut Map) -> Result<Map, ChatReject> {
        let from = match fields.remove("from") {
            Some(from) => match from.as_str() {
                Some(from) => from.to_owned(),
                None => {
                    return Err(invalid(format!("`from` of messages[{at}] is {}, not text", kind(&from))));
                }
            },
            None => String::new(),
        };
        let value = fields.remove("value");
        let Some(role) = sharegpt_role(&from) else {
            return Err(invalid(format!(
                "unknown `from` \"{from}\" of messages[{at}]; expected human, gpt, system, function_call, or observation"
            )));
        };
        let mut out = Map::new();
        out.insert("role", Value::str(role, TEMPLATE));
        match value {
            Some(value) if from == "function_call" => {
                let value = self.parse_if_text(value);
                let calls = match value.as_list() {
                    Some(calls) => calls.to_vec(),
                    None => vec![value],
                };
                let mut wrapped = Vec::new();
                for call in calls {
                    let named = |map: &Map| map.get("name").is_some() || map.get("function").is_some();
                    if !call.as_map().is_some_and(named) {
                        return Err(invalid(format!(
                            "`value` of messages[{at}] is not a function call: an object with `name` and `arguments`"
                        )));
                    }
                    wrapped.push(match call.as_map().and_then(|call| call.get("function")) {
                        Some(_) => call,
                        None => {
                            let mut map = Map::new();
                            map.insert("type", Value::str("function", TEMPLATE));
                            map.insert("function", call);
                            map.into()
                        }
                    });
                }
                out.insert("tool_calls", Value::list(wrapped));
                // Many templates concatenate the content.
                out.insert("content", Value::str("", TEMPLATE));
            }
            Some(value) => out.insert("content", value),
            None if fields.get("tool_calls").is_some() => out.insert("content", Value::str("", TEMPLATE)),
            None => return Err(invalid(format!("messages[{at}] has no `value`"))),
        }
        for (name, value) in fields.iter() {
            out.insert(name, value.clone());
        }
        Ok(out)
    }
}

/// Returns the role of a message of ShareGPT; `None` if it is unknown.
pub fn sharegpt_role(from: &str) -> Option<&'static str> {
    Some(match from {
        "human" | "user" => "user",
        "gpt" | "assistant" | "model" | "chatgpt" | "bot" | "chatbot" | "function_call" => "assistant",
        "system" => "system",
        "developer" => "developer",
        "tool" | "observation" | "function_response" | "tool_response" => "tool",
        _ => return None,
    })
}
