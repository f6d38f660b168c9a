//! Check that the labels of the first rows are those of their ids, so that a run with shifted labels never starts.

use std::sync::Arc;

use super::conversion::TextJob;
use super::options::TextInput;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::sample::{Reject, RejectCode};
use crate::writer::outcome::Outcomes;

/// Number of rows that are examined.
const ROWS: u64 = 1000;

/// Refuses a job if more than half of its first rows have labels that are not their ids. Standard input cannot be read
/// twice, and is not examined.
pub(super) fn check(job: &TextJob) -> Result<()> {
    if job.conversion.recipe.ids.labels_field.is_none() || job.conversion.input == TextInput::Stdin {
        return Ok(());
    }
    let (mut rows, mut mismatches) = (0, 0);
    let mut first: Option<Reject> = None;
    let (context, mut out) = (job.item_context(), Outcomes::default());
    'sections: for section in &job.conversion.sections {
        let file = Arc::new(job.file(section.file)?);
        let mut reader = job.open_section(section, &file, None)?;
        while let Some(mut block) = reader.next()? {
            while let Some(item) = block.items.next(&context, &mut out)? {
                rows += 1;
                if let Err(reject) = item.document
                    && reject.code == RejectCode::LabelMismatch
                {
                    mismatches += 1;
                    first.get_or_insert(reject);
                }
                if rows == ROWS {
                    break 'sections;
                }
            }
        }
    }
    let Some(first) = first.filter(|_| 2 * mismatches > rows) else { return Ok(()) };
    let message = format!(
        "the labels of {mismatches} of the first {} are not their ids: {}",
        plural(rows, "row"),
        first.message
    );
    Err(Error::usage(message).of_option("labels_field").help(
        "labels are not shifted here: each is the id of its own token, or -100; shift them back, or name a mask with `mask_field`",
    ))
}
