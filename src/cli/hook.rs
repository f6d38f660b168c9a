//! The panic hook of the command: contained panics print nothing, because they become a reject or an error that is
//! printed once. Any other panic is printed as before.

use std::panic;
use std::sync::Once;

use crate::panics;

/// Installs the hook, once per process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !panics::note(info.location()) && !dsconvert_tokens::is_panic_contained() {
                usual(info);
            }
        }));
    });
}
