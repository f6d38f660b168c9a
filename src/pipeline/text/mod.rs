//! Text corpora: documents in text files, JSON Lines files and tables.
//!
//! ```text
//! sources ─▶ sections of files (plan) ─▶ tasks (feed) ─▶ documents (sources) ─▶ ids, records (convert)
//! ```

mod alpaca;
mod blocks;
mod canonical;
mod chat;
mod conversion;
mod convert;
mod dedup;
mod duplicates;
mod feed;
mod field_check;
mod ids;
mod ids_check;
mod job;
mod label_check;
mod multimodal;
mod options;
mod pack;
mod plan;
mod predict;
mod preference;
mod prompt;
mod roles;
mod sources;
mod split_group;
#[cfg(test)]
mod tests;
mod unread;

pub use self::conversion::{TextConversion, TextJob};
pub(crate) use self::convert::{UNREAD_FIELD, UNREAD_MESSAGE_KEY};
pub use self::ids_check::{IdsFinding, IdsReport, OddDocument, check_ids};
pub(crate) use self::multimodal::{FIT_SAMPLES, FIT_SQUARED_ERROR};
pub use self::options::{TextInput, TextOptions};
