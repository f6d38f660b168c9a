//! A tokenizer with a deliberately wrong engine, for tests. It exists only in builds with debug assertions.

use crate::engine::bytes::Bytes;
use crate::engine::{Engine, Outcome};
use crate::error::{EncodeError, LoadError};
use crate::info::EngineInfo;
use crate::options::TokenizerOptions;
use crate::scratch::Scratch;
use crate::tokenizer::Tokenizer;

impl Tokenizer {
    /// Creates [`Tokenizer::bytes`] with an engine that drops the last id of every text that contains `word`, to test
    /// how a program reacts when [`verify`](Self::verify) finds wrong ids.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`bytes`](Self::bytes).
    #[doc(hidden)]
    pub fn bytes_with_fault(word: &'static str, options: TokenizerOptions) -> Result<Self, LoadError> {
        let mut tokenizer = Self::bytes(options)?;
        tokenizer.fast = Some(Box::new(Faulty(word)));
        Ok(tokenizer)
    }
}

struct Faulty(&'static str);

impl Engine for Faulty {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "faulty".to_owned(), version: "0".to_owned() }
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        let outcome = Bytes.encode(text, scratch, out);
        if text.contains(self.0) {
            out.pop();
        }
        outcome
    }
}
