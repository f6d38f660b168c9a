//! Images in tar files: one tar file is one unit, read as a stream by whoever feeds it.

use bytes::Bytes;

use super::{Images, ImagesJob, Item, Task};
use crate::error::Result;
use crate::pipeline::conversion::Feed;
use crate::pipeline::outcome::{Outcome, Outcomes};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::webdataset::{Found, Sample, Samples};
use crate::transform::image::{self as transform, Scratch};

/// Members that become fields, by extension, and the types of the fields.
const FIELDS: [(&str, FieldType); 3] =
    [("json", FieldType::Json), ("txt", FieldType::String), ("cls", FieldType::Int64)];
/// Samples of one task.
const TASK_SAMPLES: usize = 8;
/// Bytes of the members of one task, unless one sample alone has more.
const TASK_BYTES: u64 = 1 << 20;

/// The fields of a dataset that has samples from tar files.
pub(super) fn tar_fields() -> Vec<Field> {
    FIELDS.iter().map(|(name, ty)| Field::nullable(name, *ty)).collect()
}

/// The samples of one tar file.
pub(super) struct TarFeed {
    file: usize,
    samples: Samples,
    /// Bytes of the tar file that tasks were made of already.
    fed: u64,
}

impl TarFeed {
    pub(super) fn open(job: &ImagesJob, ordinal: usize) -> Result<Self> {
        let file = &job.files[ordinal];
        let samples = Samples::open(&job.planned(file))?;
        Ok(Self { file: ordinal, samples, fed: 0 })
    }
}

impl Feed<Task> for TarFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * 2
    }

    fn next(&mut self) -> Result<Option<(Task, u64)>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        while found.len() < TASK_SAMPLES && bytes < TASK_BYTES {
            let Some(next) = self.samples.read()? else { break };
            if let Found::Sample(sample) = &next {
                bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            }
            found.push(next);
        }
        let read = self.samples.raw_bytes();
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        // The members, and about as much again for the records.
        Ok((!found.is_empty()).then_some((Task::Tar { file: self.file, found, source_bytes }, bytes * 2)))
    }
}

impl Images<'_> {
    /// Takes note of what becomes of one thing that a tar file holds.
    pub(super) fn tar_item(&self, file: usize, found: Found, scratch: &mut Scratch, out: &mut Outcomes) {
        let file = &self.job.files[file];
        let origin_of = |name: &str| format!("{}#{name}", file.origin);
        let (origin, converted) = match found {
            Found::Skipped => {
                out.skipped += 1;
                return;
            }
            Found::Rejected(name, reject) => {
                (name.map_or_else(|| file.origin.clone(), |name| origin_of(&name)), Err(reject))
            }
            Found::Sample(sample) => {
                let origin = origin_of(&sample.name);
                out.read(origin.as_bytes());
                for (extension, bytes) in &sample.members {
                    out.read(extension.as_bytes());
                    out.read(bytes);
                }
                match item(&origin, sample) {
                    Ok(None) => {
                        out.skipped += 1;
                        return;
                    }
                    Ok(Some(item)) => {
                        let split = self.job.split_of_item(file, &origin);
                        (origin, self.image(item, split, scratch, out))
                    }
                    Err(reject) => (origin, Err(reject)),
                }
            }
        };
        let split = self.job.split_of_item(file, &origin);
        out.list.push(converted.unwrap_or_else(|reject| Outcome::Rejected { split, origin, reject }));
    }
}

/// The image of a sample and its fields; `None` when it has neither.
fn item(origin: &str, sample: Sample) -> Result<Option<Item>, Reject> {
    if let Some(defect) = sample.defect {
        return Err(defect);
    }
    let field_of = |extension: &str| FIELDS.iter().position(|(name, _)| *name == extension);
    let mut values = vec![Value::Null; FIELDS.len()];
    let mut images: Vec<(String, Bytes)> = Vec::new();
    let mut is_sample = false;
    for (extension, bytes) in sample.members {
        if let Some(field) = field_of(&extension) {
            values[field] = value(&extension, &bytes)?;
            is_sample = true;
        } else if transform::has_image_extension(&format!("x.{extension}"))
            || transform::sniff(&bytes).is_some()
        {
            images.push((extension, bytes));
        }
    }
    let mut images = images.into_iter();
    match (images.next(), images.next()) {
        (Some((_, bytes)), None) => {
            Ok(Some(Item { origin: origin.to_owned(), bytes, label: Value::Null, values }))
        }
        (Some((one, _)), Some((other, _))) => Err(Reject::new(
            RejectCode::Unsupported,
            format!("the sample has more than one image: {one:?} and {other:?}"),
        )),
        _ if is_sample => Err(Reject::new(RejectCode::MissingField, "the sample has no image")),
        _ => Ok(None),
    }
}

/// The value of a member that becomes a field.
fn value(extension: &str, bytes: &Bytes) -> Result<Value, Reject> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let message = format!("byte {} of the {extension} member is not UTF-8", e.valid_up_to());
        Reject::new(RejectCode::InvalidUtf8, message)
    })?;
    match extension {
        "json" => match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Ok(Value::Text(text.trim().into())),
            Err(e) => Err(Reject::new(RejectCode::InvalidJson, format!("the json member is not JSON: {e}"))),
        },
        "cls" => text
            .trim()
            .parse()
            .map(Value::Int)
            .map_err(|_| Reject::new(RejectCode::InvalidValue, "the cls member is not an integer")),
        _ => Ok(Value::Text(text.into())),
    }
}
