//! Checks of an output directory before anything is written.

use std::path::{Path, PathBuf};

use super::output_state::{Existing, RETIRED_NAME, ResumeCheck, WORK_NAME};
use super::publish::Remote;
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_NAME;
use crate::printable::printable_path;
use crate::storage::{ObjectUrl, check_local, find_link, is_empty_dir, lstat, real_path, stat};

/// What the output is called in errors.
pub(super) const OUTPUT: &str = "the output directory";

/// Help for an output that already has a dataset.
pub(super) const CHOOSE_OR_REPLACE: &str = "choose another `out`, or replace it with `overwrite`";

/// Refuses everything that can be refused without writing: a directory in use, or one that contains a source or is
/// inside one.
pub(super) fn check(out: &Path, scratch: Option<&Path>, existing: Existing, sources: &[&Path]) -> Result<()> {
    check_scratch(out, scratch)?;
    if let Some(remote) = Remote::of(out)? {
        return remote.check(existing, scratch, sources);
    }
    for source in sources {
        refuse_overlap(out, OUTPUT, source)?;
    }
    if stat(out)?.is_some_and(|meta| !meta.is_dir()) {
        return Err(Error::usage("the output is not a directory").at_path(out).help("choose another `out`"));
    }
    if is_empty_dir(out)? {
        return Ok(());
    }
    let dataset = lstat(&out.join(MANIFEST_NAME))?.is_some();
    let unfinished = lstat(&out.join(WORK_NAME))?.is_some();
    let (what, help) = match existing {
        Existing::Refuse if dataset => ("a dataset already exists", CHOOSE_OR_REPLACE),
        Existing::Refuse if unfinished => (
            "a run into this directory has not finished",
            "finish it with `resume`, or start again with `overwrite`",
        ),
        Existing::Refuse => ("the output directory is not empty", "choose another `out`"),
        _ if dataset || unfinished => return refuse_links(out, existing),
        _ => (
            "the output directory contains files that do not belong to a dataset",
            "choose another `out`; only files that a manifest lists are ever removed",
        ),
    };
    Err(Error::usage(what).at_path(out).help(help))
}

/// Refuses a scratch directory that is not local, or that the output does not need.
pub(super) fn check_scratch(out: &Path, scratch: Option<&Path>) -> Result<()> {
    let Some(scratch) = scratch else { return Ok(()) };
    check_local("scratch", scratch)?;
    if ObjectUrl::is_url(out) {
        return Ok(());
    }
    Err(Error::usage("`scratch` applies only to an output in object storage")
        .help("leave it out: shards are written directly to a local output"))
}

/// Refuses `inputs`, files that the named options give to a run, inside an output directory whose files the run removes.
pub(super) fn refuse_inputs(
    out: &Path,
    existing: Existing,
    inputs: &[(&'static str, PathBuf)],
) -> Result<()> {
    if ObjectUrl::is_url(out) {
        return Ok(());
    }
    // An interrupted removal is finished by any run.
    let removes =
        existing == Existing::Overwrite || lstat(&out.join(WORK_NAME).join(RETIRED_NAME))?.is_some();
    if !removes {
        return Ok(());
    }
    let dir = real_path(out)?;
    for (option, path) in inputs {
        if real_path(path)?.starts_with(&dir) {
            return Err(Error::usage(
                "the file is in the output directory, whose dataset is removed before the conversion",
            )
            .of_option(option)
            .at_path(path)
            .help(format!("copy it to another place, and name the copy with `{option}`")));
        }
    }
    Ok(())
}

/// Refuses a local directory, called `what` in the error, that contains the source or is inside it.
pub(super) fn refuse_overlap(dir: &Path, what: &str, source: &Path) -> Result<()> {
    if ObjectUrl::is_url(source) {
        return Ok(());
    }
    // A pipe such as /dev/fd/63 has no path to resolve. Only files and folders are read, so it is refused later.
    if stat(source)?.is_some_and(|meta| !meta.is_dir() && !meta.is_file()) {
        return Ok(());
    }
    let (real, source_path) = (real_path(dir)?, real_path(source)?);
    if !real.starts_with(&source_path) && !source_path.starts_with(&real) {
        return Ok(());
    }
    Err(overlap(dir, what, source))
}

/// Returns the error for an output at `out`, called `what`, that contains the source at `source` or is inside it.
pub(super) fn overlap(out: &Path, what: &str, source: &Path) -> Error {
    Error::usage(format!("{what} and the source {} overlap", printable_path(source)))
        .at_path(out)
        .help("choose an `out` that is not inside a source and does not contain one")
}

/// Refuses an output directory that contains a symbolic link: through it, files elsewhere would be written or removed.
fn refuse_links(out: &Path, existing: Existing) -> Result<()> {
    let Some(link) = find_link(out)? else { return Ok(()) };
    let help = match existing {
        Existing::Resume(ResumeCheck::Repair) => "remove the link, then repair again",
        _ => "remove the link or choose another `out`; only the output directory itself may be a link",
    };
    Err(Error::usage("the output directory contains a symbolic link").at_path(link).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_overlaps_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        std::fs::create_dir(&source).unwrap();
        let specs = [source.as_path()];
        assert!(check(&source.join("deep/out"), None, Existing::Refuse, &specs).is_err());
        assert!(check(dir.path(), None, Existing::Overwrite, &specs).is_err());
        assert!(check(&dir.path().join("new/../src/out"), None, Existing::Refuse, &specs).is_err());
        assert!(check(&dir.path().join("src-out"), None, Existing::Refuse, &specs).is_ok());
    }
}
