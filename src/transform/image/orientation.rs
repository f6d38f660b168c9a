//! The operations that turn the stored pixels of an image upright.

/// The operation that turns the stored pixels upright: values 1 to 8 of the EXIF tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Orientation {
    /// 1: none, the pixels are upright.
    #[default]
    Upright,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: rotate by 180°.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: mirror along the main diagonal.
    Transpose,
    /// 6: rotate clockwise by 90°.
    Rotate90,
    /// 7: mirror along the other diagonal.
    Transverse,
    /// 8: rotate clockwise by 270°.
    Rotate270,
}

impl Orientation {
    /// Returns the orientation of the EXIF value `tag`; `None` outside 1 to 8.
    pub(super) fn from_tag(tag: u16) -> Option<Self> {
        Some(match tag {
            1 => Self::Upright,
            2 => Self::FlipHorizontal,
            3 => Self::Rotate180,
            4 => Self::FlipVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => return None,
        })
    }

    /// Returns whether the orientation swaps width and height.
    pub(super) fn transposes(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// Returns whether the columns and the rows of the stored pixels are mirrored, before width and height are swapped.
    pub(super) fn mirrors(self) -> (bool, bool) {
        match self {
            Self::Upright | Self::Transpose => (false, false),
            Self::FlipHorizontal | Self::Rotate270 => (true, false),
            Self::Rotate180 | Self::Transverse => (true, true),
            Self::FlipVertical | Self::Rotate90 => (false, true),
        }
    }
}
