//! The options of token ids that exist already.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::options::{Defined, Definition, as_text, is_default, option_values, options};
use crate::source::items::text::token_row::IdFields;

options! {
    /// Every option of token ids that exist already that affects the dataset.
    pub struct IdsRecipe {
        "Token ids" {
            /// Field with token ids, which are stored as they are: a list of integers
            ///
            /// If a row has seq_lengths, or position_ids that restart, each of its documents becomes a record. Of a file of
            /// Megatron, whose ids have no name, any NAME reads the ids. --tokenizer, if it is given, is stored, and ids beyond
            /// its largest one are rejected.
            [serde(skip_serializing_if = "is_default")]
            ids_field: Option<String> = None, "NAME";

            /// Field with a mask, 1 for each token to train on
            ///
            /// Of several masks, a token is trained on where all are 1.
            [serde(skip_serializing_if = "is_default")]
            mask_field: Vec<String> = Vec::new(), "NAME", requires = Some("ids_field");

            /// Field with labels, not shifted: -100 where a token is not trained on
            ///
            /// Other labels are the ids of their tokens. If those of the first rows are not, the run does not start.
            [serde(skip_serializing_if = "is_default")]
            labels_field: Option<String> = None, "NAME", requires = Some("ids_field");

            /// Field with a weight for each token, a number with which its loss is multiplied
            ///
            /// Weights are stored as token_weights and cut and packed with the ids. In batches they move with the labels, and are 0
            /// where a token is not trained on. Shards must be arrow or parquet.
            [serde(skip_serializing_if = "is_default")]
            weights_field: Option<String> = None, "NAME", requires = Some("ids_field");

            /// Remove the padding that attention_mask marks
            ///
            /// Without it, rows with padding are rejected.
            [serde(skip_serializing_if = "is_default")]
            trim_padding: bool = false, "", requires = Some("ids_field");

            /// Last token of each document: keep, strip[:TOKEN] or require[:TOKEN]
            ///
            /// TOKEN is a token of the tokenizer or an id; without it, the EOS token of the tokenizer.
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            eod: Eod = Eod::default(), "POLICY", requires = Some("ids_field");

            /// Reject rows with ids that are not below N
            ///
            /// The default is the largest id of the tokenizer and one.
            [serde(skip_serializing_if = "is_default")]
            vocab_size: Option<u32> = None, "N", requires = Some("ids_field");

            /// Keep rows of several documents, instead of packing them again
            ///
            /// --pack states the number of tokens of a full row.
            [serde(skip_serializing_if = "is_default")]
            keep_packs: bool = false, "", requires = Some("ids_field");
        }
        groups {}
        values {
            /// There is no tokenizer.
            [serde(skip_serializing_if = "is_default")] without_tokenizer: bool = false;
        }
    }
}

option_values! { Text: Eod; }

/// Treatment of the token that ends each document. The token is named by its string or its id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Eod {
    /// Documents stay as they are.
    #[default]
    Keep,
    /// One such token is removed from the end of each document that has it.
    Strip(Option<String>),
    /// Rows with a document that does not end with it are rejected.
    Require(Option<String>),
}

impl FromStr for Eod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (policy, token) = match text.split_once(':') {
            Some((policy, token)) => (policy, Some(token.to_owned())),
            None => (text, None),
        };
        match (policy, token) {
            ("keep", None) => Ok(Self::Keep),
            ("strip", token) if token.as_deref() != Some("") => Ok(Self::Strip(token)),
            ("require", token) if token.as_deref() != Some("") => Ok(Self::Require(token)),
            _ => Err(Error::usage(format!("unknown treatment of the token that ends a document {text:?}"))
                .help("use keep, strip, strip:TOKEN, require or require:TOKEN")),
        }
    }
}

impl fmt::Display for Eod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, token) = match self {
            Self::Keep => return f.write_str("keep"),
            Self::Strip(token) => ("strip", token),
            Self::Require(token) => ("require", token),
        };
        f.write_str(policy)?;
        token.as_ref().map_or(Ok(()), |token| write!(f, ":{token}"))
    }
}

impl IdsRecipe {
    /// Returns whether items are token ids.
    pub fn is_given(&self) -> bool {
        self.ids_field.is_some()
    }

    /// Returns whether records have a mask of the tokens to train on.
    pub fn has_masks(&self) -> bool {
        !self.mask_field.is_empty() || self.labels_field.is_some()
    }

    /// Returns the fields of a row; `None` if items are texts.
    pub(super) fn fields(&self) -> Option<IdFields> {
        let (labels, weights) = (self.labels_field.as_deref(), self.weights_field.as_deref());
        Some(IdFields::new(self.ids_field.as_deref()?, &self.mask_field, labels, weights, self.trim_padding))
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_given() {
            let defaults = Self::default();
            let is_changed = |option: &Definition<Self>| option.get(self) != option.get(&defaults);
            if let Some(option) = Self::definitions().into_iter().find(is_changed) {
                return Err(Error::usage(format!("`{}` applies only to token ids", option.name)).help(
                    match option.name {
                        "eod" => "name their field with `ids_field`; `add_eos` ends texts with the EOS token",
                        _ => "name their field with `ids_field`",
                    },
                ));
            }
        }
        if self.vocab_size == Some(0) {
            return Err(Error::usage("`vocab_size 0`: there is at least one id"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn treatments_of_the_last_token_are_written_as_they_are_read() {
        for text in ["keep", "strip", "require", "strip:</s>", "require:2", "strip:a:b"] {
            assert_eq!(text.parse::<Eod>().unwrap().to_string(), text);
        }
        for wrong in ["", "drop", "keep:</s>", "strip:"] {
            assert!(wrong.parse::<Eod>().is_err(), "{wrong}");
        }
    }
}
