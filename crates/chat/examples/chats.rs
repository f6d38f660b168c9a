//! Renders chats with a template: one JSON object in a line of the standard input gives one in a line of the standard
//! output. The second argument is a JSON object with options. Used by `tests/python/chat_oracle.py`.

use std::io::{self, BufRead, BufWriter, Write};

use dsconvert_chat::{ChatOptions, ChatRenderer, HistoryThinking, NotRendered};
use serde_json::{Map, Value, json};

/// Options by name, as in a recipe.
fn options(json: &Map<String, Value>) -> Result<ChatOptions, Box<dyn std::error::Error>> {
    let mut options = ChatOptions::default();
    for (name, value) in json {
        let (map, list) = (value.as_object().cloned(), value.as_array().cloned());
        let text = value.as_str().unwrap_or_default();
        match name.as_str() {
            "special_tokens" => options.special_tokens = map.ok_or("expected an object")?,
            "args" => options.args = map.ok_or("expected an object")?,
            "now" => options.now = Some(text.parse()?),
            "train_on" => options.train_on = text.parse()?,
            "train_parts" => options.train_parts = text.parse()?,
            "final_stop" => options.final_stop = Some(text.parse()?),
            "history_thinking" if text == "keep" => options.history_thinking = HistoryThinking::Keep,
            "not_rendered" if text == "allow" => options.not_rendered = NotRendered::Allow,
            "join_parts" => options.join_parts = Some(text.parse()?),
            "added_tokens" => {
                let tokens = list.ok_or("expected a list")?;
                options.added_tokens =
                    tokens.iter().filter_map(|token| token.as_str().map(str::to_owned)).collect();
            }
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let template = std::fs::read_to_string(arguments.next().ok_or("expected the file of a template")?)?;
    let json: Map<String, Value> =
        serde_json::from_str(&arguments.next().unwrap_or_else(|| "{}".to_owned()))?;
    let renderer = ChatRenderer::new(&template, options(&json)?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let result = match renderer.render(&line?) {
            Ok(chat) => {
                let trained: Vec<_> = chat.trained.iter().map(|range| [range.start, range.end]).collect();
                json!({"text": chat.text, "trained": trained, "notes": chat.notes})
            }
            Err(reject) => json!({"reject": reject.code.as_str(), "message": reject.message}),
        };
        writeln!(out, "{result}")?;
    }
    Ok(())
}
