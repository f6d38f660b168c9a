//! Construction of a [`Tokenizer`]: the tokens added around documents, and the choice of the engine.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::bos_eos::{self, FoundToken};
use crate::engine::bytes::{BOS_ID, Bytes, EOS_ID};
use crate::engine::fast::draft::Draft;
use crate::engine::fast::parts::EngineParts;
use crate::engine::reference::Reference;
use crate::engine::{self, Engine};
use crate::error::{LoadError, SequenceEnd};
use crate::id_set::IdSet;
use crate::info::{SpecialToken, TokenizerInfo};
use crate::load;
use crate::options::{EngineChoice, SpecialInText, TokenizerOptions};
use crate::panics::caught;
use crate::scratch::Scratch;
use crate::sentencepiece::{self, SentencePiece};
use crate::special::{self, SpecialTokenFinder};
use crate::tokenizer::{Base, Tokenizer};

/// Model type of [`Tokenizer::bytes`] in [`TokenizerInfo::model`].
pub const BYTES: &str = "bytes";

type Result<T> = std::result::Result<T, LoadError>;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

impl Tokenizer {
    /// Recreates a tokenizer from its stored [`json`](Self::json): a `tokenizer.json`, or `None` for
    /// [`Tokenizer::bytes`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Tokenizer::from_json`] and [`Tokenizer::bytes`].
    pub fn stored(json: Option<Vec<u8>>, options: TokenizerOptions) -> Result<Self> {
        match json {
            Some(json) => Self::from_json(json, options),
            None => Self::bytes(options),
        }
    }

    /// Creates a tokenizer whose ids are the bytes of the UTF-8 text, 0 to 255. With
    /// [`add_bos`](TokenizerOptions::add_bos) and [`add_eos`](TokenizerOptions::add_eos), it adds 256 before and 257
    /// after every document.
    ///
    /// # Errors
    ///
    /// If an option needs a `tokenizer.json`: a named BOS or EOS token, or special tokens.
    pub fn bytes(options: TokenizerOptions) -> Result<Self> {
        if options.bos_token.is_some() || options.eos_token.is_some() || options.add_special_tokens {
            return Err(LoadError::BytesHasNoSpecialTokens);
        }
        let engine = Bytes.info();
        let token = |id, token: &str| Some(SpecialToken { id, token: token.to_owned() });
        let info = TokenizerInfo {
            model: BYTES.to_owned(),
            vocab_size: 258,
            max_id: EOS_ID,
            sha256: None,
            reference: engine.clone(),
            engine,
            engine_note: None,
            bos: token(BOS_ID, "<bos>"),
            eos: token(EOS_ID, "<eos>"),
        };
        Ok(Self {
            prefix: if options.add_bos { vec![BOS_ID] } else { Vec::new() },
            suffix: if options.add_eos { vec![EOS_ID] } else { Vec::new() },
            options,
            json: None,
            info,
            finder: SpecialTokenFinder::Nothing,
            hidden: IdSet::default(),
            reference: Base::Bytes(Bytes),
            fast: None,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Loads a `tokenizer.json`. Its truncation, padding and dropout are switched off.
    ///
    /// A file written by [`sentencepiece_to_json`](crate::sentencepiece_to_json) encodes like the SentencePiece model
    /// in it.
    ///
    /// # Errors
    ///
    /// If the file is malformed or of an unknown type, if BOS or EOS is to be added and cannot be determined, or if
    /// [`EngineChoice::Fast`] is set and no fast engine produces the ids of the reference.
    pub fn from_json(json: Vec<u8>, options: TokenizerOptions) -> Result<Self> {
        if let Some(model) = sentencepiece::embedded(&json)? {
            return Self::from_embedded(json, model, options);
        }
        let draft = || match options.engine {
            EngineChoice::Reference => Err("it is not wanted".to_owned()),
            _ => Draft::new(&json),
        };
        let (loaded, draft) = both(|| load::load(&json), draft);
        let mut loaded = loaded?;
        let max_vocab_id = match &draft {
            Ok(draft) => max_id(draft, &loaded.tokenizer),
            Err(_) => loaded.tokenizer.get_vocab(true).into_values().max().unwrap_or(0),
        };
        let vocab_size = loaded.tokenizer.get_vocab_size(true) as u64;
        let special = special::special_tokens(loaded.tokenizer.get_added_vocabulary());
        let finder = SpecialTokenFinder::new(&loaded)?;

        let find = |end, named: &Option<String>| {
            bos_eos::find(end, named.as_deref(), &loaded.outline.post_processor, &special, |t| {
                loaded.tokenizer.token_to_id(t)
            })
        };
        let bos = find(SequenceEnd::Bos, &options.bos_token)?;
        let eos = find(SequenceEnd::Eos, &options.eos_token)?;
        let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
        if options.add_special_tokens {
            if options.add_bos || options.add_eos {
                return Err(LoadError::ConflictingOptions);
            }
            (prefix, suffix) = post_processed(&loaded.tokenizer)?;
        }
        if options.add_bos {
            prefix.push(bos_eos::required(SequenceEnd::Bos, &bos, &special)?.id);
        }
        if options.add_eos {
            suffix.push(bos_eos::required(SequenceEnd::Eos, &eos, &special)?.id);
        }

        let model = loaded.model_type().to_owned();
        let parse_special = options.special_in_text == SpecialInText::Parse;
        let hidden =
            if parse_special { IdSet::default() } else { special::hide_controls(&mut loaded, &json)? };
        let draft = draft.map(|draft| draft.without(&hidden));
        let unigram_unk = loaded.unigram_unk_id();
        let reference =
            Arc::new(Reference::new(loaded.tokenizer, parse_special, options.max_reference_bytes()));
        let parts =
            EngineParts { reference: &reference, outline: &loaded.outline, parse_special, unigram_unk };
        let Chosen { fast, note: engine_note } = choose(options.engine, &parts, draft)?;
        let info = TokenizerInfo {
            model,
            vocab_size,
            max_id: prefix.iter().chain(&suffix).copied().fold(max_vocab_id, u32::max),
            sha256: Some(hex(&Sha256::digest(&json))),
            reference: reference.info(),
            engine: fast.as_ref().map_or_else(|| reference.info(), |engine| engine.info()),
            engine_note,
            bos: bos.token(),
            eos: eos.token(),
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
}

impl Tokenizer {
    /// Creates the tokenizer for the SentencePiece `model` embedded in `json`.
    fn from_embedded(json: Vec<u8>, model: SentencePiece, options: TokenizerOptions) -> Result<Self> {
        if options.special_in_text == SpecialInText::Parse {
            return Err(LoadError::ParsedControls);
        }
        if options.add_special_tokens {
            return Err(LoadError::UnclearPostProcessor);
        }
        let special = model.special_tokens();
        let find = |end, named: &Option<String>| match (model.sequence_token(end), named) {
            (Some(token), None) => Ok(FoundToken::Token(token)),
            _ => bos_eos::find(end, named.as_deref(), &Value::Null, &special, |t| model.id(t)),
        };
        let bos = find(SequenceEnd::Bos, &options.bos_token)?;
        let eos = find(SequenceEnd::Eos, &options.eos_token)?;
        let added = |wanted, end, found| match wanted {
            true => bos_eos::required(end, found, &special).map(|token| vec![token.id]),
            false => Ok(Vec::new()),
        };
        let prefix = added(options.add_bos, SequenceEnd::Bos, &bos)?;
        let suffix = added(options.add_eos, SequenceEnd::Eos, &eos)?;
        let info = TokenizerInfo {
            model: model.model_type().to_owned(),
            vocab_size: u64::from(model.vocab_size()),
            max_id: model.vocab_size().saturating_sub(1),
            sha256: Some(hex(&Sha256::digest(&json))),
            reference: model.info(),
            engine: model.info(),
            engine_note: None,
            bos: bos.token(),
            eos: eos.token(),
        };
        Ok(Self {
            finder: SpecialTokenFinder::of_strings(&special)?,
            reference: Base::SentencePiece(Box::new(model.with_max_bytes(options.max_reference_bytes()))),
            options,
            json: Some(json),
            info,
            prefix,
            suffix,
            hidden: IdSet::default(),
            fast: None,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
        })
    }
}

/// Runs both closures, in parallel if there is more than one CPU and a thread can be started.
fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    let is_single = available_parallelism().is_ok_and(|count| count.get() == 1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "tables".to_owned());
    let Some(pool) = (!is_single).then(|| pool.build().ok()).flatten() else {
        return (one(), other());
    };
    let mut made = None;
    let one = pool.in_place_scope(|scope| {
        scope.spawn(|_| made = Some(caught(other)));
        one()
    });
    match made {
        Some(Ok(made)) => (one, made),
        Some(Err(panic)) => resume_unwind(Box::new(panic)),
        None => resume_unwind(Box::new("a thread has lost its work")),
    }
}

/// Returns the largest id of the tokenizer, given its draft.
fn max_id(draft: &Draft, tokenizer: &tokenizers::Tokenizer) -> u32 {
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder().keys();
    added.copied().fold(draft.max_id(), u32::max)
}

/// The chosen engine.
struct Chosen {
    fast: Option<Box<dyn Engine>>,
    /// Reason why there is no fast engine although one was allowed.
    note: Option<String>,
}

/// Chooses a fast engine that passes the proof, or the reference and the reason if a fast engine was allowed.
fn choose(
    choice: EngineChoice,
    parts: &EngineParts<'_>,
    draft: std::result::Result<Draft, String>,
) -> Result<Chosen> {
    if choice == EngineChoice::Reference {
        return Ok(Chosen { fast: None, note: None });
    }
    let reference = parts.reference;
    let engine = engine::fast::build(parts, draft).and_then(|engine| {
        let mut scratch = Scratch::new(0);
        engine::proof::check(&*engine, reference, &mut scratch).map(|()| engine)
    });
    match (engine, choice) {
        (Ok(engine), _) => Ok(Chosen { fast: Some(engine), note: None }),
        (Err(why), EngineChoice::Fast) => Err(LoadError::NoFastEngine(why)),
        (Err(why), _) => Ok(Chosen { fast: None, note: Some(why) }),
    }
}

/// Determines the ids that the post-processor adds before and after a sequence, by encoding a short text.
fn post_processed(tokenizer: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    // Uses the first text that has any ids.
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
            _ => Err(LoadError::UnclearPostProcessor),
        };
    }
    Err(LoadError::UnclearPostProcessor)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
