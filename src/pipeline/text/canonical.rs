//! The canonical text of a chat, which does not depend on the order of keys, on escapes and on white space.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Maximum nesting. A chat with more is compared as it is.
const MAX_DEPTH: usize = 64;

/// Returns the canonical text of JSON: the keys of objects are sorted, members that are null are left out, and numbers keep their
/// digits. Returns the JSON itself if it is nested too deeply.
pub(super) fn canonical(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    match append(json, 0, &mut out) {
        Some(()) => out,
        None => json.to_owned(),
    }
}

fn append(json: &str, depth: usize, out: &mut String) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut separator = "";
    match json.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            out.push('{');
            for (name, value) in members.into_iter().filter(|(_, value)| value.get() != "null") {
                out.push_str(separator);
                out.push_str(&serde_json::to_string(&name).ok()?);
                out.push(':');
                append(value.get(), depth + 1, out)?;
                separator = ",";
            }
            out.push('}');
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            out.push('[');
            for item in items {
                out.push_str(separator);
                append(item.get(), depth + 1, out)?;
                separator = ",";
            }
            out.push(']');
        }
        b'"' => {
            let text: String = serde_json::from_str(json).ok()?;
            out.push_str(&serde_json::to_string(&text).ok()?);
        }
        _ => out.push_str(json),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let same = [
            r#"{"messages":[{"role":"user","content":"q"}]}"#,
            r#"{ "messages" : [{"content": "\u0071", "role":"user", "tool_calls": null}], "tools": null}"#,
        ];
        assert_eq!(canonical(same[0]), canonical(same[1]));
        let others = [
            r#"{"messages":[{"role":"user","content":"q "}]}"#,
            r#"{"messages":[{"role":"user","content":"q"},null]}"#,
            r#"{"messages":[{"role":"user","content":"q","n":1}]}"#,
            r#"{"messages":[{"role":"user","content":"q","n":1.0}]}"#,
            r#"{"messages":[{"role":"user","content":"q","n":123456789012345678901}]}"#,
            r#"{"messages":[{"role":"user","content":"q","n":123456789012345678902}]}"#,
        ];
        let mut texts: Vec<String> = same[..1].iter().chain(&others).map(|json| canonical(json)).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 1 + others.len());
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(canonical(&deep), deep);
    }
}
