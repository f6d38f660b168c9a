//! The schema of prompts without ids: the text or the messages that a model is to answer, for reinforcement learning.

use super::{Field, FieldType, KEY, Kind, LENGTH, LengthUnit, ORIGIN, RecordLayout, Schema};
use crate::error::Result;

/// Name of the field with a prompt: a text or a list of messages, as JSON.
pub const PROMPT: &str = "prompt";

/// What follows from such a schema.
pub(super) const LAYOUT: RecordLayout = RecordLayout {
    items: "prompts",
    built_in: &[KEY, PROMPT, LENGTH, ORIGIN],
    payload: Some(PROMPT),
    length_unit: LengthUnit::Tokens,
    length_fields: &[LENGTH],
    index_columns: &[],
};

impl Schema {
    /// Creates the schema of prompts. Their length is the number of tokens that a model reads before it answers.
    pub fn prompts(extra: Vec<Field>) -> Result<Self> {
        let mut fields = vec![
            Field::required(KEY, FieldType::String),
            Field::required(PROMPT, FieldType::Json),
            Field::required(LENGTH, FieldType::UInt32),
            Field::required(ORIGIN, FieldType::String),
        ];
        fields.extend(extra);
        Self { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() }.checked()
    }

    /// Returns whether records are prompts without ids.
    pub fn holds_prompts(&self) -> bool {
        let is_prompt = |field: &Field| field.name == PROMPT && field.ty == FieldType::Json;
        self.kind == Kind::Text
            && self.index_of(super::INPUT_IDS).is_none()
            && !self.holds_completions()
            && self.fields.iter().any(is_prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Value, length_of};

    #[test]
    fn prompts_have_a_length_but_no_ids() {
        let schema = Schema::prompts(vec![Field::nullable("answer", FieldType::String)]).unwrap();
        assert!(schema.holds_prompts() && !schema.holds_token_ids() && !schema.holds_images());
        let values = [
            Value::Text("k".into()),
            Value::Text("[]".into()),
            Value::UInt(7),
            Value::Text("o".into()),
            Value::Null,
        ];
        assert_eq!(length_of(&schema, &values), Ok(7));
    }
}
