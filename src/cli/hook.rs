//! Panic hook of the command and of the Python package. Caught panics print nothing here, because they become a reject or an error, which is
//! printed once. Those of the AVIF decoder never return. Other panics go to the previous hook.

use std::panic;
use std::sync::Once;

use crate::{decode, panics};

/// Installs the hook, once per process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            decode::avif::contain_panic(info);
            if !panics::note(info.location()) && !dsconvert_tokens::is_panic_contained() {
                previous(info);
            }
        }));
    });
}
