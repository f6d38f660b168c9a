//! Flags in place of the option names in the library's messages.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use clap::CommandFactory;

use super::Cli;
use crate::error::Error;
use crate::option_names::respell_options;

/// Library names of the options of all subcommands. Advice may name an option of another subcommand: the error of a
/// part suggests to plan again with `overwrite`.
static OPTIONS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut names = BTreeSet::new();
    add_options(&Cli::command(), &mut names);
    names
});

fn add_options(command: &clap::Command, names: &mut BTreeSet<String>) {
    names.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| long.replace('-', "_")));
    command.get_subcommands().for_each(|subcommand| add_options(subcommand, names));
}

/// Returns the flag of an option of the library: `--text-field` for `text_field`. Returns `None` for other names, such
/// as the argument `SRC`.
fn flag(option: &str) -> Option<String> {
    OPTIONS.contains(option).then(|| format!("--{}", option.replace('_', "-")))
}

/// Returns a message of the library with flags as option names.
pub(super) fn with_flags(message: &str) -> String {
    respell_options(message, flag)
}

/// Formats an error with flags as option names.
pub(super) fn shown(error: &Error) -> String {
    error.with_options_as(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_all_subcommands() {
        for (option, expected) in [
            ("text_field", Some("--text-field")),
            ("resume", Some("--resume")),
            ("cache_bytes", None),
            ("SRC", None),
            ("text-field", None),
        ] {
            assert_eq!(flag(option).as_deref(), expected);
        }
        let message = "use `engine reference` or `part 3/40`; `dsconvert status out` lists \"`engine`\"";
        let expected = "use --engine reference or --part 3/40; `dsconvert status out` lists \"`engine`\"";
        assert_eq!(with_flags(message), expected);
        let error = Error::usage("`dedup` reads twice").of_option("files_from");
        assert_eq!(shown(&error), "--files-from: --dedup reads twice");
    }
}
