//! Token ids of documents: adapts the crate `dsconvert-tokens` to the types of this one.
//!
//! `dsconvert-tokens` loads a `tokenizer.json` and encodes texts; see `docs/reference/text.md` for the options. This
//! module maps its errors to [`Error`](crate::error::Error) and [`Reject`](crate::sample::Reject), and its ids to
//! stored [`Ids`](crate::sample::Ids).

mod errors;
mod ids;
mod normalize;

pub use dsconvert_tokens::{
    BYTES, DEFAULT_MAX_REFERENCE_BYTES, EncodeStats, EngineChoice, EngineInfo, MarkedIds, Scratch,
    SpecialInText, SpecialToken, Tokenizer, TokenizerInfo, TokenizerOptions, VERIFY_PER_MILLION, Verified,
    Verify,
};
pub(crate) use errors::rejected;
pub use errors::usage_error;
pub use ids::id_width;
pub(crate) use ids::{PackedIdSink, StoredIds};
pub use normalize::Normalize;
