//! The `dsconvert` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    dsconvert::cli::main()
}
