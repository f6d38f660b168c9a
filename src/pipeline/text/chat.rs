//! Chats and pairs: from the JSON of an item to ids, and to the mask of the tokens to train on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use dsconvert_chat::{
    ChatReject, ChatRejectCode, ChatRenderer, RenderedChat, Source, Template, TemplateError, TrainOn,
    render_pair,
};
use dsconvert_tokens::{mask, overlap_mask};
use dsconvert_vision::Processor;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::alpaca::AlpacaRow;
use super::multimodal::expand;
use super::prompt::Prompt;
use crate::error::{Error, Result};
use crate::pipeline::job::EngineUse;
use crate::recipe::{Alpaca, ChatRecipe, DEFAULT_TEMPLATE, PairBos, Seam, TOOL_TEMPLATE};
use crate::sample::{Ids, Reject, RejectCode, Tokens};
use crate::transform::text::{
    EncodeStats, MarkedIds, Scratch, SpecialInText, Tokenizer, Verified, id_width, rejected,
};

/// Converts chats and pairs.
pub(super) struct Chats {
    recipe: ChatRecipe,
    /// By name; empty without a template.
    renderers: BTreeMap<String, ChatRenderer>,
    /// Why pairs of lists of messages cannot be rendered, if that is not an error of the run.
    unusable: Option<String>,
    /// The tokens before pairs of texts.
    start: PairStart,
    /// The token that ends pairs of texts.
    end: Option<(u32, String)>,
    /// The token that stands for images, if chats may have some.
    image: Option<(u32, String)>,
}

/// The tokens before a pair of texts, and their text.
#[derive(Default)]
struct PairStart {
    ids: Vec<u32>,
    text: String,
}

/// A chat or pair before its ids are computed.
pub(super) struct Rendered {
    pub(super) text: String,
    /// What messages contain, in which strings of special tokens are not tokens.
    content: Vec<Range<usize>>,
    /// What the chat has written.
    written: Vec<Range<usize>>,
    /// The parts of it in which they are errors.
    forbidden: Vec<Range<usize>>,
    /// What to train on.
    trained: Vec<Range<usize>>,
    /// Whether the template marks what to train on. The mask then equals the mask of `transformers`.
    is_marked: bool,
    /// Whether this is a pair of texts, around which there are tokens.
    is_pair: bool,
    /// Where the template has written the tokens of images.
    images: Vec<usize>,
    pub(super) notes: Vec<&'static str>,
    /// Keys of messages that the template does not read.
    pub(super) unread_keys: Vec<String>,
}

/// The members of a pair, as JSON.
#[derive(Deserialize)]
struct PairMembers<'a> {
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    completion: Option<&'a RawValue>,
}

/// The tools of a chat, as JSON.
#[derive(Deserialize)]
struct ToolMember<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

impl Chats {
    /// Compiles and examines the templates of a recipe; `None` if its items are texts. `processor` is that of the images of
    /// chats.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if a template cannot be used, with the line.
    pub(super) fn new(
        recipe: &ChatRecipe,
        tokenizer: &Tokenizer,
        processor: Option<&Processor>,
    ) -> Result<Option<Self>> {
        if !recipe.has_masks() {
            return Ok(None);
        }
        tokenizer.check_marked().map_err(|e| {
            Error::usage(format!("the tokenizer cannot encode chats and pairs: {e}")).of_option("tokenizer").help(
                "AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR) of transformers writes a tokenizer.json",
            )
        })?;
        let (renderers, unusable) = match renderers(recipe, tokenizer, processor.is_some()) {
            Ok(renderers) => (renderers, None),
            // Pairs of texts need no template.
            Err(error) if recipe.may_be_pairs() => (BTreeMap::new(), Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let start = match recipe.may_be_pairs() {
            true => PairStart::of(recipe.pair_bos, tokenizer)?,
            false => PairStart::default(),
        };
        let end = tokenizer.info().eos.as_ref().map(|token| (token.id, token.token.clone()));
        let image = processor.map(|processor| (processor.image_token_id, processor.image_token.clone()));
        Ok(Some(Self { recipe: recipe.clone(), renderers, unusable, start, end, image }))
    }

    /// Returns what happens to pairs whose sides differ before their completions, if items are preference data.
    pub(super) fn preferences(&self) -> Option<Seam> {
        self.recipe.are_preferences().then_some(self.recipe.seam)
    }

    /// Returns whether items are prompts without ids.
    pub(super) fn are_prompts(&self) -> bool {
        self.recipe.prompt_only
    }

    /// Renders a prompt: a text, or the JSON of a chat.
    ///
    /// # Errors
    ///
    /// A reject if it is not a chat, or if the template refuses it.
    pub(super) fn render_prompt(&self, prompt: &Prompt) -> Result<Rendered, Reject> {
        match &prompt.chat {
            Some(chat) => {
                let renderer = self.renderer_for(chat)?;
                let rendered = renderer.render_prompt(chat).map_err(reject)?;
                Ok(self.by_policy(rendered, false, false))
            }
            None => Ok(self.by_policy(render_pair(&prompt.text, ""), false, false)),
        }
    }

    /// Returns the number of tokens of a prompt: those before a text count.
    ///
    /// # Errors
    ///
    /// A reject if the text cannot be encoded.
    pub(super) fn prompt_length(
        &self,
        prompt: &Prompt,
        rendered: &Rendered,
        tokenizer: &Tokenizer,
        engine: EngineUse,
        scratch: &mut Scratch,
        ids: &mut MarkedIds,
    ) -> Result<usize, Reject> {
        self.encode_marked(rendered, tokenizer, engine, scratch, ids)?;
        let start = if prompt.chat.is_none() { self.start.ids.len() } else { 0 };
        Ok(ids.ids.len() + start)
    }

    /// Renders the JSON of a chat or pair.
    ///
    /// # Errors
    ///
    /// A reject if it is not a chat, or if the template refuses it.
    pub(super) fn render(&self, chat: &str) -> Result<Rendered, Reject> {
        match self.recipe.alpaca {
            Some(Alpaca::Chat) => return self.chat(&AlpacaRow::read(chat)?.into_chat()),
            Some(Alpaca::Pair) => {
                let (prompt, completion) = AlpacaRow::read(chat)?.into_pair();
                return self.pair(&prompt, &completion);
            }
            None => {}
        }
        if self.recipe.prompt_field.is_some() || self.recipe.are_preferences() {
            let members: PairMembers<'_> = members(chat)?;
            if let (Some(prompt), Some(completion)) = (text_of(members.prompt), text_of(members.completion)) {
                let mut rendered = self.pair(&prompt, &completion)?;
                let has_system = text_of(members.system).is_some_and(|system| !system.is_empty());
                rendered.notes.extend(has_system.then_some("system_beside_pair"));
                rendered.notes.extend(members.tools.map(|_| "tools_beside_pair"));
                return Ok(rendered);
            }
        }
        self.chat(chat)
    }

    /// Renders the JSON of a chat with `images` parts that are images.
    ///
    /// # Errors
    ///
    /// As [`Self::render`], and if the template does not write one token for each image.
    pub(super) fn render_images(&self, chat: &str, images: usize) -> Result<Rendered, Reject> {
        let Some((_, token)) = &self.image else { return self.render(chat) };
        let mut rendered = self.chat(chat)?;
        rendered.images = expand::places(&rendered.text, token, &rendered.written);
        let found = rendered.images.len();
        if found != images {
            let message =
                format!("the chat has {images} images, but the chat template writes {token:?} {found} times");
            return Err(Reject::new(RejectCode::ImageCount, message));
        }
        Ok(rendered)
    }

    fn chat(&self, chat: &str) -> Result<Rendered, Reject> {
        let renderer = self.renderer_for(chat)?;
        let rendered = renderer.render(chat).map_err(reject)?;
        Ok(self.by_policy(rendered, renderer.has_generation_blocks(), false))
    }

    /// Returns the renderer of a chat, which may depend on whether it has tools.
    fn renderer_for(&self, chat: &str) -> Result<&ChatRenderer, Reject> {
        let has_tools = match self.renderers.contains_key(TOOL_TEMPLATE) {
            true => members::<ToolMember<'_>>(chat)?.tools.is_some(),
            false => false,
        };
        let name = match &self.recipe.template_name {
            Some(name) => name,
            None if has_tools => TOOL_TEMPLATE,
            None => DEFAULT_TEMPLATE,
        };
        self.renderers.get(name).ok_or_else(|| {
            let message = match &self.unusable {
                Some(why) => format!("a list of messages needs a chat template: {why}"),
                None => "a list of messages needs a chat template; `chat_template` names it".to_owned(),
            };
            Reject::new(RejectCode::InvalidChat, message)
        })
    }

    /// Finds the parts of a chat or pair in which strings of special tokens are not tokens.
    fn by_policy(&self, rendered: RenderedChat, is_marked: bool, is_pair: bool) -> Rendered {
        let RenderedChat { text, pieces, trained, notes, unread_keys } = rendered;
        let (mut content, mut forbidden, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for piece in pieces {
            let range = start..piece.end;
            start = piece.end;
            let Source::Content { role, .. } = &piece.source else { continue };
            let policy = self.recipe.special_in_content.of(role);
            append(&mut written, range.clone());
            if policy == SpecialInText::Error {
                append(&mut forbidden, range.clone());
            }
            if policy != SpecialInText::Parse {
                append(&mut content, range);
            }
        }
        let images = Vec::new();
        Rendered {
            text,
            content,
            written,
            forbidden,
            trained,
            is_marked,
            is_pair,
            images,
            notes,
            unread_keys,
        }
    }

    /// Joins two texts. The BOS token of the tokenizer is before them, in place of its string at the start, and the EOS
    /// token after them, in place of its string at the end of the completion.
    fn pair(&self, prompt: &str, completion: &str) -> Result<Rendered, Reject> {
        if !self.recipe.train_parts.is_all() {
            let message = format!(
                "a pair of texts has no parts; `train_parts {}` is for messages",
                self.recipe.train_parts
            );
            return Err(Reject::new(RejectCode::InvalidChat, message));
        }
        let Some((_, string)) = &self.end else {
            let message = "the tokenizer has no EOS token to end the completion with; `eos_token` names one";
            return Err(Reject::new(RejectCode::InvalidChat, message));
        };
        let completion = completion.strip_suffix(string.as_str()).unwrap_or(completion);
        let first = if prompt.is_empty() { completion } else { prompt };
        let after_start =
            first.strip_prefix(self.start.text.as_str()).filter(|_| !self.start.text.is_empty());
        let (prompt, completion) = match after_start {
            Some(rest) if prompt.is_empty() => (prompt, rest),
            Some(rest) => (rest, completion),
            None => (prompt, completion),
        };
        let mut rendered = render_pair(prompt, completion);
        if after_start.is_some() {
            rendered.notes.push("bos_in_pair");
        }
        match &self.recipe.train_on {
            TrainOn::None => rendered.trained.clear(),
            TrainOn::All => rendered.trained = std::iter::once(0..rendered.text.len()).collect(),
            _ => {}
        }
        Ok(self.by_policy(rendered, false, true))
    }

    /// Computes the ids of the text.
    fn encode_marked(
        &self,
        rendered: &Rendered,
        tokenizer: &Tokenizer,
        engine: EngineUse,
        scratch: &mut Scratch,
        ids: &mut MarkedIds,
    ) -> Result<EncodeStats, Reject> {
        ids.clear();
        let Rendered { text, content, .. } = rendered;
        let stats = match engine {
            EngineUse::Reference => tokenizer.encode_marked_reference(text, content, scratch, ids),
            EngineUse::Selected => tokenizer.encode_marked(text, content, scratch, ids),
        };
        let stats = stats.map_err(rejected)?;
        if let Some(found) = rendered.forbidden_in(&ids.special_in_content) {
            let message =
                format!("a message contains the special token {found:?} (`special_in_content error`)");
            return Err(Reject::new(RejectCode::SpecialToken, message));
        }
        Ok(stats)
    }

    /// Computes the ids and the mask. The images of the chat have these `counts` of tokens.
    ///
    /// # Errors
    ///
    /// A reject if the text cannot be encoded, or if no token is to be trained on.
    pub(super) fn encode(
        &self,
        rendered: &Rendered,
        counts: &[u32],
        tokenizer: &Tokenizer,
        engine: EngineUse,
        scratch: &mut Scratch,
        ids: &mut MarkedIds,
    ) -> Result<EncodedChat, Reject> {
        let stats = self.encode_marked(rendered, tokenizer, engine, scratch, ids)?;
        // The processor of `transformers` trains each token that overlaps, its tokenizer does not.
        let is_exact = rendered.is_marked && self.image.is_none();
        let exact = is_exact.then(|| mask(&ids.ranges, &rendered.trained)).flatten();
        let mut masks = exact.unwrap_or_else(|| overlap_mask(&ids.ranges, &rendered.trained));
        let mut all = Cow::Borrowed(&ids.ids[..]);
        if let (true, Some((end, _))) = (rendered.is_pair, &self.end) {
            let PairStart { ids: start, .. } = &self.start;
            let is_trained = u8::from(self.recipe.train_on == TrainOn::All);
            masks.splice(0..0, std::iter::repeat_n(is_trained, start.len()));
            masks.push(u8::from(self.recipe.train_on != TrainOn::None));
            all = Cow::Owned([&start[..], &ids.ids[..], &[*end]].concat());
        }
        let mut images_end = 0;
        if let Some((id, _)) = &self.image {
            let expanded = expand::expand(&all, &ids.ranges, &masks, *id, &rendered.images, counts)?;
            (all, masks, images_end) = (Cow::Owned(expanded.ids), expanded.masks, expanded.images_end);
        }
        if ids.ids.is_empty() {
            return Err(Reject::new(RejectCode::Empty, "the tokenizer produces no tokens for the chat"));
        }
        if self.recipe.train_on != TrainOn::None && !masks.contains(&1) {
            let message = format!("the chat has nothing to train on (`train_on {}`)", self.recipe.train_on);
            return Err(Reject::new(RejectCode::NothingToTrain, message));
        }
        let too_many = || Reject::new(RejectCode::Unsupported, "the ids do not fit in the records");
        let packed = Ids::pack(id_width(tokenizer), &all).ok_or_else(too_many)?;
        let tokens = Tokens::new(packed, Some(Bytes::from(masks))).ok_or_else(too_many)?;
        Ok(EncodedChat { tokens, stats, images_end })
    }
}

/// The tokens of a chat or pair.
pub(super) struct EncodedChat {
    pub(super) tokens: Tokens,
    pub(super) stats: EncodeStats,
    /// End of the last image, before which the chat is not cut.
    pub(super) images_end: usize,
}

impl PairStart {
    fn of(when: PairBos, tokenizer: &Tokenizer) -> Result<Self> {
        let tokens = match (when, &tokenizer.info().bos) {
            (PairBos::None, _) => Vec::new(),
            (PairBos::Auto, _) => tokenizer.start_tokens(),
            (PairBos::Add, Some(bos)) => vec![bos.clone()],
            (PairBos::Add, None) => {
                return Err(Error::usage("the tokenizer has no BOS token")
                    .of_option("pair_bos")
                    .help("name it with `bos_token`, or use `pair_bos none`"));
            }
        };
        let ids = tokens.iter().map(|token| token.id).collect();
        Ok(Self { ids, text: tokens.into_iter().map(|token| token.token).collect() })
    }
}

impl Rendered {
    /// Returns the first of `special`, the strings of special tokens, where there may be none.
    fn forbidden_in(&self, special: &[Range<u32>]) -> Option<&str> {
        let range = |found: &Range<u32>| found.start as usize..found.end as usize;
        let overlaps = |found: &Range<usize>| {
            let after = self.forbidden.partition_point(|range| range.end <= found.start);
            self.forbidden.get(after).is_some_and(|range| range.start < found.end)
        };
        self.text.get(special.iter().map(range).find(overlaps)?)
    }

    /// Compares the ids with those of the reference, if the chat is chosen for verification by the hash of its key.
    pub(super) fn verify(
        &self,
        tokenizer: &Tokenizer,
        hash: u64,
        ids: &MarkedIds,
        stats: &EncodeStats,
        scratch: &mut Scratch,
    ) -> Verified {
        tokenizer.verify_marked(hash, &self.text, &self.content, ids, stats, scratch)
    }
}

/// Compiles and examines the templates of a recipe, by name.
fn renderers(
    recipe: &ChatRecipe,
    tokenizer: &Tokenizer,
    images: bool,
) -> Result<BTreeMap<String, ChatRenderer>> {
    let options = recipe.renderer_options(tokenizer.added_tokens(), images);
    let is_token = |marker: &str| options.added_tokens.iter().any(|token| token == marker);
    let mut renderers = BTreeMap::new();
    let templates = recipe.chat_template.iter().flat_map(|template| &template.templates);
    for (name, source) in templates.filter(|(name, _)| is_used(recipe, name)) {
        // Before it is examined: an unknown marker does not end a turn, for example.
        let template = Template::compile(source).map_err(|e| unusable(name, &e))?;
        let unknown = template.literals().into_iter().flat_map(markers).find(|marker| !is_token(marker));
        if let Some(marker) = unknown.filter(|_| !recipe.allow_unknown_markers) {
            let message =
                format!("the chat template writes {marker:?}, which is not a token of the tokenizer");
            return Err(Error::usage(message).of_option("chat_template").help(
                "use the template and the tokenizer of one model; if the marker is never written, \
                 `allow_unknown_markers` accepts it",
            ));
        }
        let renderer = ChatRenderer::of(template, options.clone()).map_err(|e| unusable(name, &e))?;
        renderers.insert(name.clone(), renderer);
    }
    Ok(renderers)
}

/// Reads members of the JSON of an item.
pub(super) fn members<'a, T: Deserialize<'a>>(chat: &'a str) -> Result<T, Reject> {
    serde_json::from_str(chat)
        .map_err(|e| Reject::new(RejectCode::InvalidChat, format!("the chat is not valid JSON: {e}")))
}

/// Returns the members that the JSON of an item has, in an object after others: `,"tools":[…]`.
pub(super) fn further_members(members: &[(&str, Option<&RawValue>)]) -> String {
    let written =
        |(name, json): &(&str, Option<&RawValue>)| Some(format!(",\"{name}\":{}", json.as_ref()?.get()));
    members.iter().filter_map(written).collect()
}

/// Returns the parts of a template's text that look like special tokens: `<|name|>`, with bars of either width.
fn markers(text: &str) -> impl Iterator<Item = &str> {
    const MAX_BYTES: usize = 64;
    [("<|", "|>"), ("<\u{ff5c}", "\u{ff5c}>")].into_iter().flat_map(move |(open, close)| {
        text.match_indices(open).filter_map(move |(start, _)| {
            let rest = text.get(start + open.len()..)?;
            let inner = rest.get(..rest.find(close)?)?;
            let is_name = |c: char| c.is_alphanumeric() || "_-.:\u{2581}".contains(c);
            let is_marker = !inner.is_empty() && inner.len() <= MAX_BYTES && inner.chars().all(is_name);
            text.get(start..start + open.len() + inner.len() + close.len()).filter(|_| is_marker)
        })
    })
}

/// Returns whether chats may be rendered with the template `name`.
fn is_used(recipe: &ChatRecipe, name: &str) -> bool {
    match &recipe.template_name {
        Some(chosen) => name == chosen,
        None => name == DEFAULT_TEMPLATE || name == TOOL_TEMPLATE,
    }
}

fn unusable(name: &str, error: &TemplateError) -> Error {
    let which = if name == DEFAULT_TEMPLATE { String::new() } else { format!(" {name:?}") };
    Error::usage(format!("the chat template{which} cannot be used: {error}")).of_option("chat_template")
}

fn reject(reject: ChatReject) -> Reject {
    let code = match reject.code {
        ChatRejectCode::InvalidChat => RejectCode::InvalidChat,
        ChatRejectCode::NotRendered => RejectCode::NotRendered,
        ChatRejectCode::TextParts => RejectCode::TextParts,
        ChatRejectCode::NothingToTrain => RejectCode::NothingToTrain,
        ChatRejectCode::TooLarge => RejectCode::TooLarge,
        ChatRejectCode::TwoSystems => RejectCode::TwoSystems,
    };
    Reject::new(code, reject.message)
}

/// Returns the text of a JSON string.
fn text_of(json: Option<&RawValue>) -> Option<String> {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
}

fn append(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_in_the_text_of_templates() {
        let found = |text: &'static str| markers(text).collect::<Vec<_>>();
        assert_eq!(found("a <|im_start|>x<|end|><|a b|><||> <|open"), ["<|im_start|>", "<|end|>"]);
        assert_eq!(found("<\u{ff5c}begin\u{2581}of\u{ff5c}> |>"), ["<\u{ff5c}begin\u{2581}of\u{ff5c}>"]);
    }
}
