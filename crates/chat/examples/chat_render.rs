//! Renders templates for the comparison with `transformers` (`tests/python/test_chat_templates.py`).
//!
//! Reads lines of JSON, `{"template": ..., "context": {...}, "now": ...}`, from the standard input, and writes for each
//! line `{"text": ..., "pieces": [[end, source, turn]], "generation": [[start, end]]}` or `{"error": ..., "kind": ...}`.
//! The messages are numbered from 1 as sources, and are the turns.

use std::io::{BufRead, Write};

use dsconvert_chat::{RenderOptions, Rendered, Template, TemplateError, Value};

fn render(template: &Value, mut context: Value, now: Option<i64>) -> Result<Rendered, TemplateError> {
    let template = Template::compile(template.as_str().unwrap_or_default())?;
    let mut variables: Vec<(&str, Value)> = Vec::new();
    if let Some(map) = context.as_map_mut() {
        for (name, value) in map.iter_mut() {
            if name == "messages" {
                value.update_list(|messages| {
                    for (index, message) in messages.iter_mut().enumerate() {
                        message.mark(index as u32 + 1);
                        if let Some(message) = message.as_map_mut() {
                            message.set_message(index as u32);
                        }
                    }
                });
            } else {
                value.mark(1000);
            }
            variables.push((name, value.clone()));
        }
    }
    template.render(&variables, &RenderOptions { now, ..RenderOptions::default() })
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let job = Value::from_json(&line).map_err(std::io::Error::other)?;
        let Some(map) = job.as_map() else { continue };
        let template = map.get("template").cloned().unwrap_or_else(Value::none);
        let context = map.get("context").cloned().unwrap_or_else(Value::none);
        let now = map.get("now").and_then(Value::as_f64).map(|now| now as i64);
        let answer = match render(&template, context, now) {
            Ok(rendered) => {
                let pieces: Vec<_> =
                    rendered.pieces.iter().map(|piece| (piece.end, piece.source, piece.turn)).collect();
                let generation: Vec<_> =
                    rendered.generation.iter().map(|range| (range.start, range.end)).collect();
                serde_json::json!({ "text": rendered.text, "pieces": pieces, "generation": generation })
            }
            Err(error) => {
                serde_json::json!({ "error": error.to_string(), "kind": format!("{:?}", error.kind()) })
            }
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
