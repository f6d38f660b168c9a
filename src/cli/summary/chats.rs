//! What a run did to chats and pairs, beyond their conversion.

use indicatif::HumanCount;

use super::Lines;
use crate::manifest::Manifest;
use crate::numbers::{listed, plural};
use crate::pipeline::{FIT_SAMPLES, FIT_SQUARED_ERROR, UNREAD_FIELD, UNREAD_MESSAGE_KEY};
use crate::printable::printable;

/// Notes, what they count, and the rest of the line.
const NOTES: [(&str, &str, &str); 15] = [
    ("tools-not-rendered", "chat", "with tools that the template does not write"),
    ("not-rendered", "chat", "from which the template leaves out a message or a call (--not-rendered allow)"),
    (
        "reasoning-dropped",
        "chat",
        "from which the template leaves out earlier reasoning (--history-thinking keep)",
    ),
    (
        "flagged-other-turn",
        "chat",
        "with flags to train on turns that --train-on does not name, which are not trained",
    ),
    ("null-in-arguments", "chat", "with null in the arguments of a call"),
    ("null-in-tools", "chat", "with null in a tool"),
    ("empty-answer", "chat", "with an empty answer: only its end is trained"),
    ("adjacent-assistant", "chat", "with adjacent messages of the assistant"),
    ("bos_in_pair", "pair", "starting with the string of the BOS token, which is not repeated"),
    ("system_beside_pair", "pair", "of texts with a system message, which is not read"),
    ("seam_moved", "pair", "whose sides have different ids before their completions, which start there"),
    ("tools_beside_pair", "pair", "of texts with tools, which are not read"),
    ("images_of_chats", "image", "of chats stored"),
    (
        "images_encoded_again",
        "image",
        "encoded again: not upright, or of a type or of colors that are not stored",
    ),
    ("images_fit", "image", "resized to the size of the processor"),
];

/// Adds what is not read of chats and pairs, and what templates leave out.
pub(super) fn add_chats(lines: &mut Lines, manifest: &Manifest) {
    for (kind, what) in [(UNREAD_FIELD, "fields"), (UNREAD_MESSAGE_KEY, "keys of messages")] {
        let named = |name: &str| name.strip_prefix(kind)?.strip_prefix(':').map(str::to_owned);
        let names: Vec<_> = manifest
            .notes
            .iter()
            .filter_map(|(note, count)| {
                Some(format!("{} ({})", printable(&named(note)?), HumanCount(*count)))
            })
            .collect();
        if !names.is_empty() {
            lines.add(format!("  {what} that nothing reads: {}", listed(names.into_iter())));
        }
    }
    let special = manifest.notes.get("special_tokens_in_text");
    let schema = &manifest.schema;
    if let Some(count) = special.filter(|_| schema.masks_field().is_some() || schema.holds_completions()) {
        lines.add(format!(
            "  {} with strings of special tokens, which are text: --special-in-content parse makes them tokens",
            plural(*count, "item")
        ));
    }
    for (note, what, rest) in NOTES {
        if let Some(count) = manifest.notes.get(note) {
            let sign = if note.starts_with("tools-") { "warning: " } else { "" };
            lines.add(format!("  {sign}{} {rest}", plural(*count, what)));
        }
    }
    if let Some(&samples) = manifest.notes.get(FIT_SAMPLES) {
        let squared = manifest.notes.get(FIT_SQUARED_ERROR).copied().unwrap_or_default();
        let psnr = match squared {
            0 => "lossless".to_owned(),
            _ => {
                let mean = squared as f64 / samples.max(1) as f64;
                format!("PSNR {:.1} dB", 10.0 * (255.0 * 255.0 / mean).log10())
            }
        };
        lines.add(format!("  encoding of the resized images: {psnr}, compared with the resized pixels"));
    }
}
