//! Samples in tar files, as WebDataset writes them.

pub(in crate::pipeline::images) mod fields;
pub(in crate::pipeline::images) mod find;

use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::fields::{CLASS, text_of};
use super::source::{
    BYTES_HELD_PER_BYTE, ContainerFile, ImageItem, ImageSource, ItemContext, SourceFeed, SourceItem,
    SourceTask, TASK_BYTES,
};
use crate::error::Result;
use crate::options::SourceSpec;
use crate::pipeline::images::image_field_names::MemberField;
use crate::pipeline::images::image_fields::{ImageRoles, is_image};
use crate::pipeline::job::Feed;
use crate::sample::{Reject, RejectCode, Value};
use crate::source::archive::ArchiveKind;
use crate::source::items::webdataset::{self, NextSample, Sample};
use crate::source::list::skipped::{self, SkippedTypes};
use crate::source::list::source_file::SourceFile;
use crate::transform::image::has_signature;
use crate::writer::outcome::{MemberCount, Outcomes};

/// Maximum number of samples per task.
const TASK_SAMPLES: usize = 8;

/// Tar files of samples.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::pipeline::images) struct Samples {
    /// Members that become fields. They are the first of the fields.
    pub(in crate::pipeline::images) members: Vec<MemberField>,
    /// Whether the classes of samples are labels.
    pub(in crate::pipeline::images) has_labels: bool,
}

impl ImageSource for Samples {
    fn holds(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        file.is_tar(sources)
    }

    fn feed(&self, ContainerFile { file, planned, .. }: ContainerFile<'_>) -> Result<SourceFeed> {
        let samples = webdataset::Samples::open(&planned)?;
        Ok(Box::new(SampleFeed { kind: Arc::new(self.clone()), file, samples, fed: 0 }))
    }

    fn may_name_item(&self, name: &str) -> bool {
        // The name of a sample ends before the first dot of its last component.
        !name.is_empty() && !name.rsplit('/').next().unwrap_or_default().contains('.')
    }

    fn place(&self) -> &'static str {
        "member"
    }

    fn are_related(&self) -> bool {
        true
    }

    fn has_label_field(&self) -> bool {
        false
    }

    fn why_no_labels(&self, _: &[String]) -> String {
        "the samples of tar files have no classes; `classes FILE` names those of their members .cls"
            .to_owned()
    }

    fn has_parts(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        file.archive_kind(sources) == Some(ArchiveKind::Tar)
    }

    fn part(&self, container: ContainerFile<'_>, range: Range<u64>) -> Result<Box<dyn SourceTask>> {
        let ContainerFile { file, planned, .. } = container;
        let mut samples = webdataset::Samples::open_part(&planned, range.clone())?;
        let mut found = Vec::new();
        while let Some(next) = samples.read()? {
            found.push(next);
        }
        let (source_bytes, member) = (range.end - range.start, MemberCount::default());
        Ok(Box::new(SampleTask {
            kind: Arc::new(self.clone()),
            file,
            found: found.into_iter(),
            source_bytes,
            member,
        }))
    }
}

/// Feed of the samples of a tar file.
struct SampleFeed {
    kind: Arc<Samples>,
    file: Arc<SourceFile>,
    samples: webdataset::Samples,
    /// Bytes of the tar file that are already in tasks.
    fed: u64,
}

impl Feed<Box<dyn SourceTask>> for SampleFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(Box<dyn SourceTask>, u64)>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        while found.len() < TASK_SAMPLES && bytes < TASK_BYTES {
            let Some(next) = self.samples.read()? else { break };
            if let (_, NextSample::Sample(sample)) = &next {
                bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            }
            found.push(next);
        }
        let read = self.samples.raw_bytes().max(self.fed);
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        let (start, damaged) = (self.samples.take_member_start(), self.samples.ended_corrupt());
        if found.is_empty() {
            return Ok(None);
        }
        let (kind, file) = (Arc::clone(&self.kind), Arc::clone(&self.file));
        let member = MemberCount { start, damaged, ..MemberCount::default() };
        let task = SampleTask { kind, file, found: found.into_iter(), source_bytes, member };
        Ok(Some((Box::new(task), bytes * BYTES_HELD_PER_BYTE)))
    }
}

/// A task with adjacent samples.
struct SampleTask {
    kind: Arc<Samples>,
    file: Arc<SourceFile>,
    /// Samples, and rejected or skipped parts, each with its start offset in the decompressed data.
    found: IntoIter<(u64, NextSample)>,
    source_bytes: u64,
    /// The last compressed member that contributed bytes to the samples, if it differs from the one before. Whether it is
    /// damaged is known only after its samples were read.
    member: MemberCount,
}

impl SourceTask for SampleTask {
    fn file(&self) -> &SourceFile {
        &self.file
    }

    fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    fn items(&self) -> u64 {
        let is_item = |(_, found): &&(u64, NextSample)| !matches!(found, NextSample::Skipped);
        self.found.as_slice().iter().filter(is_item).count() as u64
    }

    fn member(&self) -> Option<MemberCount> {
        Some(self.member)
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Option<(u64, SourceItem)> {
        let (start, found) = self.found.next()?;
        let origin_of = |name: &str| format!("{}#{name}", self.file.origin);
        let item = match found {
            NextSample::Skipped => SourceItem::Skipped(skipped::MEMBER.to_owned()),
            NextSample::Rejected(name, reject) => SourceItem::Rejected(
                name.map_or_else(|| self.file.origin.clone(), |name| origin_of(&name)),
                reject,
            ),
            NextSample::Sample(sample) => {
                let origin = origin_of(&sample.name);
                out.add_content(origin.as_bytes());
                for (extension, bytes) in &sample.members {
                    out.add_content(extension.as_bytes());
                    out.add_content(bytes);
                }
                match self.kind.item(&origin, sample, context, out) {
                    Ok(None) => SourceItem::Skipped(skipped::MEMBER.to_owned()),
                    Ok(Some(_)) if (context.excludes)(&origin) => SourceItem::Excluded(origin),
                    Ok(Some(item)) => SourceItem::Image(Box::new(item)),
                    Err(reject) => SourceItem::Rejected(origin, reject),
                }
            }
        };
        Some((start, item))
    }
}

impl Samples {
    /// Returns the image of a sample and its fields; `None` if it has neither. Counts members that are left out.
    fn item(
        &self,
        origin: &str,
        sample: Sample,
        context: &ItemContext<'_>,
        out: &mut Outcomes,
    ) -> Result<Option<ImageItem>, Reject> {
        if let Some(defect) = sample.defect {
            return Err(defect);
        }
        let Self { members, has_labels } = self;
        let ImageRoles { main, fields: image_fields } = context.roles;
        let mut values = vec![Value::Null; members.len()];
        let mut label = Value::Null;
        let mut images: Vec<(String, Bytes)> = Vec::new();
        let mut further: Vec<Option<Bytes>> = vec![None; image_fields.len()];
        let mut left_out = Vec::new();
        let mut has_fields = false;
        for (member, bytes) in sample.members {
            if member == CLASS && *has_labels {
                label =
                    Value::Int(i64::from(context.classes.name_or_ordinal(text_of(&member, &bytes)?.trim())?));
                has_fields = true;
            } else if let Some(field) = members.iter().position(|field| field.member == member) {
                values[field] = members[field].value(&bytes)?;
                has_fields = true;
            } else if let Some(field) = image_fields.iter().position(|field| field.member == member) {
                further[field] = Some(bytes);
                has_fields = true;
            } else if main
                .as_ref()
                .map_or_else(|| is_image(&member) || has_signature(&bytes), |main| *main == member)
            {
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
                Ok(Some(ImageItem { origin: origin.to_owned(), bytes, label, values, further, boxes: None }))
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
