//! `dsconvert completions` and `dsconvert man`: shell completions and manual pages, generated from the clap definition.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Ending, print};
use crate::error::{Error, Result};
use crate::options::check_local;
use crate::storage::create_dir;

/// Arguments of `dsconvert completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dsconvert completions bash > ~/.local/share/bash-completion/completions/dsconvert
  dsconvert completions zsh > ~/.zfunc/_dsconvert
  dsconvert completions fish > ~/.config/fish/completions/dsconvert.fish")]
pub(super) struct CompletionArgs {
    /// Shell to print completions for
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Arguments of `dsconvert man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Output directory, such as ~/.local/share/man/man1; created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints completions.
pub(super) fn completions(args: &CompletionArgs) -> Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dsconvert", &mut script);
    print::out(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Success)
}

/// Writes a manual page for the command and for each subcommand.
pub(super) fn man(args: &ManArgs) -> Result<Ending> {
    check_local("DIR", &args.dir)?;
    create_dir(&args.dir)?;
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .map_err(|e| Error::io("write manual pages to", &args.dir, e))?;
    Ok(Ending::Success)
}
