//! Token ids that exist already: what is checked of them, and the documents of a row.

use std::ops::Range;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::recipe::{Eod, IdsRecipe, TextRecipe};
use crate::sample::{Ids, Reject, RejectCode, Tokens};
use crate::schema::IdWidth;
use crate::source::items::text::token_row::TokenRow;
use crate::transform::text::Tokenizer;

/// What is required of token ids, and how they are stored.
pub(super) struct TokenIds {
    /// Ids are below this.
    limit: u64,
    limited_by: String,
    pub(super) width: IdWidth,
    eod: Option<LastToken>,
    /// Number of tokens of a full row, if rows stay as they are.
    pub(super) row_tokens: Option<u32>,
}

/// The token that ends each document.
struct LastToken {
    id: u32,
    name: String,
    is_required: bool,
}

impl TokenIds {
    /// Creates the requirements of a recipe; `None` if items are texts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if a token is not known.
    pub(super) fn new(recipe: &TextRecipe, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let ids = &recipe.ids;
        if !ids.is_given() {
            return Ok(None);
        }
        let (limit, limited_by) = match (ids.vocab_size, ids.without_tokenizer) {
            (Some(size), _) => (u64::from(size), format!("not below `vocab_size {size}`")),
            (None, true) => (1 << 32, String::new()),
            (None, false) => {
                let max_id = tokenizer.info().max_id;
                (u64::from(max_id) + 1, format!("beyond {max_id}, the largest id of the tokenizer"))
            }
        };
        let width = IdWidth::for_max_id(u32::try_from(limit - 1).unwrap_or(u32::MAX));
        let eod = last_token(ids, tokenizer)?;
        let row_tokens = recipe.pack.filter(|_| ids.keep_packs);
        Ok(Some(Self { limit, limited_by, width, eod, row_tokens }))
    }

    /// Checks the ids of a row, and that it has a token to train on.
    pub(super) fn check(&self, row: &TokenRow) -> Result<(), Reject> {
        let largest = row.ids.iter().copied().max().unwrap_or(0);
        if u64::from(largest) >= self.limit {
            let at = row.ids.iter().position(|&id| id == largest).unwrap_or(0);
            let message = format!("the id {largest} of token {at} is {}", self.limited_by);
            return Err(Reject::new(RejectCode::InvalidValue, message));
        }
        if row.masks.as_ref().is_some_and(|masks| !masks.contains(&1)) {
            return Err(Reject::new(RejectCode::NothingToTrain, "no token of the row is to be trained on"));
        }
        Ok(())
    }

    /// Checks a row and packs its ids.
    pub(super) fn tokens(&self, row: &TokenRow) -> Result<Tokens, Reject> {
        self.check(row)?;
        let masks = row.masks.clone().map(Bytes::from);
        let weights = row.weights.as_ref();
        let weights = weights.map(|all| all.iter().flat_map(|weight| weight.to_le_bytes()).collect());
        let tokens = Ids::pack(self.width, &row.ids)
            .and_then(|ids| Tokens::new(ids, masks))
            .and_then(|tokens| tokens.with_weights(weights));
        tokens.ok_or_else(|| Reject::new(RejectCode::Unsupported, "the ids do not fit in the records"))
    }

    /// Returns the documents of a row, as ranges of its tokens.
    pub(super) fn documents(&self, row: &TokenRow) -> Result<Vec<Range<usize>>, Reject> {
        let mut start = 0;
        let mut documents = Vec::with_capacity(row.ends.len());
        for &end in &row.ends {
            let mut range = start..end as usize;
            start = range.end;
            if let Some(LastToken { id, name, is_required }) = &self.eod {
                let has_it = row.ids.get(range.clone()).and_then(<[u32]>::last) == Some(id);
                match (is_required, has_it) {
                    (true, false) => {
                        let message =
                            format!("the document that ends at token {start} does not end with {name}");
                        return Err(Reject::new(RejectCode::InvalidValue, message));
                    }
                    (false, true) => range.end -= 1,
                    _ => {}
                }
            }
            if range.is_empty() {
                let message = format!("the document that ends at token {start} has no other ids");
                return Err(Reject::new(RejectCode::Empty, message));
            }
            documents.push(range);
        }
        Ok(documents)
    }
}

/// Finds the token that the recipe names.
fn last_token(ids: &IdsRecipe, tokenizer: &Tokenizer) -> Result<Option<LastToken>> {
    let (token, is_required) = match &ids.eod {
        Eod::Keep => return Ok(None),
        Eod::Strip(token) => (token, false),
        Eod::Require(token) => (token, true),
    };
    let info = tokenizer.info();
    let eos = info.eos.as_ref().filter(|_| !ids.without_tokenizer);
    let found = match token {
        None => eos.map(|eos| (eos.id, eos.token.clone())),
        Some(token) => {
            let by_name = (!ids.without_tokenizer).then(|| tokenizer.token_to_id(token)).flatten();
            by_name.or_else(|| token.parse().ok()).map(|id| (id, token.clone()))
        }
    };
    let Some((id, name)) = found else {
        let what = match token {
            Some(token) => format!("the tokenizer has no token {token:?}"),
            None => "there is no EOS token".to_owned(),
        };
        return Err(Error::usage(what).of_option("eod").help("name the token or its id, as in strip:50256"));
    };
    Ok(Some(LastToken { id, name: format!("{name:?} (id {id})"), is_required }))
}
