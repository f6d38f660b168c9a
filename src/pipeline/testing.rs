//! Bugs on demand, for tests of the command. Only builds with debug assertions have them: a release build never looks at
//! the environment.

/// Names the place that panics, as `convert`, or the item, as `item:photos/1.jpg`.
#[cfg(debug_assertions)]
const VARIABLE: &str = "DSCONVERT_TEST_PANIC";

/// Panics when a test wants a bug at `place`.
#[cfg(debug_assertions)]
pub(crate) fn panic_point(place: &str) {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    assert!(wanted != place, "a test wants a panic at {place}");
}

/// Panics when a test wants a bug in the code for the item called `origin`.
#[cfg(debug_assertions)]
pub(crate) fn item_panic_point(origin: &str) {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    assert!(wanted.strip_prefix("item:") != Some(origin), "a test wants a panic at {origin}");
}

/// Does nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn panic_point(_: &str) {}

/// Does nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn item_panic_point(_: &str) {}
