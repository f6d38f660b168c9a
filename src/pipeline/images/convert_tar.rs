//! Conversion of samples in tar files to records.

use bytes::Bytes;

use super::convert::{ImageItem, ImageWorker};
use super::image_fields::{ImageRoles, is_image};
use super::job::{ImageConversion, ImagesJob};
use super::tar_fields::{CLASS, text_of};
use super::task::TarTask;
use crate::pipeline::outcome::{ItemOutcome, MemberCount, Outcomes};
use crate::sample::{Reject, RejectCode, Value};
use crate::source::skipped::{self, SkippedTypes};
use crate::source::source_file::SourceFile;
use crate::source::webdataset::{NextSample, Sample};
use crate::transform::image as transform;

impl ImagesJob {
    /// Converts samples, and counts the converted ones with bytes from the last compressed member.
    pub(super) fn convert_tar(&self, task: TarTask, worker: &mut ImageWorker, out: &mut Outcomes) {
        out.source_bytes += task.source_bytes;
        let mut member = MemberCount::new(task.member);
        for (start, found) in task.found {
            member.start_item(start);
            let before = out.list.len();
            self.convert_tar_item(&task.file, found, worker, out);
            for outcome in &out.list[before..] {
                if matches!(outcome, ItemOutcome::Converted(_)) {
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
        worker: &mut ImageWorker,
        out: &mut Outcomes,
    ) {
        let origin_of = |name: &str| format!("{}#{name}", file.origin);
        let (origin, converted) = match found {
            NextSample::Skipped => {
                out.skip(skipped::MEMBER.to_owned());
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
                match self.image_item(&origin, sample, out) {
                    Ok(None) => {
                        out.skip(skipped::MEMBER.to_owned());
                        return;
                    }
                    Ok(Some(item)) => {
                        let split = self.split_of(file).of(&origin);
                        (origin, self.convert_image(item, split, worker, out))
                    }
                    Err(reject) => (origin, Err(reject)),
                }
            }
        };
        let split = self.split_of(file).of(&origin);
        out.list.push(converted.unwrap_or_else(|reject| ItemOutcome::Rejected { split, origin, reject }));
    }

    /// Returns the image of a sample and its fields; `None` if it has neither. Counts members that are left out.
    fn image_item(
        &self,
        origin: &str,
        sample: Sample,
        out: &mut Outcomes,
    ) -> Result<Option<ImageItem>, Reject> {
        if let Some(defect) = sample.defect {
            return Err(defect);
        }
        let ImageConversion { members, roles, classes, labels_in_samples, .. } = &self.conversion;
        let ImageRoles { main, fields: image_fields } = roles;
        let mut values = vec![Value::Null; members.len()];
        let mut label = Value::Null;
        let mut images: Vec<(String, Bytes)> = Vec::new();
        let mut further: Vec<Option<Bytes>> = vec![None; image_fields.len()];
        let mut left_out = Vec::new();
        let mut has_fields = false;
        for (member, bytes) in sample.members {
            if member == CLASS && *labels_in_samples {
                label = Value::Int(i64::from(classes.name_or_ordinal(text_of(&member, &bytes)?.trim())?));
                has_fields = true;
            } else if let Some(field) = members.iter().position(|field| field.member == member) {
                values[field] = members[field].value(&bytes)?;
                has_fields = true;
            } else if let Some(field) = image_fields.iter().position(|field| field.member == member) {
                further[field] = Some(bytes);
                has_fields = true;
            } else if main.as_ref().map_or_else(
                || is_image(&member) || transform::sniff(&bytes).is_some(),
                |main| *main == member,
            ) {
                images.push((member, bytes));
            } else {
                has_fields |= is_image(&member);
                left_out.push(member);
            }
        }
        let mut images = images.into_iter();
        match (images.next(), images.next()) {
            (Some((_, bytes)), None) => {
                for member in left_out {
                    out.skip(SkippedTypes::type_of(&format!("x.{member}")));
                    out.note("members_left_out");
                }
                Ok(Some(ImageItem { origin: origin.to_owned(), bytes, label, values, further }))
            }
            (Some((one, _)), Some((other, _))) => Err(Reject::new(
                RejectCode::Unsupported,
                format!(
                    "the sample has more than one image: {one:?} and {other:?}; list those that are fields in \
                     `image_fields`"
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
}
