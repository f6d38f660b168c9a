//! Reduced sizes.

/// The size of the decoded image in relation to the stored one. Sides are rounded up.
///
/// A reduced decode costs less than a full one and an ordinary resize: blocks are transformed to 4×4, 2×2 or 1×1 samples
/// instead of 8×8.
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
    /// The scale that divides sides by `denominator`: 1, 2, 4 or 8.
    pub fn from_denominator(denominator: u32) -> Option<Self> {
        match denominator {
            1 => Some(Self::Full),
            2 => Some(Self::Half),
            4 => Some(Self::Quarter),
            8 => Some(Self::Eighth),
            _ => None,
        }
    }

    /// What sides are divided by.
    pub fn denominator(self) -> usize {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }

    /// A side of the decoded image.
    ///
    /// ```
    /// use dsconvert_jpeg::Scale;
    ///
    /// assert_eq!(Scale::Quarter.of_side(101), 26);
    /// ```
    pub fn of_side(self, side: usize) -> usize {
        side.div_ceil(self.denominator())
    }

    /// Samples on a side of a block that has 8 at full size.
    pub(crate) fn block_side(self) -> usize {
        8 / self.denominator()
    }
}
