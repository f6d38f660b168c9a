//! The group of a document, which decides its split: the value of the field of `split_by`, or the prompt of preference data.

use crate::error::{Error, Result};
use crate::recipe::TextRecipe;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};

/// Refuses a field whose values are no names of groups. `fields` are those that are read.
pub(super) fn check(recipe: &TextRecipe, fields: &[Field]) -> Result<()> {
    let is_name = |ty: FieldType| {
        use FieldType::{Bool, Int32, Int64, Json, String, UInt32, UInt64};
        matches!(ty, String | Json | Bool | Int32 | Int64 | UInt32 | UInt64)
    };
    match fields.iter().find(|field| Some(&field.name) == recipe.split_by.as_ref()) {
        Some(field) if !is_name(field.ty) => {
            let what = format!("the column {:?} has type {}", field.name, field.ty.name());
            Err(Error::usage(what).of_option("split_by").help("name one of texts or integers"))
        }
        _ => Ok(()),
    }
}

/// Takes the group of a document from the values of its fields, or else `default`. `None` if its key decides.
///
/// # Errors
///
/// A reject if the field is missing or null.
pub(super) fn take(
    recipe: &TextRecipe,
    fields: &[Field],
    values: &mut Vec<Value>,
    default: Option<String>,
) -> Result<Option<String>, Reject> {
    let Some(name) = &recipe.split_by else {
        return Ok(default);
    };
    let at = fields.iter().position(|field| field.name == *name);
    let group = match at.and_then(|at| values.get(at)) {
        Some(Value::Text(text)) => Some(text.as_str().to_owned()),
        Some(Value::Bool(value)) => Some(value.to_string()),
        Some(Value::Int(number)) => Some(number.to_string()),
        Some(Value::UInt(number)) => Some(number.to_string()),
        _ => None,
    };
    if recipe.reads_group() {
        values.truncate(recipe.keep_fields.len());
    }
    match group {
        Some(group) => Ok(Some(group)),
        None => {
            let message = format!("the field {name:?} is missing or null; `split_by` names the field");
            Err(Reject::new(RejectCode::MissingField, message))
        }
    }
}
