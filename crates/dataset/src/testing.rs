//! Panics and pauses on request, for tests of the command. They exist only in builds with debug assertions: a release
//! build never reads the environment variables.

/// Returns whether the environment variable `variable` has the value `value`.
fn is_requested(variable: &str, value: &str) -> bool {
    cfg!(debug_assertions) && std::env::var(variable).is_ok_and(|requested| requested == value)
}

/// Panics if a test requests a panic at `place`, such as `convert`.
#[inline]
pub fn panic_point(place: &str) {
    assert!(!is_requested("DSCONVERT_TEST_PANIC", place), "a test requested a panic at {place}");
}

/// Panics if a test requests a panic for the item with this `origin`: `item:photos/1.jpg`.
#[inline]
pub fn item_panic_point(origin: &str) {
    if cfg!(debug_assertions) {
        panic_point(&format!("item:{origin}"));
    }
}

/// Waits half a second if a test requests a pause at `place`.
#[inline]
pub fn pause_point(place: &str) {
    if is_requested("DSCONVERT_TEST_PAUSE", place) {
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}
