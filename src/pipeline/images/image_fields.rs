//! Additional images of samples in tar files: the members that become fields.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::image_field_names::{FieldMember, is_reserved, named};
use super::tar_fields::CLASS;
use crate::error::{Error, Result};
use crate::schema::{Field, FieldType, IMAGE};
use crate::source::tar::tar_stem;
use crate::source::webdataset::{NextSample, Sample, Samples};
use crate::source::{PlannedFile, portable_name};
use crate::transform::image::{self as transform, ImageType};

/// Number of samples that are inspected for additional images.
const INSPECTED_SAMPLES: usize = 16;
/// Names of the main image of a sample that has several: `0001.rgb.jpg`.
const MAIN_NAMES: [&str; 5] = [IMAGE, "img", "rgb", "input", "photo"];

/// Additional images of samples in tar files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageFields {
    /// The additional images of the first samples of the first tar file.
    #[default]
    Auto,
    /// None. Samples with two images are rejected.
    None,
    /// These members.
    Listed(Vec<ImageField>),
}

/// A member of a sample that is an additional image and becomes a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageField {
    /// Name of the field.
    pub name: String,
    /// The part of the member's name after its first dot, in lower case: `seg.png`.
    pub member: String,
    /// Either an image or a mask.
    #[serde(rename = "type")]
    pub ty: FieldType,
}

impl ImageField {
    /// Returns the field in the schema. It is nullable, because samples may lack the member.
    pub(super) fn field(&self) -> Field {
        Field::nullable(&self.name, self.ty)
    }
}

impl FromStr for ImageFields {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let invalid = |what: String| {
            Error::usage(what).help(
                "expected auto, none or [FIELD=]MEMBER[:mask|:image],… where MEMBER is the part of a name after its \
                 first dot, as in seg.png:mask,depth=depth.png,left.jpg",
            )
        };
        let mut members: Vec<FieldMember> = Vec::new();
        for part in text.split(',') {
            let (rest, ty) = match part.rsplit_once(':') {
                None => (part, None),
                Some((rest, "mask")) => (rest, Some(FieldType::Mask)),
                Some((rest, "image")) => (rest, Some(FieldType::Image)),
                Some((_, other)) => {
                    return Err(invalid(format!("unknown type {other:?}; expected mask or image")));
                }
            };
            let (name, member) = rest.split_once('=').map_or((None, rest), |(name, m)| (Some(name), m));
            let member = member.trim_start_matches('.');
            if member.is_empty() || name == Some("") {
                return Err(invalid(format!("{part:?} has no member name")));
            }
            if !transform::has_image_extension(&format!("x.{member}")) {
                return Err(invalid(format!("{member:?} does not have an image extension")));
            }
            if let Some(name) = name.filter(|name| is_reserved(name)) {
                return Err(invalid(format!("{name:?} is the name of another field; choose another FIELD")));
            }
            let member = FieldMember::new(name, member, ty);
            if members.iter().any(|other| other.member == member.member) {
                return Err(invalid(format!("{:?} is listed twice", member.member)));
            }
            members.push(member);
        }
        Ok(Self::Listed(named(members)?))
    }
}

impl fmt::Display for ImageFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Listed(fields) => {
                let texts = fields.iter().map(|f| format!("{}={}:{}", f.name, f.member, f.ty.name()));
                f.write_str(&texts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// What the first samples of a tar file show.
#[derive(Default)]
pub(super) struct InspectedTar {
    /// Additional images of the samples.
    pub(super) fields: Vec<ImageField>,
    /// Whether there are images, and they have no class, text or additional image of their own.
    pub(super) has_bare_images: bool,
    /// Folder of an image, if the file looks like an archive of image folders rather than a WebDataset: bare images in
    /// folders.
    pub(super) folder: Option<String>,
    /// Whether a sample with an image has a class.
    pub(super) has_classes: bool,
}

/// Inspects the first samples of a tar file. A damaged file is reported when it is converted.
///
/// # Errors
///
/// Fails if the file cannot be read, or two additional images would have the same name.
pub(super) fn inspect_tar(tar: &PlannedFile) -> Result<InspectedTar> {
    let mut samples = Samples::open(tar)?;
    let root = tar.path.file_name().map(portable_name).unwrap_or_default();
    let root = tar_stem(&root);
    let mut members: Vec<FieldMember> = Vec::new();
    let (mut folder, mut has_images, mut has_members, mut has_classes) = (None, false, false, false);
    let mut inspected = 0;
    while inspected < INSPECTED_SAMPLES
        && let Some((_, found)) = samples.read()?
    {
        let NextSample::Sample(sample) = found else { continue };
        inspected += 1;
        let images = sample.members.iter().filter(|(member, _)| is_image(member)).count();
        has_images |= images > 0;
        has_members |= images > 0 && sample.members.len() > 1;
        has_classes |= images > 0 && sample.members.iter().any(|(member, _)| member == CLASS);
        let parent = sample.name.rsplit_once('/').map(|(parent, _)| parent);
        // An archive of one folder usually has its name.
        if let Some(parent) = parent.filter(|parent| images > 0 && *parent != root) {
            folder.get_or_insert_with(|| parent.to_owned());
        }
        for member in further_images(&sample) {
            if members.iter().all(|known| known.member != member.member) {
                members.push(member);
            }
        }
    }
    let mut fields = named(members).map_err(|e| e.at_path(&tar.path))?;
    // Sorted by name, because the order of the members may differ between samples.
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let has_bare_images = has_images && !has_members;
    let folder = folder.filter(|_| has_bare_images);
    Ok(InspectedTar { fields, has_bare_images, folder, has_classes })
}

fn is_image(member: &str) -> bool {
    transform::has_image_extension(&format!("x.{member}"))
}

/// Returns the additional images of a sample: all except the main image, which is the only one with a plain extension or
/// with a usual name. Returns none if that is ambiguous.
fn further_images(sample: &Sample) -> Vec<FieldMember> {
    let stem = |member: &str| member.rsplit_once('.').map(|(stem, _)| stem.to_owned());
    let images = || sample.members.iter().map(|(member, _)| member).filter(|member| is_image(member));
    let plain = images().filter(|member| stem(member).is_none()).count();
    let is_main = |member: &str| match (plain, stem(member)) {
        (0, Some(stem)) => MAIN_NAMES.contains(&stem.as_str()),
        (_, stem) => stem.is_none(),
    };
    if images().filter(|member| is_main(member)).count() != 1 {
        return Vec::new();
    }
    let further = sample.members.iter().filter(|(member, _)| is_image(member) && !is_main(member));
    let of = |(member, bytes): &(String, bytes::Bytes)| {
        // Only PNG files can be masks, whatever their names.
        let is_png = transform::sniff(bytes) == Some(ImageType::Png);
        FieldMember::new(None, member, (!is_png).then_some(FieldType::Image))
    };
    further.map(of).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn lists_are_parsed_and_formatted() {
        let fields: ImageFields = "seg.png,depth=d.PNG:image,.left.jpg,label.png,png".parse().unwrap();
        let formatted =
            "seg=seg.png:mask,depth=d.png:image,left=left.jpg:image,label_mask=label.png:mask,png=png:mask";
        assert_eq!(fields.to_string(), formatted);
        assert_eq!(formatted.parse::<ImageFields>().unwrap(), fields);
        assert_eq!("auto".parse::<ImageFields>().unwrap(), ImageFields::Auto);
        for wrong in ["", "seg", "seg.png:masks", "=seg.png", "a=seg.png,b=seg.png", "a=", "seg.npy"] {
            assert!(wrong.parse::<ImageFields>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_main_image_of_a_sample_is_identified() {
        let found = |members: &[&str]| {
            let png = Bytes::from_static(b"\x89PNG\r\n\x1a\n");
            let members = members.iter().map(|m| ((*m).to_owned(), png.clone())).collect();
            let sample = Sample { name: "x".to_owned(), members, defect: None };
            further_images(&sample).into_iter().map(|f| f.member).collect::<Vec<_>>()
        };
        assert_eq!(found(&["jpg", "seg.png", "txt", "depth.map.png"]), ["seg.png", "depth.map.png"]);
        assert_eq!(found(&["rgb.png", "seg.png"]), ["seg.png"]);
        assert_eq!(found(&["png"]), [""; 0]);
        // The main image is ambiguous.
        assert_eq!(found(&["jpg", "png"]), [""; 0]);
        assert_eq!(found(&["left.png", "right.png"]), [""; 0]);
    }
}
