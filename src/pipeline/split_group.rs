//! Groups of records that are in one split: those with the same value of a field.

use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::FieldType;

/// Refuses a field whose values are no names of groups.
pub(super) fn check_type(name: &str, ty: FieldType) -> Result<()> {
    use FieldType::{Bool, Int32, Int64, Json, String, UInt32, UInt64};
    if matches!(ty, String | Json | Bool | Int32 | Int64 | UInt32 | UInt64) {
        return Ok(());
    }
    let what = format!("the column {name:?} has type {}", ty.name());
    Err(Error::usage(what).of_option("split_by").help("name one of texts or integers"))
}

/// Returns the group of a record, given the value of its field `name`.
///
/// # Errors
///
/// A reject if the field is missing or null.
pub(super) fn group_of(name: &str, value: Option<&Value>) -> Result<String, Reject> {
    match value {
        Some(Value::Text(text)) => Ok(text.as_str().to_owned()),
        Some(Value::Bool(value)) => Ok(value.to_string()),
        Some(Value::Int(number)) => Ok(number.to_string()),
        Some(Value::UInt(number)) => Ok(number.to_string()),
        _ => {
            let message = format!("the field {name:?} is missing or null; `split_by` names the field");
            Err(Reject::new(RejectCode::MissingField, message))
        }
    }
}
