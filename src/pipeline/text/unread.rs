//! Fields of chats and pairs that other trainers read, and that nothing reads here.

use crate::numbers::listed;
use crate::recipe::TextRecipe;
use crate::source::items::json_line::members::MemberPath;
use crate::warning::Warning;

const AVOID: &str = "an answer to avoid, which only preference training uses";
const PREFERRED: &str = "a preferred answer, which only preference training uses";
const LABEL: &str = "a mark of good and bad answers: bad ones are trained like good ones";
const MEDIA: &str = "only text is converted";
const TURNS: &str = "earlier turns of the conversation";
const SYSTEM: &str = "a system message";
const DOCUMENTS: &str = "documents for retrieval, which a template gets in `chat_template_kwargs`";

/// Fields that TRL, LLaMA-Factory, ms-swift and Axolotl read, and what they hold.
const KNOWN: [(&str, &str); 18] = [
    ("rejected", AVOID),
    ("rejected_response", AVOID),
    ("rejected_messages", AVOID),
    ("chosen", PREFERRED),
    ("label", LABEL),
    ("kto_tag", LABEL),
    ("input", "a part of the question"),
    ("history", TURNS),
    ("system", SYSTEM),
    ("system_prompt", SYSTEM),
    ("image", MEDIA),
    ("images", MEDIA),
    ("video", MEDIA),
    ("videos", MEDIA),
    ("audio", MEDIA),
    ("audios", MEDIA),
    ("objects", MEDIA),
    ("documents", DOCUMENTS),
];

/// Returns the warning about fields that nothing reads, of the fields `names` that rows have.
pub(super) fn warning<'a>(recipe: &TextRecipe, names: impl Iterator<Item = &'a String>) -> Option<Warning> {
    if !recipe.chat.has_masks() {
        return None;
    }
    let fields = recipe.text_fields();
    let read = fields.names().into_iter().map(|(name, ..)| name);
    let read = read.chain(recipe.key_field.as_deref()).chain(recipe.split_by.as_deref());
    let read = read.chain(recipe.keep_fields.iter().map(|k| &*k.name));
    let read: Vec<MemberPath> = read.map(MemberPath::new).collect();
    let names: Vec<&String> = names.filter(|name| !read.iter().any(|path| path.needs(name))).collect();
    let known = KNOWN.iter().filter(|(name, _)| names.iter().any(|there| there == name));
    let fields: Vec<&(&str, &str)> = known.collect();
    if fields.is_empty() {
        return None;
    }
    let named = fields.iter().map(|(name, meaning)| format!("{name:?} ({meaning})"));
    let what = if fields.len() == 1 { "this field" } else { "these fields" };
    let message = format!("nothing reads {what} of the rows: {}", listed(named));
    let mut warning = Warning::new("fields-unread", message).with("fields", &fields);
    let is_unread = |wanted: &str| fields.iter().any(|(name, _)| *name == wanted);
    if is_unread("input") {
        warning = warning.remedy("alpaca", "chat", "reads instruction, input and output");
    }
    if is_unread("chosen") && is_unread("rejected") {
        warning =
            warning.remedy("chosen_field", "chosen", "with `rejected_field rejected` makes preference pairs");
    }
    if is_unread("label") && recipe.chat.prompt_field.is_some() {
        warning = warning.remedy("label_field", "label", "makes completions with a label, for KTO");
    }
    Some(warning)
}
