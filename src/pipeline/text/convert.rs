//! Conversion of documents to records: normalization, token ids, lengths.

mod completions;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dsconvert_writer::outcome::{ConvertedRecord, ItemOutcome, MemberCount, Outcomes};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::chat::{Chats, EncodedChat, Rendered};
use super::conversion::{TextConversion, TextJob};
use super::duplicates::{DocumentPosition, Duplicates};
use super::feed::TextTask;
use super::multimodal::RowImages;
use super::preference::Preference;
use super::prompt::Prompt;
use super::sources::source::TextItem;
use super::split_group;
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::pipeline::job::{Converting, EngineUse, ItemSplit, excluded};
use crate::pipeline::memory::{MemoryPool, Shares};
use crate::recipe::Overflow;
use crate::sample::{ArrayValue, Ids, PackedIds, Record, Reject, RejectCode, Text, Tokens, Value};
use crate::schema::IdWidth;
use crate::source::io::broken::Broken;
use crate::source::items::text::fields::SourceDocument;
use crate::source::items::text::token_row::TokenRow;
use crate::source::list::source_file::SourceFile;
use crate::testing::item_panic_point;
use crate::transform::image::{DEFAULT_KEPT_BYTES, ImageScratch};
use crate::transform::text::{
    EncodeStats, MarkedIds, PackedIdSink, Scratch, StoredIds, Tokenizer, id_width, rejected,
};

/// Bytes of a document for each NUL byte that it may have.
const MAX_NUL_SHARE: usize = 100;
/// Number of NUL bytes that any document may have, however short it is.
const FEW_NUL: usize = 2;

/// State that a worker keeps from task to task.
pub struct TextScratch {
    tokens: Scratch,
    ids: PackedIds,
    /// Ids of the current chat.
    marked: MarkedIds,
    images: ImageScratch,
    /// Memory for images while they are decoded and resized, shared with the other workers.
    pixels: MemoryPool,
}

impl TextScratch {
    pub(super) fn new(tokenizer: &Tokenizer, memory: &Shares) -> Self {
        let kept = memory.kept_by_thread.min(DEFAULT_KEPT_BYTES as u64);
        Self {
            tokens: tokenizer.scratch(),
            ids: PackedIds::new(id_width(tokenizer)),
            marked: MarkedIds::default(),
            images: ImageScratch::keeping(kept as usize),
            pixels: memory.images.clone(),
        }
    }
}

impl TextJob {
    /// Converts the documents of a task.
    pub(super) fn convert_documents(
        &self,
        task: TextTask,
        scratch: &mut TextScratch,
        out: &mut Outcomes,
    ) -> Result<Converting> {
        let TextTask { section, file, mut items, engine, .. } = task;
        if engine == EngineUse::Reference && task.is_first {
            out.note("units_redone");
        }
        out.source_bytes += task.source_bytes;
        let mut converter = DocumentConverter {
            job: self,
            conversion: &self.conversion,
            section,
            file: Arc::clone(&file),
            split: self.split_of(&file),
            scratch,
            engine,
            duplicates: task.duplicates,
            member: MemberCount { start: task.member, ..MemberCount::default() },
            failure: None,
        };
        let is_damaged = items.is_corrupt();
        let kind = self.conversion.detail_of(section).kind;
        let is_compressed = kind.compression.is_some() || file.member.is_some();
        let context = self.item_context();
        let mut converting = Converting::Done;
        while converting == Converting::Done
            && let Some(item) = items.next(&context, out)?
        {
            converting = converter.convert(item, out);
            if let Some(error) = converter.failure.take() {
                return Err(error);
            }
        }
        out.member = match is_compressed {
            true => MemberCount { damaged: is_damaged, ..converter.member },
            false => MemberCount { start: Some(0), ..MemberCount::default() },
        };
        Ok(converting)
    }
}

/// Converter of documents to records.
struct DocumentConverter<'a> {
    job: &'a TextJob,
    conversion: &'a TextConversion,
    section: usize,
    file: Arc<SourceFile>,
    split: ItemSplit<'a>,
    scratch: &'a mut TextScratch,
    engine: EngineUse,
    duplicates: Duplicates,
    member: MemberCount,
    /// Why an image could not be read, other than by a defect of its item.
    failure: Option<Error>,
}

impl DocumentConverter<'_> {
    /// Converts an item. Its outcome is added to `out`.
    fn convert(&mut self, item: TextItem<'_>, out: &mut Outcomes) -> Converting {
        let position = DocumentPosition { section: self.section, mark: item.mark };
        self.member.start_item(position.mark.unwrap_or(0));
        let origin = position.origin_in(&self.file);
        let mut document = match item.document {
            Ok(document) => document,
            Err(reject) => {
                out.list.push(ItemOutcome::Rejected { split: self.split.of(&origin), origin, reject });
                return Converting::Done;
            }
        };
        let recipe = &self.conversion.recipe;
        if self.conversion.chats.is_none()
            && !recipe.allow_nul
            && let Err(reject) = check_nul(&document.text)
        {
            out.list.push(ItemOutcome::Rejected { split: self.split.of(&origin), origin, reject });
            return Converting::Done;
        }
        if is_mostly_controls(&document.text) {
            out.note("control_characters");
        }
        let key = document.key;
        let named = key.as_deref().unwrap_or(&origin);
        let preferences = self.conversion.chats.as_ref().and_then(Chats::preferences);
        let preference = preferences.map(|_| Preference::read(&document.text));
        let are_prompts = self.conversion.chats.as_ref().is_some_and(Chats::are_prompts);
        let prompt = are_prompts.then(|| Prompt::read(&document.text));
        let group = match (&preference, &prompt) {
            (Some(Ok(preference)), _) => Some(preference.group()),
            (_, Some(Ok(prompt))) => Some(prompt.group()),
            _ => None,
        };
        let group = match split_group::take(recipe, &self.conversion.fields, &mut document.kept, group) {
            Ok(group) => group,
            Err(reject) => {
                out.list.push(ItemOutcome::Rejected { split: self.split.of(&origin), origin, reject });
                return Converting::Done;
            }
        };
        let split = self.split.of(group.as_deref().unwrap_or(named));
        if let Some(kept) = self.duplicates.of(position) {
            let of = kept.to_owned();
            out.list.push(ItemOutcome::Duplicate { split, origin, of });
            return Converting::Done;
        }
        if self.job.excludes_key(named) {
            let outcome = excluded(&origin, split, out);
            out.list.push(outcome);
            return Converting::Done;
        }
        if let Some(prompt) = prompt {
            let document = SourceDocument { key, ..document };
            return self.prompt(prompt, document, origin, split, out);
        }
        if let Some(preference) = preference {
            let document = SourceDocument { key, ..document };
            return self.preference(preference, document, origin, split, out);
        }
        if let Some(ids) = &document.ids {
            self.convert_ids(ids, split, origin, key, document.kept, out);
            return Converting::Done;
        }
        let (chat, images) = match self.row_images(&document.text, out) {
            Ok(images) => images.unzip(),
            Err(Broken::Failed(error)) => {
                self.failure = Some(error);
                return Converting::Done;
            }
            Err(Broken::Damaged(reject)) => {
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
                return Converting::Done;
            }
        };
        let counts = images.as_ref().map(RowImages::token_counts).unwrap_or_default();
        let encoded = self.contained(|converter| {
            item_panic_point(&origin);
            let text = match &converter.conversion.chats {
                None => Prepared::Text(recipe.normalize.apply(&document.text, recipe.max_document_bytes)?),
                Some(chats) => Prepared::Chat(match &chat {
                    Some(chat) => chats.render_images(chat, counts.len())?,
                    None => chats.render(&document.text)?,
                }),
            };
            converter.encode(&text, &counts).map(|encoded| (text, encoded))
        });
        let (text, EncodedChat { tokens, stats, images_end }) = match encoded {
            Ok(encoded) => encoded,
            Err(reject) => {
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
                return Converting::Done;
            }
        };
        match self.contained(|converter| Ok(converter.verify(named, &text, &tokens, &stats, out))) {
            Ok(Converting::Done) => {}
            Ok(Converting::RedoUnit) => return Converting::RedoUnit,
            Err(reject) => {
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
                return Converting::Done;
            }
        }
        for (name, happened) in [
            ("special_tokens_in_text", stats.special_in_text > 0),
            ("doubled_bos", stats.doubled_bos),
            ("doubled_eos", stats.doubled_eos),
            ("encoded_by_reference", self.engine == EngineUse::Reference),
        ] {
            if happened {
                out.note(name);
            }
        }
        let (from, bytes) = (out.list.len(), text.as_str().len() as u64);
        if let Prepared::Chat(chat) = &text {
            chat.notes.iter().for_each(|note| out.note(note));
            chat.unread_keys.iter().for_each(|key| out.count_named(UNREAD_MESSAGE_KEY, key));
        }
        document.unread.iter().for_each(|field| out.count_named(UNREAD_FIELD, field));
        let origin = Text::from(origin);
        let identity = Identity {
            split,
            key: key.map_or_else(|| origin.clone(), Text::from),
            origin,
            key_may_repeat: recipe.key_field.is_some() || recipe.shape().has_pieces(),
            images_end,
            images: images.as_ref().map(|images| images.files().to_vec()).unwrap_or_default(),
        };
        let added = images.map_or(Ok(Vec::new()), |images| images.values().map(Vec::from));
        let added = added.map(|images| images.into_iter().chain(document.kept).collect());
        match added.and_then(|values| self.add_records(&identity, None, tokens, values, out)) {
            Err(reject) => {
                out.list.truncate(from);
                let origin = identity.origin.as_str().to_owned();
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
            }
            Ok(()) if matches!(out.list.last(), Some(ItemOutcome::Converted(_))) => {
                out.text_bytes += bytes;
                self.member.converted += 1;
            }
            Ok(()) => {}
        }
        Converting::Done
    }
}

/// Kinds of names that notes count.
pub(crate) const UNREAD_FIELD: &str = "unread_field";
pub(crate) const UNREAD_MESSAGE_KEY: &str = "unread_message_key";

/// A document before it is encoded.
enum Prepared<'a> {
    Text(Cow<'a, str>),
    Chat(Rendered),
}

impl Prepared<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Chat(chat) => &chat.text,
        }
    }
}

/// The key and origin of the records of a document, and their split.
struct Identity {
    split: u16,
    key: Text,
    origin: Text,
    /// Whether another record may have the same key.
    key_may_repeat: bool,
    /// End of the last image, before which the document is not cut.
    images_end: usize,
    /// The images of the record.
    images: Vec<Bytes>,
}

impl DocumentConverter<'_> {
    /// Runs `work` on one document. A panic rejects the document.
    fn contained<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Reject>) -> Result<T, Reject> {
        caught(|| work(self)).unwrap_or_else(|panic| {
            self.scratch.tokens.renew();
            self.scratch.ids = PackedIds::new(id_width(&self.conversion.tokenizer));
            Err(panic.into_reject())
        })
    }

    fn encode(&mut self, text: &Prepared<'_>, counts: &[u32]) -> Result<EncodedChat, Reject> {
        let tokenizer = &self.conversion.tokenizer;
        let TextScratch { tokens, ids, marked, .. } = &mut *self.scratch;
        let text = match (text, &self.conversion.chats) {
            (Prepared::Chat(chat), Some(chats)) => {
                return chats.encode(chat, counts, tokenizer, self.engine, tokens, marked);
            }
            _ => text.as_str(),
        };
        // If the previous document was rejected because it had only added tokens, its ids are still in the buffer.
        ids.truncate(0);
        if text.is_empty() {
            return Err(Reject::new(RejectCode::Empty, "the document is empty"));
        }
        let sink = &mut PackedIdSink(ids);
        let stats = match self.engine {
            EngineUse::Reference => tokenizer.encode_reference(text, tokens, sink),
            EngineUse::Selected => tokenizer.encode(text, tokens, sink),
        };
        let stats = stats.map_err(rejected)?;
        if ids.len() == tokenizer.added_per_document() {
            return Err(Reject::new(RejectCode::Empty, "the tokenizer produces no tokens for the document"));
        }
        Ok(EncodedChat { tokens: ids.take().into(), stats, images_end: 0 })
    }

    /// Reads and stores the images of a chat, and returns the chat in which they are parts; `None` if chats have no images.
    ///
    /// # Errors
    ///
    /// [`Broken::Damaged`] if the item is to be rejected; otherwise, if a file has changed or cannot be read.
    fn row_images(&mut self, text: &str, out: &mut Outcomes) -> Result<Option<(String, RowImages)>, Broken> {
        let Some(multimodal) = &self.conversion.multimodal else { return Ok(None) };
        let chat = self.contained(|_| multimodal.chat(text))?;
        let images = chat.images;
        let chat = chat.chat.into_owned();
        let sources = multimodal.sources(self.job, &self.file, images, |bytes, is_file| {
            out.add_content(bytes);
            if is_file {
                out.source_bytes += bytes.len() as u64;
            }
        })?;
        let mut noted = Outcomes::default();
        let TextScratch { images, pixels, .. } = &mut *self.scratch;
        let stored = multimodal.store(&sources, images, pixels, &mut noted)?;
        if let Some(max) = self.conversion.recipe.pack_patches
            && stored.patches() > max.into()
        {
            let message =
                format!("the images have {} patches, more than `pack_patches {max}`", stored.patches());
            return Err(Reject::new(RejectCode::TooLong, message).into());
        }
        noted.notes.into_iter().for_each(|(name, count)| out.count(name, count));
        Ok(Some((chat, stored)))
    }

    /// Compares the ids with those of the reference tokenizer, if the document is chosen for verification.
    fn verify(
        &mut self,
        key: &str,
        text: &Prepared<'_>,
        found: &Tokens,
        stats: &EncodeStats,
        out: &mut Outcomes,
    ) -> Converting {
        if self.engine == EngineUse::Reference {
            return Converting::Done;
        }
        let hash = xxh3_64_with_seed(key.as_bytes(), VERIFY_SEED);
        let tokens = &mut self.scratch.tokens;
        let tokenizer = &self.conversion.tokenizer;
        let verified = match text {
            Prepared::Text(text) => tokenizer.verify(hash, text, &StoredIds(&found.ids), stats, tokens),
            Prepared::Chat(chat) => chat.verify(tokenizer, hash, &self.scratch.marked, stats, tokens),
        };
        if verified.bytes > 0 {
            out.note("verified_documents");
            out.count("verified_bytes", verified.bytes);
        }
        if verified.too_long {
            out.note("unverified_documents");
        }
        if verified.is_right { Converting::Done } else { Converting::RedoUnit }
    }

    /// Converts a row of token ids: adds the records of its documents, or a record of the whole row.
    fn convert_ids(
        &mut self,
        row: &TokenRow,
        split: u16,
        origin: String,
        key: Option<String>,
        kept: Vec<Value>,
        out: &mut Outcomes,
    ) {
        let from = out.list.len();
        let text = Text::from(origin.as_str());
        let key = key.map_or_else(|| text.clone(), Text::from);
        let identity =
            Identity { split, key, origin: text, key_may_repeat: true, images_end: 0, images: Vec::new() };
        match self.contained(|converter| {
            item_panic_point(&origin);
            converter.add_row(&identity, row, kept, out)
        }) {
            Ok(converted) => self.member.converted += u64::from(converted),
            Err(reject) => {
                out.list.truncate(from);
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
            }
        }
    }

    /// Adds the records of a row of token ids. Returns whether there are any.
    fn add_row(
        &self,
        identity: &Identity,
        row: &TokenRow,
        kept: Vec<Value>,
        out: &mut Outcomes,
    ) -> Result<bool, Reject> {
        let Some(ids) = &self.conversion.ids else {
            return Err(Reject::new(RejectCode::Unsupported, "the conversion is not one of token ids"));
        };
        let tokens = ids.tokens(row)?;
        let documents = ids.documents(row)?;
        if let Some(row_tokens) = ids.row_tokens {
            let record = self.kept_row(identity, &tokens, &documents, row_tokens)?;
            let is_excluded = self.exclude_ids(identity, &record.tokens, out);
            if !is_excluded {
                let record = record.converted(identity.split, identity.key_may_repeat);
                record.check_size()?;
                out.list.push(ItemOutcome::Converted(record));
            }
            return Ok(!is_excluded);
        }
        let from = out.list.len();
        // The outcome of the row if none of its documents becomes a record.
        let mut left_out = None;
        let is_whole = matches!(&documents[..], [only] if *only == (0..tokens.len()));
        for range in documents {
            let start = (row.ends.len() > 1).then_some(range.start);
            let document = if is_whole { tokens.clone() } else { copy_range(&tokens, range)? };
            let before = out.list.len();
            self.add_records(identity, start, document, kept.clone(), out)?;
            match out.list.get_mut(before) {
                Some(ItemOutcome::Converted(first)) => first.continues = before > from,
                _ => {
                    left_out = out.list.pop();
                    out.note("documents_left_out");
                }
            }
        }
        if out.list.len() > from {
            return Ok(true);
        }
        out.list.extend(left_out);
        Ok(false)
    }

    /// Returns the record of a row that stays as it is: its documents, one after the other, and their bounds.
    fn kept_row(
        &self,
        identity: &Identity,
        tokens: &Tokens,
        documents: &[Range<usize>],
        row_tokens: u32,
    ) -> Result<TextRecord, Reject> {
        let unsupported =
            || Reject::new(RejectCode::Unsupported, "the bounds of the row do not fit in a record");
        let pieces: Vec<_> = documents.iter().map(|range| (tokens, range.clone())).collect();
        let tokens = Tokens::join(&pieces).ok_or_else(unsupported)?;
        if tokens.len() as u64 > u64::from(row_tokens) {
            let message = format!("the row has {} tokens, more than `pack {row_tokens}`", tokens.len());
            return Err(Reject::new(RejectCode::TooLong, message));
        }
        let mut bounds = vec![0];
        bounds.extend(documents.iter().scan(0, |end, range| {
            *end += range.len() as u32;
            Some(*end)
        }));
        let numbers = |all: &[u32]| Ids::pack(IdWidth::U32, all).map(Value::Ids).ok_or_else(unsupported);
        Ok(TextRecord {
            key: identity.key.clone(),
            tokens,
            origin: identity.origin.clone(),
            extra_values: vec![numbers(&bounds)?, numbers(&vec![0; documents.len()])?],
        })
    }

    /// Adds the records of a document, given its tokens. `base` is its first token in its item, of several documents.
    fn add_records(
        &self,
        identity: &Identity,
        base: Option<usize>,
        tokens: Tokens,
        kept: Vec<Value>,
        out: &mut Outcomes,
    ) -> Result<(), Reject> {
        let shape = self.conversion.recipe.shape();
        if let Some(range) = shape.filter_length
            && !(range.min..=range.max).contains(&(tokens.len() as u64))
        {
            let reason = if (tokens.len() as u64) < range.min { "too-short" } else { "too-long" };
            let (split, origin) = (identity.split, identity.origin.as_str().to_owned());
            out.list.push(ItemOutcome::Filtered { split, origin, reason: reason.to_owned() });
            return Ok(());
        }
        let (limit, overflow) =
            shape.max_length.map_or((usize::MAX, Overflow::Truncate), |(limit, overflow)| {
                (usize::try_from(limit).unwrap_or(usize::MAX), overflow)
            });
        if tokens.len() <= limit {
            if self.exclude_ids(identity, &tokens, out) {
                return Ok(());
            }
            let record = self.record(identity, base, tokens, kept, false)?;
            out.list.push(record);
            return Ok(());
        }
        match overflow {
            Overflow::Reject => Err(too_long("the document has", tokens.len(), limit)),
            Overflow::Truncate if limit < identity.images_end => {
                Err(too_long("through its last image, the chat has", identity.images_end, limit))
            }
            Overflow::Truncate => {
                let first = truncated(&tokens, limit)?;
                if self.exclude_ids(identity, &first, out) {
                    return Ok(());
                }
                out.note("truncated");
                let record = self.record(identity, base, first, kept, false)?;
                out.list.push(record);
                Ok(())
            }
            Overflow::Split { stride } => {
                out.note("split");
                // The stride is less than `limit`, which was checked with the options.
                let step = limit.saturating_sub(stride as usize).max(1);
                let mut start = 0;
                loop {
                    let end = (start + limit).min(tokens.len());
                    let (continues, kept) = (start > 0, kept.clone());
                    let piece = copy_range(&tokens, start..end)?;
                    let named = Some(base.unwrap_or(0) + start);
                    let record = self.record(identity, named, piece, kept, continues)?;
                    out.list.push(record);
                    if end == tokens.len() {
                        return Ok(());
                    }
                    start += step;
                }
            }
        }
    }

    /// Leaves out a document if an excluded dataset has a record with the same `tokens`, and contents are compared. Returns
    /// whether it is left out.
    fn exclude_ids(&self, identity: &Identity, tokens: &Tokens, out: &mut Outcomes) -> bool {
        let is_excluded =
            self.job.excluded.get().is_some_and(|items| items.has_ids(&tokens.ids, &identity.images));
        if is_excluded {
            let outcome = excluded(identity.origin.as_str(), identity.split, out);
            out.list.push(outcome);
        }
        is_excluded
    }

    /// Creates the record of `tokens`: a whole document, or the piece of a document that starts at token `start`.
    fn record(
        &self,
        identity: &Identity,
        start: Option<usize>,
        tokens: Tokens,
        kept: Vec<Value>,
        continues: bool,
    ) -> Result<ItemOutcome, Reject> {
        let too_many = || Reject::new(RejectCode::TooLarge, "the document has more than 2^32 - 1 tokens");
        u32::try_from(tokens.len()).map_err(|_| too_many())?;
        let named = |name: &Text| match start {
            None => name.clone(),
            Some(start) => piece_name(name.as_str(), start as u64).into(),
        };
        let (key, origin) = (named(&identity.key), named(&identity.origin));
        let record = TextRecord { key, tokens, origin, extra_values: kept };
        let converted =
            ConvertedRecord { continues, ..record.converted(identity.split, identity.key_may_repeat) };
        converted.check_size()?;
        Ok(ItemOutcome::Converted(converted))
    }
}

/// Rejects a document, or a side of a pair, with more tokens than the limit.
fn too_long(what: &str, tokens: usize, limit: usize) -> Reject {
    let message = format!("{what} {tokens} tokens, more than `max_length {limit}`");
    Reject::new(RejectCode::TooLong, message)
}

/// Rejects text if more than a hundredth of it is NUL: it is binary data, or UTF-16 without a mark.
fn check_nul(text: &str) -> Result<(), Reject> {
    let nul = memchr::memchr_iter(0, text.as_bytes()).count();
    if nul <= (text.len() / MAX_NUL_SHARE).max(FEW_NUL) {
        return Ok(());
    }
    let share = 100.0 * nul as f64 / text.len() as f64;
    let message = format!(
        "{share:.0}% of the bytes of the document are NUL: this is binary data, or UTF-16 without a byte order mark, which \
         `encoding utf-16le` reads; `allow_nul` accepts it as text"
    );
    Err(Reject::new(RejectCode::NulBytes, message))
}

/// Returns whether more than a quarter of the bytes are NUL or other control characters: binary data, or UTF-16 that is
/// read as UTF-8, half of whose bytes are 0 or, for example in Cyrillic, 4.
fn is_mostly_controls(text: &str) -> bool {
    // A comparison with each bound, and sums of bytes: the loop is then vectorized.
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1f | 0x7f);
    let count = |part: &[u8]| part.iter().map(|byte| u8::from(is_control(byte))).sum::<u8>();
    text.as_bytes().chunks(255).map(|part| usize::from(count(part))).sum::<usize>() > text.len() / 4
}

/// Returns the first `limit` tokens of a document, unless only others are to be trained on.
fn truncated(tokens: &Tokens, limit: usize) -> Result<Tokens, Reject> {
    let first = copy_range(tokens, 0..limit)?;
    if tokens.any_trained() == Some(true) && first.any_trained() == Some(false) {
        let all = tokens.len();
        let message = format!(
            "only tokens after the first {limit} of {all} are to be trained on (`max_length {limit}`)"
        );
        return Err(Reject::new(RejectCode::NothingToTrain, message));
    }
    Ok(first)
}

/// Copies a range of the tokens of a document, because a piece may be kept for long, and sharing would keep all of them in
/// memory.
fn copy_range(tokens: &Tokens, range: Range<usize>) -> Result<Tokens, Reject> {
    tokens
        .copy_of(range)
        .ok_or_else(|| Reject::new(RejectCode::Unsupported, "a piece has more tokens than its document"))
}

/// Decorrelates the choice of documents to verify from other hashes of the key.
const VERIFY_SEED: u64 = 0x5645_5249_4659_3031;

/// A document, a piece of one, or a row of several. The order of the fields of its record is defined only here.
pub(super) struct TextRecord {
    pub(super) key: Text,
    pub(super) tokens: Tokens,
    pub(super) origin: Text,
    /// Fields that only some datasets have, in the order of the schema.
    pub(super) extra_values: Vec<Value>,
}

impl TextRecord {
    /// Returns the fields of `record`, whose schema has the field of masks if `has_masks` is set; `None` if it is not a text
    /// record.
    pub(super) fn of(record: Record, has_masks: bool) -> Option<Self> {
        let mut values = record.values.into_iter();
        match (values.next(), values.next(), values.next(), values.next()) {
            (
                Some(Value::Text(key)),
                Some(Value::Ids(ids)),
                Some(Value::UInt(_)),
                Some(Value::Text(origin)),
            ) => {
                let masks = match has_masks.then(|| values.next()) {
                    None => None,
                    Some(Some(Value::Bytes(masks))) => Some(masks),
                    Some(_) => return None,
                };
                let mut values = values.peekable();
                // No other field of a text dataset has an array.
                let weights = values.next_if(|value| matches!(value, Value::Array(_)));
                let weights = weights.and_then(|weights| match weights {
                    Value::Array(weights) => Some(weights.as_bytes().clone()),
                    _ => None,
                });
                let tokens = Tokens::new(ids, masks)?.with_weights(weights)?;
                Some(Self { key, tokens, origin, extra_values: values.collect() })
            }
            _ => None,
        }
    }

    /// Creates the record, for the split with the ordinal `split`. `key_may_repeat` states whether another record may
    /// have the same key.
    pub(super) fn converted(self, split: u16, key_may_repeat: bool) -> ConvertedRecord {
        let Self { key, tokens: Tokens { ids, masks, weights }, origin, extra_values } = self;
        let length = ids.len() as u64;
        let key_hash = key_may_repeat.then(|| xxh3_128(key.as_bytes()));
        let mut values = vec![Value::Text(key), Value::Ids(ids), Value::UInt(length), Value::Text(origin)];
        values.extend(masks.map(Value::Bytes));
        // A record has fewer than 2³² tokens.
        values.extend(weights.map(|weights| Value::Array(ArrayValue::new([length as u32], weights))));
        values.extend(extra_values);
        ConvertedRecord { key_hash, ..ConvertedRecord::new(split, Record { values }, length) }
    }
}

/// Returns the key or origin of the piece of a document that starts at token `start`.
pub(super) fn piece_name(name: &str, start: u64) -> String {
    format!("{name}@{start}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sample::Ids;
    use crate::schema::IdWidth;

    fn tokens(masks: Option<&'static [u8]>) -> Tokens {
        Tokens::new(Ids::pack(IdWidth::U16, &[7, 8, 9, 10]).unwrap(), masks.map(Bytes::from_static)).unwrap()
    }

    #[test]
    fn truncation_leaves_a_token_to_train_on_or_rejects() {
        for (masks, limit, is_left) in [
            (None, 2, true),
            (Some(&[0, 1, 1, 0][..]), 2, true),
            (Some(&[0, 0, 1, 1]), 2, false),
            (Some(&[0, 0, 0, 1]), 3, false),
            // `train_on none`: nothing is lost.
            (Some(&[0, 0, 0, 0]), 2, true),
        ] {
            match truncated(&tokens(masks), limit) {
                Ok(first) => {
                    assert!(is_left, "{masks:?}");
                    assert_eq!(
                        (first.len(), first.masks.as_deref()),
                        (limit, masks.map(|all| &all[..limit]))
                    );
                }
                Err(reject) => {
                    assert_eq!((reject.code, is_left), (RejectCode::NothingToTrain, false), "{masks:?}");
                    assert!(reject.message.contains(&format!("`max_length {limit}`")), "{}", reject.message);
                }
            }
        }
    }

    #[test]
    fn masks_follow_the_origin_of_a_record() {
        let kept = || vec![Value::Bytes(Bytes::from_static(b"kept")), Value::Null];
        for masks in [None, Some(&[0, 1, 1, 0][..])] {
            let tokens = tokens(masks);
            let record = TextRecord {
                key: "k".into(),
                tokens: tokens.clone(),
                origin: "o".into(),
                extra_values: kept(),
            };
            let record = record.converted(0, false).record;
            let at = record.values.iter().position(|value| *value == kept()[0]);
            assert_eq!(at, Some(if masks.is_some() { 5 } else { 4 }));
            let read = TextRecord::of(record.clone(), masks.is_some()).unwrap();
            assert_eq!((read.tokens, read.extra_values), (tokens, kept()));
            // Kept bytes are not masks, and are not as long as the ids.
            let other = TextRecord::of(Record { values: record.values[..4].to_vec() }, true);
            assert!(other.is_none());
        }
    }
}
