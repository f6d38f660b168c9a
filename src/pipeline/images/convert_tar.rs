//! Conversion of samples in tar files to records.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::convert::{ImageConversion, ImageItem};
use super::image_fields::ImageField;
use super::tar_fields::{CLASS, FIELDS};
use super::task::TarTask;
use crate::pipeline::outcome::{MemberCount, Outcome, Outcomes};
use crate::sample::{Reject, RejectCode, Value};
use crate::source::json_line;
use crate::source::metadata::Labels;
use crate::source::source_file::SourceFile;
use crate::source::webdataset::{NextSample, Sample};
use crate::source::without_bom;
use crate::transform::image::{self as transform, ImageScratch};

impl ImageConversion<'_> {
    /// Converts samples, and counts the converted ones with bytes from the last compressed member.
    pub(super) fn convert_tar(&self, task: TarTask, scratch: &mut ImageScratch, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes;
        let mut member = MemberCount::new(task.member);
        for (start, found) in task.found {
            member.start_item(start);
            let before = out.list.len();
            self.convert_tar_item(&task.file, found, scratch, out);
            for outcome in &out.list[before..] {
                if matches!(outcome, Outcome::Converted(_)) {
                    member.add_converted();
                }
            }
        }
        out.member = member.summary(task.damaged);
    }

    /// Adds the outcome of a sample, or of a rejected or skipped part of the file.
    fn convert_tar_item(
        &self,
        file: &SourceFile,
        found: NextSample,
        scratch: &mut ImageScratch,
        out: &mut Outcomes,
    ) {
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
                out.add_content(origin.as_bytes());
                for (extension, bytes) in &sample.members {
                    out.add_content(extension.as_bytes());
                    out.add_content(bytes);
                }
                let classes = self.job.schema.index_of(CLASS).is_none().then_some(&self.classes);
                match image_item(&origin, sample, classes, &self.job.image_fields) {
                    Ok(None) => {
                        out.skipped.add_member();
                        return;
                    }
                    Ok(Some(item)) => {
                        let split = self.job.split_of_item(file, &origin);
                        (origin, self.convert_image(item, split, scratch, out))
                    }
                    Err(reject) => (origin, Err(reject)),
                }
            }
        };
        let split = self.job.split_of_item(file, &origin);
        out.list.push(converted.unwrap_or_else(|reject| Outcome::Rejected { split, origin, reject }));
    }
}

/// Returns the image of a sample and its fields; `None` if it has neither. With `classes`, the class is the label.
fn image_item(
    origin: &str,
    sample: Sample,
    classes: Option<&Labels>,
    image_fields: &[ImageField],
) -> Result<Option<ImageItem>, Reject> {
    if let Some(defect) = sample.defect {
        return Err(defect);
    }
    let field_of = |extension: &str| FIELDS.iter().position(|(name, _)| *name == extension);
    let mut values = vec![Value::Null; FIELDS.len() - usize::from(classes.is_some())];
    let mut label = Value::Null;
    let mut images: Vec<(String, Bytes)> = Vec::new();
    let mut further: Vec<Option<Bytes>> = vec![None; image_fields.len()];
    let mut has_fields = false;
    for (extension, bytes) in sample.members {
        if extension == CLASS
            && let Some(classes) = classes
        {
            label = Value::Int(i64::from(classes.name_or_ordinal(text_of(&extension, &bytes)?.trim())?));
            has_fields = true;
        } else if let Some(field) = field_of(&extension) {
            values[field] = value(&extension, &bytes)?;
            has_fields = true;
        } else if let Some(field) = image_fields.iter().position(|field| field.member == extension) {
            further[field] = Some(bytes);
            has_fields = true;
        } else if transform::has_image_extension(&format!("x.{extension}"))
            || transform::sniff(&bytes).is_some()
        {
            images.push((extension, bytes));
        }
    }
    let mut images = images.into_iter();
    match (images.next(), images.next()) {
        (Some((_, bytes)), None) => {
            Ok(Some(ImageItem { origin: origin.to_owned(), bytes, label, values, further }))
        }
        (Some((one, _)), Some((other, _))) => Err(Reject::new(
            RejectCode::Unsupported,
            format!(
                "the sample has more than one image: {one:?} and {other:?}; list those that are fields in `image_fields`"
            ),
        )),
        _ if has_fields => Err(Reject::new(
            RejectCode::MissingField,
            "the sample has no image; if it is elsewhere in the tar file, write the members of a sample next to each \
             other, with `tar --sort=name`",
        )),
        _ => Ok(None),
    }
}

fn text_of<'a>(extension: &str, bytes: &'a Bytes) -> Result<&'a str, Reject> {
    let bytes = without_bom(bytes);
    std::str::from_utf8(bytes).map_err(|e| Reject::not_utf8(&format!("the {extension} member"), &e))
}

/// Returns the value of a member that becomes a field.
fn value(extension: &str, bytes: &Bytes) -> Result<Value, Reject> {
    let text = text_of(extension, bytes)?;
    match extension {
        // Without interpreting it, because a number may be too large for Rust.
        "json" => match json_line::parse::<Box<RawValue>>(text) {
            Ok((_, json)) => Ok(Value::Text(json.trim().into())),
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
