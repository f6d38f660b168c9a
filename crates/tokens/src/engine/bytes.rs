//! The `bytes` engine: the ids are the bytes of the UTF-8 text.

use std::ops::Range;

use super::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::scratch::Scratch;

/// Id of the BOS token, if it is added.
pub(crate) const BOS_ID: u32 = 256;
/// Id of the EOS token, if it is added.
pub(crate) const EOS_ID: u32 = 257;

/// Engine that encodes bytes as ids.
pub(crate) struct Bytes;

impl Engine for Bytes {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "bytes".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    fn encode(&self, text: &str, _: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        out.extend(text.bytes().map(u32::from));
        Ok(Outcome::Done)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let at = (from < text.len()).then(|| text.floor_char_boundary(from)).filter(|at| *at > 0)?;
        Some(at..at)
    }
}
