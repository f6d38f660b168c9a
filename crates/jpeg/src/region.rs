//! Rectangles of pixels.

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Region {
    /// Returns the region that covers an image of `width` × `height` pixels.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { left: 0, top: 0, width, height }
    }

    /// Returns whether the region is not empty and lies inside an image of `width` × `height` pixels.
    pub(crate) fn fits(self, width: usize, height: usize) -> bool {
        let fits = |start: usize, length: usize, all: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
        };
        fits(self.left, self.width, width) && fits(self.top, self.height, height)
    }
}
