//! Protocol Buffers definitions of the parts of a SentencePiece model file that affect the ids.
//!
//! Field numbers and defaults are those of
//! [`sentencepiece_model.proto`](https://github.com/google/sentencepiece/blob/v0.2.0/src/sentencepiece_model.proto)
//! (Apache License 2.0). Fields that are used only for training are left out.

/// The whole model file.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<PieceProto>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<TrainerSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<NormalizerSpec>,
}

/// One entry of the vocabulary. Its id is its position.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PieceProto {
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    #[prost(enumeration = "PieceType", optional, tag = "3", default = "Normal")]
    pub(super) kind: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
pub(super) enum PieceType {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// The training options that affect encoding.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrainerSpec {
    #[prost(enumeration = "ModelType", optional, tag = "3", default = "Unigram")]
    pub(super) model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(super) treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(super) byte_fallback: Option<bool>,
    #[prost(string, optional, tag = "46")]
    pub(super) bos_piece: Option<String>,
    #[prost(string, optional, tag = "47")]
    pub(super) eos_piece: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
pub(super) enum ModelType {
    Unigram = 1,
    Bpe = 2,
    Word = 3,
    Char = 4,
}

/// The normalization applied to a text before it is divided into pieces.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NormalizerSpec {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    pub(super) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    pub(super) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub(super) escape_whitespaces: Option<bool>,
}
