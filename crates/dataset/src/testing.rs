//! Panics and pauses on request, for tests of the command. They exist only in builds with debug assertions: a release
//! build never reads the environment variables.

/// Names the place that panics, such as `convert`, or the item, such as `item:photos/1.jpg`.
#[cfg(debug_assertions)]
const VARIABLE: &str = "DSCONVERT_TEST_PANIC";

/// Panics if a test requests a panic at `place`.
#[cfg(debug_assertions)]
pub fn panic_point(place: &str) {
    let requested = std::env::var(VARIABLE).unwrap_or_default();
    assert!(requested != place, "a test requested a panic at {place}");
}

/// Panics if a test requests a panic for the item with this `origin`.
#[cfg(debug_assertions)]
pub fn item_panic_point(origin: &str) {
    let requested = std::env::var(VARIABLE).unwrap_or_default();
    assert!(requested.strip_prefix("item:") != Some(origin), "a test requested a panic at {origin}");
}

/// Waits half a second if a test requests a pause at `place`.
#[cfg(debug_assertions)]
pub fn pause_point(place: &str) {
    if std::env::var("DSCONVERT_TEST_PAUSE").is_ok_and(|requested| requested == place) {
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

/// Does nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn pause_point(_: &str) {}

/// Does nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn panic_point(_: &str) {}

/// Does nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn item_panic_point(_: &str) {}
