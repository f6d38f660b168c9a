//! The group of a document, which decides its split: the value of the field of `split_by`, or the prompt of preference data.

use crate::error::Result;
use crate::pipeline::split_group::{check_type, group_of};
use crate::recipe::TextRecipe;
use crate::sample::{Reject, Value};
use crate::schema::Field;

/// Refuses a field whose values are no names of groups. `fields` are those that are read.
pub(super) fn check(recipe: &TextRecipe, fields: &[Field]) -> Result<()> {
    let field = fields.iter().find(|field| Some(&field.name) == recipe.split_by.as_ref());
    field.map_or(Ok(()), |field| check_type(&field.name, field.ty))
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
    let group = group_of(name, at.and_then(|at| values.get(at)));
    if recipe.reads_group() {
        values.truncate(recipe.keep_fields.len());
    }
    group.map(Some)
}
