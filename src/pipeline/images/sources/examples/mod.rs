//! Images in TFRecord files of TensorFlow: each record is a `tf.train.Example`, whose features are an image and what belongs
//! to it.

pub(in crate::pipeline::images) mod find;
mod records;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::records::{Example, Feature, NextRecord, Records};
use super::source::{
    BYTES_HELD_PER_BYTE, ContainerFile, ImageItem, ImageSource, ItemContext, SourceFeed, SourceItem,
    SourceTask, TASK_BYTES,
};
use crate::error::Result;
use crate::options::SourceSpec;
use crate::pipeline::images::image_field_names::MemberField;
use crate::pipeline::job::Feed;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::items::metadata::labels::Labels;
use crate::source::list::boxes::{BoxExtras, BoxList, ImageBoxes};
use crate::source::list::source_file::SourceFile;
use crate::source::table::missing_field::quoted;
use crate::writer::outcome::Outcomes;

/// Extensions of TFRecord files. The number of the shard may follow, and `.gz`.
const EXTENSIONS: [&str; 6] = ["tfrecord", "tfrecords", "tfrec", "tfr", "record", "records"];
/// The features with the left, top, right and bottom sides of boxes, as fractions of the image.
const SIDES: [&str; 4] =
    ["image/object/bbox/xmin", "image/object/bbox/ymin", "image/object/bbox/xmax", "image/object/bbox/ymax"];
/// The label of an image without a class, if labels have names.
const NO_LABEL: i64 = -1;

/// TFRecord files with images.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::pipeline::images) struct Examples {
    /// The feature with the image; `None` if all files are damaged.
    image: Option<String>,
    /// Features that become fields, after those of boxes.
    members: Vec<MemberField>,
    /// The feature with the label.
    label: Option<String>,
    /// The names of labels that are ordinals, if a file beside the examples lists them.
    declared: Option<Vec<String>>,
    boxes: Option<BoxFeatures>,
    /// The features that are known, including those that are left out. Any other one is counted.
    known: BTreeSet<String>,
}

/// The features with the boxes of an image.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct BoxFeatures {
    /// The feature with the classes.
    class: String,
    classes: Labels,
    /// The feature that is 1 for crowds or difficult objects, and its field.
    crowd: Option<(String, String)>,
    /// The feature with the masks of the boxes, which are not kept.
    mask: Option<String>,
    fields: Vec<Field>,
}

/// Returns whether `name` is that of a TFRecord file: `a.tfrecord`, `a.tfrecord-00000-of-00010`, `a.tfrecord.gz`, or
/// `train-00000-of-00010`.
fn is_examples_name(name: &[u8]) -> bool {
    // Most files are images, for which nothing is allocated.
    let name = name.strip_suffix(b".gz").unwrap_or(name);
    let is_number =
        |part: Option<&[u8]>| part.is_some_and(|part| part.len() >= 5 && part.iter().all(u8::is_ascii_digit));
    let mut parts = name.rsplitn(4, |&byte| byte == b'-');
    let is_shard = is_number(parts.next()) && parts.next() == Some(b"of") && is_number(parts.next());
    let name = if is_shard { parts.next().unwrap_or_default() } else { name };
    match name.iter().rposition(|&byte| byte == b'.') {
        Some(dot) => EXTENSIONS.iter().any(|known| name[dot + 1..].eq_ignore_ascii_case(known.as_bytes())),
        None => is_shard && !name.is_empty(),
    }
}

impl ImageSource for Examples {
    fn holds(&self, file: &SourceFile, sources: &[SourceSpec]) -> bool {
        holds_examples(file, sources)
    }

    fn feed(&self, ContainerFile { file, planned, .. }: ContainerFile<'_>) -> Result<SourceFeed> {
        let records = Records::open(&planned)?;
        Ok(Box::new(ExampleFeed { kind: Arc::new(self.clone()), file, records, fed: 0 }))
    }

    fn may_name_item(&self, name: &str) -> bool {
        name.parse::<u64>().is_ok_and(|number| number.to_string() == name)
    }

    fn place(&self) -> &'static str {
        "feature"
    }

    fn are_related(&self) -> bool {
        false
    }

    fn has_label_field(&self) -> bool {
        self.image.is_some()
    }

    fn why_no_labels(&self, fields: &[String]) -> String {
        let name_one = match fields {
            [] => "add one".to_owned(),
            fields => format!("`label_field` names another one: {}", quoted(fields)),
        };
        format!("there is no feature \"label\" or \"image/class/label\"; {name_one}")
    }
}

/// Returns whether `file` is a TFRecord file, by its name.
fn holds_examples(file: &SourceFile, sources: &[SourceSpec]) -> bool {
    let is_examples = |path: &Path| path.file_name().is_some_and(|name| is_examples_name(name.as_bytes()));
    file.member.is_none()
        && if file.is_named() { is_examples(&file.path(sources)) } else { is_examples(&file.relative) }
}

/// Feed of the examples of a file.
struct ExampleFeed {
    kind: Arc<Examples>,
    file: Arc<SourceFile>,
    records: Records,
    /// Bytes of the file that are already in tasks.
    fed: u64,
}

impl Feed<Box<dyn SourceTask>> for ExampleFeed {
    fn next_bytes(&self) -> u64 {
        TASK_BYTES * BYTES_HELD_PER_BYTE
    }

    fn next(&mut self) -> Result<Option<(Box<dyn SourceTask>, u64)>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while bytes < TASK_BYTES {
            let Some(record) = self.records.read()? else { break };
            if let (_, NextRecord::Data(data)) = &record {
                bytes += data.len() as u64;
            }
            found.push(record);
        }
        if found.is_empty() {
            return Ok(None);
        }
        let read = self.records.raw_bytes().max(self.fed);
        let source_bytes = read - std::mem::replace(&mut self.fed, read);
        let (kind, file) = (Arc::clone(&self.kind), Arc::clone(&self.file));
        let task = ExampleTask { kind, file, found: found.into_iter(), source_bytes };
        Ok(Some((Box::new(task), bytes * BYTES_HELD_PER_BYTE)))
    }
}

/// A task with adjacent examples.
struct ExampleTask {
    kind: Arc<Examples>,
    file: Arc<SourceFile>,
    /// Records with their numbers.
    found: IntoIter<(u64, NextRecord)>,
    source_bytes: u64,
}

impl SourceTask for ExampleTask {
    fn file(&self) -> &SourceFile {
        &self.file
    }

    fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    fn items(&self) -> u64 {
        self.found.len() as u64
    }

    fn next(&mut self, context: &ItemContext<'_>, out: &mut Outcomes) -> Option<(u64, SourceItem)> {
        let (number, record) = self.found.next()?;
        let origin = format!("{}#{number}", self.file.origin);
        let item = match record {
            NextRecord::Damaged(reject) => SourceItem::Rejected(origin, reject),
            NextRecord::Data(data) => {
                out.add_content(origin.as_bytes());
                out.add_content(&data);
                match self.kind.item(&origin, data, context, out) {
                    Ok(_) if (context.excludes)(&origin) => SourceItem::Excluded(origin),
                    Ok(item) => SourceItem::Image(Box::new(item)),
                    Err(reject) => SourceItem::Rejected(origin, reject),
                }
            }
        };
        Some((0, item))
    }
}

impl Examples {
    /// Returns the image of an example with its fields. Counts features that were not seen when the run was planned.
    fn item(
        &self,
        origin: &str,
        data: Bytes,
        context: &ItemContext<'_>,
        out: &mut Outcomes,
    ) -> Result<ImageItem, Reject> {
        let example = Example::parse(data)?;
        let image =
            self.image.as_deref().and_then(|name| one_image(&example, name).transpose()).transpose()?;
        let bytes = image.ok_or_else(|| {
            let name = self.image.as_deref().unwrap_or_default();
            Reject::new(
                RejectCode::MissingField,
                format!("the example has no feature {name:?} with an image"),
            )
        })?;
        let label = match self.label_of(&example)? {
            Some(label) => Value::Int(context.classes.ordinal(&label)?.into()),
            None => Value::Null,
        };
        let mut values = Vec::new();
        let mut boxes = None;
        if let Some(features) = &self.boxes {
            values.extend(features.fields.iter().map(|_| Value::Null));
            boxes = Some(Box::new(features.read(&example)?));
        }
        for MemberField { member, ty, .. } in &self.members {
            values.push(value(member, *ty, example.get(member))?);
        }
        let mut further = Vec::with_capacity(context.roles.fields.len());
        for field in &context.roles.fields {
            further.push(one_image(&example, &field.member)?);
        }
        let unknown = example.iter().filter(|(name, _)| !self.known.contains(*name)).count();
        if unknown > 0 {
            out.count("features_left_out", unknown as u64);
        }
        Ok(ImageItem { origin: origin.to_owned(), bytes, label, values, further, boxes })
    }

    /// Returns the name or number of the class of an example; `None` if it has none.
    fn label_of(&self, example: &Example) -> Result<Option<String>, Reject> {
        let Some(name) = &self.label else { return Ok(None) };
        let Some(feature) = example.get(name) else { return Ok(None) };
        let label = match (feature, &self.declared) {
            (Feature::Ints(numbers), Some(declared)) if numbers.len() == 1 => {
                if numbers[0] == NO_LABEL {
                    return Ok(None);
                }
                let class = usize::try_from(numbers[0]).ok().and_then(|at| declared.get(at));
                return class.cloned().map(Some).ok_or_else(|| {
                    let message = format!(
                        "the label {} is not below {}, the number of declared classes",
                        numbers[0],
                        declared.len()
                    );
                    Reject::new(RejectCode::UnknownLabel, message)
                });
            }
            (feature, _) => classes_in(name, feature)?,
        };
        match <[String; 1]>::try_from(label) {
            // Examples without a class have an empty text.
            Ok([label]) if label.is_empty() => Ok(None),
            Ok([label]) => Ok(Some(label)),
            Err(labels) => Err(several(name, labels.len())),
        }
    }
}

/// Returns the bytes of a feature with one image; `None` if there is none.
fn one_image(example: &Example, name: &str) -> Result<Option<Bytes>, Reject> {
    match example.get(name) {
        None => Ok(None),
        Some(Feature::Bytes(images)) if images.len() == 1 => Ok(images.first().cloned()),
        Some(Feature::Bytes(images)) => Err(several(name, images.len())),
        Some(Feature::Floats(_) | Feature::Ints(_)) => {
            Err(Reject::new(RejectCode::WrongType, format!("the feature {name:?} has numbers, not an image")))
        }
    }
}

fn several(name: &str, count: usize) -> Reject {
    Reject::new(RejectCode::WrongType, format!("the feature {name:?} has {count} values instead of one"))
}

/// Returns the classes in a feature, numbers as text.
fn classes_in(name: &str, feature: &Feature) -> Result<Vec<String>, Reject> {
    match feature {
        Feature::Ints(numbers) => Ok(numbers.iter().map(i64::to_string).collect()),
        Feature::Bytes(names) => names.iter().map(|class| text(name, class).map(str::to_owned)).collect(),
        Feature::Floats(_) => Err(Reject::new(
            RejectCode::WrongType,
            format!("the feature {name:?} has fractions, not classes"),
        )),
    }
}

fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Reject> {
    std::str::from_utf8(bytes).map_err(|_| {
        Reject::new(
            RejectCode::InvalidUtf8,
            format!("the feature {name:?} is not UTF-8; `keep_fields {name}:binary` keeps it"),
        )
    })
}

/// Returns the value of a field of the type `ty`.
fn value(name: &str, ty: FieldType, feature: Option<&Feature>) -> Result<Value, Reject> {
    let Some(feature) = feature else { return Ok(Value::Null) };
    let not = |what: &str| {
        Reject::new(RejectCode::WrongType, format!("the feature {name:?} has {what}, not {}", ty.name()))
    };
    let json = |list: serde_json::Result<String>| {
        list.map(|list| Value::Text(list.as_str().into()))
            .map_err(|_| not("a value that JSON cannot represent"))
    };
    match (ty, feature) {
        (FieldType::Json, Feature::Ints(numbers)) => json(serde_json::to_string(numbers)),
        (FieldType::Json, Feature::Floats(numbers)) if numbers.iter().all(|number| number.is_finite()) => {
            json(serde_json::to_string(numbers))
        }
        (FieldType::Json, Feature::Floats(_)) => Err(not("a number that is not finite")),
        (FieldType::Json, Feature::Bytes(_)) => json(serde_json::to_string(&classes_in(name, feature)?)),
        (_, feature) if feature.len() != 1 => Err(several(name, feature.len())),
        (FieldType::Int64, Feature::Ints(numbers)) => Ok(Value::Int(numbers[0])),
        (FieldType::Float32 | FieldType::Float64, Feature::Floats(numbers)) => {
            Ok(Value::Float(numbers[0].into()))
        }
        (FieldType::String, Feature::Bytes(values)) => Ok(Value::Text(text(name, &values[0])?.into())),
        (FieldType::Binary, Feature::Bytes(values)) => Ok(Value::Bytes(values[0].clone())),
        (_, Feature::Ints(_)) => Err(not("an integer")),
        (_, Feature::Floats(_)) => Err(not("a fraction")),
        (_, Feature::Bytes(_)) => Err(not("bytes")),
    }
}

impl BoxFeatures {
    /// Returns the boxes of an example. An example without them has none.
    fn read(&self, example: &Example) -> Result<ImageBoxes, Reject> {
        let mismatch = |what: String| Reject::new(RejectCode::AnnotationMismatch, what);
        let mut sides: [&[f32]; 4] = [&[]; 4];
        for (side, name) in sides.iter_mut().zip(SIDES) {
            *side = match example.get(name) {
                None => &[],
                Some(Feature::Floats(numbers)) => numbers,
                Some(Feature::Bytes(_) | Feature::Ints(_)) => {
                    return Err(Reject::new(
                        RejectCode::WrongType,
                        format!("the feature {name:?} has no fractions"),
                    ));
                }
            };
        }
        let count = sides[0].len();
        let check = |name: &str, found: usize| match found == count {
            true => Ok(()),
            false => Err(mismatch(format!("{:?} has {count} values, and {name:?} has {found}", SIDES[0]))),
        };
        for (side, name) in sides.iter().zip(SIDES) {
            check(name, side.len())?;
        }
        let classes = example
            .get(&self.class)
            .map_or_else(|| Ok(Vec::new()), |feature| classes_in(&self.class, feature))?;
        check(&self.class, classes.len())?;
        let crowds: &[i64] = match self.crowd.as_ref().and_then(|(name, _)| Some((name, example.get(name)?)))
        {
            None => &[],
            Some((name, Feature::Ints(numbers))) => {
                check(name, numbers.len())?;
                numbers
            }
            Some((name, _)) => {
                return Err(Reject::new(
                    RejectCode::WrongType,
                    format!("the feature {name:?} has no integers"),
                ));
            }
        };
        let mut list = BoxList::default();
        for (at, class) in classes.iter().enumerate() {
            let corners = [0, 1, 2, 3].map(|side| sides[side][at]);
            list.push(corners, self.classes.ordinal(class)?, crowds.get(at).copied().unwrap_or_default());
        }
        let masks = self.mask.as_ref().and_then(|name| example.get(name)).map_or(0, Feature::len) as u64;
        Ok(ImageBoxes::fractions(list, BoxExtras { masks, ..BoxExtras::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_known_extension_or_the_number_of_a_shard() {
        for name in [
            "a.tfrecord",
            "a.TFRecords",
            "a.tfrec",
            "a.record",
            "coco-train.tfrecord-00000-of-00010",
            "a.tfrecord.gz",
            "train-00000-of-01024",
            "val.record-00001-of-00002.gz",
        ] {
            assert!(is_examples_name(name.as_bytes()), "{name}");
        }
        for name in [
            "a.jpg",
            "tfrecord",
            "train-00000-of-00010.parquet",
            "-00000-of-00010",
            "a-of-00010",
            "a.gz",
            "record.txt",
            "a-00000-of-b",
        ] {
            assert!(!is_examples_name(name.as_bytes()), "{name}");
        }
    }
}
