//! Refuses to link a Oniguruma library of the system. Ids depend on its version and on how it was built, so it is always
//! compiled from the C source in `onig_sys`.

#![allow(clippy::print_stdout, reason = "this is how a build script talks to Cargo")]

use std::env;

/// The variables of `onig_sys`, and whether a value that means "yes" selects the library of the system.
const VARIABLES: [(&str, bool); 3] = [
    ("RUSTONIG_SYSTEM_LIBONIG", true),
    ("RUSTONIG_DYNAMIC_LIBONIG", true),
    ("RUSTONIG_STATIC_LIBONIG", false),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (name, yes_selects_system) in VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
        let Some(value) = env::var_os(name) else { continue };
        // As in the build script of `onig_sys`.
        let is_yes = !["0", "no", "false"].iter().any(|no| value.eq_ignore_ascii_case(no));
        if is_yes == yes_selects_system {
            println!(
                "cargo::error=the variable {name} selects an Oniguruma library of the system, which may give other ids \
                 than the published package; unset it"
            );
        }
    }
}
