//! Files that options such as `--html` name for the output of a command.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::print;
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_NAME;
use crate::options::check_local;
use crate::storage::{folder_of, lstat, open_file, real_path, stat, write_file};

/// Checks, before the work starts, that `file` can be written for `option`. A `dataset` must not contain it, because the
/// directory of a dataset holds only what its manifest lists.
pub(super) fn check_output(option: &'static str, file: &Path, dataset: Option<&Path>) -> Result<()> {
    check_local(option, file)?;
    let refuse = |what: &str| Error::usage(what).of_option(option).at_path(file);
    if file == Path::new("-") {
        return Err(refuse("the output needs a file").help("for standard output, name /dev/stdout"));
    }
    let kind = kind_of(option);
    if let Some(ty) = kind.as_ref().and_then(|kind| kind.mismatched_type(file)) {
        return Err(refuse(&format!("the output is {ty}, but the file has the extension of another type")));
    }
    let folder = folder_of(file);
    if !stat(folder)?.is_some_and(|meta| meta.is_dir()) {
        return Err(Error::usage("there is no such folder").of_option(option).at_path(folder));
    }
    if stat(file)?.is_some_and(|meta| meta.is_dir()) {
        return Err(refuse("this is a folder").help("name a file"));
    }
    refuse_datasets(file, dataset).map_err(|e| e.of_option(option))?;
    match kind {
        Some(kind) => refuse_other_kind(option, file, kind.name, |start| kind.begins_as(start)),
        None => Ok(()),
    }
}

/// Refuses a file inside the directory `dataset`, which need not exist yet, or inside any other dataset.
pub(super) fn refuse_datasets(file: &Path, dataset: Option<&Path>) -> Result<()> {
    // If a path cannot be resolved, opening or writing it reports the reason.
    // The link itself is in its folder, and its target may be elsewhere.
    let places = [real_path(folder_of(file)), real_path(file)].map(Result::ok);
    let refuse = |what: &str, path: &Path| {
        Err(Error::usage(what.to_owned()).at_path(path).help("name a file outside of it"))
    };
    if let Some(dataset) = dataset.and_then(|dataset| real_path(dataset).ok()) {
        if places[1].as_ref().is_some_and(|target| dataset.starts_with(target)) {
            return refuse("this is the directory of the dataset, or a folder above it", file);
        }
        if places.iter().flatten().any(|place| place.starts_with(&dataset)) {
            return refuse("the file would be inside the dataset", file);
        }
    }
    match places.iter().flatten().find_map(|place| place.ancestors().find(|folder| is_dataset(folder))) {
        Some(other) => refuse("the file would be inside this dataset", other),
        None => Ok(()),
    }
}

/// Returns whether two paths name the same file, which need not exist yet.
pub(super) fn is_same_file(a: &Path, b: &Path) -> bool {
    a == b || real_path(a).is_ok_and(|a| real_path(b).is_ok_and(|b| a == b))
}

/// Extensions of files that programs open by their extension.
const TYPES: [&str; 9] = ["gif", "htm", "html", "jpeg", "jpg", "pdf", "png", "svg", "webp"];

/// A kind of output.
struct OutputKind {
    name: &'static str,
    /// Name of the type, and its extensions; none if any name is usual.
    extensions: (&'static str, &'static [&'static str]),
    /// How files of this kind begin, in lower case.
    beginnings: &'static [&'static str],
}

/// Returns the kind of output that `option` names; `None` if it may be any.
fn kind_of(option: &str) -> Option<OutputKind> {
    let any_name = ("", &[][..]);
    let (name, extensions, beginnings): (_, (_, &[&str]), &[&str]) = match option {
        "html" => ("an HTML page", ("HTML", &["htm", "html"]), &["<!doctype html", "<html"]),
        "contact_sheet" => ("a PNG image", ("PNG", &["png"]), &["\u{fffd}png"]),
        "plot" | "svg" => ("an SVG image", ("SVG", &["svg"]), &["<svg"]),
        "report" => ("a run report", any_name, &["{\n  \"run_report\"", "{\"run_report\""]),
        // Traces from Python start with the second.
        "trace" => {
            ("a trace of load times", any_name, &["# load times of", "# milliseconds to load each batch"])
        }
        _ => return None,
    };
    Some(OutputKind { name, extensions, beginnings })
}

impl OutputKind {
    /// Returns the type that is written, if `file` has the extension of another type.
    fn mismatched_type(&self, file: &Path) -> Option<&'static str> {
        let (ty, extensions) = self.extensions;
        let extension = file.extension()?.to_str()?.to_ascii_lowercase();
        let is_other = TYPES.contains(&extension.as_str()) && !extensions.contains(&extension.as_str());
        (is_other && !extensions.is_empty()).then_some(ty)
    }

    /// Returns whether a file of this kind may begin with the bytes `start`.
    fn begins_as(&self, start: &[u8]) -> bool {
        let start = String::from_utf8_lossy(start).trim_start_matches('\u{feff}').to_ascii_lowercase();
        self.beginnings.iter().any(|beginning| start.trim_start().starts_with(beginning))
    }
}

/// Refuses to replace the regular file `file` for `option` if its first bytes are not those of `name`. It was then named
/// by mistake, and may be an input.
pub(super) fn refuse_other_kind(
    option: &'static str,
    file: &Path,
    name: &str,
    is_own: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    if is_stdout(file) || !stat(file)?.is_some_and(|meta| meta.is_file() && meta.len() > 0) {
        return Ok(());
    }
    let mut start = Vec::new();
    let opened = File::open(file).and_then(|opened| opened.take(64).read_to_end(&mut start));
    opened.map_err(|e| Error::io("read", file, e))?;
    match is_own(&start) {
        true => Ok(()),
        false => Err(Error::usage(format!("the file exists, and is not {name}"))
            .of_option(option)
            .at_path(file)
            .help("name another file, or remove this one")),
    }
}

/// Returns whether `folder` is the directory of a dataset.
fn is_dataset(folder: &Path) -> bool {
    let mut start = [0; 64];
    let read =
        open_file(&folder.join(MANIFEST_NAME), true).and_then(|mut manifest| manifest.read(&mut start));
    read.is_ok_and(|count| String::from_utf8_lossy(&start[..count]).contains("\"manifest_version\""))
}

/// Returns whether `file` is standard output: `/dev/stdout`, or the file or pipe that standard output leads to. A command
/// that writes a file there prints nothing else.
pub(super) fn is_stdout(file: &Path) -> bool {
    is_open_as(file, io::stdout())
}

/// Returns whether `file` and the open file `stream` are the same.
fn is_open_as(file: &Path, stream: impl AsFd) -> bool {
    match (std::fs::metadata(file), rustix::fs::fstat(stream)) {
        (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.st_dev, open.st_ino),
        _ => false,
    }
}

/// Writes `bytes` to `file`.
///
/// If the file is standard output or standard error, the bytes follow what was printed before. Otherwise, a regular file
/// appears complete or not at all. The target of a symbolic link is written, and so is the device or FIFO itself: none of
/// them is replaced.
pub(super) fn write_output(file: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |e: io::Error| Error::io("write", file, e);
    if is_stdout(file) {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(print::failed);
    }
    if is_open_as(file, io::stderr()) {
        return io::stderr().write_all(bytes).map_err(fail);
    }
    match (stat(file)?, lstat(file)?) {
        (Some(meta), _) if meta.is_file() => {
            let target = file.canonicalize().map_err(fail)?;
            write_file(&target, bytes).map(drop)
        }
        (None, None) => write_file(file, bytes).map(drop),
        // A device, a FIFO, or a link to a file that does not exist yet.
        _ => {
            let mut options = OpenOptions::new();
            let mut opened = options.write(true).create(true).open(file).map_err(fail)?;
            opened.write_all(bytes).map_err(fail)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn links_and_fifos_are_written_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("old"), "old content").unwrap();
        symlink("old", at("link")).unwrap();
        symlink("new", at("dangling")).unwrap();
        for (name, target) in [("link", "old"), ("dangling", "new"), ("file", "file")] {
            write_output(&at(name), name.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(at(target)).unwrap(), name);
        }
        assert!(lstat(&at("link")).unwrap().unwrap().is_symlink());

        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = std::thread::spawn({
            let fifo = at("fifo");
            move || std::fs::read(fifo).unwrap()
        });
        write_output(&at("fifo"), b"page").unwrap();
        assert_eq!(reader.join().unwrap(), b"page");
        assert!(!lstat(&at("fifo")).unwrap().unwrap().is_file());
    }

    #[test]
    fn unusable_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let dataset = at("dataset");
        std::fs::create_dir(&dataset).unwrap();
        std::fs::write(dataset.join("manifest.json"), "").unwrap();
        symlink("dataset/manifest.json", at("link")).unwrap();
        let check = |file: &Path| check_output("html", file, Some(&dataset));
        for refused in [Path::new("-"), &at("none/file"), &dataset, &dataset.join("page"), &at("link")] {
            check(refused).unwrap_err();
        }
        check(&at("page")).unwrap();
        // A dataset that does not exist yet.
        for (file, out) in
            [("q", "q"), ("q", "./q"), ("q", "q/deep/below"), ("./q", "dataset/../q"), ("q", "new/../q")]
        {
            check_output("report", &at(file), Some(&at(out))).unwrap_err();
        }
        check_output("report", &at("q"), Some(&at("q-out"))).unwrap();
    }

    #[test]
    fn files_of_another_kind_and_datasets_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (option, ours, other) in [
            ("html", "<!DOCTYPE html>\n<html>", "<svg xmlns='x'>"),
            ("svg", "<svg xmlns='x'>", "# load times of 3 batches\n1.5\n"),
            ("report", "{\n  \"run_report\": 1", "{\n  \"manifest_version\": 2"),
            ("svg", "<svg xmlns='x'>", "<?xml version=\"1.0\"?>\n<project>"),
            ("trace", "# load times of 3 batches\n1.5\n", "{\"text\": \"a\"}\n"),
            ("trace", "# milliseconds to load each batch\n1.5\n", "# My notes\n"),
        ] {
            std::fs::write(at("out"), ours).unwrap();
            check_output(option, &at("out"), None).unwrap();
            std::fs::write(at("out"), other).unwrap();
            let refused = check_output(option, &at("out"), None).unwrap_err();
            assert!(refused.to_string().contains("the file exists, and is not a"), "{refused}");
            std::fs::write(at("out"), "").unwrap();
            check_output(option, &at("out"), None).unwrap();
        }
        std::fs::create_dir_all(at("other/train")).unwrap();
        check_output("html", &at("other/train/page.html"), None).unwrap();
        // Not the manifest of a dataset, as in a web application.
        std::fs::write(at("other/manifest.json"), "{\"name\": \"app\"}").unwrap();
        check_output("html", &at("other/train/page.html"), None).unwrap();
        std::fs::write(at("other/manifest.json"), "{\n  \"manifest_version\": 2,").unwrap();
        for file in ["other/page.html", "other/train/page.html"] {
            let refused = check_output("html", &at(file), None).unwrap_err();
            assert!(refused.to_string().contains("inside this dataset"), "{refused}");
        }
    }

    #[test]
    fn other_spellings_of_a_file_are_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::write(at("old"), "").unwrap();
        symlink("folder", at("linked-folder")).unwrap();
        symlink("old", at("linked-file")).unwrap();
        for (a, b) in [
            ("new", "./new"),
            ("new", "folder/../new"),
            ("folder/new", "linked-folder/new"),
            ("old", "linked-file"),
        ] {
            assert!(is_same_file(&at(a), &at(b)), "{a} and {b}");
        }
        for (a, b) in [("new", "old"), ("folder/new", "new")] {
            assert!(!is_same_file(&at(a), &at(b)), "{a} and {b}");
        }
        // Relative names.
        assert!(is_same_file(Path::new("new-page.html"), Path::new("./new-page.html")));
    }
}
