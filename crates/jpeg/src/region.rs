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
    /// All of an image of `width` × `height` pixels.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { left: 0, top: 0, width, height }
    }

    /// Whether it has pixels, and all of them lie in an image of `width` × `height` pixels.
    pub(crate) fn fits(self, width: usize, height: usize) -> bool {
        let fits = |start: usize, length: usize, all: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
        };
        fits(self.left, self.width, width) && fits(self.top, self.height, height)
    }
}
