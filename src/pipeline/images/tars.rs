//! Images in tar files: one tar file is one unit, which its feed reads as a stream.

use bytes::Bytes;

use super::convert::{Images, Item, Task};
use super::image_fields::ImageField;
use super::job::ImagesJob;
use super::tables::ClassOrdinals;
use crate::error::Result;
use crate::pipeline::conversion::Feed;
use crate::pipeline::outcome::{Member, Outcome, Outcomes};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::webdataset::{NextSample, Sample, Samples};
use crate::transform::image::{self as transform, Scratch};

/// Members that become fields, by extension, and the types of the fields.
const FIELDS: [(&str, FieldType); 3] =
    [("json", FieldType::Json), ("txt", FieldType::String), ("cls", FieldType::Int64)];
/// Samples of one task.
const TASK_SAMPLES: usize = 8;
/// Bytes of the members of one task, unless one sample alone has more.
const TASK_BYTES: u64 = 1 << 20;

/// The member with the class of a sample: a field, or the label where classes are given. The last of [`FIELDS`].
const CLASS: &str = "cls";

/// The fields of a dataset that has samples from tar files.
pub(super) fn tar_fields(has_classes: bool) -> Vec<Field> {
    let fields = FIELDS.iter().filter(|(name, _)| !(has_classes && *name == CLASS));
    fields.map(|(name, ty)| Field::nullable(name, *ty)).collect()
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
            if let (_, NextSample::Sample(sample)) = &next {
                bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            }
            found.push(next);
        }
        let read = self.samples.raw_bytes();
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        let (member, damaged) = (self.samples.take_member_start(), self.samples.ended_corrupt());
        let tar = TarTask { file: self.file, found, source_bytes, member, damaged };
        // The members, and about as much again for the records.
        Ok((!tar.found.is_empty()).then_some((Task::Tar(tar), bytes * 2)))
    }
}

/// Neighbouring samples of a tar file.
pub(in crate::pipeline) struct TarTask {
    /// Ordinal of the tar file.
    file: usize,
    /// Samples and what is in their place, each with the offset in the decompressed data at which it starts.
    pub(super) found: Vec<(u64, NextSample)>,
    /// Bytes of the file that the task stands for.
    pub(super) source_bytes: u64,
    /// Start of the last member of the compressed data that the samples have bytes of, when it is another one than before.
    member: Option<u64>,
    /// Whether that member is damaged, which shows after the samples.
    damaged: bool,
}

impl Images<'_> {
    /// Converts samples, and counts those that have bytes of the last member of compressed data.
    pub(super) fn tar(&self, task: TarTask, scratch: &mut Scratch, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes;
        let mut converted = 0;
        for (start, found) in task.found {
            // Until another sample starts before it, this may be the one in which the member starts.
            if task.member.is_some_and(|member| start <= member) {
                converted = 0;
            }
            let before = out.list.len();
            self.tar_item(task.file, found, scratch, out);
            let is_converted = |outcome: &&Outcome| matches!(outcome, Outcome::Converted(_));
            converted += out.list[before..].iter().filter(is_converted).count() as u64;
        }
        out.member = Member { starts: task.member.is_some(), converted, damaged: task.damaged };
    }

    /// Adds the outcome of one sample, or of what is in its place.
    fn tar_item(&self, file: usize, found: NextSample, scratch: &mut Scratch, out: &mut Outcomes) {
        let file = &self.job.files[file];
        let origin_of = |name: &str| format!("{}#{name}", file.origin);
        let (origin, converted) = match found {
            NextSample::Skipped => {
                out.skipped.add_member();
                return;
            }
            NextSample::Rejected(name, reject) => {
                (name.map_or_else(|| file.origin.clone(), |name| origin_of(&name)), Err(reject))
            }
            NextSample::Sample(sample) => {
                let origin = origin_of(&sample.name);
                out.read(origin.as_bytes());
                for (extension, bytes) in &sample.members {
                    out.read(extension.as_bytes());
                    out.read(bytes);
                }
                let classes = self.job.schema.index_of(CLASS).is_none().then_some(&self.classes);
                match item(&origin, sample, classes, &self.job.image_fields) {
                    Ok(None) => {
                        out.skipped.add_member();
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

/// The images of a sample and its fields; `None` when it has neither. With `classes`, the class is the label.
fn item(
    origin: &str,
    sample: Sample,
    classes: Option<&ClassOrdinals>,
    image_fields: &[ImageField],
) -> Result<Option<Item>, Reject> {
    if let Some(defect) = sample.defect {
        return Err(defect);
    }
    let field_of = |extension: &str| FIELDS.iter().position(|(name, _)| *name == extension);
    let mut values = vec![Value::Null; FIELDS.len() - usize::from(classes.is_some())];
    let mut label = Value::Null;
    let mut images: Vec<(String, Bytes)> = Vec::new();
    let mut further: Vec<Option<Bytes>> = vec![None; image_fields.len()];
    let mut is_sample = false;
    for (extension, bytes) in sample.members {
        if extension == CLASS
            && let Some(classes) = classes
        {
            label = Value::Int(classes.ordinal(text_of(&extension, &bytes)?.trim())? as i64);
            is_sample = true;
        } else if let Some(field) = field_of(&extension) {
            values[field] = value(&extension, &bytes)?;
            is_sample = true;
        } else if let Some(field) = image_fields.iter().position(|field| field.member == extension) {
            further[field] = Some(bytes);
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
            Ok(Some(Item { origin: origin.to_owned(), bytes, label, values, further }))
        }
        (Some((one, _)), Some((other, _))) => Err(Reject::new(
            RejectCode::Unsupported,
            format!(
                "the sample has more than one image: {one:?} and {other:?}; image_fields names those that are fields"
            ),
        )),
        _ if is_sample => Err(Reject::new(RejectCode::MissingField, "the sample has no image")),
        _ => Ok(None),
    }
}

fn text_of<'a>(extension: &str, bytes: &'a Bytes) -> Result<&'a str, Reject> {
    std::str::from_utf8(bytes).map_err(|e| {
        let message = format!("byte {} of the {extension} member is not UTF-8", e.valid_up_to());
        Reject::new(RejectCode::InvalidUtf8, message)
    })
}

/// The value of a member that becomes a field.
fn value(extension: &str, bytes: &Bytes) -> Result<Value, Reject> {
    let text = text_of(extension, bytes)?;
    match extension {
        "json" => match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Ok(Value::Text(text.trim().into())),
            Err(e) => Err(Reject::new(RejectCode::InvalidJson, format!("the json member is not JSON: {e}"))),
        },
        CLASS => text
            .trim()
            .parse()
            .map(Value::Int)
            .map_err(|_| Reject::new(RejectCode::InvalidValue, "the cls member is not an integer")),
        _ => Ok(Value::Text(text.into())),
    }
}
