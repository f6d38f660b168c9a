//! Text that `dsconvert --version` prints after the name. `-V` prints only the version.

/// Version, commit, crate features and target: what a bug report needs. `build.rs` sets the variables.
pub(super) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("DSCONVERT_COMMIT"),
    "\nfeatures: ",
    env!("DSCONVERT_FEATURES"),
    "\ntarget:   ",
    env!("DSCONVERT_TARGET"),
);
