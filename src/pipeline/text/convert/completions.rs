//! Conversion of prompts: with their completions, or as they are.

use std::collections::BTreeSet;

use dsconvert_writer::outcome::{ConvertedRecord, ItemOutcome, Outcomes};
use xxhash_rust::xxh3::xxh3_128;

use super::{DocumentConverter, Prepared, TextScratch, UNREAD_FIELD, UNREAD_MESSAGE_KEY, too_long};
use crate::pipeline::job::{Converting, EngineUse};
use crate::pipeline::text::chat::EncodedChat;
use crate::pipeline::text::conversion::TextConversion;
use crate::pipeline::text::preference::{CompletionIds, Preference};
use crate::pipeline::text::prompt::Prompt;
use crate::sample::{Record, Reject, Text, Value};
use crate::source::items::text::fields::SourceDocument;
use crate::testing::item_panic_point;

impl DocumentConverter<'_> {
    /// Converts a prompt with its completions.
    pub(super) fn preference(
        &mut self,
        preference: Result<Preference, Reject>,
        document: SourceDocument<'_>,
        origin: String,
        split: u16,
        out: &mut Outcomes,
    ) -> Converting {
        let named = document.key.clone().unwrap_or_else(|| origin.clone());
        let made = self.contained(|converter| {
            item_panic_point(&origin);
            converter.completions(preference?, &named, out)
        });
        let completions = match made {
            Ok(Some(completions)) => completions,
            Ok(None) => return Converting::RedoUnit,
            Err(reject) => {
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
                return Converting::Done;
            }
        };
        if completions.is_moved {
            out.note("seam_moved");
        }
        let CompletionIds { prompt, values, length, .. } = completions;
        self.add_record(document, named, origin, (prompt, values, length), split, out);
        Converting::Done
    }

    /// Converts a prompt that is kept as it is.
    pub(super) fn prompt(
        &mut self,
        prompt: Result<Prompt, Reject>,
        document: SourceDocument<'_>,
        origin: String,
        split: u16,
        out: &mut Outcomes,
    ) -> Converting {
        let named = document.key.clone().unwrap_or_else(|| origin.clone());
        let made = self.contained(|converter| {
            item_panic_point(&origin);
            let prompt = prompt?;
            let length = converter.prompt_length(&prompt, out)?;
            Ok((prompt, length))
        });
        match made {
            Ok((Prompt { json, .. }, length)) => {
                let payload = Value::Text(Text::from(json));
                self.add_record(document, named, origin, (payload, Vec::new(), length), split, out);
            }
            Err(reject) => out.list.push(ItemOutcome::Rejected { split, origin, reject }),
        }
        Converting::Done
    }

    /// Returns the number of tokens of a prompt.
    fn prompt_length(&mut self, prompt: &Prompt, out: &mut Outcomes) -> Result<u64, Reject> {
        let TextConversion { chats: Some(chats), tokenizer, recipe, .. } = self.conversion else {
            return Ok(0);
        };
        let rendered = chats.render_prompt(prompt)?;
        let TextScratch { tokens, marked, .. } = &mut *self.scratch;
        let length = chats.prompt_length(prompt, &rendered, tokenizer, self.engine, tokens, marked)?;
        if let Some(limit) = recipe.max_length.filter(|limit| length > *limit as usize) {
            return Err(too_long("the prompt has", length, limit as usize));
        }
        rendered.notes.iter().for_each(|note| out.note(note));
        rendered.unread_keys.iter().for_each(|key| out.count_named(UNREAD_MESSAGE_KEY, key));
        Ok(length as u64)
    }

    /// Adds the record of a document: what its payload and the fields after its origin are, and its length.
    fn add_record(
        &mut self,
        document: SourceDocument<'_>,
        named: String,
        origin: String,
        (payload, values_after, length): (Value, Vec<Value>, u64),
        split: u16,
        out: &mut Outcomes,
    ) {
        document.unread.iter().for_each(|field| out.count_named(UNREAD_FIELD, field));
        let range = self.conversion.recipe.shape().filter_length;
        if let Some(range) = range.filter(|range| !(range.min..=range.max).contains(&length)) {
            let reason = if length < range.min { "too-short" } else { "too-long" };
            out.list.push(ItemOutcome::Filtered { split, origin, reason: reason.to_owned() });
            return;
        }
        let key_hash = document.key.as_ref().map(|key| xxh3_128(key.as_bytes()));
        let mut values = vec![
            Value::Text(Text::from(named)),
            payload,
            Value::UInt(length),
            Value::Text(Text::from(origin.clone())),
        ];
        values.extend(values_after);
        values.extend(document.kept);
        let record = ConvertedRecord { key_hash, ..ConvertedRecord::new(split, Record { values }, length) };
        match record.check_size() {
            Ok(()) => {
                out.text_bytes += document.text.len() as u64;
                self.member.converted += 1;
                out.list.push(ItemOutcome::Converted(record));
            }
            Err(reject) => out.list.push(ItemOutcome::Rejected { split, origin, reject }),
        }
    }

    /// Renders and encodes each side. `None` if the ids are not those of the reference.
    fn completions(
        &mut self,
        preference: Preference,
        named: &str,
        out: &mut Outcomes,
    ) -> Result<Option<CompletionIds>, Reject> {
        let Some(chats) = &self.conversion.chats else { return Ok(None) };
        let limit = self.conversion.recipe.max_length;
        let mut sides = Vec::new();
        // Most of what is noted is in the prompt, and so in each side.
        let (mut notes, mut unread_keys) = (BTreeSet::new(), BTreeSet::new());
        for (name, row) in &preference.sides {
            let text = Prepared::Chat(chats.render(row)?);
            let EncodedChat { tokens, stats, .. } = self.encode(&text, &[])?;
            if let Some(limit) = limit.filter(|limit| tokens.len() > *limit as usize) {
                return Err(too_long(&format!("prompt and {name} have"), tokens.len(), limit as usize));
            }
            if self.verify(named, &text, &tokens, &stats, out) == Converting::RedoUnit {
                return Ok(None);
            }
            notes.extend((stats.special_in_text > 0).then_some("special_tokens_in_text"));
            notes.extend((self.engine == EngineUse::Reference).then_some("encoded_by_reference"));
            if let Prepared::Chat(chat) = text {
                notes.extend(chat.notes);
                unread_keys.extend(chat.unread_keys);
            }
            sides.push(tokens);
        }
        notes.into_iter().for_each(|note| out.note(note));
        unread_keys.iter().for_each(|key| out.count_named(UNREAD_MESSAGE_KEY, key));
        preference.into_ids(&sides, chats.preferences().unwrap_or_default()).map(Some)
    }
}
