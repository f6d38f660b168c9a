//! Scales of decoded images.

/// The size of the decoded image relative to the stored one. Sides are rounded up.
///
/// A reduced decode is cheaper than a full decode and an ordinary resize: blocks are transformed to 4×4, 2×2 or 1×1
/// samples instead of 8×8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scale {
    /// Every pixel.
    #[default]
    Full,
    /// Half the width and height.
    Half,
    /// A quarter of the width and height.
    Quarter,
    /// An eighth of the width and height: the DC coefficients only.
    Eighth,
}

impl Scale {
    /// Returns the scale that divides sides by `denominator`: 1, 2, 4 or 8.
    pub fn from_denominator(denominator: u32) -> Option<Self> {
        match denominator {
            1 => Some(Self::Full),
            2 => Some(Self::Half),
            4 => Some(Self::Quarter),
            8 => Some(Self::Eighth),
            _ => None,
        }
    }

    /// Returns the number by which sides are divided.
    pub fn denominator(self) -> usize {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }

    /// Returns the length of a decoded side, given the stored length.
    ///
    /// ```
    /// use dsconvert_jpeg::Scale;
    ///
    /// assert_eq!(Scale::Quarter.of_side(101), 26);
    /// ```
    pub fn of_side(self, side: usize) -> usize {
        side.div_ceil(self.denominator())
    }

    /// Returns the samples per side of a block that has 8 at full size.
    pub(crate) fn block_side(self) -> usize {
        8 / self.denominator()
    }
}
