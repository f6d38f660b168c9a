//! Identity of the build.
//!
//! Units of one plan must come from one build: another version, other versions of dependencies or another target may
//! write other bytes. Development builds do not record their commit, so they are not told apart. The identity is not part
//! of any dataset. `build.rs` sets the variables.

/// Identifies this build, for programs and in messages.
pub(crate) const BUILD_ID: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("DSCONVERT_COMMIT"),
    ", dependencies ",
    env!("DSCONVERT_DEPENDENCIES"),
    ", ",
    env!("DSCONVERT_TARGET"),
    ")"
);
