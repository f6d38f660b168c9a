//! Conversion of rows of Parquet and Arrow files to records.

use bytes::Bytes;

use super::convert::{ImageItem, ImageWorker};
use super::job::ImagesJob;
use super::task::{TableTask, TaskRows};
use crate::pipeline::outcome::{ItemOutcome, Outcomes};
use crate::sample::{Reject, Value};
use crate::source::image_table::{ImageColumns, ImageRow};

impl ImagesJob {
    /// Converts the rows of a task.
    pub(super) fn convert_table(&self, task: TableTask, worker: &mut ImageWorker, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes();
        let file = &*task.file;
        match task.found {
            TaskRows::Broken { row, reject } => {
                let origin = row.map_or_else(|| file.origin.clone(), |row| format!("{}#{row}", file.origin));
                let split = self.split_of(file).of(&origin);
                out.list.push(ItemOutcome::Rejected { split, origin, reject });
            }
            TaskRows::Rows(batch) => {
                for row in batch.rows() {
                    let origin = format!("{}#{}", file.origin, row.number);
                    let split = self.split_of(file).of(&origin);
                    let converted = self.convert_row(&origin, row, batch.columns(), split, worker, out);
                    let outcome =
                        converted.unwrap_or_else(|reject| ItemOutcome::Rejected { split, origin, reject });
                    out.list.push(outcome);
                }
            }
        }
    }

    fn convert_row(
        &self,
        origin: &str,
        row: ImageRow,
        columns: &ImageColumns,
        split: u16,
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) -> Result<ItemOutcome, Reject> {
        out.add_content(origin.as_bytes());
        out.add_content(row.label.to_string().as_bytes());
        row.values.iter().for_each(|value| out.add_content(&bytes_of(value)));
        let (bytes, further) = row.images?;
        out.add_content(&bytes);
        further.iter().flatten().for_each(|bytes| out.add_content(bytes));
        if row.left_out > 0 {
            out.count("images_left_out", row.left_out);
        }
        let label = match columns.class_of(&row.label)? {
            Some(class) => Value::Int(self.conversion.classes.ordinal(&class)?.into()),
            None => Value::Null,
        };
        let item = ImageItem { origin: origin.to_owned(), bytes, label, values: row.values, further };
        self.convert_image(item, split, worker, out)
    }
}

/// Returns the bytes of a value that are added to the content hash.
fn bytes_of(value: &Value) -> Bytes {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Value::Int(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::UInt(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Float(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
        Value::Bool(flag) => Bytes::copy_from_slice(&[u8::from(*flag)]),
        _ => Bytes::new(),
    }
}
