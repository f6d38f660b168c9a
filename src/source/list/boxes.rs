//! The boxes of an image, as its annotations state them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sample::PixelBox;

/// The boxes of an image, as its annotations state them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageBoxes {
    /// Width and height of the image according to its annotations.
    pub size: Option<(u32, u32)>,
    /// Whether the numbers are fractions of the size rather than pixels.
    pub are_fractions: bool,
    /// Whether pixels are those of the upright image if no size is stated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_upright: bool,
    /// The boxes.
    pub list: BoxList,
    /// What the annotations say besides, by number.
    #[serde(default, skip_serializing_if = "BoxExtras::is_empty")]
    pub extras: BoxExtras,
}

/// Number of boxes of an image for which its annotations say more than a record stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxExtras {
    /// Boxes that are those around polygons.
    pub polygons: u64,
    /// Boxes with keypoints.
    pub keypoints: u64,
    /// Boxes with a mask: polygons or run lengths.
    pub masks: u64,
    /// Boxes with a confidence, as predictions have.
    pub confidences: u64,
    /// Boxes with an angle, by which they are not turned.
    pub rotations: u64,
    /// Boxes with boxes of their parts.
    pub parts: u64,
    /// Boxes that are marked to be ignored.
    pub ignored: u64,
}

impl BoxExtras {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the numbers with their names in the `notes` of a manifest.
    pub fn notes(&self) -> [(&'static str, u64); 7] {
        [
            ("boxes_of_polygons", self.polygons),
            ("keypoints_left_out", self.keypoints),
            ("masks_left_out", self.masks),
            ("confidences_left_out", self.confidences),
            ("rotations_left_out", self.rotations),
            ("parts_left_out", self.parts),
            ("ignore_flags_left_out", self.ignored),
        ]
    }
}

/// Boxes with their classes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoxList {
    /// x and y of the top left and bottom right corners.
    #[serde(serialize_with = "to_bits", deserialize_with = "from_bits")]
    pub boxes: Vec<PixelBox>,
    /// The class of each box.
    pub labels: Vec<u32>,
    /// For each of the first boxes, 1 if it is around a crowd, or difficult. The others are not.
    pub crowds: Vec<i64>,
}

impl BoxList {
    /// Adds a box with its class, and 1 if it is around a crowd, or difficult.
    pub(crate) fn push(&mut self, corners: PixelBox, label: u32, crowd: i64) {
        self.boxes.push(corners);
        self.labels.push(label);
        if crowd != 0 {
            self.crowds.resize(self.labels.len() - 1, 0);
            self.crowds.push(crowd);
        }
    }
}

impl ImageBoxes {
    /// Returns boxes in fractions of the upright image.
    pub(crate) fn fractions(list: BoxList, extras: BoxExtras) -> Self {
        Self { size: None, are_fractions: true, is_upright: true, list, extras }
    }
}

/// Numbers as their bits, because JSON has no infinities.
fn to_bits<S: Serializer>(boxes: &[PixelBox], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(boxes.iter().map(|corners| corners.map(f32::to_bits)))
}

fn from_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PixelBox>, D::Error> {
    let bits = Vec::<[u32; 4]>::deserialize(deserializer)?;
    Ok(bits.into_iter().map(|corners| corners.map(f32::from_bits)).collect())
}
