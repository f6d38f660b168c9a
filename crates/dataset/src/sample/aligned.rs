//! Values of which each belongs to one token of a record, such as the marks of tokens to train on.
//!
//! Whatever cuts, divides or joins documents does so with [`Tokens`], so token ids and the values that belong to them can
//! only be cut together.

use std::ops::Range;

use bytes::Bytes;

use super::Ids;

/// Joins the bytes of `pieces`, which have `width` bytes per token.
fn join_bytes<'a>(
    pieces: impl Iterator<Item = (&'a Bytes, Range<usize>)> + Clone,
    width: usize,
) -> Option<Bytes> {
    let size = pieces.clone().map(|(_, tokens)| tokens.len()).sum::<usize>();
    let mut joined = Vec::with_capacity(size.checked_mul(width)?);
    for (bytes, tokens) in pieces {
        let range = tokens.start.checked_mul(width)?..tokens.end.checked_mul(width)?;
        joined.extend_from_slice(bytes.get(range)?);
    }
    Some(joined.into())
}

/// The encoded form of a document: its token ids and the values that belong to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Token ids.
    pub ids: Ids,
    /// One byte 0 or 1 per token: 1 if it is to be trained on. `None` in datasets without this field.
    pub masks: Option<Bytes>,
    /// A little-endian `float32` per token. `None` in datasets without this field.
    pub weights: Option<Bytes>,
}

/// Bytes of a weight.
const WEIGHT_BYTES: usize = size_of::<f32>();

impl Tokens {
    /// Creates the tokens of a document. `None` if `masks` has another number of tokens.
    pub fn new(ids: Ids, masks: Option<Bytes>) -> Option<Self> {
        let fits = masks.as_ref().is_none_or(|masks| masks.len() == ids.len());
        fits.then_some(Self { ids, masks, weights: None })
    }

    /// Adds the weights of the tokens. `None` if there is another number of them.
    pub fn with_weights(self, weights: Option<Bytes>) -> Option<Self> {
        let fits = weights.as_ref().is_none_or(|weights| weights.len() == WEIGHT_BYTES * self.len());
        fits.then_some(Self { weights, ..self })
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns whether a token is to be trained on; `None` if tokens are not marked.
    pub fn any_trained(&self) -> Option<bool> {
        self.masks.as_ref().map(|masks| masks.contains(&1))
    }

    /// Joins `pieces`, each a range of the tokens of a document, into new ones that share no memory with them. `None` if
    /// there is no piece, if a document has fewer tokens, or if ids have different widths or only some are marked.
    pub fn join(pieces: &[(&Self, Range<usize>)]) -> Option<Self> {
        let width = pieces.first()?.0.ids.width();
        pieces.iter().all(|(piece, _)| piece.ids.width() == width).then_some(())?;
        let ids = pieces.iter().map(|(piece, tokens)| (piece.ids.as_bytes(), tokens.clone()));
        let ids = Ids::new(width, join_bytes(ids, width.bytes())?)?;
        let masks = join_if_any(pieces, 1, |piece| piece.masks.as_ref())?;
        let weights = join_if_any(pieces, WEIGHT_BYTES, |piece| piece.weights.as_ref())?;
        Self::new(ids, masks)?.with_weights(weights)
    }

    /// Copies a range of the tokens, so that the others need not stay in memory; `None` if there are fewer tokens.
    pub fn copy_of(&self, tokens: Range<usize>) -> Option<Self> {
        Self::join(&[(self, tokens)])
    }
}

impl From<Ids> for Tokens {
    fn from(ids: Ids) -> Self {
        Self { ids, masks: None, weights: None }
    }
}

/// Joins the bytes of pieces that all have some, or none. The outer `None`: only some have them, or have fewer.
fn join_if_any(
    pieces: &[(&Tokens, Range<usize>)],
    width: usize,
    bytes: impl Fn(&Tokens) -> Option<&Bytes>,
) -> Option<Option<Bytes>> {
    let found = pieces.iter().filter_map(|(piece, tokens)| Some((bytes(piece)?, tokens.clone())));
    match found.clone().count() {
        0 => Some(None),
        some if some == pieces.len() => join_bytes(found, width).map(Some),
        _ => None,
    }
}

/// Returns the number of ones in `flags`.
pub fn trained(flags: &[u8]) -> usize {
    flags.iter().map(|&flag| usize::from(flag == 1)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::IdWidth;

    fn any_tokens() -> impl Strategy<Value = Tokens> {
        (prop::collection::vec((any::<u16>(), 0u8..2), 0..60), any::<bool>(), any::<bool>()).prop_map(
            |(tokens, wide, masked)| {
                let width = if wide { IdWidth::U32 } else { IdWidth::U16 };
                let ids: Vec<u32> = tokens.iter().map(|(id, _)| (*id).into()).collect();
                let masks = masked.then(|| tokens.iter().map(|(_, flag)| *flag).collect());
                let weights = wide.then(|| ids.iter().flat_map(|&id| (id as f32).to_le_bytes()).collect());
                Tokens::new(Ids::pack(width, &ids).unwrap(), masks).unwrap().with_weights(weights).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_whole_and_stay_aligned(
            whole in any_tokens(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
            ends.extend([0, whole.len()]);
            ends.sort_unstable();
            let ranges: Vec<_> = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let pieces: Vec<Tokens> = ranges.iter().map(|range| whole.copy_of(range.clone()).unwrap()).collect();
            for (piece, range) in pieces.iter().zip(&ranges) {
                prop_assert!(piece.ids.iter().eq(whole.ids.iter().skip(range.start).take(range.len())));
                prop_assert_eq!(piece.masks.as_deref(), whole.masks.as_ref().map(|masks| &masks[range.clone()]));
                let of_piece = whole.weights.as_ref().map(|weights| &weights[4 * range.start..4 * range.end]);
                prop_assert_eq!(piece.weights.as_deref(), of_piece);
            }
            let all: Vec<_> = pieces.iter().map(|piece| (piece, 0..piece.len())).collect();
            let joined = Tokens::join(&all).unwrap();
            prop_assert_eq!(&joined, &whole);
            let whole_pieces: Vec<_> = ranges.into_iter().map(|range| (&whole, range)).collect();
            let joined = Tokens::join(&whole_pieces).unwrap();
            prop_assert_eq!(&joined, &whole);
            prop_assert_eq!(whole.copy_of(0..whole.len() + 1), None);
        }
    }

    #[test]
    fn lists_of_different_kinds_are_not_joined() {
        let ids = |width| Ids::pack(width, &[1, 2]).unwrap();
        let plain = Tokens::from(ids(IdWidth::U16));
        let masked = Tokens::new(ids(IdWidth::U16), Some(Bytes::from_static(&[0, 1]))).unwrap();
        let wide = Tokens::from(ids(IdWidth::U32));
        assert_eq!(Tokens::join(&[(&plain, 0..2), (&masked, 0..2)]), None);
        assert_eq!(Tokens::join(&[(&plain, 0..2), (&wide, 0..2)]), None);
        assert_eq!(Tokens::join(&[]), None);
        assert_eq!(Tokens::new(ids(IdWidth::U16), Some(Bytes::from_static(&[1]))), None);
        assert_eq!((plain.any_trained(), masked.any_trained()), (None, Some(true)));
        assert_eq!(masked.copy_of(0..1).unwrap().any_trained(), Some(false));
    }
}
