//! Loading of a `tokenizer.json` into a [`Tokenizer`]: the tokens added around documents, and the choice of the engine.

use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crate::bos_eos::{self, ConfigTokens, DeterminedEnds, SequenceEnds};
use crate::bpe_file::BpeFile;
use crate::build::{next_serial, sha256};
use crate::engine::fast::bpe_tables::BpeTables;
use crate::engine::fast::engine_parts::EngineParts;
use crate::engine::reference::Reference;
use crate::engine::{self, Engine};
use crate::error::{LoadError, SequenceEnd};
use crate::id_set::IdSet;
use crate::info::TokenizerInfo;
use crate::load::{self, Loaded};
use crate::options::{EngineChoice, SpecialInText, TokenizerOptions};
use crate::outline::Outline;
use crate::panics::caught;
use crate::quick::{self, PROBES, Partial};
use crate::scratch::Scratch;
use crate::sentencepiece;
use crate::special::{self, SpecialTokenFinder};
use crate::tokenizer::{ReferenceEngine, Tokenizer};

type Result<T> = std::result::Result<T, LoadError>;

impl Tokenizer {
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
        Self::from_json_and_config(json, options, &ConfigTokens::default())
    }

    /// Like [`from_json`](Self::from_json), with the BOS and EOS tokens that configuration files beside the
    /// `tokenizer.json` name. They take precedence over what the `tokenizer.json` defines, but not over `options`.
    ///
    /// If only a configuration file determines a token that is added, [`options`](Self::options) of the result name
    /// it. Therefore, they and the `tokenizer.json` always suffice to [recreate](Self::stored) the tokenizer.
    /// [`warnings`](Self::warnings) describes contradictions.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and if a token that is added is not in the vocabulary.
    pub fn from_json_and_config(
        json: Vec<u8>,
        options: TokenizerOptions,
        config: &ConfigTokens,
    ) -> Result<Self> {
        if let Some(model) = sentencepiece::embedded(&json)? {
            return Self::from_embedded(json, model, options, config);
        }
        let json = Arc::new(json);
        let file = match options.engine {
            EngineChoice::Reference => Err("no fast engine was requested".to_owned()),
            EngineChoice::Auto | EngineChoice::Fast => BpeFile::parse(&json),
        };
        if let Ok(file) = &file
            && let Some(tokenizer) = Self::load_partial(&json, file, &options, config)
        {
            return Ok(tokenizer);
        }
        Self::load_complete(&json, file, options, config)
    }

    /// Loads the tokenizer in `file` without the complete reference. Returns `None` if that is not possible, or on an
    /// error, which [`load_complete`](Self::load_complete) then reports.
    fn load_partial(
        json: &Arc<Vec<u8>>,
        file: &BpeFile<'_>,
        options: &TokenizerOptions,
        config: &ConfigTokens,
    ) -> Option<Self> {
        // First, so that no tables are built for a file that is not loaded this way.
        let excerpt = quick::excerpt(file)?;
        let parse_special = options.special_in_text == SpecialInText::Parse;
        let partial = || (Partial::load(file, &excerpt, parse_special), sha256(json));
        let ((partial, sha256), tables) = join(partial, || BpeTables::new(file));
        let (Partial { loaded, vocab_size, hidden }, tables) = (partial?, tables.ok()?);
        if options.add_special_tokens && !hidden.is_empty() {
            // The post-processor needs the control tokens, but the excerpt has already hidden them.
            return None;
        }
        let max_id = max_id(&tables, &loaded.tokenizer);
        let added = loaded.tokenizer.get_added_vocabulary().get_vocab();
        let id_of = |token: &str| added.get(token).copied().or_else(|| file.model.vocab.get(token));
        let surrounding = SurroundingTokens::new(&loaded, options, config, id_of).ok()?;
        let finder = SpecialTokenFinder::new(&loaded).ok()?;
        let Loaded { tokenizer, outline } = loaded;
        let complete = quick::complete(Arc::clone(json), parse_special);
        let reference =
            Arc::new(Reference::partial(tokenizer, parse_special, options.max_reference_bytes(), complete));
        let parts = LoadedParts {
            options: options.clone(),
            model: "BPE",
            vocab_size,
            max_id,
            sha256,
            surrounding,
            finder,
            hidden,
            reference,
            outline,
            unigram_unk: None,
            tables: Ok(tables),
        };
        parts.tokenizer(json).ok().filter(|tokenizer| tokenizer.fast.is_some())
    }

    /// Loads a tokenizer with the complete reference. `file` is the parsed file, if it has a BPE model.
    pub(crate) fn load_complete(
        json: &Arc<Vec<u8>>,
        file: std::result::Result<BpeFile<'_>, String>,
        options: TokenizerOptions,
        config: &ConfigTokens,
    ) -> Result<Self> {
        let (loaded, tables) = join(|| load::load(json), || file.and_then(|file| BpeTables::new(&file)));
        let mut loaded = loaded?;
        let max_id = match &tables {
            Ok(tables) => max_id(tables, &loaded.tokenizer),
            Err(_) => loaded.tokenizer.get_vocab(true).into_values().max().unwrap_or(0),
        };
        let vocab_size = loaded.tokenizer.get_vocab_size(true) as u64;
        let finder = SpecialTokenFinder::new(&loaded)?;
        let surrounding =
            SurroundingTokens::new(&loaded, &options, config, |token| loaded.tokenizer.token_to_id(token))?;

        let model = loaded.model_type();
        let parse_special = options.special_in_text == SpecialInText::Parse;
        let hidden =
            if parse_special { IdSet::default() } else { special::hide_controls(&mut loaded, json)? };
        let unigram_unk = loaded.unigram_unk_id();
        let Loaded { tokenizer, outline } = loaded;
        let reference = Arc::new(Reference::new(tokenizer, parse_special, options.max_reference_bytes()));
        let parts = LoadedParts {
            options,
            model,
            vocab_size,
            max_id,
            sha256: sha256(json),
            surrounding,
            finder,
            hidden,
            reference,
            outline,
            unigram_unk,
            tables,
        };
        parts.tokenizer(json)
    }
}

/// A loaded tokenizer whose engine is not yet chosen.
struct LoadedParts {
    options: TokenizerOptions,
    model: &'static str,
    vocab_size: u64,
    /// The largest id, including added tokens.
    max_id: u32,
    sha256: String,
    surrounding: SurroundingTokens,
    finder: SpecialTokenFinder,
    hidden: IdSet,
    reference: Arc<Reference>,
    outline: Outline,
    unigram_unk: Option<usize>,
    tables: std::result::Result<BpeTables, String>,
}

impl LoadedParts {
    /// Chooses the engine.
    fn tokenizer(self, json: &Arc<Vec<u8>>) -> Result<Tokenizer> {
        let Self { mut options, surrounding, hidden, reference, outline, unigram_unk, tables, .. } = self;
        let parse_special = options.special_in_text == SpecialInText::Parse;
        let parts = EngineParts { reference: &reference, outline: &outline, parse_special, unigram_unk };
        let tables = tables.map(|tables| tables.without(&hidden));
        let engine = match options.engine {
            EngineChoice::Reference => Err(None),
            EngineChoice::Auto | EngineChoice::Fast => fast_engine(&parts, tables).map_err(Some),
        };
        let (fast, engine_note) = match (engine, options.engine) {
            (Ok(engine), _) => (Some(engine), None),
            (Err(Some(why)), EngineChoice::Fast) => return Err(LoadError::NoFastEngine(why)),
            (Err(why), _) => (None, why),
        };
        let SurroundingTokens { prefix, suffix, ends } = surrounding;
        let SequenceEnds { bos, eos, warnings } = ends.store_in(&mut options);
        let info = TokenizerInfo {
            model: self.model.to_owned(),
            vocab_size: self.vocab_size,
            max_id: prefix.iter().chain(&suffix).copied().fold(self.max_id, u32::max),
            sha256: Some(self.sha256),
            reference: reference.info(),
            engine: fast.as_ref().map_or_else(|| reference.info(), |engine| engine.info()),
            engine_note,
            bos,
            eos,
        };
        Ok(Tokenizer {
            options,
            warnings,
            json: Some(Arc::clone(json)),
            info,
            prefix,
            suffix,
            finder: self.finder,
            hidden,
            reference: ReferenceEngine::Reference(reference),
            fast,
            matcher: OnceLock::new(),
            serial: next_serial(),
        })
    }
}

/// The ids that are added before and after a text, and the BOS and EOS tokens.
struct SurroundingTokens {
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    ends: DeterminedEnds,
}

impl SurroundingTokens {
    /// `id_of` looks up a string in the whole vocabulary.
    fn new(
        loaded: &Loaded,
        options: &TokenizerOptions,
        config: &ConfigTokens,
        id_of: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self> {
        let special = special::special_tokens(loaded.tokenizer.get_added_vocabulary());
        let in_file = |end| bos_eos::find(end, &loaded.outline.post_processor, &special, &id_of);
        let ends = DeterminedEnds::new(options, config, &special, &id_of, in_file)?;
        let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
        if options.add_special_tokens {
            if options.add_bos || options.add_eos {
                return Err(LoadError::ConflictingOptions);
            }
            (prefix, suffix) = post_processed(&loaded.tokenizer)?;
        }
        prefix.extend(ends.added(SequenceEnd::Bos, options, &special)?);
        suffix.extend(ends.added(SequenceEnd::Eos, options, &special)?);
        Ok(Self { prefix, suffix, ends })
    }
}

/// Runs both closures, in parallel if there is more than one CPU and a thread can be started.
fn join<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    let is_single = available_parallelism().is_ok_and(|count| count.get() == 1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "tables".to_owned());
    let Some(pool) = (!is_single).then(|| pool.build().ok()).flatten() else {
        return (one(), other());
    };
    let mut result = None;
    let one = pool.in_place_scope(|scope| {
        scope.spawn(|_| result = Some(caught(other)));
        one()
    });
    match result {
        Some(Ok(result)) => (one, result),
        Some(Err(panic)) => resume_unwind(Box::new(panic)),
        None => resume_unwind(Box::new("a spawned task did not run")),
    }
}

/// Returns the largest id of the tokenizer whose BPE tables are `tables`.
fn max_id(tables: &BpeTables, tokenizer: &tokenizers::Tokenizer) -> u32 {
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder().keys();
    added.copied().fold(tables.max_id, u32::max)
}

/// Builds a fast engine that passes the proof. The error states why there is none.
fn fast_engine(
    parts: &EngineParts<'_>,
    tables: std::result::Result<BpeTables, String>,
) -> std::result::Result<Box<dyn Engine>, String> {
    let engine = engine::fast::build(parts, tables)?;
    engine::proof::check(&*engine, parts.reference, &mut Scratch::new(0)).map(|()| engine)
}

/// Determines the ids that the post-processor adds before and after a sequence, by encoding a short text.
fn post_processed(tokenizer: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    // Uses the first text that has ids in only one place: it may consist of the tokens that are added.
    for probe in PROBES {
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
        if let (Some(at), None) = (places.next(), places.next()) {
            return Ok((whole[..at].to_vec(), whole[at + plain.len()..].to_vec()));
        }
    }
    Err(LoadError::UnclearPostProcessor)
}
