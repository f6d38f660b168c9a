//! SentencePiece models: encoding with the ids of the package `sentencepiece`, and conversion to a `tokenizer.json`
//! that contains the model.
//!
//! ```text
//! text ─▶ normalizer (charsmap) ─▶ unigram or bpe ─▶ pieces ─▶ sink ─▶ ids
//! ```
//!
//! The reference, `tokenizers`, does not encode exactly like `sentencepiece`. It replaces characters grapheme by
//! grapheme, where `sentencepiece` uses the longest match. It adds the scores of a Unigram model in double precision
//! and word by word, and splits a text at user-defined symbols before normalization. Therefore this module implements
//! the rules of `sentencepiece` itself. The converted file stores the model in a member that other libraries ignore.

mod bpe;
mod json;
mod normalizer;
mod pieces;
mod proto;
#[cfg(test)]
mod tests;
mod unigram;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::Deserialize;

use self::bpe::{Bpe, BpeBuffers};
pub use self::json::sentencepiece_to_json;
use self::normalizer::SentencePieceNormalizer;
use self::pieces::{PieceSink, Pieces};
use self::proto::{ModelProto, ModelType, PieceType};
use self::unigram::{Paths, Unigram};
use crate::engine::{Engine, Outcome};
use crate::error::{EncodeError, LoadError, SequenceEnd};
use crate::info::{EngineInfo, SpecialToken};
use crate::options::DEFAULT_MAX_REFERENCE_BYTES;
use crate::scratch::Scratch;

/// Member of the decoder in a `tokenizer.json` that contains the model in Base64. The reference ignores unknown members
/// there, but not at the top level.
const MEMBER: &str = "sentencepiece_model";
/// Maximum number of pieces: ids are below 2³¹ in the package too.
const MAX_PIECES: usize = i32::MAX as usize;
/// Growth factor of normalization above which the size of the normalized text is limited.
const USUAL_GROWTH: u64 = 4;
/// Maximum size in bytes of a buffer that is kept between texts.
const KEEP_BUFFER: usize = 16 << 20;

type Result<T> = std::result::Result<T, LoadError>;

/// A loaded SentencePiece model.
pub(crate) struct SentencePiece {
    normalizer: SentencePieceNormalizer,
    pieces: Pieces,
    model: PieceModel,
    bos: Option<SpecialToken>,
    eos: Option<SpecialToken>,
    /// Maximum size of a word that is merged, and of a normalized text that is much longer than its original.
    pub(crate) max_bytes: u64,
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct SentencePieceBuffers {
    normalized: Vec<u8>,
    paths: Paths,
    bpe: BpeBuffers,
}

enum PieceModel {
    Unigram(Unigram),
    Bpe(Bpe),
}

/// Loads the SentencePiece model embedded in a `tokenizer.json`; `None` if there is none.
pub(crate) fn embedded(json: &[u8]) -> Result<Option<SentencePiece>> {
    #[derive(Deserialize)]
    struct EmbeddedFile {
        decoder: Holder,
    }
    #[derive(Deserialize)]
    struct Holder {
        sentencepiece_model: String,
    }
    if memchr::memmem::find(json, MEMBER.as_bytes()).is_none() {
        return Ok(None);
    }
    // Other errors in the file are reported by the regular loader.
    let Ok(EmbeddedFile { decoder }) = serde_json::from_slice(json) else { return Ok(None) };
    let model = STANDARD.decode(decoder.sentencepiece_model).map_err(|e| {
        LoadError::malformed("the SentencePiece model in the tokenizer.json is not Base64", e)
    })?;
    SentencePiece::new(&parse(&model)?).map(Some)
}

/// Parses a model file.
fn parse(model: &[u8]) -> Result<ModelProto> {
    let model = ModelProto::decode(model)
        .map_err(|e| LoadError::malformed("the file is not a SentencePiece model", e))?;
    if model.pieces.is_empty() || model.pieces.len() > MAX_PIECES {
        return Err(LoadError::UnusableModel(format!("it has {} pieces", model.pieces.len())));
    }
    Ok(model)
}

impl SentencePiece {
    fn new(model: &ModelProto) -> Result<Self> {
        Self::build(model).map_err(LoadError::UnusableModel)
    }

    fn build(proto: &ModelProto) -> std::result::Result<Self, String> {
        let trainer = proto.trainer.clone().unwrap_or_default();
        let pieces = Pieces::new(proto, trainer.byte_fallback())?;
        let ty = trainer.model_type.unwrap_or(ModelType::Unigram as i32);
        let model = match ModelType::try_from(ty).map_err(|e| format!("its type is unknown: {e}"))? {
            ModelType::Unigram => PieceModel::Unigram(Unigram::new(&pieces)?),
            ModelType::Bpe => PieceModel::Bpe(Bpe::new(&pieces)),
            ModelType::Word => return Err("its type is word; only unigram and bpe are supported".to_owned()),
            ModelType::Char => return Err("its type is char; only unigram and bpe are supported".to_owned()),
        };
        let symbols: Vec<&[u8]> = pieces
            .all
            .iter()
            .filter(|piece| piece.kind == PieceType::UserDefined)
            .map(|piece| piece.text.as_bytes())
            .collect();
        let normalizer = proto.normalizer.clone().unwrap_or_default();
        let normalizer = SentencePieceNormalizer::new(&normalizer, &trainer, &symbols)?;
        let control = |name: &str, default: &str| {
            let name = if name.is_empty() { default } else { name };
            let id = pieces.id(name.as_bytes());
            let is_control = pieces.get(id).is_some_and(|piece| piece.kind == PieceType::Control);
            is_control.then(|| SpecialToken { id, token: name.to_owned() })
        };
        let (bos, eos) = (control(trainer.bos_piece(), "<s>"), control(trainer.eos_piece(), "</s>"));
        Ok(Self { normalizer, pieces, model, bos, eos, max_bytes: DEFAULT_MAX_REFERENCE_BYTES })
    }

    /// Returns the name of the model type, as in a `tokenizer.json`.
    pub(crate) fn model_type(&self) -> &'static str {
        match self.model {
            PieceModel::Unigram(_) => "Unigram",
            PieceModel::Bpe(_) => "BPE",
        }
    }

    /// Returns the number of pieces; all ids are below it.
    pub(crate) fn vocab_size(&self) -> u32 {
        u32::try_from(self.pieces.all.len()).unwrap_or(u32::MAX)
    }

    /// Returns the control symbols and the unknown piece, in the order of their ids.
    pub(crate) fn special_tokens(&self) -> Vec<SpecialToken> {
        let special = |kind| matches!(kind, PieceType::Control | PieceType::Unknown);
        (0u32..)
            .zip(&self.pieces.all)
            .filter(|(_, piece)| special(piece.kind))
            .map(|(id, piece)| SpecialToken { id, token: piece.text.clone() })
            .collect()
    }

    /// Returns the model's control symbol for BOS or EOS.
    pub(crate) fn sequence_token(&self, end: SequenceEnd) -> Option<SpecialToken> {
        match end {
            SequenceEnd::Bos => self.bos.clone(),
            SequenceEnd::Eos => self.eos.clone(),
        }
    }

    /// Returns the id of a piece.
    pub(crate) fn id(&self, piece: &str) -> Option<u32> {
        let id = self.pieces.id(piece.as_bytes());
        self.pieces.get(id).is_some_and(|found| found.text == piece).then_some(id)
    }
}

impl Engine for SentencePiece {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("SentencePiece")
    }

    fn encode(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> std::result::Result<Outcome, EncodeError> {
        let SentencePieceBuffers { normalized, paths, bpe: bpe_buffers } = scratch.sentencepiece();
        let most = self.max_bytes.max(USUAL_GROWTH * text.len() as u64);
        self.normalizer.normalize(text, most, normalized);
        if normalized.len() as u64 > most {
            return Err(EncodeError::too_large(text, self.max_bytes));
        }
        let before = out.len();
        let mut sink = PieceSink::new(self.pieces.unknown, self.pieces.bytes.as_deref(), out);
        let encoded = match &self.model {
            PieceModel::Unigram(unigram) => {
                unigram.encode(normalized, paths, &mut sink);
                Ok(())
            }
            PieceModel::Bpe(bpe) => {
                bpe.encode(normalized, &self.pieces, &self.normalizer, self.max_bytes, bpe_buffers, &mut sink)
            }
        };
        if normalized.capacity() > KEEP_BUFFER {
            *normalized = Vec::new();
            *paths = Default::default();
        }
        if encoded.is_err() {
            out.truncate(before);
        }
        encoded.map(|()| Outcome::Done)
    }
}
