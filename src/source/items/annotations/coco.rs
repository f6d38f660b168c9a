//! COCO files: boxes (`instances`) and captions of images that the file lists.

use std::fmt;
use std::path::Path;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};
use crate::source::io::encoding::without_bom;
use crate::source::list::boxes::BoxExtras;

/// A COCO file. Members that are not used are skipped.
#[derive(Debug, Deserialize)]
pub(super) struct CocoFile {
    pub(super) images: Vec<CocoImage>,
    #[serde(default)]
    pub(super) annotations: Vec<CocoAnnotation>,
    #[serde(default)]
    pub(super) categories: Vec<CocoCategory>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CocoImage {
    pub(super) id: CocoId,
    pub(super) file_name: String,
    pub(super) width: Option<u32>,
    pub(super) height: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CocoAnnotation {
    pub(super) image_id: CocoId,
    pub(super) category_id: Option<CocoId>,
    pub(super) bbox: Option<CocoBox>,
    #[serde(default)]
    pub(super) iscrowd: CocoFlag,
    pub(super) caption: Option<String>,
    #[serde(default)]
    segmentation: CocoExtra,
    #[serde(default)]
    keypoints: CocoExtra,
    num_keypoints: Option<IgnorableNumber>,
    #[serde(default)]
    score: CocoExtra,
    #[serde(default)]
    ignore: CocoExtra,
    #[serde(default)]
    attributes: CocoAttributes,
}

impl CocoAnnotation {
    /// Counts what is not stored of a box.
    pub(super) fn add_extras(&self, extras: &mut BoxExtras) {
        let is_zero = self.num_keypoints.as_ref().is_some_and(|number| number.0 == Some(0.0));
        extras.masks += u64::from(self.segmentation.0);
        extras.keypoints += u64::from(self.keypoints.0 && !is_zero);
        extras.confidences += u64::from(self.score.0);
        extras.ignored += u64::from(self.ignore.0);
        extras.rotations += u64::from(self.attributes.is_rotated);
    }
}

/// Whether a member that is not stored says something: it is neither null, nor 0, nor false, nor empty.
#[derive(Debug, Default)]
struct CocoExtra(bool);

/// A number; `None` for any other value.
#[derive(Debug)]
struct IgnorableNumber(Option<f64>);

/// What CVAT says about an annotation.
#[derive(Debug, Default)]
struct CocoAttributes {
    is_rotated: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct CocoCategory {
    pub(super) id: CocoId,
    pub(super) name: String,
}

/// An id of an image or a category: an integer or, in files of some programs, text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum CocoId {
    Negative(i64),
    Number(u64),
    Text(Box<str>),
}

/// x, y, width and height; `None` if there is another number of values, or one is not a number.
#[derive(Debug)]
pub(super) struct CocoBox(pub(super) Option<[f64; 4]>);

/// 0, 1, false or true.
#[derive(Debug, Default)]
pub(super) struct CocoFlag(pub(super) i64);

impl CocoFile {
    /// Parses the file at `path`.
    ///
    /// # Errors
    ///
    /// Fails if it is not JSON, or does not have the members of a COCO file.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let file: Self = serde_json::from_slice(without_bom(bytes)).map_err(|e| {
            Error::usage("this is not a file of COCO annotations")
                .of_option("annotations")
                .at_path(path)
                .help(
                    "it must be a JSON object with images (id, file_name), annotations (image_id, and bbox or caption) and \
                     categories (id, name); labels of YOLO are given as the folder that has them",
                )
                .caused_by(e)
        })?;
        if !file.has_boxes() && !file.has_captions() && file.categories.is_empty() {
            return Err(Error::usage("the file has neither boxes nor captions")
                .of_option("annotations")
                .at_path(path)
                .help("an annotation has a bbox or a caption, as in instances_*.json and captions_*.json"));
        }
        Ok(file)
    }

    /// Returns whether the images of the file have boxes. Without annotations, they have none, but could have.
    pub(super) fn has_boxes(&self) -> bool {
        self.annotations.iter().any(|annotation| annotation.bbox.is_some())
            || (self.annotations.is_empty() && !self.categories.is_empty())
    }

    /// Returns whether the images of the file have captions.
    pub(super) fn has_captions(&self) -> bool {
        self.annotations.iter().any(|annotation| annotation.caption.is_some())
    }
}

impl fmt::Display for CocoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negative(id) => id.fmt(f),
            Self::Number(id) => id.fmt(f),
            Self::Text(id) => write!(f, "{id:?}"),
        }
    }
}

impl<'de> Deserialize<'de> for CocoId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;

        impl Visitor<'_> for IdVisitor {
            type Value = CocoId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: an integer of 64 bits, or text")
            }

            fn visit_i64<E>(self, id: i64) -> Result<CocoId, E> {
                Ok(u64::try_from(id).map_or(CocoId::Negative(id), CocoId::Number))
            }

            fn visit_u64<E>(self, id: u64) -> Result<CocoId, E> {
                Ok(CocoId::Number(id))
            }

            fn visit_str<E>(self, id: &str) -> Result<CocoId, E> {
                Ok(CocoId::Text(id.into()))
            }
        }

        deserializer.deserialize_any(IdVisitor)
    }
}

impl<'de> Deserialize<'de> for CocoBox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoxVisitor;

        impl<'de> Visitor<'de> for BoxVisitor {
            type Value = CocoBox;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of x, y, width and height")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CocoBox, A::Error> {
                let mut numbers = [0.0; 4];
                for slot in &mut numbers {
                    match list.next_element::<Option<f64>>()? {
                        Some(Some(number)) => *slot = number,
                        Some(None) => {
                            while list.next_element::<IgnoredAny>()?.is_some() {}
                            return Ok(CocoBox(None));
                        }
                        None => return Ok(CocoBox(None)),
                    }
                }
                let mut more = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(CocoBox((more == 0).then_some(numbers)))
            }
        }

        deserializer.deserialize_seq(BoxVisitor)
    }
}

impl<'de> Deserialize<'de> for CocoExtra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExtraVisitor;

        impl<'de> Visitor<'de> for ExtraVisitor {
            type Value = CocoExtra;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_unit<E>(self) -> Result<CocoExtra, E> {
                Ok(CocoExtra(false))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<CocoExtra, E> {
                Ok(CocoExtra(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<CocoExtra, E> {
                Ok(CocoExtra(number != 0))
            }

            fn visit_u64<E>(self, number: u64) -> Result<CocoExtra, E> {
                Ok(CocoExtra(number != 0))
            }

            fn visit_f64<E>(self, number: f64) -> Result<CocoExtra, E> {
                Ok(CocoExtra(number != 0.0))
            }

            fn visit_str<E>(self, text: &str) -> Result<CocoExtra, E> {
                Ok(CocoExtra(!text.is_empty()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CocoExtra, A::Error> {
                let mut is_any = false;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    is_any = true;
                }
                Ok(CocoExtra(is_any))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<CocoExtra, A::Error> {
                let mut is_any = false;
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    is_any = true;
                }
                Ok(CocoExtra(is_any))
            }
        }

        deserializer.deserialize_any(ExtraVisitor)
    }
}

impl<'de> Deserialize<'de> for IgnorableNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(deserializer).map(|value| Self(value.as_f64()))
    }
}

impl<'de> Deserialize<'de> for CocoAttributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attributes = serde_json::Value::deserialize(deserializer)?;
        let angle = attributes.get("rotation").and_then(serde_json::Value::as_f64);
        Ok(Self { is_rotated: angle.is_some_and(|angle| angle != 0.0) })
    }
}

impl<'de> Deserialize<'de> for CocoFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Flag {
            Number(i64),
            Truth(bool),
            Null(()),
        }
        match Flag::deserialize(deserializer) {
            Ok(Flag::Number(number)) => Ok(Self(number)),
            Ok(Flag::Truth(truth)) => Ok(Self(truth.into())),
            Ok(Flag::Null(())) => Ok(Self(0)),
            Err(_) => Err(D::Error::custom("iscrowd is neither 0 nor 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn parse(json: &str) -> Result<CocoFile> {
        CocoFile::parse(json.as_bytes(), Path::new("a.json"))
    }

    #[test]
    fn members_of_files_are_read_and_others_skipped() {
        let file = parse(
            r#"{"info": {"year": 2017}, "licenses": [], "images": [
                {"id": 1, "file_name": "a.jpg", "width": 4, "height": 3, "license": 2},
                {"id": "x", "file_name": "b.jpg"}, {"id": -7, "file_name": "c.jpg", "width": null}],
              "annotations": [
                {"id": 5, "image_id": 1, "category_id": 90, "bbox": [0.5, 1, 2, 1e1], "iscrowd": 1, "area": 3,
                 "segmentation": [[1, 2]]},
                {"image_id": "x", "category_id": 18446744073709551615, "bbox": [], "iscrowd": false},
                {"image_id": "x", "category_id": 90, "bbox": [1, 2, 3, 4, 5]},
                {"image_id": -7, "category_id": 90, "bbox": [1, null, 3, 4]},
                {"image_id": -7, "caption": "ein Bär"}],
              "categories": [{"id": 90, "name": "bear", "supercategory": "animal"}]}"#,
        )
        .unwrap();
        let boxes: Vec<_> =
            file.annotations.iter().map(|a| a.bbox.as_ref().map(|CocoBox(numbers)| *numbers)).collect();
        assert_eq!(boxes, [Some(Some([0.5, 1.0, 2.0, 10.0])), Some(None), Some(None), Some(None), None]);
        let crowds: Vec<_> = file.annotations.iter().map(|a| a.iscrowd.0).collect();
        assert_eq!(crowds, [1, 0, 0, 0, 0]);
        let ids: Vec<_> = file.images.iter().map(|image| image.id.to_string()).collect();
        assert_eq!(ids, ["1", "\"x\"", "-7"]);
        assert_eq!(file.annotations[1].category_id, Some(CocoId::Number(u64::MAX)));
        assert!(file.has_boxes() && file.has_captions());
    }

    #[test]
    fn what_is_not_stored_is_counted() {
        let of = |members: &str| {
            let json = format!(
                "{{\"images\": [], \"annotations\": [{{\"image_id\": 1, \"bbox\": [], {members}}}]}}"
            );
            let mut extras = BoxExtras::default();
            parse(&json).unwrap().annotations[0].add_extras(&mut extras);
            extras
                .notes()
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (members, expected) in [
            (
                "\"segmentation\": [], \"keypoints\": null, \"score\": null, \"ignore\": 0, \"attributes\": {}",
                "",
            ),
            ("\"segmentation\": [[1, 2, 3, 4, 5, 6]]", "masks_left_out"),
            ("\"segmentation\": {\"counts\": \"a\", \"size\": [1, 2]}", "masks_left_out"),
            ("\"keypoints\": [1, 2, 2], \"num_keypoints\": 1", "keypoints_left_out"),
            ("\"keypoints\": [0, 0, 0], \"num_keypoints\": 0", ""),
            ("\"score\": 0.5, \"ignore\": 1", "confidences_left_out ignore_flags_left_out"),
            ("\"attributes\": {\"rotation\": 12.5, \"occluded\": false}", "rotations_left_out"),
            ("\"attributes\": [1], \"num_keypoints\": \"x\"", ""),
        ] {
            assert_eq!(of(members), expected, "{members}");
        }
    }

    proptest! {
        #[test]
        fn any_json_is_read_or_refused(
            key in select(vec!["id", "image_id", "category_id", "bbox", "iscrowd", "caption", "file_name", "width"]),
            value in select(vec!["1", "-1", "1e400", "18446744073709551616", "null", "true", "\"a\"", "[]", "[1,2,3,4]", "{}", "[[1]]"]),
            cut in 0usize..120,
        ) {
            let one = format!("{{\"id\": 1, \"image_id\": 1, \"file_name\": \"a\", \"{key}\": {value}}}");
            let json = format!("{{\"images\": [{one}], \"annotations\": [{one}], \"categories\": []}}");
            let whole = parse(&json);
            prop_assert!(whole.is_ok() || whole.is_err_and(|error| error.option() == Some("annotations")));
            prop_assert!(parse(json.get(..cut).unwrap_or("")).is_err());
        }
    }

    #[test]
    fn other_files_are_refused_with_the_place() {
        for (json, what) in [
            ("[1]", "line 1"),
            ("{\"images\": [], ", "line 1"),
            ("{\"annotations\": []}", "images"),
            ("{\"images\": [{\"id\": 1}]}", "file_name"),
            ("{\"images\": [{\"id\": 1e30, \"file_name\": \"a\"}]}", "an integer of 64 bits"),
            ("{\"images\": [{\"id\": 1, \"file_name\": \"a\", \"width\": -3}]}", "-3"),
            ("{\"images\": [], \"annotations\": [{\"image_id\": 1, \"bbox\": [NaN, 1, 2, 3]}]}", "line 1"),
            (
                "{\"images\": [], \"annotations\": [{\"image_id\": 1, \"segments_info\": []}]}",
                "neither boxes nor captions",
            ),
        ] {
            let error = parse(json).unwrap_err();
            let text = format!("{error} {:?}", std::error::Error::source(&error).map(ToString::to_string));
            assert!(text.contains(what), "{json}: {text}");
        }
    }
}
