//! Schemas of preference data: a prompt with two completions, or with one that has a label.
//!
//! They are text datasets whose records have several lists of ids in place of `input_ids`.

use super::{
    ArrayType, Field, FieldType, IdWidth, KEY, Kind, LABEL, LENGTH, LengthUnit, ORIGIN, RecordLayout, Schema,
};
use crate::error::Result;
use crate::sample::Value;

/// Name of the field with the ids that the completions of a record follow.
pub const PROMPT_IDS: &str = "prompt_ids";
/// Name of the field with the ids of the preferred completion.
pub const CHOSEN_IDS: &str = "chosen_ids";
/// Name of the field with the ids of the other completion.
pub const REJECTED_IDS: &str = "rejected_ids";
/// Name of the field with the ids of the only completion.
pub const COMPLETION_IDS: &str = "completion_ids";
/// Names of the fields that mark the tokens of completions to train on; null if these are all tokens.
pub const CHOSEN_MASKS: &str = "chosen_masks";
/// See [`CHOSEN_MASKS`].
pub const REJECTED_MASKS: &str = "rejected_masks";
/// See [`CHOSEN_MASKS`].
pub const COMPLETION_MASKS: &str = "completion_masks";
/// Name of the field with the number of tokens of the longer side of a pair: the prompt and a completion.
pub const LONGEST: &str = "longest";

/// The completions of a record: the names of their ids and masks.
const PAIRED: &[(&str, &str)] = &[(CHOSEN_IDS, CHOSEN_MASKS), (REJECTED_IDS, REJECTED_MASKS)];
const UNPAIRED: &[(&str, &str)] = &[(COMPLETION_IDS, COMPLETION_MASKS)];

/// What follows from such a schema.
pub(super) const LAYOUT: RecordLayout = RecordLayout {
    items: "pairs",
    built_in: &[KEY, PROMPT_IDS, LENGTH, ORIGIN],
    payload: Some(PROMPT_IDS),
    length_unit: LengthUnit::Tokens,
    length_fields: &[LENGTH],
    index_columns: &[],
};

/// Returns the type of the masks of completions.
fn masks_type() -> Result<FieldType> {
    Ok(FieldType::Array("array<int8>[?]".parse::<ArrayType>()?))
}

impl Schema {
    /// Creates the schema of preference pairs with ids of `width`.
    pub fn pairs(width: IdWidth, extra: Vec<Field>) -> Result<Self> {
        let longest = Field::required(LONGEST, FieldType::UInt32);
        Self::preference(width, PAIRED, std::iter::once(longest).chain(extra).collect())?
            .with_indexed(&[LONGEST])
    }

    /// Creates the schema of completions with a label, with ids of `width`.
    pub fn unpaired(width: IdWidth, extra: Vec<Field>) -> Result<Self> {
        let label = Field::required(LABEL, FieldType::Bool);
        Self::preference(width, UNPAIRED, std::iter::once(label).chain(extra).collect())
    }

    fn preference(width: IdWidth, sides: &[(&str, &str)], extra: Vec<Field>) -> Result<Self> {
        let mut fields = vec![
            Field::required(super::KEY, FieldType::String),
            Field::required(PROMPT_IDS, FieldType::ids(width)),
            Field::required(LENGTH, FieldType::UInt32),
            Field::required(ORIGIN, FieldType::String),
        ];
        fields.extend(sides.iter().map(|(ids, _)| Field::required(ids, FieldType::ids(width))));
        for (_, masks) in sides {
            fields.push(Field::nullable(masks, masks_type()?));
        }
        fields.extend(extra);
        Self { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() }.checked()
    }

    /// Returns whether records are prompts with completions, which are neither cut nor packed.
    pub fn holds_completions(&self) -> bool {
        let is_ids = |field: &Field| {
            [PROMPT_IDS, CHOSEN_IDS, REJECTED_IDS, COMPLETION_IDS].contains(&field.name.as_str())
                && field.ty.id_width().is_some()
        };
        self.kind == Kind::Text && self.index_of(super::INPUT_IDS).is_none() && self.fields.iter().any(is_ids)
    }

    /// Returns the completions that records have: the names of their ids and of their masks.
    pub fn completions(&self) -> &'static [(&'static str, &'static str)] {
        match self.holds_completions() {
            false => &[],
            true if self.index_of(COMPLETION_IDS).is_some() => UNPAIRED,
            true => PAIRED,
        }
    }
}

/// Returns the length of a record according to its lists of ids: the sum of its sides, each of which is the prompt with a
/// completion. The error is a clause for a message.
pub(crate) fn length_of<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>]) -> Result<u64, String> {
    let ids = |name: &str| match schema.index_of(name).and_then(|at| values.get(at)) {
        Some(Value::Ids(ids)) => Ok(ids.len() as u64),
        _ => Err(format!("the record has no {name}")),
    };
    let number = |name: &str| match schema.index_of(name).and_then(|at| values.get(at)) {
        Some(Value::UInt(number)) => Ok(*number),
        _ => Err(format!("the record has no {name}")),
    };
    let (prompt, mut sum, mut longest) = (ids(PROMPT_IDS)?, 0, 0);
    for (name, masks) in schema.completions() {
        let completion = ids(name)?;
        if let Some(Value::Array(marks)) = schema.index_of(masks).and_then(|at| values.get(at))
            && marks.as_bytes().as_ref().len() as u64 != completion
        {
            return Err(format!(
                "the record has {completion} ids in {name:?}, but other values in {masks:?}"
            ));
        }
        sum += prompt + completion;
        longest = longest.max(prompt + completion);
    }
    let length = number(LENGTH)?;
    if length != sum {
        return Err(format!("the sides of the record have {sum} ids, but its length field is {length}"));
    }
    if schema.index_of(LONGEST).is_some() && number(LONGEST)? != longest {
        return Err(format!("the longer side of the record has {longest} ids, but {LONGEST:?} is another"));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{ArrayValue, Ids};
    use crate::schema::{INPUT_IDS, MAX_INDEX_COLUMNS};

    fn ids(count: usize) -> Value {
        Value::Ids(Ids::pack(IdWidth::U16, &vec![7; count]).unwrap())
    }

    fn pair(length: u64, longest: u64, masks: Value) -> Vec<Value> {
        vec![
            Value::Text("k".into()),
            ids(3),
            Value::UInt(length),
            Value::Text("o".into()),
            ids(2),
            ids(5),
            masks,
            Value::Null,
            Value::UInt(longest),
        ]
    }

    #[test]
    fn the_length_of_a_pair_is_that_of_both_sides() {
        let schema = Schema::pairs(IdWidth::U16, vec![]).unwrap();
        assert!(schema.holds_completions() && !schema.holds_token_ids() && !schema.holds_images());
        assert!(schema.index_columns().eq([LONGEST]) && schema.index_columns().count() <= MAX_INDEX_COLUMNS);
        assert_eq!(serde_json::from_str::<Schema>(&serde_json::to_string(&schema).unwrap()).unwrap(), schema);
        let length = |values: &[Value]| length_of(&schema, values);
        assert_eq!(length(&pair(13, 8, Value::Null)), Ok(13));
        let marks = |count: u32| Value::Array(ArrayValue::new([count], vec![1; count as usize].into()));
        assert_eq!(length(&pair(13, 8, marks(2))), Ok(13));
        for wrong in [pair(12, 8, Value::Null), pair(13, 7, Value::Null), pair(13, 8, marks(3))] {
            assert!(length(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn other_schemas_have_no_completions() {
        let unpaired = Schema::unpaired(IdWidth::U32, vec![]).unwrap();
        assert_eq!(unpaired.completions(), UNPAIRED);
        let kept = vec![Field::nullable(PROMPT_IDS, FieldType::Json)];
        let text = Schema::text(IdWidth::U16, kept).unwrap();
        assert!(text.index_of(INPUT_IDS).is_some() && !text.holds_completions() && text.holds_token_ids());
    }
}
