//! Token ids: a document goes in as `&str`, ids come out.
//!
//! A [`Tokenizer`] is shared by all threads; each thread has its own [`Scratch`]. What the ids are is decided by the
//! *reference*, the `tokenizers` crate at one pinned version: no truncation, no padding, no special tokens unless asked
//! for. A faster engine may do the work where it has shown that it gives the same ids; `docs/text.md` says how that is
//! shown and what each option means.

mod ends;
mod engine;
mod load;
mod options;
mod special;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use engine::EngineInfo;
use engine::bytes::Bytes;
use engine::fast::{Buffers, Build};
use engine::reference::Reference;
use engine::{Engine, Outcome};
pub use options::{EngineChoice, SpecialInText, TokenizerOptions, VERIFY_PER_MILLION, Verify};
pub use special::SpecialToken;
use special::{Finder, IdSet};

use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};
use crate::schema::IdWidth;

/// Name of the tokenizer that needs no file.
pub const BYTES: &str = "bytes";

/// Turns documents into token ids.
pub struct Tokenizer {
    options: TokenizerOptions,
    json: Option<Vec<u8>>,
    info: TokenizerInfo,
    /// Ids before and after every document.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    finder: Finder,
    /// Control tokens that text must not become.
    hidden: IdSet,
    reference: Base,
    fast: Option<Box<dyn Engine>>,
    /// Tells the scratch of this tokenizer from that of another.
    serial: u64,
}

/// What decides the ids.
enum Base {
    Bytes(Bytes),
    Reference(Arc<Reference>),
}

impl Base {
    fn engine(&self) -> &dyn Engine {
        match self {
            Base::Bytes(bytes) => bytes,
            Base::Reference(reference) => &**reference,
        }
    }
}

/// What the manifest says of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerInfo {
    /// `bytes`, or the type of the model: `BPE`, `WordPiece`, `Unigram`, `WordLevel`.
    pub model: String,
    /// Number of different tokens, added ones included.
    pub vocab_size: u64,
    /// The largest id that can be written, added tokens included.
    pub max_id: u32,
    /// SHA-256 of the `tokenizer.json`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What decides the ids.
    pub reference: EngineInfo,
    /// What makes the ids.
    pub engine: EngineInfo,
    /// Why the reference makes the ids although a faster engine was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_note: Option<String>,
    /// The token that begins a sequence, when it is known; whether it is added is an option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<SpecialToken>,
    /// The token that ends a sequence, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<SpecialToken>,
}

/// Buffers and caches of one thread. Made by [`Tokenizer::scratch`]; using one with another tokenizer empties it.
pub struct Scratch {
    serial: u64,
    buffers: Option<Box<Buffers>>,
}

impl Scratch {
    /// Made when an engine first wants them.
    fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_with(|| Box::new(Buffers::new()))
    }
}

/// What happened to one document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeStats {
    /// Strings of special tokens in the text, whatever was made of them.
    pub special_in_text: u64,
    /// The document itself begins with the token that was added before it.
    pub doubled_bos: bool,
    /// The document itself ends with the token that was added after it.
    pub doubled_eos: bool,
    /// The ids come from the reference.
    pub by_reference: bool,
}

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

impl Tokenizer {
    /// The bytes of the UTF-8 text as ids 0 to 255. With [`add_bos`](TokenizerOptions::add_bos) and
    /// [`add_eos`](TokenizerOptions::add_eos), 256 comes before and 257 after every document.
    ///
    /// # Errors
    ///
    /// Options that only a tokenizer with a file can follow.
    pub fn bytes(options: TokenizerOptions) -> Result<Self> {
        if options.bos_token.is_some() || options.eos_token.is_some() || options.add_special_tokens {
            return Err(Error::usage("the tokenizer \"bytes\" has no named and no special tokens")
                .help("use --add-bos (id 256) and --add-eos (id 257)"));
        }
        let engine = Bytes.info();
        let token = |id, token: &str| Some(SpecialToken { id, token: token.to_owned() });
        let info = TokenizerInfo {
            model: BYTES.to_owned(),
            vocab_size: 258,
            max_id: engine::bytes::EOS_ID,
            sha256: None,
            reference: engine.clone(),
            engine,
            engine_note: None,
            bos: token(engine::bytes::BOS_ID, "<bos>"),
            eos: token(engine::bytes::EOS_ID, "<eos>"),
        };
        Ok(Self {
            prefix: if options.add_bos { vec![engine::bytes::BOS_ID] } else { Vec::new() },
            suffix: if options.add_eos { vec![engine::bytes::EOS_ID] } else { Vec::new() },
            options,
            json: None,
            info,
            finder: Finder::Nothing,
            hidden: IdSet::default(),
            reference: Base::Bytes(Bytes),
            fast: None,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The tokenizer of a `tokenizer.json`. Truncation, padding and dropout written inside are switched off.
    ///
    /// # Errors
    ///
    /// [`Usage`](crate::error::ErrorKind::Usage): the file is malformed or of an unknown type, an end of the sequence
    /// is to be added and cannot be told, or [`EngineChoice::Fast`] is asked for and no fast engine gives the ids of
    /// the reference.
    pub fn from_json(json: Vec<u8>, options: TokenizerOptions) -> Result<Self> {
        let mut loaded = load::load(&json)?;
        let max_vocab_id = loaded.tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        let vocab_size = loaded.tokenizer.get_vocab_size(true) as u64;
        let special = special::special_tokens(loaded.tokenizer.get_added_vocabulary());
        let finder = Finder::new(&loaded.tokenizer)?;

        let find = |end, named: &Option<String>| {
            ends::find(end, named.as_deref(), &loaded.outline.post_processor, &special, |t| {
                loaded.tokenizer.token_to_id(t)
            })
        };
        let bos = find(ends::End::Beginning, &options.bos_token)?;
        let eos = find(ends::End::End, &options.eos_token)?;
        let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
        if options.add_special_tokens {
            if options.add_bos || options.add_eos {
                return Err(Error::usage("--add-special-tokens excludes --add-bos and --add-eos"));
            }
            (prefix, suffix) = post_processed(&loaded.tokenizer)?;
        }
        if options.add_bos {
            prefix.push(ends::required(ends::End::Beginning, &bos, &special)?.id);
        }
        if options.add_eos {
            suffix.push(ends::required(ends::End::End, &eos, &special)?.id);
        }
        let known = |found| match found {
            ends::Found::Token(token) => Some(token),
            _ => None,
        };

        let model = loaded.model_type().to_owned();
        let parse_special = options.special_in_text == SpecialInText::Parse;
        let hidden =
            if parse_special { IdSet::default() } else { special::hide_controls(&mut loaded, &json)? };
        let reference = Arc::new(Reference::new(loaded.tokenizer, parse_special));
        let build = Build { reference: &reference, outline: &loaded.outline, json: &json, parse_special };
        let (fast, engine_note) = choose(options.engine, &build)?;
        let info = TokenizerInfo {
            model,
            vocab_size,
            max_id: prefix.iter().chain(&suffix).copied().fold(max_vocab_id, u32::max),
            sha256: Some(hex(&Sha256::digest(&json))),
            reference: reference.info(),
            engine: fast.as_ref().map_or_else(|| reference.info(), |engine| engine.info()),
            engine_note,
            bos: known(bos),
            eos: known(eos),
        };
        Ok(Self {
            options,
            json: Some(json),
            info,
            prefix,
            suffix,
            finder,
            hidden,
            reference: Base::Reference(reference),
            fast,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The exact bytes of the `tokenizer.json`, to be kept beside the ids; `None` for `bytes`.
    pub fn json(&self) -> Option<&[u8]> {
        self.json.as_deref()
    }

    /// The narrowest width that holds every id this tokenizer can produce: by its largest id, not by its vocabulary
    /// size.
    pub fn id_width(&self) -> IdWidth {
        IdWidth::for_max_id(self.info.max_id)
    }

    /// What the manifest says of it.
    pub fn info(&self) -> &TokenizerInfo {
        &self.info
    }

    /// The options it was made with.
    pub fn options(&self) -> &TokenizerOptions {
        &self.options
    }

    /// How many ids are added around every document.
    pub fn added_per_document(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Buffers and caches for one thread.
    pub fn scratch(&self) -> Scratch {
        Scratch { serial: self.serial, buffers: None }
    }

    /// Whether the document whose key hashes to `key_hash` is to be checked with [`matches_reference`]
    /// (Self::matches_reference). Never, when the reference makes the ids anyway.
    pub fn should_verify(&self, key_hash: u64) -> bool {
        self.fast.is_some() && self.options.verify.selects(key_hash)
    }

    /// Appends the ids of `text` to `out`, with what is to be added around it.
    ///
    /// # Errors
    ///
    /// A reject, and then `out` is as it was: [`SpecialToken`](RejectCode::SpecialToken) by policy,
    /// [`Unsupported`](RejectCode::Unsupported) when the tokenizer has no way to encode this text (an unknown word and no
    /// unknown token).
    pub fn encode(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<EncodeStats, Reject> {
        self.encode_by(self.fast.as_deref(), text, scratch, out)
    }

    /// The same, by the reference.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn encode_reference(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<EncodeStats, Reject> {
        self.encode_by(None, text, scratch, out)
    }

    /// Whether the reference gives exactly `ids` for `text`; a text that the reference rejects gives no ids.
    pub fn matches_reference(&self, text: &str, ids: &[u32], scratch: &mut Scratch) -> bool {
        let mut expected = Vec::with_capacity(ids.len());
        self.encode_reference(text, scratch, &mut expected).is_ok() && expected == ids
    }

    fn encode_by(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<EncodeStats, Reject> {
        if scratch.serial != self.serial {
            *scratch = self.scratch();
        }
        let special_in_text = self.special_in_text(text)?;
        let start = out.len();
        out.extend_from_slice(&self.prefix);
        let body = out.len();
        match self.append_ids(fast, text, scratch, out) {
            Ok(by_reference) => {
                let ids = &out[body..];
                let stats = EncodeStats {
                    special_in_text,
                    doubled_bos: self.prefix.last().is_some_and(|id| ids.first() == Some(id)),
                    doubled_eos: self.suffix.first().is_some_and(|id| ids.last() == Some(id)),
                    by_reference,
                };
                out.extend_from_slice(&self.suffix);
                Ok(stats)
            }
            Err(reject) => {
                out.truncate(start);
                Err(reject)
            }
        }
    }

    /// Appends the ids of the text alone; says whether the reference made them.
    fn append_ids(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<bool, Reject> {
        let body = out.len();
        let by_reference = match fast.map(|engine| engine.encode(text, scratch, out)).transpose()? {
            Some(Outcome::Done) => false,
            Some(Outcome::Declined) | None => {
                self.reference.engine().encode(text, scratch, out)?;
                true
            }
        };
        if !self.hidden.is_empty() && out[body..].iter().any(|&id| self.hidden.contains(id)) {
            return Err(Reject::new(
                RejectCode::SpecialToken,
                "the text spells the hidden name of a control token",
            ));
        }
        Ok(by_reference)
    }

    /// How many strings of special tokens stand in the text, or the reject that the policy asks for.
    fn special_in_text(&self, text: &str) -> Result<u64, Reject> {
        let (count, first) = match (&self.finder, &self.reference) {
            (Finder::Strings(automaton, tokens), _) => {
                let mut count = 0;
                let mut first = None;
                for found in automaton.find_iter(text) {
                    count += 1;
                    first = first.or_else(|| tokens.get(found.pattern().as_usize()).map(|t| t.token.clone()));
                    if self.options.special_in_text == SpecialInText::Error {
                        break;
                    }
                }
                (count, first)
            }
            (Finder::AskReference, Base::Reference(reference)) => {
                let found = reference.special_tokens_in(text)?;
                let name = found.first().and_then(|&id| reference.tokenizer().id_to_token(id));
                (found.len() as u64, name)
            }
            _ => (0, None),
        };
        if count > 0 && self.options.special_in_text == SpecialInText::Error {
            let name = first.unwrap_or_default();
            return Err(Reject::new(
                RejectCode::SpecialToken,
                format!("the text contains the special token {name:?}"),
            ));
        }
        Ok(count)
    }
}

/// A fast engine that has shown to be right, or why the reference does the work although it was not asked for by name.
fn choose(choice: EngineChoice, build: &Build<'_>) -> Result<(Option<Box<dyn Engine>>, Option<String>)> {
    if choice == EngineChoice::Reference {
        return Ok((None, None));
    }
    let engine = engine::fast::build(build).and_then(|engine| {
        let mut scratch = Scratch { serial: 0, buffers: None };
        engine::proof::check(&*engine, build.reference, &mut scratch).map(|()| engine)
    });
    match (engine, choice) {
        (Ok(engine), _) => Ok((Some(engine), None)),
        (Err(why), EngineChoice::Fast) => {
            Err(Error::usage(format!("the fast engine cannot work with this tokenizer: {why}"))
                .help("use --engine auto or --engine reference"))
        }
        (Err(why), _) => Ok((None, Some(why))),
    }
}

/// What the post-processor puts before and after a sequence, found by trying.
fn post_processed(tokenizer: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let unclear = || {
        Error::usage("the post-processor of the tokenizer does not put fixed tokens around a sequence")
            .help("use --add-bos and --add-eos")
    };
    // The first text that becomes any id at all.
    for probe in ["a", "the", "0", "\u{2581}", " "] {
        let (Ok(plain), Ok(whole)) =
            (tokenizer.encode_fast(probe, false), tokenizer.encode_fast(probe, true))
        else {
            continue;
        };
        let (plain, whole) = (plain.get_ids(), whole.get_ids());
        if plain.is_empty() {
            continue;
        }
        let mut places = whole.windows(plain.len()).enumerate().filter(|(_, w)| *w == plain).map(|(i, _)| i);
        return match (places.next(), places.next()) {
            (Some(at), None) => Ok((whole[..at].to_vec(), whole[at + plain.len()..].to_vec())),
            _ => Err(unclear()),
        };
    }
    Err(unclear())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
