//! Rows of token ids that exist already: their lists, and what the lists say about each other.

use std::ops::Range;

use crate::sample::{Reject, RejectCode};
use crate::source::table::number_lists::{Integers, ListItems, RowList};

/// Lengths of the documents of a row, as TRL writes them.
const SEQ_LENGTHS: &str = "seq_lengths";
/// Position of each token in its document.
const POSITION_IDS: &str = "position_ids";
/// 1 for each token that is not padding.
const ATTENTION_MASK: &str = "attention_mask";
/// Label of a token that is not trained on.
const IGNORED_LABEL: i64 = -100;

/// The fields of a row of token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdFields {
    /// In the order of the lists of [`Self::row`]: ids, labels, masks, weights, and what no option names.
    fields: Vec<IdField>,
    has_labels: bool,
    masks: usize,
    has_weights: bool,
    trim_padding: bool,
}

/// A field of a row of token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdField {
    /// Name.
    pub name: String,
    /// The option that names it, or the one without which it is not read.
    pub option: &'static str,
    /// Whether an option names it.
    pub is_named: bool,
    /// What its values are.
    pub items: ListItems,
}

impl IdFields {
    /// Creates the fields that options name: ids, masks, labels and weights. `trim_padding` removes padding.
    pub fn new(
        ids: &str,
        masks: &[String],
        labels: Option<&str>,
        weights: Option<&str>,
        trim_padding: bool,
    ) -> Self {
        let field =
            |name: &str, option, is_named, items| IdField { name: name.to_owned(), option, is_named, items };
        let mut fields = vec![field(ids, "ids_field", true, ListItems::Integers)];
        fields.extend(labels.map(|name| field(name, "labels_field", true, ListItems::Integers)));
        fields.extend(masks.iter().map(|name| field(name, "mask_field", true, ListItems::Flags)));
        fields.extend(weights.map(|name| field(name, "weights_field", true, ListItems::Numbers)));
        fields.push(field(SEQ_LENGTHS, "ids_field", false, ListItems::Integers));
        fields.push(field(POSITION_IDS, "ids_field", false, ListItems::Integers));
        fields.push(field(ATTENTION_MASK, "ids_field", false, ListItems::Flags));
        let (has_labels, has_weights) = (labels.is_some(), weights.is_some());
        Self { fields, has_labels, masks: masks.len(), has_weights, trim_padding }
    }

    /// Returns the fields, in the order of the lists of [`Self::row`].
    pub fn fields(&self) -> &[IdField] {
        &self.fields
    }

    /// Reads a row from its lists. `list` returns the values of a field, which has a position among the fields; `None` if the
    /// row lacks it, or if it is null.
    ///
    /// # Errors
    ///
    /// Returns a reject if a list is missing, does not have one value per token, or contradicts another one, and the errors
    /// of `list`.
    pub fn row<'a>(
        &self,
        mut list: impl FnMut(usize, &IdField) -> Result<Option<RowList<'a>>, Reject>,
    ) -> Result<TokenRow, Reject> {
        let mut lists = Vec::with_capacity(self.fields.len());
        for (at, field) in self.fields.iter().enumerate() {
            let found = list(at, field)?;
            if found.is_none() && field.is_named {
                let IdField { name, option, .. } = field;
                let message = format!("the field {name:?} is missing or null; `{option}` names the field");
                return Err(Reject::new(RejectCode::MissingField, message));
            }
            lists.push(found);
        }
        let count = lists.first().and_then(Option::as_ref).map_or(0, RowList::len);
        for (IdField { name, .. }, list) in self.fields.iter().zip(&lists) {
            let values = list.as_ref().map_or(count, RowList::len);
            if values != count && name != SEQ_LENGTHS {
                let what = format!("the field {name:?} has {values} values");
                return Err(invalid(format!("{what}, but there are {count} ids")));
            }
        }
        let mut lists = self.fields.iter().zip(lists).map(|(field, list)| Some((&*field.name, list?)));
        let mut next = || lists.next().flatten();
        let integers = |found: Option<(&'_ str, RowList<'a>)>| found.and_then(|(_, list)| list.integers());
        let ids = integers(next()).unwrap_or(Integers::U32(&[]));
        let labels = self.has_labels.then(&mut next).flatten();
        let masks: Vec<_> = (0..self.masks).filter_map(|_| next()).collect();
        let weights = self.has_weights.then(&mut next).flatten();
        let (lengths, positions, attention) = (integers(next()), integers(next()), integers(next()));
        let tokens = match &attention {
            Some(attention) => self.without_padding(&attention.wide(0..count))?,
            None => 0..count,
        };
        let ids = ids.ids(tokens.clone())?;
        let row = TokenRow {
            masks: trained(&ids, labels, masks, &tokens)?,
            weights: weights.map(|(name, list)| weights_of(name, list, &tokens)).transpose()?,
            ends: ends(
                ids.len(),
                lengths.map(|lengths| lengths.wide(0..lengths.len())).as_deref(),
                positions.map(|positions| positions.wide(tokens)).as_deref(),
            )?,
            ids,
        };
        if row.ids.is_empty() {
            return Err(Reject::new(RejectCode::Empty, "the row has no ids"));
        }
        Ok(row)
    }

    /// Returns the range of the tokens that are not padding.
    fn without_padding(&self, attention: &[i64]) -> Result<Range<usize>, Reject> {
        if let Some(other) = attention.iter().find(|&&value| value != 0 && value != 1) {
            return Err(invalid(format!("{ATTENTION_MASK} has the value {other}; expected 0 or 1")));
        }
        let Some(start) = attention.iter().position(|&value| value == 1) else {
            let padding = if attention.is_empty() { "no ids" } else { "only padding" };
            return Err(Reject::new(RejectCode::Empty, format!("the row has {padding}")));
        };
        let end = attention.iter().rposition(|&value| value == 1).map_or(0, |last| last + 1);
        if let Some(hole) = attention[start..end].iter().position(|&value| value == 0) {
            let message =
                format!("{ATTENTION_MASK} is 0 at token {}, between tokens where it is 1", start + hole);
            return Err(invalid(message));
        }
        let padding = attention.len() - (end - start);
        if padding > 0 && !self.trim_padding {
            let message =
                format!("{ATTENTION_MASK} marks {padding} tokens as padding; `trim_padding` removes them");
            return Err(invalid(message));
        }
        Ok(start..end)
    }
}

/// A row of token ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenRow {
    /// The ids.
    pub ids: Vec<u32>,
    /// 1 for each token to train on, if there are masks or labels.
    pub masks: Option<Vec<u8>>,
    /// The weight of each token, if there is a field of them.
    pub weights: Option<Vec<f32>>,
    /// End of each document of the row.
    pub ends: Vec<u32>,
}

/// Number of ids whose bytes are collected at a time.
const CHUNK_IDS: usize = 1024;

impl TokenRow {
    /// Returns the size of its lists in bytes.
    pub fn bytes(&self) -> usize {
        let weights = 4 * self.weights.as_ref().map_or(0, Vec::len);
        4 * self.ids.len() + self.masks.as_ref().map_or(0, Vec::len) + weights
    }

    /// Passes all of it on as bytes, which determine the row.
    pub fn for_each_bytes(&self, mut each: impl FnMut(&[u8])) {
        let mut buffer = [0; 4 * CHUNK_IDS];
        for numbers in [&self.ids, &self.ends] {
            each(&(numbers.len() as u64).to_le_bytes());
            for chunk in numbers.chunks(CHUNK_IDS) {
                let (bytes, _) = buffer.as_chunks_mut::<4>();
                bytes.iter_mut().zip(chunk).for_each(|(bytes, number)| *bytes = number.to_le_bytes());
                each(&buffer[..4 * chunk.len()]);
            }
        }
        each(self.masks.as_deref().unwrap_or_default());
        self.weights.iter().flatten().for_each(|weight| each(&weight.to_le_bytes()));
    }
}

fn invalid(message: String) -> Reject {
    Reject::new(RejectCode::InvalidValue, message)
}

/// A field and its values.
type NamedList<'a, 'b> = (&'a str, RowList<'b>);

/// Returns the mask of the tokens to train on. `tokens` is the range of `ids` in the lists.
fn trained(
    ids: &[u32],
    labels: Option<NamedList<'_, '_>>,
    masks: Vec<NamedList<'_, '_>>,
    tokens: &Range<usize>,
) -> Result<Option<Vec<u8>>, Reject> {
    let mut trained: Option<Vec<u8>> = None;
    for (name, mask) in masks {
        let Some(mask) = mask.integers() else { continue };
        let flags = mask.flags(tokens.clone()).map_err(|(at, value)| {
            invalid(format!("the field {name:?} is {value} at token {at}; expected 0 or 1"))
        })?;
        trained = Some(match trained {
            None => flags,
            Some(mut all) => {
                all.iter_mut().zip(flags).for_each(|(all, one)| *all &= one);
                all
            }
        });
    }
    if let Some((name, labels)) = labels
        && let Some(labels) = labels.integers()
    {
        let labels = labels.wide(tokens.clone());
        let is_label = |(label, id): (&i64, &u32)| *label == IGNORED_LABEL || *label == i64::from(*id);
        if let Some(at) = labels.iter().zip(ids).position(|both| !is_label(both)) {
            return Err(label_mismatch(name, at, &labels, ids));
        }
        let of_labels = labels.iter().map(|&label| u8::from(label != IGNORED_LABEL));
        match &trained {
            None => trained = Some(of_labels.collect()),
            Some(of_masks) => {
                if let Some(at) = of_labels.zip(of_masks).position(|(label, &mask)| label != mask) {
                    let message = format!("the field {name:?} and the masks disagree about token {at}");
                    return Err(invalid(message));
                }
            }
        }
    }
    Ok(trained)
}

/// Returns the weights of the tokens, which are finite. They may be negative, as advantages are.
fn weights_of(name: &str, list: RowList<'_>, tokens: &Range<usize>) -> Result<Vec<f32>, Reject> {
    let mut weights = list.numbers().unwrap_or_default();
    if let Some((at, weight)) = weights.iter().enumerate().find(|(_, weight)| !weight.is_finite()) {
        return Err(invalid(format!(
            "the field {name:?} is {weight} at token {at}; expected a finite number"
        )));
    }
    weights.truncate(tokens.end);
    weights.drain(..tokens.start.min(weights.len()));
    Ok(weights)
}

/// Returns the reject for labels of which the one `at` is neither ignored nor its id.
fn label_mismatch(name: &str, at: usize, labels: &[i64], ids: &[u32]) -> Reject {
    let are = |mut others: Box<dyn Iterator<Item = (&i64, &u32)> + '_>| {
        others.all(|(label, id)| *label == IGNORED_LABEL || *label == i64::from(*id))
    };
    let shift = if are(Box::new(labels.iter().zip(ids.iter().skip(1)))) {
        ": each label is the id of the next token"
    } else if are(Box::new(labels.iter().skip(1).zip(ids))) {
        ": each label is the id of the token before"
    } else {
        ""
    };
    let (label, id) = (labels[at], ids[at]);
    let message =
        format!("the field {name:?} is {label} at token {at}, which is neither -100 nor its id {id}{shift}");
    Reject::new(RejectCode::LabelMismatch, message)
}

/// Returns the ends of the documents of a row of `count` tokens.
fn ends(count: usize, lengths: Option<&[i64]>, positions: Option<&[i64]>) -> Result<Vec<u32>, Reject> {
    let too_many = || Reject::new(RejectCode::TooLarge, "the row has more than 2^32 - 1 tokens");
    u32::try_from(count).map_err(|_| too_many())?;
    let of_positions = positions.map(ends_of_positions).transpose()?;
    let Some(lengths) = lengths else {
        return Ok(of_positions.unwrap_or_else(|| vec![count as u32]));
    };
    let mut ends = Vec::with_capacity(lengths.len());
    let mut end = 0i64;
    for &length in lengths {
        if length < 1 {
            return Err(invalid(format!("{SEQ_LENGTHS} has the length {length}")));
        }
        end = end.saturating_add(length);
        ends.push(u32::try_from(end).unwrap_or(u32::MAX));
    }
    if end != count as i64 {
        let message = format!("{SEQ_LENGTHS} has {end} tokens together, but there are {count} ids");
        return Err(invalid(message));
    }
    if of_positions.is_some_and(|of_positions| of_positions != ends) {
        return Err(invalid(format!("{SEQ_LENGTHS} and {POSITION_IDS} disagree about the documents")));
    }
    Ok(ends)
}

/// Returns the ends of the documents at whose starts the positions are 0.
fn ends_of_positions(positions: &[i64]) -> Result<Vec<u32>, Reject> {
    let mut ends = Vec::new();
    let mut expected = 0;
    for (at, &position) in positions.iter().enumerate() {
        if position == 0 && at > 0 {
            ends.push(at as u32);
        } else if position != expected {
            let message = format!(
                "{POSITION_IDS} is {position} at token {at}; expected {expected}, or 0 for the next document"
            );
            return Err(invalid(message));
        }
        expected = position + 1;
    }
    ends.push(positions.len() as u32);
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(masks: &[&str], labels: bool) -> IdFields {
        let masks: Vec<String> = masks.iter().map(|name| (*name).to_owned()).collect();
        IdFields::new("ids", &masks, labels.then_some("labels"), None, false)
    }

    fn row(fields: &IdFields, lists: &[(&str, &[i64])]) -> Result<TokenRow, (RejectCode, String)> {
        let list = |name: &str| lists.iter().find(|(of, _)| *of == name).map(|(_, list)| *list);
        let integers = |field: &IdField| Some(RowList::Integers(Integers::I64(list(&field.name)?.into())));
        fields.row(|_, field| Ok(integers(field))).map_err(|reject| (reject.code, reject.message))
    }

    #[test]
    fn masks_and_labels_say_what_is_trained() {
        let both = fields(&["a", "b"], true);
        let lists: [(&str, &[i64]); 4] = [
            ("ids", &[5, 6, 7, 8]),
            ("a", &[0, 1, 1, 1]),
            ("b", &[1, 1, 0, 1]),
            ("labels", &[-100, 6, -100, 8]),
        ];
        let found = row(&both, &lists).unwrap();
        assert_eq!((found.ids, found.masks, found.ends), (vec![5, 6, 7, 8], Some(vec![0, 1, 0, 1]), vec![4]));
        let mut other = lists;
        other[3].1 = &[5, 6, -100, 8];
        assert!(row(&both, &other).unwrap_err().1.ends_with("the masks disagree about token 0"));
        for (labels, shift) in [
            ([6, 7, 8, -100], ": each label is the id of the next token"),
            ([-100, 5, 6, 7], ": each label is the id of the token before"),
            ([5, 9, 7, 8], "its id 6"),
        ] {
            let (code, message) = row(&fields(&[], true), &[lists[0], ("labels", &labels)]).unwrap_err();
            assert_eq!(code, RejectCode::LabelMismatch);
            assert!(message.ends_with(shift), "{message}");
        }
    }

    #[test]
    fn lists_that_contradict_the_ids_are_rejected() {
        let plain = fields(&[], false);
        let ids: (&str, &[i64]) = ("ids", &[5, 6, 7, 8]);
        for (lists, code, message) in [
            (vec![], RejectCode::MissingField, "is missing or null"),
            (vec![("ids", &[][..])], RejectCode::Empty, "no ids"),
            (vec![("ids", &[1, -2][..])], RejectCode::InvalidValue, "the id -2 of token 1 is negative"),
            (vec![("ids", &[1 << 32][..])], RejectCode::InvalidValue, "does not fit in 32 bits"),
            (vec![ids, ("seq_lengths", &[2, 1])], RejectCode::InvalidValue, "has 3 tokens together"),
            (vec![ids, ("seq_lengths", &[4, 0])], RejectCode::InvalidValue, "has the length 0"),
            (vec![ids, ("seq_lengths", &[i64::MAX, 1])], RejectCode::InvalidValue, "tokens together"),
            (vec![ids, ("position_ids", &[0, 1, 3, 4])], RejectCode::InvalidValue, "is 3 at token 2"),
            (vec![ids, ("position_ids", &[1, 2, 3, 4])], RejectCode::InvalidValue, "is 1 at token 0"),
            (vec![ids, ("position_ids", &[0, 1])], RejectCode::InvalidValue, "has 2 values"),
            (
                vec![ids, ("seq_lengths", &[2, 2]), ("position_ids", &[0, 0, 1, 2])],
                RejectCode::InvalidValue,
                "disagree about the documents",
            ),
            (
                vec![ids, ("attention_mask", &[0, 1, 1, 1])],
                RejectCode::InvalidValue,
                "marks 1 tokens as padding",
            ),
            (vec![ids, ("attention_mask", &[1, 0, 1, 1])], RejectCode::InvalidValue, "is 0 at token 1"),
            (vec![ids, ("attention_mask", &[1, 2, 3, 3])], RejectCode::InvalidValue, "expected 0 or 1"),
            (vec![ids, ("attention_mask", &[0, 0, 0, 0])], RejectCode::Empty, "only padding"),
        ] {
            let found = row(&plain, &lists).unwrap_err();
            assert!(found.0 == code && found.1.contains(message), "{lists:?}: {found:?}");
        }
        let masked = fields(&["m"], false);
        for mask in [&[1, -100, 1, 1][..], &[2, 0, 0, 0], &[1, 1, 1]] {
            assert_eq!(
                row(&masked, &[ids, ("m", mask)]).unwrap_err().0,
                RejectCode::InvalidValue,
                "{mask:?}"
            );
        }
    }

    #[test]
    fn lengths_and_positions_are_the_bounds_of_documents() {
        let ids: (&str, &[i64]) = ("ids", &[5, 6, 7, 8]);
        for more in [
            vec![("seq_lengths", &[1, 3][..])],
            vec![("position_ids", &[0, 0, 1, 2][..])],
            vec![("seq_lengths", &[1, 3][..]), ("position_ids", &[0, 0, 1, 2][..])],
        ] {
            let lists = [&[ids][..], &more].concat();
            assert_eq!(row(&fields(&[], false), &lists).unwrap().ends, [1, 4]);
        }
    }

    #[test]
    fn padding_is_trimmed_on_both_sides_of_all_lists() {
        let trimming = IdFields::new("ids", &["m".to_owned()], Some("labels"), None, true);
        let lists: [(&str, &[i64]); 5] = [
            ("ids", &[0, 5, 6, 0]),
            ("m", &[0, 1, 0, 0]),
            ("labels", &[-100, 5, -100, -100]),
            ("attention_mask", &[0, 1, 1, 0]),
            ("position_ids", &[1, 0, 1, 1]),
        ];
        let expected = TokenRow { ids: vec![5, 6], masks: Some(vec![1, 0]), ends: vec![2], weights: None };
        assert_eq!(row(&trimming, &lists).unwrap(), expected);
    }

    #[test]
    fn weights_are_finite_and_trimmed_with_the_ids() {
        let fields = IdFields::new("ids", &[], None, Some("w"), true);
        let weighted = |weights: &[f32]| {
            let integers = |list: &'static [i32]| Ok(Some(RowList::Integers(Integers::I32(list))));
            let row = fields.row(|_, field| match &*field.name {
                "ids" => integers(&[0, 5, 6, 0]),
                "attention_mask" => integers(&[0, 1, 1, 0]),
                "w" => Ok(Some(RowList::Numbers(weights.to_vec()))),
                _ => Ok(None),
            });
            row.map_err(|reject| (reject.code, reject.message))
        };
        assert_eq!(weighted(&[9.0, 0.5, -1.0, 9.0]).unwrap().weights, Some(vec![0.5, -1.0]));
        for (weights, message) in [
            (&[1.0, f32::NAN, 1.0, 1.0][..], "is NaN at token 1"),
            (&[1.0, f32::INFINITY, 1.0, 1.0], "is inf at token 1"),
            (&[1.0], "has 1 values"),
        ] {
            let (code, found) = weighted(weights).unwrap_err();
            assert!(code == RejectCode::InvalidValue && found.contains(message), "{found}");
        }
    }
}
